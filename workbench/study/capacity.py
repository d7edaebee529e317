"""Which models fit in which format, and what more memory would do to the speed (M22, M34)."""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
import xarray as xr

from workbench import data, results
from workbench.specs.device import Device
from workbench.specs.model import Model
from workbench.specs.workload import Workload
from workbench.study.predict import predict

_MEMORY = {"units": "byte", "long_name": "memory of the machine"}


def headroom(
    models: Sequence[Model], device: Device, work: Workload, quants: Sequence[str], **options
) -> xr.DataArray:
    """Return the memory left over (model, quant), bytes; negative where it does not fit.

    Args:
        models, device, work: as for `predict`.
        quants: formats.
        options: `engine` and `wired_limit` of `predict`.

    The weights, slow to count for so many formats, depend on nothing else and are kept.
    """
    quants = tuple(quants)
    ds = predict(models, device, work, quant=quants[0], **options)
    beside = ds.memory_bytes.drop_sel(kind="weights").sum("kind")
    weights = _weights(tuple(models), quants, device, options.get("engine", "llama.cpp"))
    room = (ds.usable_bytes - beside - weights).transpose("model", "quant")
    return results.dataset({"headroom_bytes": room.drop_vars("device")}).headroom_bytes


@functools.lru_cache(maxsize=16)
def _weights(models: tuple, quants: tuple, device: Device, engine: str) -> xr.DataArray:
    ds = predict(models, device, quant=quants, engine=engine)
    return ds.memory_bytes.sel(kind="weights", drop=True)


def speed_by_memory(
    model: Model, device: Device, work: Workload, sizes: Sequence[float], **options
) -> xr.Dataset:
    """Predict one model on a machine with less or more memory, at the system's default limit.

    Args:
        model, device, work: as for `predict`; `device` lends all but its memory.
        sizes: (memory,) bytes.
        options: `quant` and `engine` of `predict`.

    Returns:
        `decode_tok_s`, NaN where the machine cannot hold the model at all, and `fits` over
        `memory`. Behind a card there is the host's memory to spill to; in a unified machine none.
    """
    machines = [dataclasses.replace(device, memory=float(size)) for size in sizes]
    ds = predict(model, machines, work, **options)
    spare = 0.0 if device.unified else device.host_memory
    held = ds.headroom_bytes.values + spare >= 0
    return results.dataset(
        {
            "decode_tok_s": ("memory", np.where(held, ds.decode_tok_s.values, np.nan)),
            "fits": ("memory", ds.fits.values),
        },
        {"memory": ("memory", np.asarray(sizes, dtype=np.float64), _MEMORY)},
        source=ds.attrs["source"],
        mechanism="M22 M34",
    )


def measured_kv() -> xr.Dataset:
    """Return the published sizes of one KV cache, `kv_bytes` over `context`."""
    rows = data.rows("kv_measured.csv")
    attrs = {"units": "byte", "long_name": "size of the KV cache"}
    size = np.array([float(row["kv_bytes"]) for row in rows])
    return results.dataset(
        {"kv_bytes": ("context", size, attrs)},
        {"context": np.array([float(row["context"]) for row in rows])},
        source=rows[0]["source"],
        model=rows[0]["model"],
        mechanism="M34",
    )
