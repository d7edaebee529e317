"""How wrong predictions are: measured rows against what `predict` would say of them (M02)."""

import csv
import io
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import xarray as xr

from workbench.errors import FileError
from workbench.study.rows import DEEP
from workbench.study.scoreboard import scoreboard


def score(rows: Iterable[dict], table: dict | None = None) -> dict:
    """Say how far predictions are from measured rows.

    Args:
        rows: dicts with columns of datasets/measurements.csv; `device`, `engine`, `model` and one
            measured speed are required, the others refine the question.
        table: coefficients, as `calibrate` returns them; by default those in datasets.

    Returns:
        What `summary` says of the `scoreboard` of these rows.

    Raises:
        SpecError: a required column is missing.
    """
    return summary(scoreboard(rows, table))


def summary(board: xr.Dataset) -> dict:
    """Sum up a scoreboard, ready for JSON.

    Args:
        board: what `scoreboard` returned.

    Returns:
        Counts of `rows` and of those `predicted`; errors |predicted/measured - 1| as fractions for
        `decode` and `prefill`, for `moe` rows and rows at `depth_4096` alone, `by_class`, and for
        `other_engines`, which are not in the scored set; the share of measured values inside the
        80 % interval as `coverage_80`; decode errors of the `naive` line, bandwidth over bytes
        read; `failures` lists what could not be predicted and why.
    """
    scored, others = (board.isel(row=board.scored.values == wanted) for wanted in (True, False))
    groups = {"moe": scored.is_moe.values, "depth_4096": scored.context.values >= DEEP}
    classes = np.unique(scored.device_class.values).tolist()
    by_class = {label: scored.isel(row=scored.device_class.values == label) for label in classes}
    parts = {name: scored.isel(row=chosen) for name, chosen in groups.items()}
    naive = {name: _errors(part.naive_tok_s, part.measured) for name, part in parts.items()}
    return {
        "rows": scored.sizes["row"],
        "predicted": int((scored.reason.values == "").sum()),
        "decode": _errors(scored.predicted, scored.measured),
        "prefill": _errors(scored.prefill_predicted, scored.prefill_measured),
        **{name: _figures(part) for name, part in parts.items()},
        "by_class": {label: _figures(part) for label, part in by_class.items()},
        "other_engines": {"rows": others.sizes["row"], **_figures(others)},
        "coverage_80": _coverage(scored),
        "naive": {
            "decode": _errors(scored.naive_tok_s, scored.measured),
            **naive,
            "by_class": {k: _errors(p.naive_tok_s, p.measured) for k, p in by_class.items()},
        },
        "failures": _failures(board),
    }


def table(board: xr.Dataset) -> str:
    """Return a scoreboard as CSV: a line per row, decode first, then the same of the prefill."""
    columns = {"id": board.row.values}
    for prefix in ("", "prefill_"):
        names = [prefix + name for name in ("predicted", "lower", "upper", "measured")]
        columns |= {name: board[name].values for name in names}
        columns[f"{prefix}ape"] = np.abs(columns[names[0]] / columns[names[3]] - 1)
    columns |= {name: board[name].values for name in ("trust", "scored", "reason")}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(value) for value in row] for row in zip(*columns.values(), strict=True))
    return text.getvalue()


def _cell(value) -> str:
    if isinstance(value, np.bool_):
        return str(int(value))
    return ("" if np.isnan(value) else f"{value:.6g}") if isinstance(value, float) else str(value)


def read(path: str | Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file.

    Raises:
        FileError: it is missing, a directory, or no text in UTF-8.
    """
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            return list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as err:
        raise FileError(f"{path}: not a readable CSV file ({err})") from None


def _figures(board: xr.Dataset) -> dict:
    return {
        **_errors(board.predicted, board.measured),
        "prefill": _errors(board.prefill_predicted, board.prefill_measured),
        "coverage_80": _coverage(board),
    }


def _errors(predicted: xr.DataArray, measured: xr.DataArray) -> dict:
    ape = np.abs(predicted.values / measured.values - 1)
    ape = ape[np.isfinite(ape)]
    if not len(ape):
        return {"n": 0, "median_ape": None, "p75_ape": None, "mape": None}
    median, upper = np.quantile(ape, [0.5, 0.75])
    return {"n": len(ape), "median_ape": float(median), "p75_ape": float(upper),
            "mape": float(ape.mean())}  # fmt: skip


def _coverage(board: xr.Dataset) -> float | None:
    inside: list[bool] = []
    for prefix in ("", "prefill_"):
        low, value, high = (board[prefix + k].values for k in ("lower", "measured", "upper"))
        known = np.isfinite(low) & np.isfinite(value)
        inside += ((low <= value) & (value <= high))[known].tolist()
    return float(np.mean(inside)) if inside else None


def _failures(board: xr.Dataset) -> list[dict]:
    lost = board.isel(row=board.reason.values != "")
    columns = zip(lost.row.values, lost.scored.values, lost.reason.values, strict=True)
    return [{"id": str(i), "scored": bool(s), "reason": str(why)} for i, s, why in columns]
