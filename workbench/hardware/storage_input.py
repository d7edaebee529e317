"""What the front doors of storage accept: numbers, text with units, lists that become dimensions."""

import math

import numpy as np
import xarray as xr

from workbench.errors import SpecError
from workbench.units import parse

LARGEST = 2.0**60  # byte: an EiB, beyond any file


def quantity(
    value, unit: str, field: str, *, low: float = 0.0, high: float = math.inf
) -> xr.DataArray:
    """Return `value` in `unit` with the dimensions that it varies over.

    Args:
        value: a number or text; a list or array, which becomes the dimension `field`; or a
            DataArray, which keeps its own.
        unit: as for `units.parse`.
        field: name in errors and of the dimension.
        low, high: what is allowed; a `low` of 0 excludes 0 itself.

    Raises:
        SpecError: not a number, or outside; the message says what is allowed.
    """
    array = _array(value, unit, field)
    numbers = array.values  # comparing DataArrays would align their indexes each time
    allowed = np.isfinite(numbers) & (numbers <= high) & (numbers >= low if low else numbers > 0)
    limits = f"at least {low:g}" if low else "above 0"
    limits += f" and at most {high:g}" if math.isfinite(high) else ""
    return _allowed(array, allowed, field, limits)


def size(value, field: str = "size") -> xr.DataArray:
    """Return bytes of something that could exist, at most an EiB; as for `quantity`."""
    return quantity(value, "byte", field, high=LARGEST)


def share(value, field: str) -> xr.DataArray:
    """Return a number from 0 to 1, both allowed; as for `quantity`."""
    array = _array(value, "dimensionless", field)
    allowed = (array.values >= 0) & (array.values <= 1)
    return _allowed(array, allowed, field, "from 0 (none) to 1 (all)")


def nonnegative(value, unit: str, field: str) -> xr.DataArray:
    """Return a finite number of 0 or more; as for `quantity`."""
    array = _array(value, unit, field)
    allowed = np.isfinite(array.values) & (array.values >= 0)
    return _allowed(array, allowed, field, "at least 0")


def _allowed(array: xr.DataArray, allowed: np.ndarray, field: str, limits: str) -> xr.DataArray:
    if not allowed.all():
        given = array.values[~allowed].flat[0]
        raise SpecError(f"{field}: {given:g} must be {limits}")
    return array


def _array(value, unit: str, field: str) -> xr.DataArray:
    if isinstance(value, xr.DataArray):
        return value.astype(np.float64)
    if isinstance(value, list | tuple | np.ndarray) and np.ndim(value) == 1:
        values = [_number(item, unit, field) for item in value]
        return xr.DataArray(values, {field: values}, field)
    return xr.DataArray(_number(value, unit, field))


def _number(value, unit: str, field: str) -> float:
    if isinstance(value, str):
        return parse(value, unit, field, positive=False)
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise SpecError(f"{field}: {str(value)[:40]!r} is not a number") from None
