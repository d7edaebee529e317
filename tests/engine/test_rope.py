"""Rotary positions against the complex-number definition, published scalings, and what rotation must keep."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.engine.rope import Rope, rotate
from workbench.errors import WorkbenchError

LLAMA3 = Rope(128, 500_000.0, scaling="llama3", factor=8.0, original_context=8192)
GPT_OSS = Rope(64, 150_000.0, "neox", "yarn", factor=32.0, original_context=4096, truncate=False)


def heads(tokens=5, heads=3, dim=16, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(tokens, heads, dim)), jnp.float32)


def positions(*values):
    return jnp.asarray(values, jnp.int32)


def test_norm_multiplies_neighbours_as_complex_numbers():
    x = heads()
    at = positions(0, 1, 7, 100, 1000)
    pairs = np.asarray(x[..., 0::2]) + 1j * np.asarray(x[..., 1::2])
    angle = np.asarray(at)[:, None, None] * 10_000.0 ** (-np.arange(8) / 8)
    turned = pairs * np.exp(1j * angle)
    ours = rotate(x, at, Rope(16))
    np.testing.assert_allclose(ours[..., 0::2], turned.real, atol=1e-4)
    np.testing.assert_allclose(ours[..., 1::2], turned.imag, atol=1e-4)


def test_neox_is_norm_with_the_halves_interleaved():
    x, at = heads(), positions(3, 1, 4, 1, 5)
    interleaved = jnp.stack(jnp.split(x, 2, -1), -1).reshape(x.shape)
    norm = rotate(interleaved, at, Rope(16))
    neox = rotate(x, at, Rope(16, style="neox"))
    np.testing.assert_allclose(jnp.stack(jnp.split(neox, 2, -1), -1).reshape(x.shape), norm)


@pytest.mark.parametrize("style", ["norm", "neox"])
def test_partial_rotary_leaves_the_rest(style):
    x, at = heads(), positions(3, 1, 4, 1, 5)
    out = rotate(x, at, Rope(6, style=style))
    np.testing.assert_array_equal(out[..., 6:], x[..., 6:])
    np.testing.assert_allclose(out[..., :6], rotate(x[..., :6], at, Rope(6, style=style)))


@given(st.integers(0, 5000), st.integers(0, 5000), st.sampled_from(["norm", "neox"]))
@settings(max_examples=20, deadline=None)
def test_only_the_distance_between_two_tokens_counts(first, shift, style):
    q, k = heads(2, 1, seed=1)
    rope = Rope(16, style=style)

    def score(a, b):
        pair = rotate(jnp.stack([q, k]), positions(a, b), rope)
        return float((pair[0] * pair[1]).sum())

    assert score(first + 9, first) == pytest.approx(score(shift + 9, shift), abs=0.02)


def test_linear_scaling_is_a_slower_clock():
    x = heads()
    slow = rotate(x, positions(0, 4, 8, 12, 16), Rope(16, scaling="linear", factor=4.0))
    np.testing.assert_allclose(slow, rotate(x, positions(0, 1, 2, 3, 4), Rope(16)), atol=1e-6)


def test_llama3_keeps_short_wavelengths_and_divides_long_ones():
    """Wavelengths below 8192 / 4 stay, above 8192 / 1 are 8 times longer (Llama 3.1's rope_scaling)."""
    plain, scaled = Rope(128, 500_000.0).frequencies, LLAMA3.frequencies
    wavelength = 2 * np.pi / plain
    np.testing.assert_allclose(scaled[wavelength < 2048], plain[wavelength < 2048], rtol=1e-6)
    np.testing.assert_allclose(scaled[wavelength > 8192], plain[wavelength > 8192] / 8, rtol=1e-6)
    between = (wavelength > 2048) & (wavelength < 8192)
    assert np.all((scaled < plain)[between] & (scaled > plain / 8)[between])


def test_files_carry_llama3_as_divisors():
    """GGUF's rope_freqs holds plain / scaled; both ways turn alike."""
    x, at = heads(4, 2, 128), positions(1, 20, 300, 4000)
    plain = Rope(128, 500_000.0)
    factors = jnp.asarray(plain.frequencies / LLAMA3.frequencies)
    np.testing.assert_allclose(
        rotate(x, at, plain, factors), rotate(x, at, LLAMA3), rtol=1e-3, atol=1e-3
    )


def test_yarn_of_gpt_oss():
    """Corners at pair 8.09 and 17.40, magnitude 1.3466: d ln(4096 / (2 pi beta)) / (2 ln 150000), 0.1 ln 32 + 1."""
    plain, scaled = Rope(64, 150_000.0).frequencies, GPT_OSS.frequencies
    assert GPT_OSS.magnitude == pytest.approx(1.34657, abs=1e-5)
    np.testing.assert_allclose(scaled[:9], plain[:9], rtol=1e-6)
    np.testing.assert_allclose(scaled[18:], plain[18:] / 32, rtol=1e-6)
    assert np.all((scaled < plain)[9:18] & (scaled > plain / 32)[9:18])


def test_rotation_keeps_length_up_to_the_magnitude():
    x, at = heads(5, 3, 64), positions(0, 3, 99, 1000, 9999)
    before, after = (jnp.linalg.norm(y, axis=-1) for y in (x, rotate(x, at, GPT_OSS)))
    np.testing.assert_allclose(after / before, GPT_OSS.magnitude, rtol=1e-5)


@pytest.mark.parametrize(
    "given", [{"dims": 3}, {"dims": 0}, {"style": "gpt"}, {"scaling": "ntk"}, {"base": 0.0},
              {"scaling": "yarn"}, {"factor": 0.0}],
)  # fmt: skip
def test_a_rope_that_makes_no_sense(given):
    with pytest.raises(WorkbenchError, match="rope"):
        Rope(**({"dims": 8} | given))


@pytest.mark.parametrize("dim, count, factors", [(4, 5, None), (8, 4, None), (8, 5, jnp.ones(3))])
def test_shapes_that_do_not_fit(dim, count, factors):
    with pytest.raises(WorkbenchError):
        rotate(heads(5, 1, dim), positions(*range(count)), Rope(8), factors)
