"""A pool of memory for a device: create, flush, defragment, load; and why the order matters (M21)."""

import itertools
from collections.abc import Sequence

import numpy as np
import xarray as xr

from workbench import results
from workbench.errors import SpecError
from workbench.hardware.contiguity import one_share, size_of
from workbench.specs.config import whole
from workbench.units import human_bytes

FREE, MOVABLE, PINNED = 0, 1, 2
PAGES = 4096  # parts of a pool; finer ones change nothing but the smallest block


class Pool:
    """Pages of a pool, each free, movable or pinned, and the four operations on them.

    An operation returns what came of it in a few words and never raises: a driver reports it too.
    """

    def __init__(self, used: float, cached: float, load: int, seed: int = 0):
        """Describe a pool that does not exist yet.

        Args:
            used: share of its pages that somebody uses when it is created, anywhere in it.
            cached: share of those that a flush can drop.
            load: pages that `load` wants in one piece.
            seed: of where the used pages lie.
        """
        rng = np.random.default_rng(seed)
        self.pages = np.where(rng.random(PAGES) < used, MOVABLE, FREE)
        self._cached = (self.pages == MOVABLE) & (rng.random(PAGES) < cached)
        self._load, self.exists, self.pieces = load, False, 0

    def create(self) -> str:
        """Claim the range; whoever uses pages in it keeps them for now."""
        if self.exists:
            return "refused: there is a pool"
        self.exists = True
        return "created"

    def flush(self) -> str:
        """Drop cached pages."""
        if not self.exists:
            return "refused: no pool"
        dropped = self._cached & (self.pages == MOVABLE)
        self.pages[dropped], self._cached[:] = FREE, False
        return "flushed" if dropped.any() else "nothing to drop"

    def defrag(self) -> str:
        """Move movable pages to the far end; pinned ones stay where they are."""
        if not self.exists:
            return "refused: no pool"
        if self.pieces:
            return "refused: a device uses the pages"
        open_ = np.flatnonzero(self.pages != PINNED)
        order = np.argsort(-self.pages[open_], kind="stable")[::-1]
        self.pages[open_], self._cached[open_] = (
            self.pages[open_][order],
            self._cached[open_][order],
        )
        return "defragmented"

    def load(self) -> str:
        """Pin the pages that the device needs: in one piece if there is one, else in many."""
        if not self.exists:
            return "refused: no pool"
        free = np.flatnonzero(self.pages == FREE)
        if self.pieces or free.size < self._load:
            return "refused: loaded" if self.pieces else "refused: too little is free"
        starts, lengths = _runs(self.pages == FREE)
        fit = np.flatnonzero(lengths >= self._load)
        taken = starts[fit[0]] + np.arange(self._load) if fit.size else free[: self._load]
        self.pages[taken] = PINNED
        self.pieces = 1 + int(np.count_nonzero(np.diff(taken) > 1))
        return "loaded in one piece" if self.pieces == 1 else f"loaded in {self.pieces:,} pieces"

    @property
    def largest(self) -> int:
        """Pages of the longest free run."""
        return int(_runs(self.pages == FREE)[1].max(initial=0))


OPERATIONS = {
    "create": Pool.create,
    "flush": Pool.flush,
    "defrag": Pool.defrag,
    "load": Pool.load,
}


def orderings(
    size: float | str,
    load: float | str,
    *,
    utilisation: float = 0.5,
    cached: float = 0.8,
    order: Sequence[Sequence[str]] | None = None,
    seed: int = 0,
) -> xr.Dataset:
    """Run the operations on a pool in every order, or in the orders given.

    Args:
        size: bytes of the pool, or text such as "24 GB".
        load: bytes that a device wants in one piece.
        utilisation: share of the pool in use when it is created.
        cached: share of that which a flush can drop.
        order: orders to try, all as long as the first; by default all 24.
        seed: of where the used pages lie, a whole number of 0 or more.

    Returns:
        Over (ordering, operation): `operation_name` and `outcome` as text, `largest_bytes` of the
        free runs after it, `pool_free`, `pool_movable` and `pool_pinned` pages of `PAGES`; over
        ordering: `feasible`, whether the device got its memory in one piece.

    Raises:
        SpecError: shares outside 0 to 1, a load larger than the pool, orders of different length,
            no such operation.

    Source: defragmentation moves movable pages only; pages under DMA are pinned (M21;
    torvalds/linux Documentation/admin-guide/mm/hugetlbpage.rst).
    """
    total, wanted = size_of(size, "size"), size_of(load, "load")
    if wanted > total:
        raise SpecError(f"load: {human_bytes(wanted)} is more than the pool, {human_bytes(total)}")
    used, old = one_share(utilisation, "utilisation"), one_share(cached, "cached")
    seed = whole(seed, "seed", 0, 2**32 - 1)
    tried = list(itertools.permutations(OPERATIONS)) if order is None else _checked(order)
    pages = int(np.ceil(wanted / total * PAGES))
    return _labelled(tried, [_run(ops, Pool(used, old, pages, seed)) for ops in tried], total)


def _checked(order) -> list[tuple[str, ...]]:
    example = "such as [['create', 'defrag', 'load']]"
    try:
        tried = [tuple(ops) if isinstance(ops, list | tuple) else () for ops in order]
    except TypeError:
        raise SpecError(f"order: {str(order)[:40]!r} must be a list of orders {example}") from None
    if not tried or len({len(ops) for ops in tried}) != 1 or not tried[0]:
        raise SpecError(f"order: give one order or more {example}, all of the same length")
    for name in itertools.chain(*tried):
        if name not in OPERATIONS:
            legal = ", ".join(OPERATIONS)
            raise SpecError(f"order: {str(name)[:40]!r} is no operation; they are {legal}")
    return tried


def _run(operations: tuple[str, ...], pool: Pool) -> list[tuple]:
    seen = []
    for name in operations:
        outcome = OPERATIONS[name](pool)
        counts = np.bincount(pool.pages, minlength=3)
        seen.append((outcome, pool.largest, *counts, pool.pieces))
    return seen


def _labelled(tried: list[tuple[str, ...]], runs: list, total: float) -> xr.Dataset:
    outcome, largest, free, movable, pinned, pieces = (
        np.array([[step[at] for step in run] for run in runs]) for at in range(6)
    )
    dims = ("ordering", "operation")
    variables = {
        "operation_name": (dims, np.array(tried)),
        "outcome": (dims, outcome),
        "largest_bytes": (dims, largest * total / PAGES),
        "pool_free": (dims, free),
        "pool_movable": (dims, movable),
        "pool_pinned": (dims, pinned),
        "feasible": ("ordering", pieces[:, -1] == 1),
    }
    coords = {
        "ordering": [", ".join(ops) for ops in tried],
        "operation": np.arange(1, len(tried[0]) + 1),
    }
    return results.dataset(variables, coords, source="M21", mechanism="M21", size=total)


def _runs(flags: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return start and length of the runs of True."""
    edges = np.diff(np.concatenate([[0], flags.astype(np.int8), [0]]))
    starts = np.flatnonzero(edges == 1)
    return starts, np.flatnonzero(edges == -1) - starts
