"""Claims of the DRAM notebook, each computed."""

import pytest

import workbench as wb
from workbench.errors import SpecError
from workbench.study.claims import claims
from workbench.study.dram import derived

LISTED = [
    "A11",
    "A15",
    "A16",
    "A17",
    "A69",
    "A70",
    "A71",
    "A72",
    "A73",
    "A74",
    "A86",
    "A87",
    "A88",
    "A91",
    "A94",
    "B78",
]


@pytest.fixture(scope="module")
def found():
    return claims("NB03").sel(claim=LISTED)


def test_every_claim_of_the_walkthrough_is_computed(found):
    assert bool(found.computed.all())
    assert all(10 < len(text) < 300 and text.endswith(".") for text in found.reason.values)


def test_verdicts_are_the_readers(found):
    """datasets/claims.csv holds what a reader with the sources said before anything was computed."""
    assert found.verdict.values.tolist() == found.preliminary.values.tolist()


def test_reasons_carry_the_published_numbers(found):
    """Mechanisms M11, M13 and M17."""
    said = {str(c): str(r) for c, r in zip(found.claim.values, found.reason.values, strict=True)}
    assert "1.996 times" in said["A15"] and "256 B anyway" in said["A15"]
    assert "256 KiB" in said["A71"] and "64 KiB" in said["A71"] and "128 KiB" in said["A16"]
    assert "8.5 GB" in said["A87"] and "74.5 kB" in said["A87"]


def test_decoding_by_dram_alone_is_a_bound():
    """Public rows of 7B Q4_0: no machine decodes faster than its DRAM, refresh taken off, delivers the weights."""
    machines = [
        wb.Device.preset(name) for name in ("m2 10-core", "m2 ultra", "rtx 3090", "rtx 5090")
    ]
    ds = derived(wb.Model.preset("llama-2-7b-hf"), machines, "Q4_0")
    assert (ds.measured < ds.dram_bound_tok_s).all() and ds.measured.notnull().all()
    assert (abs(ds.dram_tok_s / ds.measured - 1) < 0.25).all()
    assert ((ds.bus_share > 0.9) & (ds.bus_share < 1)).all()


def test_a_machine_that_does_not_hold_the_model_is_refused():
    with pytest.raises(SpecError, match="does not hold"):
        derived(wb.Model.preset("llama-3.3-70b-instruct"), [wb.Device.preset("rtx 4090")])
