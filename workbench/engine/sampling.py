"""The choice of the next token: the likeliest, or drawn from the likeliest few."""

from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np

from workbench.errors import SpecError


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn.

    Args:
        temperature: logits are divided by it; 0 takes the likeliest token.
        top_k: only so many of the likeliest tokens; None is all.
        top_p: only the fewest likeliest tokens whose probability reaches this share
            (arXiv 1904.09751).
        seed: of the draws; the same seed draws the same tokens.

    Raises:
        SpecError: a number outside its range.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (_number(self.temperature) and 0 <= self.temperature < float("inf")):
            raise SpecError(f"temperature {self.temperature}: 0 (the likeliest token) or above")
        if self.top_k is not None and not (_whole(self.top_k) and self.top_k >= 1):
            raise SpecError(
                f"top_k {self.top_k}: at least 1 token, a whole number, or None for all"
            )
        if not (_number(self.top_p) and 0 < self.top_p <= 1):
            raise SpecError(f"top_p {self.top_p}: a share above 0 and at most 1")
        if not (_whole(self.seed) and 0 <= self.seed < 2**64):
            raise SpecError(f"seed {str(self.seed)[:40]}: a whole number, from 0 to 2**64 - 1")


def _number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


GREEDY = Sampling()


def choose(logits: np.ndarray, sampling: Sampling, rng: np.random.Generator) -> int:
    """Return the next token's id.

    Args:
        logits: (vocab,) float32.
        sampling: the rule.
        rng: source of the draws.
    """
    if sampling.temperature == 0:
        return int(logits.argmax())
    ids, shares = candidates(logits, sampling)
    return int(rng.choice(ids, p=shares))


def candidates(logits: np.ndarray, sampling: Sampling) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids that may be drawn, likeliest first, and their probabilities (sum 1).

    Tokens are cut by rank first, then by mass, as llama.cpp and Hugging Face do.
    """
    k = min(sampling.top_k or logits.size, logits.size)
    ids = np.argpartition(-logits, k - 1)[:k] if k < logits.size else np.arange(logits.size)
    ids = ids[np.argsort(-logits[ids], kind="stable")]
    with np.errstate(over="ignore"):  # at a temperature near 0 the others lie infinitely far below
        scaled = (logits[ids].astype(np.float64) - logits[ids[0]]) / sampling.temperature
    shares = np.exp(scaled)
    shares /= shares.sum()
    kept = np.searchsorted(np.cumsum(shares), sampling.top_p) + 1
    shares = shares[:kept]
    return ids[:kept], shares / shares.sum()
