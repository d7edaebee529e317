"""How long a probe may take, who is told how far it is, and whether it was asked to stop."""

import time
from collections.abc import Callable

import numpy as np

from workbench.errors import SpecError
from workbench.units import parse

#: report(what, done, of) shows progress; the work stops, keeping what it has, if it returns False.
Report = Callable[[str, int, int], object]
_LONGEST = 86400.0


def silent(what: str, done: int, of: int) -> bool:
    """Report to nobody."""
    return True


class Pace:
    """Asked after every step whether there is time, and will, for another."""

    def __init__(self, what: str, steps: int, seconds: float | str, report: Report = silent):
        """Start the clock.

        Args:
            what: the probe, as the reader is told.
            steps: how many there are at most.
            seconds: budget, a number or text such as "2 min".
            report: is told of every step.

        Raises:
            SpecError: no budget, or more than a day.
        """
        self.seconds = parse(seconds, "second", "seconds")
        if self.seconds > _LONGEST:
            raise SpecError(f"seconds: {self.seconds:g} is more than a day; give at most 86400")
        self._what, self._steps, self._report = what, steps, report
        self._done, self._start, self.ended = 0, time.perf_counter(), ""

    @property
    def left(self) -> float:
        """Seconds of the budget that are left, never below 0."""
        return max(0.0, self.seconds - (time.perf_counter() - self._start))

    def step(self) -> bool:
        """Count a step as done; say whether to go on. `ended` holds the reason if not."""
        self._done = min(self._done + 1, self._steps)
        going = self._report(self._what, self._done, self._steps)
        if going is False:
            self.ended = "stopped"
        elif not self.left and self._done < self._steps:
            self.ended = f"{self.seconds:g} s ran out"
        return not self.ended

    def unmeasured(self, *tables: np.ndarray) -> str:
        """Return what the end of the probe cost, as a text for `unseen`."""
        if not self.ended:
            return ""
        missing = any(np.isnan(table).any() for table in tables)
        return f"{self.ended}: " + (
            "what was not measured is NaN" if missing else "fewer repeats than asked"
        )


def unseen(*reasons: str) -> str:
    """Return what a probe could not see as one text; empty reasons are left out."""
    return "; ".join(dict.fromkeys(reason for reason in reasons if reason))
