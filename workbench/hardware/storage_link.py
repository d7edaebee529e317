"""What a link carries: generation, lanes, payload and requests in flight (M25, M08)."""

import functools
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr

from workbench import data, results
from workbench.errors import SpecError, UnknownNameError
from workbench.hardware.storage_input import quantity
from workbench.units import GB

LANES = (1, 2, 4, 8, 16, 32)
PAYLOADS = (128, 256, 512, 1024, 2048, 4096)  # byte
HEADER = 24.0  # byte around a payload: framing 8, header 4, a 64-bit address 12 (pcie-bench)

_PCIE = re.compile(r"pcie\s*(?:gen\s*)?(\d{1,2})(?:\.0)?\s*x\s*(\d{1,3})", re.IGNORECASE)


class Link(NamedTuple):
    """Bytes per second in one direction: after line coding, and with full packets."""

    raw: float
    bandwidth: float


def rate(transfers, lanes, coding):
    """Return the byte/s of a serial link: transfers/s x lanes x share of data bits / 8."""
    return transfers * lanes * coding / 8.0


def packed(raw, payload, header=HEADER):
    """Return the byte/s of data when every `payload` bytes travel with `header` bytes."""
    return raw * payload / (payload + header)


def in_flight(bandwidth, requests, size, latency):
    """Return the byte/s that so many requests of `size` bytes at a time can draw (M08)."""
    return np.minimum(bandwidth, requests * size / latency)


def generations() -> dict[str, dict[str, str]]:
    """Return PCIe generation ("4.0") -> its row of links.csv."""
    rows = data.rows("links.csv")
    return {row["link"].split()[1]: row for row in rows if row["GT_per_s"]}


def names() -> list[str]:
    """Return every link that is not PCIe, by name."""
    return [row["link"] for row in data.rows("links.csv") if not row["GT_per_s"]]


@functools.lru_cache(maxsize=256)
def find(name: str, payload: int = 256) -> Link:
    """Return the rates of a link.

    Args:
        name: "PCIe 4.0 x4", or one of `names()`.
        payload: bytes of a PCIe packet, one of PAYLOADS.

    Raises:
        SpecError: a generation, a number of lanes or a payload that does not exist; the message
            names the legal ones.
        UnknownNameError: no such link.
    """
    if payload not in PAYLOADS:
        raise SpecError(f"payload: {payload} byte is none of {_listed(PAYLOADS)}")
    if found := _PCIE.fullmatch(str(name).strip()):
        return pcie(f"{found[1]}.0", int(found[2]), payload)
    known = {row["link"].lower(): row for row in data.rows("links.csv") if not row["GT_per_s"]}
    row = known.get(str(name).strip().lower())
    if row is None:
        raise UnknownNameError("link", name, [*(f"PCIe {g} x4" for g in generations()), *names()])
    return Link(float(row["line_Gbps"]) * GB / 8.0, float(row["delivered_GBps"]) * GB)


def pcie(generation: str | float, lanes: int, payload: int = 256) -> Link:
    """Return the rates of PCIe; arguments and errors as for `find`.

    Equation: BW = GT/s x lanes x coding / 8 x payload / (payload + 24 B) (M25; pcie-bench).
    """
    known = generations()
    row = known.get(str(generation if "." in str(generation) else f"{generation}.0"))
    if row is None:
        raise SpecError(f"PCIe {str(generation)[:20]}: generations are {_listed(known)}")
    if lanes not in LANES:
        raise SpecError(f"PCIe x{str(lanes)[:20]}: lanes are {_listed(LANES)}")
    used, sent = row["encoding"].split("/")
    raw = rate(float(row["GT_per_s"]) * 1e9, lanes, float(used) / float(sent))
    return Link(raw, packed(raw, payload))


def link(
    name: str | Sequence[str], *, payload: int = 256, requests=None,
    request: float | str = 512, latency: float | str = "1 us",
) -> xr.Dataset:  # fmt: skip
    """Say what links carry in one direction.

    Args:
        name: "PCIe 4.0 x4", "Thunderbolt 4" ...; several make the dimension `link`.
        payload: bytes of a PCIe packet; other links are as measured.
        requests: reads in flight (tags); by default enough.
        request: bytes of a read request.
        latency: seconds from request to answer.

    Returns:
        `link_raw` byte/s after line coding, `link_bandwidth` byte/s of data.

    Raises:
        SpecError, UnknownNameError: as for `find`; requests, size or latency that is not positive.

    Equation: min(raw x payload / (payload + 24 B), requests x size / latency) (M25, M08).
    """
    asked = [name] if isinstance(name, str) else list(name)
    found = [find(each, payload) for each in asked]
    raw, bandwidth = (xr.DataArray([f[i] for f in found], {"link": asked}, "link") for i in (0, 1))
    if requests is not None:
        size, wait = quantity(request, "byte", "request"), quantity(latency, "second", "latency")
        tags = quantity(requests, "dimensionless", "requests", low=1)
        bandwidth = in_flight(bandwidth, tags, size, wait)
    ds = results.dataset(
        {"link_raw": raw, "link_bandwidth": bandwidth},
        source="datasets/links.csv", mechanism="M25",
    )  # fmt: skip
    return ds.isel(link=0) if isinstance(name, str) else ds


def _listed(values) -> str:
    return ", ".join(str(value) for value in values)
