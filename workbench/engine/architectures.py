"""Which decoder a GGUF file asks for: one small description that the jitted step is compiled for.

Semantics follow llama.cpp src/models/*.cpp; what a family does not say is as in Llama.
"""

import math
from dataclasses import dataclass

import numpy as np

from workbench.engine.rope import Rope
from workbench.errors import FileError
from workbench.specs.gguf import Fields, head_dim_of, kv_heads_of, windows_of
from workbench.specs.gguf_header import GgufHeader


@dataclass(frozen=True)
class Family:
    """What an architecture does otherwise than Llama.

    Args:
        rope_style: which dimensions pair up, see rope.STYLES.
        activation: one of moe_experts.ACTIVATIONS.
        ffn_norm: tensor that normalises the feed-forward's input.
        scaled: embeddings are multiplied by sqrt(hidden).
        local_base: RoPE base of sliding-window layers, where it is not that of the others.
    """

    rope_style: str = "neox"
    activation: str = "silu"
    ffn_norm: str = "ffn_norm"
    scaled: bool = False
    local_base: float | None = None


#: general.architecture -> its family; Mistral and Mixtral files say "llama".
FAMILIES = {
    "llama": Family(rope_style="norm"),
    "qwen2": Family(),
    "qwen3": Family(),
    "qwen3moe": Family(),
    "gemma3": Family(activation="gelu", scaled=True, local_base=10_000.0),
    "gpt-oss": Family(activation="gpt-oss", ffn_norm="post_attention_norm"),
}
_GEMMA3_27B = 62  # layers; the one size whose scores are scaled by hidden / heads, not head_dim


