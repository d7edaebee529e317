"""A memory and what is asked of it: the stacked bar, which models fit, and the cliff (M22, M34)."""

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from workbench.figures import headroom, memory_cliff, stacked, theme
from workbench.figures.capacity import NAMES
from workbench.figures.panes import Pane, place
from workbench.hardware.capacity import KINDS

HEIGHT = 760
ROWS = ("<b>needed</b>", "there is")
_HAS = ("a model may use", "kept for the system")
_LIMIT = theme.PALETTE[3]
TITLE = "What is asked of the memory"


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
    look = stacked.layout(TITLE, 260)
    return theme.figure(traces(), values(ds, memory), **axes(), height=260, **look)


def empty(models, quants) -> go.Figure:
    """Return the three views in one figure, still empty; `models` and `quants` of the matrix."""
    fig = make_subplots(
        rows=2, cols=2, specs=[[{"colspan": 2}, None], [{}, {}]], row_heights=[0.25, 0.75],
        column_widths=[0.58, 0.42], horizontal_spacing=0.09, vertical_spacing=0.19,
    )  # fmt: skip
    panes = [
        Pane(1, 1, traces(), axes()),
        Pane(2, 1, headroom.traces(models, quants), headroom.axes(), headroom.TITLE),
        Pane(2, 2, memory_cliff.traces(), memory_cliff.axes(), memory_cliff.TITLE),
    ]
    return place(fig, panes, height=HEIGHT, **stacked.layout(TITLE, HEIGHT))
