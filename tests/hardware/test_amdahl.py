"""Amdahl's law."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import SpecError
from workbench.hardware.amdahl import pipeline, speedup


@pytest.mark.parametrize(
    ("share", "factor", "expected"),
    [
        (0.17, 5, 1.157),  # article A: 588 -> 508 ms (mechanisms.md, M05)
        (0.38, np.inf, 1.61),  # vLLM 0.5: all that a faster GPU can give (M05)
        (0.18, np.inf, 1.22),  # an 18 % host share (M06)
    ],
)
def test_published_gains(share, factor, expected):
    assert speedup(share, factor) == pytest.approx(expected, abs=0.005)


def test_medical_pipeline():
    ds = pipeline({"model": 0.100, "rest": 0.488}, {"model": 5})
    assert float(ds.total_after_s) == pytest.approx(0.508)
    assert float(ds.share.sel(stage="model")) == pytest.approx(0.17, abs=0.001)
    assert all(ds[name].attrs["units"] and ds[name].attrs["long_name"] for name in ds.variables)


@given(st.floats(0, 1), st.floats(1, 1e6))
def test_never_beats_the_share_or_the_factor(share, factor):
    gain = speedup(share, factor)
    assert 1 - 1e-12 <= gain <= factor * (1 + 1e-9)
    whole = pipeline({"part": share, "rest": 1 - share}, {"part": factor})
    assert float(whole.speedup) == pytest.approx(gain)


@pytest.mark.parametrize(
    ("times", "faster", "says"),
    [
        ({}, None, "times"),
        ({"a": -1.0}, None, "times"),
        ({"a": float("inf")}, None, "times"),
        ({"a": 1.0}, {"b": 2.0}, "no stage b"),
        ({"a": 1.0}, {"a": 0.0}, "factors above 0"),
    ],
)
def test_refuses(times, faster, says):
    with pytest.raises(SpecError, match=says):
        pipeline(times, faster)
