"""Parameters, cache elements and FLOPs of one layer, from its config: a Counter of tensor class to parameters."""

from collections import Counter

from workbench.specs.architectures import Traits
from workbench.specs.config import Config
from workbench.specs.layers import Layer


def attention(config: Config, traits: Traits, layer: Layer) -> Counter:
    """Return the parameters of one attention block, grouped-query or multi-head latent."""
    if traits.attention == "mla" and config.get("kv_lora_rank"):
        return _latent(config, layer)
    if traits.attention == "v4":
        return _compressed(config, layer)
    hidden = config.integer("hidden_size")
    q, kv = layer.heads * layer.head_dim, layer.kv_heads * layer.head_dim
    v = 0 if config.flag("attention_k_eq_v") and layer.attention == "full" else kv
    stored = Counter(attention_qk=hidden * kv, attention_v=hidden * v)
    norms = _qk_norm(config, traits, layer)
    qkv_bias = config.get("attention_bias", config.get("qkv_bias", config.get("use_qkv_bias", traits.qkv_bias)))
    out_bias = traits.out_bias
    norms += qkv_bias * (q + kv + v) + out_bias * hidden
    gate = {"element": q, "head": layer.heads}.get(traits.gate, 0)
    total = Counter(attention_qk=hidden * (q + gate), attention_out=q * hidden, norm=norms)
    if not layer.own_kv:  # the checkpoint keeps K and V of layers that use an earlier cache; nobody reads them
        return total + Counter(lookup=stored.total())
    return total + stored


def _qk_norm(config: Config, traits: Traits, layer: Layer) -> int:
    on = config.get("use_qk_norm", config.get("qk_layernorm", True))
    if not on:
        return 0
    return {
        "head": 2 * layer.head_dim,
        "heads": (layer.heads + layer.kv_heads) * layer.head_dim,
    }.get(traits.qk_norm, 0)


def _latent(config: Config, layer: Layer) -> Counter:
    """MLA, DeepSeek-V2 (arXiv 2405.04434, section 2.1): K and V come from one latent vector per token."""
    hidden, heads = config.integer("hidden_size"), layer.heads
    latent, rope = config.integer("kv_lora_rank"), config.integer("qk_rope_head_dim")
    nope, value = config.integer("qk_nope_head_dim"), config.integer("v_head_dim")
    query, rank = heads * (nope + rope), config.integer("q_lora_rank", 0, low=0)
    q = hidden * rank + rank * query if rank else hidden * query
    kv = hidden * (latent + rope) + latent * heads * (nope + value)
    return Counter(attention_qk=q + kv, attention_out=heads * value * hidden, norm=rank + latent)


def _compressed(config: Config, layer: Layer) -> Counter:
    return Counter()


def kv_elements(config: Config, traits: Traits, layer: Layer) -> int:
    """Return the cache elements one token adds in one layer: K and V of every KV head, or MLA's latent and RoPE key."""
    if not layer.attention or not layer.own_kv:
        return 0
    if traits.attention == "mla" and config.get("kv_lora_rank"):
        return config.integer("kv_lora_rank") + config.integer("qk_rope_head_dim")
    return 2 * layer.kv_heads * layer.head_dim


def attention_flops(config: Config, traits: Traits, layer: Layer) -> int:
    """Return the FLOPs of one query on one cached token: 2 for QK and 2 for PV per head element.

    MLA works in the latent space (absorbed form): 2 (latent + rope) for QK and 2 latent for PV per head.
    """
    if traits.attention == "mla" and config.get("kv_lora_rank"):
        latent = config.integer("kv_lora_rank")
        return 2 * layer.heads * (2 * latent + config.integer("qk_rope_head_dim"))
    return 4 * layer.heads * layer.head_dim


def ffn(config: Config, traits: Traits, layer: Layer) -> Counter:
    """Return the parameters of one FFN: dense, routed experts with shared ones, or both."""
    total = Counter()
    if layer.ffn in ("dense", "both"):
        total += _mlp(config, traits, layer.ffn_width, "ffn")
    if layer.ffn in ("moe", "both"):
        total += _moe(config, traits, layer)
    return total


def _mlp(config: Config, traits: Traits, width: int, kind: str, *, hidden: int | None = None) -> Counter:
    hidden = hidden or config.integer("hidden_size")
    bias = config.get("mlp_bias", config.get("use_bias", traits.ffn_bias)) * (width * (1 + traits.gated) + hidden)
    return Counter({f"{kind}_up": hidden * width * (1 + traits.gated), f"{kind}_down": width * hidden, "norm": bias})


def _moe(config: Config, traits: Traits, layer: Layer) -> Counter:
    hidden, experts = config.integer("hidden_size"), config.integer("num_experts")
    width = expert_width(config)
    inner = config.integer("moe_latent_size", hidden)
    one = _mlp(config, traits, width, "expert", hidden=inner)
    routed = Counter({name: n * experts for name, n in one.items() if name != "norm"})
    latent = 2 * hidden * inner if inner != hidden else 0
    small = traits.expert_bias * experts + traits.router_bias * experts
    small += traits.experts_bias * experts * (width * (1 + traits.gated) + hidden)
    shared = shared_width(config, width)
    gate = hidden if traits.shared_gate and shared else 0
    always = _mlp(config, traits, shared, "shared")
    return routed + always + Counter(router=hidden * experts + gate, norm=small, shared_up=latent)


def expert_width(config: Config) -> int:
    """Return the hidden width of one routed expert."""
    if config.spelled("moe_intermediate_size"):
        return config.integer("moe_intermediate_size")
    return config.integer("intermediate_size")


def shared_width(config: Config, width: int) -> int:
    """Return the total width of the experts every token uses, 0 where there are none."""
    each = config.integer("shared_expert_intermediate_size", 0, low=0)
    count = config.integer("num_shared_experts", 1 if each else 0, low=0)
    return (each or width) * count
