"""How long weights take to load: predicted from disk, size and loader, scored on public rows, measured here (M24).

A load is a pipeline: read from the disk (nothing if the file is in the page cache), prepare (copy,
convert, move to a card), and the start of the engine. How fast an engine prepares and starts is
the one thing that no data sheet tells: it is fitted to loads of other machines whose files were
cached, so that none of the scored rows was seen.
"""

import contextlib
import functools
import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr

from workbench import data, results
from workbench.errors import FileError, SpecError
from workbench.hardware import storage
from workbench.hardware.storage import Disk
from workbench.specs import engine as engines
from workbench.specs import formats
from workbench.study import row_specs
from workbench.units import GB, GiB

CACHE_STATES = ("cold", "warm")
_SYSTEM = 4 * GiB  # of a machine's memory, for all but the page cache
_RAM = re.compile(r"\((\d+) ?GB\)")
_BLOCK = 2**24  # byte of one read when measuring


def _go_on(what: str, done: int, of: int) -> bool:
    return True


class Loader(NamedTuple):
    """How an engine reads its file (datasets/loaders.csv)."""

    streams: float
    chunk: float  # byte
    overlap: bool  # reading and preparing side by side
    copies: float  # of the file that memory holds: 2 where the cache's is not the one used


class Ready(NamedTuple):
    """What an engine takes once the bytes are in memory; the fit of `ready`."""

    start: float  # s
    rate: float  # B/s


def loader(method: str) -> Loader:
    """Return the loader that a method's name means: "mmap", "no-mmap", "16 streams" ...

    Raises:
        SpecError: no such method; the message names those that are known.
    """
    for row in data.rows("loaders.csv"):
        if found := re.search(row["pattern"], method):
            streams = row["streams"] or found[1]
            return Loader(float(streams), float(row["chunk_KiB"]) * 1024,
                          row["overlap"] == "1", float(row["copies"]))  # fmt: skip
    known = ", ".join(row["loader"] for row in data.rows("loaders.csv"))
    raise SpecError(f"method: {method[:40]!r} is not a known way to load; known are {known}")


@functools.cache
def ready() -> Ready:
    """Return start and rate of an engine, from the rows whose file was cached and disk not stated.

    Equation: t = start + S / rate, through the median of all slopes (Theil 1950, Sen 1968; M24).
    """
    rows = [row for row in data.rows("load.csv") if _settles(row)]
    size = np.array([_size(row) for row in rows])
    took = np.array([float(row["load_s"]) for row in rows])
    one, other = np.triu_indices(size.size, 1)
    apart = size[one] != size[other]
    slopes = (took[other] - took[one])[apart] / (size[other] - size[one])[apart]
    slope = np.median(slopes)
    return Ready(float(np.median(took - slope * size)), float(1.0 / slope))


def seconds(size, disk: Disk, how: Loader, cached, engine: Ready | None = None):
    """Return the seconds until an engine is ready.

    Args:
        size: bytes of the file; arrays broadcast.
        disk: a Disk.
        how: the loader.
        cached: True where the file is in the page cache.
        engine: start and rate; by default those of `ready`.

    Equation: start + max(S / read, S / prepare) if they overlap, else their sum (M24).
    """
    engine = engine or ready()
    read = np.where(cached, 0.0, size / storage.read_rate(disk, how.streams, how.chunk))
    prepare = size / engine.rate
    return engine.start + (np.maximum(read, prepare) if how.overlap else read + prepare)


def times(size, ttft, disk: Disk) -> dict[str, np.ndarray]:
    """Return `load_s` and `cold_start_s` (cache_state, ...), as mapped files load, which is usual.

    Args:
        size: bytes of the file; arrays broadcast.
        ttft: seconds from a prompt to its first token.
        disk: a Disk.
    """
    how = loader("mmap")
    took = [seconds(size, disk, how, state == "warm") for state in CACHE_STATES]
    loaded = np.stack(np.broadcast_arrays(*took))
    return {"load_s": loaded, "cold_start_s": loaded + ttft}


def score() -> xr.Dataset:
    """Predict every public load that states the rate of its disk and its size.

    Returns:
        Over `row`: `load_measured` and `load_predicted` s, `load_error` (predicted over measured,
        minus 1), NaN for rows left out, and `reason` why; attrs `median_ape` of the others and
        `rows` how many they are.
    """
    found = [(row["id"], *_scored(row)) for row in data.rows("load.csv")]
    ids, measured, predicted, reasons = (np.array(column) for column in zip(*found, strict=True))
    error = predicted / measured - 1.0
    used = np.isfinite(error)
    return results.dataset(
        {
            "load_measured": ("row", measured),
            "load_predicted": ("row", predicted),
            "load_error": ("row", error),
            "reason": ("row", reasons),
        },
        {"row": ids},
        source="datasets/load.csv", mechanism="M24", rows=int(used.sum()),
        median_ape=float(np.median(np.abs(error[used]))),
    )  # fmt: skip


def _scored(row: dict[str, str]) -> tuple[float, float, str]:
    """Return (measured, predicted, why it was left out)."""
    measured = float(row["load_s"]) if row["load_s"] else np.nan
    if why := _left_out(row):
        return measured, np.nan, why
    how, size = loader(row["method"]), float(row["model_size_GB"]) * GB
    held = how.copies * size <= _memory(row) - _SYSTEM
    cached = row["cache_state"] == "warm" and held
    return measured, float(seconds(size, _disk(row), how, cached)), ""


