"""The front door: models x machines x formats x work -> one labelled Dataset of speed, memory and what limits them."""

import dataclasses
import json
import warnings
from collections.abc import Sequence

import jax
import numpy as np
import xarray as xr

from workbench import results
from workbench.errors import SpecError
from workbench.hardware import capacity, coefficients, ledger, roofline, storage, traffic
from workbench.specs import device_names, formats
from workbench.specs.device import Device
from workbench.specs.model import Model
from workbench.specs.workload import Axis, Workload
from workbench.study import load, trust

#: Priced arrays with a leading axis -> its dimension and labels.
_LEADING = {
    "time_s": ("term", roofline.TERMS),
    "prefill_time_s": ("prefill_term", roofline.PREFILL_TERMS),
    "memory_bytes": ("kind", capacity.KINDS),
    "load_s": ("cache_state", load.CACHE_STATES),
    "cold_start_s": ("cache_state", load.CACHE_STATES),
}


class BeyondContext(UserWarning):
    """A context longer than the model was trained for."""


def predict(
    model: Model | Sequence[Model],
    device: Device | Sequence[Device],
    work: Workload | None = None,
    *,
    quant: str | Sequence[str] = "Q4_K_M",
    engine: str = "llama.cpp",
    build: str = "",
    wired_limit: float | None = None,
    table: dict | None = None,
) -> xr.Dataset:
    """Price a workload on machines, for every combination in one compiled call.

    Args:
        model: one Model, or several: then the result has a `model` dimension.
        device: one Device, or several.
        work: tokens, context, batch and KV bits; fields may be an `axis`, which becomes a dimension.
        quant: one format, or several. A model read from a GGUF file keeps the bytes it has.
        engine: "llama.cpp", "ollama", "mlx" ...; "llama.cpp-vulkan" names the backend.
        build: build number, commit or date of the engine; empty means current.
        wired_limit: bytes a model may use, instead of the default rule.
        table: coefficients to use, as `calibrate` returns them; by default those in datasets.

    Returns:
        A Dataset over the dimensions given: `time_s` (term) s, `decode_tok_s`, `lower` and `upper` (80 % interval)
        token/s, `prefill_tok_s`, `prefill_time_s` (prefill_term), `ttft_s`, `load_s` and `cold_start_s` (cache_state:
        the file on the disk or in the page cache) s until the engine is ready and until its first token,
        `memory_bytes` (kind), `usable_bytes`,
        `headroom_bytes`, `fits`, `max_context`, `bound` (the largest term), `naive_tok_s`, `trust`.
        A variable has only the dimensions that it depends on.

    Raises:
        WorkbenchError: a spec makes no sense, or the engine does not run on the device.

    Equation: t = sum over terms of coefficient x cost (M01-M04); see `hardware.roofline`.
    """
    work = work or Workload()
    models, devices = _listed(model, Model, "model"), _listed(device, Device, "device")
    quants = [formats.normalise(q) for q in _listed(quant, str, "quant")]
    table = table or coefficients.table()
    coords = {
        "model": [m.name for m in models],
        "device": [device_names.slug(d.name) for d in devices],
        "quant": quants,
        **{name: list(axis.labels) for name, axis in work.axes().items()},
    }
    dims = tuple(coords)
    keys = _keys(models, devices, quants, engine, build, dims)
    weights = [traffic.load_of(m, formats.weight_bytes(m, q)) for m in models for q in quants]
    inputs = (
        _along(weights, dims, model=len(models), quant=len(quants)),
        _along([roofline.machine_of(d) for d in devices], dims, device=len(devices)),
        _along([capacity.budget_of(d, wired_limit) for d in devices], dims, device=len(devices)),
        coefficients.resolve(keys, "decode", table),
        coefficients.resolve(keys, "prefill", table),
        {name: _axis(value, dims) for name, value in work.arrays().items()},
    )
    priced = run(inputs)
    trained = np.array([model.max_context or np.inf for model in models])
    trained = _reshape(trained, dims, {"model": len(models)})
    priced["max_context"] = np.minimum(priced["max_context"], trained)
    priced |= trust.intervals(priced, keys, inputs[-1], table)
    disks = _along([storage.disk_of(d) for d in devices], dims, device=len(devices))
    priced |= load.times(priced["file_bytes"], priced["ttft_s"], disks)
    swept = {
        "model": not isinstance(model, Model),
        "device": not isinstance(device, Device),
        "quant": not isinstance(quant, str),
    }
    ds = _labelled(priced, coords, _named(work)).isel(
        {dim: 0 for dim, many in swept.items() if not many}
    )
    ds.attrs |= _inputs(models, devices, work, engine, build, wired_limit)
    _warn_beyond(models, work)
    return ds


def run(inputs: tuple) -> dict[str, np.ndarray]:
    """Price the arguments of `ledger.price`, arrays of one rank, in one compiled call."""
    leaves, structure = jax.tree.flatten(inputs)
    priced = ledger.price_flat(structure, *(np.asarray(leaf, dtype=np.float64) for leaf in leaves))
    return {name: np.asarray(value) for name, value in priced.items()}


