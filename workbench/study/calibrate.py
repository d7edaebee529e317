"""Fit every coefficient to measured rows, and report how wrong the fit is on devices and models it never saw (M02)."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from workbench.errors import WorkbenchError
from workbench.hardware import capacity, coefficients, ledger, roofline, traffic
from workbench.study import effects, fit
from workbench.study.rows import Request, request, stored
from workbench.study.trust import LEVELS

FOLDS = 12
SOURCE_SPREAD = 0.1  # one author's rows share a room temperature, a driver and a method: about 10 %
TAIL = 0.1  # the 80 % interval leaves this share of rows out at each end


class Stage(NamedTuple):
    """The rows of one stage as arrays: what they cost at coefficient 1, what was measured, their pools."""

    name: str
    costs: np.ndarray  # (term, row) s
    observed: np.ndarray  # (row,) log s
    keys: dict[str, np.ndarray]  # pool -> (row,)
    sources: np.ndarray  # (row,)
    models: np.ndarray  # (row,)


def stage_of(name: str, requests: list[Request]) -> Stage:
    """Return the rows that measured a stage, priced at coefficient 1."""
    rows = [r for r in requests if getattr(r, f"{name}_tok_s") > 0]
    costs = np.array(np.broadcast_arrays(*(np.asarray(cost) for cost in costs_of(name, rows))))
    tokens = np.array([1.0 if name == "decode" else r.prompt for r in rows])
    observed = np.log(tokens / np.array([getattr(r, f"{name}_tok_s") for r in rows]))
    pools = [pools_of(r) for r in rows]
    keys = {key: np.array([p[key] for p in pools], dtype=object) for key in pools[0]}
    return Stage(
        name,
        costs,
        observed,
        keys,
        np.array([r.source for r in rows], dtype=object),
        np.array([r.model.name for r in rows], dtype=object),
    )


def pools_of(row: Request) -> dict[str, str]:
    """Return the pools of a request."""
    return (
        coefficients.device_keys(row.device, row.engine, row.build)
        | coefficients.quant_keys(row.quant)
        | coefficients.model_keys(row.model)
        | {"flash": row.flash, "host": row.host}
    )


def costs_of(stage: str, rows: list[Request]) -> tuple:
    """Return what the rows cost at coefficient 1, one array (row,) or scalar a term, seconds."""
    load = ledger.stack([traffic.load_of(r.model, stored(r)) for r in rows])
    machine = ledger.stack([roofline.machine_of(r.device) for r in rows])
    budget = ledger.stack([capacity.budget_of(r.device) for r in rows])
    context, prompt, depth, kv_bits = (
        np.array([getattr(r, f) for r in rows]) for f in ("context", "prompt", "depth", "kv_bits")
    )
    needed = capacity.memory(load, context, 1.0, kv_bits, ledger.UBATCH, budget.runtime)
    share = capacity.resident_share(load, needed, budget.usable)
    if stage == "decode":
        return roofline.decode_costs(load, machine, context, 1.0, kv_bits, share)
    return roofline.prefill_costs(load, machine, prompt, depth, 1.0, kv_bits, share, ledger.UBATCH)


def calibrate(
    rows: Iterable[dict], report: Callable[[str, int, int], bool] = lambda *_: True
) -> dict:
    """Fit the coefficients and measure them on held-out devices and models.

    Args:
        rows: dicts with the columns of measurements.csv; rows that cannot be understood are counted, not fitted.
        report: called with (what, done, of) after each fit; returning False stops and keeps what there is.

    Returns:
        The table for `predict(table=...)`: effects by stage and term, `known` pools, `residuals` of held-out rows by
        trust level and device class, and `held_out` errors.

    Equation: see `study.fit`. Source: Gelman & Hill, partial pooling; the terms are M01-M04, M46, M55.
    """
    requests = _understood(rows)
    table: dict = {"known": {}, "residuals": {}, "held_out": {}}
    for name in ("decode", "prefill"):
        stage = stage_of(name, requests)
        layout = effects.Layout(
            name, stage.keys | {"source": stage.sources}, {"source": SOURCE_SPREAD}
        )
        weight = fit.crowd_weight(list(stage.keys["device"]))
        residual = {}
        for left_out, groups in (("device", stage.keys["device"]), ("model", stage.models)):
            predicted, theta = fit.held_out(
                layout,
                stage.costs,
                stage.observed,
                weight,
                list(groups),
                FOLDS,
                lambda done, what=f"{name}, leaving out one {left_out}": report(what, done, FOLDS),
            )
            residual[left_out] = predicted - stage.observed  # log(measured speed / predicted speed)
        table[name] = layout.table(theta)
        table["residuals"][name] = _residuals(residual, stage.keys["device_class"])
        table["held_out"][name] = {left_out: _errors(r) for left_out, r in residual.items()}
        if name == "decode":
            table["known"] = _known(stage.keys)
    return table


def _understood(rows: Iterable[dict]) -> list[Request]:
    found = []
    for row in rows:
        try:
            found.append(request(row))
        except WorkbenchError:
            continue
    if not found:
        raise WorkbenchError(
            "calibrate: no row could be understood; the columns are those of datasets/measurements.csv"
        )
    return found


def _known(keys: dict[str, np.ndarray]) -> dict:
    counts: dict = {}
    for effect in ("device.backend", "device_class.backend"):
        joined = [
            "|".join(parts) for parts in zip(*(keys[f] for f in effect.split(".")), strict=True)
        ]
        labels, n = np.unique(joined, return_counts=True)
        counts[effect] = dict(zip(labels.tolist(), n.tolist(), strict=True))
    return counts


def _residuals(residual: dict[str, np.ndarray], classes: np.ndarray) -> dict:
    """Return measured/predicted at the ends of the 80 % interval, by trust level and class ("all" for small classes)."""
    held = {"measured": residual["model"], "calibrated": residual["device"]}
    ends = {level: _ends_by_class(values, classes) for level, values in held.items()}
    # Beyond what was calibrated there is nothing to measure: twice the width, in log, of the worst measured level.
    wide = {
        label: [round(low**2, 4), round(high**2, 4)]
        for label, (low, high) in ends["calibrated"].items()
    }
    return {**ends, **dict.fromkeys(LEVELS[2:], wide)}


def _ends_by_class(values: np.ndarray, classes: np.ndarray) -> dict[str, list[float]]:
    groups = {"all": np.ones(len(values), bool)} | {
        str(c): classes == c for c in np.unique(classes)
    }
    return {
        label: _ends(values[chosen])
        for label, chosen in groups.items()
        if label == "all" or chosen.sum() >= 30
    }


def _ends(values: np.ndarray) -> list[float]:
    values = values[np.isfinite(values)]
    return [round(float(np.exp(q)), 4) for q in np.quantile(values, [TAIL, 1 - TAIL])]


def _errors(residual: np.ndarray) -> dict:
    error = np.abs(np.exp(-residual[np.isfinite(residual)]) - 1)  # |predicted / measured - 1|
    return {
        "n": len(error),
        "median_ape": round(float(np.median(error)), 4),
        "p75_ape": round(float(np.quantile(error, 0.75)), 4),
        "mape": round(float(error.mean()), 4),
    }
