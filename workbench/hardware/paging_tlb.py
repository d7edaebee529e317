"""How far the TLB reaches, and what a walk of the page table costs where it does not (M14)."""

import functools
import math
import re
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from workbench import data, results
from workbench.errors import SpecError, UnknownNameError
from workbench.hardware.contiguity import constant
from workbench.hardware.paging import known, page_of
from workbench.hardware.storage_input import size

PATTERNS = ("random", "streaming")
HUGE, GIANT = 2.0**21, 2.0**30  # from here on a TLB has other entries
_TEXTS = ("cpu", "pattern", "source")
_STEPS = 40  # halvings that find how long a cache remembers


class Mmu(NamedTuple):
    """The TLB of a core and the caches that its walks go through; every field broadcasts."""

    l1: Any  # entries for base pages, for huge and for giant ones
    l1_huge: Any
    l1_giant: Any
    l2: Any  # entries for all pages up to 2 MiB
    l2_giant: Any
    l2_hit: Any  # s that finding a page in the second level adds
    line: Any  # bytes
    caches: Any  # bytes of the three caches
    times: Any  # s of an access to each of them, and to memory


@functools.cache
def mmus() -> dict[str, Mmu]:
    """Return CPU -> Mmu of datasets/tlb.csv."""
    return {row["cpu"]: _mmu(row) for row in data.rows("tlb.csv")}


def nearest(name: str) -> str:
    """Return the CPU of `mmus()` whose TLB is nearest to that of a processor.

    Args:
        name: as the system gives it. The last row of datasets/tlb.csv whose pattern fits it counts;
            the first one, if none does.
    """
    rows = data.rows("tlb.csv")
    fitting = [row["cpu"] for row in rows if re.search(row["pattern"], name)]
    return (fitting or [rows[0]["cpu"]])[-1]


def mmu(cpu: str | Mmu) -> Mmu:
    """Return the Mmu of a CPU by name.

    Raises:
        UnknownNameError: not in `mmus()`; the message suggests the nearest.
    """
    if isinstance(cpu, Mmu):
        return cpu
    if cpu not in mmus():
        raise UnknownNameError("CPU", cpu, list(mmus()))
    return mmus()[cpu]


def entries(core: Mmu, page) -> tuple:
    """Return the entries of both TLB levels for pages of `page` bytes."""
    first = np.where(page < GIANT, np.where(page < HUGE, core.l1, core.l1_huge), core.l1_giant)
    return first, np.where(page < GIANT, core.l2, core.l2_giant)


def miss(count, page, working_set, line, streaming):
    """Return the share of accesses that `count` entries do not cover.

    Equation: 1 - entries x page / working set at random; line / page in a stream (M14).
    """
    reach = count * page
    stream = np.where(working_set > reach, np.minimum(line / page, 1.0), 0.0)
    return np.where(streaming, stream, np.maximum(0.0, 1.0 - reach / working_set))


def lru_hits(capacity, lines, rates):
    """Return how often each kind of line is found in a cache that throws out the least recent.

    Args:
        capacity: (...) lines that the cache holds.
        lines: (kind, ...) lines of each kind, touched at random.
        rates: (kind, ...) touches per step.

    Equation: a line stays for the T steps in which the cache fills, sum of N (1 - exp(-r T / N))
    = C, and is hit with 1 - exp(-r T / N) (Che, Tung and Wang, IEEE JSAC 20(7), 2002).
    """
    pace = rates / lines  # touches of one line per step

    low = capacity / rates.sum(0)  # no step brings more lines than it touches
    high = low * 1e9
    for _ in range(_STEPS):
        middle = np.sqrt(low * high)
        full = (lines * -np.expm1(-pace * middle)).sum(0) > capacity
        low, high = np.where(full, low, middle), np.where(full, middle, high)
    held = lines.sum(0) <= capacity
    return np.where(held, 1.0, -np.expm1(-pace * low))


def chase(core: Mmu, working_set, page, host_page):
    """Return both miss rates, and the seconds of data and of translation of a random access.

    Args:
        core: an Mmu.
        working_set: bytes touched at random.
        page: bytes of a page.
        host_page: bytes of a hypervisor's page behind it, inf on the metal.

    A walk starts at the last level of the table, since the upper ones are cached; in a virtual
    machine the host's table comes on top, and the TLB holds the smaller of both pages. Tables and
    data share the caches.
    """
    tlb_page = np.minimum(page, host_page)
    first, second = (
        miss(n, tlb_page, working_set, core.line, streaming=False) for n in entries(core, tlb_page)
    )
    rows = constant("table_entry_bytes") * np.stack([working_set / page, working_set / host_page])
    lines = np.maximum(np.concatenate([working_set[None], rows]) / core.line, 1.0)
    walks = np.stack([second, np.where(np.isinf(host_page), 0.0, second)])
    took = _access(core, lines, np.concatenate([np.ones_like(working_set)[None], walks]))
    return first, second, took[0], first * core.l2_hit + (walks * took[1:]).sum(0)


