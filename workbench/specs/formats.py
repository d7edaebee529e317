"""Quantisation formats: what a name means in bits per weight for every kind of tensor.

>>> normalise("q4_K_M (imatrix)"), family("Q4_K_M")
('Q4_K_M', 'kquant')
"""

import functools
import math
import re

import numpy as np

from workbench import data
from workbench.errors import SpecError, UnknownNameError
from workbench.specs import format_words, mixes
from workbench.specs.model import INDEX, TENSOR_CLASSES, Model

#: How the kernel decodes a weight; the engine's cost of decoding is calibrated for each.
FAMILIES = (
    "float", "bf16", "q8", "legacy4", "ternary", "kquant", "iquant", "iq4", "mlx",
    "gpu_int4", "gpu_int8", "fp8", "npu_int",
)  # fmt: skip

_ALIASES = {
    "fp16": "F16", "half": "F16", "float16": "F16", "bfloat16": "BF16", "fp32": "F32",
    "float32": "F32", "q4_k": "Q4_K_M", "q5_k": "Q5_K_M", "q3_k": "Q3_K_M",
    "iq1": "IQ1_S", "iq2": "IQ2_XS", "iq3": "IQ3_S", "iq4": "IQ4_XS", "q8": "Q8_0",
    "ollama default": "Q4_K_M", "ollama default (old)": "Q4_0",
    "mxfp4_moe": "MXFP4", "mxfp4-moe": "MXFP4", "fp8_e4m3": "FP8", "bnb-4bit": "NF4",
    "4bit": "4-bit", "q4": "4-bit", "8bit": "8-bit", "2bit": "2-bit", "2bit-dq": "2-bit",
    "2bit-ternary": "Q2_0", "w4": "w4a16", "ds4 mix": "ds4 Q2", "mlx bf16": "BF16",
    "mlx fp16": "F16", "mlx 4bit optiq": "MLX OptiQ", "mlx f16": "F16",
}  # fmt: skip
#: Parts of a spelling that say who made the file or how, not what is in it; dropped in this order.
_NOISE = (
    r"\.gguf$", r"\((?:see source|not stated|imatrix|pure|ubergarm|unsloth|bartowski)\)",
    r"^(?:mix|smol)-", r"\bqat\b", r"\bcoreml\b", r"\bmoe$", r" mix$",
)  # fmt: skip
_GROUPED = re.compile(
    r"(?P<scheme>mlx|gptq|awq|autoround|int4|int8|int|w4 asym|w4a16|w8a8|w8a16|exl2|exl3|nf4)?"
    r"\W*(?:int|q|w)?(?P<bits>\d+(?:\.\d+)?)?\s*-?(?:bits?|bpw)?\s*(?P<name>autoround)?"
    r"[ _-]*(?:h\d+)?[ _-]*(?:(?:g|block)(?P<group>\d+))?"
)


@functools.cache
def names() -> tuple[str, ...]:
    """Return every named format; patterns as 'EXL2 3.5bpw' or 'MLX 6bit g32' work besides."""
    schemes = [row["name"] for row in data.rows("formats.csv") if row["kind"] != "ggml"]
    return tuple(dict.fromkeys([*mixes.mixes(), *schemes]))


@functools.cache
def normalise(text: str) -> str:
    """Return the canonical name of a quantisation format as people spell it.

    Raises:
        SpecError: the spelling means nothing known; the nearest names are suggested.
    """
    if not isinstance(text, str) or not text.strip() or len(text) > 100:
        raise SpecError(f"quant: {str(text)[:40]!r} is no format; write 'Q4_K_M' or 'MLX 4bit'")
    plain = _plain(text)
    found = _named(text.strip()) or _read(plain) or _read(format_words.reworded(plain))
    if not found and "_" in text:
        spaced = _plain(text.replace("_", " "))
        found = _read(spaced) or _read(format_words.reworded(spaced))
    if not found:
        raise UnknownNameError("quant", text, list(names()))
    return found


@functools.cache
def nearest(bits: float) -> str:
    """Return the format that stands for any of about so many bits per weight: '4-bit', 'F16'."""
    rows = [r for r in data.rows("formats.csv") if re.fullmatch(r"\d-bit|F16", r["name"])]
    return min(rows, key=lambda row: abs(math.log(bits / float(row["bits"]))))["name"]


def family(quant: str) -> str:
    """Return which of FAMILIES the weights of `quant` belong to, by how a kernel decodes them."""
    name = normalise(quant)
    if row := _scheme(name):
        return row["family"]
    mix = _mix(name)
    main = mix.get("expert_up", [mix["base"]])[-1]
    return mixes.tensor_types()[main]["family"]


def bits(quant: str, model: Model) -> np.ndarray:
    """Return the bits per weight (tensor_class,) of `model` stored as `quant`.

    A tied embedding counts as the output head that decoding streams. Where the quantiser gives
    the layers of one class different types, the bits are their mean.

    Raises:
        SpecError: the format is unknown.
    """
    name = normalise(quant)
    row = _scheme(name)
    return _scheme_bits(row, name, model) if row else mixes.mix_bits(_mix(name), model)


