"""What the front doors of DRAM and layout accept, and how they label what they return."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import xarray as xr

from workbench.errors import SpecError
from workbench.hardware.storage_input import quantity

LARGEST = 2.0**40  # byte: a page or a stretch beyond any


def power_of_two(value, field: str, most: float = LARGEST) -> xr.DataArray:
    """Return bytes that are a power of two, at most `most`; otherwise as `quantity`.

    Raises:
        SpecError: not a power of two, below 1 or above `most`.
    """
    array = quantity(value, "byte", field, low=1, high=most)
    odd = array.values[np.exp2(np.round(np.log2(array.values))) != array.values]
    if odd.size:
        raise SpecError(f"{field}: {odd.flat[0]:g} byte must be a power of two, as 64 or 4096")
    return array


def queue(value) -> xr.DataArray:
    """Return a queue depth, 1 to a million; otherwise as `quantity`."""
    return quantity(value, "dimensionless", "queue_depth", low=1, high=2.0**20)


def labelled(function: Callable, outputs: int, *arrays: xr.DataArray) -> list[xr.DataArray]:
    """Return the results of a function of arrays, broadcast by dimension name."""
    found = xr.apply_ufunc(
        lambda *values: tuple(np.asarray(out) for out in function(*map(jnp.asarray, values))),
        *xr.broadcast(*arrays), output_core_dims=[()] * outputs,
    )  # fmt: skip
    return list(found)
