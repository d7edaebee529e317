"""Ways to a large piece of memory, and what a transfer does without one (M19, M20)."""

from typing import Any

import numpy as np
import xarray as xr

from workbench import results
from workbench.errors import SpecError
from workbench.hardware.contiguity import (
    Pages,
    block_bytes,
    constant,
    expected_blocks,
    one_share,
    pages_of,
    share,
    size_of,
    within,
)
from workbench.units import human_bytes, parse

#: How memory can be asked for -> what it is.
REQUESTS = {
    "free lists": "what the buddy allocator has",
    "compaction": "pages moved out of the way",
    "hugetlb at boot": "hugepages=, in 1 GiB pages",
    "CMA at boot": "cma=, lent to movable pages until claimed",
    "mem= at boot": "mem=, which only hides the rest",
    "IOMMU": "pages anywhere, mapped to look like one piece",
}


def range_is_clean(pages, pinned):
    """Return the chance that a range of pages holds no pinned one: P = (1 - q)^pages (M19)."""
    return (1.0 - pinned) ** pages


def transfer_time(size, descriptors, entries, bandwidth):
    """Return seconds of a transfer, first and repeated.

    Args:
        size: bytes. descriptors: of the DMA engine. entries: pages mapped in the IOMMU.
        bandwidth: B/s.

    A transfer goes through its pages in turn, so that one line of the page table, once fetched,
    serves all the entries in it: only a new line is a miss that waits for memory. How far walks
    hide behind one another is not known; none do here, so that this is the most they can cost.

    Equation: T = S / BW + ceil(S / c) t_d + misses t_walk, plus S / p t_map once (M20);
    misses = entries x 8 B / line, 0 from the second time on where the IOTLB holds all entries.
    """
    moved = size / bandwidth + descriptors * constant("descriptor_s")
    lines = np.ceil(entries * constant("table_entry_bytes") / constant("table_line_bytes"))
    walks = lines * constant("iotlb_walk_s")
    first = moved + walks + entries * constant("map_page_s")
    return first, moved + walks * (entries > constant("iotlb_entries"))


def compaction(
    size: float | str, pinned: Any, *, utilisation: Any = 0.5, page: float | str = 4096
) -> xr.Dataset:
    """Say whether a range can be emptied by moving what is in it, and how long that takes.

    Args:
        size: bytes of the range, or text such as "16 MiB".
        pinned: share of the pages that cannot be moved, 0 to 1: number, array or DataArray.
        utilisation: share of the pages in use; as `pinned`.
        page: bytes or text.

    Returns:
        `p_success`: the chance that the range holds no pinned page; `moved_pages`, `compaction_s`.

    Raises:
        SpecError: a size or page that makes no sense, shares outside 0 to 1.

    Equation: P = (1 - q)^pages; time = pages moved x 2 us per 4 KiB (M19).
    """
    cut = pages_of(2.0 ** constant("physical_address_bits"), page)
    pages = np.ceil(size_of(size, "size") / cut.page)
    q, used = share(pinned, "pinned"), share(utilisation, "utilisation")
    moved = pages * used
    variables = {
        "p_success": range_is_clean(pages, q),
        "moved_pages": moved,
        "compaction_s": move_time(moved, cut.page),
    }
    return results.dataset(variables, source="M19; hugetlbpage.rst", mechanism="M19")


def move_time(pages, page: int):
    """Return the seconds that compaction takes to move `pages` of `page` bytes."""
    return pages * constant("move_page_s") * page / 4096


def transfer(
    size: float | str,
    chunk: Any,
    *,
    bandwidth: float | str,
    page: float | str = 4096,
    iommu: bool = True,
    largest: float | str = 0.0,
) -> xr.Dataset:
    """Price a DMA transfer of memory that may lie in pieces.

    Args:
        size: bytes, or text such as "27 GB".
        chunk: bytes that one descriptor covers: number, text, array (chunk,) or DataArray.
        bandwidth: B/s or text such as "170 GB/s".
        page: bytes or text; what the IOMMU maps, 16 KiB on Apple.
        iommu: there is one, so that a chunk may lie in pieces.
        largest: bytes of the largest piece to be had; matters without an IOMMU.

    Returns:
        `feasible`; `descriptors`; `iommu_entries` and `map_s`, paid once; `first_transfer_s` and
        `transfer_s`, that of each later one.

    Raises:
        SpecError: sizes that make no sense, a chunk smaller than a page.

    Equation: see `transfer_time`; feasible without an IOMMU iff largest >= chunk (M20).
    """
    cut = pages_of(2.0 ** constant("physical_address_bits"), page)
    total, rate = size_of(size, "size"), parse(bandwidth, "byte/second", "bandwidth")
    piece = within(_sizes(chunk), "chunk", cut.page, 2.0 ** constant("physical_address_bits"))
    descriptors = np.ceil(total / piece)
    entries = np.ceil(total / cut.page) if iommu else 0.0
    first, again = transfer_time(total, descriptors, entries, rate)
    held = parse(largest, "byte", "largest", positive=False)
    variables = {
        "feasible": (piece <= np.maximum(held, np.inf if iommu else 0.0)),
        "descriptors": descriptors,
        "iommu_entries": xr.DataArray(entries),
        "map_s": xr.DataArray(entries * constant("map_page_s")),
        "first_transfer_s": first,
        "transfer_s": again,
    }
    return results.dataset(variables, source="Apple DART pages: AsahiLinux docs", mechanism="M20")


