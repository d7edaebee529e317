"""What it costs to fill memory page by page: faults, disk, copies; and NUMA balancing (M15, M16)."""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from workbench import data, results
from workbench.errors import SpecError
from workbench.hardware.storage_input import nonnegative, quantity, size
from workbench.units import human_bytes

#: Parts of a load, in the order of the result.
PARTS = ("fault", "io", "copy")
#: How memory is filled -> (comes from a file, into memory of the process's own, copied there).
WAYS = {"mmap": (True, False, False), "read": (True, True, True), "anonymous": (False, True, False)}
#: What a page's first touch may meet; the probe measures the same.
ACCESSES = ("anonymous", "cached file", "cold, readahead", "cold, no readahead")
PAGE_SIZES = (2**12, 2**14, 2**21, 2**30)
SMALL = 4096.0  # bytes of the smallest page, and of the read that a disk's latency is stated for
_LARGEST = 2.0**34


@functools.cache
def fact(rule: str) -> dict[str, str]:
    """Return a row of datasets/paging.csv."""
    return next(row for row in data.rows("paging.csv") if row["rule"] == rule)


def known(rule: str) -> float:
    """Return the number of a row of datasets/paging.csv, in the unit stated there."""
    return float(fact(rule)["value"])


def recorded(name: str) -> tuple[float, float]:
    """Return the lowest and the highest that was once measured, of a row of datasets/paging.csv."""
    row = fact(f"recorded_{name}")
    return float(row["low"]), float(row["high"])


class Costs(NamedTuple):
    """What the kernel and one core take; every field broadcasts."""

    fault: Any  # s from entry to exit
    map_page: Any  # s for each page that a fault enters
    fresh: Any  # s for 4 KiB of memory that the machine did not have before
    zero: Any  # B/s of clearing
    copy: Any  # B/s of copying out of the page cache


def costs(virtual: bool = False) -> Costs:
    """Return the costs on the metal, or in a virtual machine whose memory the host finds late."""
    fresh = known("fresh_page_vm") if virtual else 0.0
    names = ("fault", "map_page", "zero_bandwidth", "copy_bandwidth")
    fault, each, zero, copy = (known(name) for name in names)
    return Costs(fault, each, fresh, zero, copy)


def fill(bytes_, page, around, latency, bandwidth, state, way, cost: Costs) -> tuple:
    """Return the seconds of each of PARTS, and the number of faults.

    Args:
        bytes_: to fill.
        page: bytes of a page.
        around: bytes that a fault maps if they are cached.
        latency: s of one read of 4 KiB alone.
        bandwidth: byte/s of sequential reads.
        state: (cached, readahead), true or false.
        way: of WAYS.
        cost: what the kernel takes.

    Equation: T = N_f c_fault + S / BW_copy + I/O, N_f = S / max(p, f); I/O = S / BW_seq with
    readahead, N_p (l + (p - 4 KiB) / BW_seq) without (M15).
    """
    (cached, readahead), (file, own, copied) = state, way
    pages = jnp.ceil(bytes_ / page)
    ahead = cached | readahead  # only what is in the page cache can be mapped around a fault
    together = jnp.where(ahead & ~own, jnp.maximum(page, around), page)
    faults = jnp.ceil(bytes_ / together)
    fresh = jnp.where(own, bytes_ / SMALL * cost.fresh, 0.0)
    fault = faults * cost.fault + pages * cost.map_page + fresh
    alone = pages * (latency + jnp.maximum(page - SMALL, 0.0) / bandwidth)
    io = jnp.where(file & ~cached, jnp.where(readahead, bytes_ / bandwidth, alone), 0.0)
    copy = jnp.where(own, bytes_ / cost.zero, 0.0) + jnp.where(copied, bytes_ / cost.copy, 0.0)
    return fault, io, copy, faults


