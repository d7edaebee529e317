"""Fit every coefficient to measured rows, and report how wrong the fit is on devices and models it never saw (M02)."""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from workbench.errors import WorkbenchError
from workbench.hardware import capacity, coefficients, ledger, roofline, traffic
from workbench.study import effects, fit
from workbench.study.rows import DEEP, GENERATED, Request, is_scored, request, stored
from workbench.study.trust import LEVELS

#: Fits at most for each thing left out: every device alone, models dealt to twelve fits.
FOLDS = {"device": 1000, "model": 12}
COVERED = 0.8  # the share of rows of things left out that their intervals hold
#: What may be left out at each end, widest interval last: quantiles of few devices or models are too narrow for others.
TAILS = tuple(np.linspace(0.1, 0.01, 19))
FEWEST = 30  # rows of a class for an interval of its own


class Stage(NamedTuple):
    """The rows of one stage as arrays: what they cost at coefficient 1, what was measured, their pools."""

    name: str
    costs: np.ndarray  # (term, row) s
    observed: np.ndarray  # (row,) log s
    keys: dict[str, np.ndarray]  # pool -> (row,)
    sources: np.ndarray  # (row,)
    models: np.ndarray  # (row,)
    sets: dict[str, np.ndarray]  # (row,) booleans: scored, moe, deep
    longest: float  # tokens of context, the most of any row


def stage_of(name: str, pairs: list[tuple[dict, Request]]) -> Stage:
    """Return the rows that measured a stage, priced at coefficient 1."""
    pairs = [(row, r) for row, r in pairs if getattr(r, f"{name}_tok_s") > 0]
    if not pairs:
        raise WorkbenchError(
            f"calibrate: no row has a {name}_tok_s; both stages need measured rows"
        )
    rows = [r for _, r in pairs]
    costs = np.array(np.broadcast_arrays(*(np.asarray(cost) for cost in costs_of(name, rows))))
    tokens = np.array([1.0 if name == "decode" else r.prompt for r in rows])
    observed = np.log(tokens / np.array([getattr(r, f"{name}_tok_s") for r in rows]))
    pools = [pools_of(r) for r in rows]
    keys = {key: np.array([p[key] for p in pools], dtype=object) for key in pools[0]}
    sets = {
        "scored": np.array([is_scored(row) for row, _ in pairs]),
        "moe": np.array([r.model.experts > 0 for r in rows]),
        "deep": np.array([r.context >= DEEP for r in rows]),
    }
    sources, models = (
        np.array(x, dtype=object) for x in ([r.source for r in rows], [r.model.name for r in rows])
    )
    longest = max(r.context for r in rows)
    return Stage(name, costs, observed, keys, sources, models, sets, longest)


def pools_of(row: Request) -> dict[str, str]:
    """Return the pools of a request; what the row does not say is as the engine does it by itself."""
    pools = (
        coefficients.device_keys(row.device, row.engine, row.build)
        | coefficients.quant_keys(row.quant)
        | coefficients.model_keys(row.model)
    )
    stated = {"flash": row.flash, "host": row.host, "library": row.library}
    return pools | {name: label for name, label in stated.items() if label}


def costs_of(stage: str, rows: list[Request]) -> tuple:
    """Return what the rows cost at coefficient 1, one array (row,) or scalar a term, seconds."""
    load = ledger.stack([traffic.load_of(r.model, stored(r)) for r in rows])
    machine = ledger.stack([roofline.machine_of(r.device) for r in rows])
    budget = ledger.stack([capacity.budget_of(r.device) for r in rows])
    context, prompt, depth, kv_bits, ubatch = (
        np.array([getattr(r, f) for r in rows])
        for f in ("context", "prompt", "depth", "kv_bits", "ubatch")
    )
    # As `ledger.price` does: what must fit is the longest that the conversation gets.
    longest = np.maximum(context, prompt + GENERATED)
    needed = capacity.memory(load, longest, 1.0, kv_bits, ubatch, budget.runtime)
    share = capacity.resident_share(load, needed, budget.usable)
    if stage == "decode":
        return roofline.decode_costs(load, machine, context, 1.0, kv_bits, share)
    return roofline.prefill_costs(load, machine, prompt, depth, 1.0, kv_bits, share, ubatch)


def calibrate(
    rows: Iterable[dict], report: Callable[[str, int, int], bool] = lambda *_: True
) -> dict:
    """Fit the coefficients and measure them on held-out devices and models.

    Args:
        rows: dicts with the columns of measurements.csv; rows that cannot be understood are left out.
        report: called with (what, done, of) after each fit; returning False stops and keeps what there is.

    Returns:
        The table for `predict(table=...)`: effects by stage and term with their `spread`, `known` pools, `residuals` of
        held-out rows by trust level and device class, and `held_out` errors by what was left out.

    Equation: see `study.fit`. Source: Gelman & Hill, partial pooling; the terms are M01-M04, M46, M55.
    """
    pairs = _understood(rows)
    table: dict = {"known": {}, "residuals": {}, "held_out": {}, "spread": {}}
    for name in ("decode", "prefill"):
        stage = stage_of(name, pairs)
        layout, measured = _problem(stage)
        best = fit.learn(
            layout, measured, lambda done, n=name: report(f"{n}: all rows", done, fit.ROUNDS)
        )
        left_out = {}
        for what, groups in (("device", stage.keys["device"]), ("model", stage.models)):
            folds = min(FOLDS[what], len(set(groups)))
            title = f"{name}: leaving out each {what}"
            logs = fit.held_out(
                layout,
                measured,
                best,
                groups,
                folds,
                lambda done, t=title, n=folds: report(t, done, n),
            )
            left_out[what] = logs - stage.observed  # log(measured speed / predicted speed)
        table[name] = layout.table(best.theta)
        table["spread"][name] = layout.spreads(best.spread) | {"noise": round(best.noise, 4)}
        table["residuals"][name], coverage = _residuals(left_out, stage)
        table["held_out"][name] = {
            what: _reports(r, stage) | {"coverage_80": coverage[what]}
            for what, r in left_out.items()
        }
        if name == "decode":
            table["known"] = _known(stage.keys)
            table["range"] = {
                "context": stage.longest,
                "batch": 1.0,
            }  # every row decodes one sequence
    return table


