"""The live figure: what reaches the browser is what the figure has become, and no more."""

import gzip
import json
import math

import ipywidgets as widgets
import numpy as np
import plotly.graph_objects as go
import pytest
from plotly.offline import get_plotlyjs

from workbench.panels.plot import Plot


@pytest.fixture
def plot():
    return Plot(go.Figure([go.Bar(x=["a", "b"], y=[1, 2]), go.Scatter(y=[3.0, 4.0])]))


def seen(plot):
    """Return traces and layout as plot.js puts them together."""
    traces = zip(plot.first["data"], plot.patch["data"], strict=True)
    return [a | b for a, b in traces], plot.first["layout"] | plot.patch["layout"]


def test_first_message_needs_no_patch(plot):
    data, layout = seen(plot)
    assert data == json.loads(plot.fig.to_json())["data"]
    assert plot.patch == {"data": [{}, {}], "layout": {}}


def test_patch_holds_only_what_is_different(plot):
    plot.fig.data[0].y = [5, 6]
    plot.fig.update_layout(height=300)
    plot.show()
    assert plot.patch == {"data": [{"y": [5, 6]}, {}], "layout": {"height": 300}}


def test_only_the_newest_patch_counts(plot):
    """A browser that missed the one before shows the same: no change is lost, none stays."""
    plot.fig.data[0].y = [5, 6]
    plot.show()
    plot.fig.data[0].y = [1, 2]
    plot.fig.data[1].marker.color = "red"
    plot.show()
    assert seen(plot)[0] == json.loads(plot.fig.to_json())["data"]
    assert plot.patch["data"][0] == {}


def test_what_is_taken_away_is_gone(plot):
    plot.fig.data[0].x = None
    plot.show()
    assert seen(plot)[0][0]["x"] is None


def test_one_message_a_redraw_and_none_without_a_change(plot):
    sent = []
    plot.observe(sent.append, "patch")
    plot.show()
    assert sent == []
    plot.fig.data[0].y, plot.fig.layout.height = [5, 6], 300
    plot.fig.data[1].y = np.array([1.0, math.nan])
    plot.show()
    assert len(sent) == 1
    json.dumps(plot.patch, allow_nan=False)


def test_plotly_is_shared_by_all_figures(plot):
    other = Plot(go.Figure(go.Bar()))
    assert other.library is plot.library
    assert gzip.decompress(plot.library.code).decode() == get_plotlyjs()
    assert len(json.dumps(other.get_state(["first", "patch", "_esm"]))) < 20_000


def test_plotly_is_there_after_every_widget_was_closed(plot):
    widgets.Widget.close_all()
    assert Plot(go.Figure(go.Bar())).library.comm is not None
