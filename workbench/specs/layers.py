"""Which layers a config asks for: the attention, recurrent mixer and FFN of each, equal ones grouped."""

from collections import Counter
from typing import NamedTuple

from workbench.errors import SpecError
from workbench.specs.architectures import Traits
from workbench.specs.config import Config

KINDS = {
    "full_attention": "full", "attention": "full", "global": "full", "global_attention": "full", "full": "full",
    "sliding_attention": "sliding", "chunked_attention": "sliding", "local": "sliding", "sliding": "sliding",
    "linear_attention": "recurrent", "mamba": "recurrent", "mamba2": "recurrent", "conv": "recurrent",
    "recurrent": "recurrent", "hybrid": "parallel",
}  # fmt: skip
#: Nemotron-H writes one letter a layer: mixer and FFN are layers of their own
LETTERS = {"M": ("recurrent", ""), "*": ("full", ""), "-": ("", "dense"), "E": ("", "moe")}


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
        SpecError: a per-layer list of the wrong length, an unknown layer kind, heads that do not divide.
    """
    count = config.integer("num_hidden_layers")
    config.skip("intermediate_size", "qk_rope_head_dim", "expert_layer_period", "expert_layer_offset")
    if config.get("hybrid_override_pattern") or config.get("layers_block_type"):
        kinds, ffns = _letters(config, count)
    else:
        kinds, ffns = _mixers(config, traits, count), _ffns(config, count)
    heads = [0] * count if traits.mixing == "only" else _heads(config, count)
    widths = _dense_widths(config, traits, count) if {"dense", "both"} & set(ffns) else [0] * count
    shared = count - config.integer("num_kv_shared_layers", 0, low=0)
    layers = [
        _layer(config, kind, ffn, heads[i], widths[i], own_kv=i < shared)
        for i, (kind, ffn) in enumerate(zip(kinds, ffns, strict=True))
    ]
    return Counter(layers)


def _layer(config: Config, kind: str, ffn: str, heads: int, width: int, own_kv: bool) -> Layer:
    attention = {"recurrent": "", "parallel": "full"}.get(kind, kind)
    recurrent = kind in ("recurrent", "parallel")
    kv_heads, head_dim = kv_geometry(config, heads, attention == "full") if attention else (0, 0)
    if ffn in ("dense", "both") and not own_kv and config.flag("use_double_wide_mlp"):
        width *= 2
    return Layer(attention, recurrent, ffn, heads if attention else 0, kv_heads, head_dim, width, own_kv)


def kv_geometry(config: Config, heads: int, full: bool) -> tuple[int, int]:
    """Return (kv_heads, head_dim) of a layer; Gemma 4's full layers have their own."""
    kv_heads = config.integer("num_key_value_heads", 1 if config.get("multi_query") is True else heads)
    head_dim = config.integer("head_dim", _head_dim(config))
    if full:
        kv_heads = config.integer("num_global_key_value_heads", kv_heads)
        head_dim = config.integer("global_head_dim", head_dim)
    if heads % kv_heads:
        raise SpecError(f"num_attention_heads: {heads} is not a multiple of num_key_value_heads {kv_heads}; "
                        "every KV head serves the same number of query heads")
    return kv_heads, head_dim


def _head_dim(config: Config) -> int | None:
    if config.spelled("head_dim") or config.get("head_dim"):
        return None
    if config.get("kv_lora_rank"):
        return config.integer("qk_nope_head_dim") + config.integer("qk_rope_head_dim")
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    if hidden % heads:
        raise SpecError(f"hidden_size: {hidden} is not a multiple of num_attention_heads {heads} and head_dim is missing")
    return hidden // heads


def _heads(config: Config, count: int) -> list[int]:
    if config.spelled("num_attention_heads_per_layer"):
        config.integer("num_attention_heads", 1)
        return config.integers("num_attention_heads_per_layer", count)
    return config.integers("num_attention_heads", count)


