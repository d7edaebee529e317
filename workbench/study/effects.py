"""The shape of the calibration: which pools may shift which coefficient, and by how much before a row is seen.

A prior standard deviation of 0.15 says: generations of one backend differ by about 15 %. Small pools are thereby pulled
towards the wider one (partial pooling); a pool without rows adds nothing.
"""

import dataclasses
import math

import numpy as np

from workbench.hardware.roofline import PREFILL_TERMS, TERMS


@dataclasses.dataclass(frozen=True)
class Term:
    """One coefficient: its value before any data and the pools that shift it, pool -> prior standard deviation (log)."""

    start: float
    spread: float
    effects: dict[str, float]


DECODE = {
    "weights": Term(1.2, 0.2, {"backend": 0.15, "generation": 0.12, "device_class": 0.12, "backend.family": 0.08,
                               "family": 0.1, "backend.era": 0.08}),
    "spill": Term(1.0, 0.3, {}),
    "kv": Term(1.3, 0.3, {"backend": 0.3, "generation": 0.15, "backend.era": 0.3}),
    "attention": Term(1.0, 1.0, {"backend": 0.5, "backend.era": 0.5, "attention": 0.5}),
    "compute": Term(1.0, 1.0, {"backend": 0.5, "device_class": 0.5, "generation": 0.3, "family": 0.5, "backend.family": 0.4}),
    "dispatch": Term(20.0, 1.0, {"backend": 0.5, "generation": 0.3, "backend.era": 0.3, "arch": 0.3, "attention": 0.3}),
    "routing": Term(20.0, 1.0, {"backend": 0.5, "generation": 0.3, "backend.era": 0.3}),
    "fixed": Term(0.3, 1.0, {"backend": 0.5, "generation": 0.3}),
    "machine": Term(1.0, 0.01, {"device": 0.15}),
}  # fmt: skip

PREFILL = {
    "weights": Term(1.2, 0.2, {"backend": 0.2}),
    "spill": Term(1.0, 0.3, {}),
    "kv": Term(1.3, 0.3, {}),
    "attention": Term(3.0, 0.5, {"backend": 0.5, "generation": 0.3, "backend.era": 0.5}),
    "dense": Term(2.0, 0.5, {"backend": 0.5, "device_class": 0.3, "generation": 0.3, "family": 0.2,
                             "backend.family": 0.2, "backend.era": 0.3}),
    "experts": Term(3.0, 0.5, {"backend": 0.5, "device_class": 0.3, "generation": 0.3, "family": 0.2,
                               "backend.era": 0.3}),
    "dispatch": Term(30.0, 1.0, {"backend": 0.5}),
    "fixed": Term(1.0, 1.0, {"backend": 0.5}),
    "machine": Term(1.0, 0.01, {"device": 0.3}),
}  # fmt: skip

STAGES = {
    "decode": (DECODE, (*TERMS, "machine")),
    "prefill": (PREFILL, (*PREFILL_TERMS, "machine")),
}


class Layout:
    """Where in one parameter vector each effect of each pool sits, for a set of rows."""

    def __init__(
        self, stage: str, keys: dict[str, np.ndarray], extra: dict[str, float] | None = None
    ):
        """Lay out the parameters of a stage.

        Args:
            stage: "decode" or "prefill".
            keys: pool -> labels (row,).
            extra: further effects of the machine factor that are fitted but not kept, pool -> prior spread.
        """
        self.terms, order = STAGES[stage]
        self.start, self.spread, self.odd, self.index, self.slots = [], [], [], [], {}
        rows = len(next(iter(keys.values())))
        for name in order:
            term = self.terms[name]
            effects = term.effects | (extra or {} if name == "machine" else {})
            base = self._add(name, "", {"": 0}, math.log(term.start), term.spread)
            columns = [np.full(rows, base)]
            for effect, spread in effects.items():
                labels = [
                    "|".join(parts)
                    for parts in zip(*(keys[f] for f in effect.split(".")), strict=True)
                ]
                places = {label: i for i, label in enumerate(dict.fromkeys(labels))}
                first = self._add(name, effect, places, 0.0, spread)
                columns.append(np.array([first + places[label] for label in labels]))
            self.index.append(np.stack(columns))  # (effect, row)
        self.start, self.spread, self.odd = (
            np.array(a) for a in (self.start, self.spread, self.odd)
        )

    def _add(
        self, term: str, effect: str, places: dict[str, int], start: float, spread: float
    ) -> int:
        first = len(self.start)
        self.slots[term, effect] = {label: first + i for label, i in places.items()}
        self.start += [start] * len(places)
        self.spread += [spread] * len(places)
        self.odd += [term == "machine" and bool(effect)] * len(places)
        return first

    def table(self, theta: np.ndarray) -> dict:
        """Return the fitted effects as the nested table that `coefficients.resolve` reads."""
        kept = {}
        for (term, effect), places in self.slots.items():
            if effect == "":
                kept[term] = {"base": round(float(theta[places[""]]), 5), "effects": {}}
            elif effect in self.terms[term].effects:
                values = {label: round(float(theta[i]), 5) for label, i in places.items()}
                kept[term]["effects"][effect] = {
                    label: v for label, v in values.items() if abs(v) >= 5e-4
                }
        return kept
