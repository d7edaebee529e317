"""What a machine is to a model: bytes per second, bytes, FLOP per second, and links."""

import dataclasses
import functools
import math

import jax
import numpy as np
import xarray as xr

from workbench import data, results
from workbench.errors import SpecError
from workbench.specs.device_facts import (
    NUMBERS,
    assumed,
    fact,
    median_memory,
    options,
    reachable,
)
from workbench.specs.device_names import find, infer_generation, slug, stated_memory, unknown
from workbench.units import GiB, parse

DEVICE_CLASSES = ("nvidia-gpu", "amd-gpu", "amd-apu", "apple-uma", "intel", "npu", "sbc", "cpu")


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=list(NUMBERS),
    meta_fields=[
        "name",
        "device_class",
        "generation",
        "unified",
        "source",
        "note",
        "memory_options",
    ],
)
@dataclasses.dataclass(frozen=True, eq=False)
class Device:
    """A machine reduced to the numbers that price a token; numbers are leaves, names are metadata.

    `bandwidth` and `link` in B/s (link: one direction), `memory` and `cache` in bytes (cache: last
    level on the chip), `flops` in FLOP/s (dense FP16 matrix products where there are matrix units,
    else the shader or vector rate), `cores` as the vendor counts them, `clock` in Hz, `npu_ops` in
    operations/s, `power` in W. `host_bandwidth` (B/s) and `host_memory` (bytes) are the system
    memory behind a discrete card; in a unified machine they repeat its own memory. `disk` in B/s
    is given by the caller, `disk="7 GB/s"`; NaN stands for the usual one of such a machine.

    `bandwidth`, `memory`, `flops`, `link`, `host_bandwidth` and `host_memory` are always numbers:
    what a catalogue row does not know is estimated from its generation, and `note` says so. Any
    other unknown number is NaN.

    Memory is sold in "GB" but is binary: 24 GB of RAM or VRAM is 24 GiB here. Bandwidth, TFLOPS
    and TOPS are decimal.
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
    disk: float = math.nan
    device_class: str = "nvidia-gpu"
    generation: str = ""
    unified: bool = False
    source: str = ""
    note: str = ""
    memory_options: tuple[float, ...] = ()

    @classmethod
    def preset(
        cls, name: str, memory: float | str | None = None, **overrides: float | str
    ) -> "Device":
        """Return a machine of the catalogue.

        Args:
            name: slug, canonical name or a usual short form: "rtx 4090", "m4 pro", "strix halo".
                Where a short form fits several variants, the one with most cores is meant.
            memory: bytes or text ("32 GiB"); by default the largest that is sold. Others are
                accepted, with a note.
            overrides: any other number of the Device, in SI or as text: `bandwidth="120 GB/s"`.

        Raises:
            UnknownNameError: no such machine; the message suggests the nearest.
            SpecError: a number is wrong, or the catalogue knows no bandwidth and none was given.
        """
        row = find(name)
        if row is None:
            raise unknown(name)
        return _from_row(
            row, {"memory": stated_memory(name) if memory is None else memory, **overrides}
        )

    @classmethod
    def custom(
        cls,
        name: str,
        *,
        bandwidth: float | str,
        memory: float | str,
        device_class: str,
        generation: str | None = None,
        unified: bool | None = None,
        **numbers: float | str,
    ) -> "Device":
        """Describe a machine that the catalogue lacks.

        Args:
            name: what to call it; without `generation` the name tells it ("RTX 50..." is
                Blackwell).
            bandwidth, memory: B/s and bytes, or text with units.
            device_class: one of `DEVICE_CLASSES`.
            generation: the pool that calibration may borrow from.
            unified: one memory for all; by default for every class but nvidia-gpu and amd-gpu.
            numbers: any other number of the Device; `flops` is otherwise estimated.

        Raises:
            SpecError: a number or the class makes no sense; the message names the field.
        """
        if device_class not in DEVICE_CLASSES:
            raise SpecError(
                f"device_class: {device_class!r} is not one of {', '.join(DEVICE_CLASSES)}"
            )
        if unified is None:
            unified = device_class not in ("nvidia-gpu", "amd-gpu")
        row = {
            "device": str(name)[:200],
            "device_class": device_class,
            "source": "given by the caller",
            "note": "",
            "generation": generation or infer_generation(str(name), device_class),
            "unified": str(int(unified)),
        }
        return _from_row(row, {"bandwidth": bandwidth, "memory": memory, **numbers})


def devices() -> list[str]:
    """Return the preset names of all machines in the catalogue."""
    return [slug(row["device"]) for row in data.rows("devices.csv")]


def device_table() -> xr.Dataset:
    """Return the catalogue as a Dataset over `device` (slugs).

    SI units; NaN where the catalogue is silent, bandwidth included: nothing is estimated here.
    """
    rows = data.rows("devices.csv")
    fields = [field for field in NUMBERS if field not in ("memory", "host_memory", "disk")]
    columns = {field: [fact(row, field) for row in rows] for field in fields}
    columns["memory"] = [max(options(row), default=math.nan) for row in rows]
    coords = {"device": devices()}
    for name in ("device_class", "generation"):
        coords[name] = ("device", np.array([row.get(name, "") for row in rows]))
    variables = {f"device_{name}": ("device", np.array(values)) for name, values in columns.items()}
    return results.dataset(variables, coords, source="datasets/devices.csv; see its source column")


def resolve(
    name: str,
    device_class: str | None = None,
    bandwidth: float | str | None = None,
    cores: float | None = None,
) -> Device:
    """Return the machine that a measured row means: the catalogue's, else the row's own numbers.

    Args:
        name: any spelling. Vendor names, memory sizes and core counts may be missing or extra; a
            suffix that makes another product (Ti, SUPER, Laptop, Max, XT ...) may not.
        device_class: tells the CPU of a chip from its GPU.
        bandwidth: B/s or text; picks between variants, and replaces the catalogue's where the
            row's machine differs.
        cores: picks between variants.

    Raises:
        UnknownNameError: nothing safe matches and there is no bandwidth to describe the machine
            with.
    """
    wanted = None if bandwidth is None else parse(bandwidth, "byte/second", "bandwidth")
    row = find(name, device_class, wanted, cores)
    if row is not None:
        return _from_row(row, {"memory": stated_memory(name), "bandwidth": wanted})
    if wanted is None or device_class not in DEVICE_CLASSES:
        raise unknown(name)
    memory = stated_memory(name) or median_memory(device_class)
    device = Device.custom(
        name, bandwidth=wanted, memory=memory, device_class=device_class, cores=cores
    )
    return dataclasses.replace(
        device, note=f"not in the catalogue: described by its row; {device.note}"
    )


def _from_row(row: dict, given: dict) -> Device:
    numbers = {field: fact(row, field) for field in NUMBERS} | _parsed(given)
    sizes, notes = options(row), [row["note"]] if row["note"] else []
    if math.isnan(numbers["memory"]):
        numbers["memory"] = max(sizes, default=math.nan)
    elif sizes and numbers["memory"] not in sizes:
        sold = ", ".join(f"{size / GiB:g}" for size in sizes)
        notes.append(f"memory as given; the catalogue has {sold} GiB")
    _refuse_unknown(row["device"], numbers)
    if (share := reachable(row["generation"])) < 1:
        numbers["bandwidth"] *= share
        notes.append(f"bandwidth is what its cores draw, {share:.0%} of the chip's")
    unified = row["unified"] == "1"
    filled, guesses = assumed(numbers, row, unified)
    meta = {field: row[field] for field in ("device_class", "generation", "source")}
    note = "; ".join(notes + guesses)
    return Device(
        row["device"], **numbers | filled, **meta, unified=unified, note=note, memory_options=sizes
    )


def _refuse_unknown(name: str, numbers: dict) -> None:
    for field, example in (("bandwidth", "120 GB/s"), ("memory", "16 GiB")):
        if math.isnan(numbers[field]):
            raise SpecError(
                f"{name}: the catalogue does not know its {field}; "
                f'give it, for example {field}="{example}"'
            )


def _parsed(given: dict) -> dict[str, float]:
    given = {field: value for field, value in given.items() if value is not None}
    if strange := sorted(set(given) - set(NUMBERS)):
        raise SpecError(f"Device has no {', '.join(strange)}; its numbers are {', '.join(NUMBERS)}")
    return {field: parse(value, NUMBERS[field][0], field) for field, value in given.items()}