def stream(core: Mmu, working_set, page, host_page):
    """Return both miss rates and the seconds of translation per line of a stream; as `chase`.

    Each line of the table serves the pages of all its entries, and comes from memory: what a
    prefetcher hides is not subtracted.
    """
    tlb_page = np.minimum(page, host_page)
    first, second = (
        miss(n, tlb_page, working_set, core.line, streaming=True) for n in entries(core, tlb_page)
    )
    fresh = constant("table_entry_bytes") / core.line
    walk = fresh * core.times[3] + (1.0 - fresh) * core.times[0]
    walk = np.where(np.isinf(host_page), walk, 2.0 * walk)
    return first, second, first * core.l2_hit + second * walk


def translation(
    working_set, page_size: Any = 4096, cpu: str | Mmu = "Intel Skylake", *,
    pattern: str = "random", host_page: Any = None,
) -> xr.Dataset:  # fmt: skip
    """Say how often the TLB misses and what that adds to an access.

    Args:
        working_set: bytes in use, up to an EiB, or text; a list becomes a dimension.
        page_size: bytes, a power of two from 4 KiB; a list becomes a dimension.
        cpu: one of `mmus()`, or an Mmu.
        pattern: "random", or "streaming" from end to end.
        host_page: bytes of the hypervisor's pages; None on the metal.

    Returns:
        `l1_miss_rate`, `miss_rate` (of the second level, which means a walk), `added_s` s and
        `reach_bytes` of the second level; for random accesses also `latency_s` s, data included.

    Raises:
        WorkbenchError: a page that is no power of two, an empty working set or one beyond an EiB,
            no such CPU or pattern.

    Equation: added = m1 t_L2 + m2 t_walk (M14); t_walk from the caches, see `lru_hits`.
    """
    if pattern not in PATTERNS:
        raise SpecError(f"pattern: {pattern!r} must be one of {', '.join(PATTERNS)}")
    core, wanted, page = mmu(cpu), size(working_set, "working_set"), page_of(page_size)
    host = xr.DataArray(math.inf) if host_page is None else page_of(host_page, "host_page")
    law = _random if pattern == "random" else _stream
    names = _NAMES if pattern == "random" else _NAMES[:-1]
    found = xr.apply_ufunc(
        lambda *arrays: law(core, *arrays), *xr.broadcast(wanted, page, host),
        output_core_dims=[()] * len(names),
    )  # fmt: skip
    return results.dataset(
        dict(zip(names, found, strict=True)), source="datasets/tlb.csv", mechanism="M14",
        pattern=pattern,
    )  # fmt: skip


def longest_walk(cpu: str | Mmu, *, virtual: bool = False) -> float:
    """Return the seconds of a walk whose every step comes from memory: the most that it can take.

    Equation: L steps, in a virtual machine (L + 1)^2 - 1, each of whose table addresses the host's
    tables translate (Bhargava et al., ASPLOS 2008).
    """
    levels = known("table_levels")
    steps = (levels + 1) ** 2 - 1 if virtual else levels
    return steps * float(mmu(cpu).times[3])


_NAMES = ("l1_miss_rate", "miss_rate", "added_s", "reach_bytes", "latency_s")


def _random(core: Mmu, working_set, page, host_page) -> tuple:
    first, second, data_s, added = chase(core, working_set, page, host_page)
    return first, second, added, _reach(core, page, host_page), data_s + added


def _stream(core: Mmu, working_set, page, host_page) -> tuple:
    first, second, added = stream(core, working_set, page, host_page)
    return first, second, added, _reach(core, page, host_page)


def _reach(core: Mmu, page, host_page):
    smaller = np.minimum(page, host_page)
    return entries(core, smaller)[1] * smaller


def _access(core: Mmu, lines, rates):
    """Return the seconds of an access of each kind, (kind, ...), with all kinds in the caches."""
    took = core.times[0] * np.ones_like(lines)
    for level in range(3):
        missed = 1.0 - lru_hits(core.caches[level] / core.line, lines, rates)
        took += missed * (core.times[level + 1] - core.times[level])
    return took


def _mmu(row: dict[str, str]) -> Mmu:
    number = {name: float(value) for name, value in row.items() if name not in _TEXTS}
    names = ("l1_entries", "l1_huge", "l1_giant", "l2_entries", "l2_giant")
    first, huge, giant, second, second_giant = (number[name] for name in names)
    caches = np.array([number[f"cache{i}_KiB"] for i in (1, 2, 3)]) * 2**10
    times = np.array([*(number[f"cache{i}_ns"] for i in (1, 2, 3)), number["memory_ns"]]) * 1e-9
    found = number["l2_hit_ns"] * 1e-9
    return Mmu(first, huge, giant, second, second_giant, found, number["line"], caches, times)
