"""Codecs against the `gguf` library (decoding, and where it encodes) and ggml's C code (libgguf)."""

import gguf
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.engine.llama_twin import dequantised
from workbench.engine.codecs import FORMATS, decode, encode, errors
from workbench.engine.codecs_bits import LAYOUTS, read, write
from workbench.engine.codecs_fp8 import decode_fp8, encode_fp8
from workbench.engine.codecs_int4 import decode_int4, encode_int4
from workbench.errors import SpecError, UnknownNameError
from workbench.specs.gguf_header import read_header

SEARCHED = ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS"]
#: Bytes of a block at which a float16 stands.
HALVES = {"Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,), "MXFP4": ()} | dict.fromkeys(
    ("Q4_1", "Q5_1", "Q4_K", "Q5_K"), (0, 2)
)


def kind(name: str) -> gguf.GGMLQuantizationType:
    return gguf.GGMLQuantizationType[name]


def random_blocks(name: str, count: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    raw = rng.integers(0, 256, (count, LAYOUTS[name].nbytes), dtype=np.uint8)
    for at in HALVES.get(name, (0,)):
        raw[:, at : at + 2] = rng.uniform(-1, 1, (count, 1)).astype(np.float16).view(np.uint8)
    if name == "MXFP4":
        raw[:, 0] = rng.integers(8, 240, count)  # powers of two whose products stay normal
    return raw


@pytest.fixture(scope="module")
def tensors(gemma_path) -> dict[str, np.ndarray]:
    """Gaussian weights, the same with outliers, and rows of two real tensors; all of one shape,
    for which each codec compiles once."""
    rng = np.random.default_rng(1)
    gauss = rng.standard_normal((160, 256)).astype(np.float32)
    outlier = np.where(rng.random(gauss.shape) < 0.002, 30 * gauss, gauss)
    real, rows = read_header(gemma_path), {}
    for name in ("token_embd.weight", "blk.3.ffn_down.weight"):
        values = dequantised(real, name, 64)
        for i in range(values.size // gauss.size):
            part = values.reshape(-1)[i * gauss.size : (i + 1) * gauss.size]
            rows[f"{name} {i}"] = part.reshape(gauss.shape)
    return {"gauss": gauss, "outlier": outlier} | rows


@pytest.mark.parametrize("name", LAYOUTS)
def test_decodes_to_the_bits_of_gguf(name):
    raw = random_blocks(name, 12)
    expected = gguf.quants.dequantize(raw, kind(name))
    np.testing.assert_array_equal(np.asarray(decode(name, raw)), expected, strict=True)


@pytest.mark.parametrize("name", LAYOUTS)
def test_fields_are_all_that_a_block_holds(name):
    raw = random_blocks(name, 12)
    np.testing.assert_array_equal(write(name, read(name, jnp.asarray(raw))), raw)


@pytest.mark.parametrize("name", [f for f in FORMATS if f not in SEARCHED])
def test_encodes_to_the_bits_of_gguf(name, tensors):
    for weights in tensors.values():
        expected = gguf.quants.quantize(weights, kind(name)).view(np.uint8)
        np.testing.assert_array_equal(encode(name, weights), expected)


@pytest.mark.parametrize("name", SEARCHED)
def test_loses_no_more_than_the_reference(name, tensors):
    libgguf = pytest.importorskip("libgguf", reason="binds ggml's own quantisation")
    for weights in tensors.values():
        blocks = np.asarray(encode(name, weights))
        reference = np.frombuffer(
            libgguf.quantize_rows_raw(int(kind(name)), weights, *weights.shape), np.uint8
        ).reshape(blocks.shape)
        ours, theirs = (
            np.sqrt(np.mean((gguf.quants.dequantize(b, kind(name)) - weights) ** 2, dtype=float))
            for b in (blocks, reference)
        )
        assert ours <= theirs


@pytest.mark.parametrize("name", FORMATS)
def test_zeros_stay_zeros(name):
    zeros = np.zeros((2, 256), np.float32)
    np.testing.assert_array_equal(decode(name, encode(name, zeros)), zeros)


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(["Q4_0", "Q5_1", "Q8_0", "Q6_K", "MXFP4"]),
    weights=hnp.arrays(np.float32, (2, 256), elements=st.floats(-1000, 1000, width=32)),
)
def test_round_trip_stays_within_a_step(name, weights):
    weights = np.where(np.abs(weights) < 1e-2, np.float32(0), weights)
    step = {"Q4_0": 1 / 8, "Q5_1": 2 / 31, "Q8_0": 1 / 127, "Q6_K": 1 / 24, "MXFP4": 1 / 3}[name]
    lost = np.abs(np.asarray(decode(name, encode(name, weights))) - weights)
    assert lost.max() <= step * 1.01 * np.abs(weights).max()


def test_more_bits_lose_less(tensors):
    ds = errors(tensors["gauss"], ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q8_0", "F16"])
    assert (np.diff(ds.quant_rmse) < 0).all() and (np.diff(ds.bits_per_weight) > 0).all()
    assert ds.sqnr.attrs["units"] == "dB"
    # uniform rounding gains 6.02 dB a bit
    assert 5 < float(ds.sqnr.sel(quant="Q6_K") - ds.sqnr.sel(quant="Q5_K")) < 7


@pytest.mark.parametrize(
    ("name", "weights", "message"),
    [
        ("Q4_K", np.zeros((2, 128), np.float32), "multiple of 256"),
        ("Q8_0", np.zeros((2, 32)), "float64"),
        ("Q8_0", np.full((1, 32), np.nan, np.float32), "NaN or infinite"),
        ("Q8_0", np.full((1, 32), 1e30, np.float32), "exceed what a scale holds"),
        ("Q8_0", np.zeros((0, 32), np.float32), "holds nothing"),
        ("Q8_0", "abc", "no array of numbers"),
    ],
)
def test_refuses(name, weights, message):
    with pytest.raises(SpecError, match=message):
        encode(name, weights)


def test_names_the_nearest_format():
    with pytest.raises(UnknownNameError, match="Q4_K"):
        decode("Q4_KM", np.zeros(144, np.uint8))


@pytest.mark.parametrize(("kind_", "worst"), [("E4M3", 2**-4), ("E5M2", 2**-3)])
@pytest.mark.parametrize("tile", [(None, None), (1, None), (128, 128), (1, 64)])
def test_fp8_is_off_by_half_a_mantissa_step(kind_, worst, tile):
    weights = np.random.default_rng(2).standard_normal((256, 256)).astype(np.float32)
    fp8 = encode_fp8(weights, kind_, tile=tile)
    lost = np.abs(np.asarray(decode_fp8(fp8)) - weights)
    subnormal = np.abs(weights).max() * 2.0**-15
    assert (lost <= worst * np.abs(weights) * 1.0001 + subnormal).all()


def test_finer_fp8_scales_lose_less_when_channels_differ():
    rng = np.random.default_rng(3)
    weights = rng.standard_normal((128, 128)) * np.exp(4 * rng.standard_normal((128, 1)))
    weights = weights.astype(np.float32)
    small = np.abs(weights).max(1) < 1
    lost = [
        np.abs(np.asarray(decode_fp8(encode_fp8(weights, tile=tile))) - weights)[small].mean()
        for tile in ((None, None), (1, None))
    ]
    assert lost[1] < 0.5 * lost[0]


def test_awq_protects_loud_inputs():
    rng = np.random.default_rng(4)
    weights = rng.standard_normal((64, 256)).astype(np.float32)
    loudness = np.where(rng.random(256) < 0.02, 50, 1)
    x = (rng.standard_normal((128, 256)) * loudness).astype(np.float32)
    lost = [
        np.linalg.norm(x @ (np.asarray(decode_int4(int4)) - weights).T)
        for int4 in (encode_int4(weights), encode_int4(weights, x))
    ]
    assert lost[1] < 0.6 * lost[0]


def test_int4_without_activations_stays_within_half_a_step():
    weights = np.random.default_rng(5).standard_normal((8, 256)).astype(np.float32)
    int4 = encode_int4(weights, group=64)
    step = np.repeat(np.asarray(int4.scale, np.float32), 64, axis=1)
    assert (np.abs(np.asarray(decode_int4(int4)) - weights) <= 0.51 * step + 1e-3).all()
    assert int4.codes.nbytes == weights.size // 2


@pytest.mark.parametrize(
    ("weights", "group", "said"),
    [
        (np.zeros((2, 100), np.float32), 128, "multiple of 128"),
        (np.zeros((2, 128), np.float32), 0, "group 0"),
        (np.full((2, 128), np.nan, np.float32), 128, "NaN"),
        (np.full((2, 128), 1e6, np.float32), 128, "float16 holds"),
        (np.zeros((2, 128)), 128, "float64"),
    ],
)
def test_int4_refuses(weights, group, said):
    with pytest.raises(SpecError, match=said):
        encode_int4(weights, group=group)


@pytest.mark.parametrize("tile", [(3, 1), (0, 1), (1,), 5])
def test_fp8_refuses_tiles_that_do_not_fill(tile):
    with pytest.raises(SpecError, match="FP8: tile"):
        encode_fp8(np.ones((2, 4), np.float32), tile=tile)
