"""What a check is: a function from a claim to a verdict and one sentence with the numbers."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

#: Verdict -> when a check gives it.
VERDICTS = {
    "plausible": "what we compute or look up agrees within the stated tolerance",
    "wrong_fact": "a specification, a catalogue or a measurement says otherwise",
    "wrong_physics": "bytes, FLOPs and bandwidth do not allow it",
    "inconsistent": "it contradicts its own arithmetic or another number of the same article",
    "unverifiable": "what we compute neither excludes nor supports it",
}


class Claim(NamedTuple):
    """A claim of an article, as datasets/claims.csv states it."""

    id: str
    text: str
    value: dict[str, Any]


class Finding(NamedTuple):
    """A verdict of VERDICTS, and why, in one sentence with the numbers."""

    verdict: str
    reason: str


Check = Callable[[Claim], Finding]
CHECKS: dict[str, Check] = {}


def check(*ids: str) -> Callable[[Check], Check]:
    """Register the decorated function as the check of the claims `ids`."""

    def register(function: Check) -> Check:
        if taken := [claim for claim in ids if claim in CHECKS]:
            raise KeyError(f"{', '.join(taken)} has a check already: {CHECKS[taken[0]].__name__}")
        CHECKS.update(dict.fromkeys(ids, function))
        return function

    return register


def decide(holds: Any, otherwise: str, reason: str) -> Finding:
    """Return plausible where `holds`, else the verdict `otherwise`."""
    return Finding("plausible" if bool(holds) else otherwise, reason)


def compare(
    what: str, claimed: float, computed: float, unit: str, *, within: float, otherwise: str
) -> Finding:
    """Compare a number with ours; `within` is the tolerance as a fraction of ours."""
    off = float(claimed) / float(computed) - 1.0
    reason = (
        f"{what}: {number(computed)}{unit}, claimed {number(claimed)}{unit} "
        f"({signed(off)}; tolerance {within:.0%})."
    )
    return decide(abs(off) <= within, otherwise, reason)


def number(value: float) -> str:
    """Return a number to read: three significant digits (46.7, 0.115), all those of a whole one."""
    value = float(value)
    return f"{value:,.0f}" if value.is_integer() or abs(value) >= 100 else f"{value:.3g}"


def signed(off: float) -> str:
    """Return how far a claim is off: a percentage, or a factor where that reads better."""
    if off > 1.0:
        return f"{number(1.0 + off)} times too much"
    return f"{off:+.0%}" if off > -0.9 else f"{number(1.0 / (1.0 + off))} times too little"


def listed(values: Iterable[float], unit: str) -> str:
    """Return numbers as text: '16, 24 and 32 GB'."""
    *head, last = [number(value) for value in values]
    return f"{', '.join(head)} and {last}{unit}" if head else f"{last}{unit}"
