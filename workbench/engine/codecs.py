"""Weights to bits and back, on arrays and jitted: the block formats of ggml and two plain floats.

    blocks = encode("Q4_K", weights)          # (..., n) float32 -> (..., bytes) uint8
    weights = decode("Q4_K", blocks)          # and back
    errors(weights, ["Q8_0", "Q4_K"])         # what was lost, as a Dataset

Decoding is bit-equal to the `gguf` library (numbers below float32's normal range become zero, as
everywhere in XLA on the CPU). Encoding is bit-equal where `gguf` encodes; where only ggml's C code
does (K-quants, IQ4), scales are searched for the least squared error (codecs_search.py).
FP8 is in codecs_fp8.py, activation-aware INT4 in codecs_int4.py.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from workbench.engine.codecs_bits import LAYOUTS, Fields, Layout, read, write
from workbench.engine.codecs_search import search, value_of
from workbench.errors import SpecError, UnknownNameError

__all__ = ["FORMATS", "decode", "encode", "errors"]

_FLOATS = {"F32": jnp.float32, "F16": jnp.float16, "BF16": jnp.bfloat16}
FORMATS = (*_FLOATS, *LAYOUTS)


def decode(name: str, blocks: jax.Array) -> jax.Array:
    """Return the weights (..., n) float32 in blocks (..., bytes) uint8 of format `name`.

    Raises:
        UnknownNameError: a format without a codec.
        SpecError: not bytes, or no whole number of blocks.
    """
    _, nbytes = _block(name)
    blocks = _array(name, blocks)
    if blocks.dtype != jnp.uint8 or blocks.ndim < 1 or blocks.shape[-1] % nbytes:
        raise SpecError(
            f"{name}: {blocks.dtype} {blocks.shape}; bytes (..., multiple of {nbytes}) are right"
        )
    return _decode(name, blocks)


def encode(name: str, weights: jax.Array) -> jax.Array:
    """Return weights (..., n) float32 as blocks (..., bytes) uint8 of format `name`.

    Raises:
        UnknownNameError: a format without a codec.
        SpecError: not float32, n no multiple of the block, and for block formats: not finite, or
            so large that no scale holds them.
    """
    block, _ = _block(name)
    weights = _array(name, weights)
    if weights.dtype != jnp.float32 or weights.ndim < 1 or weights.shape[-1] % block:
        raise SpecError(
            f"{name}: {weights.dtype} {weights.shape}; float32 (..., multiple of {block}) is right"
        )
    if name not in _FLOATS and not bool(jnp.isfinite(weights).all()):
        raise SpecError(f"{name}: weights hold NaN or infinite values, which no block can scale")
    blocks, fits = _encode(name, weights)
    if not bool(fits):
        raise SpecError(
            f"{name}: weights up to {jnp.abs(weights).max():.3g} exceed what a scale holds"
        )
    return blocks


def _array(name: str, values) -> jax.Array:
    """Return numbers as an array that is not empty, or refuse."""
    try:
        array = jnp.asarray(values)
    except (TypeError, ValueError):
        raise SpecError(f"{name}: {str(values)[:40]!r} is no array of numbers") from None
    if array.size == 0:
        raise SpecError(f"{name}: an array of shape {array.shape} holds nothing")
    return array


def errors(weights: jax.Array, formats: list[str]):
    """Return what each format loses on weights (..., n) float32.

    Returns:
        A Dataset over `quant`: bits_per_weight, quant_rmse, quant_max_error (in the weights' unit)
        and sqnr = 10 log10(Σw² / Σ(w - ŵ)²) in dB.

    Raises:
        SpecError: no format, or weights that are none.
        WorkbenchError: as `encode`.
    """
    from workbench import results

    if isinstance(formats, str) or not formats:
        raise SpecError(f"formats {formats!r}: a list of at least one is right")
    weights = _array("errors", weights)
    rows = [_errors_of(name, weights) for name in formats]
    names = ("bits_per_weight", "quant_rmse", "quant_max_error", "sqnr")
    columns = {n: ("quant", list(v)) for n, v in zip(names, zip(*rows, strict=True), strict=True)}
    return results.dataset(
        columns, {"quant": list(formats)}, mechanism="M43", source="ggml-quants.c"
    )


def _errors_of(name: str, weights: jax.Array) -> tuple[float, ...]:
    blocks = encode(name, weights)
    exact = np.asarray(weights, np.float64)
    lost = np.asarray(decode(name, blocks), np.float64) - exact
    power = np.mean(lost**2)
    with np.errstate(divide="ignore", invalid="ignore"):  # a lossless format has no noise
        sqnr = 10 * np.log10(np.mean(exact**2) / power)
    return 8 * blocks.size / weights.size, np.sqrt(power), np.abs(lost).max(), sqnr


def _block(name: str) -> tuple[int, int]:
    """Return weights and bytes of a block."""
    if name in LAYOUTS:
        return LAYOUTS[name].block, LAYOUTS[name].nbytes
    if name not in _FLOATS:
        raise UnknownNameError("format", name, list(FORMATS))
    return 1, jnp.dtype(_FLOATS[name]).itemsize


@functools.partial(jax.jit, static_argnums=0)
def _decode(name: str, blocks: jax.Array) -> jax.Array:
    if name in _FLOATS:
        size = jnp.dtype(_FLOATS[name]).itemsize
        parts = blocks.reshape(*blocks.shape[:-1], -1, size)
        return lax.bitcast_convert_type(parts, _FLOATS[name]).astype(jnp.float32)
    layout = LAYOUTS[name]
    fields = read(name, blocks.reshape(*blocks.shape[:-1], -1, layout.nbytes))
    return weights_of(layout, fields).reshape(*blocks.shape[:-1], -1)


def weights_of(layout: Layout, fields: Fields) -> jax.Array:
    """Return scale·sub·value(code) + floor·subfloor (..., block) float32."""
    weights = _product(fields.scale, fields.sub, layout) * value_of(layout, fields.codes)
    if fields.floor is None:
        return weights
    return weights + _product(fields.floor, fields.subfloor, layout)


def _product(scale: jax.Array, sub: jax.Array | None, layout: Layout) -> jax.Array:
    scale = scale.astype(jnp.float32)
    return scale if sub is None else jnp.repeat(scale * sub.astype(jnp.float32), layout.group, -1)


@functools.partial(jax.jit, static_argnums=0)
def _encode(name: str, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the blocks, and whether their scales are finite."""
    if name in _FLOATS:
        parts = lax.bitcast_convert_type(weights.astype(_FLOATS[name]), jnp.uint8)
        return parts.reshape(*weights.shape[:-1], -1), jnp.bool_(True)
    layout = LAYOUTS[name]
    blocks = weights.reshape(*weights.shape[:-1], -1, layout.block)
    by_rule = _ENCODERS.get(name)
    fields = by_rule(layout, blocks) if by_rule else search(name, layout, blocks)
    fits = jnp.isfinite(fields.scale).all()
    if fields.floor is not None:
        fits &= jnp.isfinite(fields.floor).all()
    return write(name, fields).reshape(*weights.shape[:-1], -1), fits


def _rounded(number: jax.Array) -> jax.Array:
    """Return float64 rounded to float32, here and now.

    XLA simplifies chains of float32 divisions and LLVM fuses products into sums, either of which
    rounds once where `gguf` rounds twice. One product or quotient in float64 rounds to the same
    float32, and nothing is simplified across the rounding.
    """
    return lax.reduce_precision(number, 8, 23).astype(jnp.float32)


def _quotient(a: jax.Array, b: jax.Array) -> jax.Array:
    return _rounded(a.astype(jnp.float64) / b.astype(jnp.float64))


def _scaled(x: jax.Array, scale: jax.Array) -> jax.Array:
    """Return x·(1/scale), each step rounded to float32; 0 where the scale is 0."""
    inverse = _quotient(jnp.float32(1), jnp.where(scale == 0, jnp.float32(1), scale))
    product = _rounded(x.astype(jnp.float64) * inverse.astype(jnp.float64))
    return jnp.where(scale == 0, jnp.float32(0), product)


def _encode_signed(layout: Layout, x: jax.Array) -> Fields:
    """Q4_0, Q5_0: the value of largest size, sign kept, becomes the lowest code."""
    at = jnp.abs(x).argmax(-1, keepdims=True)
    scale = _quotient(jnp.take_along_axis(x, at, -1), jnp.float32(-layout.offset))
    codes = jnp.trunc(_scaled(x, scale) + (layout.offset + 0.5))
    return Fields(
        jnp.clip(codes, 0, 2**layout.bits - 1).astype(jnp.uint8), scale.astype(jnp.float16)
    )


def _encode_range(layout: Layout, x: jax.Array) -> Fields:
    """Q4_1, Q5_1: codes spread from the least to the largest value."""
    low, high = x.min(-1, keepdims=True), x.max(-1, keepdims=True)
    scale = _quotient(high - low, jnp.float32(2**layout.bits - 1))
    codes = jnp.trunc(_scaled(x - low, scale) + 0.5)
    codes = jnp.clip(codes, 0, 2**layout.bits - 1).astype(jnp.uint8)
    return Fields(codes, scale.astype(jnp.float16), floor=low.astype(jnp.float16))


def _encode_q8_0(layout: Layout, x: jax.Array) -> Fields:
    scale = _quotient(jnp.abs(x).max(-1, keepdims=True), jnp.float32(127))
    codes = lax.round(_scaled(x, scale), lax.RoundingMethod.AWAY_FROM_ZERO)
    return Fields(codes.astype(jnp.int8), scale.astype(jnp.float16))


def _encode_mxfp4(layout: Layout, x: jax.Array) -> Fields:
    """OCP MX: the shared power of two is that of the largest value over the element's largest."""
    peak = jnp.abs(x).max(-1, keepdims=True)
    exponent = jnp.floor(jnp.log2(peak.astype(jnp.float64)).astype(jnp.float32)) - 3
    scale = jnp.where(peak > 0, jnp.exp2(jnp.maximum(exponent, -126)), jnp.float32(2**-126))
    errors = jnp.abs(scale[..., None] * jnp.asarray(layout.values, jnp.float32) - x[..., None])
    return Fields(errors.argmin(-1).astype(jnp.uint8), scale)


_ENCODERS = {
    "Q4_0": _encode_signed,
    "Q5_0": _encode_signed,
    "Q4_1": _encode_range,
    "Q5_1": _encode_range,
    "Q8_0": _encode_q8_0,
    "MXFP4": _encode_mxfp4,
}
