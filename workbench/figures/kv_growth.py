"""The size of a KV cache over the tokens it holds: a straight line, and what n² would be (M34)."""

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from workbench.figures import theme

_MB = 1e6


def figure(kv: xr.Dataset) -> go.Figure:
    """Draw the cache as recorded, the line through its ends, and a square through its start.

    Args:
        kv: what `study.capacity.measured_kv` returned.
    """
    x, y = kv.context.values, kv.kv_bytes.values / _MB
    straight = y[0] + (y[-1] - y[0]) * (x - x[0]) / (x[-1] - x[0])
    square = y[0] * (x / x[0]) ** 2
    shown = square <= 1.15 * y.max()
    label = {"mode": "lines+text", "cliponaxis": False, "hoverinfo": "skip"}
    drawn = [
        go.Scatter(
            x=x[shown], y=square[shown], **label, textposition="middle right",
            text=["" for _ in x[shown][:-1]] + [" if it grew with n²"],
            line={"color": theme.PALETTE[3], "dash": "dot", "width": 2},
        ),
        go.Scatter(
            x=x, y=straight, **label, textposition="top left",
            text=["" for _ in x[:-1]] + ["straight line through both ends "],
            line={"color": theme.INK, "dash": "dash", "width": 2},
        ),
        go.Scatter(
            x=x, y=y, mode="markers", marker={"color": theme.PALETTE[0], "size": 7},
            hovertemplate="%{x:,.0f} tokens: %{y:,.1f} MB<extra></extra>",
        ),
    ]  # fmt: skip
    axes = {
        "xaxis": {"title": {"text": theme.axis_title("context")}, "range": [0, x.max() * 1.05]},
        "yaxis": {"title": {"text": "KV cache [MB]"}, "range": [0, np.max(y) * 1.2]},
    }
    title = {"text": f"{kv.attrs['model']}, as recorded in {kv.attrs['source']}"}
    return theme.figure(drawn, **axes, height=380, title=title)
