"""Weights repacked once at load: rows side by side in vector lanes, codes as bit planes, scales apart.

A GGUF row stores one output's weights one after the other, so a vector register would hold weights
that must be summed. Here the same weight of a block of rows lies side by side: no sum across lanes,
one broadcast activation serves them all, and a block is a tile for the matrix unit as it lies.
What a kernel's expression reads lies in several streams, far apart: a core's prefetchers follow
many sequences at once, but each only so fast (one stream gives two thirds of what eight give).
Codes of 5 and 6 bits are split into planes of 4 and 1 or 2 bits, because a byte that holds whole
slots is taken apart with masks alone (see matmul.py).
Formats whose values come from a table (IQ4, MXFP4) take a byte a weight, Q2_K and Q3_K a byte for
each 4-bit scale; all others take what the file takes, and at most 6 % more.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import jax
import ml_dtypes
import numpy as np

from workbench.engine import codecs_bits
from workbench.errors import SpecError

#: Rows side by side: a register of float32 for floats; for codes a cache line of bytes, and as many
#: columns at once as the matrix unit needs to be worth its call.
FLOAT_LANES, CODE_LANES = 16, 64
_STREAMS = 8
_ROWS_AT_ONCE = 2048  # what unpacking to one byte a weight may hold beside the result


class Layout(NamedTuple):
    """How the kernels see weight = scale·sub·(code - offset) + floor·subfloor."""

    block: int  # weights that share `scale` and `floor`
    nbytes: int  # bytes of a block in the file
    group: int  # weights that share `sub` and `subfloor`
    planes: tuple[int, ...]  # bits of a code, lowest first: 6 bits are (4, 2)
    offset: int

    @property
    def slots(self) -> int:
        """Codes that share a byte of the finest plane."""
        return 8 // min(self.planes)


_PLANES = {2: (2,), 3: (2, 1), 4: (4,), 5: (4, 1), 6: (4, 2), 8: (8,)}


def _layout(bits: codecs_bits.Layout) -> Layout:
    """Return a format's layout; values from a table are no linear code and take a byte each."""
    planes, offset = ((8,), 0) if bits.values else (_PLANES[bits.bits], bits.offset)
    return Layout(bits.block, bits.nbytes, bits.group, planes, offset)


LAYOUTS = {name: _layout(bits) for name, bits in codecs_bits.LAYOUTS.items()}
#: Stored as they are: nothing to take apart.
FLOATS = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}
#: BF16 is held as integers: XLA's CPU code rounds what it computes from bfloat16, at great cost.
_HELD = {"BF16": np.uint16}


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["planes", "scale", "sub", "floor", "subfloor"],
    meta_fields=["tensor_type", "shape"],
)
@dataclasses.dataclass(frozen=True)
class Packed:
    """A weight matrix (out, in) in the layout of the kernels: R blocks of as many rows as
    there are lanes.

    Every array is (streams, R, chunks, values, lanes): value i of a chunk, which is what `chunk`
    says of a row, is value i mod values of stream i div values. `planes` are uint8, one array a plane
    (int8 for 8 bits), or one array of floats (BF16 as uint16); `scale` and `floor` are float16
    (float32 for MXFP4), `sub` and `subfloor` 8-bit integers; what a type lacks is None. Experts add
    an axis in front of each array, and their `shape` is that of one expert.
    """

    planes: tuple[jax.Array, ...]
    scale: jax.Array | None
    sub: jax.Array | None
    floor: jax.Array | None
    subfloor: jax.Array | None
    tensor_type: str
    shape: tuple[int, int]

    @property
    def nbytes(self) -> int:
        """Bytes held, padding rows included."""
        return sum(leaf.nbytes for leaf in jax.tree.leaves(self))


def lanes(tensor_type: str) -> int:
    """Return the rows that lie side by side."""
    return FLOAT_LANES if tensor_type in FLOATS else CODE_LANES


def chunk(inputs: int) -> int:
    """Return the weights of a row that one kernel expression spells out: what divides `inputs`."""
    return next(size for size in (128, 64, 32, 16, 8, 4, 2, 1) if inputs % size == 0)


def pack(tensor_type: str, raw: np.ndarray | bytes, shape: tuple[int, ...]) -> Packed:
    """Return the weights of a GGUF tensor, repacked for `matmul`.

    Args:
        tensor_type: its ggml name, "Q4_K".
        raw: its bytes as they lie in the file.
        shape: (out, in) or (experts, out, in); GGUF lists the dimensions the other way round.

    Raises:
        SpecError: a type without a kernel, or bytes and blocks that contradict the shape.
    """
    return pack_parts(tensor_type, [raw], shape)


