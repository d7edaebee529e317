"""Figures of contiguity and pressure show what they are given."""

import numpy as np
import pytest

import workbench as wb
from workbench.figures import contiguity as figure
from workbench.figures import pressure as pressure_figure
from workbench.hardware.contiguity import largest_block
from workbench.hardware.contiguity_dma import REQUESTS, ways
from workbench.hardware.contiguity_zone import simulate
from workbench.hardware.pools import orderings
from workbench.hardware.pressure import measured
from workbench.study.pressure import under_pressure

GIB = 2**30


@pytest.fixture(scope="module")
def life():
    return simulate("256 MiB", 0.2, 0.01)


def test_map_tells_pinned_from_used_from_free(life):
    last = life.sizes["burst"] - 1
    (trace,) = figure.life(life, last).data
    pinned = life.pinned_share.isel(burst=last).values > 0
    cells = np.array(trace.z).ravel()
    assert ((cells > 1) == pinned).all() and cells.max() <= 2 and cells.min() >= 0
    (filled,) = figure.map_values(life, 0)
    assert (filled["z"] <= 1).all() and (filled["z"] > 0.99).all()


def test_lists_add_up(life):
    simulated, here = figure.list_values(
        life, life.sizes["burst"] - 1, life.expand_dims("zone").isel(burst=-7)
    )
    assert simulated["y"].sum() == pytest.approx(100) == here["y"].sum()
    assert simulated["x"][:2] == ["4 KiB", "8 KiB"] and simulated["x"][-1] == "4 MiB"
    assert figure.list_values(life, 0)[1] == {"x": [], "y": []}


@pytest.mark.parametrize("pinned", [0.0, 1e-3, 1.0])
def test_stairs_hold_the_mark(life, pinned):
    curves = [
        largest_block("32 GiB", list(figure.PINNED), grouping=grouping, seeds=8)
        for grouping in (False, True)
    ]
    now = largest_block("32 GiB", pinned)
    values = figure.curve_values(*curves, now, life, (2**22, 2**30))
    assert len(values) == len(figure.curve_traces())
    low, high, bound = (values[i]["y"] for i in range(3))
    there = np.isfinite(low)
    assert (low[there] <= high[there]).all()
    if pinned == 1e-3:
        at = figure.PINNED.index(pytest.approx(1e-3))
        assert values[-1]["y"] == bound[at] == 16 * 2**20 and "16 MiB" in values[-1]["text"][0]
    if pinned == 1.0:
        assert np.isnan(values[-1]["y"]).all()
    stopped = figure.curve_values(*curves, now, life.isel(burst=slice(-2)), (2**22, 2**30))
    assert np.isfinite(values[-2]["y"]).all() and np.isnan(stopped[-2]["y"]).all()


def test_table_says_every_way():
    said = figure.ways_table(ways("23.6 GB", "1 GiB", memory="32 GiB", reserve="24 GiB"))
    assert all(way in said for way in REQUESTS)
    assert said.count("yes") == 2  # what boot set aside: half of the rest is in use
    assert "8 GiB lost" in said and "23.6 GB in pieces of 1 GiB" in said


def test_pool_shows_the_order_that_works_first():
    cells, words = figure.pool(orderings("24 GB", "20 GB")).data
    assert (
        cells.y[0] == "create, flush, defrag, load ✓" and sum("✓" in name for name in cells.y) == 1
    )
    assert all(name.startswith("create") for name in cells.y)
    assert len(words.text) == 4 * len(cells.y) and "one piece" in words.text[3]


def test_cliff_shows_both_pagers_and_the_weights():
    model, device = wb.Model.preset("llama-3.1-8b"), wb.Device.preset("m4 10-core")
    sizes = [4 * GIB, 16 * GIB]
    curve = under_pressure(model, device, sizes, storage="3 GB/s")
    now = under_pressure(model, device, 4 * GIB, storage="3 GB/s")
    fast, random, slow, weights, mark = pressure_figure.values(curve, now, 4 * GIB)
    assert fast["name"] == "paged by the system" and fast["y"][0] < random["y"][0] < slow["y"][0]
    assert fast["y"][1] == pytest.approx(wb.predict(model, device).decode_tok_s.item(), rel=1e-6)
    assert weights["x"][0] == curve.working_bytes.item() / GIB
    assert list(mark["y"]) == list(now.tok_s.values)
    assert len(pressure_figure.empty().data) == 5


def test_measured_stands_beside_predicted():
    ds = measured()
    seen, ours = pressure_figure.measured(ds).data
    np.testing.assert_allclose(seen.y, ds.measured)
    np.testing.assert_allclose(ours.y, ds.predicted)
