"""How far predictions are from measurements, class by class, and which rows are worst (M02)."""

import numpy as np
import xarray as xr

from workbench import results
from workbench.errors import SpecError
from workbench.specs.device import DEVICE_CLASSES

#: What is compared -> (measured, predicted, lower, upper) of a scoreboard.
STAGES = {
    "decode": ("measured", "predicted", "lower", "upper"),
    "prefill": ("prefill_measured", "prefill_predicted", "prefill_lower", "prefill_upper"),
    "bandwidth ÷ bytes": ("measured", "naive_tok_s", "lower", "upper"),
}
_ATTRS = {
    "error": {"units": "1", "long_name": "median error of the prediction"},
    "naive_error": {"units": "1", "long_name": "median error of bandwidth ÷ bytes"},
    "coverage": {"units": "1", "long_name": "share of rows inside the 80 % interval"},
    "rows": {"units": "1", "long_name": "rows"},
}
_TEXT = {"units": "1", "long_name": "text"}


def pairs(board: xr.Dataset, stage: str = "decode") -> xr.Dataset:
    """Return the rows of a scoreboard that have both a measurement and a prediction.

    Args:
        board: what `study.scoreboard.scoreboard` returned.
        stage: one of `STAGES`.

    Returns:
        Over `row`: `measured`, `predicted`, `lower`, `upper`, `naive_tok_s` (NaN for the prefill)
        and the labels of the board.
    """
    if stage not in STAGES:
        raise SpecError(f"stage: {stage!r} is wrong; give one of {', '.join(STAGES)}")
    values = [board[name].values for name in STAGES[stage]]
    known = np.isfinite(values[0]) & np.isfinite(values[1])
    names = ("measured", "predicted", "lower", "upper")
    found = {name: ("row", v[known]) for name, v in zip(names, values, strict=True)}
    naive = board.naive_tok_s.values if stage != "prefill" else np.full(known.size, np.nan)
    labels = {name: c.isel(row=known) for name, c in board.coords.items()}
    return results.dataset(found | {"naive_tok_s": ("row", naive[known])}, labels)


def by_class(found: xr.Dataset) -> xr.Dataset:
    """Sum up `pairs` over `device_class`: median errors as fractions, coverage, and rows."""
    classes = found.device_class.values
    kinds = [kind for kind in (*DEVICE_CLASSES, "") if (classes == kind).any()]
    columns = [_figures(found, classes == kind) for kind in kinds]
    table = zip(*columns, strict=True) if columns else ((),) * len(_ATTRS)
    return results.dataset(
        {
            name: ("device_class", np.array(values, dtype=float), _ATTRS[name])
            for name, values in zip(_ATTRS, table, strict=True)
        },
        {"device_class": [kind or "unknown" for kind in kinds]},
    )


def whole(found: xr.Dataset) -> dict[str, float]:
    """Sum up `pairs` as a whole, by the names of `by_class`; NaN where there are no rows."""
    everything = np.ones(found.sizes["row"], dtype=bool)
    return dict(zip(_ATTRS, _figures(found, everything), strict=True))


def worst(found: xr.Dataset, count: int = 15) -> xr.Dataset:
    """Return the rows of `pairs` whose prediction is off by the largest factor, worst first."""
    off = np.abs(np.log(found.predicted.values / found.measured.values))
    return found.isel(row=np.argsort(-off, kind="stable")[:count])


def _figures(found: xr.Dataset, chosen: np.ndarray) -> tuple[float, ...]:
    measured, predicted, low, high, naive = (
        found[name].values[chosen]
        for name in ("measured", "predicted", "lower", "upper", "naive_tok_s")
    )
    if not len(measured):
        return np.nan, np.nan, np.nan, 0.0
    inside = (low <= measured) & (measured <= high)
    errors = [np.abs(x / measured - 1) for x in (predicted, naive)]
    medians = [float(np.median(e)) if np.isfinite(e).all() else np.nan for e in errors]
    return *medians, float(inside.mean()), float(len(measured))
