"""The shape of the calibration: which pools may shift which coefficient, and by how much before a row is seen.

A spread of 0.15 says: pools differ by about 15 %. Small pools are thereby pulled towards the common value
(partial pooling); a pool without rows adds nothing. The spreads below are first guesses that weigh as
much as `fit.GUESS` pools; the rows decide the rest (`fit.learn_spreads`).
"""

import dataclasses
import functools
import math

import numpy as np

from workbench import data
from workbench.hardware.roofline import PREFILL_TERMS, TERMS


@dataclasses.dataclass(frozen=True)
class Term:
    """A coefficient: its value and log spread before any data, and the pools that shift it with theirs."""

    start: float
    spread: float
    effects: dict[str, float]


#: Effects of which a single pool may be far out: their priors have long tails.
ODD = ("device", "source")

#: One author's rows share a machine's temperature, a driver and a method. Fitted, then forgotten: nobody
#: asks for a prediction of what a certain author would measure.
SOURCE = {"source": 0.1}

DECODE = {
    "weights": Term(
        1.2,
        0.2,
        {
            "backend": 0.1,
            "generation": 0.1,
            "device_class": 0.1,
            "family": 0.06,
            "backend.family": 0.06,
            "backend.era": 0.06,
            "vendor": 0.3,
        },
    ),
    "spill": Term(1.0, 0.3, {}),
    "kv": Term(
        1.3,
        0.3,
        {
            "backend": 0.3,
            "generation": 0.15,
            "backend.era": 0.2,
            "backend.flash": 0.4,
            "arch": 0.15,
            "library": 0.2,
            "vendor": 0.4,
        },
    ),
    "attention": Term(
        1.0,
        1.0,
        {
            "backend": 0.5,
            "backend.era": 0.3,
            "attention": 0.4,
            # Without flash attention some kernels cost tens of times as much.
            "backend.flash": 1.0,
            "library": 0.2,
        },
    ),
    "compute": Term(
        1.0,
        1.0,
        {
            "backend": 0.5,
            "device_class": 0.5,
            "generation": 0.4,
            "family": 0.5,
            "backend.family": 0.4,
            "host": 0.3,
            "vendor": 0.6,
        },
    ),
    "dispatch": Term(
        20.0,
        1.0,
        {
            "backend": 0.6,
            "generation": 0.5,
            "backend.era": 0.3,
            "arch": 0.3,
            "attention": 0.3,
            "host": 0.7,
            "vendor": 0.6,
        },
    ),
    "routing": Term(20.0, 1.0, {"backend": 0.4, "generation": 0.4, "backend.era": 0.3}),
    "fixed": Term(0.3, 1.0, {"backend": 0.5, "generation": 0.4, "host": 0.9}),
    "machine": Term(1.0, 0.01, {"device": 0.15, "arch": 0.05, "backend.arch": 0.05}),
}

#: What shifts the share of peak FLOP/s that large matrix products reach.
_PRODUCTS = {
    "backend": 0.4,
    "power": 0.3,
    "device_class": 0.3,
    "generation": 0.3,
    "family": 0.2,
    "backend.family": 0.2,
    "backend.era": 0.3,
    "library": 0.3,
}

#: Terms that start from a share of a generation's peak FLOP/s that is known before any row, and its column: what
#: its matrix products were measured to reach; for one token, which engines multiply without matrix units, the rate
#: of 8-bit dot products.
_SHARES = {
    "attention": "matrix_share",
    "compute": "dot_share",
    "dense": "matrix_share",
    "experts": "matrix_share",
}

PREFILL = {
    "weights": Term(1.2, 0.2, {"backend": 0.2}),
    "spill": Term(1.0, 0.3, {}),
    "kv": Term(1.3, 0.3, {}),
    "attention": Term(
        3.0,
        0.5,
        {
            "backend": 0.5,
            "generation": 0.3,
            "backend.era": 0.5,
            "backend.flash": 0.5,
            "library": 0.3,
        },
    ),
    "dense": Term(2.0, 0.5, _PRODUCTS | {"vendor": 0.5, "backend.flash": 0.2}),
    "experts": Term(3.0, 0.5, _PRODUCTS),
    "dispatch": Term(30.0, 1.0, {"backend": 0.5, "generation": 0.3}),
    "fixed": Term(1.0, 1.0, {"backend": 0.5, "host": 0.9}),
    "machine": Term(1.0, 0.01, {"device": 0.3, "arch": 0.1, "backend.arch": 0.1}),
}

