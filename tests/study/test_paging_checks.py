"""The claims about pages, faults and NUMA balancing: verdicts and their numbers."""

import numpy as np
import pytest

from workbench.study.claims import claims

OURS = [f"A{n}" for n in (*range(33, 43), 79, 80, 81, 96, 97)] + [
    "B22",
    "B46",
    "B67",
    "C24",
    "C74",
    "C75",
]


@pytest.fixture(scope="module")
def ledger():
    return claims("NB04").sel(claim=OURS)


def test_every_claim_is_computed_and_agrees_with_the_reader(ledger):
    assert bool(ledger.computed.all())
    differing = ledger.claim.values[(ledger.verdict != ledger.preliminary).values]
    assert differing.tolist() == []


def test_reasons_are_short_sentences_with_numbers(ledger):
    for reason in ledger.reason.values:
        assert reason.endswith(".") and len(reason) < 300 and "nan" not in reason
    numbers = [any(c.isdigit() for c in reason) for reason in ledger.reason.values]
    assert np.sum(numbers) >= len(OURS) - 2


def test_ninety_two_seconds_are_a_round_trip_a_page(ledger):
    """M15: 92.4 s, less the 4.7 s that reading takes anyway, are 94.5 us per 4-KiB page."""
    assert "94.5 us" in ledger.reason.sel(claim="A37").item()
