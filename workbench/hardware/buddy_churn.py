"""A zone in use: bursts of frees and allocations, pages that stay, and a clean-up at the end (M18)."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from workbench.hardware.buddy import Buddy


class Churn(NamedTuple):
    """What a zone goes through; shares are of the zone's pages unless said otherwise."""

    peak: float  # in use while it churns: the page cache fills what programs leave
    utilisation: float  # in use at the end, when the cache has been dropped
    pinned: float  # pinned at the end
    bursts: int
    turnover: float  # share of the live blocks drawn to be freed in a burst
    mix: dict[int, float]  # order of a block -> share of the pages allocated; order 0 is a must


class Burst(NamedTuple):
    """What a burst asked of the allocator and what it got, in blocks by order of the mix."""

    phase: str
    asked: dict[int, int]
    got: dict[int, int]


class Live:
    """First pages of live blocks of one order; adding and drawing take no time for the others."""

    def __init__(self, capacity: int):
        """Make room for `capacity` blocks; the system lends memory only as it fills."""
        self._first, self.size = np.empty(capacity, np.int64), 0

    def add(self, first: np.ndarray) -> None:
        """Add blocks."""
        self._first[self.size : self.size + first.size] = first
        self.size += first.size

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Draw `count` times, with replacement, and remove what was drawn."""
        if not self.size:
            return self._first[:0]
        drawn = np.zeros(self.size, bool)
        drawn[rng.integers(self.size, size=count)] = True
        return self._remove(np.flatnonzero(drawn))

    def take(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Remove `count` different blocks at random."""
        return self._remove(rng.permutation(self.size)[:count])

    def _remove(self, gone: np.ndarray) -> np.ndarray:
        """Move blocks from the end into the holes."""
        first, left = self._first[gone], self.size - gone.size
        stays = np.ones(gone.size, bool)
        stays[gone[gone >= left] - left] = False
        self._first[gone[gone < left]] = self._first[left : self.size][stays]
        self.size = left
        return first


class Zone:
    """A buddy allocator and the blocks that live in it."""

    def __init__(self, buddy: Buddy, plan: Churn, seed: int):
        """Start empty."""
        self.buddy, self.plan = buddy, plan
        self.live = {order: Live(buddy.pages >> order) for order in plan.mix}
        self._rng = np.random.default_rng(seed)

    def run(self) -> Iterator[Burst]:
        """Fill the zone, churn it, drop the cache; yield after each, so that it can be stopped."""
        yield self._fill()
        for done in range(1, self.plan.bursts + 1):
            for order, live in self.live.items():
                self.buddy.release(live.draw(int(self.plan.turnover * live.size), self._rng), order)
            due = round(self.plan.pinned * self.buddy.pages * done / self.plan.bursts)
            yield self._refill(due - self.buddy.pinned_pages)
        self._drop()
        yield Burst("cache dropped", {}, {})

    def _fill(self) -> Burst:
        """Hand out an empty zone to the peak, blocks of all orders side by side at random."""
        orders, pages = (
            sorted(self.plan.mix, reverse=True),
            round(self.plan.peak * self.buddy.pages),
        )
        first, left = self.buddy.allocate(orders[0], pages >> orders[0]), 1.0
        for order, smaller in zip(orders, [*orders[1:], 0], strict=True):
            keep = self._rng.random(first.size) < (self.plan.mix[order] / left if order else 1.0)
            self._keep(first[keep], order)
            left -= self.plan.mix[order]
            halves = np.arange(0, 1 << order, 1 << smaller)
            first = (first[~keep][:, None] + halves).ravel()
        self._keep(self.buddy.allocate(0, pages - self.buddy.used_pages), 0)
        filled = {order: live.size for order, live in self.live.items()}
        return Burst("filled", filled, filled)

    def _refill(self, pins: int) -> Burst:
        """Allocate by the mix, in random order, up to the peak; single pages fill what is left."""
        pages = round(self.plan.peak * self.buddy.pages) - self.buddy.used_pages - pins
        asked = {o: int(part * max(pages, 0)) >> o for o, part in self.plan.mix.items()}
        got = {}
        for order in self._rng.permutation(list(asked)).tolist():
            if order:
                got[order] = self._keep(self.buddy.allocate(order, asked[order]), order)
            else:
                got[0] = self._singles(asked[0], pins)
        short = pages - sum(count << order for order, count in got.items())
        got[0] += self._keep(self.buddy.allocate(0, short), 0)
        return Burst("in use", asked, got)

    def _singles(self, count: int, pins: int) -> int:
        """Allocate single pages, of which `pins`, anywhere in the sequence, are unmovable."""
        if self.buddy.grouping:
            self.buddy.allocate(0, pins, pin=True)
            return self._keep(self.buddy.allocate(0, count), 0)
        pages = self.buddy.allocate(0, count + pins)
        stay = self._rng.permutation(pages.size)[:pins]
        self.buddy.pin(pages[stay])
        return self._keep(np.delete(pages, stay), 0)

    def _keep(self, first: np.ndarray, order: int) -> int:
        self.live[order].add(first)
        return first.size

    def _drop(self) -> None:
        """Free random blocks of every order until no more than the final share is in use."""
        excess = self.buddy.used_pages - round(self.plan.utilisation * self.buddy.pages)
        share = excess / max(self.buddy.used_pages - self.buddy.pinned_pages, 1)
        for order in sorted(self.live, reverse=True):
            live = self.live[order]
            count = int(share * live.size) if order else excess
            gone = live.take(max(count, 0), self._rng)
            self.buddy.release(gone, order)
            excess -= gone.size << order