def _dense_widths(config: Config, traits: Traits, count: int) -> list[int]:
    for special in ("prefix_dense_intermediate_size", "intermediate_size_mlp", "shared_intermediate_size"):
        if config.get(special):
            return [config.integer(special)] * count
    widths = config.integers("intermediate_size", count, traits.ffn_per_hidden * config.integer("hidden_size") or None)
    return [width // (1 + traits.doubled_width) for width in widths]


def _mixers(config: Config, traits: Traits, count: int) -> list[str]:
    names = config.get("layer_types")
    if names is not None:
        config.length("layer_types", names, count)
        return [_kind(name, config) for name in names]
    indices = range(count)
    if (full := _full_layers(config)) is not None:
        return ["full" if i in full else "recurrent" for i in indices]
    if config.spelled("attn_layer_period"):
        period, offset = config.integer("attn_layer_period"), config.integer("attn_layer_offset", low=0)
        return ["full" if i % period == offset else "recurrent" for i in indices]
    if not traits.recurrent:
        return _windows(config, traits, count)
    if traits.mixing == "interval":
        every = config.integer("full_attention_interval")
        return ["full" if (i + 1) % every == 0 else "recurrent" for i in indices]
    return ["parallel" if traits.mixing == "parallel" else "recurrent"] * count


def _windows(config: Config, traits: Traits, count: int) -> list[str]:
    window, opted = config.get("sliding_window"), config.get("use_sliding_window", traits.windows != "opt-in")
    if not traits.windows or not window or not opted:
        return ["full"] * count
    if traits.windows == "opt-in":
        start = config.integer("max_window_layers", 0, low=0)
        return ["full" if i < start else "sliding" for i in range(count)]
    every = count + 1 if traits.windows == "all" else config.integer("sliding_window_pattern")
    return ["full" if (i + 1) % every == 0 else "sliding" for i in range(count)]


def _kind(name, config: Config) -> str:
    if name not in KINDS:
        raise SpecError(f"layer_types: {str(name)[:40]!r} is not a kind of layer known here; known: {', '.join(KINDS)}")
    kind = KINDS[name]
    return "full" if kind == "sliding" and not config.get("sliding_window") else kind


def _full_layers(config: Config) -> set[int] | None:
    """Indices from 0 of the attention layers, where a config lists them."""
    listed = config.get("full_attn_idxs") or config.get("attn_layer_indices")
    kimi = config.get("linear_attn_config")
    if isinstance(kimi, dict) and isinstance(kimi.get("full_attn_layers"), list):
        return {i - 1 for i in kimi["full_attn_layers"] if isinstance(i, int)}
    return set(listed) if isinstance(listed, list) else None


def _letters(config: Config, count: int) -> tuple[list[str], list[str]]:
    pattern = config.get("hybrid_override_pattern") or config.get("layers_block_type")
    if isinstance(pattern, list):
        short = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}
        pattern = [short.get(p, str(p)) for p in pattern]
    pattern = list(pattern) if isinstance(pattern, (str, list)) else pattern
    config.length("hybrid_override_pattern", pattern, count)
    unknown = set(pattern) - set(LETTERS)
    if unknown:
        raise SpecError(f"hybrid_override_pattern: {sorted(unknown)[:5]} unknown; known: {' '.join(LETTERS)}")
    mixers, ffns = zip(*(LETTERS[p] for p in pattern), strict=True)
    return list(mixers), list(ffns)


def _ffns(config: Config, count: int) -> list[str]:
    experts = config.integer("num_experts", 0, low=0)
    top_k = config.integer("num_experts_per_tok", 0, low=0) if experts else 0
    if experts > 1 and not top_k:
        raise SpecError("num_experts_per_tok is missing: with experts, the bytes read per token depend on it")
    if experts < top_k:
        raise SpecError(f"num_experts_per_tok: {top_k} exceeds the {experts} experts (num_experts) there are")
    if experts <= 1 and not top_k:
        return ["dense"] * count
    routed = "both" if config.get("enable_moe_block", False) else "moe"
    return [routed if is_moe else "dense" for is_moe in _moe_layers(config, count)]


def _moe_layers(config: Config, count: int) -> list[bool]:
    """Which layers route: leading dense layers, every n-th layer, or listed ones."""
    kinds = config.get("mlp_layer_types")
    if kinds is not None:
        config.length("mlp_layer_types", kinds, count)
        return [kind != "dense" for kind in kinds]
    frequency = config.get("moe_layer_freq", 1)
    if isinstance(frequency, list):
        return [bool(on) for on in config.integers("moe_layer_freq", count)]
    dense = config.get("mlp_only_layers", [])
    lead = config.integer("first_k_dense_replace", 0, low=0)
    step, offset = 1, 0
    for name, where in (("moe_layer_freq", 0), ("moe_layer_interval", -1), ("decoder_sparse_step", -1),
                        ("interleave_moe_layer_step", -1), ("expert_layer_period", None)):
        if config.spelled(name):
            step = config.integer(name)
            offset = config.integer("expert_layer_offset", 0, low=0) if where is None else where % step
    return [i >= lead and i % step == offset and i not in dense for i in range(count)]
