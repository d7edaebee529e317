"""Predicted against measured for every row, and how wrong that is, class by class (M02)."""

import functools

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from workbench import data
from workbench.figures import theme
from workbench.specs.device import DEVICE_CLASSES
from workbench.study import accuracy

HEIGHT = 640
BAND = 0.2
KINDS = (*DEVICE_CLASSES, "unknown")
NAMES = {
    "nvidia-gpu": "NVIDIA GPU", "amd-gpu": "AMD GPU", "amd-apu": "AMD Ryzen APU",
    "apple-uma": "Apple", "intel": "Intel GPU", "npu": "NPU, phone", "sbc": "small board",
    "cpu": "CPU", "unknown": "unknown",
}  # fmt: skip
_ENDS = np.array([0.05, 2e5])  # token/s; one range for all, so that filters compare by eye
_OURS, _NAIVE = theme.PALETTE[0], theme.PALETTE[1]
_TITLES = ("Predicted against measured, one mark a row", "Median error", "Inside the 80 % interval")


def scatter_traces() -> list:
    """Return the marks of each class, still empty, over the line and the ±20 % band."""
    edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
    fixed = [
        go.Scatter(x=_ENDS, y=_ENDS * (1 - BAND), **edge),
        go.Scatter(
            x=_ENDS, y=_ENDS * (1 + BAND), **edge, fill="tonexty",
            fillcolor="rgba(128,128,128,0.25)",
        ),
        go.Scatter(
            x=_ENDS, y=_ENDS, mode="lines", line={"color": theme.INK, "dash": "dash", "width": 1.5},
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
    hover = "%{y}: %{text}<extra></extra>"
    return [
        go.Bar(
            **look, name="prediction", marker={"color": _OURS}, hovertemplate=hover,
            showlegend=True,
        ),
        go.Bar(
            **look, name="bandwidth ÷ bytes", showlegend=True, hovertemplate=hover,
            marker={"color": _NAIVE, "pattern": {"shape": "/", "solidity": 0.3}},
        ),
    ]  # fmt: skip


def coverage_traces() -> list:
    """Return the marks of the coverage, still empty, and the line at 80 %."""
    line = {"color": theme.INK, "dash": "dash", "width": 1.5}
    return [
        go.Scatter(x=[0.8, 0.8], y=[-0.5, len(KINDS) - 0.5], mode="lines", line=line,
                   hoverinfo="skip", showlegend=False),
        go.Scatter(
            mode="markers+text", textposition="middle right", cliponaxis=False, showlegend=False,
            marker={"color": _OURS, "size": 10, "symbol": "diamond"},
            hovertemplate="%{y}: %{x:.0%} of %{customdata} rows<extra></extra>",
        ),
    ]  # fmt: skip


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
    line = {"y": [-0.5, max(len(names), 1) - 0.5]}
    return [line, {"y": names, "x": share, "text": text, "customdata": rows}]


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


def empty() -> go.Figure:
    """Return scatter, errors and coverage in one figure, still empty."""
    fig = make_subplots(
        rows=2, cols=2, specs=[[{"rowspan": 2}, {}], [None, {}]], column_widths=[0.56, 0.44],
        row_heights=[0.6, 0.4], horizontal_spacing=0.14, vertical_spacing=0.17,
        subplot_titles=_TITLES,
    )  # fmt: skip
    for drawn, row, col in ((scatter_traces, 1, 1), (bar_traces, 1, 2), (coverage_traces, 2, 2)):
        for trace in drawn():
            fig.add_trace(trace, row=row, col=col)
    ends = {"type": "log", "range": np.log10(_ENDS).tolist(), "dtick": 1, "exponentformat": "power"}
    fig.update_xaxes(ends | {"title": {"text": "measured [token/s]"}}, row=1, col=1)
    fig.update_yaxes(ends | {"title": {"text": "predicted [token/s]"}}, row=1, col=1)
    error = {
        "tickformat": ".0%",
        "range": [0, 2.2],
        "title": {"text": "|predicted ÷ measured − 1|"},
    }
    fig.update_xaxes(error, row=1, col=2)
    share = {"tickformat": ".0%", "range": [0, 1.12], "title": {"text": "share of rows"}}
    fig.update_xaxes(share, row=2, col=2)
    fig.update_yaxes({"type": "category", "autorange": "reversed", "showgrid": False}, col=2)
    fig.update_annotations(font_size=15, yshift=8)
    legend = {"x": 0.012, "y": 0.985, "yanchor": "top", "font": {"size": 12}, "itemclick": False,
              "itemdoubleclick": False}  # fmt: skip
    margin = {"l": 10, "r": 20, "t": 44, "b": 50}
    return fig.update_layout(
        template=theme.TEMPLATE, height=HEIGHT, showlegend=True, legend=legend, margin=margin
    )


def figure(found: xr.Dataset) -> go.Figure:
    """Draw it as a plain figure; argument as for `values`."""
    fig = empty()
    theme.fill(fig, values(found))
    return fig
