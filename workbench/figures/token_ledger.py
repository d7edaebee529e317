"""One token, four ways: what it is made of, the roofline, and the line through measured tokens."""

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from workbench.figures import affine, roofline, stacked, theme
from workbench.figures.ledger import NAMES
from workbench.hardware.affine import Line
from workbench.hardware.roofline import TERMS

HEIGHT = 720
ROWS = ("bandwidth ÷ bytes", "calibrated", "<b>as set above</b>")
_TITLES = ("What memory and arithmetic allow", "Time over bytes: measured here, and your line")


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
    title = {"text": "Where one token's time goes"}
    look = {"barmode": "stack", "showlegend": True, "legend": stacked.legend(1.0)}
    look |= {"margin": {"t": 80, "b": 50, "l": 10, "r": 10}, "height": 300, "title": title}
    return theme.figure(traces(), values(calibrated, shown), **axes(), **look)


def empty() -> go.Figure:
    """Return the three views in one figure, still empty."""
    fig = make_subplots(
        rows=2, cols=2, specs=[[{"colspan": 2}, None], [{}, {}]], row_heights=[0.34, 0.66],
        horizontal_spacing=0.1, vertical_spacing=0.2, subplot_titles=("", *_TITLES),
    )  # fmt: skip
    for part, row, col in ((None, 1, 1), (roofline, 2, 1), (affine, 2, 2)):
        drawn, axis = (part.traces(), part.axes()) if part else (traces(), axes())
        for trace in drawn:
            fig.add_trace(trace, row=row, col=col)
        fig.update_xaxes(axis["xaxis"], row=row, col=col)
        fig.update_yaxes(axis["yaxis"], row=row, col=col)
    fig.update_annotations(font_size=15, yshift=8)
    fig.update_layout(template=theme.TEMPLATE, height=HEIGHT, barmode="stack", showlegend=True)
    fig.update_layout(legend=stacked.legend(1.01), margin={"l": 10, "r": 10, "t": 84, "b": 50})
    fig.update_layout(title={"text": "Where one token's time goes", "y": 0.985, "yanchor": "top"})
    fig.update_traces(showlegend=False, selector={"type": "scatter"})
    return fig


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
