"""How weights and KV cache lie in memory: contiguous runs, what gathering them costs, padding (M13, M17)."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from workbench import results
from workbench.errors import SpecError
from workbench.hardware import dram_law
from workbench.hardware.dram_input import power_of_two, queue
from workbench.hardware.dram_standards import find, memory_of
from workbench.hardware.storage_input import nonnegative, quantity, size
from workbench.specs.gguf_header import read_header

#: What lies together within a block: whole tokens with all their heads, or one head of all its tokens.
ORDERS = ("token-major", "head-major")
#: How a KV cache lies, from scattered to contiguous: (order, block) where a block is 1, the one asked for, or all.
ARRANGEMENTS = {
    "each head of each token alone": ("head-major", "one"),
    "blocks, head by head": ("head-major", "block"),
    "blocks, token by token": ("token-major", "block"),
    "one buffer a layer": ("token-major", "all"),
}
ENTRY = 4.0  # byte of a block table's entry: an int32, as in vLLM and in our own paged cache
LARGEST_ALIGNMENT = 2**20  # byte: as the GGUF reader allows
_REFRESH = "all-bank"


def kv_runs(kv_heads, head_dim, block, kv_bits=16.0, order: str = "token-major"):
    """Return bytes of a contiguous run of K (or V) in a block, and runs of a block in one layer.

    Args:
        kv_heads, head_dim: of a layer.
        block: tokens that are kept together; the context for a contiguous cache.
        kv_bits: bits of an element.
        order: one of ORDERS.

    Equation: b x d_h x bytes head-major, b x H_kv x d_h x bytes token-major (M13).
    """
    if order not in ORDERS:
        raise SpecError(f"order: {str(order)[:40]!r} is none of {', '.join(ORDERS)}")
    element = kv_bits / 8
    if order == "head-major":
        return block * head_dim * element, kv_heads
    return block * kv_heads * head_dim * element, 1.0


def kv_read(
    model, device, context=4096, block=16, *, order: str = "token-major", kv_bits=16.0, queue_depth=32,
    interleave=256, page="16 KiB", walk="0 s",
) -> xr.Dataset:  # fmt: skip
    """Say how long one decode step takes to gather the KV cache of one sequence.

    Args:
        model, device: a Model and a Device.
        context: tokens cached; a list becomes a dimension.
        block: tokens of a block; a list becomes a dimension. A block of the whole context is a contiguous cache.
        order: "token-major" or "head-major".
        kv_bits: bits of an element.
        queue_depth: reads in the queue of each channel.
        interleave: bytes after which addresses go on in the next channel, a power of two.
        page: bytes of a page.
        walk: s of a page walk; each page of a run costs one (see `paging`).

    Returns:
        `kv_bytes` byte, `runs`, `run_bytes` byte, `effective_bandwidth` byte/s, and `gather_s` s, of which
        `walk_s` s and `table_s` s.

    Raises:
        WorkbenchError: numbers that make no sense, a model without a KV cache, a block longer than the context.

    Equation: sum over runs of r / BW(r) + ceil(r / page) x walk, plus the table's reads (M13). It is what the
    runs cost one after another; walks that overlap cost less.
    """
    tokens = quantity(context, "dimensionless", "context", low=1, high=2.0**40)
    kept = quantity(block, "dimensionless", "block", low=1, high=2.0**40)
    bits = quantity(kv_bits, "dimensionless", "kv_bits", low=1, high=64)
    depth = queue(queue_depth)
    stride, leaf, step = (
        power_of_two(interleave, "interleave"),
        power_of_two(page, "page"),
        nonnegative(walk, "second", "walk"),
    )
    elements = _cached(model, tokens)
    if bool((kept > tokens).any()):
        raise SpecError(
            "block: longer than the context; a block of the whole context is a contiguous cache"
        )
    run, each = kv_runs(float(model.kv_heads), float(model.head_dim), kept, bits, order)
    moved = elements * bits / 8
    runs = moved / run
    flow = read_bandwidth(device, run, depth, stride)
    blocks = runs / each / 2  # K and V have the same table
    walked = runs * np.ceil(run / leaf) * step
    table = (
        np.ceil(blocks * ENTRY / stride) * stride / read_bandwidth(device, stride, depth, stride)
    )
    return results.dataset(
        {
            "kv_bytes": moved, "runs": runs, "run_bytes": run + 0 * runs, "effective_bandwidth": flow,
            "gather_s": moved / flow + walked + table, "walk_s": walked, "table_s": table,
        },
        source="datasets/dram.csv, datasets/device_memory.csv", mechanism="M13", order=order,
    )  # fmt: skip


def arrangements(model, device, context: float = 4096, block: float = 16, **options) -> xr.Dataset:
    """Say how long gathering the KV cache takes in each of ARRANGEMENTS.

    Args:
        model, device, context, block: as for `kv_read`, one of each.
        options: the others of `kv_read`, without the order.

    Returns:
        As `kv_read`, over `arrangement`.
    """
    tokens = {"one": 1, "block": block, "all": context}
    found = []
    for order in dict.fromkeys(order for order, _ in ARRANGEMENTS.values()):
        kept = [tokens[name] for of, name in ARRANGEMENTS.values() if of == order]
        ds = kv_read(model, device, context, kept, order=order, **options)
        found += [ds.isel(block=i) for i in range(len(kept))]
    columns = {name: ("arrangement", [ds[name].item() for ds in found]) for name in found[0]}
    return results.dataset(
        columns,
        {"arrangement": list(ARRANGEMENTS)},
        source=found[0].attrs["source"],
        mechanism="M13",
    )


def read_bandwidth(device, run, queue_depth, interleave) -> xr.DataArray:
    """Return the byte/s at which runs of `run` bytes come from a Device, all its channels together.

    A channel sees `interleave` bytes of a run, or its share of a long one in one piece.
    """
    memory = memory_of(device)
    timing = find(memory.standard)
    run, depth, stride = xr.broadcast(*(xr.DataArray(x) for x in (run, queue_depth, interleave)))
    piece = np.maximum(np.minimum(run, stride), np.minimum(run / memory.channels, timing.row_bytes))
    used = xr.apply_ufunc(
        lambda s, q: np.asarray(dram_law.share(timing, s, q, mode="queue", refresh=_REFRESH)),
        piece.astype(float), depth.astype(float),
    )  # fmt: skip
    return used * float(device.bandwidth)


def weight_read(
    rows, columns, device, *, bits=4.5, tile_rows=32, tile_columns=256, grouped: bool = True, queue_depth=32,
    interleave=256,
) -> xr.Dataset:  # fmt: skip
    """Say how long a matrix takes to read in the tiles that compute units work on.

    Args:
        rows, columns: of the matrix.
        device: a Device.
        bits: bits of a weight.
        tile_rows, tile_columns: what one unit multiplies at a time; a list becomes a dimension.
        grouped: the weights of a tile lie together; otherwise row after row, so that a tile is a run for each row.
        queue_depth, interleave: as for `kv_read`.

    Returns:
        `runs`, `run_bytes` byte, `effective_bandwidth` byte/s and `gather_s` s.

    Equation: run = tile columns x bits / 8, times tile rows where grouped; t = sum of r / BW(r) (M13).
    """
    high, wide = (
        quantity(rows, "dimensionless", "rows", low=1),
        quantity(columns, "dimensionless", "columns", low=1),
    )
    tall = quantity(tile_rows, "dimensionless", "tile_rows", low=1)
    broad = quantity(tile_columns, "dimensionless", "tile_columns", low=1)
    width = quantity(bits, "dimensionless", "bits", low=0.5, high=64)
    depth = queue(queue_depth)
    if bool((broad > wide).any()) or bool((tall > high).any()):
        raise SpecError("tile: larger than the matrix")
    run = broad * width / 8 * (tall if grouped else 1.0)
    whole = size(high * wide * width / 8, "rows x columns")
    flow = read_bandwidth(device, run, depth, power_of_two(interleave, "interleave"))
    return results.dataset(
        {"runs": whole / run, "run_bytes": run + 0 * whole, "effective_bandwidth": flow, "gather_s": whole / flow},
        source="datasets/dram.csv, datasets/device_memory.csv", mechanism="M13", grouped=grouped,
    )  # fmt: skip


def padding(tensors: str | Path | Sequence[float], alignment=32) -> xr.Dataset:
    """Say what aligning the tensors of a file costs.

    Args:
        tensors: path of a GGUF file, or the bytes of each tensor.
        alignment: bytes, a power of two up to 1 MiB; a list becomes a dimension.

    Returns:
        `padding_bytes` byte and `share`, of the bytes of the tensors.

    Raises:
        WorkbenchError: no GGUF file, no tensors, an alignment that is no power of two.

    Equation: sum over tensors of (-size) mod A, about n A / 2 (M17).
    """
    sizes = _sizes(tensors)
    unit = power_of_two(alignment, "alignment", LARGEST_ALIGNMENT)
    whole = xr.DataArray(sizes, dims="tensor")
    padded = ((-whole) % unit.astype(np.int64)).sum("tensor")
    return results.dataset(
        {"padding_bytes": padded.astype(float), "share": padded / float(sizes.sum())},
        source="general.alignment, ggml docs/gguf.md", mechanism="M17", tensors=int(sizes.size),
    )  # fmt: skip


def expected_padding(tensors, alignment, multiple=1):
    """Return the bytes of padding to expect of tensors whose sizes are multiples of `multiple`: n (A - m) / 2."""
    return tensors * np.maximum(alignment - multiple, 0) / 2


def _sizes(tensors) -> np.ndarray:
    if isinstance(tensors, str | Path):
        sizes = read_header(tensors).nbytes
    else:
        sizes = np.array([size(float(each), "tensors").item() for each in tensors])
    if not sizes.size:
        raise SpecError("tensors: none; give the bytes of each, or a GGUF file that has some")
    return sizes.astype(np.int64)


def _cached(model, tokens: xr.DataArray) -> xr.DataArray:
    """Return the elements of K and V that a token attends to."""
    if not float(model.kv_elements + model.window_elements):
        raise SpecError(f"{model.name}: keeps no KV cache")
    return tokens * float(model.kv_elements) + np.minimum(tokens, float(model.window)) * float(
        model.window_elements
    )
