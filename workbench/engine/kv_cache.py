"""The contiguous KV cache: one reserved stretch of memory per sequence, head-major or token-major (M13, M34)."""

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax import Array, lax
from jax.core import Tracer

from workbench.engine import attention
from workbench.engine.attention import PLAIN, Blocks, Rules
from workbench.engine.kv_cache_formats import decode, empty, encode
from workbench.errors import SpecError
from workbench.results import dataset

#: layout -> which axis of the parts counts tokens
LAYOUTS = {"head-major": 1, "token-major": 0}


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["k", "v", "length"],
    meta_fields=["layout", "format"],
)
@dataclass(frozen=True)
class Contiguous:
    """One layer's keys and values of one sequence.

    Args:
        k: parts, (kv_heads, capacity, …) if head-major, (capacity, kv_heads, …) if token-major.
        v: parts, as `k`.
        length: () int32, filled tokens.
        layout: "head-major" or "token-major".
        format: one of kv_cache_formats.FORMATS.
    """

    k: tuple[Array, ...]
    v: tuple[Array, ...]
    length: Array
    layout: str
    format: str

    @property
    def token_axis(self) -> int:
        return LAYOUTS[self.layout]

    @property
    def capacity(self) -> int:
        return self.k[0].shape[self.token_axis]

    @property
    def kv_heads(self) -> int:
        return self.k[0].shape[1 - self.token_axis]


def contiguous(
    capacity: int,
    kv_heads: int,
    head_dim: int,
    *,
    layout: str = "head-major",
    format: str = "float16",
) -> Contiguous:
    """Reserve an empty cache for `capacity` tokens.

    Raises:
        SpecError: a size below 1, a layout or a format that does not exist.
    """
    check_sizes(capacity=capacity, kv_heads=kv_heads, head_dim=head_dim)
    if layout not in LAYOUTS:
        raise SpecError(f"layout {layout!r} is not one of {', '.join(LAYOUTS)}")
    heads = (kv_heads, capacity) if layout == "head-major" else (capacity, kv_heads)
    k, v = (empty((*heads, head_dim), format) for _ in "kv")
    return Contiguous(k, v, jnp.int32(0), layout, format)


def check_sizes(**sizes: int) -> None:
    """Refuse sizes that are not whole numbers of at least 1, by name."""
    for name, size in sizes.items():
        if not (isinstance(size, int | np.integer) and size >= 1):
            raise SpecError(f"{name} is {size!r}: it must be a whole number, at least 1")


def check_room(length, tokens: int, capacity: int) -> None:
    """Refuse tokens that do not fit; a length under trace was checked by the caller."""
    if tokens > capacity or not (isinstance(length, Tracer) or length + tokens <= capacity):
        raise SpecError(f"{tokens} more tokens after {length}: the cache holds {capacity}")


def check_pair(k, v, kv_heads: int) -> None:
    """Refuse new keys and values that are not alike, or not of this cache's heads."""
    if k.ndim != 3 or k.shape != v.shape or k.shape[1] != kv_heads:
        raise SpecError(f"k {k.shape} and v {v.shape}: both must be (tokens, {kv_heads}, head_dim)")


def append(cache: Contiguous, k: Array, v: Array) -> Contiguous:
    """Return the cache with new tokens behind the filled ones.

    Args:
        k: (tokens, kv_heads, head_dim), rotated to their positions.
        v: (tokens, kv_heads, head_dim).

    Raises:
        SpecError: shapes that do not fit, or more tokens than there is room.
    """
    check_pair(k, v, cache.kv_heads)
    check_room(cache.length, k.shape[0], cache.capacity)
    return _append(cache, k, v)


