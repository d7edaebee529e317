"""Figures show the numbers of the Dataset they are given, in the unit that their axis names."""

import numpy as np
import pytest

import workbench as wb
from workbench.figures import capacity, context, ledger, start

GIB = 2**30


@pytest.fixture(scope="module")
def curve():
    model, device = wb.Model.preset("llama-3.1-8b"), wb.Device.preset("m4 pro")
    return wb.predict(model, device, wb.Workload(context=wb.axis("context", [512, 4096, 32768])))


@pytest.fixture(scope="module")
def now(curve):
    return curve.isel(context=1)


def test_ledger_bars_are_the_terms_and_their_sum(now):
    bars = ledger.figure(now).data[0]
    np.testing.assert_allclose(bars.x[:-1], now.time_s * 1e3)
    assert bars.x[-1] == pytest.approx(float(now.time_s.sum()) * 1e3)
    np.testing.assert_allclose(np.array(bars.base[1:-1]), np.cumsum(now.time_s * 1e3)[:-1])


def test_ledger_marks_the_binding_term(now):
    labels = ledger.figure(now).data[1].text
    marked = [i for i, text in enumerate(labels) if "binds" in text]
    assert marked == [list(now.term.values).index(now.bound.item())]


def test_capacity_bars_and_limit_are_gib(now):
    fig = capacity.figure(now)
    np.testing.assert_allclose(fig.data[0].x[:-1], now.memory_bytes / GIB)
    assert set(fig.data[2].x) == {now.usable_bytes.item() / GIB}


def test_context_curve_lies_in_its_interval(curve, now):
    band, naive, speed, _, here = context.figure(curve, now).data
    np.testing.assert_allclose(speed.y, curve.decode_tok_s)
    upper, lower = np.split(np.asarray(band.y), 2)  # there, and back
    assert all(low <= y <= up for low, y, up in zip(lower[::-1], speed.y, upper, strict=True))
    assert naive.y[0] == float(curve.naive_tok_s.max())
    assert (here.x[0], here.y[0]) == (4096, now.decode_tok_s.item())


def test_band_ends_where_the_memory_is_full(curve, now):
    cut = curve.copy(deep=True)
    for name in ("lower", "upper", "decode_tok_s"):
        cut[name][-1] = np.nan
    x = context.figure(cut, now).data[0].x
    assert list(x) == [512, 4096, 4096, 512]
    for name in ("lower", "upper", "decode_tok_s"):
        cut[name][:] = np.nan
    assert len(context.figure(cut, now).data[0].x) == 0


@pytest.mark.parametrize("part", [ledger, capacity, context])
def test_axes_carry_units(part):
    titles = [axis["title"]["text"] for axis in part.axes().values() if "title" in axis]
    assert titles and all("[" in title for title in titles)


def test_start_figure_is_the_three_parts(curve, now):
    fig = start.figure(curve, now)
    assert len(fig.data) == 2 + 5 + 3
    assert not any(trace.showlegend for trace in fig.data)


def test_fit_matrix_shows_speed_or_what_is_missing():
    models = [wb.Model.preset(name) for name in ("llama-3.1-8b", "llama-3.3-70b-instruct")]
    ds = wb.predict(models, wb.Device.preset("rtx 4090"), quant=["Q4_K_M", "F16"])
    cells, missing = capacity.fit_matrix(ds).data
    np.testing.assert_array_equal(np.isfinite(cells.z), ds.fits.transpose("model", "quant"))
    assert len(missing.text) == int((~ds.fits).sum()) == 2
