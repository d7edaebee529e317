"""The decoder that runs: tokens in, logits out, one jitted step for prefill and decode alike.

    cache = empty_cache(arch, batch=1, capacity=512)
    logits, cache = step(weights, cache, tokens, start, last, arch)

A step takes the next tokens of each sequence at once: one when decoding, a chunk when prefilling.
It is compiled once a shape; `start` and `last` change freely. The cache is donated: the step writes
into it, and the caller keeps what comes back.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from workbench.engine import attention
from workbench.engine.architectures import Architecture
from workbench.engine.attention import Blocks, Rules
from workbench.engine.decoder_weights import Weights, linear, rms_norm, routed
from workbench.engine.matmul import COMPILER_OPTIONS, matmul, rows
from workbench.engine.moe import Router, route
from workbench.engine.moe_experts import ACTIVATIONS
from workbench.engine.rope import rotate
from workbench.errors import SpecError

CACHE_DTYPE = jnp.float16


class Cache(NamedTuple):
    """Keys and values of all layers: (layers, batch, kv_heads, capacity, head_dim) each."""

    k: Array
    v: Array

    @property
    def capacity(self) -> int:
        return self.k.shape[3]


def empty_cache(arch: Architecture, batch: int, capacity: int) -> Cache:
    """Reserve the cache of `batch` sequences of up to `capacity` tokens.

    Raises:
        SpecError: no sequence or no token.
    """
    if batch < 1 or capacity < 1:
        raise SpecError(f"batch {batch}, capacity {capacity}: at least one sequence and one token")
    shape = (arch.layers, batch, arch.kv_heads, capacity, arch.head_dim)
    return Cache(jnp.zeros(shape, CACHE_DTYPE), jnp.zeros(shape, CACHE_DTYPE))


def _step(weights: Weights, cache: Cache, tokens, start, last, arch: Architecture):
    """Take the next tokens of every sequence.

    Args:
        weights: of the decoder.
        cache: what came before; it is used up.
        tokens: (batch, T) int32.
        start: (batch,) int32, tokens of each sequence already in the cache.
        last: () int32, which of the T tokens is asked for logits; None asks all.
        arch: the decoder.

    Returns:
        logits (batch, vocab) float32, or (batch, T, vocab); and the Cache.
    """
    x, cache = forward(weights, cache, tokens, start, arch)  # (batch, T, hidden)
    if last is not None:
        x = lax.dynamic_index_in_dim(x, last, 1, keepdims=False)
    head = weights.embedding if weights.head is None else weights.head
    logits = matmul(head, x.reshape(-1, arch.hidden))
    return logits.reshape(*x.shape[:-1], -1), cache


step = jax.jit(
    _step, static_argnames="arch", donate_argnames="cache", compiler_options=COMPILER_OPTIONS
)


def forward(weights: Weights, cache: Cache, tokens, start, arch: Architecture, loop=lax.fori_loop):
    """Return the last hidden states (batch, T, hidden) after the output norm, and the Cache.

    `loop` may be a Python loop, so that a cost analysis sees every layer.
    """
    batch, size = tokens.shape
    x, positions = embedded(weights, tokens, start, arch)

    def layer(i, state):
        x, cache = state
        x, cache = mix(weights, x, cache, positions, start, i, arch)
        return feed(weights, x, i, arch), cache

    x, cache = loop(jnp.int32(0), jnp.int32(arch.layers), layer, (x, cache))
    x = rms_norm(x, weights.output_norm, arch.eps)
    return x.reshape(batch, size, -1), cache


def embedded(weights: Weights, tokens, start, arch: Architecture):
    """Return the tokens' embeddings (batch · T, hidden) and their positions (batch · T,)."""
    x = rows(weights.embedding, tokens.reshape(-1))
    ahead = jnp.arange(tokens.shape[1], dtype=jnp.int32)
    positions = (start[:, None] + ahead).reshape(-1)
    return x * arch.hidden**0.5 if arch.family.scaled else x, positions


def mix(weights: Weights, x, cache: Cache, positions, start, layer, arch: Architecture):
    """Return the residual stream (batch · T, hidden) behind a layer's attention, and the Cache."""
    normed = rms_norm(x, weights.vectors["attn_norm"][layer], arch.eps)
    mixed, cache = _attention(weights, cache, normed, positions, start, layer, arch)
    return x + _post(weights, "post_attention_norm", mixed, layer, arch), cache


def ffn_input(weights: Weights, x, layer, arch: Architecture):
    """Return what a layer's feed-forward, and its router, are given."""
    return rms_norm(x, weights.vectors[arch.family.ffn_norm][layer], arch.eps)


