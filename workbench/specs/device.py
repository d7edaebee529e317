"""What a machine is to a model: bytes per second, bytes, FLOP per second, and the links between them."""

import dataclasses
import functools
import math
import re
import statistics

import jax

from workbench import data
from workbench.errors import SpecError, UnknownNameError
from workbench.units import GB, GiB, parse

DEVICE_CLASSES = ("nvidia-gpu", "amd-gpu", "amd-apu", "apple-uma", "intel", "npu", "sbc", "cpu")

#: number field -> (unit for `units.parse`, catalogue column, factor to SI)
_NUMBERS: dict[str, tuple[str, str, float]] = {
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
}


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=list(_NUMBERS),
    meta_fields=["name", "device_class", "generation", "unified", "source", "note", "memory_options"],
)
@dataclasses.dataclass(frozen=True, eq=False)
class Device:
    """A machine reduced to the numbers that price a token; numbers are leaves, names are metadata.

    `bandwidth` and `link` in B/s (link: one direction), `memory` and `cache` in bytes (cache: last level on the chip),
    `flops` in FLOP/s (dense FP16 matrix products accumulated in FP32, else the shader or vector rate), `cores` as the
    vendor counts them, `clock` in Hz, `npu_ops` in operations/s, `power` in W. `host_bandwidth` (B/s) and `host_memory`
    (bytes) are the system memory behind a discrete card; in a unified machine they repeat its own memory.

    `bandwidth`, `memory`, `flops`, `link`, `host_bandwidth` and `host_memory` are always numbers: what a catalogue row
    does not know is estimated from its generation, and `note` says so. Any other unknown number is NaN.

    Memory is sold in "GB" but is binary: 24 GB of RAM or VRAM is 24 GiB here. Bandwidth, TFLOPS and TOPS are decimal.
    """

    name: str
    bandwidth: float
    memory: float
    flops: float
    cores: float = math.nan
    link: float = math.nan
    host_bandwidth: float = math.nan
    host_memory: float = math.nan
    cache: float = math.nan
    clock: float = math.nan
    npu_ops: float = math.nan
    power: float = math.nan
    device_class: str = "nvidia-gpu"
    generation: str = ""
    unified: bool = False
    source: str = ""
    note: str = ""
    memory_options: tuple[float, ...] = ()

    @classmethod
    def preset(cls, name: str, memory: float | str | None = None, **overrides: float | str) -> "Device":
        """Return a machine of the catalogue.

        Args:
            name: slug, canonical name or a usual short form: "rtx 4090", "m4 pro", "strix halo". Where a short form
                fits several variants, the one with most cores is meant.
            memory: bytes or text ("32 GiB"); by default the largest that is sold. Others are accepted, with a note.
            overrides: any other number of the Device, in SI or as text: `bandwidth="120 GB/s"`.

        Raises:
            UnknownNameError: no such machine; the message suggests the nearest.
            SpecError: a number is wrong, or the catalogue knows no bandwidth and none was given.
        """
        row = _find(name)
        if row is None:
            raise UnknownNameError("device", name, devices())
        return _from_row(row, {"memory": _sold_as(name) if memory is None else memory, **overrides})

    @classmethod
    def custom(cls, name: str, *, bandwidth: float | str, memory: float | str, device_class: str,
               generation: str | None = None, **numbers: float | str) -> "Device":
        """Describe a machine that the catalogue lacks.

        Args:
            name: what to call it; without `generation` the name tells it ("RTX 50..." is Blackwell).
            bandwidth, memory: B/s and bytes, or text with units.
            device_class: one of `DEVICE_CLASSES`.
            generation: the pool that calibration may borrow from.
            numbers: any other number of the Device; `flops` is otherwise estimated.

        Raises:
            SpecError: a number or the class makes no sense; the message names the field.
        """
        if device_class not in DEVICE_CLASSES:
            raise SpecError(f"device_class: {device_class!r} is not one of {', '.join(DEVICE_CLASSES)}")
        row = {"device": str(name)[:200], "device_class": device_class, "source": "given by the user", "note": "",
               "generation": generation or infer_generation(name, device_class)}
        return _from_row(row, {"bandwidth": bandwidth, "memory": memory, **numbers})


def devices() -> list[str]:
    """Return the preset names of all machines in the catalogue."""
    return [data.slug(row["device"]) for row in data.rows("devices.csv")]


def device_table():
    """Return the catalogue as a Dataset over `device` (slugs), SI units, NaN where a fact is unknown.

    Machines whose bandwidth the catalogue does not know are listed too: it is NaN there.
    """
    import numpy as np

    from workbench import results

    rows = data.rows("devices.csv")
    columns = {f: [_fact(row, f) for row in rows] for f in _NUMBERS if f not in ("memory", "host_memory")}
    columns["memory"] = [max(_options(row), default=math.nan) for row in rows]
    coords = {"device": devices()}
    for name in ("device_class", "generation"):
        coords[name] = ("device", np.array([row.get(name, "") for row in rows]))
    variables = {f"device_{name}": ("device", np.array(values)) for name, values in columns.items()}
    return results.dataset(variables, coords, source="datasets/devices.csv; see its source column")


