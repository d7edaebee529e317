"""Which layers a config asks for: the attention, recurrent mixer and FFN of each, equal ones
grouped."""

from collections import Counter
from typing import NamedTuple

from workbench.errors import SpecError
from workbench.specs import feedforward
from workbench.specs.architectures import Traits
from workbench.specs.config import LIMIT, Config, whole

KINDS = {
    "full_attention": "full",
    "attention": "full",
    "global": "full",
    "global_attention": "full",
    "full": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "sliding",
    "local": "sliding",
    "sliding": "sliding",
    "linear_attention": "recurrent",
    "mamba": "recurrent",
    "mamba2": "recurrent",
    "conv": "recurrent",
    "recurrent": "recurrent",
    "hybrid": "parallel",
    "indexed_attention": "full",
    # DeepSeek-V4: a window in every layer, and a compressed past that extras counts
    "compressed_sparse_attention": "sliding",
    "heavily_compressed_attention": "sliding",
}
#: Nemotron-H writes one letter a layer: mixer and FFN are layers of their own
LETTERS = {"M": ("recurrent", ""), "*": ("full", ""), "-": ("", "dense"), "E": ("", "moe")}
WORDS = {
    "mamba": "M",
    "linear_attention": "M",
    "attention": "*",
    "full_attention": "*",
    "mlp": "-",
    "moe": "E",
}
#: what transformers' `per_layer_config` may override
OVERRIDES = {
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "head_dim": "head_dim",
    "intermediate_size": "ffn_width",
}


#: counted as read, because they stay behind in models that have no part they would size
WITHOUT_EFFECT = (
    *("intermediate_size", "moe_intermediate_size", "num_experts_per_tok", "num_key_value_heads"),
    *("qk_rope_head_dim", "qk_head_dim", "expert_layer_period", "expert_layer_offset"),
    *("sliding_window", "sliding_window_pattern", "first_k_dense_replace"),
    "num_sliding_attention_heads",
)


class Layer(NamedTuple):
    """One decoder layer; empty text where a layer has no such part."""

    attention: str  # "full", "sliding"
    recurrent: bool
    ffn: str  # "dense", "moe", "both"
    heads: int
    kv_heads: int
    head_dim: int
    ffn_width: int
    own_kv: bool = True  # False: attends to the cache of an earlier layer


def plan(config: Config, traits: Traits) -> Counter[Layer]:
    """Return how many layers of each kind the model has.

    Raises:
        SpecError: a per-layer list of the wrong length, an unknown layer kind, heads that do not
        divide.
    """
    pattern = config.get("hybrid_override_pattern") or config.get("layers_block_type")
    count = config.integer("num_hidden_layers", len(pattern) if isinstance(pattern, list) else None)
    config.skip(*WITHOUT_EFFECT)
    if pattern:
        kinds, ffns = _letters(config, pattern, count)
    else:
        kinds, ffns = _mixers(config, traits, count), feedforward.kinds(config, count)
    if not traits.recurrent and {"recurrent", "parallel"} & set(kinds):
        raise SpecError("layer_types: recurrent layers, but this model_type has no such mixer")
    heads = [0] * count if traits.mixing == "only" else _heads(config, kinds)
    dense = {"dense", "both"} & set(ffns)
    widths = feedforward.dense_widths(config, traits, count) if dense else [0] * count
    shared = count - config.integer("num_kv_shared_layers", 0, low=0)
    layers = [
        _layer(config, kind, ffn, heads[i], widths[i], own_kv=i < shared)
        for i, (kind, ffn) in enumerate(zip(kinds, ffns, strict=True))
    ]
    return Counter(_overridden(config, layers))


def _overridden(config: Config, layers: list[Layer]) -> list[Layer]:
    per_layer = config.get("per_layer_config", {})
    if not isinstance(per_layer, dict):
        raise SpecError("per_layer_config: must be an object from layer number to fields")
    for index, fields in per_layer.items():
        known = isinstance(fields, dict) and set(fields) <= set(OVERRIDES)
        if not known or not str(index).isdecimal() or int(index) >= len(layers):
            raise SpecError(
                f"per_layer_config: {str(index)[:20]!r} must be a layer number with no fields but "
                f"{', '.join(OVERRIDES)}"
            )
        new = {OVERRIDES[k]: whole(v, f"per_layer_config.{k}", 1, LIMIT) for k, v in fields.items()}
        layers[int(index)] = layers[int(index)]._replace(**new)
    return layers


def _layer(config: Config, kind: str, ffn: str, heads: int, width: int, own_kv: bool) -> Layer:
    attention = {"recurrent": "", "parallel": "full"}.get(kind, kind)
    recurrent = kind in ("recurrent", "parallel")
    kv_heads, head_dim = kv_geometry(config, heads, attention == "full") if attention else (0, 0)
    if ffn in ("dense", "both") and not own_kv and config.flag("use_double_wide_mlp"):
        width *= 2
    return Layer(
        attention, recurrent, ffn, heads if attention else 0, kv_heads, head_dim, width, own_kv
    )