def populate(
    size_bytes, page_size: Any = 4096, *, bandwidth: Any = "3 GB/s", latency: Any = "50 us",
    way: str = "mmap", cached: bool = False, readahead: bool = True, fault_around=None,
    virtual: bool = False,
) -> xr.Dataset:  # fmt: skip
    """Say how long it takes to fill memory, by part, and how much of that the CPU works.

    Args:
        size_bytes: bytes to fill, at most an EiB.
        page_size: bytes, a power of two; a file can be mapped in pages of up to 64 KiB.
        bandwidth: byte/s of sequential reads.
        latency: s of one read of 4 KiB with nothing else in flight (queue depth 1).
        way: "mmap" of a file, "read" into memory of the process's own, or "anonymous": that
            memory alone.
        cached: the file is in the page cache.
        readahead: the kernel reads on; otherwise one page at a time, at queue depth 1.
        fault_around: bytes mapped at a fault; by default Linux's 64 KiB.
        virtual: in a virtual machine whose fresh memory the host must find first.

    Numbers may be text with a unit, a list, which becomes a dimension, or a DataArray.

    Returns:
        `stage_s` (stage: fault, io, copy) s, `load_s` s, `faults` and `cpu_share`.

    Raises:
        SpecError: a page or fault_around that is no power of two, a file mapped in huge pages
            (mmap answers EINVAL), no such way, a size beyond an EiB.

    Equation: see `fill` (M15).
    """
    if way not in WAYS:
        raise SpecError(f"way: {way!r} must be one of {', '.join(WAYS)}")
    page = page_of(page_size)
    if way == "mmap":
        _mappable(page)
    given = [
        size(size_bytes, "size_bytes"), page, _around(fault_around, page),
        nonnegative(latency, "second", "latency"), quantity(bandwidth, "byte/second", "bandwidth"),
    ]  # fmt: skip
    state, cost = (cached, readahead), costs(virtual)
    took, total, faults, share = xr.apply_ufunc(
        lambda *arrays: _summed(arrays, state, WAYS[way], cost),
        *given, output_core_dims=[["stage"], [], [], []],
    )  # fmt: skip
    return results.dataset(
        {"stage_s": took, "load_s": total, "faults": faults, "cpu_share": share},
        {"stage": list(PARTS)}, source="datasets/paging.csv", mechanism="M15", way=way,
    )  # fmt: skip


def by_page_size(size_bytes, **asked) -> xr.Dataset:
    """Say how long a file takes to load in pages of every usual size (PAGE_SIZES).

    Args:
        size_bytes: of the file.
        asked: options of `populate` but for `page_size` and `way`.

    Returns:
        what `populate` returns, over page_size: mapped where the pages allow it, else read.
    """
    base = [page for page in PAGE_SIZES if mappable(page)]
    huge = [page for page in PAGE_SIZES if not mappable(page)]
    mapped = populate(size_bytes, base, **asked)
    return xr.concat(
        [mapped, populate(size_bytes, huge, way="read", **asked)], "page_size",
        combine_attrs="drop_conflicts", data_vars="minimal", coords="minimal", compat="override",
        join="outer",
    )  # fmt: skip


def touch(
    page_size: Any = 4096, *, bandwidth: Any = "3 GB/s", latency: Any = "50 us",
    fault_around=None, virtual: bool = False,
) -> xr.Dataset:  # fmt: skip
    """Say what the first touch of a page costs, as `probe.pages.faults` measures it.

    Args:
        page_size, bandwidth, latency, fault_around, virtual: as for `populate`.

    Returns:
        `page_s` (access: ACCESSES) s per page.

    Raises:
        SpecError: as for `populate`.
    """
    page = page_of(page_size)
    _mappable(page)
    whole = _SAMPLE * page
    given = [
        whole, page, _around(fault_around, page), nonnegative(latency, "second", "latency"),
        quantity(bandwidth, "byte/second", "bandwidth"),
    ]  # fmt: skip
    state, way = np.array(_MET).T, np.array(_FILLED).T
    each = xr.apply_ufunc(
        lambda *arrays: _total([array[..., None] for array in arrays], state, way, costs(virtual)),
        *given, output_core_dims=[["access"]],
    )  # fmt: skip
    return results.dataset(
        {"page_s": each / _SAMPLE}, {"access": list(ACCESSES)},
        source="datasets/paging.csv", mechanism="M15",
    )  # fmt: skip


