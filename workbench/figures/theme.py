"""One look for every figure: readable on light and dark paper, by colour-blind eyes, in print."""

from collections.abc import Iterable, Sequence
from typing import Any

import plotly.graph_objects as go
import xarray as xr
from plotly.basedatatypes import Undefined

from workbench import results
from workbench.units import GiB

INK = "#808080"  # reads on white and on black; JupyterLab's own ink replaces it inside panels
GRID = "rgba(128,128,128,0.25)"
#: Okabe and Ito's colours without yellow, which is lost on white; grey stands for their black.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", INK)
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "5px 2px")
MARKERS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")
PATTERNS = ("", "/", ".", "x", "-", "\\", "+")

#: One colour for one cause of time or memory, in every figure.
COLOURS = dict(
    zip(
        ("weights", "kv", "attention", "spill", "dispatch", "routing", "fixed"),
        PALETTE,
        strict=True,
    )
) | {"compute": "#009E73", "dense": "#009E73", "experts": "#CC79A7", "buffers": "#56B4E9"}
COLOURS["runtime"] = INK

#: Shown unit -> how many SI units it is.
SHOWN = {"ms": 1e-3, "GiB": GiB, "GB": 1e9, "GB/s": 1e9, "TFLOP/s": 1e12}

_AXIS = {
    "gridcolor": GRID,
    "zerolinecolor": GRID,
    "automargin": True,
    "title": {"font": {"size": 13}},
    "ticklabelstandoff": 6,  # numbers keep off each other where two axes meet
    # measuring every label for rotation and overflow is a seventh of a redraw
    "tickangle": 0,
    "ticklabeloverflow": "allow",
}
TEMPLATE = go.layout.Template(
    layout={
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": INK, "size": 13, "family": "system-ui, Helvetica, Arial, sans-serif"},
        "colorway": PALETTE,
        "margin": {"l": 60, "r": 20, "t": 44, "b": 50},
        "showlegend": False,
        "xaxis": _AXIS,
        "yaxis": _AXIS,
        "title": {"font": {"size": 15}, "x": 0, "xref": "paper", "xanchor": "left"},
        "annotationdefaults": {"font": {"color": INK, "size": 13}},
        "hoverlabel": {"font": {"size": 13}},
        "colorscale": {"sequential": "Cividis"},
    }
)


def axis_title(array: xr.DataArray | str, shown_in: str = "") -> str:
    """Return an axis title, "time of one decode step [ms]", from the attrs of `array`.

    Args:
        array: a variable or coordinate of a result, or the name of one.
        shown_in: a unit of `SHOWN` that the axis uses instead of the SI unit.
    """
    if isinstance(array, str):
        units, long_name = (results.VARIABLES | results.COORDS)[array]
        array = xr.DataArray(0, name=array, attrs={"units": units, "long_name": long_name})
    if not shown_in:
        return results.label(array)
    return f"{array.attrs['long_name']} [{shown_in}]"


def line(series: int) -> dict[str, Any]:
    """Return the line and marker of the n-th series: no two differ by colour alone."""
    colour = PALETTE[series % len(PALETTE)]
    return {
        "line": {"color": colour, "dash": DASHES[series % len(DASHES)], "width": 2.5},
        "marker": {"color": colour, "symbol": MARKERS[series % len(MARKERS)], "size": 8},
    }


def figure(traces: Iterable, values: Sequence[dict] = (), **layout) -> go.Figure:
    """Return a plain figure of `traces` in the house style.

    Args:
        traces: with their own looks.
        values: what each of them shows, as for `fill`; none if they have it already.
        layout: as Plotly's update_layout.
    """
    fig = go.Figure(list(traces), {"template": TEMPLATE, **layout})
    if values:
        fill(fig, values)
    return fig


def fill(fig: go.Figure, values: Sequence[dict]) -> None:
    """Show new values in the traces of `fig`; what a trace is not given, it keeps.

    Args:
        fig: with the traces that `values` are for.
        values: for each trace the properties that follow the data: x, y, text ...
    """
    if len(values) != len(fig.data):
        raise ValueError(f"values for {len(values)} traces; the figure has {len(fig.data)}")
    names = dict.fromkeys(name for properties in values for name in properties)
    columns = {name: [each.get(name, Undefined) for each in values] for name in names}
    fig.plotly_restyle(columns)  # all at once: a third of the time that one by one takes