@dataclass(frozen=True)
class Architecture:
    """All that the compiled step depends on besides the weights' types; hashable.

    Args:
        name: general.architecture.
        layers: decoder layers.
        hidden: width of the residual stream.
        heads: query heads of a layer.
        kv_heads: key and value heads of a layer.
        head_dim: width of a head.
        ffn: inner width of a feed-forward, of one expert if there are.
        vocab: tokens of the vocabulary.
        context: tokens the model was trained for.
        eps: of the RMS norms.
        rope: rotation of the layers that see everything.
        local_rope: rotation of sliding-window layers.
        window: tokens that a sliding-window layer sees, or None.
        slides: which layers have the window.
        scale: factor on q k, or None for 1 / sqrt(head_dim).
        experts: routed experts of a layer, 0 if dense.
        top_k: experts of a token.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    context: int
    eps: float
    rope: Rope
    local_rope: Rope
    window: int | None
    slides: tuple[bool, ...]
    scale: float | None
    experts: int
    top_k: int

    @property
    def family(self) -> Family:
        return FAMILIES[self.name]

    @property
    def kv_elements(self) -> int:
        """Return the K and V elements that one token adds in all layers together."""
        return 2 * self.layers * self.kv_heads * self.head_dim


def architecture(header: GgufHeader) -> Architecture:
    """Return the Architecture that a GGUF header describes.

    Raises:
        FileError: an architecture or setting that the decoder does not know, or a missing key.
    """
    fields = Fields(header)
    family = _family(fields)
    layers = fields.whole("block_count", high=10_000)
    heads = _alike(fields, "attention.head_count", fields.per_layer("attention.head_count", layers))
    kv_heads = _alike(fields, "attention.head_count_kv", kv_heads_of(fields, layers))
    head_dim = head_dim_of(fields, heads)
    if fields.whole("attention.value_length", head_dim) != head_dim or heads % kv_heads:
        raise FileError(
            f"{fields.file}: {heads} heads share {kv_heads} KV heads with keys of {head_dim} and "
            f"values of {fields.get('attention.value_length')}: equal groups and widths are run"
        )
    window, slides = windows_of(fields, layers)
    rope = _rope(fields, family, head_dim)
    local_base = _number(fields, "rope.freq_base_swa", family.local_base or rope.base)
    experts = fields.whole("expert_count", 0, low=0)
    return Architecture(
        name=fields.arch,
        layers=layers,
        hidden=fields.whole("embedding_length"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=_ffn(fields, experts),
        vocab=dict(zip(header.names, header.shapes, strict=True)).get("token_embd.weight", (0,))[
            -1
        ],
        context=fields.whole("context_length", high=10**10),
        eps=_number(fields, "attention.layer_norm_rms_epsilon", 1e-6),
        rope=rope,
        local_rope=Rope(rope.dims, local_base, rope.style) if family.local_base else rope,
        window=window or None,
        slides=tuple(slides),
        scale=_scale(fields, layers, heads),
        experts=experts,
        top_k=fields.whole("expert_used_count", high=experts) if experts else 0,
    )


def _family(fields: Fields) -> Family:
    if fields.arch not in FAMILIES:
        raise FileError(
            f"{fields.file}: architecture {fields.arch!r} has no decoder here; "
            f"these have: {', '.join(FAMILIES)}"
        )
    for key in ("attn_logit_softcapping", "final_logit_softcapping", "expert_shared_count"):
        if fields.get(key):
            raise FileError(f"{fields.file}: {fields.arch}.{key} is set, which no family here runs")
    return FAMILIES[fields.arch]


def _alike(fields: Fields, key: str, values: list[int]) -> int:
    if len(set(values)) != 1 or values[0] < 1:
        raise FileError(f"{fields.file}: {key} is {values[:8]}; one number above 0 is run")
    return values[0]


def _ffn(fields: Fields, experts: int) -> int:
    width = fields.whole("feed_forward_length")
    return fields.whole("expert_feed_forward_length", width) if experts else width


def _number(fields: Fields, key: str, default: float) -> float:
    value = fields.get(key, default)
    if not isinstance(value, int | float) or not 0 < value < math.inf:
        raise FileError(
            f"{fields.file}: {fields.arch}.{key} is {str(value)[:40]}; a positive number is right"
        )
    return float(value)


def _scale(fields: Fields, layers: int, heads: int) -> float | None:
    if fields.arch == "gemma3" and layers == _GEMMA3_27B:
        return (fields.whole("embedding_length") / heads) ** -0.5
    return _number(fields, "attention.scale", 1) if fields.get("attention.scale") else None


def _rope(fields: Fields, family: Family, head_dim: int) -> Rope:
    scaling = fields.get("rope.scaling.type", "none")
    if scaling not in ("none", "linear", "yarn"):
        raise FileError(
            f"{fields.file}: rope.scaling.type is {str(scaling)[:40]!r}; none, linear, yarn are run"
        )
    trained = fields.whole("context_length", high=10**10)
    return Rope(
        dims=fields.whole("rope.dimension_count", head_dim, high=head_dim),
        base=_number(fields, "rope.freq_base", 10_000),
        style=family.rope_style,
        scaling=scaling,
        beta_fast=_number(fields, "rope.scaling.yarn_beta_fast", 32),
        beta_slow=_number(fields, "rope.scaling.yarn_beta_slow", 1),
        factor=1.0 if scaling == "none" else _number(fields, "rope.scaling.factor", 1),
        original_context=fields.whole("rope.scaling.original_context_length", trained, high=10**10),
    )


def rope_divisors(arch: Architecture, file_factors: np.ndarray | None) -> np.ndarray:
    """Return (layers, dims / 2) float32: what each layer divides the frequencies of `arch.rope` by.

    Args:
        arch: the decoder.
        file_factors: (dims / 2,) the file's rope_freqs (Llama 3.1), or None.
    """
    everywhere = np.ones(arch.rope.dims // 2) if file_factors is None else file_factors
    local = arch.rope.frequencies / arch.local_rope.frequencies
    return np.stack([local if slides else everywhere for slides in arch.slides]).astype(np.float32)
