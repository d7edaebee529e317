"""Many tokens, or chosen rows: packed weights put back together, a block of rows at a time.

Rows stay innermost from the packed bytes to the tile, so that every loop runs along whole
registers. The order along a row is then another one than the file's (slot of a byte, group, byte,
chunk), and the activations are put into the same.
"""

import functools
import operator
from pathlib import Path

import jax
import jax.numpy as jnp
from jax import lax

from workbench.engine.matmul_pack import LAYOUTS, Layout, Packed


def prefill(packed: Packed, x: jax.Array, expert: jax.Array | None = None) -> jax.Array:
    """Return x Wᵀ (tokens, out) of x (tokens, in): a block of rows in the cache at a time."""
    layout = LAYOUTS.get(packed.tensor_type)
    *_, blocks, chunks, _, _ = packed.planes[0].shape
    halved = layout is not None and _has_bfloat16()
    x = _reordered(layout, x.astype(jnp.bfloat16) if halved else x, chunks)

    def block(_, r):
        index = (slice(None), r) if expert is None else (expert, slice(None), r)
        tile = _tile(jax.tree.map(lambda leaf: leaf[index], packed), layout)
        held = _bfloat16(tile) if halved else tile
        return None, lax.dot(x, held, preferred_element_type=jnp.float32)

    _, columns = lax.scan(block, None, jnp.arange(blocks))
    return jnp.moveaxis(columns, 0, 1).reshape(len(x), -1)[:, : packed.shape[0]]


@jax.jit
def rows(packed: Packed, indices: jax.Array) -> jax.Array:
    """Return rows (tokens, in) float32 of packed weights, as an embedding needs them.

    Args:
        packed: the weights (out, in).
        indices: (tokens,) integers below out.
    """
    *_, chunks, _, lanes = packed.planes[0].shape
    block, lane = jnp.divmod(indices, lanes)
    # rows that are chosen stand where the lanes of a block stand
    chosen = jax.tree.map(lambda leaf: jnp.moveaxis(leaf[:, block, ..., lane], 0, -1), packed)
    layout = LAYOUTS.get(packed.tensor_type)
    slots, size = _slots_and_size(layout, packed.shape[1] // chunks)
    parts = _tile(chosen, layout).reshape(slots, -1, size, chunks, len(indices))
    return parts.transpose(4, 3, 1, 0, 2).reshape(len(indices), -1)


def _slots_and_size(layout: Layout | None, chunk: int) -> tuple[int, int]:
    """Return the slots of a byte and the bytes of a group; floats are one group of one slot."""
    return (layout.slots, layout.group // layout.slots) if layout else (1, chunk)


def _reordered(layout: Layout | None, x: jax.Array, chunks: int) -> jax.Array:
    """Return x (tokens, in), each row in the order of a tile."""
    slots, size = _slots_and_size(layout, x.shape[1] // chunks)
    parts = x.reshape(len(x), chunks, -1, slots, size)
    return parts.transpose(0, 3, 2, 4, 1).reshape(x.shape)


@functools.cache
def _has_bfloat16() -> bool:
    """Return whether this processor multiplies bfloat16; others take twice as long as for float32."""
    said = Path("/proc/cpuinfo")  # elsewhere nothing says it without another program
    return said.exists() and any(unit in said.read_text() for unit in ("amx_bf16", "avx512_bf16"))


def _bfloat16(weights: jax.Array) -> jax.Array:
    """Return finite float32 as the nearest bfloat16.

    In integers, since XLA's own rounding looks for NaN and takes twice as long as all the rest.
    """
    bits = lax.bitcast_convert_type(weights, jnp.uint32) + jnp.uint32(0x8000)
    return lax.bitcast_convert_type((bits >> jnp.uint32(16)).astype(jnp.uint16), jnp.bfloat16)


def as_float(values: jax.Array) -> jax.Array:
    """Return float32; BF16, held as integers, is its upper half."""
    if values.dtype == jnp.uint16:
        values = lax.bitcast_convert_type(values.astype(jnp.uint32) << jnp.uint32(16), jnp.float32)
    return values.astype(jnp.float32)


def _values(leaf: jax.Array) -> jax.Array:
    """Return a block (streams, chunks, values, lanes) as (values of a chunk, chunks, lanes)."""
    return jnp.moveaxis(leaf, 1, 2).reshape(-1, leaf.shape[1], leaf.shape[-1])


def _tile(block: Packed, layout: Layout | None) -> jax.Array:
    """Return the weights of a row block as (in, lanes) float32."""
    lanes = block.planes[0].shape[-1]
    if layout is None:
        return as_float(_values(block.planes[0])).reshape(-1, lanes)
    planes = [_values(plane) for plane in block.planes]
    groups = len(planes[0]) * 8 // layout.planes[0] // layout.group
    weights = _codes([plane.reshape(groups, -1, *plane.shape[1:]) for plane in planes], layout)
    weights = (weights - layout.offset) * _per_group(block.scale, block.sub, groups)
    if block.floor is not None:
        weights = weights + _per_group(block.floor, block.subfloor, groups)
    return weights.reshape(-1, lanes)


def _codes(planes: list[jax.Array], layout: Layout) -> jax.Array:
    """Return the codes (slots, groups, bytes, chunks, lanes) float32 of planes (groups, bytes, …).

    Slots are those of the finest plane; another one has fewer in a byte, and so more bytes a group.
    """
    size, shift, slots = layout.group // layout.slots, 0, []
    for plane, bits in zip(planes, layout.planes, strict=True):
        groups, _, *rest = plane.shape
        code = jnp.moveaxis(plane.reshape(groups, -1, size, *rest), 1, 0)
        if bits < 8:
            places = jnp.arange(0, 8, bits, dtype=jnp.uint8).reshape(-1, *[1] * code.ndim)
            code = ((code >> places) & jnp.uint8(2**bits - 1)) << jnp.uint8(shift)
        slots.append(code.reshape(layout.slots, groups, size, *rest))
        shift += bits
    return functools.reduce(operator.or_, slots).astype(jnp.float32)


def _per_group(scale: jax.Array, sub: jax.Array | None, groups: int) -> jax.Array:
    """Return scale·sub (groups, 1, chunks, lanes)."""
    scale = _values(scale).astype(jnp.float32)
    scale = jnp.repeat(scale, groups // len(scale), axis=0)
    if sub is not None:
        scale = scale * _values(sub).astype(jnp.float32)
    return scale[:, None]
