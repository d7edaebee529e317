"""How fast this machine's memory streams, with the same threads that the engine uses.

After STREAM (McCalpin, https://www.cs.virginia.edu/stream/ref.html), with a pure read added, since
reading is what a decode step does. Bytes count as in STREAM: each array once, no write-allocate.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from workbench.errors import SpecError
from workbench.results import dataset

_LEAST = 2**20


def _read(a, b, c):
    return a.sum()


def _copy(a, b, c):
    return c.at[:].set(a)


def _triad(a, b, c):
    return a + 3 * b


#: kernel -> its function and how many arrays it moves
KERNELS = {"read": (jax.jit(_read), 1), "copy": (jax.jit(_copy), 2), "triad": (jax.jit(_triad), 3)}


def stream(size: int = 2**28, repeats: int = 5, kernels=tuple(KERNELS)) -> xr.Dataset:
    """Measure the memory's bandwidth.

    Args:
        size: bytes of each array; at least four times the last cache.
        repeats: runs of a kernel; the best counts, as in STREAM.
        kernels: which of KERNELS.

    Returns:
        stream_bandwidth (kernel) in byte/s.

    Raises:
        SpecError: arrays under 1 MiB, or no run.
    """
    if size < _LEAST or repeats < 1:
        raise SpecError(f"size {size} and repeats {repeats}: at least {_LEAST} bytes and 1 run")
    best = [_best(*KERNELS[name], size, repeats) for name in kernels]
    attrs = {"units": "byte/s", "long_name": "streaming bandwidth"}
    names = {"units": "1", "long_name": "kernel"}
    return dataset(
        {"stream_bandwidth": xr.DataArray(best, dims="kernel", attrs=attrs)},
        {"kernel": xr.DataArray(list(kernels), dims="kernel", attrs=names)},
        source="measured",
        mechanism="M01",
        array_bytes=size,
    )


def _best(kernel, arrays: int, size: int, repeats: int) -> float:
    a, b, c = (jnp.full(size // 4, value, jnp.float32) for value in (1, 2, 0))
    kernel(a, b, c).block_until_ready()
    seconds = [_seconds(kernel, a, b, c) for _ in range(repeats)]
    return arrays * size / float(np.min(seconds))


def _seconds(kernel, *given) -> float:
    start = time.perf_counter()
    kernel(*given).block_until_ready()
    return time.perf_counter() - start
