"""Tensors beside attention and FFN: norms, embeddings, output head, per-layer embeddings, hyper-connections."""

from collections import Counter

from workbench.specs.architectures import Traits
from workbench.specs.config import Config
from workbench.specs.layers import Layer


def tied(config: Config, traits: Traits) -> bool:
    """Whether the embedding doubles as the output head."""
    return config.flag("tie_word_embeddings", traits.tied)


def outside_layers(config: Config, traits: Traits, layers: Counter[Layer]) -> Counter:
    """Return the parameters that exist once: embedding, head, last norm, positions, and the family's own."""
    hidden, vocab = config.integer("hidden_size"), config.integer("vocab_size")
    norm = traits.final_norms * hidden * (1 + traits.norm_bias)
    total = Counter(embedding=vocab * hidden, norm=norm + traits.head_bias * vocab)
    if not tied(config, traits):
        total["output"] = vocab * hidden
    if traits.positions is not None:
        total["lookup"] = hidden * (config.integer("max_position_embeddings") + traits.positions)
    return total + per_layer_embedding(config, layers.total()) + altup_model(config)


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
    """Gemma 3n's table with one row per token and layer, and its projection from the hidden state."""
    width = config.integer("hidden_size_per_layer_input", 0, low=0)
    if not width:
        return Counter()
    table = config.integer("vocab_size_per_layer_input", config.integer("vocab_size")) * layers * width
    return Counter(lookup=table, ffn_up=config.integer("hidden_size") * layers * width, norm=width)


def altup_model(config: Config) -> Counter:
    """AltUp (arXiv 2301.13310): projections to and from the further hidden streams."""
    streams = config.integer("altup_num_inputs", 1)
    return Counter(ffn_up=2 * (streams - 1) * config.integer("hidden_size") ** 2) if streams > 1 else Counter()


def altup_layer(config: Config) -> Counter:
    """AltUp's router and coefficients, and LAuReL's low-rank residual (arXiv 2411.07501)."""
    streams, hidden = config.integer("altup_num_inputs", 1), config.integer("hidden_size")
    if streams == 1:
        return Counter()
    rank = config.integer("laurel_rank", 64)
    return Counter(ffn_up=hidden * rank, ffn_down=rank * hidden,
                   norm=3 * hidden + hidden * streams + streams**2 + streams**3)


def compressed_cache(config: Config, traits: Traits) -> tuple[int, int]:
    """Return (elements per token, fixed window buffer) of DeepSeek-V4's compressed caches; zeros elsewhere."""
    return 0, 0
