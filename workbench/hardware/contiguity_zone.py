"""A zone filled, churned, emptied and compacted, step by step, with what its free lists say (M18, M19)."""

import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import xarray as xr

from workbench import data, results
from workbench.errors import SpecError
from workbench.hardware.buddy import Buddy
from workbench.hardware.buddy_churn import Churn, Zone
from workbench.hardware.contiguity import (
    Pages,
    block_bytes,
    constant,
    fragmentation_index,
    listed_order,
    one_share,
    pages_of,
    unusable_share,
)
from workbench.specs.config import whole
from workbench.units import human_bytes

LIMIT = 2**25  # pages that are simulated one by one
CELLS = 1024  # parts of the zone that a map can show
COMPACTIONS = 6  # steps of a compaction that are shown

Report = Callable[[str, int, int], object]


def simulate(
    zone: float | str,
    utilisation: float = 0.5,
    pinned: float = 1e-3,
    *,
    page: float | str = 4096,
    max_order: int | None = None,
    grouping: bool = True,
    peak: float | None = None,
    seed: int | Sequence[int] = 0,
    report: Report = lambda what, done, of: True,
) -> xr.Dataset:
    """Run a zone through its life: filled, in use, cache dropped, compacted.

    Args:
        zone: bytes, or text such as "32 GiB".
        utilisation: share of the pages in use in the end.
        pinned: share of the pages that get pinned, one by one, while the zone is in use.
        page: bytes or text such as "16 KiB".
        max_order: of the free lists; by default that of Linux for this page size.
        grouping: movable and unmovable pages in pageblocks of their own.
        peak: share in use before the cache is dropped; by default all of it.
        seed: of what happens, a whole number of 0 or more; several give the dimension `seed` one entry each.
        report: called as report(what, done, of) at each step of all seeds; stops when it returns
            False, and the steps or seeds done so far come back.

    Returns:
        Over (seed, burst): `free_blocks`, `fi` and `unusable` (order), as /proc/buddyinfo and Linux
        count them; `listed_order` and `listed_bytes` of the largest block in the free lists,
        `largest_order` and `largest_bytes` of the largest at all, which the lists hold in pieces;
        `used_share` and `pinned_share` (cell); `moved_pages` and `compaction_s` so far;
        `p_success` (burst, order): share of the seeds that could serve a request; `phase` (burst).

    Raises:
        SpecError: see `pages_of`; shares outside 0 to 1 or pinned > utilisation > peak; a zone of
            more than 2**25 pages: `largest_block` takes any size; seeds that are none.

    Source: allocator as in Linux (Gorman & Whitcroft, OLS 2006): lowest free block of order >= o,
    split; a freed block merges with buddy a XOR 2^o.
    """
    cut = pages_of(zone, page, max_order)
    plan = _plan(cut, utilisation, pinned, peak)
    seeds = [whole(one, "seed", 0, 2**32 - 1) for one in np.atleast_1d(seed).tolist()]
    if not seeds:
        raise SpecError("seed: give one number or more")
    runs = []
    for one in seeds:
        told = functools.partial(_tell, report, len(runs) * _steps(plan), len(seeds) * _steps(plan))
        runs.append(list(_watched(cut, plan, grouping, one, told)))
        if len(runs[-1]) < _steps(plan):
            break
    kept = runs[:1] + [run for run in runs[1:] if len(run) == len(runs[0])]
    return _labelled(kept, seeds[: len(kept)], cut, grouping)


def _plan(cut: Pages, utilisation: float, pinned: float, peak: float | None) -> Churn:
    if cut.count > LIMIT:
        raise SpecError(
            f"zone: {cut.count:,} pages are too many to follow one by one (at most {LIMIT:,}: "
            f"{human_bytes(LIMIT * cut.page)} of {human_bytes(cut.page)} pages); take a smaller "
            "zone or largest_block, which takes any size"
        )
    peak = constant("zone_peak") if peak is None else peak
    used, held, most = (
        one_share(value, name)
        for value, name in ((utilisation, "utilisation"), (pinned, "pinned"), (peak, "peak"))
    )
    if not held <= used <= most:
        raise SpecError(
            f"pinned {held:g}, utilisation {used:g}, peak {most:g}: pinned pages are in use, and "
            "use cannot exceed its peak"
        )
    names = [r["rule"] for r in data.rows("contiguity.csv") if r["rule"].startswith("mix_order_")]
    mix = {int(name.rsplit("_", 1)[1]): constant(name) for name in names}
    return Churn(most, used, held, int(constant("zone_bursts")), constant("zone_turnover"), mix)


