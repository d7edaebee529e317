"""Fit the log coefficients of a stage to measured rows: robust, partially pooled, with learned spreads.

    log t = log(sum_k exp(theta_k) cost_k) + theta_machine

Residuals are Student-t, so that a mistyped or throttled row moves nothing. An effect is drawn to zero by a normal
prior whose spread is itself learned from how much the pools differ (empirical Bayes: Efron & Morris 1975; MacKay 1992).
Effects of single devices and authors have Student-t priors: an odd machine is odd by itself, not its whole class.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from workbench.study.effects import Layout

FREEDOM = 2.0  # degrees of freedom of rows, devices and authors: outliers are common
CROWD = 8.0  # rows of one device beyond which each further one counts less: n rows weigh sqrt(CROWD * n)
GUESS = 2.0  # pools that the first guess of a spread weighs as much as
ROUNDS = 6  # updates of the spreads; they move by less than 1 % after that
NOISE = 0.06  # first guess of how much repeated measurements of one configuration differ


class Rows(NamedTuple):
    """What is fitted to: costs (term, row) in seconds at coefficient 1, log seconds measured (row,), weights (row,)."""

    costs: np.ndarray
    observed: np.ndarray
    weight: np.ndarray


class Fit(NamedTuple):
    """Parameters (parameter,), their prior spreads (parameter,), and the spread of repeated measurements."""

    theta: np.ndarray
    spread: np.ndarray
    noise: float


def log_time(layout: Layout, theta: np.ndarray, costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return log seconds (row,) and the share (term, row) of each term in them."""
    eta = (layout.design @ theta).reshape(len(layout.order), -1)
    # A line search may probe absurd coefficients; e^50 is absurd enough.
    terms = np.exp(np.minimum(eta[:-1], 50)) * costs
    total = terms.sum(axis=0)
    return np.log(total) + eta[-1], terms / total


def solve(layout: Layout, rows: Rows, start: Fit) -> Fit:
    """Return the most probable parameters for given spreads and noise.

    The search runs in units of the spreads, in which the prior is round: that is what makes it converge.
    """
    from scipy.optimize import minimize  # slow to import, and needed here only
    from threadpoolctl import threadpool_limits

    transposed = layout.design.T.tocsr()

    def objective(z):
        logs, share = log_time(layout, layout.start + start.spread * z, rows.costs)
        residual = (logs - rows.observed) / start.noise
        surprise = (FREEDOM + 1) / 2 * np.log1p(residual**2 / FREEDOM)
        slope = rows.weight * (FREEDOM + 1) * residual / (FREEDOM + residual**2) / start.noise
        gradient = transposed @ np.vstack([share * slope, slope]).ravel() * start.spread
        pull = np.where(layout.odd, (FREEDOM + 1) / 2 * np.log1p(z**2 / FREEDOM), z**2 / 2)
        drawn = np.where(layout.odd, (FREEDOM + 1) * z / (FREEDOM + z**2), z)
        return (rows.weight * surprise).sum() + pull.sum(), gradient + drawn

    first = (start.theta - layout.start) / start.spread
    options = {"maxiter": 3000, "maxfun": 30000, "maxcor": 20, "ftol": 1e-8, "gtol": 1e-3}
    with threadpool_limits(
        1
    ):  # many products of some hundred numbers: threads cost, and bring nothing
        found = minimize(objective, first, jac=True, method="L-BFGS-B", options=options)
    return start._replace(theta=layout.start + start.spread * found.x)


def learn(layout: Layout, rows: Rows, report: Callable[[int], bool] = lambda _: True) -> Fit:
    """Return the fit whose spreads and noise are the ones that the rows themselves suggest.

    Equation: spread^2 = (sum(theta^2 + variance) + GUESS first^2) / (pools + GUESS), the variances from the
    curvature of the objective (Laplace).
    """
    fit = solve(layout, rows, Fit(layout.start.copy(), layout.spread.copy(), NOISE))
    for done in range(ROUNDS):
        fit = solve(layout, rows, _with_learned_spreads(layout, rows, fit))
        if not report(done + 1):
            break
    return fit