def weight_bytes(model: Model, quant: str) -> np.ndarray:
    """Return the weights' bytes (tensor_class,): as stored in a file, else params x bits / 8."""
    if model.stored_bytes is not None:
        return np.asarray(model.stored_bytes, dtype=np.float64)
    return _computed_bytes(model, quant)


@functools.lru_cache(maxsize=4096)
def _computed_bytes(model: Model, quant: str) -> np.ndarray:
    computed = np.asarray(model.params, dtype=np.float64) * bits(quant, model) / 8
    computed.flags.writeable = False  # shared by everyone who asks
    return computed


def _read(text: str) -> str | None:
    return _named(text) or _grouped(text) or _file_name(text)


def _named(text: str) -> str | None:
    lower = {name.lower(): name for name in names()} | _ALIASES
    key = re.sub(r"\s+", " ", text.lower())
    interleaved = re.fullmatch(r"(.+)(_r[48])", key)
    if interleaved and (base := lower.get(interleaved[1])):
        return base + interleaved[2].upper()
    unsloth = key if key.startswith("ud-") else f"ud-{key}"
    plain = unsloth[3:]
    return lower.get(key) or lower.get(unsloth) or lower.get(plain) or _custom(plain, lower)


def _custom(key: str, lower: dict[str, str]) -> str | None:
    """Read a home-made size letter ('Q4_K_P') or a named source type ('MXFP4 (F16 gguf)')."""
    if source := re.fullmatch(r"(mxfp4) ?\((f16|bf16) gguf\)", key):
        return lower[f"{source[1]} {source[2]}"]
    odd = re.fullmatch(r"(i?q\d_k)_(?:p|xl|l|m|s)", key)
    return lower.get(f"{odd[1]}_m") or lower.get(odd[1]) if odd else None


def _plain(text: str) -> str:
    text = text.strip().lower()
    if text.startswith("int4 (q4f16"):
        return "4-bit"
    for noise in _NOISE:
        text = re.sub(noise, "", text).strip(" -_")
    return re.sub(r"^(q2) \(ds4 mix\)$", "ds4 mix", text)


def _file_name(text: str) -> str | None:
    """Read the format that ends a file's name: 'gemma-3-27b-it-UD-Q4_K_XL-00001-of-00002'."""
    tail = re.search(
        r"[-. _]((?:ud-)?(?:i?q|tq|mxfp|nvfp|bf|f)\d[a-z0-9_]*)(-\d{5}-of-\d{5})?$", text
    )
    return _named(tail[1]) if tail else None


def _grouped(text: str) -> str | None:
    match = _GROUPED.fullmatch(text)
    if not match or not (match["scheme"] or match["name"]):
        return None
    scheme = match["name"] or match["scheme"]
    row = _group_row({"int": f"int{match['bits']}", "w8a16": "int8"}.get(scheme, scheme))
    if not row:
        return None
    width, group = float(match["bits"] or row["bits"]), int(match["group"] or row["group"])
    if not 1 <= width <= 16 or (match["group"] and not 8 <= group <= 8192):
        return None
    return _spell(row, width, group)


def _spell(row: dict, width: float, group: int) -> str:
    unit = "bpw" if row["name"].startswith("EXL") else "bit"
    wide = "" if row["name"].lower().startswith(("int", "w4", "w8", "nf4")) else f" {width:g}{unit}"
    return row["name"] + wide + (f" g{group}" if group != int(row["group"]) else "")


def _group_row(scheme: str) -> dict | None:
    rows = (row for row in data.rows("formats.csv") if row["kind"] == "group")
    return next((row for row in rows if row["name"].lower() == scheme.lower()), None)


def _mix(name: str) -> dict:
    return mixes.mixes()[re.sub(r"_R[48]$", "", name)]


def _scheme(name: str) -> dict | None:
    fixed = (row for row in data.rows("formats.csv") if row["kind"] == "scheme")
    found = next((row for row in fixed if row["name"] == name), None)
    return found or _group_row(re.sub(r"( [\d.]+(bit|bpw))?( g\d+)?$", "", name))


def _scheme_bits(row: dict, name: str, model: Model) -> np.ndarray:
    body = _body_bits(row, name)
    output = float(row["output_bits"] or body)
    result = np.full(len(TENSOR_CLASSES), body)
    result[INDEX["norm"]] = result[INDEX["router"]] = 16.0
    result[INDEX["output"]] = output
    result[INDEX["embedding"]] = output if model.tied else float(row["embedding_bits"] or body)
    result[INDEX["lookup"]] = float(row["embedding_bits"] or body)
    return result


def _body_bits(row: dict, name: str) -> float:
    """Return bits per weight of the linear layers: the width plus the group's scale and zero."""
    if row["kind"] == "scheme":
        return float(row["bits"])
    width = re.search(r" ([\d.]+)(?:bit|bpw)", name)
    width = float(width[1]) if width else float(row["bits"])
    group = re.search(r" g(\d+)$", name)
    group = int(group[1]) if group else int(row["group"])
    zero = width if row["zero_bits"] == "b" else float(row["zero_bits"] or 0)
    return width + (float(row["scale_bits"] or 0) + zero) / group if group else width
