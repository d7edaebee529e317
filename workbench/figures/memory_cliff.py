"""Speed over the memory of the machine: flat where the model fits, a cliff where it does not."""

import math

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from workbench.figures import theme

TITLE = "Speed over memory"
SIZES = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512)  # GiB
_TICKS = [2**n for n in range(2, 10)]
_BLUE, _ORANGE, _RED = theme.PALETTE[0], theme.PALETTE[1], theme.PALETTE[3]


def traces() -> list:
    """Return the traces, still empty: fits, spills, not held, the machine now."""
    hover = "%{x:.0f} GiB: %{y:.3g} tok/s<extra></extra>"
    return [
        go.Scatter(
            showlegend=False, mode="lines+markers", line={"color": _BLUE, "width": 3}, hovertemplate=hover,
            marker={"color": _BLUE, "size": 7}, connectgaps=False,
        ),
        go.Scatter(
            showlegend=False, mode="lines+markers", line={"color": _BLUE, "width": 2, "dash": "dot"},
            marker={"symbol": "circle-open", "size": 8}, hovertemplate="spilled, " + hover,
        ),
        go.Scatter(
            showlegend=False, mode="markers", marker={"color": _RED, "symbol": "x", "size": 9}, cliponaxis=False,
            hovertemplate="%{x:.0f} GiB: does not fit<extra></extra>",
        ),
        go.Scatter(
            showlegend=False, mode="markers+text", marker={"color": _ORANGE, "size": 14, "symbol": "diamond"},
            textposition="top center", cliponaxis=False, hovertemplate="set above, " + hover,
        ),
    ]  # fmt: skip


def axes() -> dict[str, dict]:
    """Return the axes."""
    ends = [math.log10(SIZES[0] * 0.85), math.log10(SIZES[-1] * 1.15)]
    x = {"type": "log", "range": ends, "tickvals": _TICKS, "ticktext": list(map(str, _TICKS))}
    x |= {"title": {"text": "memory of the machine [GiB]"}}
    return {
        "xaxis": x,
        "yaxis": {"rangemode": "tozero", "title": {"text": theme.axis_title("decode_tok_s")}},
    }


def values(curve: xr.Dataset, now: xr.Dataset, memory: float) -> list[dict]:
    """Return what the traces show.

    Args:
        curve: what `study.capacity.speed_by_memory` returned.
        now: one configuration of `predict`.
        memory: bytes of its machine.
    """
    sizes = curve.memory.values / theme.SHOWN["GiB"]
    speed, fits = curve.decode_tok_s.values, curve.fits.values
    first = int(np.argmax(fits)) if fits.any() else len(fits)
    lost = np.isnan(speed)
    here, runs = now.decode_tok_s.item(), now.fits.item()
    return [
        {"x": sizes, "y": np.where(fits, speed, np.nan)},
        {"x": sizes[: first + 1], "y": speed[: first + 1]},
        {"x": sizes[lost], "y": np.zeros(lost.sum())},
        {
            "x": [memory / theme.SHOWN["GiB"]],
            "y": [here if runs else 0.0],
            "text": [f"<b>{here:.3g} tok/s</b>" if runs else "<b>does not fit</b>"],
        },
    ]


def figure(curve: xr.Dataset, now: xr.Dataset, memory: float) -> go.Figure:
    """Draw it as a plain figure; arguments as for `values`."""
    title = {"text": TITLE}
    shown = values(curve, now, memory)
    return theme.figure(traces(), shown, **axes(), height=380, title=title)
