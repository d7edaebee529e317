"""Why a token takes as long as it does: the ledger, the term that binds, what each number is worth, what to change."""

import dataclasses
import json
import math
import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from workbench import results
from workbench.errors import WorkbenchError
from workbench.hardware import capacity, coefficients, ledger, roofline, storage, traffic
from workbench.specs import engine as engines
from workbench.specs import formats
from workbench.specs.device import Device
from workbench.specs.model import INDEX, Model
from workbench.specs.workload import KV_TYPES, Workload
from workbench.study.predict import BeyondContext, predict

#: What 1 % more of a number does to the speed is reported for these; the device's fields come first.
_NUMBERS = ("bandwidth", "flops", "memory", "link", "host_bandwidth")
_LADDER = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "IQ4_XS", "Q3_K_M")
_MLX_LADDER = ("MLX 8bit", "MLX 6bit", "MLX 4bit")
_STAGES = ("decode", "prefill")
_WORTH = 1.02  # a gain below 2 % is not worth a line


class Question(NamedTuple):
    """One configuration: what a Dataset of `predict` without dimensions was asked."""

    model: Model
    device: Device
    work: Workload
    quant: str
    engine: str
    build: str
    wired_limit: float | None
    table: dict | None = None  # the coefficients; None for those in datasets

    def predict(self) -> xr.Dataset:
        """Answer it."""
        return predict(self.model, self.device, self.work, quant=self.quant, engine=self.engine,
                       build=self.build, wired_limit=self.wired_limit, table=self.table)  # fmt: skip


def question(ds: xr.Dataset, table: dict | None = None) -> Question:
    """Return what a prediction was asked, from the inputs that its attrs carry, and by which table to answer it.

    Raises:
        WorkbenchError: the Dataset has more than one configuration, or does not come from `predict`.
    """
    if "inputs" not in ds.attrs:
        raise WorkbenchError(
            "explain: give a Dataset that `predict` returned (its attrs hold what was asked)"
        )
    open_dims = [str(d) for d in ds.decode_tok_s.dims]
    if open_dims:
        raise WorkbenchError(
            f"explain: one configuration at a time; select one, for example ds.isel({open_dims[0]}=0)"
        )
    asked = json.loads(ds.attrs["inputs"])
    work = {name: _chosen(value, ds) for name, value in asked["work"].items()}
    return Question(
        _spec(Model, asked["models"][ds.model.item()]),
        _spec(Device, asked["devices"][ds.device.item()]),
        Workload(**work),
        ds.quant.item(),
        ds.attrs["engine"],
        ds.attrs["build"],
        asked["wired_limit"],
        table,
    )


def _chosen(value, ds: xr.Dataset):
    return ds[value["axis"]].item() if isinstance(value, dict) else value


def _spec(kind: type, fields: dict):
    arrays = {"params", "stored_bytes"}
    return kind(
        **{
            name: np.array(v)
            if name in arrays and v is not None
            else tuple(v)
            if isinstance(v, list)
            else v
            for name, v in fields.items()
        }
    )


def explain(ds: xr.Dataset, table: dict | None = None) -> xr.Dataset:
    """Say where the time of a token goes, what binds, and what to change.

    Args:
        ds: one configuration that `predict` priced.
        table: the coefficients that `predict` was given, where it was given any.

    Returns:
        `time_s` and `share` (term), `elasticity` (parameter): change of speed in % for 1 % more of a number;
        `fix_tok_s`, `gain` and `fix_fits` (fix): speed after each change, ranked by gain; `bound`; attrs `verdict`
        says it in a sentence.

    Equation: elasticity = d log(tok/s) / d log(x), by `jax.grad` through the same function that priced it.
    """
    asked = question(ds, table)
    fixes = _fixes(asked, ds)
    labels, speeds, gains, fits = zip(*fixes, strict=True) if fixes else ((), (), (), ())
    elasticity = elasticities(asked)
    found = results.dataset(
        {
            "time_s": ds.time_s,
            "share": ds.time_s / ds.time_s.sum(),
            "bound": ds.bound,
            "decode_tok_s": ds.decode_tok_s,
            "elasticity": ("parameter", np.array(list(elasticity.values()))),
            "fix_tok_s": ("fix", np.array(speeds, dtype=np.float64)),
            "gain": ("fix", np.array(gains, dtype=np.float64)),
            "fix_fits": ("fix", np.array(fits, dtype=bool)),
        },
        {"parameter": list(elasticity), "fix": list(labels)},
        source=ds.attrs["source"],
        mechanism=ds.attrs["mechanism"],
    )
    found.attrs["verdict"] = verdict(ds)
    return found


