"""Where each ggml format keeps its codes and scales in a block, read and written; no arithmetic.

Every format is weight = scale·sub·value(code) + floor·subfloor, with value(code) = code - offset or
an entry of a table. Layouts: ggml/src/ggml-common.h and ggml-quants.c of llama.cpp.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

#: Values of IQ4_NL and IQ4_XS, and MXFP4's E2M1 values doubled (ggml-common.h).
IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
FP4_VALUES = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


class Layout(NamedTuple):
    """The shape of a block."""

    block: int  # weights that share `scale` and `floor`
    nbytes: int  # bytes of a block
    group: int  # weights that share `sub` and `subfloor`
    bits: int  # of a code
    offset: int = 0
    values: tuple[int, ...] = ()


LAYOUTS = {
    "Q4_0": Layout(32, 18, 32, 4, 8),
    "Q4_1": Layout(32, 20, 32, 4),
    "Q5_0": Layout(32, 22, 32, 5, 16),
    "Q5_1": Layout(32, 24, 32, 5),
    "Q8_0": Layout(32, 34, 32, 8),
    "Q2_K": Layout(256, 84, 16, 2),
    "Q3_K": Layout(256, 110, 16, 3, 4),
    "Q4_K": Layout(256, 144, 32, 4),
    "Q5_K": Layout(256, 176, 32, 5),
    "Q6_K": Layout(256, 210, 16, 6, 32),
    "IQ4_NL": Layout(32, 18, 32, 4, values=IQ4_VALUES),
    "IQ4_XS": Layout(256, 136, 32, 4, values=IQ4_VALUES),
    "MXFP4": Layout(32, 17, 32, 4, values=FP4_VALUES),
}


class Fields(NamedTuple):
    """The contents of blocks, unpacked; what a format lacks is None."""

    codes: jax.Array  # (..., block) uint8, int8 for Q8_0
    scale: jax.Array  # (..., 1) float16, float32 for MXFP4
    sub: jax.Array | None = None  # (..., block/group) uint8 or int8
    floor: jax.Array | None = None  # (..., 1) float16
    subfloor: jax.Array | None = None  # (..., block/group) uint8


def read(name: str, blocks: jax.Array) -> Fields:
    """Return the fields of blocks (..., nbytes) uint8 in format `name`."""
    return _READ[name](blocks)


def write(name: str, fields: Fields) -> jax.Array:
    """Return blocks (..., nbytes) uint8 in format `name` that hold `fields`."""
    return jnp.concatenate(_WRITE[name](fields), axis=-1)


def _half(b, at):
    return lax.bitcast_convert_type(b[..., at : at + 2], jnp.float16)[..., None]


def _bytes(number):
    """Return (..., n) numbers of 16 bits as (..., 2n) bytes."""
    return lax.bitcast_convert_type(number, jnp.uint8).reshape(*number.shape[:-1], -1)


def _spread(packed, bits):
    """Return (..., n) bytes as (..., 8/bits, n) codes, lowest bits first."""
    shifts = jnp.arange(0, 8, bits, dtype=jnp.uint8)[:, None]
    return packed[..., None, :] >> shifts & (2**bits - 1)


def _gather(codes, bits):
    """Return (..., 8/bits, n) codes as (..., n) bytes, lowest bits first."""
    shifts = jnp.arange(0, 8, bits, dtype=jnp.uint8)[:, None]
    parts = (codes & (2**bits - 1)) << shifts
    return lax.reduce(parts, jnp.uint8(0), lax.bitwise_or, (parts.ndim - 2,))


def _flat(codes, dims=2):
    return codes.reshape(*codes.shape[:-dims], -1)


def _split(codes, *shape):
    return codes.reshape(*codes.shape[:-1], *shape)


def _high_bits(b):
    """Return 32 bits in 4 bytes as (..., 32): bit i of byte j belongs to code 8j + i."""
    return _flat(jnp.swapaxes(_spread(b, 1), -1, -2))


def _read_legacy(high, floor):
    """Return the reader of Q4_0, Q4_1, Q5_0 and Q5_1."""

    def reader(b):
        start = 2 + 2 * floor
        codes = _flat(_spread(b[..., start + 4 * high :], 4))
        if high:
            codes = codes | _high_bits(b[..., start : start + 4]) << 4
        return Fields(codes, _half(b, 0), floor=_half(b, 2) if floor else None)

    return reader


def _write_legacy(f):
    parts = [_bytes(f.scale)] + ([] if f.floor is None else [_bytes(f.floor)])
    return [*parts, _gather(_split(f.codes, 2, 16), 4)]


def _write_legacy5(f):
    *scales, low = _write_legacy(f)
    return [*scales, _gather(jnp.swapaxes(_split(f.codes >> 4, 4, 8), -1, -2), 1), low]


def _read_q8_0(b):
    return Fields(lax.bitcast_convert_type(b[..., 2:], jnp.int8), _half(b, 0))


def _write_q8_0(f):
    return [_bytes(f.scale), lax.bitcast_convert_type(f.codes, jnp.uint8)]


def _read_q2_k(b):
    codes = _flat(_spread(_split(b[..., 16:80], 2, 32), 2), 3)
    return Fields(codes, _half(b, 80), b[..., :16] & 15, -_half(b, 82), b[..., :16] >> 4)


def _write_q2_k(f):
    codes = _flat(_gather(_split(f.codes, 2, 4, 32), 2))
    return [f.sub | f.subfloor << 4, codes, _bytes(f.scale), _bytes(-f.floor)]


def _read_q3_k(b):
    high = _flat(_spread(b[..., :32], 1))
    codes = _flat(_spread(_split(b[..., 32:96], 2, 32), 2), 3) | high << 2
    sub = _flat(_spread(b[..., 96:104], 4)) | _flat(_spread(b[..., 104:108], 2)) << 4
    return Fields(codes, _half(b, 108), _signed(sub))


def _write_q3_k(f):
    high = _gather(_split(f.codes >> 2, 8, 32), 1)
    low = _flat(_gather(_split(f.codes, 2, 4, 32), 2))
    sub = _unsigned(f.sub)
    subs = [_gather(_split(sub, 2, 8), 4), _gather(_split(sub >> 4, 4, 4), 2)]
    return [high, low, *subs, _bytes(f.scale)]


def _signed(sub):
    """Return scales of 6 bits, stored with 32 added, as int8."""
    return sub.astype(jnp.int8) - 32


def _unsigned(sub):
    return (sub + 32).astype(jnp.uint8)


def _read_k_scales(b):
    """Return sub and subfloor of Q4_K and Q5_K: twice 8 numbers of 6 bits in 12 bytes."""
    low, mid, high = b[..., 4:8], b[..., 8:12], b[..., 12:16]
    sub = jnp.concatenate([low & 63, high & 15 | low >> 6 << 4], axis=-1)
    return sub, jnp.concatenate([mid & 63, high >> 4 | mid >> 6 << 4], axis=-1)


def _write_k_scales(f):
    (s0, s1), (m0, m1) = (jnp.split(part, 2, axis=-1) for part in (f.sub, f.subfloor))
    packed = [s0 | s1 >> 4 << 6, m0 | m1 >> 4 << 6, s1 & 15 | m1 << 4]
    return [_bytes(f.scale), _bytes(-f.floor), *packed]


def _read_q4_k(b):
    sub, subfloor = _read_k_scales(b)
    codes = _flat(_spread(_split(b[..., 16:], 4, 32), 4), 3)
    return Fields(codes, _half(b, 0), sub, -_half(b, 2), subfloor)


def _write_q4_k(f):
    return [*_write_k_scales(f), _flat(_gather(_split(f.codes, 4, 2, 32), 4))]


def _read_q5_k(b):
    sub, subfloor = _read_k_scales(b)
    low = _flat(_spread(_split(b[..., 48:], 4, 32), 4), 3)
    codes = low | _flat(_spread(b[..., 16:48], 1)) << 4
    return Fields(codes, _half(b, 0), sub, -_half(b, 2), subfloor)


def _write_q5_k(f):
    *scales, low = _write_q4_k(f)
    return [*scales, _gather(_split(f.codes >> 4, 8, 32), 1), low]


def _read_q6_k(b):
    low = _flat(_spread(_split(b[..., :128], 2, 64), 4), 3)
    high = _flat(_spread(_split(b[..., 128:192], 2, 32), 2), 3)
    sub = lax.bitcast_convert_type(b[..., 192:208], jnp.int8)
    return Fields(low | high << 4, _half(b, 208), sub)


def _write_q6_k(f):
    low = _flat(_gather(_split(f.codes, 2, 2, 64), 4))
    high = _flat(_gather(_split(f.codes >> 4, 2, 4, 32), 2))
    return [low, high, lax.bitcast_convert_type(f.sub, jnp.uint8), _bytes(f.scale)]


def _read_iq4_xs(b):
    high = _flat(jnp.swapaxes(_spread(b[..., 2:4], 2), -1, -2))
    low = _flat(jnp.swapaxes(_spread(b[..., 4:8], 4), -1, -2))
    codes = _flat(_spread(_split(b[..., 8:], 8, 16), 4), 3)
    return Fields(codes, _half(b, 0), _signed(low | high << 4))


def _write_iq4_xs(f):
    sub = _unsigned(f.sub)
    high = _gather(jnp.swapaxes(_split(sub >> 4, 2, 4), -1, -2), 2)
    low = _gather(jnp.swapaxes(_split(sub, 4, 2), -1, -2), 4)
    return [_bytes(f.scale), high, low, _flat(_gather(_split(f.codes, 8, 2, 16), 4))]


def _read_mxfp4(b):
    # half of 2^(e - 127), because the table holds doubled values; e < 2 makes a subnormal number
    e = b[..., :1].astype(jnp.uint32)
    bits = jnp.where(e < 2, jnp.uint32(0x00200000) << e, (e - 1) << 23)
    return Fields(_flat(_spread(b[..., 1:], 4)), lax.bitcast_convert_type(bits, jnp.float32))


def _write_mxfp4(f):
    bits = lax.bitcast_convert_type(f.scale, jnp.uint32)
    e = jnp.where(
        bits < 1 << 23, (bits >> 22).astype(jnp.uint8), (bits >> 23).astype(jnp.uint8) + 1
    )
    return [e, _gather(_split(f.codes, 2, 16), 4)]


_READ = {
    "Q4_0": _read_legacy(high=False, floor=False),
    "Q4_1": _read_legacy(high=False, floor=True),
    "Q5_0": _read_legacy(high=True, floor=False),
    "Q5_1": _read_legacy(high=True, floor=True),
    "Q8_0": _read_q8_0,
    "Q2_K": _read_q2_k,
    "Q3_K": _read_q3_k,
    "Q4_K": _read_q4_k,
    "Q5_K": _read_q5_k,
    "Q6_K": _read_q6_k,
    "IQ4_NL": _read_legacy(high=False, floor=False),
    "IQ4_XS": _read_iq4_xs,
    "MXFP4": _read_mxfp4,
}
_WRITE = {
    "Q4_0": _write_legacy,
    "Q4_1": _write_legacy,
    "Q5_0": _write_legacy5,
    "Q5_1": _write_legacy5,
    "Q8_0": _write_q8_0,
    "Q2_K": _write_q2_k,
    "Q3_K": _write_q3_k,
    "Q4_K": _write_q4_k,
    "Q5_K": _write_q5_k,
    "Q6_K": _write_q6_k,
    "IQ4_NL": _write_legacy,
    "IQ4_XS": _write_iq4_xs,
    "MXFP4": _write_mxfp4,
}
