"""How fast the disk is: a file read from end to end, cold and cached, and random reads at once.

The models beside it are the load pipeline (M24) and the queue-depth law (M26). A scratch file
without a name is written, so that nothing stays behind. Windows has no `preadv`: not measured.
"""

import concurrent.futures
import itertools
import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from workbench.errors import SpecError, WorkbenchError
from workbench.probe import scratch
from workbench.probe.pace import Pace, Report, silent, unseen
from workbench.probe.system import container, virtualization
from workbench.results import dataset
from workbench.units import human_bytes

BLOCKS = (2**14, 2**17, 2**20, 2**22)
DEPTHS = (1, 2, 4, 8, 16, 32)
CACHE_STATES = ("cold", "warm")
_RANDOM = 4096  # byte of a random read
_SLICE = (0.1, 0.4)  # s for one depth: least, since threads take time to start, and most
_MOST_DEPTH = 256
_IN_MEMORY = ("tmpfs", "ramfs")


def reads(
    folder: str | Path = ".", size: float | str = 2**28, *,
    blocks: Sequence[int] = BLOCKS, depths: Sequence[int] = DEPTHS,
    seconds: float | str = 20.0, report: Report = silent,
) -> xr.Dataset:  # fmt: skip
    """Measure the disk that holds a folder.

    Args:
        folder: where the scratch file goes; that of the models is the one that matters.
        size: bytes of the file, or text; at most half of what is free.
        blocks: bytes of a read when the file is read from end to end.
        depths: random reads of 4 KiB at a time, one thread each.
        seconds: budget; what it does not suffice for is NaN, and the file gets shorter.
        report: progress; the probe stops when it returns False.

    Returns:
        write_bandwidth, read_bandwidth (cache_state, block_size) in byte/s, iops (queue_depth) in
        1/s and read_latency_s (queue_depth) in s; `attrs["unseen"]` says what cannot be seen here.

    Raises:
        SpecError: a size, block or depth that makes no sense, or no budget.
        FileError: the folder cannot be written or has too little room.
    """
    bytes_, path = scratch.checked_size(size, folder)
    _check(blocks, depths, bytes_)
    pace = Pace(
        "disk", len(blocks) * 2 + len(depths) + -(-bytes_ // scratch.CHUNK), seconds, report
    )
    with scratch.scratch(path) as file:
        write, written = _written(file, bytes_, pace)
        table, share = _sequential(file, written, blocks, pace)
        direct = not pace.ended and scratch.uncached_reads(file)
        rates = _queued(file, written, depths, direct, pace)
    return dataset(
        {
            "write_bandwidth": write,
            "read_bandwidth": (("cache_state", "block_size"), table),
            "iops": ("queue_depth", rates),
            "read_latency_s": ("queue_depth", np.array(depths) / rates),  # Little's law
        },
        {"cache_state": list(CACHE_STATES), "block_size": list(blocks), "queue_depth": list(depths)},
        source="measured", mechanism="M26", file_bytes=written, file_system=scratch.kind(path),
        unseen=unseen(*_unseen(path, share, bytes_ - written), *_limits(direct, pace),
                      pace.unmeasured(table, rates)),
    )  # fmt: skip


def load(
    folder: str | Path = ".", size: float | str = 1e9, *, block: int = 2**20, repeats: int = 2,
    seconds: float | str = 60.0, report: Report = silent,
) -> xr.Dataset:  # fmt: skip
    """Measure how long a file takes to read into memory, cold and from the page cache.

    Args:
        folder, size, seconds, report: as for `reads`.
        block: bytes of a read.
        repeats: times each is read; the fastest counts.

    Returns:
        load_s (cache_state) in s, read_bandwidth (cache_state) in byte/s, write_bandwidth in byte/s;
        attrs["file_bytes"] is what was written and read.

    Raises:
        SpecError, FileError: as for `reads`.
    """
    bytes_, path = scratch.checked_size(size, folder)
    _check([block], [1], bytes_)
    if not 1 <= repeats <= 100:
        raise SpecError(f"repeats {repeats}: give 1 to 100")
    pace = Pace("load", 2 * repeats + -(-bytes_ // scratch.CHUNK), seconds, report)
    with scratch.scratch(path) as file:
        write, written = _written(file, bytes_, pace)
        turns, shares = [], []
        while not pace.ended and len(turns) < repeats:
            table, share = _sequential(file, written, [block], pace)
            turns.append(table[:, 0])
            shares.append(share)
    best = np.fmax.reduce([[math.nan] * 2, *turns])
    return dataset(
        {
            "load_s": ("cache_state", written / best),
            "read_bandwidth": ("cache_state", best),
            "write_bandwidth": write,
        },
        {"cache_state": list(CACHE_STATES)},
        source="measured", mechanism="M24", file_bytes=written, file_system=scratch.kind(path),
        unseen=unseen(*_unseen(path, np.max([0.0, *shares]), bytes_ - written), pace.unmeasured(best)),
    )  # fmt: skip


def _check(blocks: Sequence[int], depths: Sequence[int], size: int) -> None:
    if not hasattr(os, "preadv"):
        raise WorkbenchError("the disk probe needs preadv, which this system does not have")
    for block in blocks:
        if not (_RANDOM <= block <= size and block & (block - 1) == 0):
            raise SpecError(f"blocks: {block} must be a power of two from {_RANDOM} to {size}")
    for depth in depths:
        if not 1 <= depth <= _MOST_DEPTH:
            raise SpecError(f"depths: {depth} must be from 1 to {_MOST_DEPTH}")


def _written(file: int, size: int, pace: Pace) -> tuple[float, int]:
    """Return byte/s of writing and the bytes written: what half of the budget suffices for."""
    start = time.perf_counter()

    def more(done: int) -> bool:
        return pace.step() and pace.left > pace.seconds / 2

    written = scratch.fill(file, size, more)
    return written / (time.perf_counter() - start), written


def _sequential(file: int, size: int, blocks: Sequence[int], pace: Pace):
    """Return byte/s (cache_state, block), and the share of "cold" that was cached after all."""
    table, shares = np.full((2, len(blocks)), math.nan), [0.0]
    for i, block in enumerate(blocks):
        for j in range(2):
            if pace.ended:
                return table, np.max(shares)
            if j == 0:
                scratch.forget(file)
                shares.append(scratch.cached(file, size))
            table[j, i] = _end_to_end(file, size, block, pace)
            pace.step()
    return table, np.max(shares)


def _end_to_end(file: int, size: int, block: int, pace: Pace) -> float:
    buffer = [memoryview(scratch.aligned(block))]
    start, done = time.perf_counter(), 0
    while done < size and (pace.left or not done):  # what is read when time is out counts
        done += os.preadv(file, buffer, done)
    return done / (time.perf_counter() - start)


def _queued(file: int, size: int, depths: Sequence[int], direct: bool, pace: Pace) -> np.ndarray:
    """Return random reads per second of each depth."""
    rates = np.full(len(depths), math.nan)
    for i, depth in enumerate(depths):
        if pace.ended:
            break
        if not direct:
            scratch.forget(file)
        share = pace.left / (len(depths) - i)
        rates[i] = _at_once(file, size, depth, min(max(share, _SLICE[0]), _SLICE[1]))
        pace.step()
    return rates


def _at_once(file: int, size: int, depth: int, seconds: float) -> float:
    end = time.perf_counter() + seconds
    start = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(depth) as pool:
        done = sum(pool.map(_reader(file, size, end), range(depth)))
    return done / (time.perf_counter() - start)


def _reader(file: int, size: int, end: float) -> Callable[[int], int]:
    """Return a function of a seed that reads at random until `end` and counts its reads."""

    def run(seed: int) -> int:
        places = np.random.default_rng(seed).integers(0, size // _RANDOM, 2**14) * _RANDOM
        buffer, done = [memoryview(scratch.aligned(_RANDOM))], 0
        for place in itertools.cycle(places.tolist()):
            os.preadv(file, buffer, place)
            done += 1
            if time.perf_counter() > end:
                break
        return done

    return run


def _unseen(path: Path, share: float, short: int) -> list[str]:
    kind, guest = scratch.kind(path), virtualization()
    return [
        f"{path} is {kind}: memory, not a disk" if kind in _IN_MEMORY else "",
        f"{share:.0%} of the file stayed in the page cache before a cold read" if share > 0 else "",
        "whether the page cache was empty before a cold read" if math.isnan(share) else "",
        f"{guest}: the host may cache the disk, and may limit it" if guest else "",
        f"inside {container()}: which disk it is" if container() and kind == "overlay" else "",
        f"the last {human_bytes(short)} of the file, which half of the budget did not suffice for"
        if short else "",
    ]  # fmt: skip


def _limits(direct: bool, pace: Pace) -> list[str]:
    """Return what cannot be seen of random reads."""
    return [
        "" if direct or pace.ended else "random reads could not pass the page cache by",
        "more random reads per second than Python's threads can start",
    ]
