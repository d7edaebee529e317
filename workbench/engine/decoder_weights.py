"""A decoder's weights as the jitted step reads them: all layers of a matrix in one stack.

One stack a matrix and type lets the step be a loop over layers, which compiles once whatever the
depth; a matrix whose type changes from layer to layer (Q4_K_M) has one stack a type.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from workbench.engine.matmul import Packed, matmul
from workbench.engine.moe import Routing
from workbench.engine.moe_experts import Experts, run


class Stack(NamedTuple):
    """One matrix of every layer.

    Args:
        kinds: one a type; (layers of this type, out, in), or Experts of (layers · experts, …).
        kind: (layers,) int32, which of `kinds` a layer's is.
        place: (layers,) int32, where it lies in that.
    """

    kinds: tuple
    kind: Array
    place: Array


class Weights(NamedTuple):
    """All weights.

    Args:
        embedding: (vocab, hidden).
        head: (vocab, hidden), or None where the embedding serves.
        output_norm: (hidden,) float32.
        matrices: by GGUF name without layer: "attn_q" …
        vectors: likewise, (layers, n) float32: norms, biases, sinks, router; "rope" of divisors.
        experts: the routed experts, or None.
    """

    embedding: Packed
    head: Packed | None
    output_norm: Array
    matrices: dict[str, Stack]
    vectors: dict[str, Array]
    experts: Stack | None

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(leaf.nbytes for leaf in jax.tree.leaves(self))


def linear(weights: Weights, name: str, x: Array, layer: Array) -> Array:
    """Return x Wᵀ (+ b) (tokens, out) with the layer's matrix `name`."""
    stack = weights.matrices[name]
    y = _of_kind(stack, layer, lambda packed, place: matmul(packed, x, place))
    bias = weights.vectors.get(f"{name}.bias")
    return y if bias is None else y + bias[layer]


def routed(weights: Weights, x: Array, routing: Routing, layer: Array, experts: int) -> Array:
    """Return the weighted outputs (tokens, hidden) of the layer's experts, of which there are `experts`."""

    def one_kind(kind: Experts, place: Array) -> Array:
        return run(kind, x, routing._replace(experts=routing.experts + place * experts))

    return _of_kind(weights.experts, layer, one_kind)


def _of_kind(stack: Stack, layer: Array, function) -> Array:
    place = stack.place[layer]
    if len(stack.kinds) == 1:
        return function(stack.kinds[0], place)
    branches = [lambda at, kind=kind: function(kind, at) for kind in stack.kinds]
    return lax.switch(stack.kind[layer], branches, place)


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    """Return x / rms(x) · weight over the last axis."""
    return x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + eps) * weight