def elasticities(asked: Question) -> dict[str, float]:
    """Return d log(tok/s) / d log(number) for the numbers of the device, the bytes per weight and the context."""
    keys = {
        name: np.array([label], dtype=object)
        for name, label in (
            coefficients.device_keys(asked.device, asked.engine, asked.build)
            | coefficients.quant_keys(asked.quant)
            | coefficients.model_keys(asked.model)
        ).items()
    }
    table = asked.table or coefficients.table()
    decode, prefill = (coefficients.resolve(keys, stage, table) for stage in _STAGES)
    load = traffic.load_of(asked.model, formats.weight_bytes(asked.model, asked.quant))
    numbers = (asked.work.arrays(), load, decode, prefill, asked.wired_limit)
    numbers = jax.tree.map(lambda x: np.float64(np.squeeze(x)), numbers)
    # Names are static to JAX: without them one compilation serves every machine of a class.
    device = dataclasses.replace(
        asked.device, name="", generation="", source="", note="", memory_options=(),
        disk=storage.disk_of(asked.device).bandwidth,
    )  # fmt: skip
    device = jax.tree.map(np.float64, device)
    scale = {"bytes per weight": np.float64(1), "context": np.float64(1)}
    by_device, by_scale = _slopes(device, scale, *numbers)
    found = {name: float(getattr(by_device, name) * getattr(device, name)) for name in _NUMBERS}
    found |= {name: float(value) for name, value in by_scale.items()}
    return {name: 0.0 if math.isnan(value) else value for name, value in found.items()}


def _log_speed(device: Device, scale: dict, work: dict, load, decode, prefill, wired_limit):
    weights = ("dense_bytes", "expert_bytes", "resident_bytes")
    load = load._replace(**{f: getattr(load, f) * scale["bytes per weight"] for f in weights})
    machine, budget = roofline.machine_of(device), capacity.budget_of(device, wired_limit)
    work = work | {"context": work["context"] * scale["context"]}
    priced = ledger.price(load, machine, budget, decode, prefill, work)
    return jnp.log(priced["decode_tok_s"])


_slopes = jax.jit(jax.grad(_log_speed, argnums=(0, 1)))


def _fixes(asked: Question, ds: xr.Dataset) -> list[tuple[str, float, float, bool]]:
    """Return (what to do, tok/s after it, times the speed now, fits), best first."""
    now = ds.decode_tok_s.item()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BeyondContext)  # the question itself has warned already
        tried = [(label, changed.predict()) for label, changed in _changes(asked, ds)]
    ranked = [
        (label, after.decode_tok_s.item(), after.decode_tok_s.item() / now, bool(after.fits))
        for label, after in tried
    ]
    return sorted((fix for fix in ranked if fix[2] >= _WORTH), key=lambda fix: -fix[2])


def _changes(asked: Question, ds: xr.Dataset):
    yield from _smaller_formats(asked, ds)
    for name in ("q8_0", "q4_0"):
        if KV_TYPES[name] < asked.work.kv_bits:
            yield (
                f"keep the KV cache in {name}",
                asked._replace(work=dataclasses.replace(asked.work, kv_bits=name)),
            )
    context = asked.work.arrays()["context"]
    if context > 1024:
        shorter = dataclasses.replace(
            asked.work, context=context // 2, prompt=min(asked.work.prompt, context // 2)
        )
        yield f"halve the context to {context // 2:.0f} tokens", asked._replace(work=shorter)
    yield from _other_engines(asked)


def _smaller_formats(asked: Question, ds: xr.Dataset):
    if asked.model.stored_bytes is not None:
        asked = asked._replace(model=dataclasses.replace(asked.model, stored_bytes=None))
    ladder = _MLX_LADDER if engines.family(asked.engine) == "mlx" else _LADDER
    for quant in ladder:
        if formats.weight_bytes(asked.model, quant).sum() < 0.97 * ds.file_bytes.item():
            yield f"use {quant} weights", asked._replace(quant=quant)


