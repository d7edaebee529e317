"""Quantised weights times activations on the CPU, in plain JAX, without the dequantised matrix.

    packed = pack("Q4_K", raw_bytes, (out, in))      # once, at load
    y = matmul(packed, x)                            # x (tokens, in) -> y (tokens, out), float32
    e = rows(packed, token_ids)                      # (tokens, in): the embedding of a tied model
    experts = pack("Q4_K", raw_bytes, (experts, out, in))
    y = matmul(experts, x, expert=i)                 # reads the bytes of expert i only

`matmul` chooses by the static number of tokens: one token runs `decode`, which streams the packed
bytes once; more run `prefill`, which dequantises one block of rows at a time into the cache and
hands it to the matrix unit. Inside a larger `jax.jit` it is inlined, and that jit must be
given `compiler_options=COMPILER_OPTIONS`: without them decode is several times slower, because
XLA's kernel library takes the loop apart.

Decode needs no shifts. With slots e0, e1, … of w bits in a byte b, the low bits
m_j = b mod 2^(w(j+1)) telescope: e_j = (m_j - m_(j-1)) / 2^(wj), so

    Σ_j e_j x_j = Σ_j m_j (x_j / 2^(wj) - x_(j+1) / 2^(w(j+1)))

and the weights cost a mask, a conversion and a fused multiply-add a slot, while the bracket is
computed once for all rows. Activations stay float32 in decode (llama.cpp rounds them to 8 bits) and
are bfloat16 in prefill of quantised types where the processor multiplies that.
"""

import functools
import operator

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer

from workbench.engine.matmul_pack import LAYOUTS, Layout, Packed, pack
from workbench.engine.matmul_prefill import as_float, prefill, rows
from workbench.errors import SpecError

__all__ = ["COMPILER_OPTIONS", "Packed", "matmul", "pack", "rows"]

#: Only dots go to XLA's kernel library: its reductions would swallow the decode loop in pieces.
COMPILER_OPTIONS = {
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT",
    "xla_cpu_prefer_vector_width": 512,
}


def matmul(packed: Packed, x: jax.Array, expert: jax.Array | None = None) -> jax.Array:
    """Return x Wᵀ (tokens, out) float32 of activations x (tokens, in) float32 and packed weights.

    Args:
        packed: the weights.
        x: (tokens, in) float32.
        expert: which of the packed experts, a scalar integer; only its bytes are read.

    Raises:
        SpecError: x is not (tokens, in) with at least one token, or `expert` is missing or too much.
    """
    if x.ndim != 2 or x.shape[0] < 1 or x.shape[1] != packed.shape[1]:
        raise SpecError(f"activations {x.shape} do not meet weights {packed.shape}: (tokens, in)")
    if (packed.planes[0].ndim == 6) != (expert is not None):
        raise SpecError("`expert` chooses among packed experts: give it for those and only those")
    # JAX takes compiler options for the outermost jit only
    run = _product if isinstance(x, Tracer) else _compiled
    return run(packed, x, expert)


def _product(packed: Packed, x: jax.Array, expert: jax.Array | None) -> jax.Array:
    if x.shape[0] == 1:
        return decode(packed, x[0], expert)[None]
    return prefill(packed, x, expert)


_compiled = jax.jit(_product, compiler_options=COMPILER_OPTIONS)


def decode(packed: Packed, x: jax.Array, expert: jax.Array | None = None) -> jax.Array:
    """Return W x (out,) of one token's activations x (in,): a stream over the packed bytes."""
    layout = LAYOUTS.get(packed.tensor_type)
    at = functools.partial(_at, expert=expert)
    partial = _decode_codes(packed, layout, x, at) if layout else _decode_floats(packed, x, at)
    # Not partial.sum(1): XLA would fuse that into the loop, which then no longer runs along lanes.
    window = (1, partial.shape[1], 1)
    y = lax.reduce_window(partial, jnp.float32(0), lax.add, window, window, "valid")
    return y.reshape(-1)[: packed.shape[0]]


