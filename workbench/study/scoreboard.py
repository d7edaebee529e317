"""Measured rows, and beside each what `predict` would say of it, priced in one call (M02)."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import xarray as xr

from workbench import results
from workbench.errors import SpecError, WorkbenchError
from workbench.hardware import capacity, coefficients, ledger, roofline, traffic
from workbench.specs.device import DEVICE_CLASSES
from workbench.specs.device import resolve as resolve_device
from workbench.study import trust
from workbench.study.calibrate import pools_of
from workbench.study.predict import run
from workbench.study.rows import GENERATED, Request, best_threads, is_scored, request, stored

REQUIRED = ("device", "engine", "model")
SPEEDS = ("decode_tok_s", "prefill_tok_s")
_PREDICTED = ("predicted", "lower", "upper", "naive_tok_s", "prefill_predicted", "prefill_lower",
              "prefill_upper")  # fmt: skip
_BLANK = ("", "nan", "none", "null", "na", "n/a", "-", "?")


class Asked(NamedTuple):
    """What a measured row asks, ready to be priced."""

    request: Request
    load: traffic.Load
    pools: dict[str, str]


class Entry(NamedTuple):
    """A measured row, and what it asks, or the reason why it cannot be understood."""

    row: dict[str, str]
    scored: bool
    asked: Asked | None = None
    reason: str = ""


def scoreboard(rows: Iterable[dict], table: dict | None = None) -> xr.Dataset:
    """Predict every comparable row (trust A or B, one device, batch 1) in one compiled call.

    Args:
        rows, table: as for `score`.

    Returns:
        A Dataset over `row`: `measured`, `predicted`, `lower`, `upper`, `naive_tok_s` and the
        `prefill_` ones in token/s, NaN where there is none; `is_moe`, `trust`; `scored` tells the
        scored set from other engines and NPUs; `reason` why a row could not be predicted. Device,
        class, model, format, engine and context are coordinates.

    Raises:
        SpecError: a required column is missing.
    """
    listed = entries(rows)
    priced = _price([e.asked for e in listed if e.asked], table or coefficients.table())
    variables = _spread(priced, np.array([e.asked is not None for e in listed]))
    for stage, prefix in (("decode", ""), ("prefill", "prefill_")):
        variables[f"{prefix}measured"] = np.array([_measured(e, f"{stage}_tok_s") for e in listed])
    reasons = np.array([e.reason for e in listed], dtype=object)
    good = (variables["predicted"] > 0) & (variables["prefill_predicted"] > 0)
    reasons[~good & (reasons == "")] = "the prediction is no positive number"
    for name in _PREDICTED:
        variables[name] = np.where(reasons == "", variables[name], np.nan)
    variables |= {
        "reason": reasons.astype(str),
        "scored": np.array([e.scored for e in listed]),
        "is_moe": np.array([bool(e.asked and e.asked.request.model.experts > 0) for e in listed]),
    }
    return results.dataset(
        {name: ("row", values) for name, values in variables.items()},
        {name: ("row", values) for name, values in _labels(listed).items()},
        source="the rows given",
        mechanism="M02",
    )


def entries(rows: Iterable[dict]) -> list[Entry]:
    """Return the comparable rows: trust A or B, one device, batch 1, CPUs at their best threads.

    Rows that cannot be understood stay, with the reason.

    Raises:
        SpecError: a required column is missing.
    """
    cleaned = [_clean(row) for row in rows]
    _require(cleaned)
    listed = [_entry(row) for row in cleaned if _comparable(row)]
    kept = {id(row) for row in best_threads([e.row for e in listed if e.asked])}
    return [e for e in listed if e.asked is None or id(e.row) in kept]


def _clean(row: dict) -> dict[str, str]:
    texts = {str(k).strip(): str(v).strip() for k, v in row.items() if k and v is not None}
    cleaned = {k: "" if text.lower() in _BLANK else text for k, text in texts.items()}
    return cleaned | {"device_class": _device_class(cleaned)}


def _device_class(row: dict[str, str]) -> str:
    """Return the class as given, else that of the machine, else nothing."""
    given = row.get("device_class", "").lower()
    if given in DEVICE_CLASSES:
        return given
    try:
        return resolve_device(row.get("device", "")).device_class
    except WorkbenchError:
        return ""


def _require(rows: list[dict[str, str]]) -> None:
    columns = set().union(*rows)
    missing = [name for name in REQUIRED if name not in columns]
    if not columns.intersection(SPEEDS):
        missing.append(" or ".join(SPEEDS))
    if missing:
        raise SpecError(
            f"rows: no column {', '.join(missing)}; the columns are those of "
            "datasets/measurements.csv"
        )


def _comparable(row: dict[str, str]) -> bool:
    # Whatever its engine and class: the rest of the rule for the scored set.
    return is_scored(row | {"engine": "llama.cpp", "device_class": "cpu"})


def _entry(row: dict[str, str]) -> Entry:
    scored = False
    try:
        # A machine of no known class is ours to understand, not a reason to leave the row out.
        scored = is_scored(row | {"device_class": row["device_class"] or "cpu"})
        wanted = request(row)
        asked = Asked(wanted, traffic.load_of(wanted.model, stored(wanted)), pools_of(wanted))
        return Entry(row, scored, asked)
    except WorkbenchError as err:
        return Entry(row, scored, reason=str(err))
    except Exception as err:  # one odd row must not cost the verdict on all the others
        return Entry(row, scored, reason=f"{type(err).__name__}: {err}")


def _measured(entry: Entry, column: str) -> float:
    value = getattr(entry.asked.request, column) if entry.asked else np.nan
    return value if 0 < value < np.inf else np.nan


def _price(listed: list[Asked], table: dict) -> dict[str, np.ndarray]:
    """Return board variables (row,) of the rows that were understood."""
    if not listed:
        return {}
    requests = [asked.request for asked in listed]
    keys = {k: np.array([a.pools[k] for a in listed], dtype=object) for k in listed[0].pools}
    fields = ("context", "kv_bits", "prompt", "depth", "ubatch")
    work = {name: np.array([getattr(r, name) for r in requests]) for name in fields}
    inputs = (
        ledger.stack([asked.load for asked in listed]),
        ledger.stack([roofline.machine_of(r.device) for r in requests]),
        ledger.stack([capacity.budget_of(r.device) for r in requests]),
        coefficients.resolve(keys, "decode", table),
        coefficients.resolve(keys, "prefill", table),
        work | {"batch": 1.0, "generate": GENERATED},
    )
    priced = run(inputs)
    priced |= trust.intervals(priced, keys, inputs[-1], table)
    named = {"predicted": "decode_tok_s", "prefill_predicted": "prefill_tok_s"}
    return {name: priced[named.get(name, name)] for name in (*_PREDICTED, "trust")}


def _spread(priced: dict[str, np.ndarray], understood: np.ndarray) -> dict[str, np.ndarray]:
    """Put values of the rows understood where they belong among all rows."""
    found = {name: np.full(len(understood), np.nan) for name in _PREDICTED}
    found["trust"] = np.full(len(understood), "", dtype=object)
    for name, values in priced.items():
        found[name][understood] = values
    return found | {"trust": found["trust"].astype(str)}


def _labels(listed: list[Entry]) -> dict[str, np.ndarray]:
    names = ("row", "device", "device_class", "model", "quant", "engine", "context")
    columns = dict(zip(names, zip(*map(_label, listed), strict=True), strict=True))
    return {name: np.array(columns.get(name, ())) for name in names}


def _label(entry: Entry) -> tuple:
    row, asked = entry.row, entry.asked and entry.asked.request
    name, engine = row.get("id", ""), row.get("engine", "")
    if asked is None:
        texts = (row.get(k, "") for k in ("device", "device_class", "model", "quant"))
        return name, *texts, engine, np.nan
    device = asked.device
    return (
        *(name, device.name, device.device_class, asked.model.name, asked.quant, engine),
        asked.context,
    )
