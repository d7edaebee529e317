"""How a KV cache lies in memory: the length of its runs, and what gathering them costs (M13)."""

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from workbench.figures import theme
from workbench.figures.panes import Pane, place
from workbench.hardware.layout import ARRANGEMENTS

HEIGHT = 410
ROWS = tuple(ARRANGEMENTS)
_PARTS = ("reading", "page walks", "block table")
_COLOURS = (theme.COLOURS["kv"], theme.PALETTE[3], theme.PALETTE[2])
_AT = list(range(len(ROWS)))
_LEAST, _MOST = 1e2, 1e9  # byte, what the axis shows
_ROW_AXIS = {"range": [len(ROWS) - 0.5, -0.9], "showgrid": False, "zeroline": False}


def run_traces() -> list:
    """Return the traces of the runs, still empty: a bar from the shortest on, its length, and lines to compare."""
    bars = go.Bar(
        orientation="h", y=_AT, base=_LEAST, marker={"color": theme.COLOURS["kv"]}, width=0.6,
        hoverinfo="skip", showlegend=False,
    )  # fmt: skip
    text = go.Scatter(mode="text", y=_AT, textposition="middle right", cliponaxis=False,
                      hoverinfo="skip", showlegend=False)  # fmt: skip
    lines = go.Scatter(
        mode="lines+text", line={"color": theme.PALETTE[3], "dash": "dash", "width": 2}, hoverinfo="skip",
        textposition="top center", cliponaxis=False, showlegend=False,
    )  # fmt: skip
    return [bars, text, lines]


def run_axes() -> dict[str, dict]:
    """Return the axes of the runs."""
    ticks = [2**n for n in (8, 14, 20, 26)]
    x = {"type": "log", "range": [np.log10(_LEAST), np.log10(_MOST)], "tickvals": ticks}
    names = ["256 B", "16 KiB", "1 MiB", "64 MiB"]
    return {
        "xaxis": x | {"ticktext": names, "title": {"text": "length of a run"}},
        "yaxis": _ROW_AXIS | {"tickvals": _AT, "ticktext": list(ROWS)},
    }


def run_values(ds: xr.Dataset, page: float) -> list[dict]:
    """Return what the runs show of `run_bytes` and `runs` (arrangement), and the page."""
    run = ds.run_bytes.values
    text = [f" {_bytes(r)} × {n:,.0f}" for r, n in zip(run, ds.runs.values, strict=True)]
    line = {"x": [page, page], "y": [len(ROWS) - 0.5, -0.55], "text": ["", "page"]}
    return [{"x": run - _LEAST}, {"x": run, "text": text}, line]


def gather_traces() -> list:
    """Return the traces of the time, still empty: parts, and their sums."""
    bars = [
        go.Bar(
            orientation="h", y=_AT, name=name, width=0.6, marker={"color": c, "pattern": {"shape": p}},
            hovertemplate="%{x:.3g} ms<extra>" + name + "</extra>",
        )
        for name, c, p in zip(_PARTS, _COLOURS, theme.PATTERNS, strict=False)
    ]  # fmt: skip
    sums = go.Scatter(mode="text", y=[*_AT, 0], textposition="middle right", cliponaxis=False,
                      hoverinfo="skip", showlegend=False)  # fmt: skip
    return [*bars, sums]


def gather_axes() -> dict[str, dict]:
    """Return the axes of the time."""
    return {
        "xaxis": {"title": {"text": "time to gather it [ms]"}, "rangemode": "tozero", "nticks": 6},
        "yaxis": _ROW_AXIS | {"showticklabels": False},
    }


def gather_values(ds: xr.Dataset, token: float) -> list[dict]:
    """Return what the time shows of `gather_s` (arrangement), beside a whole token of `token` s."""
    walks, table, whole = (ds[n].values * 1e3 for n in ("walk_s", "table_s", "gather_s"))
    text = [f" {t:.3g} ms = {t / token / 10:.0f} % of a token" for t in whole]
    return [
        {"x": whole - walks - table}, {"x": walks}, {"x": table},
        {"x": [*whole, 2.4 * whole.max()], "text": [*text, ""]},
    ]  # fmt: skip


def empty() -> go.Figure:
    """Return both views in one figure, still empty."""
    fig = make_subplots(1, 2, horizontal_spacing=0.06)
    panes = (
        Pane(1, 1, run_traces(), run_axes(), "Runs of K and V, all layers"),
        Pane(1, 2, gather_traces(), gather_axes(), "Gathering them for one token"),
    )
    legend = {"x": 1, "y": -0.24, "xanchor": "right", "yanchor": "top", "orientation": "h"}
    return place(fig, panes, height=HEIGHT, barmode="stack", margin={"t": 60, "r": 20, "l": 190},
                 showlegend=True, legend=legend)  # fmt: skip


def values(ds: xr.Dataset, page: float, token: float) -> list[dict]:
    """Return what both views show."""
    return [*run_values(ds, page), *gather_values(ds, token)]


def _bytes(count: float) -> str:
    for size, name in ((2**20, "MiB"), (2**10, "KiB")):
        if count >= size:
            return f"{count / size:.3g} {name}"
    return f"{count:.0f} B"
