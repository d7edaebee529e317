"""FP8: E4M3 and E5M2 with one scale for a tensor, a channel or a block (arXiv 2209.05433)."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from workbench.errors import SpecError, UnknownNameError

KINDS = {"E4M3": jnp.float8_e4m3fn, "E5M2": jnp.float8_e5m2}


class Fp8(NamedTuple):
    """weight = scale·code; `scale` (out/rows, in/columns) float32 covers tiles of `codes`."""

    codes: jax.Array  # (out, in) float8
    scale: jax.Array


def encode_fp8(
    weights: jax.Array, kind: str = "E4M3", *, tile: tuple[int | None, int | None] = (None, None)
) -> Fp8:
    """Return weights (out, in) as FP8 with one scale a tile, so that the largest value just fits.

    Args:
        weights: (out, in) float32.
        kind: "E4M3" (3 mantissa bits, at most 448) or "E5M2" (2 bits, at most 57344).
        tile: rows and columns that share a scale; None is all of them. (None, None) is a scale for
            the tensor, (1, None) one for each channel, (128, 128) one for each block.

    Raises:
        UnknownNameError: another kind.
        SpecError: no matrix of finite float32, or tiles that do not fill it.
    """
    if kind not in KINDS:
        raise UnknownNameError("FP8 kind", kind, list(KINDS))
    weights = jnp.asarray(weights)
    if weights.ndim != 2 or weights.dtype != jnp.float32:
        raise SpecError(f"FP8: {weights.dtype} {weights.shape}; float32 (out, in) is right")
    if not (isinstance(tile, tuple) and len(tile) == 2 and all(map(_is_size, tile))):
        raise SpecError(f"FP8: tile {tile}: (rows, columns), whole numbers or None, are right")
    rows, columns = (
        full if size is None else size for size, full in zip(tile, weights.shape, strict=True)
    )
    if rows < 1 or columns < 1 or weights.shape[0] % rows or weights.shape[1] % columns:
        raise SpecError(f"FP8: tiles of {rows} × {columns} do not fill {weights.shape}")
    if not bool(jnp.isfinite(weights).all()):
        raise SpecError("FP8: weights hold NaN or infinite values")
    return _encode(KINDS[kind], rows, columns, weights)


def _is_size(size: object) -> bool:
    return size is None or isinstance(size, int)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _encode(dtype, rows: int, columns: int, weights: jax.Array) -> Fp8:
    tiles = weights.reshape(weights.shape[0] // rows, rows, -1, columns)
    top = float(jnp.finfo(dtype).max)
    scale = jnp.abs(tiles).max((1, 3)) / top
    safe = jnp.where(scale == 0, 1, scale)[:, None, :, None]
    # rounding the scale may push the largest value past the end, where E4M3 knows only NaN
    codes = jnp.clip(tiles / safe, -top, top).astype(dtype)
    return Fp8(codes.reshape(weights.shape), scale)


@jax.jit
def decode_fp8(fp8: Fp8) -> jax.Array:
    """Return the weights (out, in) float32."""
    repeats = [n // s for n, s in zip(fp8.codes.shape, fp8.scale.shape, strict=True)]
    scale = jnp.repeat(jnp.repeat(fp8.scale, repeats[0], 0), repeats[1], 1)
    return scale * fp8.codes.astype(jnp.float32)
