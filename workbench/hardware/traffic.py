"""What a step moves and multiplies, counted from the model alone: no machine appears here (M01, M34, M46, M54)."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from workbench.specs.model import INDEX, TENSOR_CLASSES, Model

#: Kinds of tensor that a decode step does not stream: a row is looked up, or nothing is read at all.
_LOOKED_UP = ("embedding", "lookup", "mtp")
_EXPERTS = ("expert_up", "expert_down")


def _indices(*names: str) -> np.ndarray:
    return np.array([INDEX[name] for name in names])


_ROUTED = _indices(*_EXPERTS)
_STREAMED = _indices(*(n for n in TENSOR_CLASSES if n not in (*_LOOKED_UP, *_EXPERTS)))
# llama.cpp keeps the input embedding and the lookup tables in system memory, unless the embedding is the output head.
_RESIDENT = _indices(*(n for n in TENSOR_CLASSES if n not in _LOOKED_UP))
_TIED_STREAMED = np.append(_STREAMED, INDEX["embedding"])
_TIED_RESIDENT = np.append(_RESIDENT, INDEX["embedding"])
STATE_BYTES = 4  # recurrent states are kept in float32 by llama.cpp and MLX


class Load(NamedTuple):
    """A model in one format, reduced to what pricing needs; every field broadcasts against the others."""

    dense_bytes: Any  # byte: weights that every step streams
    expert_bytes: Any  # byte: all routed experts together
    resident_bytes: Any  # byte: weights that sit in the accelerator's memory
    file_bytes: Any  # byte: all weights as stored
    dense_params: Any
    expert_params: Any
    experts: Any
    top_k: Any
    layers: Any
    moe_layers: Any
    hidden: Any
    vocab: Any
    kv_elements: Any
    window_elements: Any
    window: Any
    recurrent_elements: Any
    attention_flops: Any
    window_flops: Any


class Traffic(NamedTuple):
    """Bytes and FLOPs of one step."""

    weight_bytes: Any
    kv_bytes: Any
    flops: Any
    attention_flops: Any


def load_of(model: Model, weight_bytes) -> Load:
    """Reduce a model in a format to a `Load`.

    Args:
        model: the geometry.
        weight_bytes: (tensor_class,) bytes, from `formats.weight_bytes(model, quant)`.
    """
    streamed, resident = (_TIED_STREAMED, _TIED_RESIDENT) if model.tied else (_STREAMED, _RESIDENT)
    params = model.params
    return Load(
        dense_bytes=weight_bytes[streamed].sum(),
        expert_bytes=weight_bytes[_ROUTED].sum(),
        resident_bytes=weight_bytes[resident].sum(),
        file_bytes=weight_bytes.sum(),
        dense_params=params[streamed].sum(),
        expert_params=params[_ROUTED].sum(),
        **{field: getattr(model, field) for field in Load._fields[6:]},
    )


def experts_touched(experts, top_k, tokens):
    """Return the expected share of experts that a step of `tokens` tokens reads: 1 - (1 - K/E)^tokens (M54, iid)."""
    share = top_k / jnp.maximum(experts, 1.0)
    return jnp.where(experts > 0, 1.0 - (1.0 - share) ** tokens, 0.0)


def cached(load: Load, context):
    """Return K and V elements read with `context` tokens cached; windows hold no more than theirs (M34)."""
    return load.kv_elements * context + load.window_elements * jnp.minimum(context, load.window)


def attended_flops(load: Load, context):
    """Return the attention FLOPs of one query token over `context` cached tokens."""
    return load.attention_flops * context + load.window_flops * jnp.minimum(context, load.window)


def kv_bytes(load: Load, context, kv_bits):
    """Return bytes of KV cache and recurrent state per sequence (M34)."""
    return cached(load, context) * kv_bits / 8 + load.recurrent_elements * STATE_BYTES


def decode(load: Load, context, batch, kv_bits) -> Traffic:
    """Count one decode step of `batch` sequences, each with `context` tokens cached.

    Weights are read once for the whole batch, of the experts only the union of those chosen; KV per sequence.
    """
    active = load.top_k / jnp.maximum(load.experts, 1.0)
    return Traffic(
        weight_bytes=load.dense_bytes
        + load.expert_bytes * experts_touched(load.experts, load.top_k, batch),
        kv_bytes=batch * kv_bytes(load, context, kv_bits),
        flops=2 * batch * (load.dense_params + load.expert_params * active),
        attention_flops=batch * attended_flops(load, context),
    )


def prefill(load: Load, prompt, context, batch, kv_bits, ubatch) -> tuple[Traffic, Any]:
    """Count the prefill of `prompt` new tokens per sequence on top of `context` cached ones.

    Returns:
        The traffic, and the FLOPs of the routed experts apart from `flops` (they run at another efficiency).
        Weights are streamed once per ubatch; causal attention sees half of the new tokens on average (M04).
    """
    tokens = prompt * batch
    passes = jnp.ceil(tokens / ubatch)
    touched = experts_touched(load.experts, load.top_k, jnp.minimum(tokens, ubatch))
    active = load.top_k / jnp.maximum(load.experts, 1.0)
    seen = context + prompt / 2
    return Traffic(
        weight_bytes=passes * (load.dense_bytes + load.expert_bytes * touched),
        kv_bytes=passes * batch * kv_bytes(load, seen, kv_bits),
        # The output head runs for the last token of a sequence only.
        flops=2 * tokens * (load.dense_params - load.vocab * load.hidden)
        + 2 * batch * load.vocab * load.hidden,
        attention_flops=tokens * attended_flops(load, seen),
    ), 2 * tokens * load.expert_params * active
