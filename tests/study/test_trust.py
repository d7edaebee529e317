"""Intervals hold their prediction and grow as calibration knows less."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from workbench import data
from workbench.hardware import coefficients
from workbench.study import trust
from workbench.study.predict import BeyondContext
from workbench.study.rows import request
from workbench.study.trust import LEVELS

TABLE = {
    "known": {
        "device.backend": {"seen|cuda": 5},
        "device_class.backend": {"nvidia-gpu|cuda": 50},
    },
    "range": {"context": 8192.0, "batch": 1.0},
    "residuals": {
        stage: {
            "measured": {"all": [0.9, 1.1], "nvidia-gpu": [0.95, 1.04]},
            "calibrated": {"all": [0.8, 1.3]},
            "prior": {"all": [0.6, 1.7]},
            "outside range": {"all": [0.5, 2.0]},
        }
        for stage in ("decode", "prefill")
    },
}


def levels(
    device: str,
    device_class: str,
    backend: str = "cuda",
    fits: bool = True,
    context=512.0,
    batch=1.0,
):
    pools = {"device": device, "device_class": device_class, "backend": backend}
    keys = {name: np.array([label], dtype=object) for name, label in pools.items()}
    priced = {
        "fits": np.array([fits]),
        "weight_bytes": np.array([5e9]),
        "decode_tok_s": np.array([100.0]),
        "prefill_tok_s": np.array([1000.0]),
    }
    found = trust.intervals(
        priced, keys, {"context": np.array([context]), "batch": np.array([batch])}, TABLE
    )
    ends = [found[name].item() for name in ("lower", "upper", "prefill_lower", "prefill_upper")]
    return str(found["trust"].item()), ends


@pytest.mark.parametrize(
    "asked, level, ends",
    [
        (("seen", "nvidia-gpu"), "measured", [95, 104, 950, 1040]),  # the class has ends of its own
        (("new", "nvidia-gpu"), "calibrated", [80, 130, 800, 1300]),
        (("new", "amd-gpu"), "prior", [60, 170, 600, 1700]),
        (("seen", "nvidia-gpu", "vulkan"), "prior", [60, 170, 600, 1700]),
        (("seen", "nvidia-gpu", "cuda", False), "outside range", [50, 200, 500, 2000]),
        (("seen", "nvidia-gpu", "cuda", True, 8193.0), "outside range", [50, 200, 500, 2000]),
        (("seen", "nvidia-gpu", "cuda", True, 512.0, 2.0), "outside range", [50, 200, 500, 2000]),
    ],
)
def test_levels(asked, level, ends):
    found = levels(*asked)
    assert found[0] == level
    assert found[1] == pytest.approx(ends)


def test_the_table_that_ships_widens_with_less_trust():
    """By class and over all: an interval of one level lies within that of the next."""
    for stage in ("decode", "prefill"):
        residuals = coefficients.table()["residuals"][stage]
        for better, worse in zip(LEVELS[1:], LEVELS[2:], strict=False):
            for label, (low, high) in residuals[better].items():
                other = residuals[worse].get(label, residuals[worse]["all"])
                assert other[0] <= low and high <= other[1], (stage, better, label)
        measured, calibrated = (residuals[level]["all"] for level in LEVELS[:2])
        assert np.log(measured[1] / measured[0]) <= np.log(calibrated[1] / calibrated[0]), stage


def test_every_end_of_the_table_holds_the_prediction():
    for stage in ("decode", "prefill"):
        for by_class in coefficients.table()["residuals"][stage].values():
            assert all(0 < low <= 1 <= high for low, high in by_class.values())


@pytest.mark.filterwarnings("ignore::workbench.study.predict.BeyondContext")
@given(
    st.sampled_from(wb.devices()),
    st.sampled_from(["llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v3"]),
    st.integers(0, 100_000),
)
def test_the_interval_holds_the_prediction(device, model, context):
    ds = wb.predict(wb.Model.preset(model), wb.Device.preset(device), wb.Workload(context=context))
    assert 0 < ds.lower.item() <= ds.decode_tok_s.item() <= ds.upper.item()
    assert 0 < ds.prefill_lower.item() <= ds.prefill_tok_s.item() <= ds.prefill_upper.item()
    assert (ds.trust.item() == "outside range") == (not ds.fits.item())


def test_what_the_shipped_table_knows():
    """Machines of datasets/measurements.csv are measured; a card that no row has is calibrated by its class."""
    model, known = wb.Model.preset("llama-3.1-8b"), wb.Device.preset("rtx 4090")
    other = wb.Device.custom(
        "RTX 9999", bandwidth="2 TB/s", memory="48 GiB", device_class="nvidia-gpu"
    )
    assert wb.predict(model, known).trust.item() == "measured"
    assert wb.predict(model, other).trust.item() == "calibrated"
    assert wb.predict(model, known, engine="llama.cpp-sycl").trust.item() == "prior"


def width(ds) -> float:
    return np.log(ds.upper.item() / ds.lower.item())


def test_a_model_that_does_not_fit_is_outside_the_range_and_its_interval_is_wider():
    device = wb.Device.preset("rtx 4090")
    inside, outside = (wb.predict(wb.Model.preset("llama-3.3-70b-instruct"), device, quant=quant)
                       for quant in ("IQ1_S", "F16"))  # fmt: skip
    assert (inside.trust.item(), outside.trust.item()) == ("measured", "outside range")
    assert width(outside) > width(inside)


def test_a_batch_or_a_context_that_no_row_had_is_outside_the_range():
    """measurements.csv decodes one sequence, with at most 131,072 tokens of depth and a reply behind them."""
    model, device = wb.Model.preset("llama-3.2-1b-instruct"), wb.Device.preset("rtx 4090")
    for work in (wb.Workload(batch=4), wb.Workload(context=140_000)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BeyondContext)
            ds = wb.predict(model, device, work)
        assert bool(ds.fits) and ds.trust.item() == "outside range"
        assert width(ds) > width(wb.predict(model, device))


def in_columns_of_measurements(row: dict) -> dict:
    """A row of batch.csv as measurements.csv would state it."""
    same = ("id", "device", "engine", "model", "quant", "arch_kind", "prompt_tokens", "gen_tokens")
    return {name: row[name] for name in same} | {"decode_tok_s": row["decode_total_tok_s"]}


def test_intervals_of_larger_batches_hold_what_was_measured():
    """The fit saw single sequences: beyond them the interval widens, and must hold 80 % within what counting allows."""
    rows = [r for r in data.rows("batch.csv") if r["batch"] in ("2", "4", "8")]
    rows = [r for r in rows if r["engine"].startswith(("llama", "ik_llama"))][::4]
    inside = []
    for row in rows:
        asked = request(in_columns_of_measurements(row))
        work = wb.Workload(
            prompt=asked.prompt, generate=64, context=asked.context, batch=float(row["batch"])
        )
        ds = wb.predict(asked.model, asked.device, work, quant=asked.quant, engine=asked.engine)
        assert ds.trust.item() == "outside range"
        inside.append(ds.lower.item() <= asked.decode_tok_s <= ds.upper.item())
    assert len(inside) > 20 and np.mean(inside) >= 0.7
