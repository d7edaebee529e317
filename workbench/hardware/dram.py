"""What DRAM delivers: by size and number of reads, by alignment, under load, with prefetching (M08, M10-M12)."""

import math

import numpy as np
import xarray as xr

from workbench import results
from workbench.errors import SpecError
from workbench.hardware import dram_law, dram_sim, dram_stream
from workbench.hardware.dram_input import labelled, power_of_two, queue
from workbench.hardware.dram_latency import in_flight, knee, loaded_latency, prefetch
from workbench.hardware.dram_standards import Timing, find, memory_of, standards
from workbench.hardware.storage_input import nonnegative, share, size

__all__ = [
    "efficiency", "effective_bandwidth", "in_flight", "knee", "loaded_latency", "memory_of", "overfetch",
    "prefetch", "simulate", "standards",
]  # fmt: skip

LARGEST_GRANULE = 2**24  # byte: far beyond what changes anything
DEEPEST = 1024  # places in the queue of a simulated channel
_MOST = 2**24  # pieces of one simulation, all channels together
_SOURCE = "datasets/dram.csv"


def efficiency(
    standard: str = "LPDDR5-6400", granule=64, queue_depth=32, *, mode: str = "queue", refresh: str = "none",
    travel=0.0,
) -> xr.Dataset:  # fmt: skip
    """Say what one channel delivers of reads at random places, by formula.

    Args:
        standard: one of `standards()`.
        granule: bytes of a read, a power of two; a list becomes a dimension.
        queue_depth: reads in the queue, 1 or more; a list becomes a dimension.
        mode: "queue": so many always wait in the controller; "flight": so many are under way, the next leaves
            when one is back (1: a pointer chase).
        refresh: "none", "all-bank" or "per-bank".
        travel: s that data is under way outside the DRAM, in mode "flight".

    Returns:
        `bus_share` (share of the channel's peak), `bus_bound` (what the usual closed form gives) and
        `dram_bandwidth` byte/s.

    Raises:
        WorkbenchError: no such standard or mode, a granule that is no power of two, a depth below 1.

    Equation: queue depth = rate x time in the queue; see `dram_law` (M10).
    """
    timing, reads, depth = _asked(standard, granule, queue_depth)
    _one_of("mode", mode, dram_sim.MODES)
    _check_refresh(timing, standard, refresh)
    away = nonnegative(travel, "second", "travel")

    def formulas(s, q, t):
        found = dram_law.share(timing, s, q, t, mode=mode, refresh=refresh)
        return found, dram_law.bound(timing, s, q) + 0 * found

    found, most = labelled(formulas, 2, reads, depth, away)
    return results.dataset(
        {"bus_share": found, "bus_bound": most, "dram_bandwidth": found * timing.rate},
        source=_SOURCE, mechanism="M10", standard=standard, mode=mode, refresh=refresh,
    )  # fmt: skip


def simulate(
    standard: str = "LPDDR5-6400", granule=64, queue_depth=32, *, locality=0.0, mapping: str = "bank",
    mode: str = "queue", refresh: str = "none", travel: float = 0.0, requests: int = 2048, seed: int = 0,
) -> xr.Dataset:  # fmt: skip
    """Simulate one channel read by read, for every combination at once.

    Args:
        standard, granule, queue_depth, mode, refresh, travel: as for `efficiency`; depths up to 1024.
        locality: share of the reads that go on where the last one ended, 0 to 1; a list becomes a dimension.
        mapping: "bank": a read lies in one row of one bank; "groups": its bursts in turn in all bank groups.
        requests: pieces of reads that each channel sends, of which the first quarter warms up.
        seed: of the random places.

    Returns:
        As `efficiency`, and `row_hit` (share of pieces whose row was open) and `loaded_latency_s` s, from entering
        the queue until leaving it (mode "queue": until its row opens; "flight": until data is back).

    Raises:
        WorkbenchError: as for `efficiency`; a share outside 0 to 1, no such mapping, more than can be simulated.

    Method: FR-FCFS with tRRD, tFAW, tRC, tRCD, tCCD_L and refresh (M10; timings as in Ramulator 2,
    arXiv 2308.11030). Latency by Little's law: depth / rate.
    """
    timing, reads, depth = _asked(standard, granule, queue_depth)
    _one_of("mode", mode, dram_sim.MODES)
    _one_of("mapping", mapping, dram_stream.MAPPINGS)
    _check_refresh(timing, standard, refresh)
    again, away = share(locality, "locality"), float(nonnegative(travel, "second", "travel"))
    shape, rules = xr.broadcast(reads, depth, again), dram_sim.rules(timing, mode, refresh, away)
    _check_work(requests, shape[0].size, float(depth.max()))

    def channels(s, q, p):
        cells = tuple(np.ravel(x) for x in np.broadcast_arrays(s, q, p))
        found = _simulated(timing, cells, mapping, rules, requests, seed)
        return tuple(np.reshape(x, np.shape(s)) for x in found)

    used, hits = xr.apply_ufunc(channels, *shape, output_core_dims=[(), ()])
    rate = used * timing.rate
    return results.dataset(
        {"bus_share": used, "row_hit": hits, "dram_bandwidth": rate, "loaded_latency_s": depth * reads / rate},
        source=f"{_SOURCE}, simulated", mechanism="M10", standard=standard, mode=mode, mapping=mapping,
        refresh=refresh, seed=seed,
    )  # fmt: skip


