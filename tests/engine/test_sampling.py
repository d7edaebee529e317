"""Which tokens may be drawn, how often they are, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.engine.sampling import Sampling, candidates, choose
from workbench.errors import SpecError

LOGITS = np.log(np.array([0.1, 0.4, 0.2, 0.3], np.float32))


def test_greedy_takes_the_likeliest():
    assert choose(LOGITS, Sampling(), np.random.default_rng(0)) == 1


@pytest.mark.parametrize(
    ("sampling", "ids"),
    [
        (Sampling(1.0), [1, 3, 2, 0]),
        (Sampling(1.0, top_k=2), [1, 3]),
        (Sampling(1.0, top_k=99), [1, 3, 2, 0]),
        (Sampling(1.0, top_p=0.65), [1, 3]),
        (Sampling(1.0, top_p=0.75), [1, 3, 2]),
        (Sampling(1.0, top_p=1e-9), [1]),
    ],
)
def test_candidates_are_the_fewest_that_suffice(sampling, ids):
    """By hand: shares 0.4, 0.3, 0.2, 0.1 reach 0.65 with two tokens and 0.75 with three."""
    assert candidates(LOGITS, sampling)[0].tolist() == ids


@given(st.floats(0.05, 5), st.integers(1, 20), st.floats(0.01, 1), st.integers(0, 2**31))
def test_shares_sum_to_one_and_fall(temperature, top_k, top_p, seed):
    logits = np.random.default_rng(seed).standard_normal(16).astype(np.float32)
    ids, shares = candidates(logits, Sampling(temperature, top_k, top_p))
    assert 1 <= len(ids) <= min(top_k, 16) and len(set(ids.tolist())) == len(ids)
    assert shares.sum() == pytest.approx(1) and (np.diff(shares) <= 1e-12).all()


def test_a_temperature_near_zero_takes_the_likeliest():
    assert candidates(LOGITS, Sampling(5e-324))[1].tolist() == [1]


def test_draws_follow_softmax():
    rng, sampling = np.random.default_rng(0), Sampling(0.5)
    drawn = np.bincount([choose(LOGITS, sampling, rng) for _ in range(4000)], minlength=4) / 4000
    squares = np.array([0.01, 0.16, 0.04, 0.09])  # at temperature 1/2 probabilities are squared
    np.testing.assert_allclose(drawn, squares / squares.sum(), atol=0.03)


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"temperature": "hot"},
        {"top_k": 0},
        {"top_k": True},
        {"top_k": 1.5},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"top_p": float("nan")},
        {"seed": -1},
        {"seed": 2**64},
    ],
)
def test_wrong_numbers_are_named(wrong):
    (name,) = wrong
    with pytest.raises(SpecError, match=name):
        Sampling(**wrong)
