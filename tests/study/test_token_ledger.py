"""A bent ledger says what the affine law says, and measured tokens are those of the rows."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from workbench.errors import SpecError
from workbench.hardware.affine import affine
from workbench.study.token_ledger import (
    FIXED,
    bent,
    fixed_time,
    measured_tokens,
    operations,
    weight_efficiency,
)

M2_BANDWIDTH = 100e9  # B/s as ggml-org/llama.cpp#4167 and Apple state it


@pytest.fixture(scope="module")
def model():
    return wb.Model.preset("llama-2-7b-hf")


@pytest.fixture(scope="module")
def steps(model):
    work = wb.Workload(prompt=512, context=64, batch=wb.axis("batch", [1, 4, 16]))
    return wb.predict(model, wb.Device.preset("m2 10-core"), work, quant="Q4_0")


@pytest.fixture(scope="module")
def token(steps):
    return steps.isel(batch=0)


def test_efficiency_prices_the_weights(token):
    reading = token.weight_bytes / M2_BANDWIDTH / weight_efficiency(token)
    assert reading == pytest.approx(token.time_s.sel(term="weights").item(), rel=0.03)


def test_fixed_time_is_what_no_byte_explains(token):
    assert fixed_time(token) == pytest.approx(float(token.time_s.sel(term=list(FIXED)).sum()))


@given(share=st.floats(0.05, 2.0), t0=st.floats(0.0, 1.0))
def test_bent_token_has_the_numbers_it_was_given(token, share, t0):
    other = bent(token, efficiency=share, fixed=t0)
    assert weight_efficiency(other) == pytest.approx(share)
    assert fixed_time(other) == pytest.approx(t0, abs=1e-12)
    assert 1 / other.decode_tok_s.item() == pytest.approx(float(other.time_s.sum()))
    assert other.time_s.sel(term="kv") == token.time_s.sel(term="kv")


def test_bent_changes_every_batch_and_keeps_units(steps):
    other = bent(steps, fixed=0.049)
    assert (other.decode_tok_s < steps.decode_tok_s).all()
    assert other.decode_tok_s.attrs == steps.decode_tok_s.attrs
    assert set(other.bound.values) <= set(steps.term.values)
    assert "lower" not in other and "trust" not in other


def test_bending_by_nothing_changes_nothing(steps):
    np.testing.assert_allclose(bent(steps).time_s, steps.time_s)


@pytest.mark.parametrize("wrong", [{"efficiency": 0}, {"efficiency": math.nan}, {"fixed": -1}])
def test_bent_refuses(token, wrong):
    with pytest.raises(SpecError, match=next(iter(wrong))):
        bent(token, **wrong)


def test_operations_lie_under_the_roof(steps, model):
    points, peak = operations(steps, model, 512.0), wb.Device.preset("m2 10-core").flops
    assert list(points.point.values) == ["1", "4", "16", "prefill"]
    roof = np.minimum(points.arithmetic_intensity * M2_BANDWIDTH * 1.1, peak)
    assert (points.rate <= roof).all()
    assert (points.arithmetic_intensity.diff("point") > 0).all()


def test_prefill_counts_two_flop_a_parameter_and_token(steps, model):
    points = operations(steps, model, 512.0).sel(point="prefill")
    flops = points.rate.item() * 512.0 / steps.prefill_tok_s.values.flat[0]
    assert flops == pytest.approx(2 * 512 * 6.6e9, rel=0.1)  # 6.74e9 less the output head


def test_measured_tokens_of_the_m2():
    """Table of ggml-org/llama.cpp#4167: M2 10-core, F16 6.72, Q8_0 12.21, Q4_0 21.91 tok/s."""
    found = measured_tokens("apple-m2-10-core-gpu")
    for speed in (6.72, 12.21, 21.91):
        assert np.isclose(found.time_s * speed, 1.0, rtol=1e-3).any()
    assert ((found.size_bytes > 3.4e9) & (found.size_bytes < 14.5e9)).all()
    line = affine(found.size_bytes, found.time_s, M2_BANDWIDTH)
    assert 0.8 < line.efficiency < 1.0
    assert line.t0_s < 0.010


def test_nothing_measured_is_empty():
    assert measured_tokens("no-such-machine").sizes["point"] == 0