def pack_parts(tensor_type: str, parts: Iterable, shape: tuple[int, ...]) -> Packed:
    """Return the same of a tensor whose bytes come in parts of whole matrices, as layers do.

    Each is packed into its place, so that nothing is held twice.
    """
    arrays: list[np.ndarray | None] = []
    for matrix, start, rows in _pieces(tensor_type, parts, shape):
        fields = _fields(tensor_type, rows, shape[-1])
        arrays = arrays or [
            _empty(field, shape, lanes(tensor_type), i < len(fields) - 4)
            for i, field in enumerate(fields)
        ]
        for array, field in zip(arrays, fields, strict=True):
            if array is not None:
                _put(array[matrix], start // array.shape[-1], field)
    if len(shape) == 2:
        arrays = [None if array is None else array[0] for array in arrays]
    *planes, scale, sub, floor, subfloor = (_as_jax(array) for array in arrays)
    return Packed(tuple(planes), scale, sub, floor, subfloor, tensor_type, tuple(shape[-2:]))


def _pieces(tensor_type: str, parts: Iterable, shape) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield (matrix, first row, rows (n, bytes of a row)) of all parts, a few thousand rows at a time."""
    matrix, count = 0, math.prod(shape[:-2])
    for raw in parts:
        matrices = _matrices(tensor_type, raw, shape)
        for rows in matrices:
            for start in range(0, shape[-2], _ROWS_AT_ONCE):
                yield matrix, start, rows[start : start + _ROWS_AT_ONCE]
            matrix += 1
    if matrix != count:
        raise SpecError(f"{tensor_type} {tuple(shape)}: {matrix} matrices given, of {count}")


def _empty(field: np.ndarray | None, shape, lanes: int, streamed: bool) -> np.ndarray | None:
    """Return zeros (matrices, streams, R, chunks, values, lanes) to take the `field` of all rows."""
    if field is None:
        return None
    _, chunks, values = field.shape
    streams = math.gcd(values, _STREAMS) if streamed else 1
    blocks = -(-shape[-2] // lanes)
    full = (math.prod(shape[:-2]), streams, blocks, chunks, values // streams, lanes)
    return _aligned(full, field.dtype)


def _aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return zeros that begin at a cache line, which JAX takes over without a copy."""
    nbytes = math.prod(shape) * dtype.itemsize
    whole = np.zeros(nbytes + 64, np.uint8)
    first = -whole.ctypes.data % 64
    return whole[first : first + nbytes].view(dtype).reshape(shape)


def _as_jax(array: np.ndarray | None) -> jax.Array | None:
    return None if array is None else jax.device_put(array, may_alias=True)


def _put(array: np.ndarray, block: int, field: np.ndarray) -> None:
    """Write `field` (rows, chunks, values) into (streams, R, chunks, values, lanes) from `block` on."""
    streams, _, chunks, values, lanes = array.shape
    missing = -len(field) % lanes
    if missing:
        field = np.concatenate([field, np.zeros((missing, *field.shape[1:]), field.dtype)])
    part = field.reshape(-1, lanes, chunks, streams, values)
    array[:, block : block + len(part)] = part.transpose(3, 0, 2, 4, 1)


def _matrices(tensor_type: str, raw, shape: tuple[int, ...]) -> np.ndarray:
    """Return the bytes of a part as (matrices, out, bytes of a row), or refuse."""
    if tensor_type not in LAYOUTS and tensor_type not in FLOATS:
        known, name = ", ".join([*FLOATS, *LAYOUTS]), str(tensor_type)[:40]
        raise SpecError(f"tensor type {name!r} has no matmul kernel; these have: {known}")
    if len(shape) not in (2, 3) or min(shape) < 1:
        raise SpecError(f"shape {shape}: (out, in) or (experts, out, in), all above 0, is right")
    layout = LAYOUTS.get(tensor_type)
    block, size = (layout.block, layout.nbytes) if layout else (1, FLOATS[tensor_type](0).itemsize)
    if shape[-1] % block:
        raise SpecError(f"shape {shape}: {tensor_type} needs rows of a multiple of {block} weights")
    data = (
        np.frombuffer(raw, np.uint8) if isinstance(raw, bytes) else raw.reshape(-1).view(np.uint8)
    )
    matrix = shape[-2] * (shape[-1] // block) * size
    if data.size == 0 or data.size % matrix or data.size // matrix > math.prod(shape[:-2]):
        expected = math.prod(shape[:-2]) * matrix
        raise SpecError(
            f"{tensor_type} {tuple(shape)}: {data.size} bytes given, {expected} make the tensor"
        )
    return data.reshape(-1, shape[-2], matrix // shape[-2])


def _fields(tensor_type: str, rows: np.ndarray, inputs: int) -> list[np.ndarray | None]:
    """Return planes, scale, sub, floor, subfloor, each (rows, ..., values along the row)."""
    size = chunk(inputs)
    if tensor_type in FLOATS:
        weights = rows.view(np.dtype(_HELD.get(tensor_type, FLOATS[tensor_type])))
        return [weights.reshape(len(rows), -1, size), None, None, None, None]
    layout, table = LAYOUTS[tensor_type], codecs_bits.LAYOUTS[tensor_type].values
    fields = _read(tensor_type, rows.reshape(len(rows), -1, layout.nbytes))
    codes = np.asarray(fields.codes)
    scales = [None if field is None else np.asarray(field) for field in fields[1:]]
    if not all(np.isfinite(f).all() for f in scales[::2] if f is not None):
        raise SpecError(f"{tensor_type}: a block scale is NaN or infinite; the file is damaged")
    codes = np.asarray(table, np.int8)[codes] if table else codes
    planes = _planes(codes.reshape(len(rows), -1, layout.group), layout)
    if layout.block > size:  # each chunk finds its own scale: no index arithmetic in the loop
        repeat = layout.block // size
        scales[::2] = [None if f is None else f.repeat(repeat, -1) for f in scales[::2]]
    by_chunk = (len(rows), inputs // size, -1)
    return [None if f is None else f.reshape(by_chunk) for f in (*planes, *scales)]


_read = jax.jit(codecs_bits.read, static_argnums=0)


def _planes(codes: np.ndarray, layout: Layout) -> list[np.ndarray]:
    """Return the planes of codes (rows, groups, group), lowest bits first."""
    shifts = itertools.accumulate(layout.planes, initial=0)
    return [
        _plane(codes >> shift, bits) if bits < 8 else codes
        for shift, bits in zip(shifts, layout.planes, strict=False)
    ]


def _plane(codes: np.ndarray, bits: int) -> np.ndarray:
    """Return the low `bits` of codes (rows, groups, group), slot j of byte i from code i + j·bytes."""
    slots = (codes & (2**bits - 1)).reshape(*codes.shape[:-1], 8 // bits, -1)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    return np.bitwise_or.reduce(slots << shifts, axis=-2)
