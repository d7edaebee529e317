"""A live figure: plotly.js once a page, and one message a redraw with what is different."""

import base64
import functools
import gzip
import json
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets as widgets
import numpy as np
import plotly.graph_objects as go
import traitlets
from plotly.offline import get_plotlyjs
from plotly.utils import PlotlyJSONEncoder

_ENCODER = PlotlyJSONEncoder()


class _Library(widgets.Widget):
    """plotly.js, which every figure of a kernel points to and the first on a page loads."""

    code = traitlets.Bytes().tag(sync=True)


class Plot(anywidget.AnyWidget):
    """A Plotly figure in the notebook: change `fig`, then `show()` what has changed.

    Plotly's own FigureWidget brings 5 MB of plotly.js for each figure and answers every change
    with all that Plotly made of it.
    """

    _esm = Path(__file__).parent / "plot.js"
    library = traitlets.Instance(_Library).tag(sync=True, **widgets.widget_serialization)
    #: The figure as it was at first; `patch` is told apart from it, so that only the newest counts.
    first = traitlets.Dict().tag(sync=True)
    patch = traitlets.Dict().tag(sync=True)

    def __init__(self, fig: go.Figure):
        """Show `fig`, whose traces stay the same in number."""
        self.fig = fig
        first = _plain(fig)
        super().__init__(library=_library(), first=first, patch=_difference(first, first))

    @property
    def data(self) -> tuple:
        """The traces of `fig`."""
        return self.fig.data

    @property
    def layout(self) -> go.Layout:
        """The layout of `fig`."""
        return self.fig.layout

    def show(self) -> None:
        """Send what is different in `fig`, in one message; nothing if nothing is."""
        self.patch = _difference(self.first, _plain(self.fig))


def _library() -> _Library:
    if _open_library().comm is None:  # somebody closed every widget
        _open_library.cache_clear()
    return _open_library()


@functools.cache
def _open_library() -> _Library:
    return _Library(code=gzip.compress(get_plotlyjs().encode(), compresslevel=1))


def _plain(fig: go.Figure) -> dict[str, Any]:
    """Return the figure as JSON has it, in a third of the time that Plotly takes."""
    traces: Any = fig.data
    parts = {
        "data": [trace.to_plotly_json() for trace in traces],
        "layout": fig.layout.to_plotly_json(),
    }
    # What is no number is null in JSON.
    return json.loads(json.dumps(parts, default=_encoded), parse_constant=lambda _: None)


def _encoded(value: Any) -> Any:
    """Return arrays of numbers as plotly.js reads them fastest, anything else as Plotly does."""
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiu" or value.ndim > 2:
        return _ENCODER.default(value)
    numbers = np.ascontiguousarray(value, dtype="<f8")
    shape = {"shape": ", ".join(map(str, value.shape))} if value.ndim == 2 else {}
    return {"dtype": "f8", "bdata": base64.b64encode(numbers).decode()} | shape


def _difference(first: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Return the properties of traces and layout that are not as at first."""
    traces = zip(first["data"], now["data"], strict=True)
    return {
        "data": [_changed(*pair) for pair in traces],
        "layout": _changed(first["layout"], now["layout"]),
    }


def _changed(first: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    gone = dict.fromkeys(first.keys() - now.keys())
    return gone | {name: now[name] for name in now if now[name] != first.get(name)}
