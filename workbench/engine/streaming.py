"""Attention sinks with a sliding window: a cache that never grows (M39; StreamingLLM, arXiv 2309.17453).

Kept are the first `sinks` tokens and the last `window`. Keys are stored as they come, not rotated:
positions count inside the cache, so RoPE is applied after the selection, anew at every step.
"""

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import xarray as xr
from jax import Array, lax

from workbench.engine import attention
from workbench.engine.attention import PLAIN, Blocks, Rules
from workbench.engine.kv_cache import cache_report, check_pair, check_sizes
from workbench.engine.kv_cache_formats import decode, empty, encode
from workbench.engine.rope import Rope, rotate
from workbench.errors import SpecError


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["k", "v", "length"],
    meta_fields=["sinks", "format"],
)
@dataclass(frozen=True)
class Streaming:
    """One layer's kept tokens: slots 0 … sinks - 1 hold the first, the rest are a ring of the last.

    Args:
        k: parts, each (kv_heads, sinks + window, …), not rotated.
        v: parts, as `k`.
        length: () int32, tokens seen so far.
        sinks: first tokens that stay for ever.
        format: one of kv_cache_formats.FORMATS.
    """

    k: tuple[Array, ...]
    v: tuple[Array, ...]
    length: Array
    sinks: int
    format: str

    @property
    def capacity(self) -> int:
        return self.k[0].shape[1]

    @property
    def window(self) -> int:
        return self.capacity - self.sinks

    @property
    def kv_heads(self) -> int:
        return self.k[0].shape[0]


def streaming(
    window: int, kv_heads: int, head_dim: int, *, sinks: int = 4, format: str = "float16"
) -> Streaming:
    """Reserve an empty cache of `sinks` + `window` tokens.

    Raises:
        SpecError: a size below 1, sinks below 0, or a format that does not exist.
    """
    check_sizes(window=window, kv_heads=kv_heads, head_dim=head_dim)
    if sinks < 0:
        raise SpecError(f"sinks is {sinks}: it must be at least 0 tokens")
    k, v = (empty((kv_heads, sinks + window, head_dim), format) for _ in "kv")
    return Streaming(k, v, jnp.int32(0), sinks, format)


def append(cache: Streaming, k: Array, v: Array) -> Streaming:
    """Return the cache after one more token, which takes the place of the oldest outside the sinks.

    Args:
        k: (1, kv_heads, head_dim), not rotated.
        v: (1, kv_heads, head_dim).
    """
    check_pair(k, v, cache.kv_heads)
    if k.shape[0] != 1:
        raise SpecError(f"{k.shape[0]} tokens at once: the window moves one token at a time")
    return _append(cache, k, v)


@jax.jit
def _append(cache: Streaming, k: Array, v: Array) -> Streaming:
    beyond = cache.length - cache.sinks
    slot = jnp.where(beyond < 0, cache.length, cache.sinks + beyond % cache.window)

    def write(parts, new):
        encoded = encode(new.swapaxes(0, 1), cache.format)
        put = lax.dynamic_update_slice_in_dim
        return tuple(put(p, x, slot, 1) for p, x in zip(parts, encoded, strict=True))

    return replace(cache, k=write(cache.k, k), v=write(cache.v, v), length=cache.length + 1)


def positions(cache: Streaming) -> Array:
    """Return (sinks + window,) int32: the position inside the cache of the token in each slot."""
    slot = jnp.arange(cache.capacity, dtype=jnp.int32)
    turned = cache.sinks + (slot - cache.length) % cache.window
    full = (cache.length > cache.capacity) & (slot >= cache.sinks)
    return jnp.where(full, turned, slot)


def attend(cache: Streaming, q, rope: Rope, *, rules: Rules = PLAIN) -> Array:
    """Attend from the newest token, whose key and value are already in the cache.

    Args:
        q: (1, heads, head_dim), not rotated.
        rope: the rotation, applied to positions inside the cache.
        rules: cap, block and accumulator; the mask is the selection itself.

    Returns:
        (1, heads, head_dim) in the dtype of `q`.
    """
    attention.check_heads(q, cache.kv_heads, q.shape[-1])
    if q.shape[0] != 1:
        raise SpecError(f"{q.shape[0]} queries: a window that moves serves one token at a time")
    attention.check_length(0, cache.length, cache.length)
    return _attend(cache, q, rope, replace(rules, causal=False, window=None))


@partial(jax.jit, static_argnames=("rope", "rules"))
def _attend(cache: Streaming, q, rope: Rope, rules: Rules) -> Array:
    length = jnp.minimum(cache.length, cache.capacity)
    at, block = positions(cache), min(rules.block, cache.capacity)

    def fetch(first):
        cut = partial(lax.dynamic_slice_in_dim, start_index=first, slice_size=block)
        k, v = (
            decode(tuple(cut(part, axis=1) for part in parts), cache.format)
            for parts in (cache.k, cache.v)
        )
        return rotate(k.swapaxes(0, 1), cut(at), rope).swapaxes(0, 1), v

    q = rotate(q, length[None] - 1, rope)
    blocks = Blocks(fetch, block, cache.capacity, cache.kv_heads)
    return attention.attend(q, blocks, length - 1, length, None, rules)


def report(cache: Streaming) -> xr.Dataset:
    """Return bytes, fragmentation and contiguous runs: bounded however long the sequence gets."""
    parts = (*cache.k, *cache.v)
    return cache_report(
        lengths=[min(int(cache.length), cache.capacity)],
        reserved=[cache.capacity],
        token_bytes=sum(part.nbytes for part in parts) / cache.capacity,
        runs=[[len(parts), len(parts) * cache.kv_heads]],
        kv_heads=cache.kv_heads,
        kind=f"{cache.sinks} sinks and a window of {cache.window}, {cache.format}",
    )
