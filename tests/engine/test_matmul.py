"""The kernels against float64 products with what the `gguf` library dequantises."""

import gguf
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.engine import matmul_prefill
from workbench.engine.matmul import COMPILER_OPTIONS, matmul, pack, rows
from workbench.engine.matmul_pack import FLOATS, LAYOUTS
from workbench.errors import SpecError

TYPES = [*FLOATS, *LAYOUTS]
#: Bytes of a block at which a float16 stands.
SCALES_AT = {"Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,), "MXFP4": ()} | dict.fromkeys(
    ("Q4_1", "Q5_1", "Q4_K", "Q5_K"), (0, 2)
)


def random_tensor(tensor_type: str, shape: tuple[int, int], seed: int = 0) -> np.ndarray:
    """Return bytes of random codes under finite scales: every bit of a block is exercised."""
    rng = np.random.default_rng(seed)
    kind = gguf.GGMLQuantizationType[tensor_type]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    outputs, inputs = shape
    if tensor_type in FLOATS:
        weights = rng.standard_normal(shape).astype(np.float32)
        return gguf.quants.quantize(weights, kind).view(np.uint8)
    raw = rng.integers(0, 256, (outputs, inputs // block, size), dtype=np.uint8)
    if tensor_type == "MXFP4":
        raw[..., 0] = rng.integers(120, 130, raw.shape[:2])
    for at in SCALES_AT.get(tensor_type, (0,)):
        scales = rng.uniform(-1, 1, raw.shape[:2]).astype(np.float16)
        raw[..., at : at + 2] = scales[..., None].view(np.uint8)
    return raw.reshape(outputs, -1)


def relative_error(tensor_type: str, shape: tuple[int, int], tokens: int, seed: int = 0) -> float:
    raw = random_tensor(tensor_type, shape, seed)
    x = np.random.default_rng(seed + 1).standard_normal((tokens, shape[1])).astype(np.float32)
    weights = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[tensor_type])
    exact = x.astype(np.float64) @ weights.astype(np.float64).T
    y = np.asarray(matmul(pack(tensor_type, raw, shape), jnp.asarray(x)))
    assert y.shape == exact.shape and y.dtype == np.float32
    return float(np.linalg.norm(y - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize("tensor_type", TYPES)
def test_decode_keeps_float32_activations(tensor_type):
    assert relative_error(tensor_type, (48, 512), tokens=1) < 1e-6


@pytest.mark.parametrize("tensor_type", TYPES)
def test_prefill_rounds_to_bfloat16_at_most(tensor_type):
    # two factors of 8 significant bits, each off by at most 2^-9 and on average well below
    limit = 1e-6 if tensor_type in ("F16", "F32") else 2**-8
    assert relative_error(tensor_type, (48, 512), tokens=5) < limit


@pytest.mark.parametrize(("halved", "least", "most"), [(False, 0, 1e-6), (True, 2**-12, 2**-8)])
def test_prefill_multiplies_what_the_processor_is_fast_at(monkeypatch, halved, least, most):
    monkeypatch.setattr(matmul_prefill, "_has_bfloat16", lambda: halved)
    tokens = 6 + halved  # what was compiled for a number of tokens is not compiled again
    assert least <= relative_error("Q4_K", (48, 512), tokens) < most


@settings(max_examples=6, deadline=None)
@given(
    tensor_type=st.sampled_from(["Q4_0", "Q5_1", "Q8_0", "F16"]),
    outputs=st.integers(1, 70),
    blocks=st.integers(1, 5),
    tokens=st.sampled_from([1, 3]),
)
def test_any_shape(tensor_type, outputs, blocks, tokens):
    assert relative_error(tensor_type, (outputs, 32 * blocks), tokens) < 2**-7


@pytest.mark.parametrize(
    "tensor_type", [*FLOATS, "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]
)
def test_packed_is_no_larger_than_the_file(tensor_type):
    raw = random_tensor(tensor_type, (640, 2048))
    assert pack(tensor_type, raw, (640, 2048)).nbytes <= 1.06 * raw.nbytes


def test_a_token_alone_and_in_a_batch_agree():
    raw = random_tensor("Q4_K", (64, 512))
    packed = pack("Q4_K", raw, (64, 512))
    x = jnp.asarray(np.random.default_rng(3).standard_normal((4, 512)), jnp.float32)
    alone = jnp.concatenate([matmul(packed, row[None]) for row in x])
    error = jnp.linalg.norm(alone - matmul(packed, x)) / jnp.linalg.norm(alone)
    assert error < 2**-8


def test_inlines_into_a_larger_jit():
    packed = pack("Q8_0", random_tensor("Q8_0", (48, 64)), (48, 64))
    x = jnp.ones((1, 64), jnp.float32)
    twice = jax.jit(lambda p, v: matmul(p, v) + matmul(p, v), compiler_options=COMPILER_OPTIONS)
    np.testing.assert_allclose(twice(packed, x), 2 * matmul(packed, x), rtol=1e-5)


@pytest.mark.parametrize(
    ("tensor_type", "shape", "message"),
    [
        ("IQ1_S", (2, 256), "no matmul kernel; these have: F32, F16"),
        ("Q4_K", (2, 128), "multiple of 256"),
        ("Q4_0", (0, 32), "all above 0"),
        ("Q4_0", (3, 32), "36 bytes given, 54 make the tensor"),
    ],
)
def test_refuses(tensor_type, shape, message):
    with pytest.raises(SpecError, match=message):
        pack(tensor_type, bytes(36), shape)


def test_refuses_a_damaged_scale():
    raw = random_tensor("Q8_0", (2, 32))
    raw[1, :2] = np.array([np.nan], np.float16).view(np.uint8)
    with pytest.raises(SpecError, match="NaN or infinite"):
        pack("Q8_0", raw, (2, 32))


def test_refuses_activations_of_another_width():
    packed = pack("Q8_0", random_tensor("Q8_0", (2, 32)), (2, 32))
    with pytest.raises(SpecError, match="do not meet weights"):
        matmul(packed, jnp.ones((1, 64), jnp.float32))


@pytest.mark.parametrize("tensor_type", ["Q4_0", "Q5_1", "Q6_K", "Q8_0", "BF16"])
def test_rows_are_what_gguf_dequantises(tensor_type):
    raw = random_tensor(tensor_type, (300, 512))
    weights = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[tensor_type])
    chosen = np.array([299, 0, 17, 17])
    found = rows(pack(tensor_type, raw, (300, 512)), jnp.asarray(chosen))
    np.testing.assert_allclose(found, weights[chosen], rtol=1e-6)


@pytest.mark.parametrize("tensor_type", ["Q4_0", "Q4_K", "F16"])
@pytest.mark.parametrize("tokens", [1, 3])
def test_an_expert_is_the_matrix_it_would_be_alone(tensor_type, tokens):
    raw = np.stack([random_tensor(tensor_type, (32, 256), seed) for seed in range(3)])
    experts = pack(tensor_type, raw, (3, 32, 256))
    x = jnp.asarray(np.random.default_rng(0).standard_normal((tokens, 256)), jnp.float32)
    for i in range(3):
        alone = matmul(pack(tensor_type, raw[i], (32, 256)), x)
        np.testing.assert_allclose(matmul(experts, x, jnp.int32(i)), alone, rtol=1e-4, atol=1e-4)


def test_refuses_an_expert_of_a_plain_matrix():
    packed = pack("Q8_0", random_tensor("Q8_0", (2, 32)), (2, 32))
    with pytest.raises(SpecError, match="packed experts"):
        matmul(packed, jnp.ones((1, 32), jnp.float32), jnp.int32(0))
