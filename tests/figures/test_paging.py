"""The paging figure shows the numbers that it is given, and what was measured beside them."""

import numpy as np
import pytest

from workbench.figures import paging as figure
from workbench.hardware import paging
from workbench.hardware.paging_tlb import translation
from workbench.results import dataset

MINE = 2.0**26  # bytes of a working set that was probed


@pytest.fixture(scope="module")
def model():
    asked = {"bandwidth": "1.3 GB/s", "latency": "46 us"}
    return (
        paging.by_page_size("3.8 GB", readahead=False, **asked),
        paging.touch(**asked),
        translation(list(figure.WORKING_SETS), list(paging.PAGE_SIZES), "Apple M1"),
    )


def measured():
    """A probe that found no 16-KiB pages and could not drop the page cache."""
    return dataset(
        {
            "page_s": ("access", [5e-6, 1e-7, np.nan, np.nan]),
            "latency_s": (("page_size", "working_set"), [[5e-9, 8e-8], [5e-9, np.nan]]),
        },
        {
            "access": list(paging.ACCESSES), "page_size": [2**12, 2**21],
            "working_set": [2.0**14, MINE],
        },
    )  # fmt: skip


def drawn(model, seen):
    load, touch, tlb = model
    return figure.figure([
        figure.load_values(load, 4096), figure.touch_values(touch, seen),
        figure.miss_values(tlb, 3.8e9), figure.access_values(tlb, 3.8e9, seen),
    ]).data  # fmt: skip


@pytest.fixture(scope="module")
def alone(model):
    return drawn(model, None)


@pytest.fixture(scope="module")
def both(model):
    return drawn(model, measured())


def test_bars_are_the_parts_of_each_load(alone, model):
    """NB04's exercise: 46 us for each page of 4 KiB are 42.7 s of waiting."""
    faults, waiting, _, sums = alone[:4]
    assert waiting.x[0] == pytest.approx(42.7, rel=1e-3)
    assert sum(bar.x[2] for bar in alone[:3]) == pytest.approx(model[0].load_s.values[2])
    assert faults.x[0] < 0.02 * waiting.x[0]
    assert "<b>" in sums.text[0] and "<b>" not in sums.text[1]
    assert faults.customdata == ("4 KiB, mapped", "16 KiB, mapped", "2 MiB, read", "1 GiB, read")


def test_a_first_touch_is_drawn_in_microseconds(alone, both):
    bars, none = alone[4:6]
    assert bars.x[3] == pytest.approx(46, rel=0.05)
    assert set(none.x) == {None} and set(none.text) == {""}
    found = both[5]
    assert found.x[:2] == pytest.approx((5, 0.1)) and found.x[2:] == (None, None)
    assert found.text[2:] == ("", "")  # what was not measured has no label


def test_misses_begin_where_the_tlb_ends(alone):
    """M14: 3072 entries of 16 KiB reach 48 MiB."""
    lines, names, here = alone[6:10], alone[10], alone[11]
    reach = 3072 * 2**14
    sets, rates = np.array(lines[1].x), np.array(lines[1].y)
    assert (rates[sets <= reach] == 0).all() and (rates[sets > reach] > 0).all()
    assert np.interp(names.x[1], sets, rates) == pytest.approx(62, abs=2)
    assert here.x == (3.8e9, 3.8e9)


def test_names_of_lines_beyond_the_axis_are_left_out(alone):
    names, giant = alone[10], alone[9]
    assert max(giant.y) < 22 and names.x[3] is None


def test_measured_accesses_stand_over_the_models_lines(alone, both):
    lines, marks = both[12:16], both[17:21]
    assert [line.line.color for line in lines] == [mark.marker.color for mark in marks]
    assert list(marks[0].x) == [2.0**14, MINE] and marks[0].y == pytest.approx((5, 80))
    assert marks[1].y == (None,)  # the probe had no such pages
    assert marks[2].y == (pytest.approx(5), None)
    assert all(mark.y == (None,) for mark in alone[17:21])


def test_a_probe_of_something_else_draws_nothing(model):
    shown = figure.access_values(model[2], 3.8e9, dataset({"memory_total": 1.0}, {}))
    assert all(values["y"] == [None] for values in shown[5:])
