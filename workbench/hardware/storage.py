"""From disk to ready: queue depth, streams, decompression, and the stages of a load (M24, M26, M27)."""

import functools
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from workbench import data, results
from workbench.errors import UnknownNameError
from workbench.hardware.storage_input import nonnegative, quantity, size
from workbench.units import GB, parse

#: The stages of a load, in order; `start` is what the engine takes whatever the size.
STAGES = ("read", "link", "decompress", "prepare", "start")


class Disk(NamedTuple):
    """What limits reading; every field broadcasts."""

    bandwidth: Any  # B/s of large sequential reads
    latency: Any  # s of one small read alone
    iops: Any  # reads/s at most


def read_rate(disk: Disk, streams, chunk):
    """Return the byte/s of streams that each wait for one chunk before asking for the next.

    Args:
        disk: a Disk.
        streams: how many at a time.
        chunk: bytes of a request.

    Equation: min(BW, c x chunk / (l + chunk / BW)) (M24).
    """
    drawn = streams * chunk / (disk.latency + chunk / disk.bandwidth)
    return (np if isinstance(drawn, float | np.ndarray) else jnp).minimum(disk.bandwidth, drawn)


def queue(disk: Disk, depth, block) -> tuple:
    """Return reads/s, byte/s and seconds of a read with `depth` reads of `block` bytes waiting.

    Equation: IOPS = min(IOPS_max, QD / l0, BW / block); l = QD / IOPS (M26, Little's law).
    """
    most = jnp.minimum(disk.iops, disk.bandwidth / block)
    iops = jnp.minimum(most, depth / disk.latency)
    return iops, iops * block, depth / iops


def load_seconds(seconds, overlap):
    """Return the seconds of STAGES (stage, ...): the longest if they overlap, else all in turn.

    Reading and crossing the link are one movement of the same bytes in any case, and the engine's
    start always comes on top (the fill of the pipeline).
    """
    fetch, work, start = seconds[:2].max(0), seconds[2:-1], seconds[-1]
    in_turn, at_once = fetch + work.sum(0), jnp.maximum(fetch, work.max(0))
    return jnp.where(overlap > 0, at_once, in_turn) + start


def decompressed(stored_rate, ratio, speed):
    """Return the byte/s of plain data: what is read grows by `ratio`, up to the codec's speed (M27)."""
    return np.minimum(stored_rate * ratio, speed)


@functools.cache
def disks() -> dict[str, Disk]:
    """Return name -> Disk of datasets/disks.csv; reads/s without a limit where none is stated."""
    return {row["disk"]: _disk(row) for row in data.rows("disks.csv")}


def disk(name: str | float | Disk) -> Disk:
    """Return a disk by name, or one of a given rate with the latency of flash behind NVMe.

    Args:
        name: one of `disks()`, byte/s, text such as "3.5 GB/s", or a Disk.

    Raises:
        SpecError: a rate that makes no sense.
        UnknownNameError: no such disk; the message suggests the nearest.
    """
    if isinstance(name, Disk):
        return name
    known = {key.lower(): value for key, value in disks().items()}
    if isinstance(name, str) and name.strip().lower() in known:
        return known[name.strip().lower()]
    if isinstance(name, str) and not name.lstrip()[:1].isdigit():
        raise UnknownNameError("disk", name, list(disks()))
    return Disk(parse(name, "byte/second", "disk"), disks()["NVMe PCIe 4.0"].latency, math.inf)


@functools.lru_cache(maxsize=1024)
def usual(device_class: str, generation: str, name: str) -> str:
    """Return the name of the disk that such a machine usually has: the last pattern that fits."""
    about = f"{device_class} {generation} {name}".lower()
    fits = [r["disk"] for r in data.rows("disks.csv") if r["usual_for"]
            and re.search(r["usual_for"], about)]  # fmt: skip
    return fits[-1] if fits else "NVMe PCIe 4.0"


def disk_of(device) -> Disk:
    """Return the disk of a Device: its own rate if given, else that of a usual one."""
    found = disks()[usual(device.device_class, device.generation, device.name)]
    if isinstance(device.disk, float):  # a trace would cost more than all the rest
        rate = found.bandwidth if math.isnan(device.disk) else device.disk
    else:
        rate = jnp.where(jnp.isnan(device.disk), found.bandwidth, device.disk)
    return found._replace(bandwidth=rate)


def nvme(disk_name: str | float | Disk = "NVMe PCIe 4.0", queue_depth=1, block_size="4 KiB"):
    """Say how many reads a disk answers at a queue depth.

    Args:
        disk_name: as for `disk`.
        queue_depth: reads in flight, 1 or more; a list becomes a dimension.
        block_size: bytes of a read, up to an EiB; a list becomes a dimension.

    Returns:
        A Dataset of `iops` 1/s, `read_bandwidth` byte/s and `read_latency_s` s.

    Raises:
        WorkbenchError: no such disk, a queue depth below 1, a block of no bytes.

    Equation: IOPS = min(IOPS_max, QD / l0, BW / block) (M26).
    """
    depth = quantity(queue_depth, "dimensionless", "queue_depth", low=1)
    each = size(block_size, "block_size")
    found = disk(disk_name)
    iops, rate, wait = _labelled(lambda d, b: _queued(found, d, b), 3, depth, each)
    return results.dataset(
        {"iops": iops, "read_bandwidth": rate, "read_latency_s": wait},
        source="datasets/disks.csv", mechanism="M26",
    )  # fmt: skip


