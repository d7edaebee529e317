"""How a KV cache stores a head: floats, or 32 values to a scale as llama.cpp's q8_0 and q4_0 do.

The parts of a value lie in separate arrays (codes, scales), all with the leading axes of the value,
so that any cache slices, scatters and gathers them alike.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax

from workbench.errors import SpecError, UnknownNameError

FLOATS = ("float16", "bfloat16", "float32")
GROUP = 32  # values per scale
#: format -> largest magnitude of a code
CODES = {"q8_0": 127, "q4_0": 8}
FORMATS = (*FLOATS, *CODES)


def check_format(name: str, head_dim: int) -> None:
    """Refuse a format that does not exist, or that cannot hold heads of `head_dim`."""
    if name not in FORMATS:
        raise UnknownNameError("KV format", name, list(FORMATS))
    if name in CODES and head_dim % GROUP:
        raise SpecError(f"head_dim {head_dim}: {name} packs {GROUP} values to a scale")


def encode(x: Array, name: str) -> tuple[Array, ...]:
    """Return the parts of heads (..., head_dim): (values,) or (codes, scales)."""
    if name in FLOATS:
        return (_held(x.astype(name)),)
    groups = x.astype(jnp.float32).reshape(*x.shape[:-1], -1, GROUP)
    scales = _scales(groups, name)
    inverse = jnp.where(scales == 0, 0, 1 / jnp.where(scales == 0, 1, scales))
    codes = (groups * inverse[..., None]).reshape(x.shape)
    return (_pack(codes, name), scales.astype(jnp.float16))


def _held(values: Array) -> Array:
    """Return bfloat16 as integers: XLA's CPU code widens what it slices and gathers of bfloat16."""
    if values.dtype == jnp.bfloat16:
        return lax.bitcast_convert_type(values, jnp.uint16)
    return values


def _scales(groups: Array, name: str) -> Array:
    """Return a scale per group; q4_0's makes the value of largest magnitude the code -8, sign and all."""
    if name == "q8_0":
        return jnp.abs(groups).max(-1) / CODES[name]
    largest = jnp.abs(groups).argmax(-1, keepdims=True)
    return jnp.take_along_axis(groups, largest, -1)[..., 0] / -CODES[name]


def _pack(codes: Array, name: str) -> Array:
    if name == "q8_0":
        return jnp.round(codes).astype(jnp.int8)
    nibbles = jnp.clip(jnp.floor(codes + 8.5), 0, 15).astype(jnp.uint8)
    low, high = jnp.split(nibbles, 2, -1)
    return low | (high << jnp.uint8(4))


def decode(parts: tuple[Array, ...], name: str) -> Array:
    """Return heads (..., head_dim) float32 from their parts; float16 as stored."""
    if name == "bfloat16":  # the upper half of a float32
        wide = parts[0].astype(jnp.uint32) << jnp.uint32(16)
        return lax.bitcast_convert_type(wide, jnp.float32)
    if name in FLOATS:
        return parts[0]
    codes, scales = parts
    if name == "q4_0":
        codes = jnp.concatenate([codes & jnp.uint8(15), codes >> jnp.uint8(4)], -1)
        codes = codes.astype(jnp.int8) - jnp.int8(8)
    groups = codes.astype(jnp.float32).reshape(*scales.shape, GROUP)
    values = groups * scales.astype(jnp.float32)[..., None]
    return values.reshape(codes.shape)


def empty(shape: tuple[int, ...], name: str) -> tuple[Array, ...]:
    """Return zeroed parts of heads of `shape` (..., head_dim)."""
    check_format(name, shape[-1])
    parts = jax.eval_shape(lambda: encode(jnp.zeros(shape, jnp.float32), name))
    return tuple(jnp.zeros(part.shape, part.dtype) for part in parts)
