"""The ledger of a token under other assumptions, and the tokens measured on a machine (M01, M02)."""

import functools

import numpy as np
import xarray as xr

from workbench import data, results
from workbench.errors import SpecError, WorkbenchError
from workbench.hardware import capacity, ledger, traffic
from workbench.hardware.roofline import TERMS
from workbench.specs import device as devices
from workbench.specs import device_names, formats
from workbench.specs.model import Model
from workbench.study.rows import number
from workbench.study.scoreboard import entries

#: The terms that no byte and no FLOP explains: together they are t0 of the affine law (M02).
FIXED = ("dispatch", "routing", "fixed")
_FIXED = [TERMS.index(term) for term in FIXED]
SHORT = 2048  # tokens: beyond, attention bends the line through measured tokens

_POINT = {"units": "1", "long_name": "operation"}
_RATE = {"units": "FLOP/s", "long_name": "speed reached"}
_SIZE = {"units": "byte", "long_name": "bytes read per token"}


def weight_efficiency(ds: xr.Dataset) -> float:
    """Return the share of the specified bandwidth at which a prediction reads resident weights.

    Args:
        ds: one configuration of `predict` at batch 1; NaN if none of its weights is resident.
    """
    held = ds.memory_bytes.values[list(ds.kind.values).index("weights")]
    resident = np.clip(1.0 + ds.headroom_bytes.item() / held, 0.0, 1.0)
    reading = ds.time_s.values[TERMS.index("weights")]
    return float(resident / ds.naive_tok_s.item() / reading) if reading > 0 else np.nan


def fixed_time(ds: xr.Dataset) -> float:
    """Return t0 of one configuration in s: launching, routing and the fixed cost together."""
    return float(ds.time_s.values[_FIXED].sum())


def bent(ds: xr.Dataset, efficiency: float | None = None, fixed: float | None = None) -> xr.Dataset:
    """Price the same tokens again with an efficiency or a fixed time of one's own.

    Args:
        ds: one configuration of `predict` at batch 1, or several batches of which 1 is the first.
        efficiency: share of the specified bandwidth at which weights are read; None keeps it.
        fixed: s per step, instead of launching, routing and fixed cost together; None keeps it.

    Returns:
        The Dataset with `time_s`, `decode_tok_s` and `bound` changed, and without the interval
        and the trust, which speak of the calibrated numbers only.

    Raises:
        SpecError: an efficiency that is not above 0, or a negative time.

    Equation: t = S / (efficiency x BW) + t0 + the other terms as they were (M01, M02).
    """
    _refuse(efficiency, fixed)
    one = ds.isel(batch=0) if "batch" in ds.dims else ds
    before = ds.time_s.values
    time = before.copy()
    if efficiency is not None and not np.isnan(share := weight_efficiency(one)):
        time[TERMS.index("weights")] *= share / efficiency
    if fixed is not None:
        time[_FIXED] *= fixed / fixed_time(one)
    speed = ds.decode_tok_s.values * before.sum(0) / time.sum(0)
    changed = {"time_s": time, "decode_tok_s": speed, "bound": np.array(TERMS)[time.argmax(0)]}
    kept = ds.drop_vars(["lower", "upper", "trust"])
    return kept.assign({name: ds[name].copy(data=array) for name, array in changed.items()})


def _refuse(efficiency: float | None, fixed: float | None) -> None:
    if efficiency is not None and not 0 < efficiency < np.inf:
        raise SpecError(f"efficiency: {efficiency} is wrong; give a share above 0, such as 0.8")
    if fixed is not None and not 0 <= fixed < np.inf:
        raise SpecError(f"fixed: {fixed} is wrong; give seconds, such as 0.005")


def operations(ds: xr.Dataset, model: Model, prompt: float) -> xr.Dataset:
    """Place decode steps and the prefill on the roofline.

    Args:
        ds: what `predict` returned of `model` over batch.
        model: the same, to count what its prefill moves.
        prompt: tokens of the prefill, at batch 1.

    Returns:
        Over `point`, the batches and then "prefill": `arithmetic_intensity` FLOP/byte and `rate`
        FLOP/s, NaN where the memory does not hold that batch.
    """
    load = traffic.load_of(model, formats.weight_bytes(model, ds.quant.item()))
    step, experts = traffic.prefill(load, prompt, 0.0, 1.0, 16.0, ledger.UBATCH)
    flops = float(step.flops + step.attention_flops + experts)
    moved = float(step.weight_bytes + step.kv_bytes)
    speed = [
        *(ds.flops.values / ds.time_s.values.sum(0)),
        flops * float(ds.prefill_tok_s.values.flat[0]) / prompt,
    ]
    held = [*ds.fits.values, ds.fits.values[0]]
    intensity = np.append(ds.arithmetic_intensity.values, flops / moved)
    return results.dataset(
        {
            "arithmetic_intensity": ("point", intensity),
            "rate": ("point", np.where(held, speed, np.nan), _RATE),
        },
        {"point": ("point", [*map(str, ds.batch.values), "prefill"], _POINT)},
        source=ds.attrs["source"],
        mechanism="M01",
    )


@functools.lru_cache(maxsize=64)
def measured_tokens(device: str) -> xr.Dataset:
    """Return the tokens measured on a machine: what each read and how long it took.

    Args:
        device: slug of a preset.

    Returns:
        Over `point`, empty if there are none: `size_bytes`, `time_s`, and `label`. Batch 1, at
        most `SHORT` tokens of context, weights that fit (a spilled model is on no straight line).
    """
    listed = entries(_rows_of().get(device, _NOTHING))
    asked = [entry.asked for entry in listed if entry.asked and _on_line(entry.asked)]
    return results.dataset(
        {
            "size_bytes": ("point", np.array([_bytes(a) for a in asked]), _SIZE),
            "time_s": ("point", np.array([1.0 / a.request.decode_tok_s for a in asked])),
            "label": ("point", np.array([_label(a) for a in asked], dtype=str), _POINT),
        },
        source="datasets/measurements.csv",
        mechanism="M02",
    )


# `entries` asks for the columns even of no rows.
_NOTHING = ({"device": "", "engine": "", "model": "", "decode_tok_s": "", "trust": "none"},)


@functools.cache
def _rows_of() -> dict[str, list[dict]]:
    """Return slug of a machine -> its measured rows."""
    found: dict[str, list[dict]] = {}
    for row in data.rows("measurements.csv"):
        bandwidth, cores = number(row, "mem_bandwidth_GBps") * 1e9, number(row, "gpu_cores")
        stated = [None if np.isnan(value) else value for value in (bandwidth, cores)]
        try:
            device = devices.resolve(row["device"], row["device_class"], *stated)
        except WorkbenchError:
            continue  # the scoreboard lists what is not understood
        found.setdefault(device_names.slug(device.name), []).append(row)
    return found


def _on_line(asked) -> bool:
    usable = float(capacity.budget_of(asked.request.device).usable)
    short = asked.request.context <= SHORT
    return asked.request.decode_tok_s > 0 and short and asked.load.resident_bytes < usable


def _bytes(asked) -> float:
    request = asked.request
    step = traffic.decode(asked.load, request.context, 1.0, request.kv_bits)
    return float(step.weight_bytes + step.kv_bytes)


def _label(asked) -> str:
    request = asked.request
    return f"{request.model.name} {request.quant}, {request.engine} ({request.source})"
