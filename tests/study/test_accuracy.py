"""Errors, coverage and worst rows of a scoreboard small enough to check by hand."""

import numpy as np
import pytest

from workbench import data, results
from workbench.errors import SpecError
from workbench.study import score
from workbench.study.accuracy import by_class, pairs, whole, worst
from workbench.study.scoreboard import scoreboard


@pytest.fixture
def board():
    columns = {
        "measured": [10.0, 20.0, 30.0, np.nan],
        "predicted": [11.0, 10.0, 30.0, 5.0],
        "lower": [9.0, 9.0, 31.0, 4.0],
        "upper": [12.0, 11.0, 35.0, 6.0],
        "naive_tok_s": [20.0, 40.0, 90.0, 9.0],
        "prefill_measured": [np.nan, 100.0, np.nan, np.nan],
        "prefill_predicted": [90.0, 110.0, 80.0, 70.0],
        "prefill_lower": [80.0, 90.0, 70.0, 60.0],
        "prefill_upper": [99.0, 120.0, 90.0, 80.0],
    }
    labels = {"row": list("abcd"), "device_class": ["cpu", "cpu", "apple-uma", "cpu"]}
    return results.dataset(
        {name: ("row", np.array(values)) for name, values in columns.items()},
        {name: ("row", np.array(values)) for name, values in labels.items()},
    )


def test_pairs_need_both(board):
    assert list(pairs(board).row.values) == ["a", "b", "c"]
    assert list(pairs(board, "prefill").row.values) == ["b"]
    np.testing.assert_array_equal(pairs(board, "bandwidth ÷ bytes").predicted, [20, 40, 90])


def test_by_class(board):
    sums = by_class(pairs(board))
    assert list(sums.device_class.values) == ["apple-uma", "cpu"]
    np.testing.assert_allclose(sums.error, [0.0, 0.3])  # median of 0.1 and 0.5
    np.testing.assert_allclose(sums.naive_error, [2.0, 1.0])
    np.testing.assert_allclose(sums.coverage, [0.0, 0.5])
    np.testing.assert_allclose(sums.rows, [1, 2])


def test_prefill_has_no_naive_line(board):
    assert np.isnan(whole(pairs(board, "prefill"))["naive_error"])


def test_worst_is_by_factor(board):
    assert list(worst(pairs(board), 2).row.values) == ["b", "a"]


def test_no_rows(board):
    nothing = pairs(board.isel(row=[]))
    assert whole(nothing)["rows"] == 0 and by_class(nothing).sizes["device_class"] == 0


def test_unknown_stage(board):
    with pytest.raises(SpecError, match="decode, prefill"):
        pairs(board, "decoding")


def test_agrees_with_score():
    rows = [r for r in data.rows("measurements.csv") if r["source"] == "ggml-org/llama.cpp#4167"]
    board = scoreboard(rows[:40])
    expected = score.summary(board)["decode"]
    sums = whole(pairs(board.isel(row=board.scored.values)))
    assert sums["rows"] == expected["n"]
    assert sums["error"] == pytest.approx(expected["median_ape"])
