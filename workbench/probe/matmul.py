"""How many FLOP/s the processor's matrix products reach, with the threads that JAX uses."""

import time
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from workbench.errors import SpecError
from workbench.probe.pace import Pace, Report, silent, unseen
from workbench.results import dataset

DTYPES = ("float32", "bfloat16")
_product = jax.jit(lambda a, b: a @ b)


def flops(
    size: int = 1024, *, dtypes: Sequence[str] = DTYPES, repeats: int = 5,
    seconds: float | str = 5.0, report: Report = silent,
) -> xr.Dataset:  # fmt: skip
    """Measure a product of two square matrices on the CPU: 2 n³ FLOP.

    Args:
        size: n.
        dtypes: "float32", "bfloat16" or "float64".
        repeats: runs of each; the best counts.
        seconds: budget; what it does not suffice for is NaN.
        report: progress; the probe stops when it returns False.

    Returns:
        matmul_flops (dtype) in FLOP/s.

    Raises:
        SpecError: n outside 16 to 8192, an unknown dtype, no run, or no budget.
    """
    if not 16 <= size <= 8192 or not 1 <= repeats <= 1000:
        raise SpecError(f"size {size}, repeats {repeats}: give 16 to 8192 and 1 to 1000")
    if strange := set(dtypes) - {"float32", "bfloat16", "float64"}:
        raise SpecError(f"dtypes: {', '.join(strange)}; give float32, bfloat16 or float64")
    pace = Pace("matmul", len(dtypes) * (repeats + 1), seconds, report)
    rates = np.array([_best(size, dtype, repeats, pace) for dtype in dtypes])
    return dataset(
        {"matmul_flops": ("dtype", rates)}, {"dtype": list(dtypes)},
        source="measured", mechanism="M22", matrix_size=size,
        unseen=unseen("the GPU: only the CPU is measured" if _has_gpu() else "",
                      pace.unmeasured(rates)),
    )  # fmt: skip


def _best(size: int, dtype: str, repeats: int, pace: Pace) -> float:
    best = float("nan")
    if pace.ended:
        return best
    matrix = jnp.ones((size, size), dtype, device=jax.devices("cpu")[0])
    for turn in range(repeats + 1):  # the first compiles
        start = time.perf_counter()
        _product(matrix, matrix).block_until_ready()
        if turn:
            best = float(np.fmax(best, 2 * size**3 / (time.perf_counter() - start)))
        if not pace.step():
            break
    return best


def _has_gpu() -> bool:
    return jax.default_backend() != "cpu"
