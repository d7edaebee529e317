"""Headroom equals that of predict; more memory helps until the model fits, and never after."""

import numpy as np
import pytest

import workbench as wb
from workbench.study.capacity import headroom, measured_kv, speed_by_memory

GIB = 2**30
QUANTS = ("Q4_K_M", "Q8_0", "F16")
SIZES = [size * GIB for size in (4, 8, 16, 24, 32, 64)]


@pytest.fixture(scope="module")
def models():
    return [wb.Model.preset(name) for name in ("llama-3.1-8b", "mixtral-8x7b-v0.1")]


@pytest.mark.parametrize("limit", [None, 24 * GIB])
def test_headroom_is_that_of_predict(models, limit):
    device, work = wb.Device.preset("m4 10-core"), wb.Workload(context=8192, batch=2)
    room = headroom(models, device, work, QUANTS, wired_limit=limit)
    ds = wb.predict(models, device, work, quant=QUANTS, wired_limit=limit)
    np.testing.assert_allclose(room, ds.headroom_bytes)
    assert room.attrs["units"] == "byte"


def test_unified_memory_has_nowhere_to_spill(models):
    ds = speed_by_memory(models[1], wb.Device.preset("m4 10-core"), wb.Workload(), SIZES)
    np.testing.assert_array_equal(np.isfinite(ds.decode_tok_s), ds.fits)


def test_a_card_spills_and_slows_down(models):
    ds = speed_by_memory(models[1], wb.Device.preset("rtx 4090"), wb.Workload(), SIZES)
    speed, fits = ds.decode_tok_s.values, ds.fits.values
    assert np.isfinite(speed).all() and fits[-1] and not fits[0]
    assert speed[~fits].max() < speed[fits].min()
    assert np.ptp(speed[fits]) == pytest.approx(0, abs=1e-6)


def test_kv_series_is_a_straight_line():
    """antirez/ds4 speed-bench/m2_ultra.csv: 13,764 bytes per token in every step."""
    kv = measured_kv()
    steps = kv.kv_bytes.diff("context") / kv.context.diff("context")
    assert set(steps.values) == {13_764.0}
