"""What pages cost on this machine: an access by working set and page size, and a first touch.

The models beside it are M14 and M15, whose names it uses, so that both overlay in one figure.
"""

import errno
import math
import mmap
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from workbench.errors import SpecError, WorkbenchError
from workbench.hardware.paging import ACCESSES
from workbench.probe import chase, scratch, system
from workbench.probe.pace import Pace, Report, silent, unseen
from workbench.results import dataset
from workbench.units import human_bytes

WORKING_SETS = tuple(2**n for n in range(14, 27))
_LEAST, _MOST, _MOST_MEMORY = 2**12, 2**33, 0.25  # the ring is of 32-bit indices
_PAGES = 2**6  # touched between two looks at the clock


def latency(
    working_sets: Sequence[int] = WORKING_SETS, *, seconds: float | str = 10.0,
    report: Report = silent,
) -> xr.Dataset:  # fmt: skip
    """Measure an access to memory that depends on the one before, in base and in huge pages.

    Args:
        working_sets: bytes, each a multiple of 4 KiB; at most a quarter of the free memory.
        seconds: budget; what it does not suffice for is NaN.
        report: progress; the probe stops when it returns False.

    Returns:
        latency_s (page_size, working_set) in s, about a nanosecond of it the loop's own. Huge pages
        come from the pool of hugetlb or else from madvise: attrs["huge"] says "hugetlb", "thp" or
        "". attrs["unseen"] says what cannot be seen here.

    Raises:
        SpecError: a working set that makes no sense or is too large here, or no budget.
    """
    sets = _checked(working_sets)
    pages = [page for page in (mmap.PAGESIZE, chase.huge_page()) if page]
    pace = Pace("page latency", len(pages) * len(sets), seconds, report)
    table, kind, reasons = np.full((len(pages), len(sets)), math.nan), "", []
    for i, page in enumerate(pages):
        try:
            ring, kind = chase.memory(max(sets), page)
            _measure(ring, sets, pace, table[i:])
        except WorkbenchError as err:
            reasons.append(str(err))
    return dataset(
        {"latency_s": (("page_size", "working_set"), table)},
        {"page_size": pages, "working_set": sets},
        source="measured", mechanism="M14", huge=kind,
        unseen=unseen(*reasons, *_guest(), pace.unmeasured(table)),
    )  # fmt: skip


