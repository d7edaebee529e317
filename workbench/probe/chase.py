"""Memory in pages of a size asked for, and a chase through it that no prefetcher can follow.

The chase is one loop that XLA compiled, over memory that is mapped here, since only the mapping
decides about the size of its pages.
"""

import math
import mmap
import re
import time

import jax
import jax.numpy as jnp
import numpy as np

from workbench.errors import WorkbenchError
from workbench.probe import system
from workbench.probe.bandwidth import LINE

MAP_HUGETLB = 0x40000  # of Linux <asm-generic/mman.h>; Python's mmap does not name it
_STEPS = 2**13  # that are timed alone; the fastest count
_WARM = 2  # runs that compile, for a start that JAX knows and for one that a run returned
_GRANTED = 0.9  # of the memory in huge pages, or else it does not count as such


@jax.jit
def _chase(ring, start, steps):
    return jax.lax.fori_loop(0, steps, lambda _, at: ring[at], start)


def number(name: str) -> int:
    """Return the number in a file below the root, -1 if there is none."""
    found = system.text(name).strip()
    return int(found) if found.isdigit() else -1


def huge_page() -> int:
    """Return the bytes of a huge page, 0 where there are none."""
    return max(0, number("sys/kernel/mm/transparent_hugepage/hpage_pmd_size"))


def memory(size: int, page: int) -> tuple[np.ndarray, str]:
    """Return touched int32 memory (size / 4,) in such pages, and how it came by them.

    Returns:
        the memory, and "hugetlb" if it is from that pool, "thp" if madvise got it, "" otherwise.

    Raises:
        WorkbenchError: the system gives no such pages.
    """
    if page == mmap.PAGESIZE:
        return _aligned(size, "MADV_NOHUGEPAGE"), ""
    try:
        pool = mmap.mmap(-1, -(-size // page) * page, **_private(MAP_HUGETLB))
        return _touched(np.frombuffer(pool, np.int32)[: size // 4]), "hugetlb"
    except OSError:  # no pool was set aside, which is usual
        pass
    before = _huge_bytes()
    found = _aligned(size, "MADV_HUGEPAGE")
    if (share := (_huge_bytes() - before) / size) < _GRANTED:
        raise WorkbenchError(
            f"huge pages: the pool is empty, and madvise gave {max(share, 0):.0%} of the memory"
        )
    return found, "thp"


def anonymous(size: int, advice: str) -> mmap.mmap:
    """Return untouched memory of this process alone, in base or ("MADV_HUGEPAGE") huge pages."""
    found = mmap.mmap(-1, size, **_private())
    if hasattr(mmap, advice):
        found.madvise(getattr(mmap, advice))
    return found


def through(ring: np.ndarray, working_set: int, seconds: float) -> float:
    """Return the least seconds of an access, over a random round through the working set.

    Other load only ever adds, so that the fastest of many short runs counts.
    """
    shared = jax.dlpack.from_dlpack(ring)
    if shared.unsafe_buffer_pointer() != ring.ctypes.data:
        raise WorkbenchError("JAX copied the memory, so that its pages cannot be measured")
    end = time.perf_counter() + seconds  # laying out counts, or the last sets would get no time
    _lay(ring, working_set)
    at, best, runs = jnp.int32(0), math.inf, 0
    while runs < _WARM + 1 or time.perf_counter() < end:
        start = time.perf_counter()
        at = _chase(shared, at, _STEPS).block_until_ready()
        took = (time.perf_counter() - start) / _STEPS
        best = min(best, took) if runs >= _WARM else math.inf
        runs += 1
    return best


def _lay(ring: np.ndarray, working_set: int) -> None:
    order = np.random.default_rng(0).permutation(working_set // LINE).astype(np.int32)
    order *= LINE // ring.itemsize
    ring[order] = np.roll(order, -1)


def _private(more: int = 0) -> dict[str, int]:
    """Return the options of a private mapping; shared memory has rules of its own for huge pages."""
    if not hasattr(mmap, "MAP_PRIVATE"):  # Windows
        return {}
    return {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | more}


def _aligned(size: int, advice: str) -> np.ndarray:
    """Return touched memory that starts on a huge page."""
    page = max(huge_page(), mmap.PAGESIZE)
    whole = np.frombuffer(anonymous(size + page, advice), np.int32)
    start = -whole.ctypes.data % page // 4
    return _touched(whole[start : start + size // 4])


def _touched(found: np.ndarray) -> np.ndarray:
    found[:: mmap.PAGESIZE // 4] = 0
    return found


def _huge_bytes() -> int:
    """Return the bytes of this process that are in transparent huge pages."""
    found = re.search(r"AnonHugePages: *(\d+) kB", system.text("proc/self/smaps_rollup"))
    return int(found[1]) * 1024 if found else 0
