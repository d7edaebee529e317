"""Attention as it runs: online softmax over blocks of the KV cache, for prefill and decode alike.

The state of a row is (m, l, o): the largest score so far, the sum of exp(score - m), and the sum of
exp(score - m) times the value. Two states merge exactly, so neither the block size nor the order of
the keys changes the answer, and any cache that can hand out its tokens block by block is attended by
the same loop (Milakov & Gimelshein, arXiv 1805.02867; FlashAttention, arXiv 2205.14135).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.core import Tracer

from workbench.errors import SpecError

ACCUMULATORS = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True)
class Rules:
    """What a layer's attention does beyond softmax(q k / sqrt(d)) v, and how it adds up.

    Args:
        causal: a query sees no key after itself.
        window: tokens a query sees, itself included; None sees all.
        softcap: scores become softcap * tanh(score / softcap), as in Gemma 2; None leaves them.
        scale: factor on q k; None is 1 / sqrt(head_dim).
        block: tokens per step of the online softmax.
        accumulator: dtype of the sums inside a block. One narrower than float32 adds token by
            token, as a kernel with a narrow register does (M41).
        across: dtype of (m, l, o) from block to block; None is that of `accumulator`.

    Raises:
        SpecError: a block, window, cap or dtype that makes no sense.
    """

    causal: bool = True
    window: int | None = None
    softcap: float | None = None
    scale: float | None = None
    block: int = 128
    accumulator: str = "float32"
    across: str | None = None

    def __post_init__(self) -> None:
        for name in ("block", "window"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int) and value >= 1):
                raise SpecError(
                    f"{name} is {value!r}: it must be a whole number of tokens, at least 1"
                )
        for name in ("softcap", "scale"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise SpecError(f"{name} is {value!r}: it must be a positive number, or None")
        for name in (self.accumulator, self.sums):
            if name not in ACCUMULATORS:
                raise SpecError(f"accumulator {name!r} is not one of {', '.join(ACCUMULATORS)}")

    @property
    def sums(self) -> str:
        """Return the dtype of the state from block to block."""
        return self.across or self.accumulator


PLAIN = Rules()


class Blocks(NamedTuple):
    """A cache as the loop sees it: tokens in blocks, whatever they look like in memory."""

    fetch: Callable[[Array], tuple[Array, Array]]  # first token -> k, v (kv_heads, block, head_dim)
    block: int  # tokens per fetch, at most `capacity`
    capacity: int  # tokens
    kv_heads: int


def prefill(q, k, v, *, start=0, length=None, sinks=None, rules: Rules = PLAIN) -> Array:
    """Attend from consecutive query tokens to a head-major cache.

    Args:
        q: (tokens, heads, head_dim); token i stands at position start + i.
        k: (kv_heads, capacity, head_dim), positions 0, 1, 2 …; heads share keys in equal groups.
        v: (kv_heads, capacity, head_dim).
        start: position of the first query, in tokens; may change without a new compilation.
        length: tokens of the cache that are filled; None is all of it.
        sinks: (heads,) learned logits that take part in the softmax without a value (gpt-oss).
        rules: mask, cap, block and accumulator.

    Returns:
        (tokens, heads, head_dim) in the dtype of `q`.

    Raises:
        SpecError: shapes that do not fit each other, or a length beyond the capacity.
    """
    length = k.shape[-2] if length is None else length
    check(q, k, v, start=start, length=length, sinks=sinks)
    return _prefill(q, k, v, jnp.int32(start), jnp.int32(length), sinks, rules)


def decode(q, k, v, *, length, sinks=None, rules: Rules = PLAIN) -> Array:
    """Attend from the newest token, whose own key and value are the last in the cache.

    Args:
        q: (heads, head_dim), at position length - 1.
        k: (kv_heads, capacity, head_dim).
        v: (kv_heads, capacity, head_dim).
        length: filled tokens, at least 1; may change without a new compilation.
        sinks: (heads,) learned logits, see `prefill`.
        rules: mask, cap, block and accumulator.

    Returns:
        (heads, head_dim) in the dtype of `q`.
    """
    start = length - 1
    return prefill(q[None], k, v, start=start, length=length, sinks=sinks, rules=rules)[0]


def check(q, k, v, *, start, length, sinks=None) -> None:
    """Refuse shapes and lengths that do not fit; numbers under trace were checked by the caller."""
    if k.ndim != 3 or k.shape != v.shape:
        raise SpecError(
            f"k {k.shape} and v {v.shape}: both must be (kv_heads, capacity, head_dim), alike"
        )
    check_heads(q, k.shape[0], k.shape[2], sinks)
    check_length(start, length, k.shape[1])


def check_heads(q, kv_heads: int, head_dim: int, sinks=None) -> None:
    """Refuse queries (tokens, heads, head_dim) that the KV heads cannot serve in equal groups."""
    if q.ndim != 3 or q.shape[0] == 0 or q.shape[2] != head_dim:
        raise SpecError(f"q {q.shape}: must be (tokens, heads, head_dim) with head_dim {head_dim}")
    if kv_heads == 0 or q.shape[1] % kv_heads or q.shape[1] == 0:
        raise SpecError(f"{q.shape[1]} heads cannot share {kv_heads} KV heads in equal groups")
    if sinks is not None and sinks.shape != (q.shape[1],):
        raise SpecError(f"sinks {sinks.shape}: one logit per head, ({q.shape[1]},)")


def check_length(start, length, capacity: int) -> None:
    """Refuse a filled length outside 1 … capacity or a start before the first token."""
    if isinstance(start, Tracer) or isinstance(length, Tracer):
        return
    if not 1 <= int(length) <= capacity:
        raise SpecError(f"length {length}: the cache holds 1 to {capacity} tokens")
    if int(start) < 0:
        raise SpecError(f"start {start}: positions begin at 0")


@partial(jax.jit, static_argnames="rules")
def _prefill(q, k, v, start, length, sinks, rules: Rules) -> Array:
    kv_heads, capacity, _ = k.shape
    block = min(rules.block, capacity)

    def fetch(first):
        if block == capacity:  # the cache itself: no copy
            return k, v
        return tuple(lax.dynamic_slice_in_dim(x, first, block, axis=1) for x in (k, v))

    return attend(q, Blocks(fetch, block, capacity, kv_heads), start, length, sinks, rules)


def attend(q, blocks: Blocks, start, length, sinks, rules: Rules) -> Array:
    """Run the online softmax over the blocks that the queries can see: the loop under every cache.

    Args:
        q: (tokens, heads, head_dim).
        blocks: the cache.
        start: () int32, position of the first query.
        length: () int32, filled tokens.
        sinks: (heads,) or None.
        rules: mask, cap and accumulator.

    Returns:
        (tokens, heads, head_dim) in the dtype of `q`. Time follows the blocks seen, not the capacity.
    """
    S, H, D = q.shape
    block, last_first = blocks.block, blocks.capacity - blocks.block
    rows = q.reshape(S, blocks.kv_heads, -1, D).transpose(1, 2, 0, 3)  # (G, R, S, D)
    rows = rows.astype(jnp.float32) * (rules.scale or D**-0.5)

    def step(i, state):
        first = jnp.minimum(
            i * block, last_first
        )  # the last block may reach back into its neighbour
        k, v = blocks.fetch(first)
        key = first + jnp.arange(block, dtype=jnp.int32)
        seen = _seen(key, start, S, length, rules) & (key >= i * block)
        return merge(state, _block(rows, k, v, seen, rules))

    first, last = _blocks_seen(block, start, S, length, rules)
    state = lax.fori_loop(first, last, step, _nothing(rows, sinks, rules))
    _, total, out = (x.astype(jnp.float32) for x in state)
    out = out / jnp.where(total == 0, 1, total)[..., None]
    return out.transpose(2, 0, 1, 3).reshape(S, H, D).astype(q.dtype)


def _blocks_seen(block: int, start, tokens: int, length, rules: Rules):
    end = jnp.minimum(length, start + tokens) if rules.causal else length
    oldest = jnp.maximum(start - rules.window + 1, 0) if rules.window else jnp.int32(0)
    return oldest // block, -(-end // block)


def _seen(key, start, tokens: int, length, rules: Rules) -> Array:
    """Return (tokens, block): which keys of the block each query sees."""
    query = (start + jnp.arange(tokens, dtype=jnp.int32))[:, None]
    seen = jnp.broadcast_to(key < length, (tokens, key.size))
    if rules.causal:
        seen &= key <= query
    return seen & (query - key < rules.window) if rules.window else seen


def _nothing(rows: Array, sinks: Array | None, rules: Rules):
    """Return the state before any key: empty, or one sink per head with weight exp(sink) and no value."""
    G, R, S, D = rows.shape
    dtype = jnp.dtype(rules.sums)
    out = jnp.zeros((G, R, S, D), dtype)
    if sinks is None:
        return jnp.full((G, R, S), jnp.finfo(dtype).min), jnp.zeros((G, R, S), dtype), out
    top = jnp.broadcast_to(sinks.astype(dtype).reshape(G, R, 1), (G, R, S))
    return top, jnp.ones((G, R, S), dtype), out


def _block(rows, k, v, seen, rules: Rules):
    """Return the state of one block by itself, in the accumulator's dtype."""
    G, R, S, D = rows.shape
    scores = jnp.einsum("gnd,gtd->gnt", rows.reshape(G, R * S, D), k.astype(jnp.float32))
    scores = scores.reshape(G, R, S, -1)
    if rules.softcap:
        scores = rules.softcap * jnp.tanh(scores / rules.softcap)
    dtype = jnp.dtype(rules.accumulator)
    lowest = float(jnp.finfo(dtype).min)
    scores = jnp.where(seen, scores, lowest)
    top = scores.max(-1).astype(dtype)
    weights = jnp.where(seen, jnp.exp(scores - top[..., None].astype(jnp.float32)), 0)
    sums = _sums_in_order if dtype.itemsize < 4 else _sums
    total, out = sums(weights.reshape(G, R * S, -1).astype(dtype), v.astype(dtype))
    return top, total.reshape(G, R, S), out.reshape(G, R, S, D)


