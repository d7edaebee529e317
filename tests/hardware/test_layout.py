"""Layouts: runs and gather time of KV cache and weights, padding of real files (M13, M17)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import workbench as wb
from workbench.errors import FileError, SpecError
from workbench.hardware import layout

KIB = 1024


@pytest.fixture(scope="module")
def device():
    return wb.Device.preset("m4 pro")


@pytest.fixture(scope="module")
def llama():
    return wb.Model.preset("llama-3.1-8b")


@pytest.mark.parametrize(
    "model, order, run",
    [("llama-2-7b-hf", "token-major", 128), ("llama-2-7b-hf", "head-major", 4),
     ("llama-3.1-8b", "token-major", 32), ("llama-3.1-8b", "head-major", 4)],
)  # fmt: skip
def test_runs_of_a_block_of_16(device, model, order, run):
    """Mechanism M13: 128 KiB for 32 heads, 4 KiB a head, 32 KiB for 8 KV heads."""
    ds = layout.kv_read(wb.Model.preset(model), device, 4096, 16, order=order)
    assert ds.run_bytes == run * KIB
    assert ds.runs * ds.run_bytes == ds.kv_bytes


def test_a_row_of_one_head_is_256_bytes():
    """Mechanism M11: head_dim 128 in fp16 is aligned already."""
    assert layout.kv_runs(8, 128, 1, order="head-major")[0] == 256


def test_layout_changes_a_token_by_less_than_the_share_of_kv(device, llama):
    """Mechanism M13's check: whatever the layout, only the KV cache's share of the bytes can change."""
    context = 8192
    reads = [
        layout.kv_read(llama, device, context, [1, 16, context], order=order).gather_s.values
        for order in layout.ORDERS
    ]
    token = wb.predict(llama, device, wb.Workload(context=context))
    moved = token.kv_bytes / (token.kv_bytes + token.weight_bytes)
    assert (np.max(reads) - np.min(reads)) / token.time_s.sum() < moved


def test_short_runs_read_slower_and_walk_more(device, llama):
    ds = layout.kv_read(
        llama, device, 4096, [1, 16, 4096], order="head-major", walk="100 ns", queue_depth=1
    )
    assert (ds.gather_s.diff("block") < 0).all() and (ds.walk_s.diff("block") < 0).all()
    pages = ds.kv_bytes / (16 * KIB)
    assert ds.walk_s[-1] == pytest.approx(pages * 100e-9)


def test_gather_moves_what_decoding_reads(device, llama):
    """With a window the cache stops growing, as in `predict`."""
    for name in ("llama-3.1-8b", "gemma-3-27b-it"):
        model = wb.Model.preset(name)
        ds = layout.kv_read(model, device, 8192, 16)
        token = wb.predict(model, device, wb.Workload(context=8192))
        assert ds.kv_bytes == pytest.approx(token.kv_bytes.item(), rel=1e-6)


def test_grouped_weights_are_one_run_a_tile(device):
    rows, columns, bits, tile = 4096, 4096, 4.5, (32, 256)
    apart, grouped = (
        layout.weight_read(
            rows, columns, device, bits=bits, tile_rows=32, tile_columns=256, grouped=g
        )
        for g in (False, True)
    )
    assert grouped.run_bytes == apart.run_bytes * tile[0] == 256 * bits / 8 * 32
    assert apart.runs == rows * columns / 256
    assert grouped.gather_s <= apart.gather_s


def test_expected_padding_of_300_tensors():
    """Mechanism M17: 32 -> 256 B adds about 34 kB."""
    assert layout.expected_padding(300, 256, 32) == pytest.approx(34e3, rel=0.02)


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=50), st.integers(0, 12))
@settings(max_examples=30)
def test_padding_ends_every_tensor_on_the_alignment(sizes, power):
    unit = 2**power
    padded = layout.padding(sizes, unit).padding_bytes.item()
    assert padded == sum(-(-s // unit) * unit - s for s in sizes)


def test_padding_of_a_real_file(gemma_path):
    """Its tensors follow each other with exactly the padding of its alignment; 256 costs kilobytes."""
    from workbench.specs.gguf_header import read_header

    header = read_header(gemma_path)
    ds = layout.padding(gemma_path, [header.alignment, 256])
    last = int(np.argmax(header.offsets))
    span = header.offsets[last] + -(-header.nbytes[last] // header.alignment) * header.alignment
    assert ds.padding_bytes[0] == span - header.nbytes.sum()
    assert ds.padding_bytes[1] < 256 * header.nbytes.size and ds.share[1] < 1e-3


@pytest.mark.parametrize(
    "asked",
    [{"block": 0}, {"block": 8192}, {"context": 2**70}, {"order": "random"}, {"interleave": 100},
     {"page": "10 kB"}, {"queue_depth": 0}, {"walk": -1}, {"kv_bits": 0}],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(device, llama, asked):
    with pytest.raises(SpecError):
        layout.kv_read(llama, device, **({"context": 4096} | asked))


def test_a_model_without_a_cache_is_refused(device):
    with pytest.raises(SpecError, match="no KV cache"):
        layout.kv_read(wb.Model.preset("rwkv7-1.5b"), device)


@pytest.mark.parametrize("asked", [{"tile_rows": 8192}, {"tile_columns": 0}, {"bits": 0}])
def test_tiles_must_fit(device, asked):
    with pytest.raises(SpecError):
        layout.weight_read(4096, 4096, device, **asked)


def test_padding_needs_tensors(tmp_path):
    with pytest.raises(SpecError, match="none"):
        layout.padding([])
    with pytest.raises(SpecError, match="power of two"):
        layout.padding([100], 100)
    with pytest.raises(SpecError):
        layout.padding([2**70])
    with pytest.raises(FileError):
        layout.padding(tmp_path / "none.gguf")
