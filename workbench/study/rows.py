"""A measured row -> the prediction that answers it: model, machine, work, format, engine."""

import math
from typing import NamedTuple

from workbench.errors import WorkbenchError
from workbench.specs import engine as engines
from workbench.specs import formats
from workbench.specs.catalogue import resolve as resolve_model
from workbench.specs.device import Device
from workbench.specs.device import resolve as resolve_device
from workbench.specs.model import Model
from workbench.specs.workload import KV_TYPES
from workbench.units import GiB

#: Tokens generated when a row does not say: the tg128 of llama-bench.
_GENERATED = 128.0
_CLASSES = ("nvidia-gpu", "amd-gpu", "amd-apu", "apple-uma", "intel", "cpu", "sbc")


class Request(NamedTuple):
    """One measured configuration, ready to be priced, and what was measured."""

    id: str
    model: Model
    device: Device
    quant: str
    engine: str
    build: str
    prompt: float
    context: float  # tokens cached, on average, while the measured tokens were generated
    depth: float  # tokens cached before the prompt
    kv_bits: float
    size: float  # byte: stated file size, NaN if not stated
    threads: float
    flash: str  # "on", "off", or "" where the row does not say
    host: str  # "slow" behind a single-board computer, else ""
    decode_tok_s: float
    prefill_tok_s: float
    source: str


def number(row: dict, field: str) -> float:
    """Return a numeric field of a CSV row, NaN when it is blank or missing.

    Raises:
        WorkbenchError: the field holds something that is not a number.
    """
    text = (row.get(field) or "").strip()
    try:
        return float(text) if text else math.nan
    except ValueError:
        raise WorkbenchError(
            f"row {row.get('id', '?')}: {field} = {text[:40]!r} is not a number"
        ) from None


def is_scored(row: dict) -> bool:
    """Tell whether a row is in the scored set: trust A or B, one device, batch 1, llama.cpp family, MLX, exllama, gpt-fast."""
    return (
        row.get("trust", "A") in ("A", "B", "")
        and all(row.get(field) in (None, "", "1", "1.0") for field in ("n_gpus", "batch"))
        and row.get("device_class") in _CLASSES
        and engines.family(row["engine"]) in engines.SCORED
    )


def best_threads(rows: list[dict]) -> list[dict]:
    """Keep of the CPU rows that differ in nothing but `threads` the fastest: a CPU is scored at its best thread count."""
    best: dict[tuple, dict] = {}
    for row in rows:
        on_cpu = row.get("device_class") in ("cpu", "sbc")
        key = tuple(row.get(f) for f in _SAME_RUN) if on_cpu else (id(row),)
        speeds = (number(row, "decode_tok_s"), number(row, "prefill_tok_s"))
        speed = next((s for s in speeds if not math.isnan(s)), 0.0)
        if key not in best or speed > best[key][0]:
            best[key] = (speed, row)
    return [row for _, row in best.values()]


_SAME_RUN = (
    "device",
    "engine",
    "engine_version_or_build",
    "model",
    "quant",
    "context_depth_tokens",
    "prompt_tokens",
    "gen_tokens",
    "kv_type",
    "flash_attn",
    "source",
)


def request(row: dict) -> Request:
    """Return the Request of a row with the columns of measurements.csv.

    Raises:
        WorkbenchError: the model, device, format or engine is not known and the row does not describe it.
    """
    model = resolve_model(row["model"])
    stated = number(row, "mem_bandwidth_GBps")
    cores = number(row, "gpu_cores")
    device = resolve_device(
        row["device"],
        device_class=row.get("device_class"),
        bandwidth=None if math.isnan(stated) else stated * 1e9,
        cores=None if math.isnan(cores) else cores,
    )
    prompt, depth, generated = (
        number(row, f) for f in ("prompt_tokens", "context_depth_tokens", "gen_tokens")
    )
    before = depth if not math.isnan(depth) else 0.0 if math.isnan(prompt) else prompt
    kv = (row.get("kv_type") or "f16").lower()
    return Request(
        id=row.get("id", ""),
        model=model,
        device=device,
        quant=formats.normalise(row.get("quant") or "4-bit (not stated)"),
        engine=row["engine"],
        build=row.get("engine_version_or_build") or "",
        prompt=512.0 if math.isnan(prompt) or prompt == 0 else prompt,
        context=before + (_GENERATED if math.isnan(generated) else generated) / 2,
        depth=0.0 if math.isnan(depth) else depth,
        kv_bits=KV_TYPES.get(kv, KV_TYPES["f16"]),
        size=number(row, "model_size_bytes_or_GiB") * GiB,
        threads=number(row, "threads"),
        flash={"0": "off", "1": "on"}.get((row.get("flash_attn") or "").strip()[:1], ""),
        host="slow" if "GPU behind" in (row.get("note") or "") else "",
        decode_tok_s=number(row, "decode_tok_s"),
        prefill_tok_s=number(row, "prefill_tok_s"),
        source=row.get("source", ""),
    )


def stored(request: Request):
    """Return the weight bytes (tensor_class,) of a request: by format, scaled to the stated file size where plausible.

    A larger file of a tied model holds its output head twice but reads it once, so that is no reason to scale up.
    """
    computed = formats.weight_bytes(request.model, request.quant)
    ratio = request.size / computed.sum()
    plausible = 0.7 <= ratio <= (1.05 if request.model.tied else 1.45)
    return computed * ratio if plausible else computed
