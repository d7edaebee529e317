"""The claims about memory in one piece: verdicts and their numbers."""

import pytest

from workbench.study.checks import Claim, checks
from workbench.study.claims import claims

OURS = [f"C{n:02}" for n in (6, *range(15, 23), 34, 35, 36, 40, 42, 63, 70)]


@pytest.fixture(scope="module")
def ledger():
    return claims("NB05")


def test_every_claim_is_computed_and_agrees_with_the_reader(ledger):
    assert set(OURS) <= set(ledger.claim.values)
    assert bool(ledger.computed.all())
    assert ledger.claim.values[(ledger.verdict != ledger.preliminary).values].tolist() == []


def test_reasons_are_short_sentences(ledger):
    for reason in ledger.reason.values:
        assert reason.endswith(".") and len(reason) < 300 and "nan" not in reason


@pytest.mark.parametrize(
    ("claim", "number"),
    [
        ("C18", "54 GB"),  # 27B x 2 B
        ("C19", "16 MiB"),
        ("C20", "450 times"),
        ("C34", "93.8 times"),
        ("C35", "8 GiB"),
        ("C70", "23.6 MB"),  # exercise of NB05
    ],
)
def test_numbers_of_the_reader_are_in_the_reason(ledger, claim, number):
    assert number in ledger.reason.sel(claim=claim).item()


@pytest.mark.parametrize(
    ("claim", "value"),
    [
        ("C18", {"GB": 54}),
        ("C20", {"GB": 0.004, "order": 10, "MB": 4}),
        ("C34", {"chunks": 2, "GB": 0.1, "region_MB": 256}),
        ("C35", {"mem": "32G", "cma": "24G"}),
        ("C70", {"B": 23_600_000_000}),
    ],
)
def test_the_right_number_would_be_plausible(ledger, claim, value):
    assert ledger.verdict.sel(claim=claim).item() != "plausible"
    assert checks()[claim](Claim(claim, "", value)).verdict == "plausible"


@pytest.mark.parametrize(
    ("claim", "value", "verdict"),
    [
        ("C19", {"order": 12, "MB": 32}, "wrong_physics"),
        ("C21", {"kB": 1843200, "GB": 2.4}, "inconsistent"),
        ("C63", {"ok": ["create", "load", "defrag"]}, "wrong_physics"),
    ],
)
def test_a_wrong_number_would_be_refused(ledger, claim, value, verdict):
    assert ledger.verdict.sel(claim=claim).item() == "plausible"
    assert checks()[claim](Claim(claim, "", value)).verdict == verdict
