"""The roofline: what memory and arithmetic allow at each intensity, and where the work lies (M01)."""

import math

import plotly.graph_objects as go
import xarray as xr

from workbench.figures import theme

TITLE = "What memory and arithmetic allow"
LOW, HIGH = 0.25, 16_384.0  # FLOP/byte; one range for all, so that two machines compare by eye
_BLUE, _ORANGE = theme.PALETTE[0], theme.PALETTE[1]


def traces() -> list:
    """Return the traces, still empty: roof, roof at the efficiency, ridge, operations."""
    text = {"mode": "lines+text", "cliponaxis": False, "hoverinfo": "skip"}
    return [
        go.Scatter(
            **text, showlegend=False, line={"color": theme.INK, "dash": "dash", "width": 2}, textposition="top center"
        ),
        go.Scatter(mode="lines", showlegend=False, hoverinfo="skip", line={"color": _BLUE, "width": 3}),
        go.Scatter(
            **text, showlegend=False, line={"color": theme.INK, "dash": "dot", "width": 1},
            textposition="bottom right",
        ),
        go.Scatter(
            mode="markers+text", showlegend=False, cliponaxis=False, textposition="bottom right",
            marker={"color": _ORANGE, "size": 11, "symbol": "diamond"},
            hovertemplate="%{text}: %{x:.3g} FLOP/byte, %{y:.3g} TFLOP/s<extra></extra>",
        ),
    ]  # fmt: skip


def axes() -> dict[str, dict]:
    """Return the axes, both logarithmic."""
    x = {"type": "log", "range": [math.log10(LOW), math.log10(HIGH)], "dtick": 1}
    x |= {"title": {"text": theme.axis_title("arithmetic_intensity")}}
    y = {"type": "log", "title": {"text": "speed [TFLOP/s]"}, "tickformat": "~g", "dtick": "D2"}
    return {"xaxis": x, "yaxis": y}


def values(points: xr.Dataset, bandwidth: float, flops: float, efficiency: float) -> list[dict]:
    """Return what the traces show.

    Args:
        points: what `study.token_ledger.operations` returned.
        bandwidth: B/s, as specified.
        flops: FLOP/s, as specified.
        efficiency: share of the bandwidth at which weights are read.
    """
    tera = theme.SHOWN["TFLOP/s"]
    ridge, peak = flops / bandwidth, flops / tera
    roof = {
        "x": [LOW, ridge, HIGH],
        "y": [LOW * bandwidth / tera, peak, peak],
        "text": ["", "", ""],
    }
    read = bandwidth * efficiency
    lower = {"x": [LOW, flops / read, HIGH], "y": [LOW * read / tera, peak, peak]}
    drop = {"x": [ridge, ridge], "y": [peak, LOW * bandwidth / tera]}
    drop |= {"text": ["", f" ridge {ridge:.3g}"]}
    names = [n if n == "prefill" else f"batch {n}" for n in points.point.values]
    marks = {"x": points.arithmetic_intensity.values, "y": points.rate.values / tera}
    return [roof, lower, drop, marks | {"text": names}]


def figure(points: xr.Dataset, bandwidth: float, flops: float, efficiency: float) -> go.Figure:
    """Draw it as a plain figure; arguments as for `values`."""
    shown = values(points, bandwidth, flops, efficiency)
    return theme.figure(traces(), shown, **axes(), height=420, title={"text": TITLE})
