"""DRAM standards: the timings of one channel of each, and which of them a machine has (M10)."""

import dataclasses
import functools
import math
import re
from typing import Any, NamedTuple

import jax

from workbench import data
from workbench.errors import UnknownNameError

_CLOCKS = {"ccd": "nCCDL", "rrd": "nRRD", "faw": "nFAW", "rcd": "nRCD", "cl": "nCL", "rc": "nRC",
           "rtp": "nRTP", "rp": "nRP"}  # fmt: skip
_NANOSECONDS = {"rfc": "tRFC_ns", "rfc_bank": "tRFCpb_ns", "refi": "tREFI_ns"}


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["burst", *_CLOCKS, *_NANOSECONDS, "burst_bytes", "row_bytes"],
    meta_fields=["groups", "banks"],
)
@dataclasses.dataclass(frozen=True)
class Timing:
    """A channel of one standard: seconds, bytes, and counts that are compiled in."""

    burst: Any  # s a burst takes on the bus
    ccd: Any  # s between bursts of one bank group
    rrd: Any  # s between activations
    faw: Any  # s in which four activations fit
    rcd: Any  # s from activation to read
    cl: Any  # s from read to data
    rc: Any  # s between activations of one bank
    rtp: Any  # s from the last read to precharge
    rp: Any  # s of precharge
    rfc: Any  # s of a refresh of the channel
    rfc_bank: Any  # s of a refresh of one bank, NaN where a standard has none
    refi: Any  # s between refreshes
    burst_bytes: Any
    row_bytes: Any
    groups: int
    banks: int  # of all groups

    @property
    def rate(self):
        """Peak of the channel, byte/s."""
        return self.burst_bytes / self.burst


class Memory(NamedTuple):
    """The memory of a machine."""

    name: str  # as sold
    standard: str  # that models it
    channels: int
    source: str


@functools.cache
def standards() -> tuple[str, ...]:
    """Return the names of the standards in datasets/dram.csv."""
    return tuple(row["standard"] for row in data.rows("dram.csv"))


@functools.cache
def find(standard: str) -> Timing:
    """Return the timings of a standard.

    Raises:
        UnknownNameError: no such standard; the message names all there are.
    """
    known = {row["standard"].lower(): row for row in data.rows("dram.csv")}
    row = known.get(str(standard).strip().lower())
    if row is None:
        raise UnknownStandardError(standard)
    return _timing(row)


class UnknownStandardError(UnknownNameError):
    """A DRAM standard that does not exist; the message names those that do."""

    def __init__(self, name: str):
        super().__init__("standard", name, list(standards()))
        self.args = (
            f"standard {str(name)[:80]!r} is not known; there are {', '.join(standards())}",
        )


def memory_of(device) -> Memory:
    """Return the memory of a Device: the last pattern of datasets/device_memory.csv that fits it.

    Channels follow from the bandwidth: as many as it takes at the standard's rate.
    """
    row = _row(device.device_class, device.generation, device.name)
    channels = max(round(float(device.bandwidth) / find(row["standard"]).rate), 1)
    return Memory(row["memory"], row["standard"], channels, row["source"])


@functools.lru_cache(maxsize=1024)
def _row(device_class: str, generation: str, name: str) -> dict[str, str]:
    about = f"{device_class} {generation} {name}"
    rows = data.rows("device_memory.csv")
    return [row for row in rows if re.search(row["pattern"], about, re.IGNORECASE)][-1]


def _timing(row: dict[str, str]) -> Timing:
    clock, groups = float(row["tCK_ps"]) * 1e-12, int(row["bank_groups"])
    burst = (
        float(row["burst_bytes"]) * 8 / (float(row["rate_MTs"]) * 1e6 * float(row["width_bits"]))
    )
    clocks = {name: float(row[column]) * clock for name, column in _CLOCKS.items()}
    clocks["ccd"] = max(clocks["ccd"], burst)  # a clock in whole picoseconds may fall short of it
    waits = {name: float(row[column] or math.nan) * 1e-9 for name, column in _NANOSECONDS.items()}
    return Timing(
        burst, **clocks, **waits, burst_bytes=float(row["burst_bytes"]), groups=groups,
        row_bytes=float(row["row_bytes"]), banks=groups * int(row["banks_per_group"]),
    )  # fmt: skip
