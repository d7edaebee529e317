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
    array = numbers(value, unit, field)
    given = array.values  # comparing DataArrays would align their indexes each time
    allowed = np.isfinite(given) & (given <= high) & (given >= low if low else given > 0)
    limits = f"at least {low:g}" if low else "above 0"
    limits += f" and at most {high:g}" if math.isfinite(high) else ""
    return _allowed(array, allowed, field, limits)


def size(value, field: str = "size") -> xr.DataArray:
    """Return bytes of something that could exist, at most an EiB; as for `quantity`."""
    return quantity(value, "byte", field, high=LARGEST)


def share(value, field: str) -> xr.DataArray:
    """Return a number from 0 to 1, both allowed; as for `quantity`."""
    array = numbers(value, "dimensionless", field)
    allowed = (array.values >= 0) & (array.values <= 1)
    return _allowed(array, allowed, field, "from 0 (none) to 1 (all)")


def nonnegative(value, unit: str, field: str) -> xr.DataArray:
    """Return a finite number of 0 or more; as for `quantity`."""
    array = numbers(value, unit, field)
    allowed = np.isfinite(array.values) & (array.values >= 0)
    return _allowed(array, allowed, field, "at least 0")


def _allowed(array: xr.DataArray, allowed: np.ndarray, field: str, limits: str) -> xr.DataArray:
    if not allowed.all():
        given = array.values[~allowed].flat[0]
        raise SpecError(f"{field}: {given:g} must be {limits}")
    return array


def numbers(value, unit: str, field: str) -> xr.DataArray:
    """Return `value` in `unit`, whatever its sign; otherwise as `quantity`.

    Raises:
        SpecError: not a number, or an array of more than one dimension that does not name them.
    """
    if isinstance(value, xr.DataArray):
        try:
            return value.astype(np.float64)
        except (TypeError, ValueError):
            raise SpecError(f"{field}: {str(value.values)[:60]!r} is not a number") from None
    if np.ndim(value) > 1:
        raise SpecError(f"{field}: give a DataArray for more than one dimension")
    if isinstance(value, list | tuple | np.ndarray) and np.ndim(value) == 1:
        values = [_number(item, unit, field) for item in value]
        return xr.DataArray(values, {field: values}, field)
    return xr.DataArray(_number(value, unit, field))


def _number(value, unit: str, field: str) -> float:
    try:
        return parse(value, unit, field, positive=False) if isinstance(value, str) else float(value)
    except (SpecError, TypeError, ValueError, OverflowError) as err:
        if isinstance(err, SpecError) and unit != "dimensionless":
            raise
        raise SpecError(f"{field}: {str(value)[:40]!r} is not a number") from None