def _post(weights: Weights, name: str, x, layer, arch: Architecture):
    """Normalise a block's output where the family does so (Gemma)."""
    if name == arch.family.ffn_norm or name not in weights.vectors:
        return x
    return rms_norm(x, weights.vectors[name][layer], arch.eps)


def _attention(weights: Weights, cache: Cache, x, positions, start, layer, arch: Architecture):
    """Return the attention block's output (batch · T, hidden) and the Cache with the new tokens."""
    q, k, v = (_heads(weights, name, x, layer, arch) for name in ("attn_q", "attn_k", "attn_v"))
    divisors = weights.vectors["rope"][layer]
    q, k = (rotate(part, positions, arch.rope, divisors) for part in (q, k))
    cache = Cache(_written(cache.k, k, start, layer), _written(cache.v, v, start, layer))
    sinks = weights.vectors.get("attn_sinks")
    sinks = None if sinks is None else sinks[layer]
    out = _attend_by_kind(cache, q, start, layer, sinks, arch)
    return linear(weights, "attn_output", out.reshape(x.shape[0], -1), layer), cache


def _heads(weights: Weights, name: str, x, layer, arch: Architecture):
    """Return (batch · T, heads, head_dim), normalised a head where the family does so (Qwen 3)."""
    heads = linear(weights, name, x, layer).reshape(x.shape[0], -1, arch.head_dim)
    norm = weights.vectors.get(f"{name}_norm")
    return heads if norm is None else rms_norm(heads, norm[layer], arch.eps)


def _written(part, new, start, layer):
    """Return K or V with the new heads (batch · T, kv_heads, head_dim) at `start` of each sequence."""
    batch = start.shape[0]
    new = new.reshape(batch, -1, *new.shape[1:]).swapaxes(1, 2).astype(part.dtype)
    zero = jnp.int32(0)
    for b in range(batch):  # each at its own place; in one piece it would be a slower scatter
        at = (layer, jnp.int32(b), zero, start[b], zero)
        part = lax.dynamic_update_slice(part, new[None, b : b + 1], at)
    return part


def _attend_by_kind(cache: Cache, q, start, layer, sinks, arch: Architecture):
    everything, local = (Rules(scale=arch.scale, window=w) for w in (None, arch.window))
    kinds = set(arch.slides)
    if len(kinds) == 1:
        return _attend(cache, q, start, layer, sinks, local if kinds == {True} else everything)
    branches = [partial(_attend, rules=rules) for rules in (everything, local)]
    slides = jnp.asarray(arch.slides, jnp.int32)[layer]
    return lax.switch(slides, branches, cache, q, start, layer, sinks)


def _attend(cache: Cache, q, start, layer, sinks, rules: Rules):
    """Return (batch · T, heads, head_dim), each sequence over its own part of the cache."""
    batch, kv_heads, capacity, head_dim = cache.k.shape[1:]
    block = min(rules.block, capacity)
    q = q.reshape(batch, -1, *q.shape[1:])

    def one(b: int):
        def fetch(first):
            at = (layer, jnp.int32(b), jnp.int32(0), first, jnp.int32(0))
            size = (1, 1, kv_heads, block, head_dim)
            return tuple(lax.dynamic_slice(part, at, size)[0, 0] for part in cache)

        blocks = Blocks(fetch, block, capacity, kv_heads)
        return attention.attend(q[b], blocks, start[b], start[b] + q.shape[1], sinks, rules)

    return jnp.concatenate([one(b) for b in range(batch)])


def feed(weights: Weights, x, layer, arch: Architecture):
    """Return the residual stream (batch · T, hidden) behind a layer's feed-forward."""
    fed = _feed_forward(weights, ffn_input(weights, x, layer, arch), layer, arch)
    return x + _post(weights, "post_ffw_norm", fed, layer, arch)


def _feed_forward(weights: Weights, x, layer, arch: Architecture):
    if arch.experts:
        return _experts(weights, x, layer, arch)
    gate, up = (linear(weights, name, x, layer) for name in ("ffn_gate", "ffn_up"))
    return linear(weights, "ffn_down", ACTIVATIONS[arch.family.activation](gate, up), layer)


def _experts(weights: Weights, x, layer, arch: Architecture):
    return routed(weights, x, routing_of(weights, x, layer, arch), layer, arch.experts)


def routing_of(weights: Weights, x, layer, arch: Architecture):
    """Return where the layer's router sends the normalised tokens x (tokens, hidden)."""
    logits = x @ weights.vectors["ffn_gate_inp"][layer].T
    bias = weights.vectors.get("ffn_gate_inp.bias")
    logits = logits if bias is None else logits + bias[layer]
    return route(logits, Router(arch.experts, arch.top_k))
