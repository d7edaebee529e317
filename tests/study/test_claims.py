"""The claims ledger: computed, not written down."""

import csv
import json

import numpy as np
import pytest
import xarray as xr

from workbench import data, results
from workbench.errors import SpecError
from workbench.figures.claims import ClaimsTable, claims_table
from workbench.hardware import traffic
from workbench.specs.model import Model
from workbench.study.checks import VERDICTS, Claim, checks
from workbench.study.checks.kv_cache import measured_growth
from workbench.study.claims import claims, summary

NOTEBOOKS = ("NB01", "NB06")


@pytest.fixture(scope="module")
def ledger() -> xr.Dataset:
    return claims()


@pytest.fixture(scope="module")
def ours() -> xr.Dataset:
    """The claims of the notebooks whose checks exist."""
    return xr.concat([claims(name) for name in NOTEBOOKS], "claim").drop_duplicates("claim")


def test_holds_every_claim(ledger):
    with data.path("claims.csv").open(encoding="utf-8", newline="") as file:
        assert list(ledger.claim.values) == [row["id"] for row in csv.DictReader(file)]
    assert ledger.sizes["claim"] == 305
    assert set(checks()) <= set(ledger.claim.values)


def test_checkable_claims_are_computed(ours):
    """All but the two that state no number and name nothing that could be looked up."""
    checkable = np.isin(ours.checkable_by, ["formula", "simulation", "public_data"])
    assert bool(ours.computed[checkable].all())
    assert set(ours.claim.values[~ours.computed.values]) == {"A103", "B58"}


def test_a_verdict_comes_with_its_numbers(ledger):
    found = ledger.isel(claim=ledger.computed.values)
    assert set(found.verdict.values) == set(VERDICTS)
    for reason in found.reason.values:
        assert reason.endswith(".") and len(reason) < 300
        assert "nan" not in reason and "Array" not in reason
    rest = ledger.isel(claim=~ledger.computed.values)
    assert set(rest.verdict.values) == {""}


def test_differs_from_the_reader_only_where_measurements_decide(ours):
    """A32 was called unverifiable; 59 measured rows say how often the bus is the weakest link."""
    found = ours.isel(claim=ours.computed.values)
    assert set(found.claim.values[found.verdict != found.preliminary]) == {"A32"}


@pytest.mark.parametrize(
    ("claim", "value"),
    [
        ("A26", {"weights_MB": 119}),  # 3.8 GB / 32 layers (claims.csv, A26)
        ("A28", {"ms": 3.7}),
        ("A31", {"overhead": 0.866}),
        ("A55", {"GB": 1.07, "tokens": 2048}),
        ("A56", {"GB": 96}),
        ("A58", {"max": 8}),
        ("A76", {"gain": 0.1}),
        ("B07", {"B": 46.7}),
        ("B08", {"B": 12.9}),
        ("B37", {"n": 10}),
        ("B53", {"gpu_usable": 21.3}),
        ("B66", {"ngl": 31}),
        ("B79", {"drop": 0.573}),
        ("B81", {"GB": 28.4}),
        ("B83", {"GB": 10.5}),
        ("B108", {"GB": 32}),
        ("C07", {"x": [0.2, 0.3]}),
        ("C08", {"E": 32, "k": 2, "unread_gt": 0.9}),
        ("C09", {"dense_GB_s": 200}),
        ("C14", {"GB": 20}),
        ("C41", {"tpot_ms": 170}),
        ("C64", {"prompt": 8192, "gen": 8192}),
        ("C84", {"GB": 8}),
    ],
)
def test_the_right_number_would_be_plausible(ledger, claim, value):
    assert str(ledger.verdict.sel(claim=claim).values) != "plausible"
    assert checks()[claim](Claim(claim, "", value)).verdict == "plausible"


@pytest.mark.parametrize(
    ("claim", "value", "verdict"),
    [
        ("A01", {"peak_TB_s": 0.8}, "wrong_fact"),
        ("A18", {"reduction": 0.5}, "inconsistent"),
        ("A24", {"share": 0.8}, "wrong_fact"),
        ("A29", {"ms": 2.0}, "wrong_physics"),
        ("A101", {"model": 0.17, "other": 0.5}, "inconsistent"),
        ("A102", {"stage_x": 5, "e2e_x": 5}, "inconsistent"),
        ("B01", {"vram_GB": 48, "ram_GB": 128}, "wrong_physics"),
        ("C03", {"GB": 48}, "wrong_fact"),
        ("C62", {"ffn": 0.4}, "wrong_fact"),
    ],
)
def test_a_wrong_number_would_be_refused(ledger, claim, value, verdict):
    assert str(ledger.verdict.sel(claim=claim).values) == "plausible"
    assert checks()[claim](Claim(claim, "", value)).verdict == verdict


def test_kv_of_2048_tokens_is_one_gib():
    """Exercise of NB06: Llama-2-7B in fp16 (M34)."""
    assert Model.preset("llama-2-7b").kv_bytes(2048.0) == 2**30


def test_mixtral_has_47_billion_and_uses_13():
    """Exercise of NB06: 46.70 B and 12.88 B (M46; arXiv 2401.04088)."""
    mixtral = Model.preset("mixtral-8x7b-v0.1")
    assert mixtral.total_params / 1e9 == pytest.approx(46.70, abs=0.005)
    assert mixtral.active_params / 1e9 == pytest.approx(12.88, abs=0.005)


def test_published_kv_series_is_linear():
    """13,764 B per token at every step (ds4 on an M2 Ultra): what the catalogue counts, at 4 bytes."""
    slopes = measured_growth()
    assert set(slopes) == {13764.0}
    model = Model.preset("deepseek-v4-flash")
    assert model.kv_bytes(1.0, bits=32.0) == pytest.approx(13764, rel=1e-3)


def test_experts_unread_in_one_pass():
    assert float(traffic.experts_touched(16.0, 2.0, 1.0)) == 2 / 16


def test_saves_and_opens(ledger, tmp_path):
    again = results.open_(results.save(ledger, tmp_path / "claims.nc"))
    assert list(again.verdict.values) == list(ledger.verdict.values)
    assert json.loads(again.attrs["verdicts"]) == VERDICTS
    assert all("units" in again[name].attrs for name in again.variables)


def test_summary_counts_every_claim(ledger):
    counts = summary(ledger)
    assert int(counts.sum()) == ledger.sizes["claim"]
    assert int(counts.sel(verdict="not computed")) == int((~ledger.computed).sum())


def test_unknown_notebook():
    with pytest.raises(SpecError, match="NB01 to NB18"):
        claims("NB99")


def test_table_lists_each_claim_with_a_word():
    table = claims_table("nb06")
    page, text = table._repr_html_(), repr(table)
    for claim in claims("NB06").claim.values:
        assert f">{claim}</th>" in page and f"\n{claim} " in text
    assert "wrong&nbsp;physics" in page and "wrong physics" in text
    assert page.count('scope="col"') == 5


def test_table_escapes():
    ledger = claims("NB06").isel(claim=[0]).copy(deep=True)
    for name in ("text", "reason", "reference"):
        ledger[name] = ledger[name].copy(data=["<script>alert(1)</script>"])
    assert "<script" not in ClaimsTable(ledger)._repr_html_()
