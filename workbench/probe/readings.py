"""What kernels print, as numbers: pure functions of text, so that recorded outputs test them.

Formats: Linux Documentation/filesystems/proc.rst and admin-guide/mm/transhuge.rst, macOS sysctl(8)
and memory_pressure(1). Text that is empty because a file cannot be read gives nothing.
"""

import re

from workbench.units import parse

_UNIT = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def counters(text: str) -> dict[str, int]:
    """Return the events of /proc/vmstat by name."""
    return {name: int(count) for name, count in re.findall(r"^(\w+) (\d+)$", text, re.MULTILINE)}


def chosen(text: str) -> str:
    """Return the choice in brackets, "madvise" of "always [madvise] never"; "" if there is none."""
    found = re.search(r"\[(\S+)\]", text)
    return found[1] if found else ""


def cpu_name(text: str) -> str:
    """Return what /proc/cpuinfo calls the processor, or else the board; "" if it says neither."""
    for field in ("model name", "Model", "Hardware"):
        if found := re.search(rf"^{field}\s*: *(\S.*)$", text, re.MULTILINE):
            return found[1].strip()
    return ""


def hypervisor(text: str) -> bool:
    """Return whether the flags of /proc/cpuinfo say that a hypervisor runs below."""
    return bool(re.search(r"^flags\s*:.*\bhypervisor\b", text, re.MULTILINE))


def cache_size(text: str) -> int:
    """Return the bytes of a cache as sysfs writes it, "2048K"; 0 where it says nothing."""
    found = re.fullmatch(r"(\d+)([KMG]?)", text.strip())
    return int(found[1]) * _UNIT[found[2]] if found else 0


def sysctl(text: str) -> dict[str, str]:
    """Return what `sysctl` printed, name -> text."""
    return dict(re.findall(r"^([\w.]+): *(.*?)\s*$", text, re.MULTILINE))


def apple_caches(values: dict[str, str]) -> dict[str, int]:
    """Return the caches of the performance cores in bytes, from `sysctl hw`.

    The keys without a level describe the efficiency cores (github.com/google/benchmark, issue
    1310); an Intel Mac has only those.
    """
    names = {"L1d": "l1dcachesize", "L1i": "l1icachesize", "L2": "l2cachesize", "L3": "l3cachesize"}
    found = {
        name: int(values.get(f"hw.perflevel0.{key}") or values.get(f"hw.{key}") or 0)
        for name, key in names.items()
    }
    return {name: size for name, size in found.items() if size}


def memory_pressure(text: str) -> dict[str, float]:
    """Return what macOS's `memory_pressure` printed.

    Returns:
        its counters by name, `memory` and `page_size` in bytes, and `free`, the share that the
        system can still give.
    """
    found: dict[str, float] = {
        name: int(count) for name, count in re.findall(r"^(\w[\w ]+): (\d+) *$", text, re.MULTILINE)
    }
    if head := re.search(r"The system has (\d+) \(\d+ pages with a page size of (\d+)\)", text):
        found |= {"memory": int(head[1]), "page_size": int(head[2])}
    if free := re.search(r"memory free percentage: (\d+)%", text):
        found["free"] = int(free[1]) / 100
    return found


def gpu_cores(text: str) -> float | None:
    """Return the GPU cores of an Apple chip as `system_profiler SPDisplaysDataType` says."""
    found = re.search(r"Total Number of Cores: (\d+)", text)
    return float(found[1]) if found else None


def nvidia(text: str) -> list[tuple[str, float]]:
    """Return (name, bytes) of the cards that `nvidia-smi` lists as CSV without units.

    The driver keeps a part for itself: memory is rounded up to the whole GiB that is sold.
    """
    rows = re.findall(r"^(.*), *(\d+(?:\.\d+)?|\[N/A\]) *$", text, re.MULTILINE)
    return [
        (name.strip(), 0.0 if size == "[N/A]" else round(parse(size, "byte", name) / 2**10) * 2**30)
        for name, size in rows
    ]
