"""Predicted against measured for every row, and how wrong that is, class by class (M02)."""

import functools
import math

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from workbench import data
from workbench.figures import theme
from workbench.figures.panes import Pane, place
from workbench.specs.device import DEVICE_CLASSES
from workbench.study import accuracy

HEIGHT = 640
_TICKS = {0.1: "0.1", 1: "1", 10: "10", 100: "100", 1e3: "1k", 1e4: "10k", 1e5: "100k"}
BAND = 0.2
KINDS = (*DEVICE_CLASSES, "unknown")
NAMES = {
    "nvidia-gpu": "NVIDIA GPU", "amd-gpu": "AMD GPU", "amd-apu": "AMD Ryzen APU",
    "apple-uma": "Apple", "intel": "Intel GPU", "npu": "NPU, phone", "sbc": "small board",
    "cpu": "CPU", "unknown": "unknown",
}  # fmt: skip
#: token/s; one range for a stage, so that filters compare by eye
ENDS = {"decode": (0.1, 2e3), "prefill": (0.5, 1e5)}
_EVERYWHERE = np.array([1e-3, 1e7])  # token/s
_OURS, _NAIVE = theme.PALETTE[0], theme.PALETTE[1]


def scatter_traces() -> list:
    """Return the marks of each class, still empty, over the line and the ±20 % band."""
    edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
    fixed = [
        go.Scatter(x=_EVERYWHERE, y=_EVERYWHERE * (1 - BAND), **edge),
        go.Scatter(
            x=_EVERYWHERE, y=_EVERYWHERE * (1 + BAND), **edge, fill="tonexty",
            fillcolor="rgba(128,128,128,0.25)",
        ),
        go.Scatter(
            x=_EVERYWHERE, y=_EVERYWHERE, mode="lines", line={"color": theme.INK, "dash": "dash", "width": 1.5},
            hoverinfo="skip", showlegend=False,
        ),
    ]  # fmt: skip
    return fixed + [_marks(i, kind) for i, kind in enumerate(KINDS)]


def _marks(series: int, kind: str) -> go.Scatter:
    look = theme.line(series)["marker"] | {"size": 6, "opacity": 0.65}
    if series >= len(theme.PALETTE):
        look |= {"symbol": ("hexagon-open", "star-triangle-up-open")[series % 2]}
    return go.Scatter(
        name=NAMES[kind], mode="markers", marker=look, showlegend=True,
        hovertemplate="%{customdata}<br>measured %{x:.3g}, predicted %{y:.3g} tok/s<extra></extra>",
    )  # fmt: skip


def bar_traces() -> list:
    """Return the bars of ours and of the naive line, still empty."""
    look = {"orientation": "h", "textposition": "outside", "cliponaxis": False}
    look |= {"hovertemplate": "%{y}: %{text}<extra></extra>", "showlegend": False}
    hatched = {"color": _NAIVE, "pattern": {"shape": "/", "solidity": 0.3}}
    return [go.Bar(**look, marker={"color": _OURS}), go.Bar(**look, marker=hatched)]


def coverage_traces() -> list:
    """Return the marks of the coverage, still empty."""
    marks = go.Scatter(
        mode="markers+text", textposition="middle right", cliponaxis=False, showlegend=False,
        marker={"color": _OURS, "size": 10, "symbol": "diamond"},
        hovertemplate="%{y}: %{x:.0%} of %{customdata} rows<extra></extra>",
    )  # fmt: skip
    return [marks]


def values(found: xr.Dataset) -> list[dict]:
    """Return what all traces of `empty` show.

    Args:
        found: what `study.accuracy.pairs` returned.
    """
    sums = accuracy.by_class(found)
    names = [NAMES[kind] for kind in sums.device_class.values]
    return [*_scatter(found), *_bars(sums, names), *_coverage(sums, names)]


def _scatter(found: xr.Dataset) -> list[dict]:
    kinds = np.where(found.device_class.values == "", "unknown", found.device_class.values)
    measured, predicted, text = found.measured.values, found.predicted.values, hover(found)
    chosen = [kinds == kind for kind in KINDS]
    marks = [{"x": measured[c], "y": predicted[c], "customdata": text[c]} for c in chosen]
    return [{}, {}, {}, *marks]


