"""The machine that a command line means, and what the probes of this one found."""

import contextlib
import dataclasses
import itertools
import json
import math
import signal
from collections.abc import Iterator
from pathlib import Path

import xarray as xr

from workbench import cli_print, probe, results
from workbench.errors import FileError
from workbench.hardware.contiguity import UNBROKEN
from workbench.probe import machine as machines
from workbench.specs.device import Device
from workbench.units import human_bytes, parse

THIS = ("", "this")
#: Events of the kernel that say what memory went through; the file has all of them.
_EVENTS = ("pgfault", "pgmajfault", "thp_fault_alloc", "thp_fault_fallback", "compact_stall",
           "compact_fail", "numa_hint_faults", "pswpin", "pswpout")  # fmt: skip
_ABOUT = ("cpu", "cores", "threads", "os", "virtualization", "container", "thp", "numa_nodes",
          "numa_balancing", "page_bytes", "huge_page_bytes", "readahead_bytes",
          "fault_around_bytes", "file_system")  # fmt: skip


def machine(name: str, memory: str = "", disk: str = "") -> Device:
    """Return the machine that a name means.

    Args:
        name: "this" or nothing for this machine, a file that `workbench probe --save` wrote, or
            one of the catalogue.
        memory: its memory, where it differs.
        disk: how fast it reads files, where that is known.
    """
    stated = {"memory": (memory, "byte"), "disk": (disk, "byte/second")}
    given = {field: parse(text, unit, field) for field, (text, unit) in stated.items() if text}
    if name not in THIS and Path(name).suffix.lower() != ".nc":
        return Device.preset(name, **given)
    found = probe.this_machine() if name in THIS else probe.from_file(name)
    return dataclasses.replace(found, **given)


def probed(only: list[str], seconds: str, folder: Path, save: Path | None) -> xr.Dataset:
    """Run the probes behind a progress bar; Ctrl-C ends them and keeps what they found.

    Raises:
        FileError: the result cannot be saved.
        WorkbenchError: as `probe.survey`.
    """
    if save is not None and not save.parent.is_dir():  # said before the work, not after
        raise FileError(f"{save}: there is no folder {save.parent}")
    with cli_print.progress() as report, _stoppable(report) as told:
        ds = probe.survey(only, seconds=seconds, folder=folder, report=told)
    if save is not None:
        try:
            results.save(ds, save)
        except OSError as err:
            raise FileError(f"{save}: cannot be written ({err.strerror or err})") from None
    return ds


def document(ds: xr.Dataset) -> dict:
    """Return a survey as plain data: device, settings, variables with dims and units, unseen."""
    kept = {key: value for key, value in ds.attrs.items() if key not in ("device", "unseen")}
    return {
        "device": json.loads(ds.attrs.get("device", "null")),
        "unseen": ds.attrs["unseen"].splitlines(),
        **{key: getattr(value, "tolist", lambda v=value: v)() for key, value in kept.items()},
        "variables": ds.to_dict()["data_vars"],
        "coords": ds.to_dict()["coords"],
    }


def print_probe(ds: xr.Dataset) -> None:
    """Print a survey as tables, and what it could not see."""
    if "device" in ds.attrs:
        device = machines.from_text(ds.attrs["device"])
        cli_print.heading(f"{device.name}, {human_bytes(device.memory)}", device.note)
    if about := _about(ds.attrs):
        cli_print.table("", {"": "left", " ": "left"}, about)
    if "counter" in ds.coords:
        ds = ds.sel(counter=[name for name in _EVENTS if name in ds.counter.values])
    whole = "fi" in ds and ds.fi.size > 0 and bool((ds.fi == UNBROKEN).all())
    for title, columns, rows in _tables(ds.drop_vars("fi") if whole else ds):
        cli_print.table(title, columns, rows)
    if whole:
        cli_print.note("not fragmented: every zone has a free block of every order")
    for line in ds.attrs["unseen"].splitlines():
        cli_print.note(f"not seen: {line}")


def _about(attrs: dict) -> list[tuple[str, str]]:
    """Return what is known of the machine's settings; -1 stands for what cannot be read."""
    known = {key: attrs[key] for key in _ABOUT if attrs.get(key, -1) not in ("", -1)}
    return [
        (key.removesuffix("_bytes").replace("_", " "),
         human_bytes(value) if key.endswith("_bytes") else str(value))
        for key, value in known.items()
    ]  # fmt: skip


def _tables(ds: xr.Dataset) -> Iterator[tuple[str, dict[str, str], list]]:
    """Yield title, columns and rows of each table: variables over the same labels share one."""
    alone = [ds[n] for n in ds.data_vars if not ds[n].dims]
    if alone:
        rows = [(array.attrs["long_name"], _cell(array, array.item())) for array in alone]
        yield "", {"": "left", " ": "right"}, rows
    for dim in ds.dims:
        arrays = [_measured(ds[n]) for n in ds.data_vars if ds[n].dims == (dim,)]
        if arrays := [array for array in arrays if array.size]:
            together = xr.align(*arrays, join="outer")
            heads = [together[0][dim], *together]
            columns = [[_cell(head, v) for v in head.values.tolist()] for head in heads]
            names = [head.attrs["long_name"] for head in heads]
            yield "", dict.fromkeys(names, "right"), list(zip(*columns, strict=True))
    for name in ds.data_vars:
        if ds[name].ndim > 1 and (measured := _measured(ds[name])).size:
            yield _grid(measured)


def _measured(array: xr.DataArray) -> xr.DataArray:
    """Return an array without the labels that only other variables have."""
    for dim in array.dims:
        array = array.dropna(dim, how="all")
    return array


def _grid(array: xr.DataArray) -> tuple[str, dict[str, str], list]:
    """Return a table of an array with its shortest dimension across."""
    across = min(array.dims, key=lambda dim: array.sizes[dim])
    array = array.transpose(..., across)
    down = array.dims[:-1]
    title = f"{array.attrs['long_name']}, by {array[across].attrs['long_name']}"
    labels = [_cell(array[across], value) for value in array[across].values.tolist()]
    heads = [array[dim].attrs["long_name"] for dim in down]
    rows = [
        (*(_cell(array[dim], v) for dim, v in zip(down, place, strict=True)),
         *(_cell(array, v) for v in array.sel(dict(zip(down, place, strict=True))).values.tolist()))
        for place in itertools.product(*(array[dim].values.tolist() for dim in down))
    ]  # fmt: skip
    return title, dict.fromkeys((*heads, *labels), "right"), rows


def _cell(array: xr.DataArray, value) -> str:
    """Return a value with the prefix that a reader expects of its unit."""
    if not isinstance(value, int | float):
        return str(value)
    if math.isnan(value):
        return "not measured"
    units = array.attrs["units"]
    if units == "byte":
        return human_bytes(value)
    for unit, factor, shown in (("byte/s", 1e9, "GB/s"), ("FLOP/s", 1e9, "GFLOP/s")):
        if units == unit:
            return f"{value / factor:.3g} {shown}"
    if units == "s":
        scale, shown = next(((f, s) for f, s in _SECONDS if value >= f), _SECONDS[-1])
        return f"{value / scale:.3g} {shown}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


@contextlib.contextmanager
def _stoppable(report) -> Iterator:
    """Yield `report` such that the first Ctrl-C stops the work and the second one the program."""
    pressed = []

    def stop(number, frame) -> None:
        pressed.append(number)
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield lambda *told: report(*told) and not pressed
    finally:
        signal.signal(signal.SIGINT, before)
