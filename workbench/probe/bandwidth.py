"""How fast this machine's memory streams, by thread count, and what is left of it with strides.

After STREAM (McCalpin, https://www.cs.virginia.edu/stream/ref.html), with a pure read added, since
reading is what a decode step does. Bytes count as in STREAM: each array once, no write-allocate.
Every thread runs kernels that XLA compiled for one core; the arrays are written in place, since a
fresh result would measure page faults.
"""

import concurrent.futures
import math
import time
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from workbench.errors import SpecError
from workbench.probe.pace import Pace, Report, silent, unseen
from workbench.probe.system import last_cache, threads_allowed, virtualization
from workbench.results import dataset
from workbench.units import human_bytes, parse

LINE = 64  # byte; the step by which a stride moves on between rounds
STRIDES = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)
_LEAST, _MOST_MEMORY = 2**20, 0.25  # of an array; of the free memory for all of them
_STEPS = 64  # of the largest stride in the array, at least
_ONE_CORE = {"xla_cpu_multi_thread_eigen": False}


def _read(a):
    return a.sum()


def _copy(a, target):
    return target.at[:].set(a)


def _triad(a, target, b):
    return target.at[:].set(a + 3 * b)


def _jitted(kernel, **options):
    return jax.jit(kernel, compiler_options=_ONE_CORE, **options)


#: kernel -> its function and how many arrays it moves
KERNELS = {
    "read": (_jitted(_read), 1),
    "copy": (_jitted(_copy, donate_argnames="target"), 2),
    "triad": (_jitted(_triad, donate_argnames="target"), 3),
}


def stream(
    size: float | str = 2**28, *, kernels: Sequence[str] = tuple(KERNELS),
    threads: Sequence[int] | None = None, repeats: int = 5, seconds: float | str = 10.0,
    report: Report = silent,
) -> xr.Dataset:  # fmt: skip
    """Measure the memory's bandwidth.

    Args:
        size: bytes of each array, or text; beyond four times the last cache it is the memory's.
        kernels: which of KERNELS.
        threads: how many at a time; by default 1, 2, 4 ... and all that the process may use.
        repeats: runs of a kernel; the best counts, as in STREAM.
        seconds: budget; what it does not suffice for is NaN.
        report: progress; the probe stops when it returns False.

    Returns:
        stream_bandwidth (kernel, threads) in byte/s; attrs["unseen"] says what cannot be seen here.

    Raises:
        SpecError: arrays under 1 MiB or beyond a quarter of the free memory, no run, no such
            kernel, no budget.
    """
    counts = _counts(threads)
    if not kernels or not set(kernels) <= set(KERNELS):
        raise SpecError(f"kernels: {list(kernels)} must be of {', '.join(KERNELS)}")
    points = [(name, count) for name in kernels for count in counts]
    pace = Pace("bandwidth", _checked(repeats) * len(points), seconds, report)
    count = max(KERNELS[name][1] for name in kernels)
    arrays = _arrays(_sized(size, count), count, counts)
    for name in kernels:
        _run(arrays, name, 0)  # compiles
    order = sorted(points, key=lambda point: -point[1])  # all threads first: what a machine can do
    best = _best_of(order, pace, repeats, lambda point, _: _stream(arrays, point[0], point[1]))
    table = np.array([best[point] for point in points]).reshape(len(kernels), len(counts))
    return dataset(
        {"stream_bandwidth": (("kernel", "threads"), table)},
        {"kernel": list(kernels), "threads": counts},
        source="measured", mechanism="M01", array_bytes=_bytes(arrays[0]),
        unseen=unseen(*_unseen(_bytes(arrays[0])), pace.unmeasured(table)),
    )  # fmt: skip


def strided(
    size: float | str = 2**28, *, strides: Sequence[int] = STRIDES,
    threads: Sequence[int] | None = None, repeats: int = 3, seconds: float | str = 10.0,
    report: Report = silent,
) -> xr.Dataset:  # fmt: skip
    """Measure the bytes per second that are of use when 4 bytes of every stride are read.

    Args:
        size: bytes of the array, or text.
        strides: bytes from one float32 to the next, multiples of 4.
        threads, repeats, seconds, report: as for `stream`.

    Returns:
        strided_bandwidth (stride, threads) in byte/s: a cache line of 64 bytes comes for each
        4 bytes read from a stride of 64 on.

    Raises:
        SpecError: as for `stream`, or a stride that is no multiple of 4 or beyond a 64th of
            the array.
    """
    counts, total = _counts(threads), _sized(size, 1)
    for stride in strides:
        if stride < 4 or stride % 4 or stride > total // _STEPS:
            raise SpecError(
                f"strides: {stride} must be a multiple of 4, at most {total // _STEPS} here"
            )
    points = [(stride, count) for stride in strides for count in counts]
    pace = Pace("strided reads", _checked(repeats) * len(points), seconds, report)
    chunks = [np.asarray(a) for a in _filled(total, 1.0, counts)]
    best = _best_of(
        points, pace, repeats, lambda point, turn: _skip(chunks, point[0], point[1], turn)
    )
    table = np.array([best[point] for point in points]).reshape(len(strides), len(counts))
    return dataset(
        {"strided_bandwidth": (("stride", "threads"), table)},
        {"stride": list(strides), "threads": counts},
        source="measured", mechanism="M10", array_bytes=_bytes(chunks),
        unseen=unseen(*_unseen(_bytes(chunks)), pace.unmeasured(table)),
    )  # fmt: skip