def _problem(stage: Stage) -> tuple[effects.Layout, fit.Rows]:
    layout = effects.Layout(stage.name, stage.keys | {"source": stage.sources})
    weight = fit.crowd_weight(stage.keys["device"])
    return layout, fit.Rows(stage.costs, stage.observed, weight)


def _understood(rows: Iterable[dict]) -> list[tuple[dict, Request]]:
    found = []
    for row in rows:
        try:
            found.append((row, request(row)))
        except WorkbenchError:
            continue
    if not found:
        raise WorkbenchError(
            "calibrate: no row could be understood; the columns are those of measurements.csv"
        )
    return found


def _known(keys: dict[str, np.ndarray]) -> dict:
    counts: dict = {}
    for effect in ("device.backend", "device_class.backend"):
        labels, n = np.unique(effects.joined(effect, keys), return_counts=True)
        counts[effect] = dict(zip(labels.tolist(), n.tolist(), strict=True))
    return counts


def _reports(residual: np.ndarray, stage: Stage) -> dict:
    """Return the errors over the scored rows, over parts of them, and over the other engines."""
    scored = stage.sets["scored"]
    chosen = {
        "scored": scored,
        "moe": scored & stage.sets["moe"],
        "depth_4096": scored & stage.sets["deep"],
        "other_engines": ~scored,
    }
    classes = stage.keys["device_class"]
    by_class = {
        str(c): _errors(residual[scored & (classes == c)]) for c in np.unique(classes[scored])
    }
    return {name: _errors(residual[rows]) for name, rows in chosen.items()} | {"by_class": by_class}


def _residuals(residual: dict[str, np.ndarray], stage: Stage) -> tuple[dict, dict]:
    """Return measured/predicted at the ends of the interval, by trust level and class, and the nested coverage.

    The coverage of what was left out is that of intervals which saw nothing of it either.
    """
    classes, scored = stage.keys["device_class"], stage.sets["scored"]
    ends, coverage = {}, {}
    for level, what in (("measured", "model"), ("calibrated", "device")):
        groups = stage.models if what == "model" else stage.keys["device"]
        known = np.isfinite(residual[what])
        values, *labels = (array[known] for array in (residual[what], classes, groups, scored))
        tail, coverage[what] = _tail(values, *labels)
        ends[level] = {k: _rounded(*v) for k, v in _ends(values, labels[0], tail).items()}
    # Beyond what was calibrated there is nothing to measure: twice the width, in log, of the worst measured level.
    wide = {
        label: [round(low**2, 4), round(high**2, 4)]
        for label, (low, high) in ends["calibrated"].items()
    }
    return {**ends, **dict.fromkeys(LEVELS[2:], wide)}, coverage


def _tail(values, classes, groups, scored) -> tuple[float, float]:
    """Return the largest share to leave out at each end that holds COVERED of the scored rows, and what it holds."""
    for tail in TAILS:
        inside = np.zeros(len(values), bool)
        for name in np.unique(groups):
            out = groups == name
            ends = _ends(values[~out], classes[~out], tail) if not out.all() else {}
            low, high = np.array([ends.get(c, ends.get("all", (0, 0))) for c in classes[out]]).T
            inside[out] = (low <= values[out]) & (values[out] <= high)
        covered = float(inside[scored].mean()) if scored.any() else math.nan
        if not covered < COVERED:
            break
    return tail, round(covered, 4)


def _ends(values: np.ndarray, classes: np.ndarray, tail: float) -> dict[str, tuple[float, float]]:
    """Return the ends of the interval by class, log(measured/predicted); small classes have those of "all"."""
    groups = {str(c): values[classes == c] for c in np.unique(classes)}
    groups = {"all": values} | {c: own for c, own in groups.items() if len(own) >= FEWEST}
    ends = {c: np.quantile(own, [tail, 1 - tail]) for c, own in groups.items() if len(own)}
    # A class that was wrong in one direction still holds its own prediction.
    return {c: (min(float(low), 0.0), max(float(high), 0.0)) for c, (low, high) in ends.items()}


def _rounded(low: float, high: float) -> list[float]:
    return [round(math.exp(low), 4), round(math.exp(high), 4)]


def _errors(residual: np.ndarray) -> dict:
    error = np.abs(np.exp(-residual[np.isfinite(residual)]) - 1)  # |predicted / measured - 1|
    if not len(error):
        return {"n": 0}
    middle, upper = np.quantile(error, [0.5, 0.75])
    return {
        "n": len(error),
        "median_ape": round(float(middle), 4),
        "p75_ape": round(float(upper), 4),
        "mape": round(float(error.mean()), 4),
    }
