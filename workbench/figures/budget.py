"""A memory and what is asked of it: the stacked bar, which models fit, and the cliff (M22, M34)."""

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from workbench.figures import headroom, memory_cliff, stacked, theme
from workbench.figures.capacity import NAMES
from workbench.hardware.capacity import KINDS

HEIGHT = 760
ROWS = ("<b>needed</b>", "there is")
_HAS = ("a model may use", "kept for the system")
_LIMIT = theme.PALETTE[3]
_TITLES = ("Memory left over (+) or missing (−) [GiB]", "Speed over memory")


def traces() -> list:
    """Return the traces of the bars, still empty: parts, labels, and the limit."""
    names = (*(NAMES.get(kind, kind) for kind in KINDS), *_HAS)
    colours = (*(theme.COLOURS.get(k, theme.INK) for k in KINDS), theme.PALETTE[2], theme.INK)
    limit = go.Scatter(
        mode="lines", y=[1.5, -0.5], line={"color": _LIMIT, "dash": "dash", "width": 3},
        hoverinfo="skip", showlegend=True, name="limit",
    )  # fmt: skip
    return [*stacked.traces(names, colours, ROWS), limit]


def axes() -> dict[str, dict]:
    """Return the axes of the bars."""
    return stacked.axes(ROWS, "memory [GiB]")


def values(ds: xr.Dataset, memory: float) -> list[dict]:
    """Return what the bars show.

    Args:
        ds: one configuration of `predict`.
        memory: bytes of its machine.
    """
    gib = theme.SHOWN["GiB"]
    needed, usable, all_ = ds.memory_bytes.values / gib, ds.usable_bytes.item() / gib, memory / gib
    parts = np.zeros((len(KINDS) + 2, 2))
    parts[: len(KINDS), 0] = needed
    parts[len(KINDS) :, 1] = usable, max(all_ - usable, 0.0)
    sums = [f"<b>{needed.sum():.3g} GiB</b>", f"{all_:.3g} GiB, limit {usable:.3g}"]
    return [*stacked.values(parts, sums), {"x": [usable, usable]}]


def figure(ds: xr.Dataset, memory: float) -> go.Figure:
    """Draw the bars as a plain figure; arguments as for `values`."""
    look = {"barmode": "stack", "showlegend": True, "legend": stacked.legend(1.0), "height": 260}
    look |= {"margin": {"t": 80, "b": 50, "l": 10, "r": 10}}
    title = {"text": "What is asked of the memory"}
    return theme.figure(traces(), values(ds, memory), **axes(), title=title, **look)


def empty(models, quants) -> go.Figure:
    """Return the three views in one figure, still empty; `models` and `quants` of the matrix."""
    fig = make_subplots(
        rows=2, cols=2, specs=[[{"colspan": 2}, None], [{}, {}]], row_heights=[0.25, 0.75],
        column_widths=[0.58, 0.42], horizontal_spacing=0.09, vertical_spacing=0.19,
        subplot_titles=("", *_TITLES),
    )  # fmt: skip
    cells = (headroom.traces(models, quants), headroom.axes())
    places = (
        ((traces(), axes()), 1, 1),
        (cells, 2, 1),
        ((memory_cliff.traces(), memory_cliff.axes()), 2, 2),
    )
    for (drawn, axis), row, col in places:
        for trace in drawn:
            fig.add_trace(trace, row=row, col=col)
        fig.update_xaxes(axis["xaxis"], row=row, col=col)
        fig.update_yaxes(axis["yaxis"], row=row, col=col)
    fig.update_traces(showlegend=False, selector={"xaxis": "x3"})
    fig.update_annotations(font_size=15, yshift=8)
    fig.update_layout(template=theme.TEMPLATE, height=HEIGHT, barmode="stack", showlegend=True)
    fig.update_layout(legend=stacked.legend(1.01), margin={"l": 10, "r": 10, "t": 84, "b": 50})
    title = {"text": "What is asked of the memory", "y": 0.985, "yanchor": "top"}
    return fig.update_layout(title=title)
