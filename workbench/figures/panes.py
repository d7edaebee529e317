"""Several views in one figure: one live figure costs far less than three."""

from collections.abc import Iterable
from typing import NamedTuple

import plotly.graph_objects as go

from workbench.figures import theme


class Pane(NamedTuple):
    """A view and its place; the title stands over its left edge."""

    row: int
    col: int
    traces: list
    axes: dict[str, dict]
    title: str = ""


def place(fig: go.Figure, panes: Iterable[Pane], **layout) -> go.Figure:
    """Put views into the subplots of `fig`, in the house style.

    Args:
        fig: from `make_subplots`.
        panes: what to put where.
        layout: as Plotly's update_layout.
    """
    for pane in panes:
        where = {"row": pane.row, "col": pane.col}
        for trace in pane.traces:
            fig.add_trace(trace, **where)
        fig.update_xaxes(pane.axes["xaxis"], **where)
        fig.update_yaxes(pane.axes["yaxis"], **where)
        if pane.title:
            fig.add_annotation(
                text=pane.title, x=0, y=1, xref="x domain", yref="y domain", showarrow=False,
                xanchor="left", yanchor="bottom", yshift=8, font_size=15, **where,
            )  # fmt: skip
    return fig.update_layout(template=theme.TEMPLATE, **layout)
