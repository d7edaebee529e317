"""Speed over the memory that weights may take: flat, a cliff, and what lies beyond it (M23)."""

import math

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from workbench.figures import theme

TITLE = "Speed over the memory that weights may take"
SIZES = tuple(2 ** (n / 8) for n in range(16, 73))  # GiB
_BLUE, _ORANGE, _GREEN, _RED = theme.PALETTE[:4]
_LOOKS = ((_RED, "solid"), (_BLUE, "dot"), (_GREEN, "dash"))  # of the pagers
_APART = 0.2  # decades between two texts
_TICKS = tuple(2**n for n in range(2, 10))


def traces() -> list:
    """Return the traces, still empty: a line for each pager, the weights, and now."""
    lines = [
        go.Scatter(
            mode="lines", showlegend=True, line={"color": colour, "dash": dash, "width": 3},
            hovertemplate="%{x:.3g} GiB: %{y:.3g} tok/s<extra></extra>",
        )
        for colour, dash in _LOOKS
    ]  # fmt: skip
    weights = go.Scatter(
        mode="lines+text", showlegend=False, hoverinfo="skip", cliponaxis=False,
        line={"color": theme.INK, "dash": "dot", "width": 2}, textposition="top center",
    )  # fmt: skip
    now = go.Scatter(
        mode="markers+text", showlegend=False, hoverinfo="skip", cliponaxis=False,
        marker={"color": _ORANGE, "size": 13, "symbol": "diamond"}, textposition="top right",
    )  # fmt: skip
    return [*lines, weights, now]


def axes() -> dict[str, dict]:
    """Return the axes."""
    ends = [math.log10(SIZES[0] * 0.93), math.log10(SIZES[-1] * 1.07)]
    y = {"type": "log", "range": [-2.2, 3.0], "title": {"text": theme.axis_title("tok_s")}}
    ticks = [10.0**n for n in range(-2, 4)]
    return {
        "xaxis": {"type": "log", "range": ends, "tickvals": list(_TICKS), "ticktext": list(map(str, _TICKS)),
                  "title": {"text": "memory that weights may take [GiB]"}},
        "yaxis": y | {"tickvals": ticks, "ticktext": [f"{t:g}" for t in ticks]},
    }  # fmt: skip


def values(curve: xr.Dataset, now: xr.Dataset, memory: float) -> list[dict]:
    """Return what the traces show.

    Args:
        curve: `study.pressure.under_pressure` over memory.
        now: the same for one memory.
        memory: its bytes.
    """
    sizes = curve.memory.values / theme.SHOWN["GiB"]
    rows = curve.tok_s.transpose("pager", "memory").values
    weights, here = (x / theme.SHOWN["GiB"] for x in (curve.working_bytes.item(), memory))
    speeds = now.tok_s.values
    said, where = _said(speeds, "right" if here < 7 else "left")
    return [
        *(
            {"x": sizes, "y": row, "name": str(name)}
            for row, name in zip(rows, curve.pager.values, strict=True)
        ),
        {"x": [weights, weights], "y": [10**-2.2, 10**2.85], "text": ["", f"all weights: {weights:.3g} GiB"]},
        {"x": [here] * len(speeds), "y": speeds, "text": said, "textposition": where},
    ]  # fmt: skip


def _said(speeds: np.ndarray, side: str) -> tuple[list[str], list[str]]:
    """Return the text of each speed and its place, without those that would lie on another."""
    said, lowest = [], speeds[0]
    for n, speed in enumerate(speeds):
        shown = n == 0 or math.log10(speed / lowest) > _APART
        lowest = speed if shown else lowest
        said.append(f"<b>{speed:.3g} tok/s</b>" if shown else "")
    middle = [f"middle {side}"] * (len(speeds) - 2)
    return said, [f"bottom {side}", *middle, f"top {side}"]


def empty() -> go.Figure:
    """Return the figure, still empty."""
    legend = {
        "x": 0.99,
        "y": 0.05,
        "xanchor": "right",
        "yanchor": "bottom",
        "bgcolor": "rgba(0,0,0,0)",
    }
    return theme.figure(
        traces(), **axes(), height=430, title={"text": TITLE}, showlegend=True, legend=legend
    )


def measured(ds: xr.Dataset) -> go.Figure:
    """Draw published speeds under pressure beside the predicted ones.

    Args:
        ds: `hardware.pressure.measured`.
    """
    names = [str(row).replace(", ", "<br>", 1) for row in ds.row.values]
    bars = [
        go.Bar(
            x=names, y=values.values, name=name, text=[f"{v:.2g}" for v in values.values], textposition="outside",
            cliponaxis=False, marker={"color": colour, "pattern": {"shape": pattern}},
            hovertemplate="%{x}: %{y:.3g} tok/s<extra>" + name + "</extra>",
        )
        for values, name, colour, pattern in (
            (ds.measured, "measured", _ORANGE, "/"), (ds.predicted, "predicted", _BLUE, ""),
        )
    ]  # fmt: skip
    ticks = [0.01, 0.1, 1, 10]
    y = {"type": "log", "range": [-2, 1.2], "tickvals": ticks, "ticktext": [f"{t:g}" for t in ticks],
         "title": {"text": theme.axis_title(ds.measured)}}  # fmt: skip
    legend = {"x": 1, "y": 1.02, "xanchor": "right", "yanchor": "bottom", "orientation": "h"}
    title = {"text": "Models larger than the memory"}
    return theme.figure(
        bars, yaxis=y, xaxis={"showgrid": False}, height=380, title=title, showlegend=True,
        legend=legend, margin={"t": 60, "b": 80},
    )  # fmt: skip