STAGES = {
    "decode": (DECODE, (*TERMS, "machine")),
    "prefill": (PREFILL, (*PREFILL_TERMS, "machine")),
}


class Layout:
    """Where in one parameter vector each effect of each pool sits, for a set of rows.

    `design` (term x row, parameter) adds the effects of a row up to its log coefficients, term after term.
    `slots` maps (term, effect) to {pool: place}. `start` and `spread` (parameter,) are the priors; `odd` marks
    effects of single devices and authors, which may be far out without moving their pools.
    """

    def __init__(self, stage: str, keys: dict[str, np.ndarray]):
        """Lay out the parameters of a stage for rows whose pools are `keys`: name -> labels (row,)."""
        from scipy import sparse  # slow to import, and only fitting needs it

        self.terms, self.order = STAGES[stage]
        self.slots: dict[tuple[str, str], dict[str, int]] = {}
        start: list[float] = []
        spread: list[float] = []
        odd: list[bool] = []
        places: list[np.ndarray] = []
        blocks: list[np.ndarray] = []
        for block, name in enumerate(self.order):
            term = self.terms[name]
            pools = {"": ([""] * len(keys["device"]), math.log(term.start), term.spread)}
            effects = term.effects | (SOURCE if name == "machine" else {})
            pools |= {effect: (joined(effect, keys), 0.0, s) for effect, s in effects.items()}
            for effect, (labels, value, width) in pools.items():
                expected = _expected(name, effect)
                names = dict.fromkeys((*labels, *expected))
                found = {label: len(start) + i for i, label in enumerate(names)}
                self.slots[name, effect] = found
                start += [expected.get(label, value) for label in found]
                spread += [width] * len(found)
                odd += [effect in ODD] * len(found)
                places.append(np.array([found[label] for label in labels]))
                blocks.append(block * len(labels) + np.arange(len(labels)))
        self.start, self.spread, self.odd = np.array(start), np.array(spread), np.array(odd)
        column, row = np.concatenate(places), np.concatenate(blocks)
        shape = (len(self.order) * len(keys["device"]), len(start))
        self.design = sparse.csr_matrix((np.ones(len(row)), (row, column)), shape=shape)

    def groups(self) -> list[np.ndarray]:
        """Return the places of each effect: the sets of parameters that share a spread."""
        return [np.array(list(p.values())) for (_, effect), p in self.slots.items() if effect]

    def seen(self, rows: np.ndarray) -> np.ndarray:
        """Return which parameters (parameter,) the rows marked True inform."""
        return np.asarray(self.design[np.tile(rows, len(self.order))].sum(axis=0)).ravel() > 0

    def table(self, theta: np.ndarray) -> dict:
        """Return the fitted effects as the nested table that `coefficients.resolve` reads."""
        kept: dict[str, dict] = {}
        for (term, effect), places in self.slots.items():
            values = {label: round(float(theta[place]), 5) for label, place in places.items()}
            if effect == "":
                kept[term] = {"base": values[""], "effects": {}}
            elif effect in self.terms[term].effects:
                moved = {label: value for label, value in values.items() if abs(value) >= 5e-4}
                kept[term]["effects"][effect] = moved
        return kept

    def spreads(self, spread: np.ndarray) -> dict[str, float]:
        """Return the spread of each effect, "term:effect" -> standard deviation of the log coefficient."""
        return {
            f"{term}:{effect}": round(float(spread[next(iter(places.values()))]), 4)
            for (term, effect), places in self.slots.items()
            if effect
        }


@functools.cache
def _expected(term: str, effect: str) -> dict[str, float]:
    """Return the pools of an effect of which something is known before any row: generation -> log coefficient."""
    if term not in _SHARES or effect != "generation":
        return {}
    column, rows = _SHARES[term], data.rows("device_generations.csv")
    return {r["generation"]: -math.log(float(r[column])) for r in rows if r[column]}


def joined(effect: str, keys: dict[str, np.ndarray]) -> list[str]:
    """Return the pool of each row under an effect: "backend.family" -> "cuda|kquant"."""
    return ["|".join(parts) for parts in zip(*(keys[f] for f in effect.split(".")), strict=True)]