def kv_geometry(config: Config, heads: int, full: bool) -> tuple[int, int]:
    """Return (kv_heads, head_dim) of a layer; Gemma 4's full layers have their own."""
    kv_heads = config.integer("num_key_value_heads", heads)
    # Falcon writes num_kv_heads too, and means it in the new architecture only
    if config.flag("multi_query") and not config.flag("new_decoder_architecture"):
        kv_heads = 1
    head_dim = config.integer("head_dim", _head_dim(config))
    if full:
        kv_heads = config.integer("num_global_key_value_heads", kv_heads)
        head_dim = config.integer("global_head_dim", head_dim)
    if heads % kv_heads:
        raise SpecError(
            f"num_attention_heads: {heads} is not a multiple of num_key_value_heads {kv_heads}; "
            "every KV head serves the same number of query heads"
        )
    return kv_heads, head_dim


def _head_dim(config: Config) -> int | None:
    if config.spelled("head_dim") or config.get("head_dim"):
        return None
    if config.get("kv_lora_rank"):
        return config.integer("qk_nope_head_dim") + config.integer("qk_rope_head_dim")
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    if hidden % heads:
        raise SpecError(
            f"hidden_size: {hidden} is not a multiple of num_attention_heads {heads} "
            "and head_dim is missing"
        )
    return hidden // heads


def _heads(config: Config, kinds: list[str]) -> list[int]:
    everywhere = config.integers("num_attention_heads", len(kinds))
    if config.spelled("num_attention_heads_per_layer"):
        config.skip("attention_other_setting", "num_sliding_attention_heads")
        return config.integers("num_attention_heads_per_layer", len(kinds))
    other = config.get("attention_other_setting")
    sliding = Config(other) if isinstance(other, dict) else config
    field = "num_attention_heads" if isinstance(other, dict) else "num_sliding_attention_heads"
    return [
        sliding.integer(field, n) if kind == "sliding" else n
        for kind, n in zip(kinds, everywhere, strict=True)
    ]


def _mixers(config: Config, traits: Traits, count: int) -> list[str]:
    names = config.get("layer_types")
    if names is not None:
        predicted = config.integer("num_nextn_predict_layers", 0, low=0)
        if isinstance(names, list) and len(names) == count + predicted:
            names = names[:count]
        config.length("layer_types", names, count)
        return [_kind(name, config) for name in names]
    indices = range(count)
    if (full := _full_layers(config)) is not None:
        return ["full" if i in full else "recurrent" for i in indices]
    if config.spelled("attn_layer_period"):
        period, offset = (
            config.integer("attn_layer_period"),
            config.integer("attn_layer_offset", low=0),
        )
        return ["full" if i % period == offset else "recurrent" for i in indices]
    if not traits.recurrent:
        return _windows(config, traits, count)
    if traits.mixing == "interval" and config.get("full_attention_interval") is None:
        raise SpecError("layer_types is missing: it says which layers have attention and a cache")
    if traits.mixing == "interval":
        every = config.integer("full_attention_interval")
        return ["full" if (i + 1) % every == 0 else "recurrent" for i in indices]
    return ["parallel" if traits.mixing == "parallel" else "recurrent"] * count


def _windows(config: Config, traits: Traits, count: int) -> list[str]:
    opted = config.flag("use_sliding_window", traits.windows != "opt-in")
    if not traits.windows or not config.get("sliding_window") or not opted:
        return ["full"] * count
    if config.integer("sliding_window") > config.integer("max_position_embeddings", LIMIT):
        return ["full"] * count
    if traits.windows == "opt-in":
        start = config.integer("max_window_layers", 0, low=0)
        return ["full" if i < start else "sliding" for i in range(count)]
    every = count + 1 if traits.windows == "all" else config.integer("sliding_window_pattern")
    return ["full" if (i + 1) % every == 0 else "sliding" for i in range(count)]


def _kind(name, config: Config) -> str:
    if not isinstance(name, str) or name not in KINDS:
        raise SpecError(
            f"layer_types: {str(name)[:40]!r} is not a kind of layer known here; "
            f"known: {', '.join(KINDS)}"
        )
    kind = KINDS[name]
    return "full" if kind == "sliding" and not config.get("sliding_window") else kind


def _full_layers(config: Config) -> set[int] | None:
    """Indices from 0 of the attention layers, where a config lists them."""
    kimi = config.get("linear_attn_config")
    if isinstance(kimi, dict):
        return {i - 1 for i in Config(kimi).items("full_attn_layers")}
    return set(config.items("full_attn_idxs")) if config.spelled("full_attn_idxs") else None


def _letters(config: Config, pattern, count: int) -> tuple[list[str], list[str]]:
    if isinstance(pattern, list):
        pattern = [WORDS.get(str(p), str(p)) for p in pattern]
    config.length(
        "hybrid_override_pattern", list(pattern) if isinstance(pattern, str) else pattern, count
    )
    if unknown := sorted(set(pattern) - set(LETTERS)):
        raise SpecError(
            f"hybrid_override_pattern: {str(unknown)[:60]} unknown; known: {' '.join(LETTERS)}"
        )
    mixers, ffns = zip(*(LETTERS[p] for p in pattern), strict=True)
    return list(mixers), list(ffns)
