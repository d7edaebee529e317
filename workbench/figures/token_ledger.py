"""One token, four ways: what it is made of, the roofline, and the line through measured tokens."""

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from workbench.figures import affine, roofline, stacked, theme
from workbench.figures.ledger import NAMES
from workbench.figures.panes import Pane, place
from workbench.hardware.affine import Line
from workbench.hardware.roofline import TERMS

HEIGHT = 720
ROWS = ("bandwidth ÷ bytes", "calibrated", "<b>as set above</b>")


def traces() -> list:
    """Return the traces of the bars, still empty."""
    names = [NAMES.get(term, term) for term in TERMS]
    colours = [theme.COLOURS.get(term, theme.INK) for term in TERMS]
    return stacked.traces(names, colours, ROWS)


def axes() -> dict[str, dict]:
    """Return the axes of the bars."""
    return stacked.axes(ROWS, theme.axis_title("time_s", "ms"))


def values(calibrated: xr.Dataset, shown: xr.Dataset) -> list[dict]:
    """Return what the bars show: the token at full bandwidth, as calibrated, and as set.

    Args:
        calibrated: one configuration of `predict` at batch 1.
        shown: the same, or `study.token_ledger.bent`.
    """
    full = np.where(calibrated.term == "weights", 1.0 / calibrated.naive_tok_s.item(), 0.0)
    parts = np.stack([full, calibrated.time_s.values, shown.time_s.values], axis=1)
    sums = [f"{total * 1e3:.3g} ms, {1 / total:.3g} tok/s" for total in parts.sum(0)]
    sums[-1] = f"<b>{sums[-1]}</b>"
    return stacked.values(parts / theme.SHOWN["ms"], sums)


def figure(calibrated: xr.Dataset, shown: xr.Dataset) -> go.Figure:
    """Draw the bars as a plain figure; arguments as for `values`."""
    look = stacked.layout("Where one token's time goes", 300)
    return theme.figure(traces(), values(calibrated, shown), **axes(), height=300, **look)


def empty() -> go.Figure:
    """Return the three views in one figure, still empty."""
    fig = make_subplots(
        rows=2, cols=2, specs=[[{"colspan": 2}, None], [{}, {}]], row_heights=[0.34, 0.66],
        horizontal_spacing=0.1, vertical_spacing=0.2,
    )  # fmt: skip
    panes = [
        Pane(1, 1, traces(), axes()),
        Pane(2, 1, roofline.traces(), roofline.axes(), roofline.TITLE),
        Pane(2, 2, affine.traces(), affine.axes(), "Time over bytes: measured here, and your law"),
    ]
    return place(fig, panes, height=HEIGHT, **stacked.layout("Where one token's time goes", HEIGHT))


def all_values(
    calibrated: xr.Dataset,
    shown: xr.Dataset,
    on_roof: list[dict],
    on_line: list[dict],
) -> list[dict]:
    """Return what all traces of `empty` show, in their order.

    Args:
        calibrated, shown: as for `values`.
        on_roof: `roofline.values`.
        on_line: `affine.values`.
    """
    return [*values(calibrated, shown), *on_roof, *on_line]


def law(shown: xr.Dataset, t0: float, efficiency: float) -> Line:
    """Return the affine law that a fixed time, s, and an efficiency imply for the machine."""
    peak = shown.naive_tok_s.item() * shown.weight_bytes.item()
    return Line(t0, peak * efficiency)
