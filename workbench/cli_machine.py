"""Which machine this is: its GPU or chip by name, else a CPU described by what it measures."""

import concurrent.futures
import dataclasses
import platform
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import psutil

from workbench.errors import WorkbenchError
from workbench.specs.device import Device, resolve
from workbench.units import GiB

_COPY_BYTES = 2**27  # of each array: far beyond any cache
_COPIES = 5


def this_machine() -> Device:
    """Return the accelerator of this machine if the catalogue has it, else its CPU, with a note."""
    for name, cores, memory in _candidates():
        try:
            device = resolve(name, cores=cores)
            return Device.preset(device.name, memory=memory or float(psutil.virtual_memory().total))
        except WorkbenchError:
            continue
    return _measured_cpu()


def _candidates():
    """Yield (name, GPU cores, byte of memory) of what might be in the catalogue, best first."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    for line in _output(query).splitlines():
        name, _, size = line.rpartition(",")
        mebibytes = float(size) if size.strip().replace(".", "").isdigit() else 0.0
        yield name.strip(), None, round(mebibytes / 1024) * GiB or None
    if platform.system() == "Darwin":
        found = _output(["sysctl", "-n", "machdep.cpu.brand_string"]).strip()
        yield found, _apple_gpu_cores(), None
    for name in (_first_line("/proc/device-tree/model"), cpu_name()):
        if name:
            yield name, None, None


def cpu_name() -> str:
    """Return what the CPU calls itself."""
    lines = _text("/proc/cpuinfo").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), "") or platform.processor() or platform.machine()


def copy_bandwidth() -> float:
    """Return bytes per second read and written by the best of some copies with all cores."""
    cores = psutil.cpu_count(logical=False) or 1
    pairs = [(np.ones(_COPY_BYTES // 8 // cores), np.empty(_COPY_BYTES // 8 // cores))
             for _ in range(cores)]  # fmt: skip
    with concurrent.futures.ThreadPoolExecutor(cores) as pool:
        return 2 * _COPY_BYTES / min(_seconds(pool, pairs) for _ in range(_COPIES))


def _seconds(pool, pairs: list) -> float:
    start = time.perf_counter()
    list(pool.map(lambda pair: np.copyto(pair[1], pair[0]), pairs))
    return time.perf_counter() - start


def _measured_cpu() -> Device:
    device = Device.custom(
        cpu_name(), bandwidth=copy_bandwidth(), memory=float(psutil.virtual_memory().total),
        device_class="cpu", cores=float(psutil.cpu_count(logical=False) or 1),
    )  # fmt: skip
    note = f"not in the catalogue: bandwidth as copied just now; {device.note}"
    return dataclasses.replace(device, note=note)


def _apple_gpu_cores() -> float | None:
    text = _output(["system_profiler", "SPDisplaysDataType"])
    found = [
        line.rpartition(":")[2].strip() for line in text.splitlines() if "Number of Cores" in line
    ]
    return float(found[0]) if found and found[0].isdigit() else None


def _output(command: list[str]) -> str:
    if shutil.which(command[0]) is None:
        return ""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _first_line(path: str) -> str:
    return next(iter(_text(path).replace("\0", "\n").splitlines()), "")


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
