"""Time of a token over the bytes it reads: measured tokens, and the lines they fall on (M02)."""

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from workbench.figures import theme
from workbench.hardware.affine import Line, token_time

_GB, _MS = theme.SHOWN["GB"], theme.SHOWN["ms"]
_BLUE, _ORANGE = theme.PALETTE[0], theme.PALETTE[1]


def traces() -> list:
    """Return the traces, still empty: measured tokens, their line, the law, the token now."""
    hover = "%{x:.3g} GB, %{y:.3g} ms<extra></extra>"
    text = {"mode": "lines+text", "cliponaxis": False, "hoverinfo": "skip", "showlegend": False}
    return [
        go.Scatter(
            mode="markers", showlegend=False, marker={"color": theme.INK, "size": 8, "opacity": 0.7},
            hovertemplate="%{customdata}<br>" + hover,
        ),
        go.Scatter(
            **text, line={"color": theme.INK, "dash": "dash", "width": 2},
            textposition="top left",
        ),
        go.Scatter(**text, line={"color": _BLUE, "width": 3}, textposition="bottom right"),
        go.Scatter(
            mode="markers", showlegend=False, hovertemplate="this token: " + hover,
            marker={"color": _ORANGE, "size": 13, "symbol": "diamond"},
        ),
    ]  # fmt: skip


def axes() -> dict[str, dict]:
    """Return the axes, both from zero: the height at no bytes is what is to be read off."""
    x = {"title": {"text": "bytes read per token [GB]"}, "rangemode": "tozero"}
    return {"xaxis": x, "yaxis": {"title": {"text": "time [ms]"}, "rangemode": "tozero"}}


def values(points: xr.Dataset, fitted: Line | None, law: Line, here: tuple) -> list[dict]:
    """Return what the traces show.

    Args:
        points: `size_bytes`, `time_s` and `label` over `point`.
        fitted: the least-squares line through them, if there is one.
        law: the line to compare with.
        here: (bytes, s) of the token now.
    """
    end = max(points.size_bytes.values.max(initial=0.0), here[0]) * 1.1
    marks = {"x": points.size_bytes.values / _GB, "y": points.time_s.values / _MS}
    nothing = {"x": [], "y": [], "text": []}
    return [
        marks | {"customdata": points.label.values},
        nothing if fitted is None else _line(fitted, end, "measured: ", at=0.85),
        _line(law, end, "", at=0.45),
        {"x": [here[0] / _GB], "y": [here[1] / _MS]},
    ]


def figure(tables: dict[str, xr.Dataset]) -> go.Figure:
    """Draw measured tokens and their lines, one colour, marker and dash a table.

    Args:
        tables: name -> what `hardware.affine.affine` returned.
    """
    drawn = [t for i, (name, ds) in enumerate(tables.items()) for t in _series(i, name, ds)]
    title = {"text": "A token takes a fixed time, and its bytes over a bandwidth"}
    return theme.figure(drawn, **axes(), height=420, title=title)


def words(line: Line) -> str:
    """Return a line as text: "49 ms + S ÷ 102 GB/s"."""
    return f"{line.t0 / _MS:.3g} ms + S ÷ {line.bandwidth / theme.SHOWN['GB/s']:.3g} GB/s"


def _line(line: Line, end: float, name: str, at: float = 1.0) -> dict:
    """Return a line to `end` bytes, labelled at that share of its length."""
    x = np.array([0.0, at * end, end])
    text = ["", f" {name}{words(line)} ", ""]
    return {"x": x / _GB, "y": token_time(x, line) / _MS, "text": text}


def _series(index: int, name: str, ds: xr.Dataset) -> list[go.Scatter]:
    look, line = theme.line(index), Line(float(ds.t0_s), float(ds.bandwidth))
    end = float(ds.size_bytes.max()) * 1.1
    marks = go.Scatter(
        x=ds.size_bytes.values / _GB, y=ds.time_s.values / _MS, mode="markers",
        marker=look["marker"] | {"size": 10},
        hovertemplate=f"{name}: %{{x:.3g}} GB, %{{y:.3g}} ms<extra></extra>",
    )  # fmt: skip
    # Neighbours are labelled on either side, so that no label lies on another line.
    above = index % 2 == 0
    drawn = _line(line, end, f"{name}: ", at=0.8 if above else 0.5)
    fitted = go.Scatter(
        **drawn, mode="lines+text", line=look["line"], textposition="top left" if above else "bottom right",
        hoverinfo="skip", cliponaxis=False,
    )  # fmt: skip
    return [fitted, marks]