def ways(
    size: float | str,
    chunk: float | str,
    *,
    memory: float | str,
    pinned: float = 1e-3,
    utilisation: float = 0.5,
    reserve: float | str = 0.0,
    page: float | str = 4096,
    max_order: int | None = None,
    grouping: bool = False,
) -> xr.Dataset:
    """Compare the ways to `size` bytes for a device that wants pieces of `chunk` bytes.

    Args:
        size, chunk: bytes or text.
        memory: bytes or text, the memory of the machine.
        pinned, utilisation: shares of its pages, pinned and in use.
        reserve: bytes or text, what `hugepages=` or `cma=` set aside, or `mem=` leaves, at boot.
        page, max_order, grouping: see `largest_block`.

    Returns:
        Over `request` (REQUESTS): `contiguous_bytes`, the largest piece to expect; `feasible`:
        pieces as large as wanted, and enough of them; `compaction_s`: time to move pages or to map
        them; `left_bytes` for everybody else; `hidden_bytes` that nobody can use. Pages in use and
        pinned ones lie anywhere, unless grouped; the free lists hold what nobody has moved yet.

    Raises:
        SpecError: see `largest_block`; a reserve or size beyond the memory's.

    Source: M19, M20; torvalds/linux hugetlbpage.rst and kernel-parameters.txt.
    """
    cut = pages_of(memory, page, max_order)
    total, want, piece = size_of(memory, "memory"), size_of(size, "size"), size_of(chunk, "chunk")
    aside = parse(reserve, "byte", "reserve", positive=False)
    if aside > total:
        raise SpecError(
            f"reserve: {human_bytes(aside)} is more than the memory, {human_bytes(total)}"
        )
    q, used = one_share(pinned, "pinned"), one_share(utilisation, "utilisation")
    groups = cut.pageblock if grouping else 0
    listed = _found(cut, piece, expected_blocks, used)
    moved = _found(cut, piece, lambda n, k, q: (1.0 - used) * expected_blocks(n, k, q, groups), q)
    hidden = _found(cut._replace(count=int(aside) // cut.page), piece, expected_blocks, used)
    huge, pages = constant("hugetlb_page"), np.ceil(want / cut.page)
    moving, whole = float(move_time(pages * used, cut.page)), aside // huge * huge
    rows = {  # largest piece, bytes to be had in pieces as large as wanted, seconds, left, hidden
        "free lists": (*_within(listed, cut), 0.0, total - want, 0.0),
        "compaction": (*moved, moving, total - want, 0.0),
        "hugetlb at boot": (min(huge, whole), whole, 0.0, total - whole, 0.0),
        "CMA at boot": (aside, aside, moving if aside else 0.0, total - aside, 0.0),
        "mem= at boot": (*_within(hidden, cut), 0.0, aside - want, total - aside),
        "IOMMU": (
            cut.page,
            (1.0 - used) * total,
            pages * constant("map_page_s"),
            total - want,
            0.0,
        ),
    }
    return _compared(rows, want, piece)


def _found(cut: Pages, piece: float, blocks, taken: float) -> tuple[float, float]:
    """Return the largest block to expect, and the bytes in blocks as large as a piece."""
    if not cut.count:
        return 0.0, 0.0
    orders = np.arange(int(np.log2(cut.count)) + 1)
    largest = np.count_nonzero(blocks(cut.count, orders, taken) >= 1.0) - 1
    order = max(int(np.ceil(np.log2(piece / cut.page))), 0)
    number = float(blocks(cut.count, order, taken)) if order < orders.size else 0.0
    return float(block_bytes(largest, cut.page)), number * float(block_bytes(order, cut.page))


def _within(found: tuple[float, float], cut: Pages) -> tuple[float, float]:
    """Return what of it the free lists can hand out as one block."""
    return min(found[0], cut.page << cut.max_order), found[1]


def _compared(rows: dict, want: float, piece: float) -> xr.Dataset:
    held, had, seconds, left, hidden = np.array(list(rows.values()), dtype=np.float64).T
    mapped = np.array([name == "IOMMU" for name in rows])
    dim = "request"
    variables = {
        "contiguous_bytes": (dim, held),
        "feasible": (dim, ((held >= piece) | mapped) & (had >= want)),
        "compaction_s": (dim, seconds),
        "left_bytes": (dim, np.maximum(left, 0.0)),
        "hidden_bytes": (dim, hidden),
    }
    return results.dataset(
        variables, {dim: list(rows)}, mechanism="M19 M20", size=want, chunk=piece,
        source="torvalds/linux hugetlbpage.rst, kernel-parameters.txt",
    )  # fmt: skip


def _sizes(value: Any) -> Any:
    return parse(value, "byte", "chunk") if isinstance(value, str) else value
