"""What a model is to a machine: parameters by kind of tensor, KV elements per token, layers to
launch."""

import dataclasses
import functools

import jax
import numpy as np

#: Kinds of tensor that quantisation treats alike, in the order of `Model.params`.
TENSOR_CLASSES = (
    # token_embd: a row is looked up; streamed whole only when it doubles as the output head
    "embedding",
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
    # stored, not streamed: per-layer embeddings, positions, K and V of layers that share a cache
    "lookup",
    "mtp",  # multi-token-prediction layers: in the file, not read by plain decoding
)
INDEX = {name: i for i, name in enumerate(TENSOR_CLASSES)}


def _mask(*names: str) -> np.ndarray:
    return np.array([float(name in names) for name in TENSOR_CLASSES])


_ROUTED = _mask("expert_up", "expert_down")
_EMBEDDING = _mask("embedding")
_COUNTED = 1.0 - _mask("mtp")
_ALWAYS = 1.0 - _ROUTED - _mask("embedding", "lookup", "mtp")


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=[
        *("params", "layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab"),
        *("experts", "top_k", "moe_layers", "kv_elements", "window_elements", "window"),
        *("recurrent_elements", "attention_flops", "window_flops", "max_context", "stored_bytes"),
    ],
    meta_fields=["name", "arch", "tied", "quant", "source"],
)
@dataclasses.dataclass(frozen=True, eq=False)
class Model:
    """The decoder's geometry, reduced to what storing, moving and multiplying it takes.

    `params` (tensor_class,) counts parameters. `stored_bytes` (tensor_class,) is set by `from_gguf`
    and then
    overrides any format. `kv_elements` are K and V elements that one token adds in the layers that
    keep the whole
    context (all such layers together), `window_elements` in the sliding-window layers,
    `recurrent_elements` the
    state of linear-attention layers per sequence. `attention_flops` are the FLOPs that one query
    token spends on
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

    @classmethod
    def from_hf(cls, source, name: str | None = None) -> "Model":
        """Return the model that a Hugging Face config.json (path) or its parsed content (dict)
        describes.

        Args:
            source: path of a config.json, or a dict in its vocabulary; a `text_config` inside is
            found.
            name: what to call it; by default what the config or the file calls it.

        Raises:
            FileError: no readable JSON object at that path.
            SpecError: an unknown architecture, or a field that is missing or makes no sense.
        """
        from workbench.specs import hf

        return hf.load(source, name)

    @classmethod
    def from_gguf(cls, path) -> "Model":
        """Return the model in a GGUF file, with the exact bytes of each tensor class in
        `stored_bytes`."""
        from workbench.specs import gguf

        return gguf.load_model(path)

    @classmethod
    def preset(cls, name: str) -> "Model":
        """Return the catalogue model of that slug, canonical name or known alias: "llama-3.1-8b".

        Raises:
            UnknownNameError: no such model; the nearest names are suggested.
        """
        from workbench.specs import catalogue

        return catalogue.preset(name)

    @classmethod
    def generic(cls, name: str, total_params: float, active_params: float | None = None) -> "Model":
        """Return an estimate for a model known only by size; geometry interpolated over the
        catalogue.

        Args:
            name: what to call it.
            total_params: parameters in all.
            active_params: parameters a token uses, for a mixture of experts.
        """
        from workbench.specs.generic import generic

        return generic(name, total_params, active_params)

    @property
    def read_share(self) -> np.ndarray:
        """Share of each tensor class (tensor_class,) that one decode step at batch 1 streams."""
        routed = self.top_k / (self.experts + (self.experts == 0))
        return _ALWAYS + self.tied * _EMBEDDING + routed * _ROUTED

    @property
    def total_params(self) -> float:
        """Parameters of the text decoder, without multi-token-prediction layers."""
        return self.params @ _COUNTED

    @property
    def active_params(self) -> float:
        """Parameters a token uses: all but the experts it is not routed to."""
        routed = self.top_k / (self.experts + (self.experts == 0))
        return self.params @ (_COUNTED - (1.0 - routed) * _ROUTED)

    @property
    def decode_read_params(self) -> float:
        """Parameters streamed per decode step at batch 1: active ones and the output head, no
        looked-up rows."""
        return self.params @ self.read_share

    def kv_bytes(self, context, bits: float = 16):
        """Return the KV cache bytes of one sequence; window layers hold min(context, window)
        tokens.

        Args:
            context: tokens in the cache; a number or any array.
            bits: bits per cached element, scales included (f16: 16, q8_0: 8.5).
        """
        # min(a, b) by abs works on numbers, NumPy, JAX tracers and DataArrays alike
        held = (context + self.window - abs(context - self.window)) / 2
        return (self.kv_elements * context + self.window_elements * held) * bits / 8