def effective_bandwidth(
    device, *, granule=4096, queue_depth=32, refresh: str = "all-bank"
) -> xr.Dataset:
    """Say what the DRAM of a Device delivers, in place of a constant efficiency.

    Args:
        device: a Device; its memory is that of `memory_of`.
        granule, queue_depth, refresh: as for `efficiency`, for each channel.

    Returns:
        `effective_bandwidth` byte/s and `bus_share`; attrs `memory` (as sold), `standard` (that models it),
        `channels`, `source`.

    Equation: BW = peak of the Device x share of a channel (M10).
    """
    memory = memory_of(device)
    used = efficiency(memory.standard, granule, queue_depth, refresh=refresh).bus_share
    return results.dataset(
        {"effective_bandwidth": used * float(device.bandwidth), "bus_share": used},
        source=memory.source, mechanism="M10", memory=memory.name, standard=memory.standard,
        channels=memory.channels, refresh=refresh,
    )  # fmt: skip


def overfetch(length, granule=256, alignment=1) -> xr.Dataset:
    """Say how many bytes move for one byte asked for, when memory moves whole granules.

    Args:
        length: bytes of a read, any size.
        granule: bytes that memory moves at once, a power of two.
        alignment: bytes whose multiples reads start at, a power of two up to the granule; 1: anywhere.

    Returns:
        `moved_bytes` byte on average over all starts, and `overfetch`, its ratio to the length.

    Equation: (L + A - g) / L where L is a multiple of g (M11); other lengths are counted start by start.
    """
    asked = size(length, "length")
    block, step = (power_of_two(v, n) for v, n in ((granule, "granule"), (alignment, "alignment")))
    if (step > block).any():
        raise SpecError(
            "alignment: must be at most the granule; a read at its multiples is aligned"
        )
    moved = xr.apply_ufunc(_moved, *xr.broadcast(asked, block, step))
    return results.dataset({"moved_bytes": moved, "overfetch": moved / asked}, mechanism="M11",
                           source="counted over all starts")  # fmt: skip


def _moved(length, granule, step):
    """Return bytes moved, averaged over starts at multiples of `step` within a granule.

    A read of L bytes reaches ceil((start + L) / A) granules; the sum over starts counts those past each end.
    """
    whole, rest = length // granule, length % granule
    starts = granule / step
    inside = (
        np.floor((granule - rest) / step) + 1
    )  # starts from which the rest fits its first granule
    spilled = starts - np.minimum(np.where(rest > 0, inside, 1), starts)
    return granule * (whole + (rest > 0) + spilled / starts)


def _simulated(timing, cells: tuple, mapping, rules, requests, seed):
    """Return the share of the peak and the row hits of cells of granule, queue depth and locality."""
    reads, depth, again = cells
    places = 2 ** math.ceil(math.log2(max(float(depth.max()), 64)))  # few sizes: each compiles anew
    asked = dram_stream.stream(timing, reads, again, mapping, requests + places, seed)
    waiting = depth.astype(np.int32)
    busy, hits = dram_sim.run(
        timing, rules, asked.bank, asked.row, asked.bursts, waiting, length=requests, places=places
    )  # fmt: skip
    count, bursts = dram_stream.split(timing, reads, mapping)
    return np.asarray(busy) * reads / (count * bursts * timing.burst_bytes), np.asarray(hits)


def _asked(standard: str, granule, queue_depth) -> tuple[Timing, xr.DataArray, xr.DataArray]:
    reads = power_of_two(granule, "granule", LARGEST_GRANULE)
    return find(standard), reads, queue(queue_depth)


def _one_of(field: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise SpecError(f"{field}: {str(value)[:40]!r} is none of {', '.join(allowed)}")


def _check_refresh(timing: Timing, standard: str, refresh: str) -> None:
    _one_of("refresh", refresh, dram_sim.REFRESHES)
    if refresh == "per-bank" and math.isnan(timing.rfc_bank):
        raise SpecError(f"refresh: {standard} is not known to refresh single banks; use all-bank")


def _check_work(requests: int, cells: int, deepest: float) -> None:
    if not isinstance(requests, int) or not 64 <= requests <= 2**20:
        raise SpecError(f"requests: {str(requests)[:20]} must be a whole number from 64 to {2**20}")
    if deepest > DEEPEST:
        raise SpecError(
            f"queue_depth: {deepest:g} is more than the {DEEPEST} that can be simulated"
        )
    if cells * requests > _MOST:
        raise SpecError(
            f"{cells} channels x {requests} requests are more than {_MOST}; ask for fewer"
        )
