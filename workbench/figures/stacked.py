"""Wholes beside each other, each the sum of its parts: pale fills that ink stays legible on."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from workbench.figures import theme

ROOM = 1.3  # of the longest bar: the label of its sum needs it


def traces(names: Sequence[str], colours: Sequence[str], rows: Sequence[str]) -> list:
    """Return one trace a part, named for the legend, and the labels of the sums; all empty.

    Args:
        names, colours: of the parts, in the order they are stacked.
        rows: what each bar is.
    """
    bars = [
        go.Bar(
            name=name,
            orientation="h",
            y=list(range(len(rows))),
            marker=_look(i, colour),
            customdata=list(rows),
            hovertemplate=f"{name}: %{{x:.3g}}<extra>%{{customdata}}</extra>",
            insidetextanchor="middle",
            textposition="inside",
            showlegend=True,
        )
        for i, (name, colour) in enumerate(zip(names, colours, strict=True))
    ]
    sums = go.Scatter(
        mode="text",
        y=[*range(len(rows)), 0],
        textposition="middle right",
        hoverinfo="skip",
        cliponaxis=False,
        showlegend=False,
    )
    return [*bars, sums]


def values(parts: np.ndarray, sums: Sequence[str], reach: float = 0.0) -> list[dict]:
    """Return what the traces show.

    Args:
        parts: (part, row) in the unit of the axis.
        sums: (row,) labels.
        reach: something else on the axis that must stay in view.
    """
    total = parts.sum(0)
    wide = parts >= 0.05 * max(total.max(), reach)
    text = [
        [f"{value:.3g}" if shown else "" for value, shown in zip(*row, strict=True)]
        for row in zip(parts, wide, strict=True)
    ]
    bars = [{"x": list(x), "text": t} for x, t in zip(parts, text, strict=True)]
    end = max(total.max() * ROOM, reach)
    return [*bars, {"x": [*total, end], "text": [f" {label}" for label in sums] + [""]}]


def axes(rows: Sequence[str], title: str) -> dict[str, dict]:
    """Return the axes, the first row on top."""
    ticks = {"tickvals": list(range(len(rows))), "ticktext": list(rows)}
    look = {"range": [len(rows) - 0.5, -0.5], "showgrid": False, "zeroline": False}
    return {"xaxis": {"title": {"text": title}, "rangemode": "tozero"}, "yaxis": ticks | look}


def layout(title: str, height: int) -> dict:
    """Return the layout of a figure `height` px high on top of which such bars stand.

    A title, under it the parts by name in one line or two, under them the bars.
    """
    over = (height - 50 - 84) / 84  # of the plotting area, as Plotly counts
    legend = {
        "orientation": "h", "x": 0, "xanchor": "left", "y": 1 + 0.06 / over, "yanchor": "bottom",
        "traceorder": "normal", "itemclick": False, "itemdoubleclick": False,
        "font": {"size": 12},
    }  # fmt: skip
    heading = {"text": title, "y": 1 - 8 / height, "yanchor": "top"}
    margin = {"l": 10, "r": 10, "t": 84, "b": 50}
    return {
        "title": heading, "legend": legend, "margin": margin, "barmode": "stack",
        "showlegend": True,
    }  # fmt: skip


def _look(series: int, colour: str) -> dict:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    pattern = {"shape": theme.PATTERNS[series % len(theme.PATTERNS)], "solidity": 0.12}
    pattern |= {"fgcolor": colour, "fillmode": "overlay"}
    edge = {"color": colour, "width": 1.5}
    return {"color": f"rgba({red},{green},{blue},0.45)", "line": edge, "pattern": pattern}
