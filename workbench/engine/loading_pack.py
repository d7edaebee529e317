"""Packing a file's tensors without ever holding one twice: part by part, into place."""

import dataclasses
from collections.abc import Iterable, Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from workbench.engine.codecs import decode
from workbench.engine.matmul import Packed, pack
from workbench.engine.matmul_pack import FLOATS, LANES

#: Rows that are packed at once: whole blocks of lanes, and far more than the padding rule looks at.
_ROWS = 16 * LANES[0]


def packed(kind: str, raw: np.ndarray, shape: tuple[int, ...]) -> Packed:
    """Return a tensor packed for `matmul`; one of very many rows (an embedding) in parts."""
    rows, *columns = shape
    if len(columns) > 1 or rows <= 2 * _ROWS:
        return pack(kind, raw, shape)
    blocks = -(-rows // LANES[0])
    return dataclasses.replace(behind(_parts(kind, raw, shape), blocks), shape=tuple(shape))


def _parts(kind: str, raw: np.ndarray, shape: tuple[int, ...]) -> Iterator[Packed]:
    rows = raw.reshape(shape[0], -1)
    for start in range(0, shape[0], _ROWS):
        part = rows[start : start + _ROWS]
        missing = -len(part) % LANES[0]
        if missing:  # bytes of 0 are weights of 0 in every format
            part = np.concatenate([part, np.zeros((missing, part.shape[1]), part.dtype)])
        done = pack(kind, part, (len(part), shape[1]))
        yield dataclasses.replace(done, shape=(_ROWS, shape[1]))  # parts of one tree structure


def stacked(parts: Iterable[Packed], count: int) -> Packed:
    """Return `count` matrices of one type and shape with a new axis in front."""
    return behind((jax.tree.map(lambda leaf: leaf[None], part) for part in parts), count)


def behind(parts: Iterable, length: int):
    """Return parts one behind another along their first axis, which comes to `length`."""
    whole, at = None, 0
    for part in parts:
        if whole is None:
            whole = jax.tree.map(lambda x: jnp.zeros((length, *x.shape[1:]), x.dtype), part)
        whole = _put(whole, part, jnp.int32(at))
        at += len(jax.tree.leaves(part)[0])
    return whole


@partial(jax.jit, donate_argnums=0)
def _put(whole, part, at):
    def put(x, new):
        return lax.dynamic_update_slice_in_dim(x, new, at, 0)

    return jax.tree.map(put, whole, part)


def floats(kind: str, raw: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return a small tensor as float32."""
    values = raw.view(FLOATS[kind]) if kind in FLOATS else decode(kind, raw.reshape(1, -1))
    return np.array(values, np.float32).reshape(shape)
