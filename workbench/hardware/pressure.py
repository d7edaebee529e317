"""When the working set is larger than the memory: what is read again from the disk, and the cliff (M23)."""

from typing import Any

import numpy as np
import xarray as xr
from scipy.special import lambertw

from workbench import data, results
from workbench.errors import SpecError
from workbench.hardware.contiguity import constant, size_of, within
from workbench.hardware.paging import known
from workbench.hardware.storage import Disk, disk, read_rate
from workbench.units import parse

#: What is thrown out when something must go -> what that means for a scan that comes round again.
REPLACEMENTS = {
    "lru": "what was used longest ago, which the next round needs first",
    "random": "anything: a block must survive every miss of a round",
    "mru": "what was used last: the rest stays. Reads at random miss as much whatever goes",
}


def miss_share(working_set, capacity, replacement):
    """Return the share of reads of a scan, round after round, that miss (M23).

    Args:
        working_set, capacity: bytes. replacement: names of REPLACEMENTS.

    Equation: all or nothing under LRU; 1 - C / W under MRU, which is the best there is (Belady
    1966); at random a block survives the m W misses of a round with (1 - 1 / C)^(m W), so that
    1 - m = exp(-m W / C), solved by Lambert's W.
    """
    outside = np.clip(1.0 - capacity / working_set, 0.0, 1.0)
    rounds = working_set / np.maximum(capacity, 1.0)
    survived = lambertw(-rounds * np.exp(-rounds)).real / rounds
    random = np.where(outside > 0.0, np.clip(1.0 + survived, outside, 1.0), 0.0)
    choices = [np.where(outside > 0.0, 1.0, 0.0), random]
    return np.select([replacement == "lru", replacement == "random"], choices, outside)


def fault_rate(storage: float | str | Disk, chunk: float | str | None = None) -> float:
    """Return what a disk gives when pages are read as they are missed, B/s.

    Args:
        storage: a disk as for `storage.disk`: a name, or B/s of long reads, or text.
        chunk: bytes of one read, Linux's readahead by default; the next starts when it is used.

    Raises:
        WorkbenchError: no such disk, a rate or a chunk that makes no sense.

    Equation: chunk / (latency + chunk / rate): one read under way (`storage.read_rate`, M24).
    """
    each = known("readahead") if chunk is None else size_of(chunk, "chunk")
    return float(read_rate(disk(storage), 1.0, each))


def pressure(
    working_set: Any,
    memory: Any,
    *,
    bandwidth: float | str,
    storage: float | str,
    read: Any = None,
    held: Any = 0.0,
    ratio: Any = 1.0,
) -> xr.Dataset:
    """Price a token whose weights may not all be in memory.

    Args:
        working_set: bytes read over and over: number, array (working_set,), text or DataArray.
        memory: bytes there are for it and for what is held; likewise (memory,).
        bandwidth: of the memory, B/s or text.
        storage: B/s or text; what the disk gives in the way that it is read (see `fault_rate`).
        read: bytes of the working set that a token reads, all of it by default; less for experts.
        held: bytes that every token reads and that stay in memory while they fit.
        ratio: by how much compression shrinks what would be thrown out, 1 to 100; 1.0 for quantised
            weights, 2 to 3 for the data of applications; likewise (ratio,).

    Returns:
        Over `replacement` (REPLACEMENTS) and what was given: `miss`, share of the bytes read that
        memory does not hold; `time_s` and `tok_s`.

    Raises:
        SpecError: sizes or rates that make no sense, a ratio below 1, more read than there is.

    Equation: t = hit / BW + miss / BW_ssd, see `miss_share` (M23). Experts are read at random, not
    in turn: for them take `mru`.
    """
    most = 2.0 ** constant("physical_address_bits")
    whole = within(_bytes(working_set, "working_set"), "working_set", 1.0, most)
    room = within(_bytes(memory, "memory"), "memory", 1.0, most)
    kept = within(_bytes(held, "held"), "held", 0.0, most)
    asked = whole if read is None else within(_bytes(read, "read"), "read", 1.0, most)
    if bool((asked > whole).any()):
        raise SpecError("read: a token cannot read more of the working set than there is")
    rates = (
        parse(value, "byte/second", name)
        for value, name in ((bandwidth, "bandwidth"), (storage, "storage"))
    )
    replacement = xr.DataArray(list(REPLACEMENTS), dims="replacement")
    miss, time = xr.apply_ufunc(
        _token,
        whole,
        room * within(ratio, "ratio", 1.0, 100.0),
        asked,
        kept,
        replacement,
        *rates,
        output_core_dims=[[], []],
    )
    variables = {"miss": miss, "time_s": time, "tok_s": 1.0 / time}
    return results.dataset(
        variables, {"replacement": list(REPLACEMENTS)}, source="Belady 1966; LRU under a cyclic scan",
        mechanism="M23",
    )  # fmt: skip


def measured() -> xr.Dataset:
    """Return published speeds under pressure beside what `pressure` says, over `row`.

    Returns:
        `measured`, `predicted` token/s; as text `note` and `origin`; the case names the row.
    """
    rows = data.rows("pressure.csv")
    predicted = [_predicted(row) for row in rows]
    variables = {
        "measured": ("row", [float(row["measured_tok_s"]) for row in rows]),
        "predicted": ("row", predicted),
    }
    origin = ("row", [row["source"] for row in rows], {"units": "1", "long_name": "source"})
    return results.dataset(
        variables | {"origin": origin}, {"row": [row["case"] for row in rows]},
        source="datasets/pressure.csv", mechanism="M23",
    )  # fmt: skip


def _predicted(row: dict[str, str]) -> float:
    rate = float(row["storage_Bps"])
    ds = pressure(
        float(row["working_set_bytes"]), float(row["memory_bytes"]), read=float(row["read_bytes"]),
        held=float(row["held_bytes"]), bandwidth=float(row["bandwidth_Bps"]),
        storage=fault_rate(rate) if row["access"] == "fault" else rate,
    )  # fmt: skip
    return ds.tok_s.sel(replacement=row["replacement"]).item()


def _token(working_set, capacity, read, held, replacement, bandwidth, storage):
    """Return the missed share of all bytes read and the seconds of a token."""
    crowded = held > capacity  # then nothing is safe, and all of it goes round
    share = np.where(
        crowded,
        miss_share(working_set + held, capacity, replacement),
        miss_share(working_set, np.maximum(capacity - held, 0.0), replacement),
    )
    missed = share * (read + np.where(crowded, held, 0.0))
    moved = read + held
    return missed / moved, (moved - missed) / bandwidth + missed / storage


def _bytes(value: Any, field: str) -> Any:
    return size_of(value, field) if isinstance(value, str) else value
