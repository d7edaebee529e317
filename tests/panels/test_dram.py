"""The panels of the DRAM notebook without a browser."""

import numpy as np
import pytest

from workbench.errors import SpecError
from workbench.figures.dram import DEPTHS, GRANULES
from workbench.hardware import dram
from workbench.panels.dram import DramPanel
from workbench.panels.layout import LayoutPanel


@pytest.fixture(scope="module")
def panel():
    return DramPanel()


@pytest.fixture(scope="module")
def layouts():
    return LayoutPanel()


def test_map_is_the_simulators(panel):
    panel.set(granule=64, depth=32, locality=0.0)
    there = {}
    exec(panel.to_code(), there)
    np.testing.assert_allclose(there["ds"].bus_share, panel.data.bus_share)
    assert np.shape(panel.widget.data[0].z) == (len(GRANULES), len(DEPTHS))
    assert "GB/s from 8" in panel.status(panel.data)


def test_chosen_reads_are_marked(panel):
    panel.set(granule=128, depth=4)
    assert list(panel.widget.data[1].x) == ["4"] and list(panel.widget.data[1].y) == ["128 B"]
    law = dram.efficiency(granule=128, queue_depth=list(DEPTHS)).bus_share
    np.testing.assert_allclose(panel.widget.data[3].y, law * 100)


def test_channels_multiply_the_bandwidth(panel):
    one, eight = (panel.set(channels=n).status(panel.data) for n in (1, 8))
    assert one != eight and panel.error == ""


def test_row_hits_change_the_map(panel):
    before = panel.data.bus_share.copy()
    panel.set(locality=0.9)
    assert panel.data.row_hit.max() > 0.8 and not panel.data.bus_share.equals(before)
    panel.set(locality=0.0)


def test_a_start_beyond_the_granule_is_moved_to_it(panel):
    panel.set(block=512, start=512)
    panel.set(block=64)
    assert panel.values["start"] == 64 and panel.error == ""
    panel.set(block=256, start=1)


def test_what_no_control_can_take_is_refused(panel):
    with pytest.raises(SpecError):
        panel.set(granule=48)


def test_layouts_compute_what_their_code_says(layouts):
    layouts.set(context=4096, block=16, depth=1, walk=100)
    there = {}
    exec(layouts.to_code(), there)
    np.testing.assert_allclose(there["ds"].gather_s, layouts.data.gather_s)
    assert layouts.error == "" and "of the bytes of a token" in layouts.status(layouts.data)


def test_layouts_are_drawn_from_scattered_to_contiguous(layouts):
    runs = np.array(layouts.widget.data[1].x)
    assert (np.diff(runs) > 0).all() and runs[0] == 256  # one head of 128 numbers in fp16
