"""A probe ends when its time is out or somebody says so, and refuses budgets that mean nothing."""

import numpy as np
import pytest

from workbench.errors import SpecError
from workbench.probe.pace import Pace, unseen


def test_ends_when_told_to():
    told = []
    pace = Pace("test", 3, 60, lambda what, done, of: told.append((what, done, of)) or done < 2)
    assert pace.step() and not pace.step()
    assert told == [("test", 1, 3), ("test", 2, 3)]
    assert pace.ended == "stopped" and "NaN" in pace.unmeasured(np.array([np.nan]))


def test_ends_when_time_is_out_but_not_after_the_last_step():
    pace = Pace("test", 2, 1e-9)
    assert not pace.step() and "ran out" in pace.ended
    assert "fewer repeats" in pace.unmeasured(np.ones(2))
    assert Pace("test", 1, 1e-9).step()


def test_a_report_that_returns_nothing_does_not_stop():
    assert Pace("test", 2, 60, lambda what, done, of: None).step()


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), 2.0**70, "soon", "10 GB"])
def test_budgets_without_meaning(seconds):
    with pytest.raises(SpecError, match="seconds"):
        Pace("test", 1, seconds)


def test_reasons_are_said_once():
    assert unseen("a", "", "b", "a") == "a; b"