def _sums(weights: Array, v: Array) -> tuple[Array, Array]:
    return weights.sum(-1), jnp.einsum("gnt,gtd->gnd", weights, v)


def _sums_in_order(weights: Array, v: Array) -> tuple[Array, Array]:
    """Add token by token in the operands' dtype; XLA's own sums would widen to float32 inside."""

    def add(state, token):
        total, out = state
        weight, value = token  # (G, N), (G, D)
        return (total + weight, out + weight[..., None] * value[:, None]), None

    zero = jnp.zeros(weights.shape[:2], weights.dtype)
    start = zero, jnp.zeros((*zero.shape, v.shape[-1]), v.dtype)
    return lax.scan(add, start, (jnp.moveaxis(weights, -1, 0), jnp.moveaxis(v, 1, 0)))[0]


def merge(state, other):
    """Return the state of two disjoint sets of keys, in the dtype of the first.

    l = e^(m1 - m) l1 + e^(m2 - m) l2 with m = max(m1, m2), and o likewise.
    """
    top, total, out = state
    top2, total2, out2 = (x.astype(top.dtype) for x in other)
    highest = jnp.maximum(top, top2)
    keep, add = jnp.exp(top - highest), jnp.exp(top2 - highest)
    return (
        highest,
        keep * total + add * total2,
        keep[..., None] * out + add[..., None] * out2,
    )
