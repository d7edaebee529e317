"""Parameters, cache elements and FLOPs of one layer, from its config: a Counter of tensor class to
parameters."""

from collections import Counter

from workbench.specs.architectures import Traits
from workbench.specs.config import Config
from workbench.specs.layers import Layer


def attention(config: Config, traits: Traits, layer: Layer) -> Counter:
    """Return the parameters of one attention block: grouped-query, multi-head latent or
    compressed."""
    if latent(config, traits):
        return _latent(config, layer)
    if traits.attention == "compressed":
        return _compressed(config, layer)
    return _grouped(config, traits, layer)


def _grouped(config: Config, traits: Traits, layer: Layer) -> Counter:
    hidden = config.integer("hidden_size")
    q, kv = layer.heads * layer.head_dim, layer.kv_heads * layer.head_dim
    v = 0 if config.flag("attention_k_eq_v") and layer.attention == "full" else kv
    q_norm, k_norm = _qk_norm(config, traits, layer)
    biased = config.flag("attention_bias", traits.qkv_bias)
    small = q_norm + biased * (q + kv + v) + traits.out_bias * hidden + traits.sinks * layer.heads
    gate = {"element": q, "head": layer.heads}.get(traits.gate, 0)
    total = Counter(attention_qk=hidden * (q + gate), attention_out=q * hidden, norm=small)
    own = Counter(attention_qk=hidden * kv, attention_v=hidden * v, norm=k_norm)
    # a layer that uses the cache of an earlier one still has K and V in the checkpoint; nobody
    # reads them
    return total + (own if layer.own_kv else Counter(lookup=own.total()))


def _qk_norm(config: Config, traits: Traits, layer: Layer) -> tuple[int, int]:
    if not traits.qk_norm or not config.flag("use_qk_norm", True):
        return 0, 0
    wide = traits.qk_norm == "heads"
    return layer.head_dim * (layer.heads if wide else 1), layer.head_dim * (
        layer.kv_heads if wide else 1
    )


def latent(config: Config, traits: Traits) -> bool:
    """Whether the cache holds MLA's latent vector instead of K and V."""
    return traits.attention == "latent" and bool(config.get("kv_lora_rank"))


def _latent(config: Config, layer: Layer) -> Counter:
    """MLA, DeepSeek-V2 (arXiv 2405.04434, section 2.1): K and V come from one latent vector per
    token."""
    hidden, heads = config.integer("hidden_size"), layer.heads
    width, rope = config.integer("kv_lora_rank"), config.integer("qk_rope_head_dim")
    nope, value = config.integer("qk_nope_head_dim"), config.integer("v_head_dim")
    query, rank = heads * (nope + rope), config.integer("q_lora_rank", 0, low=0)
    q = hidden * rank + rank * query if rank else hidden * query
    kv = hidden * (width + rope) + width * heads * (nope + value)
    index, index_dim = _indexer(config)
    picks = rank * index * index_dim + hidden * (index_dim + index)
    return Counter(
        attention_qk=q + kv + picks,
        attention_out=heads * value * hidden,
        norm=rank + width + 2 * index_dim,
    )


def _indexer(config: Config) -> tuple[int, int]:
    """Heads and head_dim of DeepSeek-V3.2's indexer (arXiv 2512.02556), which keeps a key per
    token."""
    config.skip("index_topk")  # engines that ignore it read everything; that is what is counted
    return config.integer("index_n_heads", 0, low=0), config.integer("index_head_dim", 0, low=0)


def _compressed(config: Config, layer: Layer) -> Counter:
    """DeepSeek-V4: one KV head, low-rank q, and an output projection that is low-rank in groups of
    heads."""
    hidden, q, kv = (
        config.integer("hidden_size"),
        layer.heads * layer.head_dim,
        layer.kv_heads * layer.head_dim,
    )
    rank, out_rank, groups = (config.integer(n) for n in ("q_lora_rank", "o_lora_rank", "o_groups"))
    return Counter(
        attention_qk=hidden * rank + rank * q + hidden * kv,
        norm=rank + kv + layer.heads,
        attention_out=q * out_rank + groups * out_rank * hidden,
    )


def kv_elements(config: Config, traits: Traits, layer: Layer) -> int:
    """Return the cache elements one token adds in one layer: K and V of every KV head, or MLA's
    latent and RoPE key."""
    if not layer.attention or not layer.own_kv or traits.attention == "compressed":
        return 0
    if latent(config, traits):
        rope, index_dim = config.integer("qk_rope_head_dim"), _indexer(config)[1]
        return config.integer("kv_lora_rank") + rope + index_dim
    return 2 * layer.kv_heads * layer.head_dim


def attention_flops(config: Config, traits: Traits, layer: Layer) -> int:
    """Return the FLOPs of one query on one cached token: 2 for QK and 2 for PV per head element.

    MLA works in the latent space (absorbed form): 2 (latent + rope) for QK and 2 latent for PV per
    head.
    """
    if latent(config, traits):
        width, rope = config.integer("kv_lora_rank"), config.integer("qk_rope_head_dim")
        index, index_dim = _indexer(config)
        return 2 * layer.heads * (2 * width + rope) + 2 * index * index_dim
    return 4 * layer.heads * layer.head_dim


def ffn(config: Config, traits: Traits, layer: Layer) -> Counter:
    """Return the parameters of one FFN: dense, routed experts with shared ones, or both."""
    total = Counter()
    if layer.ffn in ("dense", "both"):
        total += _mlp(config, traits, layer.ffn_width, "ffn")
    if layer.ffn in ("moe", "both"):
        total += _moe(config, traits, layer)
    return total


def _mlp(
    config: Config, traits: Traits, width: int, kind: str, *, hidden: int | None = None
) -> Counter:
    hidden = hidden or config.integer("hidden_size")
    bias = config.flag("mlp_bias", traits.ffn_bias) * (width * (1 + traits.gated) + hidden)
    return Counter(
        {
            f"{kind}_up": hidden * width * (1 + traits.gated),
            f"{kind}_down": width * hidden,
            "norm": bias,
        }
    )


def _moe(config: Config, traits: Traits, layer: Layer) -> Counter:
    hidden, experts, width = (
        config.integer("hidden_size"),
        config.integer("num_experts"),
        expert_width(config),
    )
    inner = config.integer(
        "moe_latent_size", hidden
    )  # Nemotron 3 Super routes a projection of the hidden state
    one = _mlp(config, traits, width, "expert", hidden=inner)
    if traits.experts_bias:
        one.update(expert_up=width * (1 + traits.gated), expert_down=hidden)
    routed = Counter({name: n * experts for name, n in one.items() if name != "norm"})
    shared = shared_width(config, width)
    always = _mlp(config, traits, shared, "shared") if shared else Counter()
    always["shared_up"] += 2 * hidden * inner * (inner != hidden)
    router = hidden * (experts + bool(traits.shared_gate and shared))
    beside = (
        4 * hidden + experts if layer.ffn == "both" else 0
    )  # Gemma 4: three more norms, router and expert scales
    return (
        routed
        + always
        + Counter(router=router, norm=(traits.expert_bias + traits.router_bias) * experts + beside)
    )


def expert_width(config: Config) -> int:
    """Return the hidden width of one routed expert."""
    return config.integer(
        "moe_intermediate_size" if config.spelled("moe_intermediate_size") else "intermediate_size"
    )


def shared_width(config: Config, width: int) -> int:
    """Return the total width of the experts every token uses, 0 where there are none."""
    each = config.integer("shared_expert_intermediate_size", 0, low=0)
    count = config.integer("num_shared_experts", 1 if each else 0, low=0)
    return (each or width) * count
