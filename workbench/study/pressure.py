"""A model on a machine whose memory it outgrows: paged by the system, or streamed by an engine (M23)."""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
import xarray as xr

from workbench import results
from workbench.errors import SpecError
from workbench.hardware import traffic
from workbench.hardware.pressure import fault_rate, pressure
from workbench.specs import formats
from workbench.specs.device import Device
from workbench.specs.model import Model
from workbench.study.predict import predict
from workbench.units import parse

_ROOMY = 2.0**42  # byte: holds every model of the catalogue
#: Who decides what stays -> what goes when something must, see `hardware.pressure.REPLACEMENTS`.
PAGERS = {
    "paged by the system": "lru",
    "paged, thrown out at random": "random",
    "streamed by the engine": "mru",
}


def under_pressure(
    model: Model,
    device: Device,
    memory: float | str | Sequence[float],
    *,
    storage: float | str,
    quant: str = "Q4_K_M",
    engine: str = "llama.cpp",
    ratio: float = 1.0,
) -> xr.Dataset:
    """Predict the speed of a model where memory holds only part of its weights.

    Args:
        model, device, quant, engine: as for `predict`; the device lends all but its memory.
        memory: bytes that the weights may take, or text; a list gives the dimension `memory`.
        storage: B/s or text, what the disk gives for long reads.
        ratio: by how much compression shrinks weights; 1.0, they do not.

    Returns:
        `tok_s`, `time_s` and `miss` over `pager` (PAGERS) and memory; `working_bytes`, the weights
        that are read over and over.

    Raises:
        SpecError: a device with a memory of its own, which spills to the host's instead of a
            disk; sizes, rates or a ratio that make no sense.

    A sparse model reads its dense part at every token and its experts now and then: an engine
    keeps the first and streams the second, the system tells them not apart.
    """
    if not device.unified:
        raise SpecError(
            f"{device.name}: a card spills to the host's memory, not to a disk; `predict` prices that"
        )
    dense, experts, active, bandwidth = _reads(model, device, quant, engine)
    rate = parse(storage, "byte/second", "storage")
    common = {"bandwidth": bandwidth, "ratio": ratio}
    streamed = {"read": active, "held": dense} if experts else {}
    paged = pressure(
        dense + experts, memory, read=dense + active, storage=fault_rate(rate), **common
    )
    kept = pressure(experts or dense, memory, storage=rate, **streamed, **common)
    ways = [
        (kept if name == "mru" else paged).sel(replacement=name, drop=True)
        for name in PAGERS.values()
    ]
    ds = xr.concat(ways, "pager", combine_attrs="drop")
    return results.dataset(
        {**ds.data_vars, "working_bytes": dense + experts},
        {**ds.coords, "pager": np.array(list(PAGERS))},
        source="predict where all fits; Belady 1966 beyond", mechanism="M23", model=model.name,
    )  # fmt: skip


@functools.lru_cache(maxsize=64)
def _reads(model: Model, device: Device, quant: str, engine: str) -> tuple[float, ...]:
    """Return bytes of dense weights, of all experts, of those that a token uses, and what the memory gives."""
    load = traffic.load_of(model, formats.weight_bytes(model, formats.normalise(quant)))
    token = predict(model, dataclasses.replace(device, memory=_ROOMY), quant=quant, engine=engine)
    dense, experts = float(load.dense_bytes), float(load.expert_bytes)
    active = experts * float(load.top_k) / max(float(load.experts), 1.0)
    return dense, experts, active, (dense + active) / float(token.time_s.sum())
