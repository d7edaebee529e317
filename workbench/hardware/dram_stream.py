"""Which banks and rows a stream of reads touches, by how addresses are laid over them (M10)."""

from typing import NamedTuple

import numpy as np

from workbench.hardware.dram_standards import Timing

#: Where a read lies: in one row of one bank, or its bursts in turn over the bank groups.
MAPPINGS = ("bank", "groups")

_PLACES = 2**26  # granules to choose from


class Pieces(NamedTuple):
    """What reads fall into, each piece in one row of one bank."""

    bank: np.ndarray  # (cell, piece) int32
    row: np.ndarray  # (cell, piece) int32
    bursts: np.ndarray  # (cell,) of a piece


def split(timing: Timing, granule, mapping: str) -> tuple:
    """Return how many pieces a read of `granule` bytes falls into, and the bursts of each."""
    bursts = np.ceil(granule / timing.burst_bytes)
    if mapping == "groups":
        count = np.minimum(bursts, timing.groups)
        return count, np.ceil(bursts / count)
    most = timing.row_bytes // timing.burst_bytes
    return np.ceil(bursts / most), np.minimum(bursts, most)


def stream(timing: Timing, granule, locality, mapping: str, length: int, seed: int) -> Pieces:
    """Return reads at random places, of which a share goes on where the last one ended.

    Args:
        timing: of a standard.
        granule: (cell,) bytes of a read, powers of two.
        locality: (cell,) share of the reads that go on, 0 to 1.
        mapping: of MAPPINGS.
        length: pieces of each cell.
        seed: of the random places, the same in every cell, so that cells differ by what they are only.
    """
    count, bursts = split(timing, granule, mapping)
    read, part = np.divmod(np.arange(length), count[:, None].astype(np.int64))
    leaps, places = (np.random.default_rng([seed, n]).random(length) for n in range(2))
    leaps[0] = 1.0
    fresh = np.where(leaps >= locality[:, None], np.arange(length), 0)
    begun = np.take_along_axis(np.maximum.accumulate(fresh, axis=1), read, 1)
    start = (places[begun] * _PLACES).astype(np.int64)
    step = granule / count if mapping == "bank" else np.full(granule.size, timing.burst_bytes)
    at = (start + read - begun) * granule[:, None].astype(np.int64)
    bank, row = _located(timing, at + part * step[:, None].astype(np.int64), mapping)
    return Pieces(bank.astype(np.int32), row.astype(np.int32), bursts)


def _located(timing: Timing, at: np.ndarray, mapping: str) -> tuple[np.ndarray, np.ndarray]:
    """Return bank and row of a byte; banks one after another belong to different groups."""
    row_bytes, burst_bytes = int(timing.row_bytes), int(timing.burst_bytes)
    if mapping == "bank":
        row, bank = np.divmod(at // row_bytes, timing.banks)
        return bank, row
    group = at // burst_bytes % timing.groups
    stripe = at // (row_bytes * timing.groups)
    row, bank = np.divmod(stripe, timing.banks // timing.groups)
    return bank * timing.groups + group, row