def _with_learned_spreads(layout: Layout, rows: Rows, fit: Fit) -> Fit:
    logs, share = log_time(layout, fit.theta, rows.costs)
    residual = logs - rows.observed
    certain = rows.weight * (FREEDOM + 1) / (FREEDOM + (residual / fit.noise) ** 2)
    informed = _curvature(layout, share, certain / fit.noise**2)
    moved = fit.theta - layout.start
    counts = np.where(layout.odd, (FREEDOM + 1) / (FREEDOM + (moved / fit.spread) ** 2), 1.0)
    covariance = np.linalg.inv(informed + np.diag(counts / fit.spread**2))
    squares = counts * moved**2 + np.diag(covariance)
    spread = fit.spread.copy()
    for places in layout.groups():
        guess = GUESS * layout.spread[places[0]] ** 2
        spread[places] = np.sqrt((squares[places].sum() + guess) / (len(places) + GUESS))
    used = np.einsum("ij,ji->", covariance, informed) * rows.weight.mean()
    left = max(rows.weight.sum() - used, 0.3 * rows.weight.sum())
    noise = float(np.clip(np.sqrt((certain * residual**2).sum() / left), 0.02, 0.3))
    return Fit(fit.theta, spread, noise)


def _curvature(layout: Layout, share: np.ndarray, certain: np.ndarray) -> np.ndarray:
    """Return the Gauss-Newton curvature (parameter, parameter) of the rows."""
    from scipy import sparse

    by_term = np.vstack([share, np.ones(share.shape[1])]).ravel()
    blocks = layout.design.multiply(by_term[:, None])
    add_terms = sparse.kron(np.ones((1, len(layout.order))), sparse.identity(share.shape[1]))
    slope = sparse.csr_matrix(add_terms @ blocks)
    return np.asarray((slope.multiply(certain[:, None]).T @ slope).todense())


def held_out(
    layout: Layout,
    rows: Rows,
    fit: Fit,
    groups: np.ndarray,
    folds: int,
    report: Callable[[int], bool] = lambda _: True,
) -> np.ndarray:
    """Predict every row from a fit that saw no row of its group, and without its author's habits.

    Args:
        layout: where the effects sit.
        rows: all rows.
        fit: the fit to all rows; its spreads are kept, its parameters are found anew.
        groups: (row,) what to leave out together: the device, or the model.
        folds: fits to make; groups are dealt to them so that each loses a similar number of rows.
        report: called with the number of fits done; returning False stops early and leaves NaN.

    Returns:
        (row,) log seconds.
    """
    predicted = np.full(len(rows.observed), np.nan)
    authors = list(layout.slots["machine", "source"].values())
    for done, names in enumerate(_deal(groups, folds)):
        out = np.isin(groups, names)
        blank = np.where(layout.seen(~out), fit.theta, layout.start)
        refit = solve(layout, rows._replace(weight=rows.weight * ~out), fit._replace(theta=blank))
        refit.theta[authors] = 0
        predicted[out] = log_time(layout, refit.theta, rows.costs)[0][out]
        if not report(done + 1):
            break
    return predicted


def crowd_weight(devices: np.ndarray) -> np.ndarray:
    """Return a weight (row,) by which no device outvotes the others of its pool by sheer number of rows."""
    _, inverse, counts = np.unique(devices, return_inverse=True, return_counts=True)
    return 1 / np.sqrt(np.maximum(counts[inverse] / CROWD, 1))


def _deal(groups: np.ndarray, folds: int) -> list[list[str]]:
    names, counts = np.unique(groups, return_counts=True)
    dealt: list[list[str]] = [[] for _ in range(min(folds, len(names)))]
    load = np.zeros(len(dealt))
    for i in np.argsort(-counts, kind="stable"):
        lightest = int(load.argmin())
        dealt[lightest].append(str(names[i]))
        load[lightest] += counts[i]
    return dealt
