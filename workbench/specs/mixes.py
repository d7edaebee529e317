"""How llama.cpp's quantiser and Unsloth mix tensor types within one file."""

import functools

import numpy as np

from workbench import data
from workbench.specs.model import INDEX, TENSOR_CLASSES, Model

#: tensor class -> the rule that llama.cpp applies to it; the rest take the mix's base type.
_RULE_OF = {
    "attention_v": "attention_v",
    "attention_out": "attention_out",
    "recurrent": "recurrent",
    "ffn_up": "ffn_up",
    "expert_up": "ffn_up",
    "shared_up": "ffn_up",
    "ffn_down": "ffn_down",
    "expert_down": "ffn_down",
    "shared_down": "ffn_down",
}
#: type of 256-weight blocks -> the type used instead for rows that are no multiple of 256.
_FALLBACK = {
    "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0", "Q3_K": "Q4_0", "Q2_K": "Q4_0",
    "TQ1_0": "Q4_0", "TQ2_0": "Q4_0", "Q2_0": "Q4_0",
}  # fmt: skip


@functools.cache
def tensor_types() -> dict[str, dict[str, str]]:
    """Return the rows of formats.csv that are ggml tensor types, by name."""
    return {row["name"]: row for row in data.rows("formats.csv") if row["kind"] == "ggml"}


@functools.cache
def mixes() -> dict[str, dict]:
    """Return the rules of every file mix by name; a tensor type without rules is its own mix."""
    document = data.document("quant_mixes.json")
    plain = {name: {"base": name, "output": "Q6_K"} for name in tensor_types()}
    return plain | document["llama.cpp"] | document["unsloth"]


def mix_bits(mix: dict, model: Model) -> np.ndarray:
    """Return the bits per weight (tensor_class,) that the rules of `mix` give `model`.

    Source: llama.cpp src/llama-quant.cpp, llama_tensor_get_type_impl.
    """
    return np.array([_class_bits(mix, name, model) for name in TENSOR_CLASSES])


def _class_bits(mix: dict, name: str, model: Model) -> float:
    row = _row_length(name, model)
    if name in ("norm", "router"):
        return 32.0
    if name in ("output", "lookup") or (name == "embedding" and model.tied):
        return _type_bits(mix["output"], row)
    if name == "embedding":
        return _type_bits(mix.get("embedding", mix["base"]), row)
    if name == "attention_qk":
        return _query_key_bits(mix, model, row)
    rules = mix.get(name, mix.get(_RULE_OF.get(name, ""), []))
    return _ruled_bits(mix["base"], rules, model, row)


def _query_key_bits(mix: dict, model: Model, row: float) -> float:
    if not model.params[INDEX["attention_v"]] and model.kv_heads and "deepseek" not in model.arch:
        # q, k and v are one tensor, which the quantiser treats as v
        return _ruled_bits(mix["base"], mix.get("attention_v", []), model, row)
    both = mix.get("attention_qk", [])
    query = _ruled_bits(mix["base"], both, model, row)
    key = _ruled_bits(mix["base"], both + mix.get("attention_k", []), model, row)
    share = float(model.kv_heads) / max(float(model.heads) + float(model.kv_heads), 1.0)
    return (1 - share) * query + share * key


def _ruled_bits(base: str, rules: list[str], model: Model, row: float) -> float:
    bits = np.full(max(int(model.layers), 1), _type_bits(base, row))
    for rule in rules:
        rule, _, condition = rule.partition(" if ")
        kind, _, layers = rule.partition(" in ")
        if not condition or _holds(condition, model):
            bits[_layers(layers, len(bits))] = _type_bits(kind, row)
    return float(bits.mean())


def _holds(condition: str, model: Model) -> bool:
    shared = float(model.heads) / max(float(model.kv_heads), 1.0)
    return {
        "gqa": shared >= 4,
        "4 experts": model.experts >= 4,
        "8 experts": model.experts == 8,
        "70B": model.layers == 80 and shared > 1 and not model.experts,
    }[condition]


def _layers(where: str, n: int) -> np.ndarray:
    i = np.arange(n)
    return {
        "": i >= 0,
        "more": (i < n // 8) | (i >= 7 * n // 8) | ((i - n // 8) % 3 == 2),
        "first 2": i < 2,
        "first 4": i < 4,
        "first 1/8": i < n // 8,
        "first 1/16": i < n // 16,
        "middle 3/4": (i >= n // 8) & (i < 7 * n // 8),
    }[where]


def _type_bits(kind: str, row: float) -> float:
    if row and row % float(tensor_types()[kind]["block"]):
        kind = _FALLBACK.get(kind, "IQ4_NL" if kind.startswith("IQ") else "F16")
    return float(tensor_types()[kind]["bits"])


def _row_length(name: str, model: Model) -> float:
    """Return the length of a row of the tensors of class `name`, 0 where it does not matter."""
    if name == "attention_out":
        return float(model.heads) * float(model.head_dim)
    if name == "ffn_down":
        return float(model.ffn)
    if name == "expert_down" and model.experts and model.moe_layers:
        rows = float(model.experts) * float(model.moe_layers) * float(model.hidden)
        # biases are counted with the experts; every real width is a multiple of 32
        return 32.0 * round(float(model.params[INDEX[name]]) / rows / 32)
    plain = name in ("embedding", "output", "attention_qk", "attention_v") or name.endswith("_up")
    return float(model.hidden) if plain else 0.0
