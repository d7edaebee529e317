"""The one place that builds a Dataset: every variable gets its units and long name from the registry."""

import functools
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import xarray as xr

from workbench.errors import FileError
from workbench.variables import COORDS, VARIABLES


def dataset(variables: dict, coords: dict | None = None, **attrs) -> xr.Dataset:
    """Build a Dataset whose variables and coordinates carry units and long_name from the registry.

    Args:
        variables: name -> DataArray, (dims, values) or a scalar; each name must be registered.
        coords: name -> labels or values; unregistered names keep their own attrs if they have units.
        attrs: str, number, bool or list; `source` and `mechanism` are expected of every model.

    Raises:
        KeyError: a variable without units; that is our fault, not the user's.
    """
    ds = xr.Dataset(variables, coords)
    for names, registered in ((ds.data_vars, VARIABLES), (ds.coords, COORDS)):
        for name in names:
            if name in registered:
                units, long_name = registered[name]
                ds[name].attrs = {"units": units, "long_name": long_name}
            elif "units" not in ds[name].attrs or "long_name" not in ds[name].attrs:
                raise KeyError(
                    f"{name!r} has no units or long_name: add it to workbench/variables.py"
                )
    ds.attrs = {"version": _version(), **attrs}
    return ds


def label(array: xr.DataArray) -> str:
    """Return the axis label of a variable: long name and units, ratios without brackets."""
    units = array.attrs.get("units", "1")
    name = array.attrs.get("long_name", str(array.name))
    return name if units == "1" else f"{name} [{units}]"


def save(ds: xr.Dataset, path: str | Path) -> Path:
    """Write `ds` as NetCDF-4 to `path` and return it."""
    path = Path(path)
    ds.to_netcdf(path, engine="h5netcdf")
    return path


def open_(path: str | Path) -> xr.Dataset:
    """Read a Dataset written by `save` into memory.

    Raises:
        FileError: the file is missing or not NetCDF.
    """
    try:
        with xr.open_dataset(path, engine="h5netcdf") as ds:
            return ds.load()
    except (OSError, ValueError) as err:
        raise FileError(f"{path}: not a NetCDF file that the workbench wrote ({err})") from None


@functools.cache
def _version() -> str:
    try:
        return version("bottleneck-workbench")
    except PackageNotFoundError:
        return "source"
