"""A model, a machine and a disk: what kept on the disk costs per token, and what compression can gain (M27, M28)."""

import functools
import zlib

import numpy as np
import xarray as xr

from workbench.engine import codecs
from workbench.hardware.storage_offload import offload
from workbench.study.explain import question

_WEIGHTS = 2**18  # of a made tensor: enough for its ratio to three digits


@functools.cache
def compressibility(quant: str, seed: int = 0) -> float:
    """Return plain bytes per byte that zlib leaves of weights quantised by our own codec.

    Args:
        quant: a format of `engine.codecs`: "Q4_K", "Q8_0", "BF16" ...
        seed: of the weights, normal with the spread of a trained matrix.

    Raises:
        UnknownNameError: a format without a codec.
    """
    weights = np.random.default_rng(seed).normal(0.0, 0.02, _WEIGHTS).astype(np.float32)
    plain = np.asarray(codecs.encode(quant, weights)).tobytes()
    return len(plain) / len(zlib.compress(plain, 6))


def offloaded(token: xr.Dataset, bandwidth: float, resident) -> xr.Dataset:
    """Return the time per token over the share of the KV cache that stays in memory.

    Args:
        token: one configuration of `predict`.
        bandwidth: byte/s of the disk.
        resident: shares, 0 to 1.

    Returns:
        As `hardware.storage_offload.offload`, over `resident`.
    """
    return offload(token.kv_bytes.item(), resident, bandwidth, float(token.time_s.sum()))


def kv_per_token(token: xr.Dataset) -> float:
    """Return the bytes of KV cache that one more token costs, at the mean of the cache held.

    Args:
        token: one configuration of `predict`.
    """
    work = question(token).work.arrays()
    longest = max(float(work["context"]), float(work["prompt"] + work["generate"]))
    return token.memory_bytes.sel(kind="kv").item() / (longest * float(work["batch"]))
