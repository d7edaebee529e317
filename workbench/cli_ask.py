"""What a command line asks, as specs, and the answer as plain records."""

import dataclasses
import itertools
import warnings
from pathlib import Path

import numpy as np
import xarray as xr

import workbench as wb
from workbench.cli_machine import machine
from workbench.errors import SpecError
from workbench.specs import engine as engines
from workbench.study.predict import BeyondContext
from workbench.units import parse

_NUMBERS = ("decode_tok_s", "lower", "upper", "prefill_tok_s", "prefill_lower", "prefill_upper",
            "ttft_s", "usable_bytes", "headroom_bytes", "max_context", "naive_tok_s",
            "file_bytes")  # fmt: skip
_PARTS = {"time_s": "term", "prefill_time_s": "prefill_term", "memory_bytes": "kind",
          "load_s": "cache_state", "cold_start_s": "cache_state"}  # fmt: skip


def model(name: str) -> wb.Model:
    """Return the model in a .gguf file or config.json, else the preset of that name."""
    path = Path(name)
    if path.suffix.lower() == ".gguf":
        return wb.Model.from_gguf(path)
    if path.suffix.lower() == ".json":
        return wb.Model.from_hf(path)
    return wb.Model.preset(name)


def workload(context: str, prompt: str, generate: str, batch: str, kv: str) -> wb.Workload:
    """Return the work asked for; commas make an axis of a field."""
    return wb.Workload(
        prompt=_swept("prompt", prompt), generate=_swept("generate", generate),
        context=_swept("context", context) if context else None,
        batch=_swept("batch", batch), kv_bits=_swept("kv_bits", kv),
    )  # fmt: skip


def answer(model_names: str, device_names: str, work: wb.Workload, *, quant: str, engine: str,
           build: str, memory: str, disk: str, wired_limit: str) -> xr.Dataset:  # fmt: skip
    """Return what `predict` says of models and machines named with commas between them."""
    asked = [model(name) for name in _split(model_names)]
    if quant:  # a file's own bytes stand for its own format only
        asked = [dataclasses.replace(m, stored_bytes=None) for m in asked]
    usual = "MLX 4bit" if engines.family(engine) == "mlx" else "Q4_K_M"
    files = {m.quant for m in asked if m.stored_bytes is not None and m.quant}
    formats = _split(quant) or (list(files) if len(files) == 1 and len(asked) == 1 else [usual])
    machines = [machine(name, memory, disk) for name in _split(device_names) or [""]]
    return wb.predict(
        _alone(asked), _alone(machines), work, quant=_alone(formats), engine=engine, build=build,
        wired_limit=parse(wired_limit, "byte", "wired-limit") if wired_limit else None,
    )  # fmt: skip


def records(ds: xr.Dataset) -> list[dict]:
    """Return every configuration of a prediction as a dict of plain values.

    A single one also says its `verdict`, `fixes`, `elasticity` and llama.cpp `flags`.
    """
    dims = [d for d in ds.dims if d not in _PARTS.values()]
    places = itertools.product(*(range(ds.sizes[d]) for d in dims))
    found = [_record(ds.isel(dict(zip(dims, place, strict=True)))) for place in places]
    return [found[0] | _explained(ds)] if not dims else found


def _record(point: xr.Dataset) -> dict:
    labels = {str(name): coord.item() for name, coord in point.coords.items() if not coord.dims}
    parts = {
        name: dict(zip(point[dim].values.tolist(), point[name].values.tolist(), strict=True))
        for name, dim in _PARTS.items()
    }
    return {
        **labels, "engine": point.attrs["engine"], **{k: point[k].item() for k in _NUMBERS},
        "fits": bool(point.fits), "bound": point.bound.item(), "trust": point.trust.item(), **parts,
    }  # fmt: skip


def _explained(ds: xr.Dataset) -> dict:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BeyondContext)  # said already of the question itself
        why = wb.explain(ds)
    fixes = [
        {"fix": str(f.fix.item()), "decode_tok_s": f.fix_tok_s.item(), "gain": f.gain.item(),
         "fits": bool(f.fix_fits)}
        for f in (why.isel(fix=i) for i in range(why.sizes["fix"]))
    ]  # fmt: skip
    worth = dict(zip(why.parameter.values.tolist(), why.elasticity.values.tolist(), strict=True))
    return {"verdict": why.attrs["verdict"], "fixes": fixes, "elasticity": worth,
            "flags": wb.flags(ds)}  # fmt: skip


def _swept(field: str, text: str):
    values = [_number(part) for part in _split(text)]
    if not values:
        raise SpecError(f"{field}: empty; give a number, or several with commas between them")
    return values[0] if len(values) == 1 else wb.axis(field, values)


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text  # Workload says what is wrong with it, and knows names of KV types


def _split(text: str) -> list[str]:
    return [text] if Path(text).is_file() else [p.strip() for p in text.split(",") if p.strip()]


def _alone(items: list):
    return items[0] if len(items) == 1 else items


def finite(value):
    """Return plain data with NaN and infinity as None, which JSON can say."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
