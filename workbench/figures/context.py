"""Speed as the conversation grows: prediction, 80 % interval, and the line without overheads."""

import math

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from workbench.figures import theme

LOW, HIGH = 256, 262_144  # tokens; one range for all, so that two machines can be compared by eye
_TICKS = [2**n for n in range(8, 19, 2)]
_BLUE, _GREY, _RED = theme.PALETTE[0], theme.INK, theme.PALETTE[3]


def traces() -> list:
    """Return the traces, still empty: interval, naive line, prediction, memory limit, marks.

    The marks are where it stands now and the names of the lines: a trace less is a quicker redraw.
    """
    tokens = "%{x:,.0f} tokens: %{y:.3g} tok/s<extra></extra>"
    plain = {"mode": "lines", "hoverinfo": "skip"}
    return [
        go.Scatter(**plain, line={"width": 0}, fill="toself", fillcolor="rgba(0,114,178,0.22)"),
        go.Scatter(
            mode="lines", line={"color": _GREY, "dash": "dash", "width": 2},
            hovertemplate="bandwidth ÷ weight bytes: %{y:.3g} tok/s<extra></extra>",
        ),
        go.Scatter(mode="lines", line={"color": _BLUE, "width": 3}, hovertemplate=tokens),
        go.Scatter(**plain, line={"color": _RED, "dash": "dot", "width": 2}),
        go.Scatter(
            mode="markers+text", hoverinfo="skip",
            marker={"color": _BLUE, "size": [13, 0, 0, 0], "opacity": 1, "line": {"width": 0}},
            textposition=["top right", "bottom right", "top right", "bottom left"], cliponaxis=False,
        ),
    ]  # fmt: skip


def axes() -> dict[str, dict]:
    """Return the axes."""
    ticktext = [f"{n // 1024}k" if n >= 1024 else str(n) for n in _TICKS]
    x = {
        "type": "log",
        "range": [math.log10(LOW * 0.9), math.log10(HIGH * 1.1)],
        "tickvals": _TICKS,
    }
    x |= {"ticktext": ticktext, "title": {"text": theme.axis_title("context")}}
    y = {"rangemode": "tozero", "title": {"text": theme.axis_title("decode_tok_s")}}
    return {"xaxis": x, "yaxis": y}


def values(curve: xr.Dataset, now: xr.Dataset) -> list[dict]:
    """Return what the traces show.

    Args:
        curve: `predict` over the dimension context.
        now: the configuration to mark on it.
    """
    x = curve.context.values
    fits = np.isfinite(curve.upper.values)  # a gap would cut the band in two
    low, high = curve.lower.values[fits], curve.upper.values[fits]
    naive = float(curve.naive_tok_s.max())
    full = _memory_full(curve)
    here = now.decode_tok_s.item()
    names = ["80 % interval", "without overheads: bandwidth ÷ bytes", "memory full "]
    return [
        {"x": np.append(x[fits], x[fits][::-1]), "y": np.append(high, low[::-1])},
        {"x": [LOW, HIGH], "y": [naive, naive]},
        {"x": x, "y": curve.decode_tok_s.values},
        {"x": [full, full], "y": [naive, 0.0]},
        {
            "x": [now.context.item(), LOW, LOW, full],
            "y": [here, low[0] if low.size else None, naive, naive],
            "text": [f"<b>{here:.3g} tok/s</b>", *names],
        },
    ]


def figure(curve: xr.Dataset, now: xr.Dataset) -> go.Figure:
    """Draw speed over context; arguments as for `values`."""
    title = {"text": "Speed as the conversation grows"}
    return theme.figure(traces(), values(curve, now), **axes(), height=420, title=title)


def _memory_full(curve: xr.Dataset) -> float | None:
    """Return the context at which the memory is full, None where it is off the axis."""
    longest = float(curve.max_context.max())
    return longest if LOW <= longest <= HIGH else None
