"""What a model is to a machine: parameters by kind of tensor, KV elements per token, layers to launch."""

import dataclasses
import functools

import jax
import numpy as np

#: Kinds of tensor that quantisation treats alike, in the order of `Model.params`.
TENSOR_CLASSES = (
    "embedding",  # token_embd: a row is looked up; streamed whole only when it doubles as the output head
    "output",  # output head of an untied model
    "attention_qk",  # q, k, fused qkv, MLA's q and kv down/up projections, attention gates
    "attention_v",
    "attention_out",
    "recurrent",  # linear attention, SSM, short convolutions
    "ffn_up",  # gate and up of dense layers
    "ffn_down",
    "expert_up",  # gate and up of routed experts
    "expert_down",
    "shared_up",  # gate and up of experts that every token uses
    "shared_down",
    "router",
    "norm",  # norms, biases, sinks, scales: kept at 32 bits by every format
    "lookup",  # further tables of which one row is read (per-layer embeddings)
    "mtp",  # multi-token-prediction layers: in the file, not read by plain decoding
)
INDEX = {name: i for i, name in enumerate(TENSOR_CLASSES)}


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=[
        "params", "layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "experts", "top_k",
        "moe_layers", "kv_elements", "window_elements", "window", "recurrent_elements", "attention_flops",
        "window_flops", "max_context", "stored_bytes",
    ],
    meta_fields=["name", "arch", "tied", "quant", "source"],
)
@dataclasses.dataclass(frozen=True, eq=False)
class Model:
    """The decoder's geometry, reduced to what storing, moving and multiplying it takes.

    `params` (tensor_class,) counts parameters. `stored_bytes` (tensor_class,) is set by `from_gguf` and then
    overrides any format. `kv_elements` are K and V elements that one token adds in the layers that keep the whole
    context (all such layers together), `window_elements` in the sliding-window layers, `recurrent_elements` the
    state of linear-attention layers per sequence. `attention_flops` are the FLOPs that one query token spends on
    one cached token (all full layers together), `window_flops` the same for window layers.
    """

    name: str
    arch: str
    params: np.ndarray
    layers: float
    hidden: float
    heads: float
    kv_heads: float
    head_dim: float
    ffn: float
    vocab: float
    experts: float = 0.0
    top_k: float = 0.0
    moe_layers: float = 0.0
    kv_elements: float = 0.0
    window_elements: float = 0.0
    window: float = 0.0
    recurrent_elements: float = 0.0
    attention_flops: float = 0.0
    window_flops: float = 0.0
    max_context: float = 0.0
    stored_bytes: np.ndarray | None = None
    tied: bool = False
    quant: str = ""
    source: str = ""
