"""Quantised weights times activations on the CPU, in plain JAX, without the dequantised matrix.

    packed = pack("Q4_K", raw_bytes, (out, in))      # once, at load
    y = matmul(packed, x)                            # x (tokens, in) -> y (tokens, out), float32

`matmul` chooses by the static number of tokens: one token runs `decode`, which streams the packed
bytes once; more run `prefill`, which dequantises one block of rows at a time into the cache and
hands it to the matrix unit. Inside a larger `jax.jit` it is inlined; pass that jit
`compiler_options=COMPILER_OPTIONS`, which are what XLA needs to keep each kernel one loop.

Decode needs no shifts. With slots e0, e1, … of w bits in a byte b, the low bits
m_j = b mod 2^(w(j+1)) telescope: e_j = (m_j - m_(j-1)) / 2^(wj), so

    Σ_j e_j x_j = Σ_j m_j (x_j / 2^(wj) - x_(j+1) / 2^(w(j+1)))

and the weights cost a mask, a conversion and a fused multiply-add a slot, while the bracket is
computed once for all rows. Activations stay float32 in decode (llama.cpp rounds them to 8 bits) and
are bfloat16 in prefill of quantised types.
"""

import functools
import operator

import jax
import jax.numpy as jnp
from jax import lax

from workbench.engine.matmul_pack import LANES, LAYOUTS, Layout, Packed, pack

__all__ = ["COMPILER_OPTIONS", "Packed", "matmul", "pack"]

#: Only dots go to XLA's kernel library: its reductions would swallow the decode loop in pieces.
COMPILER_OPTIONS = {
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT",
    "xla_cpu_prefer_vector_width": 512,
}

#: A tile of dequantised weights stays in a core's second-level cache, with room for the rest.
TILE_BYTES = 2**20


@functools.partial(jax.jit, compiler_options=COMPILER_OPTIONS)
def matmul(packed: Packed, x: jax.Array) -> jax.Array:
    """Return x Wᵀ (tokens, out) float32 of activations x (tokens, in) float32 and packed weights."""
    if x.shape[0] == 1:
        return decode(packed, x[0])[None]
    return prefill(packed, x)


def decode(packed: Packed, x: jax.Array) -> jax.Array:
    """Return W x (out,) of one token's activations x (in,): a stream over the packed bytes."""
    layout = LAYOUTS.get(packed.tensor_type)
    partial = _decode_codes(packed, layout, x) if layout else _decode_floats(packed, x)
    # Not partial.sum(1): XLA would fuse that into the loop, which then no longer runs along lanes.
    window = (1, partial.shape[1], 1)
    y = lax.reduce_window(partial, jnp.float32(0), lax.add, window, window, "valid")
    return y.reshape(-1)[: packed.shape[0]]


def _decode_floats(packed: Packed, x: jax.Array) -> jax.Array:
    """Return partial sums (row blocks, chunks, LANES)."""
    (weights,) = packed.planes
    x = x.reshape(weights.shape[1], -1, 1)
    return sum(weights[:, :, i].astype(jnp.float32) * x[:, i] for i in range(weights.shape[2]))


def _decode_codes(packed: Packed, layout: Layout, x: jax.Array) -> jax.Array:
    """Return partial sums (row blocks, chunks, LANES)."""
    groups = x.reshape(packed.planes[0].shape[1], -1, layout.group)
    sums = groups.sum(-1)[..., None]
    coefficients = _coefficients(layout, groups)
    per_chunk = [_by_chunk(f, groups.shape[0]) for f in _scales(packed)]
    total = 0.0
    for g in range(groups.shape[1]):
        dot = _group_dot(packed.planes, layout, coefficients, g) - layout.offset * sums[:, g]
        scale, floor = (_group_scale(*pair, g) for pair in (per_chunk[:2], per_chunk[2:]))
        total = total + scale * dot
        if floor is not None:
            total = total + floor * sums[:, g]
    return total


def _scales(packed: Packed) -> list:
    return [packed.scale, packed.sub, packed.floor, packed.subfloor]


def _by_chunk(field: jax.Array | None, chunks: int) -> jax.Array | None:
    if field is None:
        return None
    return field.reshape(field.shape[0], chunks, -1, LANES)


def _group_scale(scale, sub, g: int):
    """Return scale·sub (row blocks, chunks, LANES) of group g in each chunk, or None."""
    if scale is None:
        return None
    if sub is None:
        return scale[:, :, g].astype(jnp.float32)
    block = g * scale.shape[2] // sub.shape[2]
    return scale[:, :, block].astype(jnp.float32) * sub[:, :, g].astype(jnp.float32)


