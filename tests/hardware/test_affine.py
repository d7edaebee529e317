"""The affine law of a token's time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import SpecError
from workbench.hardware.affine import Line, affine, token_time

# The quantisation table of article B: GB and tok/s of four formats (claims.csv, B80).
SIZE = np.array([14.2, 7.8, 4.9, 3.7]) * 1e9
SPEED = np.array([5.3, 8.1, 10.2, 11.7])


def test_article_table_is_the_m2_bus_and_49_ms():
    """Exercise of NB01: t0 = 49.0 ms, 102.1 GB/s, residuals below 2 ms (mechanisms.md, M02)."""
    fit = affine(SIZE, 1 / SPEED, peak="102.4 GB/s")
    assert float(fit.t0_s) * 1e3 == pytest.approx(49.0, abs=0.05)
    assert float(fit.bandwidth) / 1e9 == pytest.approx(102.1, abs=0.05)
    assert float(abs(fit.residual_s).max()) * 1e3 == pytest.approx(1.9, abs=0.05)
    assert 0.99 < float(fit.efficiency) <= 1.0


def test_half_the_fixed_time_gives_16_5_tokens():
    """Exercise of NB01: 1000 / (24.5 + 36.2) = 16.5 tok/s at Q4."""
    fit = affine(SIZE, 1 / SPEED)
    line = Line(float(fit.t0_s) / 2, float(fit.bandwidth))
    assert 1 / token_time(3.7e9, line) == pytest.approx(16.5, abs=0.05)


def test_agrees_with_numpy():
    slope, intercept = np.polyfit(SIZE[1:], 1 / SPEED[1:], 1)
    fit = affine(SIZE, 1 / SPEED)
    assert float(fit.bandwidth_without[0]) == pytest.approx(1 / slope)
    assert float(fit.t0_without_s[0]) == pytest.approx(intercept)


@given(st.floats(0, 0.1), st.floats(1e9, 4e12), st.integers(3, 9))
def test_finds_the_line_it_was_given(t0, bandwidth, points):
    size = np.linspace(1e9, 4e10, points)
    fit = affine(size, token_time(size, Line(t0, bandwidth)))
    assert float(fit.bandwidth) == pytest.approx(bandwidth, rel=1e-6)
    assert float(fit.t0_s) == pytest.approx(t0, abs=1e-9)
    assert fit.bandwidth_without.values == pytest.approx(np.full(points, bandwidth), rel=1e-6)


@pytest.mark.parametrize(
    ("size", "time", "says"),
    [
        ([1e9, 2e9], [0.1, 0.2], "three points"),
        ([1e9, 1e9, 2e9], [0.1, 0.1, 0.2], "different size"),
        ([1e9, 2e9, 3e9], [0.3, 0.2, 0.1], "does not grow"),
        ([1e9, 2e9, 3e9], [0.1, 0.2], "one of each"),
        ([1e9, -2e9, 3e9], [0.1, 0.2, 0.3], "size"),
        ([1e9, 2e9, 3e9], [0.1, float("nan"), 0.3], "time"),
        (1e9, 0.1, "list"),
        ([[1e9], [2e9], [3e9]], [0.1, 0.2, 0.3], "list"),
    ],
)
def test_refuses(size, time, says):
    with pytest.raises(SpecError, match=says):
        affine(size, time)
