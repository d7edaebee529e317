"""The allocator on a bitmap against one that does what a kernel does, one block at a time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.hardware.buddy import Buddy
from workbench.hardware.buddy_churn import Churn, Zone

PAGEBLOCK = 6
PAGES = 1024


class Sequential:
    """Looks at every block from the lowest on; a flag a page, a kind a pageblock."""

    def __init__(self, grouping):
        self.free, self.grouping = np.ones(PAGES, bool), grouping
        self.unmovable = np.zeros(PAGES >> PAGEBLOCK, bool)

    def allocate(self, order, pin):
        if self.grouping:
            for size, first in (*self._own(order, pin), *self._claims(order, pin)):
                if self.free[first : first + (1 << order)].all():
                    start = first // size * size
                    self.unmovable[self._blocks(start, size)] = pin
                    return self._take(first, order)
        starts = range(0, PAGES, 1 << order)
        found = (first for first in starts if self.free[first : first + (1 << order)].all())
        return self._take(next(found, None), order)

    def _blocks(self, first, size):
        return slice(first >> PAGEBLOCK, (first + size - 1 >> PAGEBLOCK) + 1)

    def _own(self, order, pin):
        """Yield blocks whose pageblocks are all of the kind, from the lowest."""
        size = 1 << order
        for first in range(0, PAGES, size):
            if (self.unmovable[self._blocks(first, size)] == pin).all():
                yield size, first

    def _claims(self, order, pin):
        """Yield blocks of pageblocks that may change their kind, those with most free pages first."""
        size = 1 << max(order, PAGEBLOCK)
        order_ = sorted(range(0, PAGES, size), key=lambda at: -self.free[at : at + size].sum())
        for unit in order_:
            foreign = (self.unmovable[self._blocks(unit, size)] != pin).any()
            if foreign and (pin or self.free[unit : unit + size].all()):
                yield from ((size, at) for at in range(unit, unit + size, 1 << order))

    def _take(self, first, order):
        if first is not None:
            self.free[first : first + (1 << order)] = False
        return first


operations = st.lists(
    st.one_of(
        st.tuples(st.just("allocate"), st.integers(0, 8), st.integers(1, 12), st.booleans()),
        st.tuples(st.just("free"), st.integers(0, 2**16)),
    ),
    max_size=20,
)


@settings(max_examples=60)
@given(operations, st.booleans())
def test_a_run_is_what_one_allocation_after_the_other_would_be(steps, grouping):
    ours, theirs = Buddy(PAGES, PAGEBLOCK, grouping), Sequential(grouping)
    live = []
    for step in steps:
        if step[0] == "allocate":
            _, order, count, pin = step
            got = ours.allocate(order, count, pin=pin)
            expected = [theirs.allocate(order, pin) for _ in range(count)]
            assert sorted(got) == sorted(first for first in expected if first is not None)
            live += [(int(first), order) for first in got]
        elif live:
            first, order = live.pop(step[1] % len(live))
            ours.release(np.array([first]), order)
            theirs.free[first : first + (1 << order)] = True
    assert ours.used_pages == PAGES - theirs.free.sum()
    assert (ours.unmovable == theirs.unmovable).all()
    check_lists(ours, theirs.free)


def check_lists(buddy, free):
    """A block is listed at the largest order at which it is free and its buddy is not."""
    for order, listed in enumerate(buddy.counts(8)):
        whole = free.reshape(-1, 1 << order).all(1)
        merged = np.repeat(whole.reshape(-1, 2).all(1), 2) if order < 8 else False
        assert listed == np.count_nonzero(whole & ~np.asarray(merged))


def test_freed_buddies_merge():
    buddy = Buddy(PAGES, PAGEBLOCK)
    first = buddy.allocate(0, PAGES)
    buddy.release(first[::2], 0)
    assert list(buddy.counts(3)) == [PAGES // 2, 0, 0, 0]
    buddy.release(first[1::2], 0)
    assert list(buddy.counts(3)) == [0, 0, 0, PAGES // 8]


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.floats(0, 1))
def test_compaction_moves_only_what_may_move(seed, share):
    rng, buddy = np.random.default_rng(seed), Buddy(PAGES, PAGEBLOCK, False)
    pages = buddy.allocate(0, PAGES)
    buddy.pin(pages[rng.random(PAGES) < 0.05])
    pinned = buddy.pinned.copy()
    gone = pages[(rng.random(PAGES) < 0.5)]
    held = np.unpackbits(pinned.view(np.uint8), bitorder="little").astype(bool)
    buddy.release(gone[~held[gone]], 0)
    used, before = buddy.used_pages, buddy.slots(4)
    buddy.compact(share)
    assert buddy.used_pages == used and (buddy.pinned == pinned).all()
    assert not (buddy.free & pinned).any()
    buddy.compact()
    assert buddy.slots(4) >= before
    assert buddy.compact() == 0


@pytest.mark.parametrize("grouping", [False, True])
def test_a_life_ends_as_planned(grouping):
    plan = Churn(1.0, 0.4, 0.01, 6, 0.1, {0: 0.8, 2: 0.15, 5: 0.05})
    zone = Zone(Buddy(2**14, PAGEBLOCK, grouping), plan, 0)
    bursts = list(zone.run())
    assert [b.phase for b in bursts] == ["filled", *["in use"] * 6, "cache dropped"]
    assert zone.buddy.used_pages == round(0.4 * 2**14)
    assert zone.buddy.pinned_pages == round(0.01 * 2**14)
    live = sum(live.size << order for order, live in zone.live.items())
    assert live + zone.buddy.pinned_pages == zone.buddy.used_pages
    pinned = np.bitwise_count(zone.buddy.pinned.reshape(-1, 1)).sum(1)
    assert np.count_nonzero(pinned) < 40 if grouping else np.count_nonzero(pinned) > 100
