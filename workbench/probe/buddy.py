"""What this machine's free lists hold now: how large a block could be had without moving anything.

The simulator beside it is `hardware.contiguity_zone`, whose names it uses.
"""

import mmap
import re

import numpy as np
import xarray as xr

from workbench.errors import FileError
from workbench.hardware.contiguity import (
    block_bytes,
    fragmentation_index,
    listed_order,
    unusable_share,
)
from workbench.probe import readings, system
from workbench.probe.pace import Report, silent, unseen
from workbench.results import dataset
from workbench.units import human_bytes

_ROW = r"^Node +(\d+), zone +(\w+)"
_COUNT = r"((?: +\d{1,18})+) *$"
_KINDS = r"^Number of blocks type +(.+)\n((?:Node .*\n?)*)"
#: What the kernel counts of compaction in /proc/vmstat -> our word.
_EVENTS = {
    "compact_stall": "waited for",
    "compact_success": "succeeded",
    "compact_fail": "failed",
    "pgmigrate_success": "pages moved",
    "pgmigrate_fail": "pages not moved",
    "thp_fault_alloc": "huge pages given",
    "thp_fault_fallback": "huge pages refused",
}


def read(*, seconds: float | str = 10.0, report: Report = silent) -> xr.Dataset:
    """Read the free lists of this machine.

    Args:
        seconds: ignored, since nothing is measured; here because every probe has it.
        report: progress.

    Returns:
        `free_blocks`, `fi` and `unusable` (zone, order), `listed_order` and `listed_bytes` (zone);
        `pageblocks` (zone, mobility) where /proc/pagetypeinfo may be read, usually by root alone;
        `compactions` (event) since boot. attrs["unseen"] says what cannot be seen here.

    Raises:
        FileError: there is no /proc/buddyinfo to read.
    """
    report("buddy", 0, 1)
    lists = free_lists(system.text("proc/buddyinfo"))
    if len({len(counts) for counts in lists.values()}) != 1:
        raise FileError(
            "/proc/buddyinfo: cannot be read here, or is cut off; only Linux tells its free lists, "
            "and some containers hide them: run it on the host"
        )
    blocks = pageblocks(system.text("proc/pagetypeinfo"))
    ds = labelled(lists, blocks, readings.counters(system.text("proc/vmstat")), mmap.PAGESIZE)
    report("buddy", 1, 1)
    return ds


def free_lists(text: str) -> dict[str, list[int]]:
    """Return zone -> free blocks of each order, from /proc/buddyinfo."""
    rows = re.findall(_ROW + _COUNT, text, re.MULTILINE)
    return {f"{zone} {node}": [int(n) for n in counts.split()] for node, zone, counts in rows}


def pageblocks(text: str) -> dict[str, dict[str, int]]:
    """Return zone -> mobility -> pageblocks, from /proc/pagetypeinfo."""
    return {
        f"{zone} {node}": dict(zip(head.split(), map(int, counts.split()), strict=True))
        for head, lines in re.findall(_KINDS, text, re.MULTILINE)  # a table for each node
        for node, zone, counts in re.findall(_ROW + _COUNT, lines, re.MULTILINE)
        if len(counts.split()) == len(head.split())  # a report may be cut off within a line
    }


def labelled(lists: dict, blocks: dict, events: dict, page: int) -> xr.Dataset:
    """Return what was read with names and units.

    Args:
        lists: as `free_lists` returns them.
        blocks: as `pageblocks`.
        events: counters of /proc/vmstat.
        page: bytes.
    """
    free = np.array(list(lists.values()))
    order = listed_order(free)
    kinds = list(next(iter(blocks.values()), {}))
    counts = [[blocks.get(zone, {}).get(kind, 0) for kind in kinds] for zone in lists]
    seen = {word: float(events[name]) for name, word in _EVENTS.items() if name in events}
    variables = {
        "free_blocks": (("zone", "order"), free),
        "fi": (("zone", "order"), fragmentation_index(free)),
        "unusable": (("zone", "order"), unusable_share(free)),
        "listed_order": ("zone", order),
        "listed_bytes": ("zone", block_bytes(order, page)),
        "compactions": ("event", np.array(list(seen.values()))),
    }
    if kinds:
        variables["pageblocks"] = (("zone", "mobility"), np.array(counts))
    coords = {"zone": list(lists), "order": np.arange(free.shape[1]), "event": list(seen)}
    return dataset(
        variables, coords | ({"mobility": kinds} if kinds else {}), source="read",
        mechanism="M18", page_bytes=page, unseen=unseen(*_unseen(free.shape[1], kinds, page)),
    )  # fmt: skip


def _unseen(orders: int, kinds: list[str], page: int) -> list[str]:
    inside, guest = system.container(), system.virtualization()
    top = human_bytes(page << orders - 1)
    return [
        f"free lists end at {top}: a longer free range is counted as several blocks",
        "which pages are pinned, and where: the kernel tells no process",
        "" if kinds else "/proc/pagetypeinfo: only root may read which pageblocks are unmovable",
        f"inside {inside}: the lists are the host's, shared with everybody on it" if inside else "",
        f"{guest}: one piece of the guest's memory may lie in many pieces of the host's"
        if guest else "",
    ]  # fmt: skip