def _left_out(row: dict[str, str]) -> str:
    if not row["load_s"]:
        return "no load time: another measure"
    if not row["storage_seq_MBps"]:
        return "the rate of the disk is not stated"
    if not row["model_size_GB"]:
        return "the size is not stated"
    if row["note"].startswith("the page cache did not hold"):
        return "the page cache did not hold the file: free memory is not stated"
    if row["note"].startswith("sets the latency"):
        return "its disk's latency was taken from it"
    return ""


def _disk(row: dict[str, str]) -> Disk:
    """Return the row's disk: its own rate, with the latency of its kind."""
    words = (("stick", "USB stick"), ("(USB)", "Portable SSD (USB)"), ("gp3", "Cloud volume (gp3)"))
    kind = next((disk for word, disk in words if word in row["storage"]), "NVMe PCIe 3.0")
    return storage.disk(kind)._replace(bandwidth=float(row["storage_seq_MBps"]) * 1e6)


def _memory(row: dict[str, str]) -> float:
    found = _RAM.search(row["device"])
    return float(found[1]) * GiB if found else np.inf


def _settles(row: dict[str, str]) -> bool:
    """Tell whether a row tells what an engine takes alone: cached, complete, none of the scored."""
    cached = row["cache_state"] in ("warm", "cached", "following loads")
    whole = "lazy" not in row["method"]
    return bool(row["load_s"] and cached and whole and not row["storage_seq_MBps"])


def _size(row: dict[str, str]) -> float:
    """Return the bytes of a row's file: as stated, else those of the model that it names."""
    if row["model_size_GB"]:
        return float(row["model_size_GB"]) * GB
    known = engines.family(row["engine"]) if "mlx" in row["engine"] else "llama.cpp"
    named = {"model": row["model"], "quant": "", "engine": known, "device_class": ""}
    return float(formats.weight_bytes(*row_specs.weights(named | {"device": ""})).sum())


def measure(path: str | Path, report=_go_on) -> xr.Dataset:
    """Read a file as a load does, from the disk and again from the page cache.

    Args:
        path: an existing file.
        report: progress; the measurement stops when it returns False.

    Returns:
        Over `cache_state` (cold, warm): `load_s` s. attrs `dropped` says whether the
        system was asked to drop the file from its cache first, without which cold is warm.

    Raises:
        FileError: no such file, not readable, empty.
    """
    path = Path(path)
    try:
        total = path.stat().st_size
        if not path.is_file() or total == 0:
            raise FileError(f"{path}: give a file that has bytes to read")
        dropped = drop(path)
        took = [_timed(path, total, state, report) for state in CACHE_STATES]
    except OSError as err:
        raise FileError(f"{path}: cannot be read ({err.strerror})") from None
    return results.dataset(
        {"load_s": ("cache_state", took)}, {"cache_state": list(CACHE_STATES)},
        source="measured", mechanism="M24", size_bytes=total, dropped=dropped,
    )  # fmt: skip


def trial(folder: str | Path = ".", size: float | str = 1e9, report=_go_on) -> xr.Dataset:
    """Predict how long a file takes to read here, from a small probe of the disk, and measure it.

    Args:
        folder: where the file is written; it is removed again whatever happens.
        size: bytes of the file, or text; at most half of what is free.
        report: progress; the trial stops when it returns False.

    Returns:
        Over `cache_state` (cold, warm): `load_predicted` and `load_measured` s, `load_error`;
        attrs `unseen` says what the probe could not see here.

    Raises:
        WorkbenchError: no such folder, no permission, no room, a size under 1 MiB, or stopped.
    """
    from workbench.probe import disk as probe
    from workbench.probe import scratch

    total, where = scratch.checked_size(size, folder)
    seen = probe.reads(where, max(total / 4, 2**22), blocks=[2**22], depths=[1], report=report)
    predicted = total / seen.read_bandwidth.isel(block_size=0).values
    with _written(where, total, report) as path:
        measured = measure(path, report).load_s.values
    return results.dataset(
        {
            "load_predicted": ("cache_state", predicted),
            "load_measured": ("cache_state", measured),
            "load_error": ("cache_state", predicted / measured - 1.0),
        },
        {"cache_state": list(CACHE_STATES)},
        source="measured", mechanism="M24", size_bytes=total, unseen=seen.attrs["unseen"],
    )  # fmt: skip


@contextlib.contextmanager
def _written(folder: Path, size: int, report) -> Iterator[Path]:
    """Yield a file of so many bytes that do not compress, and remove it."""
    from workbench.probe import scratch

    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".workbench-", buffering=0) as file:
            scratch.fill(file.fileno(), size, lambda done: report("writing", done, size))
            yield Path(file.name)
    except OSError as err:
        raise FileError(f"{folder}: the file cannot be written ({err.strerror})") from None


def drop(path: Path) -> bool:
    """Ask the system to forget what it has cached of a file; return whether it can be asked."""
    if not hasattr(os, "posix_fadvise"):
        return False
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
    return True


def _timed(path: Path, total: int, state: str, report) -> float:
    """Return the seconds of one read from end to end into a buffer; NaN if stopped."""
    buffer, done, start = bytearray(_BLOCK), 0, time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            done += count
            if not report(f"reading, {state}", done, total):
                return np.nan
    return time.perf_counter() - start
