"""A measured row -> the prediction that answers it: model, machine, work, format, engine."""

import math
from typing import NamedTuple

from workbench.specs import engine as engines
from workbench.specs import formats
from workbench.specs.device import Device
from workbench.specs.model import Model
from workbench.study import row_fields, row_specs
from workbench.study.row_fields import number, optional, text, tokens

DEEP = 4096  # tokens of context from which rows are also reported alone
#: Tokens generated when a row does not say: the tg128 of llama-bench.
GENERATED = 128.0
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
    library: str  # kernels or driver that the note names: "hipblaslt", "rocwmma", "amdvlk", "radv", or ""
    ubatch: float  # tokens of one prefill pass
    decode_tok_s: float
    prefill_tok_s: float
    source: str


def is_scored(row: dict) -> bool:
    """Tell whether a row is in the scored set: trust A or B, one device, batch 1, an engine of SCORED.

    Raises:
        SpecError: the row names no engine.
    """
    return (
        text(row, "trust").upper()[:1] in ("A", "B", "")
        and row_specs.machines(row) == 1
        and (text(row, "batch") == "" or optional(row, "batch") == 1)
        and row_specs.device_class(row) in _CLASSES
        and engines.family(row_specs.engine(row)) in engines.SCORED
    )


def best_threads(rows: list[dict]) -> list[dict]:
    """Keep of CPU rows that differ in nothing but `threads` the fastest: a CPU is scored at its best thread count."""
    best: dict[tuple, dict] = {}
    for row in rows:
        on_cpu = row_specs.device_class(row) in ("cpu", "sbc")
        key = tuple(text(row, f) for f in _SAME_RUN) if on_cpu else (id(row),)
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
        WorkbenchError: a name is unknown and no number of the row stands in for it, or a number that a prediction needs
            is none; the message names the row and the column.
    """
    model, quant = row_specs.weights(row)
    return Request(
        id=text(row, "id"),
        model=model,
        device=row_specs.device(row),
        quant=quant,
        engine=row_specs.engine(row),
        build=row_specs.build(row),
        **_work(row),
        kv_bits=row_fields.kv_bits(row),
        size=row_fields.size(row),
        threads=optional(row, "threads"),
        flash=row_fields.flash(row),
        host="slow" if "GPU behind" in text(row, "note") else "",
        library=row_fields.library(row),
        ubatch=row_fields.ubatch(row),
        decode_tok_s=number(row, "decode_tok_s"),
        prefill_tok_s=number(row, "prefill_tok_s"),
        source=text(row, "source"),
    )


def _work(row: dict) -> dict[str, float]:
    """Return prompt, context and depth in tokens; a reply without a stated depth follows its prompt."""
    fields = ("prompt_tokens", "context_depth_tokens", "gen_tokens")
    prompt, depth, generated = (tokens(row, field) for field in fields)
    before = depth if not math.isnan(depth) else 0.0 if math.isnan(prompt) else prompt
    return {
        "prompt": 512.0 if math.isnan(prompt) or prompt == 0 else prompt,
        "context": before + (GENERATED if math.isnan(generated) else generated) / 2,
        # A depth equal to the prompt is the prompt itself, which is cached once it is prefilled.
        "depth": 0.0 if math.isnan(depth) or depth == prompt else depth,
    }


def stored(request: Request):
    """Return the weight bytes (tensor_class,) of a request: by format, scaled to the stated file size where plausible.

    A larger file of a tied model holds its output head twice but reads it once, so that is no reason to scale up.
    """
    computed = formats.weight_bytes(request.model, request.quant)
    ratio = request.size / computed.sum()
    plausible = 0.7 <= ratio <= (1.05 if request.model.tied else 1.45)
    return computed * ratio if plausible else computed