def _other_engines(asked: Question):
    """Yield the engines whose backend was calibrated on this class of device."""
    known = (asked.table or coefficients.table())["known"]["device_class.backend"]
    mine = engines.backend(asked.engine, asked.device.device_class)
    for label, engine in _ENGINES.items():
        if engine != "mlx" and asked.quant.startswith("MLX"):
            continue
        try:
            other = engines.backend(engine, asked.device.device_class)
        except WorkbenchError:
            continue
        if other != mine and known.get(f"{asked.device.device_class}|{other}", 0) >= 10:
            quant = "MLX 4bit" if engine == "mlx" else asked.quant
            yield f"run it with {label}", asked._replace(engine=engine, quant=quant)


_ENGINES = {
    "llama.cpp (Vulkan)": "llama.cpp-vulkan",
    "llama.cpp (ROCm)": "llama.cpp-rocm",
    "llama.cpp": "llama.cpp",
    "MLX": "mlx",
    "ik_llama.cpp": "ik_llama.cpp",
}


def verdict(ds: xr.Dataset) -> str:
    """Return the answer in a sentence: does it fit, how fast, what binds."""
    step = float(ds.time_s.sum())
    bound = str(ds.bound.item())
    share = float(ds.time_s.sel(term=bound)) / step
    low, high = ds.lower.item(), ds.upper.item()
    speed = f"{ds.decode_tok_s.item():.3g} tok/s (80 % of measured cases: {low:.3g} to {high:.3g})"
    gib = 2**30
    need, have = float(ds.memory_bytes.sum()) / gib, ds.usable_bytes.item() / gib
    fit = (
        f"fits ({need:.1f} of {have:.1f} GiB)"
        if ds.fits.item()
        else f"does not fit ({need:.1f} of {have:.1f} GiB)"
    )
    return f"{fit}; {speed}; {bound} takes {share:.0%} of {step * 1e3:.3g} ms per token"


def flags(ds: xr.Dataset, file: str = "model.gguf") -> list[str]:
    """Return the llama.cpp command that runs a configuration as it was priced.

    Args:
        ds: one configuration that `predict` priced.
        file: the GGUF file.
    """
    asked = question(ds)
    longest = max(asked.work.arrays()["context"], asked.work.prompt + asked.work.generate)
    slots = int(asked.work.batch)
    command = ["llama-server", "-m", file, "-c", str(int(math.ceil(longest / 256) * 256) * slots)]
    if slots > 1:
        command += ["-np", str(slots)]
    if asked.device.device_class in ("cpu", "sbc"):
        command += ["-ngl", "0"]
        if not math.isnan(asked.device.cores):
            command += ["-t", str(int(asked.device.cores))]
    else:
        command += _offload(asked, ds)
    kv = next((name for name, bits in KV_TYPES.items() if bits == asked.work.kv_bits), "f16")
    if kv not in ("f16", "f32"):
        command += ["-fa", "on", "-ctk", kv, "-ctv", kv]
    return command


def _offload(asked: Question, ds: xr.Dataset) -> list[str]:
    """Return what stays in system memory: experts first, which are the bulk and little read, then whole layers."""
    layers, short = int(asked.model.layers), -ds.headroom_bytes.item()
    if ds.fits.item():
        return ["-ngl", "99"]
    stored = formats.weight_bytes(asked.model, asked.quant)
    experts = float(stored[INDEX["expert_up"]] + stored[INDEX["expert_down"]])
    command = ["-ngl", "99"]
    if short > experts:
        dense = ds.memory_bytes.sel(kind="weights").item() - experts
        command = ["-ngl", str(max(0, layers - math.ceil((short - experts) / dense * layers)))]
    if experts > 0:
        # The flag counts layers from the first; those without experts may all come first.
        moved = math.ceil(min(short / experts, 1) * asked.model.moe_layers)
        command += ["--n-cpu-moe", str(moved + layers - int(asked.model.moe_layers))]
    return command
