"""Curves of a probe: what was measured is drawn, with units, and nothing else."""

import numpy as np
import pytest

from workbench import results
from workbench.figures import probe as figures


@pytest.fixture
def surveyed():
    return results.dataset(
        {
            "stream_bandwidth": (("kernel", "threads"), [[10e9, 20e9], [8e9, 16e9]]),
            "strided_bandwidth": (("stride", "threads"), [[10e9, 12e9], [1e9, np.nan]]),
            "read_bandwidth": (("cache_state", "block_size"), [[1e9, 2e9], [3e9, 6e9]]),
            "iops": ("queue_depth", [1e4, 1e5]),
        },
        {
            "kernel": ["read", "copy"], "threads": [1, 2], "stride": [4, 64],
            "cache_state": ["cold", "warm"], "block_size": [2**14, 2**20], "queue_depth": [1, 8],
        },
    )  # fmt: skip


def test_every_curve_is_drawn_in_the_unit_of_its_axis(surveyed):
    fig = figures.figure(surveyed)
    drawn = {trace.name: list(trace.y) for trace in fig.data}
    assert drawn["read"] == [10, 20] and drawn["cold"] == [1, 2] and drawn[""] == [1e4, 1e5]
    assert fig.layout.yaxis.title.text == "streaming bandwidth [GB/s]"
    assert fig.layout.yaxis4.title.text == "random reads per second [1/s]"
    assert list(fig.layout.xaxis3.ticktext) == ["16 KiB", "1 MiB"]


def test_a_logarithmic_axis_holds_what_it_shows(surveyed):
    low, high = figures.figure(surveyed).layout.yaxis4.range
    assert 10**low < 1e4 and 10**high > 1e5


def test_lines_that_were_not_measured_are_left_out(surveyed):
    fig = figures.figure(surveyed[["strided_bandwidth"]].where(surveyed.threads == 1))
    assert [trace.name for trace in fig.data] == ["1 thread"]


def test_a_single_curve_needs_one_view(surveyed):
    fig = figures.figure(surveyed[["iops"]])
    assert len(fig.data) == 1 and not fig.data[0].showlegend


def test_nothing_measured_still_draws(surveyed):
    assert len(figures.figure(surveyed[["iops"]] * np.nan).data) == 1


def test_a_dataset_without_curves_is_refused():
    with pytest.raises(ValueError, match="stream_bandwidth"):
        figures.figure(results.dataset({"memory_total": 1.0}))