def _coefficients(layout: Layout, groups: jax.Array) -> list[jax.Array]:
    """Return, a plane each, what masked bytes are multiplied by: (chunks, groups, slots, bytes)."""
    result, shift = [], 0
    for bits in layout.planes:
        slots = groups.reshape(*groups.shape[:2], 8 // bits, -1)
        place = 2.0 ** (shift - bits * jnp.arange(8 // bits, dtype=jnp.float32))[:, None]
        placed = slots * place
        following = jnp.pad(placed[:, :, 1:], ((0, 0), (0, 0), (0, 1), (0, 0)))
        result.append(placed - following)
        shift += bits
    return result


def _group_dot(planes, layout: Layout, coefficients, g: int) -> jax.Array:
    """Return Σ code·x over group g of each chunk: (row blocks, chunks, LANES)."""
    chains = []  # one sum a slot: a single chain would wait for each addition before the next
    for plane, bits, factor in zip(planes, layout.planes, coefficients, strict=True):
        size = factor.shape[3]
        for j in range(8 // bits):
            low = (_low(plane[:, :, g * size + i], bits * (j + 1)) for i in range(size))
            products = (value * factor[:, g, j, i, None] for i, value in enumerate(low))
            chains.append(functools.reduce(operator.add, products))
    return functools.reduce(operator.add, chains)


def _low(byte: jax.Array, bits: int) -> jax.Array:
    masked = byte if bits == 8 else byte & jnp.uint8(2**bits - 1)
    return masked.astype(jnp.float32)


def prefill(packed: Packed, x: jax.Array) -> jax.Array:
    """Return x Wᵀ (tokens, out) of x (tokens, in): one tile of rows dequantised at a time."""
    dtype = jnp.float32 if packed.tensor_type in ("F16", "F32") else jnp.bfloat16
    x = x.astype(dtype)

    def step(_, part: Packed):
        tile = _tile(part).astype(dtype)
        return None, lax.dot(x, tile, preferred_element_type=jnp.float32)

    blocks = _blocks_per_tile(packed)
    tiles = jax.tree.map(lambda leaf: leaf.reshape(-1, blocks, *leaf.shape[1:]), packed)
    _, columns = lax.scan(step, None, tiles)
    return jnp.moveaxis(columns, 0, 1).reshape(x.shape[0], -1)[:, : packed.shape[0]]


def _blocks_per_tile(packed: Packed) -> int:
    """Return how many row blocks make the largest tile that a core's cache holds."""
    blocks = packed.planes[0].shape[0]
    limit = max(1, TILE_BYTES // (2 * packed.shape[1] * LANES))
    return max(n for n in range(1, min(blocks, limit) + 1) if blocks % n == 0)


def _tile(part: Packed) -> jax.Array:
    """Return the weights of a few row blocks as (in, rows), not yet rounded."""
    layout = LAYOUTS.get(part.tensor_type)
    weights = _tile_codes(part, layout) if layout else part.planes[0]
    weights = weights.reshape(len(weights), -1, LANES)
    return jnp.moveaxis(weights, 0, 1).reshape(weights.shape[1], -1)


def _tile_codes(part: Packed, layout: Layout) -> jax.Array:
    """Return the weights (blocks, groups, group, LANES) float32."""
    codes, shift = None, 0
    for plane, bits in zip(part.planes, layout.planes, strict=True):
        if bits < 8:
            plane = plane.reshape(len(plane), -1, 1, layout.group * bits // 8, LANES)
            shifts = jnp.arange(0, 8, bits, dtype=jnp.uint8)[:, None, None]
            plane = ((plane >> shifts) & jnp.uint8(2**bits - 1)) << jnp.uint8(shift)
        plane = plane.reshape(len(plane), -1, layout.group, LANES)
        codes = plane if codes is None else codes | plane
        shift += bits
    values = codes.astype(jnp.float32) - layout.offset
    scale = _per_group(part.scale, part.sub, codes.shape[1])
    floor = _per_group(part.floor, part.subfloor, codes.shape[1])
    return values * scale if floor is None else values * scale + floor


def _per_group(scale, sub, groups: int):
    """Return scale·sub (blocks, groups, 1, LANES), or None."""
    if scale is None:
        return None
    scale = jnp.repeat(scale, groups // scale.shape[1], axis=1).astype(jnp.float32)
    return (scale if sub is None else scale * sub.astype(jnp.float32))[:, :, None]
