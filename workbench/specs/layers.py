"""Which layers a config asks for: the attention, recurrent mixer and FFN of each, equal ones
grouped."""

from collections import Counter
from typing import NamedTuple

from workbench.errors import SpecError
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
}
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
        SpecError: a per-layer list of the wrong length, an unknown layer kind, heads that do not
        divide.
    """
    count = config.integer("num_hidden_layers")
    config.skip(
        "intermediate_size",
        "qk_rope_head_dim",
        "expert_layer_period",
        "expert_layer_offset",
        "num_experts_per_tok",
        "use_sliding_window",
        "sliding_window",
        "sliding_window_pattern",
    )
    if config.get("hybrid_override_pattern") or config.get("layers_block_type"):
        kinds, ffns = _letters(config, count)
    else:
        kinds, ffns = _mixers(config, traits, count), _ffns(config, count)
    heads = [0] * count if traits.mixing == "only" else _heads(config, kinds)
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
    return Layer(
        attention, recurrent, ffn, heads if attention else 0, kv_heads, head_dim, width, own_kv
    )


def kv_geometry(config: Config, heads: int, full: bool) -> tuple[int, int]:
    """Return (kv_heads, head_dim) of a layer; Gemma 4's full layers have their own."""
    kv_heads = config.integer("num_key_value_heads", heads)
    if config.flag("multi_query") and not config.flag(
        "new_decoder_architecture"
    ):  # Falcon writes both
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
    sliding = config.get("attention_other_setting")
    if isinstance(sliding, dict) and not config.spelled("num_attention_heads_per_layer"):
        other = Config(sliding).integer("num_attention_heads")
        return [
            other if kind == "sliding" else n for kind, n in zip(kinds, everywhere, strict=True)
        ]
    config.skip("attention_other_setting")
    if config.spelled("num_attention_heads_per_layer"):
        return config.integers("num_attention_heads_per_layer", len(kinds))
    return everywhere


def _dense_widths(config: Config, traits: Traits, count: int) -> list[int]:
    for special in (
        "prefix_dense_intermediate_size",
        "intermediate_size_mlp",
        "shared_intermediate_size",
    ):
        if config.get(special):
            return [config.integer(special)] * count
    widths = config.integers(
        "intermediate_size", count, traits.ffn_per_hidden * config.integer("hidden_size") or None
    )
    if config.flag("block_auto_adjust_ff_dim"):  # LFM2 states the width before SwiGLU's 2/3
        step = config.integer("block_multiple_of", 256)
        return [-(-(2 * width // 3) // step) * step for width in widths]
    return [width // (1 + traits.doubled_width) for width in widths]


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


def _letters(config: Config, count: int) -> tuple[list[str], list[str]]:
    pattern = config.get("hybrid_override_pattern") or config.get("layers_block_type")
    if isinstance(pattern, list):
        short = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}
        pattern = [short.get(str(p), str(p)) for p in pattern]
    pattern = list(pattern) if isinstance(pattern, (str, list)) else pattern
    config.length("hybrid_override_pattern", pattern, count)
    if unknown := sorted(set(pattern) - set(LETTERS)):
        raise SpecError(
            f"hybrid_override_pattern: {str(unknown)[:60]} unknown; known: {' '.join(LETTERS)}"
        )
    mixers, ffns = zip(*(LETTERS[p] for p in pattern), strict=True)
    return list(mixers), list(ffns)


def _ffns(config: Config, count: int) -> list[str]:
    experts = config.integer("num_experts", 0, low=0)
    top_k = config.integer("num_experts_per_tok", 0, low=0) if experts else 0
    if experts > 1 and not top_k:
        raise SpecError(
            "num_experts_per_tok is missing: with experts, the bytes read per token depend on it"
        )
    if experts < top_k:
        raise SpecError(
            f"num_experts_per_tok: {top_k} exceeds the {experts} experts (num_experts) there are"
        )
    if experts <= 1 and not top_k:
        return ["dense"] * count
    routed = "both" if config.flag("enable_moe_block") else "moe"
    return [routed if is_moe else "dense" for is_moe in _moe_layers(config, count)]


def _moe_layers(config: Config, count: int) -> list[bool]:
    """Which layers route: leading dense layers, every n-th layer, or listed ones."""
    kinds = config.get("mlp_layer_types")
    if kinds is not None:
        config.length("mlp_layer_types", kinds, count)
        return [kind != "dense" for kind in kinds]
    if config.spelled("moe_layers_enum"):
        routed = set(config.items("moe_layers_enum"))
        return [i in routed for i in range(count)]
    if isinstance(config.get("moe_layer_freq"), list):
        return [on == 1 for on in _zeros_and_ones(config, "moe_layer_freq", count)]
    dense, step = set(config.items("mlp_only_layers")), _period(config)
    first = config.integer("first_k_dense_replace", 0, low=0)
    last = config.integer("moe_layer_end_index", count - 1, low=-1)
    last = count - 1 if last < 0 else last
    return [first <= i <= last and i % step[0] == step[1] and i not in dense for i in range(count)]


def _zeros_and_ones(config: Config, field: str, count: int) -> list[int]:
    values = config.get(field)
    config.length(field, values, count)
    return [whole(v, field, 0, 1) for v in values]


def _period(config: Config) -> tuple[int, int]:
    """(period, offset) of the routed layers: every layer unless the config says otherwise."""
    if config.spelled("expert_layer_period"):
        return config.integer("expert_layer_period"), config.integer(
            "expert_layer_offset", 0, low=0
        )
    if config.spelled("moe_layer_freq"):
        return config.integer("moe_layer_freq"), 0
    for name in ("moe_layer_interval", "decoder_sparse_step", "interleave_moe_layer_step"):
        if config.spelled(name):
            return config.integer(name), config.integer(name) - 1
    return 1, 0
