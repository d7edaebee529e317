"""Figures of the token ledger, the capacity and the scoreboard show what they are given."""

import numpy as np
import pytest
import xarray as xr

import workbench as wb
from workbench import results
from workbench.figures import (
    affine,
    budget,
    headroom,
    kv_growth,
    memory_cliff,
    roofline,
    scoreboard,
    stacked,
    theme,
    token_ledger,
)
from workbench.hardware import affine as law
from workbench.study.accuracy import pairs
from workbench.study.capacity import measured_kv
from workbench.study.token_ledger import bent, measured_tokens

GIB = 2**30


@pytest.fixture(scope="module")
def token():
    return wb.predict(wb.Model.preset("llama-2-7b-hf"), wb.Device.preset("m2 10-core"))


def test_bars_add_up(token):
    other = bent(token, fixed=0.049)
    fig = token_ledger.figure(token, other)
    bars = np.array([trace.x for trace in fig.data[:-1]])
    expected = [1 / token.naive_tok_s, token.time_s.sum(), other.time_s.sum()]
    np.testing.assert_allclose(bars.sum(0), np.array(expected) * 1e3)
    assert "tok/s" in fig.data[-1].text[0]


def test_small_parts_carry_no_label():
    shown = stacked.values(np.array([[100.0, 1.0], [1.0, 50.0]]), ["a", "b"])
    assert shown[0]["text"] == ["100", ""] and shown[1]["text"] == ["", "50"]


def test_roof_bends_at_the_ridge():
    """M2: 100 GB/s and 3.6 TFLOP/s meet at 36 FLOP/byte."""
    points = results.dataset(
        {
            "arithmetic_intensity": ("point", np.array([2.0])),
            "rate": ("point", np.array([1e11]), {"units": "FLOP/s", "long_name": "speed"}),
        },
        {"point": ("point", ["1"], {"units": "1", "long_name": "operation"})},
    )
    fig = roofline.figure(points, 100e9, 3.6e12, 0.5)
    assert fig.data[0].x[1] == 36 and fig.data[1].x[1] == 72
    assert fig.data[0].y[1] == fig.data[1].y[1] == 3.6
    assert fig.data[3].text == ("batch 1",) and fig.data[3].y == (0.1,)


def test_line_through_the_articles_table():
    """Claim B80: 14.2/7.8/4.9/3.7 GB at 5.3/8.1/10.2/11.7 tok/s is 49.0 ms + S / 102.1 GB/s."""
    sizes, speeds = np.array([14.2, 7.8, 4.9, 3.7]), np.array([5.3, 8.1, 10.2, 11.7])
    line, marks = affine.figure({"article": law.affine(sizes * 1e9, 1 / speeds)}).data
    assert line.y[0] == pytest.approx(49.0, abs=0.05)
    assert (line.x[-1] / (line.y[-1] - line.y[0])) * 1e3 == pytest.approx(102.1, abs=0.05)
    np.testing.assert_allclose(marks.y, 1e3 / speeds)
    assert "49 ms + S ÷ 102 GB/s" in line.text[1]


def test_no_line_without_measurements():
    shown = affine.values(measured_tokens("none"), None, law.Line(0.004, 9e10), (4e9, 0.05))
    assert len(shown[0]["x"]) == 0 and shown[1]["x"] == []
    assert shown[2]["y"][0] == 4.0 and shown[3] == {"x": [4.0], "y": [50.0]}


def test_memory_bars_and_limit(token):
    fig = budget.figure(token, 24 * GIB)
    bars = np.array([trace.x for trace in fig.data[:-2]])
    np.testing.assert_allclose(bars.sum(0), [token.memory_bytes.sum() / GIB, 24.0])
    assert set(fig.data[-1].x) == {token.usable_bytes.item() / GIB}


def test_cells_say_what_fits_in_words():
    room = xr.DataArray(
        [[12.3 * GIB, -0.04 * GIB]], {"model": ["m"], "quant": ["a", "b"]}, ["model", "quant"]
    )
    fig = headroom.figure(room)
    assert fig.data[0].text.tolist() == [["✓ +12", "✗ −0.04"]]
    assert fig.data[0].zmid == 0


def test_cliff_separates_fits_spills_and_not_held(token):
    curve = results.dataset(
        {
            "decode_tok_s": ("memory", np.array([np.nan, 2.0, 10.0])),
            "fits": ("memory", np.array([False, False, True])),
        },
        {
            "memory": (
                "memory",
                np.array([4.0, 8.0, 16.0]) * GIB,
                {"units": "byte", "long_name": "m"},
            )
        },
    )
    fits, spills, lost, now = memory_cliff.figure(curve, token, 16 * GIB).data
    np.testing.assert_array_equal(fits.y, [np.nan, np.nan, 10.0])
    np.testing.assert_array_equal(spills.y, [np.nan, 2.0, 10.0])
    assert list(lost.x) == [4.0] and list(now.x) == [16.0]


def test_kv_growth_is_straight():
    square, straight, recorded = kv_growth.figure(measured_kv()).data
    np.testing.assert_allclose(straight.y, recorded.y)
    assert square.y[0] == recorded.y[0] and square.y[-1] > recorded.y[len(square.y) - 1]


def test_scoreboard_shows_every_pair():
    columns = {"measured": [10.0, 20.0], "predicted": [11.0, 10.0], "naive_tok_s": [15.0, 80.0]}
    columns |= {"lower": [9.0, 9.0], "upper": [12.0, 11.0]}
    labels = {"row": ["r1", "r2"], "device_class": ["cpu", "apple-uma"]}
    board = results.dataset(
        {name: ("row", np.array(values)) for name, values in columns.items()},
        {name: ("row", np.array(values)) for name, values in labels.items()},
    )
    fig = scoreboard.figure(pairs(board))
    marks = {trace.name: (list(trace.x), list(trace.y)) for trace in fig.data[3:12]}
    assert marks["CPU"] == ([10.0], [11.0]) and marks["Apple"] == ([20.0], [10.0])
    ours, naive = (t for t in fig.data if t.type == "bar")
    np.testing.assert_allclose(ours.x, [0.5, 0.1])
    np.testing.assert_allclose(naive.x, [3.0, 0.5])
    assert list(fig.data[-1].x) == [0.0, 1.0]


@pytest.mark.parametrize("part", [roofline, affine, headroom, memory_cliff])
def test_parts_stay_out_of_the_legend(part):
    drawn = part.traces(["m"], ["q"]) if part is headroom else part.traces()
    assert not any(trace.showlegend for trace in drawn)


def test_classes_differ_by_more_than_colour():
    marks = [t.marker for t in scoreboard.scatter_traces() if t.mode == "markers"]
    assert len({m.symbol for m in marks}) == len(marks)
    assert {m.color for m in marks} <= set(theme.PALETTE)
