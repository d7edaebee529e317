"""What the catalogue says of a machine in SI numbers, and what is assumed where it says nothing."""

import math
import statistics

from workbench import data
from workbench.errors import SpecError
from workbench.units import GB, GiB

#: number field -> (unit for `units.parse`, catalogue column, factor to SI)
NUMBERS: dict[str, tuple[str, str, float]] = {
    "bandwidth": ("byte/second", "mem_bandwidth_GBps", GB),
    "memory": ("byte", "", 1.0),
    "flops": ("FLOP/second", "peak_fp16_TFLOPS", 1e12),
    "cores": ("dimensionless", "gpu_cores", 1.0),
    "link": ("byte/second", "link_GBps", GB),
    "host_bandwidth": ("byte/second", "host_bandwidth_GBps", GB),
    "host_memory": ("byte", "", 1.0),
    "cache": ("byte", "l2_MB", 2.0**20),
    "clock": ("hertz", "clock_GHz", 1e9),
    "npu_ops": ("FLOP/second", "npu_TOPS", 1e12),
    "power": ("watt", "power_W", 1.0),
    "disk": ("byte/second", "disk_GBps", GB),
}


def fact(row: dict, field: str) -> float:
    """Return a number of a catalogue row in SI units, NaN where the row is silent."""
    _, column, factor = NUMBERS[field]
    text = row.get(column, "")
    return float(text) * factor if text else math.nan


def options(row: dict) -> tuple[float, ...]:
    """Return the memory sizes that the machine is sold with, in bytes (sold GB are GiB)."""
    text = row.get("memory_GB_options", "")
    return tuple(float(size) * GiB for size in text.split("/")) if text else ()


def assumed(numbers: dict, row: dict, unified: bool) -> tuple[dict[str, float], list[str]]:
    """Return the numbers that must not be NaN but are, filled in, and what was assumed."""
    filled, notes = {}, []
    if math.isnan(numbers["flops"]):
        filled["flops"], how = _estimated_flops(row, numbers)
        notes.append(f"flops estimated: {how}")
    if unified:
        own = {"link": "bandwidth", "host_bandwidth": "bandwidth", "host_memory": "memory"}
        own = {field: numbers[like] for field, like in own.items() if math.isnan(numbers[field])}
        return filled | own, notes
    usual = _usual_host(row["generation"], row["device_class"])
    if missing := [field for field in usual if math.isnan(numbers[field])]:
        notes.append(f"{', '.join(missing)} assumed: usual around its generation")
    return filled | {field: usual[field] for field in missing}, notes


def reachable(generation: str) -> float:
    """Return the share of the memory bandwidth that a chip's CPU cores can draw, 1 where all of it."""
    rows = data.rows("device_generations.csv")
    shares = [row["bandwidth_share"] for row in rows if row["generation"] == generation]
    return float(next((share for share in shares if share), 1))


def median_memory(device_class: str) -> float:
    """Return the median of the largest memory sold, over a class, in bytes."""
    return statistics.median(
        max(options(r))
        for r in data.rows("devices.csv")
        if r["device_class"] == device_class and options(r)
    )


def _usual_host(generation: str, device_class: str) -> dict[str, float]:
    """Return link, host bandwidth and host memory of the usual machine around such a card."""
    rows = {r["generation"]: r for r in data.rows("device_generations.csv") if r["link_GBps"]}
    row = rows.get(generation) or rows.get(device_class) or rows["nvidia-gpu"]
    return {
        "link": float(row["link_GBps"]) * GB,
        "host_bandwidth": float(row["host_bandwidth_GBps"]) * GB,
        "host_memory": float(row["host_memory_GB"]) * GiB,
    }


def _estimated_flops(row: dict, numbers: dict) -> tuple[float, str]:
    """Return the FLOP/s that the median machine of its generation (else class) would have.

    Scaled by cores; by memory bandwidth where the cores are unknown.
    """
    field = "bandwidth" if math.isnan(numbers["cores"]) else "cores"
    for pool in ("generation", "device_class"):
        peers = [r for r in data.rows("devices.csv") if r[pool] == row[pool]]
        ratios = [fact(r, "flops") / fact(r, field) for r in peers]
        if ratios := [ratio for ratio in ratios if not math.isnan(ratio)]:
            how = f"by {field}, as the median {row[pool]}"
            return statistics.median(ratios) * numbers[field], how
    raise SpecError(f"{row['device']}: its FLOP/s cannot be estimated; give flops")
