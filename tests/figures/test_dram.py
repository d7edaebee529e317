"""Figures of DRAM and layout show what they are given."""

import numpy as np
import pytest
import xarray as xr

import workbench as wb
from workbench.figures import dram as figure
from workbench.figures import layout as layouts
from workbench.hardware import dram, layout


@pytest.fixture(scope="module")
def law():
    return dram.efficiency(granule=list(figure.GRANULES), queue_depth=list(figure.DEPTHS))


def test_map_shows_every_cell_in_per_cent(law):
    fig = figure.figure(law)
    np.testing.assert_allclose(fig.data[0].z, law.bus_share * 100)
    assert "LPDDR5-6400" in fig.layout.title.text and fig.data[0].y[-1] == "4 KiB"


def test_lines_mark_the_chosen_depth(law):
    one = law.sel(granule=64)
    shown = figure.line_values(one, one, 4)
    np.testing.assert_allclose(shown[1]["y"], one.bus_share * 100)
    assert shown[3]["x"] == [4] and shown[3]["y"][0] == pytest.approx(61, abs=3)  # mechanism M10


def test_alignment_marks_the_chosen_length():
    ds = dram.overfetch(list(figure.LENGTHS), 256, [1, 32, 256])
    *lines, names, mark = figure.fetch_values(ds, 256)
    assert mark["y"][0] == 1.875 and lines[2]["y"][3] == 1.0  # mechanism M11
    assert len(names["x"]) == len(names["text"]) == 2


def test_latency_beyond_four_times_idle_is_left_out():
    law = dram.loaded_latency(np.array([0.0, 0.5, 0.999]), "50 ns", "5 ns")
    waits = xr.Dataset({"bus_share": ("q", [0.1, 0.9]), "loaded_latency_s": ("q", [50e-9, 500e-9])})
    simulated, queued, knee = figure.latency_values(waits, law)
    assert list(simulated["x"]) == [10.0] and np.isnan(queued["y"][-1])
    assert knee["x"][0] == pytest.approx(law.knee.item() * 100)


def test_bars_of_the_layouts_add_up():
    ds = layout.arrangements(
        wb.Model.preset("llama-3.1-8b"), wb.Device.preset("m4 pro"), walk="50 ns"
    )
    shown = layouts.values(ds, 2**14, 0.02)
    np.testing.assert_allclose(shown[0]["x"] + layouts._LEAST, ds.run_bytes)
    parts = sum(np.asarray(part["x"]) for part in shown[3:6])
    np.testing.assert_allclose(parts, ds.gather_s * 1e3)
    assert shown[6]["text"][0].endswith("of a token")


def test_no_stray_trace_is_in_the_legend():
    for fig in (figure.empty(), layouts.empty()):
        assert all(
            trace.name
            for trace in fig.data
            if trace.showlegend is not False and trace.type != "heatmap"
        )
