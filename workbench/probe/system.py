"""What this machine says of itself: processor, caches, memory settings, and what it runs inside."""

import os
import platform
import shutil
import subprocess
from pathlib import Path

import numpy as np
import xarray as xr

from workbench.probe import readings
from workbench.probe.pace import Report, silent, unseen
from workbench.results import dataset

ROOT = Path("/")  # tests read recorded files instead
_THP = "sys/kernel/mm/transparent_hugepage"
_CONTAINERS = ("docker", "kubepods", "containerd", "libpod", "lxc")
_UNLIMITED = 2**60  # what cgroups write where there is no limit is larger


def read(*, seconds: float | str = 10.0, report: Report = silent) -> xr.Dataset:
    """Read the processor, the caches and the memory settings of this machine.

    Args:
        seconds: ignored, since nothing is measured; here because every probe has it.
        report: progress.

    Returns:
        memory_total and memory_free (byte), cache_size (cache) in byte, huge_pages (page_size,
        state) and events (counter) since boot; attrs cpu, cores, threads, virtualization,
        container, thp, thp_defrag, numa_nodes, numa_balancing ("" or -1 where it is not known)
        and `unseen`.
    """
    report("system", 0, 1)
    found, events = caches(), _events()
    sizes, pages = _huge_pages()
    total, free = memory()
    ds = dataset(
        {
            "memory_total": float(total),
            "memory_free": float(free),
            "cache_size": ("cache", [float(size) for size in found.values()]),
            "huge_pages": (("page_size", "state"), pages),
            "events": ("counter", [float(count) for count in events.values()]),
        },
        {"cache": list(found), "page_size": sizes, "state": list(_STATES), "counter": list(events)},
        source="read", mechanism="M68", **_settings(),
        unseen=unseen(*_unseen(events)),
    )  # fmt: skip
    report("system", 1, 1)
    return ds


def threads_allowed() -> int:
    """Return the processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cores() -> int:
    """Return the physical cores, at most as many as this process may use."""
    import psutil

    return min(psutil.cpu_count(logical=False) or threads_allowed(), threads_allowed())


def cpu_name() -> str:
    """Return what the CPU calls itself."""
    if platform.system() == "Darwin":
        return output(["sysctl", "-n", "machdep.cpu.brand_string"]).strip()
    return readings.cpu_name(text("proc/cpuinfo")) or platform.processor() or platform.machine()


def memory() -> tuple[int, int]:
    """Return the bytes of memory, and those that programs can still get; a container's if less."""
    import psutil

    machine, limit = psutil.virtual_memory(), _limit()
    if limit >= machine.total:
        return machine.total, machine.available
    used = _number("sys/fs/cgroup/memory.current")
    return limit, min(machine.available, max(0, limit - max(0, used)))


def caches() -> dict[str, int]:
    """Return the caches that the first core sees, "L1d" to "L3", in bytes."""
    if platform.system() == "Darwin":
        return readings.apple_caches(readings.sysctl(output(["sysctl", "hw"])))
    found = {}
    for path in sorted(Path(ROOT, "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (_text(path / name).strip() for name in ("level", "type", "size"))
        suffix = {"Data": "d", "Instruction": "i"}.get(kind, "")
        if bytes_ := readings.cache_size(size):
            found[f"L{level}{suffix}"] = bytes_
    return found


def last_cache() -> int:
    """Return the bytes of the largest cache, 0 if none is known."""
    return max(caches().values(), default=0)


def container() -> str:
    """Return what kind of container this is, "" if none shows."""
    if Path(ROOT, ".dockerenv").exists():
        return "docker"
    if Path(ROOT, "run/.containerenv").exists():
        return "podman"
    groups = text("proc/1/cgroup")
    return next((kind for kind in _CONTAINERS if kind in groups), "")


def virtualization() -> str:
    """Return what is known of the virtual machine, "" if none shows."""
    if platform.system() == "Darwin":
        return (
            "virtual machine" if output(["sysctl", "-n", "kern.hv_vmm_present"])[:1] == "1" else ""
        )
    if "microsoft" in text("proc/sys/kernel/osrelease").lower():
        return "WSL"
    below = readings.hypervisor(text("proc/cpuinfo"))
    below = below or bool(text("proc/device-tree/hypervisor/compatible"))
    vendor = text("sys/class/dmi/id/sys_vendor").strip()
    return (f"virtual machine ({vendor})" if vendor else "virtual machine") if below else ""


def output(command: list[str]) -> str:
    """Return what a command prints, "" if it is not there or does not answer in 10 s."""
    if shutil.which(command[0]) is None:
        return ""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def text(name: str) -> str:
    """Return a file below the root, "" if it cannot be read."""
    return _text(Path(ROOT, name))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _number(name: str) -> int:
    """Return a file's number, -1 if it has none."""
    found = text(name).strip()
    return int(found) if found.isdigit() else -1


def _limit() -> int:
    """Return the memory that the container may use in bytes; huge where there is no limit."""
    limits = (_number("sys/fs/cgroup/memory.max"),
              _number("sys/fs/cgroup/memory/memory.limit_in_bytes"))  # fmt: skip
    return min((limit for limit in limits if limit > 0), default=_UNLIMITED)


_STATES = {"total": "nr_hugepages", "free": "free_hugepages"}


def _huge_pages() -> tuple[list[int], np.ndarray]:
    """Return the sizes of huge pages in bytes, and how many of each there are in every state."""
    folders = {
        int(path.name.removeprefix("hugepages-").removesuffix("kB")) * 1024: path
        for path in Path(ROOT, "sys/kernel/mm/hugepages").glob("hugepages-*kB")
    }
    counts = [
        [float(_text(path / name).strip() or "nan") for name in _STATES.values()]
        for _, path in sorted(folders.items())
    ]
    return sorted(folders), np.array(counts, float).reshape(-1, len(_STATES))


def _events() -> dict[str, float]:
    if platform.system() == "Darwin":
        said = readings.memory_pressure(output(["memory_pressure"]))
        return {k: v for k, v in said.items() if k not in ("memory", "page_size", "free")}
    return dict(readings.counters(text("proc/vmstat")))


def _settings() -> dict[str, str | int]:
    nodes = list(Path(ROOT, "sys/devices/system/node").glob("node[0-9]*"))
    return {
        "cpu": cpu_name(), "cores": cores(), "threads": threads_allowed(),
        "os": f"{platform.system()} {platform.release()}",
        "virtualization": virtualization(), "container": container(),
        "thp": readings.chosen(text(f"{_THP}/enabled")),
        "thp_defrag": readings.chosen(text(f"{_THP}/defrag")),
        "numa_nodes": max(1, len(nodes)),
        "numa_balancing": _number("proc/sys/kernel/numa_balancing"),
    }  # fmt: skip


def _unseen(events: dict) -> list[str]:
    inside, guest = container(), virtualization()
    return [
        f"inside {inside}: counters and settings are the host's, and other containers count in them"
        if inside else "",
        f"{guest}: the host's pages, caches and NUMA nodes do not show" if guest else "",
        "" if events else "no kernel event counters can be read here",
    ]  # fmt: skip
