"""A file's small tensors, as they are computed with."""

import numpy as np

from workbench.engine.codecs import decode
from workbench.engine.matmul_pack import FLOATS


def floats(kind: str, raw: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return a small tensor as float32."""
    values = raw.view(FLOATS[kind]) if kind in FLOATS else decode(kind, raw.reshape(1, -1))
    return np.array(values, np.float32).reshape(shape)
