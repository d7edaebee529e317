"""A file's tensors: the small ones as they are computed with, and what makes any unfit for it."""

import numpy as np

from workbench.engine.codecs import decode
from workbench.engine.matmul_pack import FLOATS
from workbench.errors import SpecError

#: Exponents that mean NaN or infinity: the bits that are then all set.
_EXPONENT = {"F16": np.uint16(0x7C00), "BF16": np.uint16(0x7F80), "F32": np.uint32(0x7F800000)}
_MXFP4_BYTES, _MXFP4_NAN = (
    17,
    255,
)  # of a block; of its scale (OCP Microscaling Formats v1.0, 5.4.1)
_AT_ONCE = 2**22  # bytes compared at a time: nothing big is held beside the weights


def floats(kind: str, raw: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return a small tensor as float32."""
    values = raw.view(FLOATS[kind]) if kind in FLOATS else decode(kind, raw.reshape(1, -1))
    return np.array(values, np.float32).reshape(shape)


def check_finite(kind: str, raw: np.ndarray) -> None:
    """Refuse bytes of a tensor that say NaN or infinity; block scales in float16 are seen by `pack`.

    Raises:
        SpecError: such a weight, or such a scale of MXFP4.
    """
    if kind in _EXPONENT:
        bits, mask = raw.view(_EXPONENT[kind].dtype), _EXPONENT[kind]
        step = _AT_ONCE // bits.itemsize
        parts = (bits[i : i + step] for i in range(0, bits.size, step))
        if any(((part & mask) == mask).any() for part in parts):
            raise SpecError(f"{kind}: a weight is NaN or infinite; the file is damaged")
    elif kind == "MXFP4" and (raw.reshape(-1, _MXFP4_BYTES)[:, 0] == _MXFP4_NAN).any():
        raise SpecError(f"{kind}: a block scale is NaN; the file is damaged")