def faults(
    folder: str | Path = ".", size: float | str = 2**26, *, seconds: float | str = 10.0,
    report: Report = silent,
) -> xr.Dataset:  # fmt: skip
    """Measure what the first touch of a page costs.

    Args:
        folder: where the scratch file goes; it has no name and vanishes whatever happens.
        size: bytes to touch, or text; at most half of what is free there.
        seconds: budget; the file gets shorter and samples smaller where it does not suffice.
        report: progress; the probe stops when it returns False.

    Returns:
        page_s (access) in s per page: of anonymous memory, and of a mapped file in the page cache,
        on the disk, and there without readahead. attrs page_bytes, huge_page_bytes, readahead_bytes
        and fault_around_bytes (-1 where it cannot be read), and map_hugetlb_on_file: what the
        system answers when a file is to be mapped in huge pages.

    Raises:
        SpecError: under 1 MiB, or no budget.
        FileError: the folder cannot be written or has too little room.
    """
    bytes_, path = scratch.checked_size(size, folder)
    pace = Pace("page faults", len(ACCESSES) + -(-bytes_ // scratch.CHUNK), seconds, report)
    took = dict.fromkeys(ACCESSES, math.nan)
    with scratch.scratch(path) as file:
        whole = scratch.fill(file, bytes_, lambda _: pace.step() and pace.left > pace.seconds / 2)
        whole -= whole % mmap.PAGESIZE
        answer, held = _huge_file(file, whole), 0.0
        for access in ACCESSES if not pace.ended else ():
            share = pace.left / (len(ACCESSES) - ACCESSES.index(access))
            took[access], cached = _touched(file, whole, access, share)
            held = np.fmax(held, cached)
            if not pace.step():
                break
    table, settings = np.array(list(took.values())), _settings(path)
    return dataset(
        {"page_s": ("access", table)}, {"access": list(ACCESSES)},
        source="measured", mechanism="M15", **settings, map_hugetlb_on_file=answer,
        file_system=scratch.kind(path),
        unseen=unseen(*_limits(held), *_unread(settings), *_guest(), pace.unmeasured(table)),
    )  # fmt: skip


def _checked(working_sets: Sequence[int]) -> list[int]:
    import psutil

    free = psutil.virtual_memory().available
    most = min(_MOST, free * _MOST_MEMORY)
    for bytes_ in working_sets or [0]:
        if not _LEAST <= bytes_ <= most or bytes_ % _LEAST:
            raise SpecError(
                f"working_sets: {bytes_} must be a multiple of {_LEAST} up to {human_bytes(most)}, "
                "a quarter of the free memory"
            )
    return [int(bytes_) for bytes_ in working_sets]


def _measure(ring: np.ndarray, sets: list[int], pace: Pace, table: np.ndarray) -> None:
    """Fill the first row of what is left of the table."""
    for i, working_set in enumerate(sets):
        if pace.ended:
            return
        table[0, i] = chase.through(ring, working_set, pace.left / (table.size - i))
        pace.step()


def _touched(file: int, size: int, access: str, seconds: float) -> tuple[float, float]:
    """Return the seconds of a page's first touch, and the share of a cold file that was cached."""
    if access == "anonymous":
        memory, held = chase.anonymous(size, "MADV_NOHUGEPAGE"), 0.0
    else:
        if (cold := access.startswith("cold")) and not scratch.forget(file):
            return math.nan, 0.0
        held = scratch.cached(file, size) if cold else 0.0
        memory = mmap.mmap(file, size, access=mmap.ACCESS_READ)
        if access == "cold, no readahead" and hasattr(mmap, "MADV_RANDOM"):
            memory.madvise(mmap.MADV_RANDOM)
    return _swept(memory, size, seconds, write=access == "anonymous"), held


def _swept(memory: mmap.mmap, size: int, seconds: float, *, write: bool) -> float:
    """Return the seconds of a page over as many pages, in order, as there is time for."""
    pages = np.frombuffer(memory, np.uint8)[: size : mmap.PAGESIZE]
    done, start = 0, time.perf_counter()
    while done < len(pages) and (not done or time.perf_counter() - start < seconds):
        some = pages[done : done + _PAGES]
        if write:
            some[:] = 1
        else:
            some.max()
        done += len(some)
    return (time.perf_counter() - start) / done


def _huge_file(file: int, size: int) -> str:
    """Return the system's answer to mapping a file in huge pages, "" where it cannot be asked."""
    if sys.platform != "linux":
        return ""
    try:
        mmap.mmap(
            file, size, flags=mmap.MAP_SHARED | chase.MAP_HUGETLB, prot=mmap.PROT_READ
        ).close()
    except OSError as err:
        return errno.errorcode.get(err.errno or 0, str(err))
    return "granted"


def _settings(folder: Path) -> dict[str, int]:
    return {
        "page_bytes": mmap.PAGESIZE, "huge_page_bytes": chase.huge_page(),
        "readahead_bytes": _readahead(folder),
        "fault_around_bytes": chase.number("sys/kernel/debug/fault_around_bytes"),
    }  # fmt: skip


def _unread(settings: dict[str, int]) -> list[str]:
    return [
        "fault-around cannot be read (debugfs, root alone)"
        if settings["fault_around_bytes"] < 0 else "",
        "the disk's readahead cannot be read" if settings["readahead_bytes"] < 0 else "",
    ]  # fmt: skip


def _readahead(folder: Path) -> int:
    """Return the bytes that the folder's disk reads on, -1 where they cannot be read."""
    try:
        number = os.stat(folder).st_dev
    except OSError:
        return -1
    device = f"sys/dev/block/{os.major(number)}:{os.minor(number)}"
    names = (f"{device}/queue/read_ahead_kb", f"{device}/../queue/read_ahead_kb")
    return next((kib * 1024 for name in names if (kib := chase.number(name)) >= 0), -1)


def _guest() -> list[str]:
    guest = system.virtualization()
    return [f"{guest}: the host's pages and tables stay hidden, and add to a walk" if guest else ""]


def _limits(held: float) -> list[str]:
    return [
        "" if hasattr(os, "posix_fadvise") else "a cold file: this system does not drop caches",
        f"{held:.0%} of the file stayed in the page cache before a cold touch" if held > 0 else "",
    ]  # fmt: skip
