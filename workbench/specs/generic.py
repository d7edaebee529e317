"""An estimate of a model known only by its size: geometry interpolated over the catalogue,
parameters as given."""

import dataclasses
import math
import statistics

import numpy as np

from workbench import data
from workbench.errors import SpecError
from workbench.specs import hf
from workbench.specs.model import INDEX, Model

#: families that build a plain decoder: full attention, gated FFN, no latent or recurrent parts
DENSE = ("llama", "qwen2", "qwen3", "mistral", "ministral3")
SPARSE = (
    "qwen3_moe",
    "qwen2_moe",
    "mixtral",
    "olmoe",
    "dots1",
    "hunyuan_v1_moe",
    "minimax_m2",
    "glm4_moe",
)
FIELDS = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "max_context")
BANDWIDTH = (
    0.35  # of the kernel, in natural logarithms of parameters: models within about 40 % count
)


def generic(name: str, total_params: float, active_params: float | None = None) -> Model:
    """Return a Model of exactly `total_params` and `active_params` with typical geometry; see
    `Model.generic`.

    Raises:
        SpecError: sizes that are not finite and positive, or more active than total parameters.
    """
    total = _size(total_params, "total_params")
    active = total if active_params is None else _size(active_params, "active_params")
    if active > total:
        raise SpecError(f"active_params: {active:.4g} exceeds total_params {total:.4g}")
    sparse = active < 0.9 * total  # nearer than that, a name only rounds
    around = _interpolate(total, active, sparse)
    model = hf.account(
        _config(around, sparse),
        str(name)[:100],
        "estimate from size, interpolated over the catalogue",
    )
    return _rescale(model, total, active) if sparse else _scaled(model, total / model.total_params)


def usual_active(total: float) -> float:
    """Return the active parameters of a mixture of experts of `total`, as the median of those of
    about this size has them."""
    rows = [row for row in data.rows("models.csv") if row["arch_kind"] == "moe"]
    sizes = [(float(row["text_params"]), float(row["active_params"])) for row in rows]
    near = sorted(sizes, key=lambda size: abs(math.log(size[0] / total)))[:7]
    return total * statistics.median(active / size for size, active in near)


def _size(value, field: str) -> float:
    good = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not good or not math.isfinite(value) or not 1e5 <= value <= 1e14:
        raise SpecError(
            f"{field}: {str(value)[:40]!r} must be a number of parameters from 1e5 to 1e14"
        )
    return float(value)


def _interpolate(total: float, active: float, sparse: bool) -> dict[str, float]:
    """Kernel-weighted mean, in logarithms, of the geometry of catalogue models of about this
    size."""
    kinds = SPARSE if sparse else DENSE
    rows = [
        r
        for r in data.rows("models.csv")
        if r["model_type"] in kinds and r["attention_kind"] == "full"
    ]
    names = FIELDS + (("experts", "top_k", "moe_ffn") if sparse else ())
    table = np.log([[float(r[n]) for n in names] for r in rows])
    sizes = np.log([[float(r["text_params"]), float(r["active_params"])] for r in rows])
    distance = ((sizes - np.log([total, active])) ** 2).sum(axis=1) / (2 * BANDWIDTH**2)
    weights = np.exp(distance.min() - distance)
    weights /= weights.sum()
    tied = weights @ np.array([float(r["tied"]) for r in rows])
    return dict(zip(names, np.exp(weights @ table), strict=True)) | {"tied": tied}


def _config(around: dict[str, float], sparse: bool) -> dict:
    kv_heads = 2 ** round(math.log2(around["kv_heads"]))
    config = {
        "model_type": "qwen3_moe" if sparse else "llama",
        "num_hidden_layers": round(around["layers"]),
        "hidden_size": _wide(around["hidden"]),
        "num_attention_heads": kv_heads * max(1, round(around["heads"] / kv_heads)),
        "num_key_value_heads": kv_heads,
        "head_dim": 32 * max(1, round(around["head_dim"] / 32)),
        "intermediate_size": _wide(around["ffn"]),
        "vocab_size": round(around["vocab"]),
        "tie_word_embeddings": bool(around["tied"] > 0.5),
        "max_position_embeddings": round(around["max_context"]),
    }
    if sparse:
        experts = round(around["experts"])
        config |= {
            "num_experts": experts,
            "num_experts_per_tok": min(experts, max(1, round(around["top_k"]))),
            "moe_intermediate_size": _wide(around["moe_ffn"]),
        }
    return config


def _wide(size: float) -> int:
    """Round a row of weights to whole blocks of 256, as vendors do: else k-quants do not apply."""
    return 256 * max(1, round(size / 256))


def _scaled(model: Model, factor) -> Model:
    return dataclasses.replace(model, params=model.params * factor)


def _rescale(model: Model, total: float, active: float) -> Model:
    """Scale routed experts and the rest apart, so that both sizes come out as given.

    total = rest + routed, active = rest + routed k/E; where k/E of the neighbours leaves nothing
    for the rest,
    experts are made more.
    """
    share = min(model.top_k / model.experts, 0.6 * active / total)
    routed = (total - active) / (1.0 - share)
    mask = np.zeros_like(model.params)
    mask[[INDEX["expert_up"], INDEX["expert_down"]]] = 1.0
    before = model.params @ mask
    factor = mask * routed / before + (1.0 - mask) * (total - routed) / (
        model.params.sum() - before
    )
    return dataclasses.replace(_scaled(model, factor), experts=model.top_k / share)