def _at(leaf: jax.Array, index: int, expert: jax.Array | None) -> jax.Array:
    """Return value `index` of each chunk (row blocks, chunks, lanes), of one expert if there are.

    Cut straight out of the whole array: an expert cut out first would be copied.
    """
    stream, value = divmod(index, leaf.shape[-2])
    *_, blocks, chunks, _, lanes = leaf.shape
    if expert is None:
        last = (stream + 1, blocks, chunks, value + 1, lanes)
        cut = lax.slice(leaf, (stream, 0, 0, value, 0), last)
    else:
        start = [expert.dtype.type(i) for i in (stream, 0, 0, value, 0)]
        cut = lax.dynamic_slice(leaf, (expert, *start), (1, 1, blocks, chunks, 1, lanes))
    return lax.reshape(cut, (blocks, chunks, lanes))


def _decode_floats(packed: Packed, x: jax.Array, at) -> jax.Array:
    """Return partial sums (row blocks, chunks, lanes)."""
    (weights,) = packed.planes
    x = x.reshape(weights.shape[-3], -1)
    terms = (as_float(at(weights, i)) * _column(x, i) for i in range(x.shape[1]))
    return functools.reduce(operator.add, terms)


def _decode_codes(packed: Packed, layout: Layout, x: jax.Array, at) -> jax.Array:
    """Return partial sums (row blocks, chunks, lanes)."""
    groups = x.reshape(packed.planes[0].shape[-3], -1, layout.group)
    sums = groups.sum(-1)[..., None]
    coefficients = _coefficients(layout, groups)
    dots = [
        _group_dot(packed.planes, layout, coefficients, g, at) - layout.offset * sums[:, g]
        for g in range(groups.shape[1])
    ]
    total = _scaled_sum(packed.scale, packed.sub, dots, at)
    if packed.floor is None:
        return total
    inputs = [sums[:, g] for g in range(groups.shape[1])]
    return total + _scaled_sum(packed.floor, packed.subfloor, inputs, at)


def _scaled_sum(scale: jax.Array, sub: jax.Array | None, terms: list[jax.Array], at) -> jax.Array:
    """Return Σ scale·sub·term over a chunk's groups; with `sub`, all share one scale."""
    factors = scale if sub is None else sub
    scaled = (at(factors, g).astype(jnp.float32) * term for g, term in enumerate(terms))
    total = functools.reduce(operator.add, scaled)
    return total if sub is None else at(scale, 0).astype(jnp.float32) * total


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


def _group_dot(planes, layout: Layout, coefficients, g: int, at) -> jax.Array:
    """Return Σ code·x over group g of each chunk: (row blocks, chunks, lanes)."""
    chains = []  # one sum a slot: a single chain would wait for each addition before the next
    for plane, bits, factor in zip(planes, layout.planes, coefficients, strict=True):
        slots, size = factor.shape[2:]
        flat = factor.reshape(factor.shape[0], -1)
        for j in range(slots):
            low = (_low(at(plane, g * size + i), bits * (j + 1)) for i in range(size))
            first = (g * slots + j) * size
            products = (value * _column(flat, first + i) for i, value in enumerate(low))
            chains.append(functools.reduce(operator.add, products))
    return functools.reduce(operator.add, chains)


def _column(x: jax.Array, i: int) -> jax.Array:
    """Return x[:, i, None]; JAX takes ten times as long to trace that, and there are hundreds."""
    return lax.slice_in_dim(x, i, i + 1, axis=1)


def _low(byte: jax.Array, bits: int) -> jax.Array:
    """Return the low `bits` as float32; widened before masking, so that slots share the widening."""
    if bits == 8:
        return byte.astype(jnp.float32)
    return (byte.astype(jnp.int32) & jnp.int32(2**bits - 1)).astype(jnp.float32)