@jax.jit
def _append(cache: Contiguous, k: Array, v: Array) -> Contiguous:
    def write(parts, new):
        new = new.swapaxes(0, 1) if cache.layout == "head-major" else new
        axis, encoded = cache.token_axis, encode(new, cache.format)
        put = lax.dynamic_update_slice_in_dim
        return tuple(put(p, x, cache.length, axis) for p, x in zip(parts, encoded, strict=True))

    length = cache.length + jnp.int32(k.shape[0])
    return replace(cache, k=write(cache.k, k), v=write(cache.v, v), length=length)


def attend(cache: Contiguous, q, *, sinks=None, rules: Rules = PLAIN) -> Array:
    """Attend from the newest tokens, whose keys and values are already in the cache.

    Args:
        q: (tokens, heads, head_dim), the last `tokens` positions.
        sinks: (heads,) learned logits or None.
        rules: mask, cap, block and accumulator.

    Returns:
        (tokens, heads, head_dim) in the dtype of `q`.
    """
    attention.check_heads(q, cache.kv_heads, q.shape[-1], sinks)
    attention.check_length(cache.length - q.shape[0], cache.length, cache.capacity)
    return _attend(cache, q, sinks, rules)


@partial(jax.jit, static_argnames="rules")
def _attend(cache: Contiguous, q, sinks, rules: Rules) -> Array:
    block = min(rules.block, cache.capacity)

    def fetch(first):
        return tuple(_read(cache, parts, first, block) for parts in (cache.k, cache.v))

    start = cache.length - q.shape[0]
    blocks = Blocks(fetch, block, cache.capacity, cache.kv_heads)
    return attention.attend(q, blocks, start, cache.length, sinks, rules)


def _read(cache: Contiguous, parts, first, block: int) -> Array:
    """Return tokens first … first + block as (kv_heads, block, head_dim)."""
    if block < cache.capacity:  # else the cache itself: no copy
        cut = lax.dynamic_slice_in_dim
        parts = tuple(cut(part, first, block, cache.token_axis) for part in parts)
    values = decode(parts, cache.format)
    return values if cache.layout == "head-major" else values.swapaxes(0, 1)


def report(cache: Contiguous) -> xr.Dataset:
    """Return bytes, fragmentation and contiguous runs of the cache (M13, M35)."""
    token_bytes = sum(part.nbytes for part in (*cache.k, *cache.v)) / cache.capacity
    length, parts = int(cache.length), len(cache.k) + len(cache.v)
    # One head's tokens, and all heads' tokens: one of the two is a single stretch, by layout.
    runs = (1, cache.kv_heads) if cache.layout == "head-major" else (length, 1)
    return cache_report(
        lengths=[length],
        reserved=[cache.capacity],
        token_bytes=token_bytes,
        runs=[[parts * r for r in runs]],
        kv_heads=cache.kv_heads,
        kind=f"contiguous, {cache.layout}, {cache.format}",
    )


def cache_report(*, lengths, reserved, token_bytes, runs, kv_heads, kind) -> xr.Dataset:
    """Build the report that every cache gives, for one layer.

    Args:
        lengths: (sequence,) filled tokens.
        reserved: (sequence,) tokens of memory held.
        token_bytes: bytes of one token's keys and values.
        runs: (sequence, reader) contiguous stretches that one KV head, or all of them, read.
        kv_heads: KV heads.
        kind: what the cache is, in words.
    """
    lengths, reserved, runs = (np.asarray(x, np.float64) for x in (lengths, reserved, runs))
    used, held = lengths * token_bytes, reserved * token_bytes
    read = np.stack([used / kv_heads, used], -1)
    return dataset(
        {
            "used_bytes": ("sequence", used),
            "reserved_bytes": ("sequence", held),
            "fragmentation": 1 - used.sum() / held.sum() if held.sum() else 0.0,
            "runs": (("sequence", "reader"), runs),
            "run_bytes": (("sequence", "reader"), read / np.maximum(runs, 1)),
        },
        {"sequence": np.arange(lengths.size), "reader": ["one head", "all heads"]},
        source="arXiv 2309.06180",
        mechanism="M13, M34, M35",
        cache=kind,
    )
