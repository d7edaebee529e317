"""Speed as the conversation grows: prediction, 80 % interval, and the line without overheads."""

import math

import plotly.graph_objects as go
import xarray as xr

from workbench.figures import theme

LOW, HIGH = 256, 262_144  # tokens; one range for all, so that two machines can be compared by eye
_TICKS = [2**n for n in range(8, 19, 2)]
_BLUE, _GREY, _RED = theme.PALETTE[0], theme.INK, theme.PALETTE[3]


def traces() -> list:
    """Return the traces, still empty: interval, naive line, prediction, memory limit, now."""
    edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
    band = {"fill": "tonexty", "fillcolor": "rgba(0,114,178,0.22)"}
    tokens = "%{x:,.0f} tokens: %{y:.3g} tok/s<extra></extra>"
    text = {"mode": "lines+text", "cliponaxis": False}
    return [
        go.Scatter(**edge),
        go.Scatter(**edge | band | text, textposition="bottom right"),
        go.Scatter(
            **text, line={"color": _GREY, "dash": "dash", "width": 2}, textposition="top right",
            hovertemplate="bandwidth ÷ weight bytes: %{y:.3g} tok/s<extra></extra>",
        ),
        go.Scatter(mode="lines", line={"color": _BLUE, "width": 3}, hovertemplate=tokens),
        go.Scatter(
            **text, line={"color": _RED, "dash": "dot", "width": 2}, textposition="bottom left",
            hoverinfo="skip",
        ),
        go.Scatter(
            mode="markers+text", marker={"color": _BLUE, "size": 13}, cliponaxis=False,
            textposition="top right",
            hovertemplate=tokens,
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
    naive = float(curve.naive_tok_s.max())
    full = _memory_full(curve)
    here = now.decode_tok_s.item()
    return [
        {"x": x, "y": curve.upper.values},
        {"x": x, "y": curve.lower.values, "text": ["80 % interval"]},
        {"x": [LOW, HIGH], "y": [naive, naive], "text": ["without overheads: bandwidth ÷ bytes"]},
        {"x": x, "y": curve.decode_tok_s.values},
        {"x": [full, full], "y": [naive, 0.0], "text": ["memory full "]},
        {"x": [now.context.item()], "y": [here], "text": [f"<b>{here:.3g} tok/s</b>"]},
    ]


def figure(curve: xr.Dataset, now: xr.Dataset) -> go.Figure:
    """Draw speed over context; arguments as for `values`."""
    title = {"text": "Speed as the conversation grows"}
    return theme.figure(traces(), values(curve, now), **axes(), height=420, title=title)


def _memory_full(curve: xr.Dataset) -> float | None:
    """Return the context at which the memory is full, None where it is off the axis."""
    longest = float(curve.max_context.max())
    return longest if LOW <= longest <= HIGH else None
