"""Which layers have a dense FFN, which route to experts, and how wide the dense ones are."""

from workbench.errors import SpecError
from workbench.specs.architectures import Traits
from workbench.specs.config import Config, whole


def kinds(config: Config, count: int) -> list[str]:
    """Return "dense", "moe" or "both" for each of `count` layers.

    Raises:
        SpecError: experts without a top-k, or fewer experts than it.
    """
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
    named = config.get("mlp_layer_types")
    if named is not None:
        config.length("mlp_layer_types", named, count)
        return [kind != "dense" for kind in named]
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
    values = config.length(field, config.get(field), count)
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


def dense_widths(config: Config, traits: Traits, count: int) -> list[int]:
    """Return the width of the dense FFN for each of `count` layers."""
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