def _steps(plan: Churn) -> int:
    return plan.bursts + 2 + COMPACTIONS


def _watched(
    cut: Pages, plan: Churn, grouping: bool, seed: int, told: Callable[[str, int], bool]
) -> Iterator[dict[str, object]]:
    """Yield what is seen after each step, until told to stop."""
    zone = Zone(Buddy(cut.count, cut.pageblock, grouping), plan, seed)
    for step, (phase, moved) in enumerate(_lived(zone)):
        yield _seen(zone.buddy, cut) | {"phase": phase, "moved_pages": moved}
        if not told(phase, step + 1):
            return


def _tell(report: Report, before: int, of: int, what: str, step: int) -> bool:
    """Report a step of one seed among those of all; say whether to go on."""
    return report(what, before + step, of) is not False


def _lived(zone: Zone) -> Iterator[tuple[str, int]]:
    """Yield phase and pages moved so far."""
    for burst in zone.run():
        yield burst.phase, 0
    moved = 0
    for left in range(COMPACTIONS, 0, -1):
        moved += zone.buddy.compact(1.0 / left)
        yield "compacting" if left > 1 else "compacted", moved


def _seen(buddy: Buddy, cut: Pages) -> dict[str, object]:
    cells = min(CELLS, buddy.free.size)
    edges = np.arange(cells) * buddy.free.size // cells
    words = np.diff(np.append(edges, buddy.free.size)) * 64.0
    free, pinned = (
        np.add.reduceat(np.bitwise_count(x).astype(np.int64), edges) / words
        for x in (buddy.free, buddy.pinned)
    )
    top = int(np.log2(buddy.pages))
    largest = next((o for o in range(top, -1, -1) if buddy.slots(o)), -1)
    return {
        "free_blocks": buddy.counts(cut.max_order),
        "used_share": 1.0 - free,
        "pinned_share": pinned,
        "largest_order": largest,
    }


def _labelled(runs: list, seeds: list[int], cut: Pages, grouping: bool) -> xr.Dataset:
    seen = {name: np.array([[step[name] for step in run] for run in runs]) for name in runs[0][0]}
    blocks, dims = seen["free_blocks"], ("seed", "burst")
    listed = listed_order(blocks)
    there = np.cumsum(blocks[..., ::-1], -1)[..., ::-1] > 0
    variables = {
        "free_blocks": ((*dims, "order"), blocks),
        "fi": ((*dims, "order"), fragmentation_index(blocks)),
        "unusable": ((*dims, "order"), unusable_share(blocks)),
        "listed_order": (dims, listed),
        "listed_bytes": (dims, block_bytes(listed, cut.page)),
        "largest_order": (dims, seen["largest_order"]),
        "largest_bytes": (dims, block_bytes(seen["largest_order"], cut.page)),
        "used_share": ((*dims, "cell"), seen["used_share"]),
        "pinned_share": ((*dims, "cell"), seen["pinned_share"]),
        "moved_pages": (dims, seen["moved_pages"]),
        "compaction_s": (dims, seen["moved_pages"] * constant("move_page_s") * cut.page / 4096),
        "p_success": (("burst", "order"), there.mean(0)),
        "phase": ("burst", seen["phase"][0]),
    }
    coords = {
        "seed": seeds,
        "burst": np.arange(blocks.shape[1]),
        "order": np.arange(blocks.shape[2]),
    }
    ds = results.dataset(
        variables, coords, source="simulated, buddy allocator of Linux; Gorman & Whitcroft, OLS 2006",
        mechanism="M18 M19", page_bytes=cut.page, zone_bytes=cut.count * cut.page, grouping=grouping,
    )  # fmt: skip
    return ds.isel(seed=0) if len(seeds) == 1 else ds
