"""The buddy allocator on a bitmap of pages, exact and a million allocations a second (M18).

A buddy allocator that merges at once has no memory of its own: which blocks are free follows from
which pages are free. So the whole state is one bit a page, 64 pages a word, and a run of equal
allocations, each taking the lowest free block that is large enough, is the first so many set bits.
"""

import numpy as np

WORD = 6  # log2 of the pages in a word
_FULL = np.uint64(2**64 - 1)
#: order -> bits at which an aligned block of that order may start in a word
_STARTS = [np.uint64(sum(1 << at for at in range(0, 64, 1 << order))) for order in range(WORD)]


class Buddy:
    """Free pages of a zone, its pinned pages, and which pageblocks serve unmovable pages.

    With `grouping`, an allocation takes the lowest block in pageblocks of its own kind. Failing
    that, a pageblock changes its kind: for movable pages the lowest that is wholly free, for
    unmovable ones the one with the most free pages, so that they stay together. Failing that, it
    goes anywhere.
    """

    def __init__(self, pages: int, pageblock: int = 9, grouping: bool = True):
        """Start with every page free and movable.

        Args:
            pages: a multiple of 64 and of the pageblock.
            pageblock: its order, 6 or more.
            grouping: keep movable and unmovable pages apart.
        """
        self.free = np.full(pages >> WORD, _FULL)
        self.pinned = np.zeros(pages >> WORD, np.uint64)
        self.unmovable = np.zeros(pages >> pageblock, bool)
        self.pageblock, self.grouping = pageblock, grouping

    @property
    def pages(self) -> int:
        """Pages of the zone."""
        return self.free.size << WORD

    @property
    def used_pages(self) -> int:
        """Pages in use now, pinned ones included."""
        return self.pages - int(np.bitwise_count(self.free).sum())

    @property
    def pinned_pages(self) -> int:
        """Pages pinned now."""
        return int(np.bitwise_count(self.pinned).sum())

    def allocate(self, order: int, count: int, *, pin: bool = False) -> np.ndarray:
        """Allocate up to `count` blocks, one after the other, and return their first pages.

        Args:
            order: log2 of the pages of a block.
            count: blocks wanted; fewer come back when no block of that order is left.
            pin: the blocks are unmovable.
        """
        if not self.grouping:
            return self._take(self._blocks(order), order, count, pin)
        taken = self._take(self._blocks(order, pin), order, count, pin)
        chosen = self._claimable(order, count - taken.size, pin)
        for part in (chosen[:-1], chosen[-1:]):  # the last is the one that is not used up
            self.unmovable[part.ravel()] = pin
            more = self._take(self._blocks(order, pin), order, count - taken.size, pin)
            taken = np.concatenate([taken, more])
        more = self._take(self._blocks(order), order, count - taken.size, pin)
        return np.concatenate([taken, more])

    def release(self, first: np.ndarray, order: int) -> None:
        """Free blocks; they merge with free buddies by themselves.

        Args:
            first: (block,) their first pages.
            order: log2 of the pages of each.
        """
        if order >= WORD:
            words = (first >> WORD)[:, None] + np.arange(1 << order - WORD)
            self.free[words] = _FULL
        else:
            np.bitwise_or.at(self.free, first >> WORD, _mask(first, order))

    def pin(self, pages: np.ndarray) -> None:
        """Make allocated `pages` unmovable where they are, as a driver does before a transfer."""
        np.bitwise_or.at(self.pinned, pages >> WORD, _mask(pages, 0))

    def compact(self, share: float = 1.0) -> int:
        """Move movable pages from the low end to the highest free pages; return how many moved.

        Args:
            share: of the moves that a complete compaction needs, 0 to 1.
        """
        free, pinned = _bits(self.free), _bits(self.pinned)
        target, source = np.flatnonzero(free)[::-1], np.flatnonzero(~free & ~pinned)
        pairs = min(target.size, source.size)
        moves = int(share * np.count_nonzero(source[:pairs] < target[:pairs]))
        free[source[:moves]], free[target[:moves]] = True, False
        self.free = _words(free)
        return moves

    def counts(self, max_order: int) -> np.ndarray:
        """Return the free blocks (order,) as /proc/buddyinfo lists them, orders 0 to `max_order`."""
        slots = np.array([self.slots(order) for order in range(max_order + 1)])
        return slots - 2 * np.append(slots[1:], 0)

    def slots(self, order: int) -> int:
        """Return how many aligned blocks of 2**order pages are wholly free."""
        blocks = self._blocks(order)
        return int(np.bitwise_count(blocks).sum() if order < WORD else np.count_nonzero(blocks))

    def _blocks(self, order: int, kind: bool | None = None) -> np.ndarray:
        """Return the free blocks: start bits in words below WORD, one flag a block from there on."""
        words = self.free
        if kind is not None:
            own = np.repeat(self.unmovable == kind, 1 << self.pageblock - WORD)
            words = np.where(own, words, np.uint64(0))
        if order >= WORD:
            span = 1 << order - WORD
            whole = words[: words.size // span * span] == _FULL
            return whole.reshape(-1, span).all(1)
        for level in range(order):
            words = words & words >> np.uint64(1 << level) & _STARTS[level + 1]
        return words

    def _take(self, blocks: np.ndarray, order: int, count: int, pin: bool) -> np.ndarray:
        if count <= 0:
            return np.zeros(0, np.int64)
        if order >= WORD:
            taken = np.flatnonzero(blocks)[:count]
            words = (taken[:, None] << order - WORD) + np.arange(1 << order - WORD)
            self.free[words] = 0
            self.pinned[words] = _FULL if pin else np.uint64(0)
            return taken << order
        taken = _lowest(blocks, count)
        where = np.flatnonzero(taken)
        pages = taken[where] * np.uint64((1 << (1 << order)) - 1)
        self.free[where] &= ~pages
        if pin:
            self.pinned[where] |= pages
        return _set_bits(taken, where)

    def _claimable(self, order: int, count: int, pin: bool) -> np.ndarray:
        """Return the pageblocks (claim, pageblock) that change their kind for `count` blocks."""
        span = 1 << max(order - self.pageblock, 0)
        units = self.unmovable.size // span
        if count <= 0:
            return np.zeros((0, span), np.int64)
        blocks = self._blocks(order)
        slots = _each(np.bitwise_count(blocks) if order < WORD else blocks, units)
        free = _each(np.bitwise_count(self.free[: units * span << self.pageblock - WORD]), units)
        other = (self.unmovable[: units * span].reshape(units, span) != pin).any(1)
        able = other & (slots > 0) & (pin | (free == span << self.pageblock))
        found = np.flatnonzero(able)
        found = found[np.argsort(-free[found], kind="stable")]
        enough = int(np.searchsorted(np.cumsum(slots[found]), count)) + 1
        return found[:enough][:, None] * span + np.arange(span)


def _each(counts: np.ndarray, units: int) -> np.ndarray:
    """Return the sum of `counts` in each of so many equal parts."""
    return counts.reshape(units, -1).sum(1, dtype=np.int64)


def _lowest(words: np.ndarray, count: int) -> np.ndarray:
    """Return `words` with only the `count` lowest set bits left."""
    before = np.cumsum(np.bitwise_count(words), dtype=np.int64)
    last = int(np.searchsorted(before, count))
    kept = words[: last + 1].copy()
    if last < words.size:
        spare = int(before[last]) - count
        bits = np.flatnonzero(_bits(kept[last:]))
        kept[last] = sum(1 << int(bit) for bit in bits[: bits.size - spare])
    return kept


def _mask(first: np.ndarray, order: int) -> np.ndarray:
    return np.uint64((1 << (1 << order)) - 1) << (first & 63).astype(np.uint64)


def _set_bits(words: np.ndarray, where: np.ndarray) -> np.ndarray:
    """Return the numbers of the set bits of `words`, which are zero outside `where`."""
    at = np.flatnonzero(_bits(words[where]))
    return (where[at >> WORD] << WORD) + (at & 63)


def _bits(words: np.ndarray) -> np.ndarray:
    return np.unpackbits(words.astype("<u8").view(np.uint8), bitorder="little").view(bool)


def _words(bits: np.ndarray) -> np.ndarray:
    return np.packbits(bits, bitorder="little").view("<u8").astype(np.uint64)
