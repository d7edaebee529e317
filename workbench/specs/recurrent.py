"""Mixers whose memory does not grow with the context: parameters and state of one layer of each
kind."""

from collections import Counter
from collections.abc import Callable

from workbench.specs.config import Config


def gated_delta_net(c: Config) -> tuple[Counter, int]:
    """Qwen3-Next's linear attention (arXiv 2412.06464): in_proj_qkvz, in_proj_ba, short
    convolution, gated norm."""
    hidden, kernel = c.integer("hidden_size"), c.integer("linear_conv_kernel_dim", 4)
    key_heads, value_heads = c.integer("linear_num_key_heads"), c.integer("linear_num_value_heads")
    key_dim, value_dim = c.integer("linear_key_head_dim"), c.integer("linear_value_head_dim")
    keys, values = key_heads * key_dim, value_heads * value_dim
    channels = 2 * keys + values
    weights = hidden * (channels + values + 2 * value_heads) + values * hidden
    small = channels * kernel + 2 * value_heads + value_dim
    return Counter(recurrent=weights, norm=small), value_heads * key_dim * value_dim + channels * (
        kernel - 1
    )


def kimi_delta(c: Config) -> tuple[Counter, int]:
    """Kimi Delta Attention (arXiv 2510.26692): q, k, v each with a short convolution, low-rank
    decay and gate."""
    given = c.get("linear_attn_config")
    own = Config(given) if isinstance(given, dict) else c
    heads = own.integer("linear_num_heads" if own is c else "num_heads")
    dim = own.integer("linear_head_dim" if own is c else "head_dim")
    kernel = own.integer("linear_conv_kernel_dim" if own is c else "short_conv_kernel_size", 4)
    hidden, width = c.integer("hidden_size"), heads * dim
    weights = 4 * hidden * width + 2 * (hidden * dim + dim * width) + hidden * heads
    small = 3 * width * kernel + heads + width + dim
    return Counter(recurrent=weights, norm=small), heads * dim * dim + 3 * width * (kernel - 1)


def mamba(c: Config) -> tuple[Counter, int]:
    """Mamba-1 (arXiv 2312.00752) with Jamba's norms on dt, B and C."""
    hidden, state = c.integer("hidden_size"), c.integer("mamba_d_state", 16)
    inner, kernel = hidden * c.integer("mamba_expand", 2), c.integer("mamba_d_conv", 4)
    rank = (
        -(-hidden // 16) if c.get("mamba_dt_rank", "auto") == "auto" else c.integer("mamba_dt_rank")
    )
    weights = hidden * 2 * inner + inner * (rank + 2 * state) + rank * inner + inner * hidden
    small = inner * (kernel + 1) + inner + inner * state + inner + rank + 2 * state
    return Counter(recurrent=weights, norm=small), inner * state + inner * (kernel - 1)


def mamba2(c: Config) -> tuple[Counter, int]:
    """Mamba-2 (arXiv 2405.21060): one input projection for z, x, B, C and dt; scalar decay per
    head."""
    hidden, heads = c.integer("hidden_size"), c.integer("mamba_n_heads")
    groups, state, kernel = (
        c.integer("mamba_n_groups", 1),
        c.integer("mamba_d_state"),
        c.integer("mamba_d_conv", 4),
    )
    inner = c.integer("mamba_d_ssm", hidden * c.integer("mamba_expand", 2))
    dim = inner // heads if c.get("mamba_d_head", "auto") == "auto" else c.integer("mamba_d_head")
    inner = heads * dim
    channels = inner + 2 * groups * state
    weights = hidden * (inner + channels + heads) + inner * hidden
    norm = inner * c.flag("mamba_rms_norm", True)
    small = channels * kernel + channels * c.flag("mamba_conv_bias", True) + 3 * heads + norm
    return Counter(recurrent=weights, norm=small), heads * dim * state + channels * (kernel - 1)


def short_convolution(c: Config) -> tuple[Counter, int]:
    """LFM2's gated short convolution: three input projections, a depthwise kernel, one output
    projection."""
    hidden, kernel = c.integer("hidden_size"), c.integer("conv_L_cache", 3)
    bias = c.flag("conv_bias") * 5 * hidden
    c.skip("block_dim", "conv_dim", "conv_dim_out", "num_heads")  # hidden_size and heads once more
    return Counter(recurrent=4 * hidden * hidden, norm=hidden * kernel + bias), hidden * (
        kernel - 1
    )


def rwkv7(c: Config) -> tuple[Counter, int]:
    """RWKV-7 time mixing (arXiv 2503.14456): r, k, v, o and low-rank decay, in-context rate, value
    mix and gate."""
    hidden, dim = c.integer("hidden_size"), c.integer("head_dim", 64)
    ranks = [c.integer(f"{name}_low_rank_dim") for name in ("decay", "a", "v", "gate")]
    weights = 4 * hidden * hidden + 2 * hidden * sum(ranks)
    vectors = 6 + 3 + 3 + 2  # token-shift mixes; low-rank biases w, a, v; k_k, k_a, r_k; group norm
    return Counter(recurrent=weights, norm=vectors * hidden), hidden * dim + 2 * hidden


RECURRENT: dict[str, Callable[[Config], tuple[Counter, int]]] = {
    f.__name__: f for f in (gated_delta_net, kimi_delta, mamba, mamba2, short_convolution, rwkv7)
}