def _stream(arrays: list, name: str, threads: int) -> float:
    """Return byte/s of one run of a kernel over all chunks."""
    took = _seconds(lambda i: _run(arrays, name, i), len(arrays[0]), threads)
    return KERNELS[name][1] * _bytes(arrays[0]) / took


def _run(arrays: list, name: str, i: int) -> None:
    """Run a kernel on the i-th chunk of every array, its result in place of the second."""
    kernel, moved = KERNELS[name]
    result = kernel(*(array[i] for array in arrays[:moved])).block_until_ready()
    if moved > 1:
        arrays[1][i] = result


def _skip(chunks: list, stride: int, threads: int, turn: int) -> float:
    """Return byte/s of use; each turn reads other cache lines, which the last one did not leave."""
    step = stride // 4
    start = turn * (LINE // 4) % step
    took = _seconds(lambda i: chunks[i][start::step].max(), len(chunks), threads)
    return _bytes(chunks) / step / took


def _best_of(points: list, pace: Pace, repeats: int, run: Callable) -> dict:
    """Return point -> best rate over the rounds; in turns, so that other load hits all alike."""
    best = dict.fromkeys(points, math.nan)
    for turn in range(repeats):
        for point in points:
            best[point] = np.fmax(best[point], run(point, turn))
            if not pace.step():
                return best
    return best


def _seconds(run: Callable[[int], object], chunks: int, threads: int) -> float:
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        list(pool.map(int, range(threads)))  # threads start before the clock does
        start = time.perf_counter()
        list(pool.map(run, range(chunks)))
        return time.perf_counter() - start


def _arrays(size: int, count: int, threads: list[int]) -> list[list[jax.Array]]:
    return [_filled(size, value, threads) for value in (1.0, 0.0, 2.0)[:count]]


def _filled(size: int, value: float, threads: list[int]) -> list[jax.Array]:
    """Return an array in chunks that any of these numbers of threads share out evenly.

    As few as that takes, since starting a kernel costs some 50 µs; all threads touch them first,
    so that they lie on all memory nodes.
    """
    most = max(threads)
    chunks = min(math.lcm(*threads), 8 * most)
    count, cpu = size // 4 // chunks, jax.devices("cpu")[0]
    with concurrent.futures.ThreadPoolExecutor(most) as pool:
        made = pool.map(lambda _: jnp.full(count, value, jnp.float32, device=cpu), range(chunks))
        return [array.block_until_ready() for array in made]


def _bytes(chunks: Sequence) -> int:
    return sum(chunk.nbytes for chunk in chunks)


def _sized(size: float | str, arrays: int) -> int:
    import psutil

    asked = parse(size, "byte", "size")
    most = psutil.virtual_memory().available * _MOST_MEMORY / arrays
    if not _LEAST <= asked <= max(most, _LEAST):
        raise SpecError(
            f"size {human_bytes(asked)}: give {human_bytes(_LEAST)} to {human_bytes(most)}, "
            "a quarter of the free memory for all arrays"
        )
    return int(asked)


def _counts(threads: Sequence[int] | None) -> list[int]:
    most = threads_allowed()
    if threads is None:
        return sorted({2**i for i in range(most.bit_length())} | {most})
    if not threads or min(threads) < 1 or max(threads) > 4 * most:
        raise SpecError(f"threads: {list(threads)} must be from 1 to {4 * most} here")
    return list(threads)


def _checked(repeats: int) -> int:
    if not 1 <= repeats <= 1000:
        raise SpecError(f"repeats {repeats}: give 1 to 1000")
    return repeats


def _unseen(size: int) -> list[str]:
    """Return why the numbers may not be the memory's."""
    last, guest = last_cache(), virtualization()
    inside = last * 4 > size
    return [
        f"arrays of {human_bytes(size)} beside a last cache of {human_bytes(last)}: part of what "
        "is measured may be the cache" if inside else "",
        f"{guest}: other guests share memory and cache, and do not show" if guest else "",
    ]  # fmt: skip
