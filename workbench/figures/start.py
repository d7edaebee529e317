"""One configuration at a glance: time of a token, memory, and speed over context."""

import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from workbench.figures import capacity, context, ledger, theme

HEIGHT = 620
_TITLES = (
    "Where one token's time goes",
    "Speed as the conversation grows",
    "What fills the memory",
)
_PLACES = ((ledger, 1, 1), (context, 1, 2), (capacity, 2, 1))


def empty() -> go.Figure:
    """Return the figure with all its traces, still empty."""
    fig = make_subplots(
        rows=2, cols=2, specs=[[{}, {"rowspan": 2}], [{}, None]], column_widths=[0.5, 0.5],
        row_heights=[0.6, 0.4], horizontal_spacing=0.12, vertical_spacing=0.22,
        subplot_titles=_TITLES,
    )  # fmt: skip
    for part, row, col in _PLACES:
        for trace in part.traces():
            fig.add_trace(trace, row=row, col=col)
        fig.update_xaxes(part.axes()["xaxis"], row=row, col=col)
        fig.update_yaxes(part.axes()["yaxis"], row=row, col=col)
    fig.update_annotations(font_size=15, yshift=8)
    # The labels are known, and margins that Plotly works out itself cost a second layout a move.
    fixed = {"automargin": False, "fixedrange": True}  # the sliders move it, the mouse does not
    fig.update_xaxes(fixed).update_yaxes(fixed)
    margin = {"l": 165, "r": 30, "t": 44, "b": 50}
    return fig.update_layout(template=theme.TEMPLATE, height=HEIGHT, margin=margin)


def values(curve: xr.Dataset, now: xr.Dataset) -> list[dict]:
    """Return what the traces show.

    Args:
        curve: `predict` over the dimension context.
        now: one configuration of it.
    """
    return [*ledger.values(now), *context.values(curve, now), *capacity.values(now)]


def figure(curve: xr.Dataset, now: xr.Dataset) -> go.Figure:
    """Draw it as a plain figure; arguments as for `values`."""
    fig = empty()
    theme.fill(fig, values(curve, now))
    return fig