def _listed(given, kind: type, field: str) -> list:
    items = (
        [given] if isinstance(given, kind) else list(given) if isinstance(given, Sequence) else []
    )
    if not items or not all(isinstance(item, kind) for item in items):
        raise SpecError(
            f"{field}: give a {kind.__name__} or a list of them, not {type(given).__name__}"
        )
    return items


def _keys(models, devices, quants, engine: str, build: str, dims: tuple) -> dict[str, np.ndarray]:
    pools = [
        ("device", [coefficients.device_keys(d, engine, build) for d in devices]),
        ("quant", [coefficients.quant_keys(q) for q in quants]),
        ("model", [coefficients.model_keys(m) for m in models]),
    ]
    return {
        name: _reshape(np.array([key[name] for key in keys], dtype=object), dims, {dim: len(keys)})
        for dim, keys in pools
        for name in keys[0]
    }


def _along(tuples: list, dims: tuple, **sizes: int):
    """Stack Loads, Machines or Budgets into one of arrays that vary along the dimensions in `sizes`."""
    arrays = ledger.stack(tuples)
    return type(arrays)(*(_reshape(array, dims, sizes) for array in arrays))


def _reshape(array: np.ndarray, dims: tuple, sizes: dict[str, int]) -> np.ndarray:
    """Give an array one axis per dimension, of size 1 where it does not vary; its own axes are in the order of dims."""
    return array.reshape([sizes.get(dim, 1) for dim in dims])


def _axis(value, dims: tuple) -> np.ndarray:
    """Align a number or a DataArray over workload axes with all dimensions."""
    array = xr.DataArray(value)
    ordered = array.transpose(*(dim for dim in dims if dim in array.dims))
    return _reshape(ordered.values, dims, dict(ordered.sizes))


def _named(work: Workload) -> dict[str, dict[str, str]]:
    """Return units and long name of axes that have names of their own: those of the field that they sweep."""
    swept = {f.name: getattr(work, f.name) for f in dataclasses.fields(work)}
    return {
        axis.name: dict(zip(("units", "long_name"), results.COORDS[field], strict=True))
        for field, axis in swept.items()
        if isinstance(axis, Axis) and axis.name not in results.COORDS
    }


def _labelled(priced: dict[str, np.ndarray], coords: dict, named: dict) -> xr.Dataset:
    dims = tuple(coords)
    variables = {}
    for name, array in priced.items():
        if name in _LEADING:
            dim, labels = _LEADING[name]
            coords[dim] = list(labels)
            variables[name] = _varying(array, (dim, *dims), coords)
        else:
            variables[name] = _varying(array, dims, coords)
    variables["bound"] = (variables["bound"][0], np.array(roofline.TERMS)[variables["bound"][1]])
    coords |= {name: (name, coords[name], attrs) for name, attrs in named.items()}
    return results.dataset(variables, coords)


def _varying(array: np.ndarray, dims: tuple, coords: dict) -> tuple[tuple, np.ndarray]:
    """Drop the axes along which a variable does not vary."""
    constant = tuple(
        i for i, dim in enumerate(dims) if array.shape[i] == 1 and len(coords[dim]) > 1
    )
    kept = tuple(dim for i, dim in enumerate(dims) if i not in constant)
    return kept, array.squeeze(constant)


def _inputs(
    models, devices, work: Workload, engine: str, build: str, wired_limit: float | None
) -> dict[str, str]:
    """Return what was asked as text, so that a saved result can be explained and repeated."""
    specs = {
        "models": {m.name: _plain(m) for m in models},
        "devices": {device_names.slug(d.name): _plain(d) for d in devices},
        "work": {f.name: _plain_field(getattr(work, f.name)) for f in dataclasses.fields(work)},
        "wired_limit": wired_limit,
    }
    return {
        "engine": engine,
        "build": build,
        "inputs": json.dumps(specs),
        "source": "datasets/coefficients.json",
        "mechanism": "M01 M02 M03 M04 M22 M24 M34 M46 M54 M55",
    }


def _plain(spec) -> dict:
    return {f.name: _plain_field(getattr(spec, f.name)) for f in dataclasses.fields(spec)}


def _plain_field(value):
    if hasattr(value, "labels"):
        return {"axis": value.name, "labels": list(value.labels)}
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _warn_beyond(models, work: Workload) -> None:
    longest = float(np.max(np.asarray(work.arrays()["context"])))
    short = [m.name for m in models if 0 < m.max_context < longest]
    if short:
        warnings.warn(
            f"context {longest:.0f} is beyond what {', '.join(short[:3])} was trained for "
            f"({min(m.max_context for m in models if m.max_context > 0):.0f} tokens)",
            BeyondContext,
            stacklevel=3,
        )