def load(
    size_bytes, disk_name: str | float | Disk = "NVMe PCIe 4.0", *, streams=1, chunk="4 MiB",
    ratio=1.0, link: Any = math.inf, decompress: Any = math.inf, prepare: Any = math.inf,
    start: Any = 0.0, overlap: bool = True,
) -> xr.Dataset:  # fmt: skip
    """Say how long a file takes to load, and which stage it waits for.

    Args:
        size_bytes: size of the file once plain, byte.
        disk_name: as for `disk`.
        streams: readers at a time, 1 or more.
        chunk: bytes of each request.
        ratio: plain bytes per stored byte, 1 or more.
        link: byte/s of the link that the stored bytes cross.
        decompress, prepare: byte/s of plain data that the codec, and copying and converting
            manage; like `link` `inf` where there is no such stage.
        start: seconds of the engine, whatever the size.
        overlap: the stages run side by side; otherwise each piece goes through all in turn.

    Any of them may be text with a unit, a list, which becomes a dimension, or a DataArray.

    Returns:
        `stage_s` (stage) s, `load_s` s, `read_bandwidth` byte/s, `bottleneck` (a stage).

    Raises:
        WorkbenchError: a size beyond an EiB, streams or a ratio below 1, a rate of 0, no such disk.

    Equation: T = max over stages of S / rate, plus the start (M24); rate_read = min(BW, c x chunk
    / (l + chunk / BW)), read bytes = S / ratio (M27).
    """
    whole = size(size_bytes)
    given = [
        whole, quantity(streams, "dimensionless", "streams", low=1), size(chunk, "chunk"),
        quantity(ratio, "dimensionless", "ratio", low=1),
        *(_rate(v, n) for v, n in ((link, "link"), (decompress, "decompress"), (prepare, "prepare"))),
        nonnegative(start, "second", "start"),
    ]  # fmt: skip
    found = disk(disk_name)
    *stages, total, rate, longest = _labelled(
        lambda *values: _staged(found, float(overlap), *values), len(STAGES) + 3, *given
    )
    stage_s = xr.concat(stages, "stage").assign_coords(stage=list(STAGES))
    bottleneck = longest.copy(data=np.array(STAGES)[longest.values.astype(int)])
    return results.dataset(
        {"stage_s": stage_s, "load_s": total, "read_bandwidth": rate, "bottleneck": bottleneck},
        source="datasets/disks.csv", mechanism="M24 M27",
    )  # fmt: skip


def decompress(size_bytes, disk_rate, ratio, speed) -> xr.Dataset:
    """Say what storing weights compressed gains, once while loading or at every token.

    Args:
        size_bytes: plain bytes that are needed.
        disk_rate: byte/s at which stored bytes arrive.
        ratio: plain bytes per stored byte, 1 or more.
        speed: byte/s of plain data from the codec.

    Returns:
        `load_s` s with the codec, `gain`: how many times faster than reading plain bytes, and
        `decompress_s` s, the least that it takes however fast the disk is: what every token
        waits if its weights are kept compressed.

    Raises:
        SpecError: a ratio below 1, a size beyond an EiB, a rate of 0.

    Equation: T = max(S / (ratio x BW), S / D) (M27).
    """
    whole, rate = size(size_bytes), _rate(disk_rate, "disk_rate")
    packed = quantity(ratio, "dimensionless", "ratio", low=1)
    codec = _rate(speed, "speed")
    took = whole / decompressed(rate, packed, codec)
    return results.dataset(
        {"load_s": took, "gain": whole / rate / took, "decompress_s": whole / codec},
        source="datasets/codecs.csv", mechanism="M27",
    )  # fmt: skip


def codecs() -> Mapping[str, tuple[float, float]]:
    """Return codec -> (ratio on the Silesia corpus, byte/s of one core) of datasets/codecs.csv."""
    return {
        row["codec"]: (float(row["ratio"]), float(row["decompress_MBps"]) * 1e6)
        for row in data.rows("codecs.csv")
    }


_queued = jax.jit(queue)


@jax.jit
def _staged(disk: Disk, overlap, size, streams, chunk, ratio, link, codec, prepare, start) -> tuple:
    """Return the seconds of each stage, of the load, byte/s read, and which stage is longest."""
    rate, stored = read_rate(disk, streams, chunk), size / ratio
    seconds = jnp.stack(
        [stored / rate, stored / link, size / codec, size / prepare, start + 0 * size]
    )
    return *seconds, load_seconds(seconds, overlap), rate, seconds.argmax(0)


def _rate(value, field: str) -> xr.DataArray:
    if isinstance(value, float) and math.isinf(value) and value > 0:
        return xr.DataArray(value)
    return quantity(value, "byte/second", field)


def _labelled(function, outputs: int, *arrays: xr.DataArray) -> list[xr.DataArray]:
    """Return the results of a function of arrays, broadcast by dimension name."""
    found = xr.apply_ufunc(
        lambda *values: tuple(np.asarray(out) for out in function(*map(jnp.asarray, values))),
        *xr.broadcast(*arrays), output_core_dims=[()] * outputs,
    )  # fmt: skip
    return list(found)


def _disk(row: dict[str, str]) -> Disk:
    iops = float(row["read_iops"]) if row["read_iops"] else math.inf
    return Disk(float(row["read_GBps"]) * GB, float(row["latency_us"]) * 1e-6, iops)