def resolve(name: str, device_class: str | None = None, bandwidth: float | str | None = None,
            cores: float | None = None) -> Device:
    """Return the machine that a measured row means, from the catalogue if it is there, else from the row itself.

    Args:
        name: any spelling. Vendor names, memory sizes and core counts may be missing or extra; a suffix that makes
            another product (Ti, SUPER, Laptop, Max, XT ...) may not.
        device_class: tells the CPU of a chip from its GPU.
        bandwidth: B/s or text; picks between variants, and replaces the catalogue's where the row's machine differs.
        cores: picks between variants.

    Raises:
        UnknownNameError: nothing safe matches and there is no bandwidth to describe the machine with.
    """
    wanted = None if bandwidth is None else parse(bandwidth, "byte/second", "bandwidth")
    row = _find(name, device_class, wanted, cores)
    known = {} if wanted is None else {"bandwidth": wanted}
    if row is not None:
        return _from_row(row, {"memory": _sold_as(name), **known})
    if wanted is None or device_class not in DEVICE_CLASSES:
        raise UnknownNameError("device", name, devices())
    if cores is not None:
        known["cores"] = cores
    return Device.custom(name, device_class=device_class, memory=_sold_as(name) or 16 * GiB, **known)


def infer_generation(name: str, device_class: str) -> str:
    """Return the generation that the name tells, else the class itself as the pool of last resort."""
    for row in data.rows("device_generations.csv"):
        if row["device_class"] == device_class and re.search(row["name_pattern"], name, re.IGNORECASE):
            return row["generation"]
    return device_class


# --- from a catalogue row to numbers ---------------------------------------------------------------------------------


def _from_row(row: dict, given: dict) -> Device:
    given = {field: value for field, value in given.items() if value is not None}
    if unknown := set(given) - set(_NUMBERS):
        raise SpecError(f"Device has no {', '.join(sorted(unknown))}; its numbers are {', '.join(_NUMBERS)}")
    numbers = {field: _fact(row, field) for field in _NUMBERS}
    numbers |= {field: parse(value, _NUMBERS[field][0], field) for field, value in given.items()}
    options, notes = _options(row), [row["note"]] if row["note"] else []
    if math.isnan(numbers["bandwidth"]):
        raise SpecError(f"{row['device']}: the catalogue does not know its memory bandwidth; "
                        'give bandwidth="120 GB/s" or what its memory really is')
    if math.isnan(numbers["memory"]):
        if not options:
            raise SpecError(f"{row['device']}: the catalogue does not know its memory; give memory=\"16 GiB\"")
        numbers["memory"] = max(options)
    elif options and numbers["memory"] not in options:
        notes.append(f"memory given; sold with {', '.join(f'{o / GiB:g}' for o in options)} GiB")
    unified = row.get("unified", "") == "1" if "unified" in row else row["device_class"] not in ("nvidia-gpu", "amd-gpu")
    notes += _estimate(numbers, row, unified)
    return Device(name=row["device"], device_class=row["device_class"], generation=row["generation"], unified=unified,
                  source=row["source"], note="; ".join(notes), memory_options=options, **numbers)


def _fact(row: dict, field: str) -> float:
    _, column, factor = _NUMBERS[field]
    text = row.get(column, "")
    return float(text) * factor if text else math.nan


def _options(row: dict) -> tuple[float, ...]:
    text = row.get("memory_GB_options", "")
    return tuple(float(size) * GiB for size in text.split("/")) if text else ()


def _estimate(numbers: dict, row: dict, unified: bool) -> list[str]:
    """Fill the numbers that must not be NaN, in place; return what was assumed."""
    notes = []
    if math.isnan(numbers["flops"]):
        numbers["flops"], how = _estimated_flops(row, numbers)
        notes.append(f"flops estimated: {how}")
    typical = _typical(row["generation"], row["device_class"])
    own = {"link": numbers["bandwidth"], "host_bandwidth": numbers["bandwidth"], "host_memory": numbers["memory"]}
    for field, value in (own if unified else typical).items():
        if math.isnan(numbers[field]):
            numbers[field] = value
            if not unified:
                notes.append(f"{field} assumed: typical of its generation")
    return notes


