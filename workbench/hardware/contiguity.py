"""How large a block of memory can still be had in one piece (M18)."""

import functools
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from workbench import data, results
from workbench.errors import SpecError
from workbench.hardware.storage_input import numbers
from workbench.specs.config import whole
from workbench.units import human_bytes, parse

SEEDS = 64
UNBROKEN = -1000  # fragmentation index where a free block is there to be had


@functools.cache
def constant(name: str) -> float:
    """Return a number of datasets/contiguity.csv, in the unit stated there."""
    return next(float(r["value"]) for r in data.rows("contiguity.csv") if r["rule"] == name)


class Pages(NamedTuple):
    """How a zone is cut up; all but the page in pages or orders."""

    count: int  # pages of the zone, whole pageblocks
    page: int  # bytes
    pageblock: int  # order of the unit that mobility grouping works with
    max_order: int  # order of the largest block that the free lists hold


def pages_of(zone: float | str, page: float | str = 4096, max_order: int | None = None) -> Pages:
    """Return how a zone is cut up.

    Args:
        zone: bytes or text such as "32 GiB"; what is left over beside whole blocks is not used.
        page: bytes or text such as "16 KiB".
        max_order: of the free lists; by default that of Linux for this page size.

    Raises:
        SpecError: a page that is no power of two from 4 KiB to 1 MiB, an order outside 0 to 30,
            a zone smaller than one block or larger than any machine can address.
    """
    page = _page(page)
    if max_order is None:
        named = {r["rule"] for r in data.rows("contiguity.csv")}
        name = f"max_order_{page}"
        max_order = int(constant(name if name in named else "max_order_default"))
    max_order = whole(max_order, "max_order", 0, 30)
    pageblock = int(np.log2(page / constant("table_entry_bytes")))
    size, block = size_of(zone, "zone"), page << max(max_order, pageblock)
    if size < block:
        raise SpecError(
            f"zone: {human_bytes(size)} is smaller than one block of {human_bytes(block)} "
            f"(pages of {human_bytes(page)}, order {max(max_order, pageblock)}); make it larger"
        )
    return Pages(int(size // block) * (block // page), page, pageblock, max_order)


def expected_blocks(pages, order, pinned, group=0):
    """Return how many aligned blocks of 2**order pages hold no pinned page, on average.

    Args:
        pages: pages of the zone.
        order: log2 of the pages of a block.
        pinned: share of the pages, or of the pageblocks, that are pinned, at random.
        group: order of what is pinned as one: 0 a page, else a pageblock.

    Equation: E = N / 2^k (1 - q)^max(2^(k - g), 1) (M18, analytic compaction bound).
    """
    with np.errstate(divide="ignore"):
        log_free = np.log1p(-np.asarray(pinned, dtype=np.float64))
    return pages / 2.0**order * np.exp(np.maximum(2.0 ** (order - group), 1.0) * log_free)


def sampled_order(pages: int, pinned, group: int, seeds: int) -> np.ndarray:
    """Return the largest order without a pinned page (seed, ...) in random zones; -1 if none.

    Exact, and as quick for a terabyte as for a megabyte: a block is free of pins with probability
    (1 - q)^(its pages) whatever its neighbours hold, so from the top down the free halves of the
    broken blocks of the order above are a binomial number.
    """
    rng, pinned = np.random.default_rng(0), np.asarray(pinned, dtype=np.float64)
    largest = np.full((seeds, *pinned.shape), -1)
    broken = np.zeros_like(largest)  # blocks of the order above that hold a pin
    for order in range(int(np.log2(pages)), group - 1, -1):
        clean = (1.0 - pinned) ** 2.0 ** (order - group)
        single = (pages >> order) % 2  # the last block has no buddy
        halves = rng.binomial(broken, 2.0 * clean / (1.0 + clean))
        alone = rng.binomial(single, clean, largest.shape)
        broken = 2 * broken + single - halves - alone
        largest = np.where((largest < 0) & (halves + alone > 0), order, largest)
    return largest


def fragmentation_index(free_blocks: np.ndarray) -> np.ndarray:
    """Return Linux's fragmentation index for each order: 0 too little memory, 1000 in pieces.

    Args:
        free_blocks: (..., order) free blocks of each order.

    Equation: FI(o) = 1000 - (1000 + 1000 free / 2^o) / blocks in whole numbers, -1000 where a
    block is there to be had (torvalds/linux mm/vmstat.c, __fragmentation_index).
    """
    sizes = 1 << np.arange(free_blocks.shape[-1])
    free, blocks = (free_blocks * sizes).sum(-1, keepdims=True), free_blocks.sum(-1, keepdims=True)
    index = 1000 - (1000 + 1000 * free // sizes) // np.maximum(blocks, 1)
    suitable = np.cumsum(free_blocks[..., ::-1], -1)[..., ::-1] > 0
    return np.where(blocks == 0, 0, np.where(suitable, UNBROKEN, index))


def unusable_share(free_blocks: np.ndarray) -> np.ndarray:
    """Return the share of the free memory in blocks too small for each order; 0 if none is free.

    Equation: 1 - sum over k >= o of 2^k n_k / free (Gorman & Whitcroft, OLS 2006).
    """
    held = free_blocks * (1 << np.arange(free_blocks.shape[-1]))
    free = held.sum(-1, keepdims=True)
    return np.where(
        free == 0, 0.0, 1.0 - np.cumsum(held[..., ::-1], -1)[..., ::-1] / np.maximum(free, 1)
    )


def listed_order(free_blocks: np.ndarray) -> np.ndarray:
    """Return the largest order (...) of which the free lists hold a block, -1 if none."""
    there = free_blocks > 0
    last = free_blocks.shape[-1] - 1 - np.argmax(there[..., ::-1], -1)
    return np.where(there.any(-1), last, -1)


def block_bytes(order, page: int):
    """Return the bytes of blocks of pages of `page` bytes; 0 where the order is -1, for none."""
    return page * 2.0**order * (order >= 0)


def largest_block(
    zone: float | str,
    pinned: Any,
    *,
    utilisation: Any = 0.0,
    page: float | str = 4096,
    grouping: bool = False,
    seeds: int = SEEDS,
) -> xr.Dataset:
    """Say how large a block a perfect compaction can free among pages that it cannot move.

    Args:
        zone: bytes, or text such as "32 GiB".
        pinned: share of the pages that cannot be moved, 0 to 1: a number, an array (pinned,) or a
            DataArray.
        utilisation: share of the pages in use that must find room elsewhere; as `pinned`.
        page: bytes or text such as "16 KiB".
        grouping: the pinned pages fill pageblocks of their own (mobility grouping at its best);
            otherwise they lie anywhere.
        seeds: random zones to draw, 1 to 10,000.

    Returns:
        `free_blocks` (order, ...): blocks without a pinned page to expect in what is not in use;
        `largest_order` and `largest_bytes` of them: the largest order with one block or more, -1
        and 0 if none; `sampled_order` and `sampled_bytes` (seed, ...) in random zones;
        `pinned_bytes`.

    Raises:
        SpecError: see `pages_of`; shares outside 0 to 1; no seeds.

    Equation: k* = max{k : (1 - u) N / 2^k (1 - q)^(2^k) >= 1} (M18).
    """
    cut, seeds = pages_of(zone, page), whole(seeds, "seeds", 1, 10_000)
    q, used = share(pinned, "pinned"), share(utilisation, "utilisation")
    group = cut.pageblock if grouping else 0
    orders = xr.DataArray(np.arange(int(np.log2(cut.count)) + 1), dims="order")
    blocks = (1.0 - used) * xr.apply_ufunc(expected_blocks, cut.count, orders, q, group)
    order = (blocks >= 1.0).sum("order") - 1
    draw = functools.partial(sampled_order, cut.count, group=group, seeds=seeds)
    drawn = xr.DataArray(draw(q.values), dims=("seed", *q.dims), coords=q.coords)
    variables = {
        "free_blocks": blocks,
        "largest_order": order,
        "largest_bytes": block_bytes(order, cut.page),
        "sampled_order": drawn,
        "sampled_bytes": block_bytes(drawn, cut.page),
        "pinned_bytes": q * cut.count * cut.page,
    }
    coords = {"order": orders.values, "seed": np.arange(seeds)}
    return results.dataset(
        variables, coords, source="independent pinned pages; Gorman & Whitcroft, OLS 2006",
        mechanism="M18", page_bytes=cut.page, zone_bytes=cut.count * cut.page, grouping=grouping,
    )  # fmt: skip


def share(value: Any, field: str) -> xr.DataArray:
    """Return a share of 0 to 1 as a DataArray; a plain array gets the dimension `field`.

    Raises:
        SpecError: not a number, or outside 0 to 1.
    """
    return within(value, field, 0.0, 1.0)


def one_share(value: Any, field: str) -> float:
    """Return one share of 0 to 1, where an array makes no sense.

    Raises:
        SpecError: not one number, or outside 0 to 1.
    """
    found = share(value, field)
    if found.ndim:
        raise SpecError(f"{field}: give one number from 0 to 1 here, not {found.size}")
    return found.item()


def within(value: Any, field: str, low: float, high: float) -> xr.DataArray:
    """Return numbers from `low` to `high` as a DataArray; a plain array gets the dimension `field`.

    Raises:
        SpecError: not a number, or outside.
    """
    array = numbers(value, "dimensionless", field)
    if not ((array.values >= low) & (array.values <= high)).all():
        raise SpecError(f"{field}: {str(array.values)[:60]} must be from {low:g} to {high:g}")
    return array


def size_of(value: float | str, field: str) -> float:
    """Return a size in bytes.

    Raises:
        SpecError: no size, or beyond what any machine can address.
    """
    size, bits = parse(value, "byte", field), int(constant("physical_address_bits"))
    if size > 2.0**bits:
        raise SpecError(f"{field}: {size:.3g} bytes; no machine addresses more than 2**{bits}")
    return size


def _page(value: float | str) -> int:
    page = parse(value, "byte", "page")
    if page != int(page) or int(page) & int(page) - 1 or not 4096 <= page <= 2**20:
        raise SpecError(
            f"page: {page:g} bytes must be a power of two from 4 KiB to 1 MiB, "
            "such as 4096, 16384 or 65536"
        )
    return int(page)