def _bars(sums: xr.Dataset, names: list[str]) -> list[dict]:
    return [
        {"y": names, "x": error, "text": ["" if np.isnan(e) else f"{e:.0%}" for e in error]}
        for error in (sums.error.values, sums.naive_error.values)
    ]


def _coverage(sums: xr.Dataset, names: list[str]) -> list[dict]:
    share, rows = sums.coverage.values, sums.rows.values.astype(int)
    text = [f" {s:.0%}" for s in share]
    return [{"y": names, "x": share, "text": text, "customdata": rows}]


def hover(found: xr.Dataset) -> np.ndarray:
    """Return what each row is and where it was measured: (row,) text with line breaks."""
    known = _hovers()
    return np.array([known.get(str(row), str(row)) for row in found.row.values], dtype=object)


@functools.cache
def _hovers() -> dict[str, str]:
    return {
        row["id"]: f"<b>{row['device']}</b><br>{row['model']} {row['quant']}<br>"
        f"{row['engine']} {row['engine_version_or_build']}, depth "
        f"{row['context_depth_tokens'] or '0'}<br>{row['source'][:70]}"
        for row in data.rows("measurements.csv")
    }


def axes() -> dict[str, dict[str, dict]]:
    """Return the axes of the three views by name."""
    log = {"type": "log", "tickvals": list(_TICKS), "ticktext": list(_TICKS.values())}
    log |= {"range": reach("decode")}
    names = {"type": "category", "autorange": "reversed", "showgrid": False, "ticks": ""}
    error = {"tickformat": ".0%", "range": [0, 2.25]}
    share = {"tickformat": ".0%", "range": [0, 1.15]}
    return {
        "scatter": {
            "xaxis": log | {"title": {"text": "measured [token/s]"}},
            "yaxis": log | {"title": {"text": "predicted [token/s]"}},
        },
        "error": {
            "xaxis": error | {"title": {"text": "|predicted ÷ measured − 1|"}},
            "yaxis": names,
        },
        "coverage": {"xaxis": share | {"title": {"text": "share of rows"}}, "yaxis": names},
    }


def reach(stage: str) -> list[float]:
    """Return the range of both axes of the scatter for a stage of `study.accuracy.STAGES`."""
    low, high = ENDS["prefill" if stage == "prefill" else "decode"]
    return [math.log10(low), math.log10(high)]


def empty() -> go.Figure:
    """Return scatter, errors and coverage in one figure, still empty."""
    fig = make_subplots(
        rows=2, cols=2, specs=[[{"rowspan": 2}, {}], [None, {}]], column_widths=[0.56, 0.44],
        row_heights=[0.6, 0.4], horizontal_spacing=0.14, vertical_spacing=0.19,
    )  # fmt: skip
    on = axes()
    panes = [
        Pane(1, 1, scatter_traces(), on["scatter"], "Predicted against measured, a mark a row"),
        Pane(1, 2, bar_traces(), on["error"], "Median error: prediction, and hatched the rule"),
        Pane(2, 2, coverage_traces(), on["coverage"], "Inside the 80 % interval"),
    ]
    legend = {
        "x": 0.012, "y": 0.985, "yanchor": "top", "font": {"size": 12}, "traceorder": "normal",
        "itemclick": False, "itemdoubleclick": False,
    }  # fmt: skip
    margin = {"l": 10, "r": 20, "t": 44, "b": 50}
    place(fig, panes, height=HEIGHT, showlegend=True, legend=legend, margin=margin)
    wanted = {"color": theme.INK, "dash": "dash", "width": 1.5}
    fig.add_shape(type="line", x0=0.8, x1=0.8, y0=0, y1=1, xref="x3", yref="y3 domain", line=wanted)
    return fig


def figure(found: xr.Dataset) -> go.Figure:
    """Draw it as a plain figure; argument as for `values`."""
    fig = empty()
    theme.fill(fig, values(found))
    return fig
