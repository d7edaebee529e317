"""Tensors beside attention and FFN: norms, embeddings, output head, per-layer embeddings, hyper-
connections."""

from collections import Counter

from workbench.specs import accounting
from workbench.specs.architectures import Traits
from workbench.specs.config import LIMIT, Config, whole
from workbench.specs.layers import Layer


def tied(config: Config, traits: Traits) -> bool:
    """Whether the embedding doubles as the output head."""
    return config.flag("tie_word_embeddings", traits.tied)


def outside_layers(config: Config, traits: Traits, layers: Counter[Layer]) -> Counter:
    """Return the parameters that exist once: embedding, head, last norm, positions, and the
    family's own."""
    hidden, vocab = config.integer("hidden_size"), config.integer("vocab_size")
    norm = traits.final_norms * hidden * (1 + traits.norm_bias)
    width = config.integer(
        "word_embed_proj_dim", hidden
    )  # OPT-350M embeds narrower than it computes
    total = Counter(embedding=vocab * width, norm=norm + traits.head_bias * vocab)
    total["ffn_up"] = 2 * hidden * width * (width != hidden)
    if not tied(config, traits):
        total["output"] = vocab * hidden
    if traits.positions is not None:
        total["lookup"] = hidden * (config.integer("max_position_embeddings") + traits.positions)
    for part in (
        per_layer_embedding(config, layers.total()),
        altup_model(config),
        compressors(config, traits),
        prediction(config, traits, layers),
    ):
        total.update(part)
    return total


def inside_layer(config: Config, traits: Traits, layer: Layer) -> Counter:
    """Return a layer's norms and the family's own additions."""
    hidden = config.integer("hidden_size")
    parts = bool(layer.attention or layer.recurrent) + bool(layer.ffn)
    norms = traits.norms * hidden * (1 + traits.norm_bias) * parts // 2
    total = Counter(norm=norms)
    width = config.integer("hidden_size_per_layer_input", 0, low=0)
    if width:
        total += Counter(ffn_up=hidden * width, ffn_down=width * hidden, norm=hidden)
    return total + altup_layer(config)


def per_layer_embedding(config: Config, layers: int) -> Counter:
    """Gemma 3n's table with one row per token and layer, and its projection from the hidden
    state."""
    width = config.integer("hidden_size_per_layer_input", 0, low=0)
    if not width:
        return Counter()
    table = (
        config.integer("vocab_size_per_layer_input", config.integer("vocab_size")) * layers * width
    )
    return Counter(lookup=table, ffn_up=config.integer("hidden_size") * layers * width, norm=width)


def altup_model(config: Config) -> Counter:
    """AltUp (arXiv 2301.13310): projections to and from the further hidden streams."""
    streams = config.integer("altup_num_inputs", 1)
    return (
        Counter(ffn_up=2 * (streams - 1) * config.integer("hidden_size") ** 2)
        if streams > 1
        else Counter()
    )


def altup_layer(config: Config) -> Counter:
    """AltUp's router and coefficients, and LAuReL's low-rank residual (arXiv 2411.07501)."""
    streams, hidden = config.integer("altup_num_inputs", 1), config.integer("hidden_size")
    if streams == 1:
        return Counter()
    rank = config.integer("laurel_rank", 64)
    return Counter(
        ffn_up=hidden * rank,
        ffn_down=rank * hidden,
        norm=3 * hidden + hidden * streams + streams**2 + streams**3,
    )


def _ratios(config: Config) -> list[int]:
    """Compression ratio of each layer of DeepSeek-V4, 0 where it keeps the window alone."""
    ratios, rates = config.get("compress_ratios"), config.get("compress_rates")
    count = config.integer("num_hidden_layers")
    kinds = config.get("layer_types")
    if isinstance(rates, dict) and isinstance(kinds, list):
        ratios = [rates.get(str(kind), 0) for kind in kinds]
    if isinstance(ratios, list):
        ratios = ratios[:count]  # prediction layers follow
    ratios = config.length("compress_ratios", ratios, count)
    return [whole(ratio, "compress_ratios", 0, LIMIT) for ratio in ratios]


def compressors(config: Config, traits: Traits) -> Counter:
    """Return DeepSeek-V4's compressors, its indexer where the ratio is small enough to need one,
    and stream mixers."""
    if traits.attention != "compressed":
        return Counter()
    hidden, dim, streams = (
        config.integer("hidden_size"),
        config.integer("head_dim"),
        config.integer("hc_mult"),
    )
    heads, index = config.integer("index_n_heads"), config.integer("index_head_dim")
    config.skip("index_topk", "n_group")
    ratios = _ratios(config)
    indexed = (
        hidden * 4 * (dim + index) + config.integer("q_lora_rank") * heads * index + hidden * heads
    )
    mixers = 2 * streams * hidden * streams * (streams + 2)
    return Counter(
        attention_qk=sum(indexed if _indexed(r) else 2 * hidden * dim for r in ratios if r),
        norm=len(ratios) * mixers,
    )


def _indexed(ratio: int) -> bool:
    # overlapping windows of few tokens are picked by an indexer; long ones are all read
    return 0 < ratio <= 4


def compressed_cache(config: Config, traits: Traits) -> tuple[float, float, float]:
    """Return DeepSeek-V4's (elements per token, fixed window buffer, FLOPs per cached token); zeros
    elsewhere."""
    if traits.attention != "compressed":
        return 0.0, 0.0, 0.0
    dim, index = config.integer("head_dim"), config.integer("index_head_dim")
    scored = 2 * config.integer("index_n_heads") * index
    read = 4 * config.integer("num_attention_heads") * dim
    ratios = _ratios(config)
    elements = sum((dim + index * _indexed(r)) / r for r in ratios if r)
    flops = sum((scored if _indexed(r) else read) / r for r in ratios if r)
    return elements, float(len(ratios) * config.integer("sliding_window") * dim), flops


def prediction(config: Config, traits: Traits, layers: Counter[Layer]) -> Counter:
    """Return the multi-token-prediction layers (DeepSeek-V3, arXiv 2412.19437): a block and a 2 to
    1 projection each."""
    count = config.integer("num_nextn_predict_layers", 0, low=0)
    if not count or traits.attention == "compressed":
        return Counter()
    hidden = config.integer("hidden_size")
    like = _like_last(config, traits, layers)
    block = accounting.attention(config, traits, like) + accounting.ffn(config, traits, like)
    block += inside_layer(config, traits, like)
    own = 2 * config.integer("vocab_size") * hidden if traits.prediction == "embeddings" else 0
    return Counter(mtp=count * (block.total() + 2 * hidden**2 + 3 * hidden + own))


def _like_last(config: Config, traits: Traits, layers: Counter[Layer]) -> Layer:
    """The block a prediction layer copies: full attention, and routed where the model routes."""
    last = next((x for x in reversed(layers) if x.attention == "full"), next(reversed(layers)))
    routed = any(x.ffn == "moe" for x in layers) and traits.prediction != "dense"
    width = last.ffn_width or config.integer("intermediate_size", 0, low=0)
    return last._replace(ffn="moe" if routed else "dense", ffn_width=width)
