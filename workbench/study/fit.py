"""Fit the log coefficients of a stage to measured rows: a robust maximum a posteriori estimate.

    log t = log(sum_k exp(theta_k) cost_k) + theta_machine,  residuals Student-t, effects normal around their pool.

The Student-t likelihood (4 degrees of freedom) keeps a mistyped or throttled row from moving a pool.
"""

import jax
import jax.numpy as jnp
import numpy as np

from workbench.study.effects import Layout

FREEDOM = 4.0  # degrees of freedom of the residuals
NOISE = 0.08  # repeated measurements of one configuration differ by about 8 %
CROWD = 8.0  # rows of one device beyond which each further row counts less: n rows weigh sqrt(CROWD * n)


@jax.jit
def log_time(theta, costs, index):
    """Return log seconds (row,) predicted by parameters `theta` for costs (term, row)."""
    total = 0.0
    for cost, columns in zip(costs, index[:-1], strict=True):
        total = total + jnp.exp(theta[columns].sum(0)) * cost
    return jnp.log(total) + theta[index[-1]].sum(0)


@jax.jit
def _loss(theta, costs, index, observed, weight, start, spread, odd):
    residual = (log_time(theta, costs, index) - observed) / NOISE
    surprise = (FREEDOM + 1) / 2 * jnp.log1p(residual**2 / FREEDOM)
    pull = (theta - start) / spread
    prior = jnp.where(odd, 1.5 * jnp.log1p(pull**2 / 2), 0.5 * pull**2)
    return (weight * surprise).sum() + prior.sum()


_value_and_grad = jax.jit(jax.value_and_grad(_loss))


def fit(
    layout: Layout,
    costs: np.ndarray,
    observed: np.ndarray,
    weight: np.ndarray,
    first: np.ndarray | None = None,
) -> np.ndarray:
    """Return the parameters that explain the rows best.

    Args:
        layout: where the effects of the rows sit.
        costs: (term, row) seconds at coefficient 1.
        observed: (row,) log seconds measured.
        weight: (row,) how much a row counts; 0 holds it out.
        first: parameters to start from; a full fit makes the held-out ones quick.
    """
    index = tuple(jnp.asarray(i) for i in layout.index)
    arguments = (
        jnp.asarray(costs),
        index,
        jnp.asarray(observed),
        jnp.asarray(weight),
        jnp.asarray(layout.start),
        jnp.asarray(layout.spread),
        jnp.asarray(layout.odd),
    )

    def both(theta):
        value, slope = _value_and_grad(theta, *arguments)
        return float(value), np.asarray(slope)

    from scipy.optimize import minimize  # half of the import time of the package, needed here only

    start = layout.start if first is None else first
    return minimize(both, start, jac=True, method="L-BFGS-B", options={"maxiter": 400}).x


def crowd_weight(devices: list[str]) -> np.ndarray:
    """Return a weight (row,) by which no device outvotes the others of its pool by sheer number of rows."""
    names, inverse, counts = np.unique(devices, return_inverse=True, return_counts=True)
    return 1 / np.sqrt(np.maximum(counts[inverse] / CROWD, 1))


def held_out(
    layout: Layout, costs, observed, weight, groups: list[str], folds: int, report=lambda done: True
):
    """Predict every row from a fit that saw no row of its group.

    Args:
        groups: (row,) what to leave out together: the device, or the model.
        folds: fits to make; groups are dealt to them by size, so that each fit loses a similar share of the rows.
        report: called with the number of fits done; returning False stops early and leaves NaN.

    Returns:
        (row,) log seconds, and the parameters of the full fit.
    """
    full = fit(layout, costs, observed, weight)
    index = tuple(jnp.asarray(i) for i in layout.index)
    predicted = np.full(len(observed), np.nan)
    for fold, names in enumerate(_deal(groups, folds)):
        out = np.isin(groups, names)
        theta = fit(layout, costs, observed, weight * ~out, first=full)
        predicted[out] = np.asarray(log_time(jnp.asarray(theta), jnp.asarray(costs), index))[out]
        if not report(fold + 1):
            break
    return predicted, full


def _deal(groups: list[str], folds: int) -> list[list[str]]:
    names, counts = np.unique(groups, return_counts=True)
    dealt: list[list[str]] = [[] for _ in range(min(folds, len(names)))]
    load = np.zeros(len(dealt))
    for i in np.argsort(-counts, kind="stable"):
        lightest = int(load.argmin())
        dealt[lightest].append(str(names[i]))
        load[lightest] += counts[i]
    return dealt
