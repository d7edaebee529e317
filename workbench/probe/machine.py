"""Which machine this is: its GPU or chip by name, else its CPU as measured; and as text in a file."""

import dataclasses
import json
import math
import platform
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import xarray as xr

from workbench import results
from workbench.errors import FileError, WorkbenchError
from workbench.probe import bandwidth, matmul, readings, system
from workbench.probe.pace import Pace, Report, silent
from workbench.specs.device import Device, resolve
from workbench.specs.device_facts import NUMBERS
from workbench.units import GB, human_bytes

_TEXTS = ("generation", "source", "note")
_LONGEST = 4000  # characters of a text in a file that may come from anywhere
_MOST_CORES = 1.1  # times those that this process may use: else the catalogue's CPU is another


def this_machine(*, seconds: float | str = 4.0, report: Report = silent) -> Device:
    """Return this machine as a Device, from what it says and a short measurement.

    A GPU or chip of the catalogue keeps the catalogue's numbers, which predictions are calibrated
    with, beside the memory that it has here. Any other machine is its CPU, as measured.

    Args:
        seconds: budget of the measurement.
        report: progress; the measurement stops when it returns False.

    Returns:
        the Device; its `note` says what was measured.

    Raises:
        SpecError: no budget.
        WorkbenchError: stopped, or out of time, before an unknown machine was measured.
    """
    pace = Pace("machine", 1, seconds)
    options = {"seconds": pace.seconds / 2, "report": report}
    streamed = bandwidth.stream(kernels=("read",), threads=[system.cores()], repeats=20, **options)
    return describe(xr.merge([streamed, matmul.flops(**options)], combine_attrs="drop"))


def describe(ds: xr.Dataset) -> Device:
    """Return this machine as a Device, with the numbers that a probe of it measured.

    Args:
        ds: stream_bandwidth and, if the disk was measured, read_bandwidth (cache_state) in byte/s,
            matmul_flops in FLOP/s; over any further dims.

    Raises:
        WorkbenchError: the machine is not in the catalogue and no bandwidth was measured.
    """
    streamed, flops = _best(ds, "stream_bandwidth"), _best(ds, "matmul_flops")
    known = _known()
    if known is not None:
        return dataclasses.replace(_measured_beside(known, streamed), disk=_disk(ds))
    if math.isnan(streamed):
        raise WorkbenchError(
            "this machine is not in the catalogue and its bandwidth was not measured: "
            "give the bandwidth probe more seconds"
        )
    numbers = {"cores": system.cores(), "flops": flops, "cache": system.last_cache() or math.nan}
    numbers["disk"] = _disk(ds)
    device = Device.custom(
        system.cpu_name(), bandwidth=streamed, memory=system.memory()[0], device_class="cpu",
        **{name: value for name, value in numbers.items() if not math.isnan(value)},
    )  # fmt: skip
    note = (
        f"bandwidth{'' if math.isnan(flops) else ' and FLOP/s'} as measured here, not as specified"
    )
    return dataclasses.replace(
        device, source="measured by the probe", note="; ".join(filter(None, (note, device.note)))
    )


def to_text(device: Device) -> str:
    """Return a Device as JSON, unknown numbers left out."""
    fields = dataclasses.asdict(device)
    return json.dumps({k: v for k, v in fields.items() if not _unknown(v)})


def from_text(text: str) -> Device:
    """Return the Device that `to_text` wrote; every number is checked as if a user had given it.

    Raises:
        WorkbenchError: not a Device as JSON, or a number that makes no sense.
    """
    try:
        fields = json.loads(text)
        numbers = {name: float(fields[name]) for name in NUMBERS if name in fields}
        texts = {name: str(fields.get(name, ""))[:_LONGEST] for name in _TEXTS}
        device = Device.custom(
            str(fields["name"]), device_class=str(fields["device_class"]),
            unified=bool(fields.get("unified")), **numbers,
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as err:
        raise WorkbenchError(f"no device as the probe writes it: {str(err)[:200]}") from None
    return dataclasses.replace(device, **texts)


def from_file(path: str | Path) -> Device:
    """Return the machine in a file that `workbench probe --save` wrote.

    Raises:
        FileError: missing, not NetCDF, or not written by a probe.
    """
    ds = results.open_(path)
    if "device" not in ds.attrs:
        raise FileError(f"{path}: no device in it; write one with: workbench probe --save FILE.nc")
    try:
        return from_text(str(ds.attrs["device"]))
    except WorkbenchError as err:
        raise FileError(f"{path}: {err}") from None


def _known() -> Device | None:
    """Return this machine as the catalogue knows it, best guess first; None if it does not."""
    for name, cores, memory in _names():
        try:
            device = resolve(name, cores=cores)
        except WorkbenchError:
            continue
        if device.device_class != "cpu" or device.cores <= _MOST_CORES * system.cores():
            return Device.preset(device.name, memory=memory or float(system.memory()[0]))
    return None


def _names() -> Iterator[tuple[str, float | None, float]]:
    """Yield (name, GPU cores, bytes of its own memory) of what might be in the catalogue."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    for name, size in readings.nvidia(system.output(query)):
        yield name, None, size
    if platform.system() == "Darwin":
        cores = readings.gpu_cores(system.output(["system_profiler", "SPDisplaysDataType"]))
        yield system.cpu_name(), cores, 0.0
    board = system.text("proc/device-tree/model").rstrip("\0")
    for name in filter(None, (board, system.cpu_name())):
        yield name, None, 0.0


def _measured_beside(device: Device, streamed: float) -> Device:
    """Return the catalogue's machine with what was measured around it."""
    if math.isnan(streamed):
        return device
    said = f"here its CPU cores stream {streamed / GB:.3g} GB/s"
    host = {}
    if not device.unified:
        memory = system.memory()[0]
        host = {"host_bandwidth": streamed, "host_memory": float(memory)}
        said = f"here beside {human_bytes(memory)} that stream {streamed / GB:.3g} GB/s"
    note = "; ".join(filter(None, (device.note, said)))
    return dataclasses.replace(device, **host, note=note)


def _disk(ds: xr.Dataset) -> float:
    """Return the byte/s at which a file is read that is not cached."""
    return _best(ds.sel(cache_state="cold"), "read_bandwidth") if "cache_state" in ds else math.nan


def _best(ds: xr.Dataset, name: str) -> float:
    """Return the largest number of a variable; of reads, which are what decoding does, if it can."""
    if name not in ds:
        return math.nan
    chosen = ds.sel(kernel="read") if "read" in ds[name].coords.get("kernel", []) else ds
    return float(np.fmax.reduce(chosen[name].values.ravel(), initial=math.nan))


def _unknown(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)