def numa_balancing(
    nodes, rss: Any = "32 GiB", *, page_size: Any = 4096, moved: Any = 0.0, scan=None, period=None
) -> xr.Dataset:
    """Say what share of a core automatic NUMA balancing takes.

    Args:
        nodes: NUMA nodes of the machine, 1 or more.
        rss: bytes of the process in memory, which is all that can be scanned.
        page_size: bytes, a power of two.
        moved: pages moved to another node per second.
        scan, period: bytes that are unmapped at a time, and s between; by default Linux's 256 MiB
            a second at most.

    Returns:
        `overhead`, a share of one core's time; 0 with one node, where Linux leaves it off.

    Raises:
        SpecError: fewer nodes than one, a page that is no power of two.

    Equation: scan / p / period x c_hint + moved x c_move, if nodes > 1 (M16).
    """
    count = quantity(nodes, "dimensionless", "nodes", low=1)
    each, held = page_of(page_size), size(rss, "rss")
    scanned = size(known("numa_scan") if scan is None else scan, "scan")
    every = quantity(known("numa_scan_period") if period is None else period, "second", "period")
    moves = nonnegative(moved, "dimensionless", "moved")
    hints = np.minimum(scanned, held) / each / every
    active = hints * known("numa_hint_fault") + moves * known("numa_move_page")
    overhead = xr.where(count >= known("numa_least_nodes"), active, 0.0)
    return results.dataset({"overhead": overhead}, source="datasets/paging.csv", mechanism="M16")


def page_of(page_size, field: str = "page_size") -> xr.DataArray:
    """Return page sizes in bytes.

    Raises:
        SpecError: no power of two from 4 KiB to 16 GiB.
    """
    pages = quantity(page_size, "byte", field, low=SMALL, high=_LARGEST)
    wrong = pages.values[np.log2(pages.values) % 1 != 0]
    if wrong.size:
        below = 2.0 ** math.floor(math.log2(wrong.flat[0]))
        raise SpecError(
            f"{field}: {wrong.flat[0]:.0f} is no power of two; give {human_bytes(below)} or "
            f"{human_bytes(2 * below)}"
        )
    return pages


def mappable(page: float) -> bool:
    """Return whether a regular file can be mapped in pages of `page` bytes."""
    return page <= known("largest_base_page")


def _mappable(pages: xr.DataArray) -> None:
    largest = float(pages.max())
    if not mappable(largest):
        raise SpecError(
            f"page_size: a regular file cannot be mapped in pages of {human_bytes(largest)}, "
            f"MAP_HUGETLB answers {fact('map_hugetlb_on_file')['value']}; use way='read' into huge "
            "pages of the process's own"
        )


def _around(fault_around, page: xr.DataArray) -> xr.DataArray:
    around = page_of(
        known("fault_around") if fault_around is None else fault_around, "fault_around"
    )
    most = known("table_entries") * float(page.max())
    if float(around.max()) > most:
        raise SpecError(
            f"fault_around: {human_bytes(float(around.max()))} is more than one page table maps, "
            f"{human_bytes(most)}"
        )
    return around


def _summed(arrays: tuple, *how) -> tuple:
    """Return the parts (..., stage), their sum, the faults, and what the disk does not take."""
    *parts, faults = np.broadcast_arrays(*_fill(*map(jnp.asarray, arrays), *how))
    took = np.stack(parts, axis=-1)
    total = took.sum(-1)
    return took, total, faults, 1.0 - took[..., PARTS.index("io")] / total


def _total(arrays: list, state, way, cost: Costs) -> np.ndarray:
    *parts, _ = _fill(*map(jnp.asarray, arrays), tuple(state), tuple(way), cost)
    return np.asarray(sum(parts))


_fill = jax.jit(fill)
_SAMPLE = 2**14  # pages of a first touch: enough that faults come in whole numbers
#: For each of ACCESSES: (cached, readahead), and how it is filled.
_MET = ((True, True), (True, True), (False, True), (False, False))
_FILLED = (WAYS["anonymous"], WAYS["mmap"], WAYS["mmap"], WAYS["mmap"])