def _typical(generation: str, device_class: str) -> dict[str, float]:
    """Return link, host bandwidth and host memory of the usual machine around a card of this generation."""
    rows = data.rows("device_generations.csv")
    fitting = [r for r in rows if r["generation"] == generation] or [r for r in rows if r["device_class"] == device_class]
    row = next((r for r in fitting if r["link_GBps"]), next(r for r in rows if r["link_GBps"]))
    return {"link": float(row["link_GBps"]) * GB, "host_bandwidth": float(row["host_bandwidth_GBps"]) * GB,
            "host_memory": float(row["host_memory_GB"]) * GiB}


def _estimated_flops(row: dict, numbers: dict) -> tuple[float, str]:
    """Return the median FLOP/s per core (or per B/s without cores) of the generation, else of the class, scaled."""
    field = "bandwidth" if math.isnan(numbers["cores"]) else "cores"
    for pool in ("generation", "device_class"):
        ratios = [_fact(r, "flops") / _fact(r, field) for r in data.rows("devices.csv") if r[pool] == row[pool]]
        if ratios := [r for r in ratios if not math.isnan(r)]:
            return statistics.median(ratios) * numbers[field], f"FLOP/s per {field} as in {row[pool]}"
    raise SpecError(f"{row['device']}: flops cannot be estimated; give flops in FLOP/s")


# --- names -----------------------------------------------------------------------------------------------------------

#: Words that vendors and people add or drop without meaning another product.
_NEUTRAL = set("nvidia geforce rtx gtx amd radeon rx apple silicon intel arc qualcomm gpu graphics pcie sxm desktop core "
               "instinct with w r tm edition the".split())
_SIZE = re.compile(r"\d+(\.\d+)?(gb|core)$")


def _tokens(name: str) -> frozenset[str]:
    text = re.sub(r"\((r|tm)\)", " ", name.lower())
    text = re.sub(r"(\d+)[\s-]?(gb|core)s?\b", r" \1\2 ", text.replace("gib", "gb"))
    text = re.sub(r"\b(rtx|gtx|rx)(?=\d)", r"\1 ", text)
    text = re.sub(r"(\d{4})(ti|super|xtx|xt|gre)\b", r"\1 \2", text)
    return frozenset(re.findall(r"[a-z0-9+.]+", text))


def _sold_as(name: str) -> float | None:
    """Return the memory that the name states ("Apple M3 Ultra (256GB)"), in bytes."""
    sizes = [float(token[:-2]) for token in _tokens(name) if token.endswith("gb") and _SIZE.match(token)]
    return sizes[0] * GiB if len(sizes) == 1 else None


def _same_product(one: frozenset[str], other: frozenset[str]) -> bool:
    for kind in ("gb", "core"):
        a, b = ({t for t in tokens if _SIZE.match(t) and t.endswith(kind)} for tokens in (one, other))
        if a and b and a != b:
            return False
    return all(t in _NEUTRAL or _SIZE.match(t) for t in one ^ other)


@functools.cache
def _index() -> tuple[dict[str, dict], list[tuple[frozenset[str], dict]]]:
    """Return slug or alias -> row, and the token set of every row."""
    by_slug = {data.slug(row["device"]): row for row in data.rows("devices.csv")}
    aliases = {data.slug(a["alias"]): by_slug[data.slug(a["device"])] for a in data.rows("device_aliases.csv")}
    return aliases | by_slug, [(_tokens(row["device"]), row) for row in data.rows("devices.csv")]


def _find(name: str, device_class: str | None = None, bandwidth: float | None = None,
          cores: float | None = None) -> dict | None:
    """Return the row that `name` means: itself, an alias, or the best variant of the same product."""
    if not isinstance(name, str) or not name.strip():
        raise SpecError(f"device: {name!r} is not a name; see devices() for the known ones")
    by_name, tokenised = _index()
    exact = by_name.get(data.slug(name))
    if exact is not None and (device_class != "cpu" or exact["device_class"] == "cpu" or exact["device"] == name):
        return exact
    for wanted in _readings(_tokens(name[:200]), device_class):
        found = [row for tokens, row in tokenised if _same_product(wanted, tokens)]
        found = [row for row in found if row["device_class"] == device_class] or found
        found = _narrow(_narrow(found, "bandwidth", bandwidth), "cores", cores)
        if found:
            return max(found, key=lambda row: (_nan_low(_fact(row, "cores")), _nan_low(_fact(row, "bandwidth"))))
    return exact


def _readings(tokens: frozenset[str], device_class: str | None) -> list[frozenset[str]]:
    as_cpu = tokens | {"cpu"}
    return [as_cpu] if device_class == "cpu" else [tokens, as_cpu]


def _narrow(rows: list[dict], field: str, value: float | None) -> list[dict]:
    """Keep the rows within 5 % of the value where any are."""
    near = [row for row in rows if value and abs(_fact(row, field) / value - 1) <= 0.05]
    return near or rows


def _nan_low(value: float) -> float:
    return -1.0 if math.isnan(value) else value
