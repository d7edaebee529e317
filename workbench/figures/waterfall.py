"""Parts of a whole, each bar starting where the one above it ended, named and labelled directly."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

ROOM = 1.42  # of the whole: the labels to the right of the bars need it


def traces(names: Sequence[str], colours: Sequence[str]) -> list[go.Bar | go.Scatter]:
    """Return the bars, the last of which is the whole, and their labels; both still empty."""
    rows = list(range(len(names)))
    bars = go.Bar(
        orientation="h",
        y=rows,
        customdata=list(names),
        hovertemplate="%{customdata}: %{x:.3g}<extra></extra>",
        marker={"color": list(colours), "line": {"width": 0}},
    )
    # An empty label at the far right keeps room for the others.
    labels = go.Scatter(
        mode="text", y=[*rows, 0], textposition="middle right", hoverinfo="skip", cliponaxis=False
    )
    return [bars, labels]


def values(parts: np.ndarray, text: Sequence[str], reach: float = 0.0) -> list[dict]:
    """Return what the traces show.

    Args:
        parts: (part,) in the unit of the axis.
        text: (part + 1,) labels, the whole's last.
        reach: something else on the axis that must stay in view.
    """
    ends = np.cumsum(parts)
    whole = float(ends[-1])
    return [
        {"x": [*parts, whole], "base": [0.0, *ends[:-1], 0.0]},
        {"x": [*ends, whole, max(whole * ROOM, reach)], "text": [f" {t}" for t in text] + [""]},
    ]


def axes(names: Sequence[str], title: str, top: float = 0.0) -> dict[str, dict]:
    """Return the axes; `top` rows of room above the first bar."""
    ticks = {"tickvals": list(range(len(names))), "ticktext": list(names)}
    rows = {"range": [len(names) - 0.4, -0.6 - top], "showgrid": False, "zeroline": False}
    size = {"title": {"text": title}, "rangemode": "tozero", "nticks": 5, "showgrid": False}
    return {"xaxis": size, "yaxis": ticks | rows}
