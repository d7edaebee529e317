"""The panels of the token ledger, the capacity and the scoreboard without a browser."""

import numpy as np
import pytest

import workbench as wb
from workbench.panels.capacity import MODELS, QUANTS, CapacityPanel
from workbench.panels.decimal import DecimalSlider
from workbench.panels.scoreboard import ScoreboardPanel, board
from workbench.panels.token_ledger import TokenLedgerPanel
from workbench.study.accuracy import worst
from workbench.study.token_ledger import fixed_time, weight_efficiency

GIB = 2**30


@pytest.fixture(scope="module")
def ledger():
    return TokenLedgerPanel()


@pytest.fixture(scope="module")
def capacity():
    return CapacityPanel()


@pytest.fixture(scope="module")
def scores():
    return ScoreboardPanel()


def test_decimal_slider_stays_on_its_steps():
    """A browser moves a value between steps to the next step, as if a reader had."""
    slider = DecimalSlider("t [ms]", 4.0, 0.0, 60.0, 0.1)
    assert slider.clip(3.954) == 4.0 and slider.clip(99.0) == 60.0
    slider.slider.value = 7.3
    assert slider.value == slider.box.value == 7.3
    slider.box.value = 1.5
    assert slider.slider.value == 1.5


def test_calibrated_ledger_is_predicts(ledger):
    ledger.set(machine="apple-m2-10-core-gpu", quant="Q4_0", context=512, calibrated=True)
    model, device = wb.Model.preset("llama-2-7b-hf"), wb.Device.preset("m2 10-core")
    ds = wb.predict(model, device, wb.Workload(context=512), quant="Q4_0")
    np.testing.assert_allclose(ledger.data.time_s, ds.time_s)
    shown = [trace.x[2] for trace in ledger.widget.data[:8]]
    np.testing.assert_allclose(shown, ds.time_s * 1e3)
    assert ledger.values["fixed"] == pytest.approx(fixed_time(ds) * 1e3, abs=0.06)


def test_a_moved_slider_bends_the_ledger_until_calibrated_again(ledger):
    ledger.set(calibrated=True)
    speed = ledger.data.decode_tok_s.item()
    ledger._efficiency.slider.value = 0.5
    assert not ledger.values["calibrated"]
    assert weight_efficiency(ledger.data) == pytest.approx(0.5)
    assert "Calibrated:" in ledger.status(ledger.data)
    ledger.set(fixed=49.0)
    assert fixed_time(ledger.data) == pytest.approx(0.049)
    assert ledger.data.decode_tok_s < speed
    ledger.set(calibrated=True)
    assert ledger.data.decode_tok_s.item() == pytest.approx(speed)


@pytest.mark.parametrize("machine", ["nvidia-geforce-rtx-4090", "apple-m6-12-core-gpu"])
def test_any_machine_measured_or_not(ledger, machine):
    ledger.set(machine=machine, calibrated=True)
    assert ledger.error == "" and "Law:" in ledger.status(ledger.data)
    ledger.set(machine="apple-m2-10-core-gpu")


def test_ledger_code_computes_the_same(ledger):
    ledger.set(efficiency=0.6, fixed=20.0)
    there = {}
    exec(ledger.to_code(), there)
    np.testing.assert_allclose(there["ds"].time_s, ledger.data.time_s)
    ledger.set(calibrated=True)


def test_limit_follows_the_rule_until_moved(capacity):
    """macOS lets a GPU wire two thirds of 32 GB: 21.3 GiB (datasets/capacity.csv)."""
    capacity.set(machine="apple-m4-10-core-gpu", memory=32 * GIB, default=True)
    assert capacity.values["limit"] == pytest.approx(21.3)
    assert capacity.data.usable_bytes == pytest.approx(32 * GIB * 2 / 3, rel=1e-3)
    capacity.set(limit=28.0)
    assert not capacity.values["default"]
    assert capacity.data.usable_bytes == 28 * GIB
    capacity.set(default=True)
    assert capacity.data.usable_bytes == pytest.approx(32 * GIB * 2 / 3, rel=1e-3)


def test_matrix_and_panel_agree(capacity):
    capacity.set(model="qwen3.6-27b", quant="Q4_K_M", context=8192)
    cells = next(trace for trace in capacity.widget.data if trace.type == "heatmap")
    here = cells.z[MODELS.index("qwen3.6-27b")][QUANTS.index("Q4_K_M")]
    assert here == pytest.approx(capacity.data.headroom_bytes.item() / GIB)
    assert np.shape(cells.z) == (len(MODELS), len(QUANTS))


def test_capacity_code_computes_the_same(capacity):
    capacity.set(limit=20.0, batch=2, kv="q8_0")
    there = {}
    exec(capacity.to_code(), there)
    for name in ("headroom_bytes", "usable_bytes", "decode_tok_s"):
        np.testing.assert_allclose(there["ds"][name], capacity.data[name])
    capacity.set(default=True, batch=1, kv="f16")


def test_capacity_says_what_is_missing(capacity):
    said = capacity.set(model="llama-3.3-70b-instruct").status(capacity.data)
    assert "does not fit" in said and "missing" in said
    capacity.set(model="qwen3.6-27b")


def test_scoreboard_shows_all_rows_at_first(scores):
    known = np.isfinite(board().measured) & np.isfinite(board().predicted)
    assert scores.data.sizes["row"] == int(known.sum()) > 1500


def test_scoreboard_filters(scores):
    scores.set(kind="apple-uma", engine="mlx", name="qwen3 m4")
    rows = scores.data
    assert 0 < rows.sizes["row"] < 500
    assert set(rows.device_class.values) == {"apple-uma"}
    assert all("mlx" in engine for engine in rows.engine.values)
    assert all("qwen3" in model for model in rows.model.values)
    assert worst(rows, 1).row.item() in scores._worst.value
    assert "No row" in scores.set(name="zzz").status(scores.data) and scores.error == ""
    scores.set(kind="all", engine="all", name="")


def test_scoreboard_stages_have_their_axes(scores):
    scores.set(stage="prefill")
    assert scores.widget.layout.xaxis.range[1] == 5.0
    assert "Bandwidth" not in scores.status(scores.data)
    scores.set(stage="decode")
    assert scores.widget.layout.xaxis.range[1] < 4.0


def test_scoreboard_names_are_escaped(scores):
    found = scores.data.isel(row=[0]).assign_coords(model=("row", ["<img src=x>"]))
    scores.details(found)
    assert "<img" not in scores._worst.value
    scores.flush()
