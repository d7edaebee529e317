"""The look that figures share: units on axes, colours that survive colour blindness, whole updates."""

import plotly.graph_objects as go
import pytest
import xarray as xr

from workbench import results
from workbench.figures import theme


def test_axis_title_is_long_name_and_unit():
    speed = results.dataset({"decode_tok_s": 1.0}).decode_tok_s
    assert theme.axis_title(speed) == "decode speed [token/s]"
    assert theme.axis_title("decode_tok_s") == "decode speed [token/s]"
    assert theme.axis_title("time_s", "ms") == "time of one decode step [ms]"
    assert theme.axis_title("share") == "share of the token's time"


def test_axis_title_of_foreign_array():
    array = xr.DataArray(0.0, attrs={"units": "W", "long_name": "power"})
    assert theme.axis_title(array) == "power [W]"


def test_no_two_series_differ_by_colour_alone():
    looks = [str(theme.line(n)) for n in range(len(theme.PALETTE))]
    without_colour = [
        look.replace(colour, "") for look, colour in zip(looks, theme.PALETTE, strict=True)
    ]
    assert len(set(without_colour)) == len(theme.PALETTE)


def test_palette_is_okabe_ito_without_yellow():
    """Okabe and Ito, Color Universal Design (2008): the hex values they publish."""
    published = {"#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7"}
    assert set(theme.PALETTE) - {theme.INK} == published


def test_paper_is_transparent():
    fig = theme.figure([go.Bar(x=[1], y=[1])])
    assert fig.layout.template.layout.paper_bgcolor == "rgba(0,0,0,0)"
    assert fig.layout.template.layout.plot_bgcolor == "rgba(0,0,0,0)"


def test_fill_keeps_what_it_is_not_given():
    fig = go.Figure([go.Scatter(y=[1, 2], textposition="middle right"), go.Scatter()])
    theme.fill(fig, [{"x": [5, 6]}, {"y": [3, 4], "x": [0, 1]}])
    assert list(fig.data[0].x) == [5, 6] and list(fig.data[0].y) == [1, 2]
    assert fig.data[0].textposition == "middle right"
    assert list(fig.data[1].y) == [3, 4]


def test_fill_needs_values_for_every_trace():
    with pytest.raises(ValueError, match="values for 1 traces; the figure has 2"):
        theme.fill(go.Figure([go.Bar(), go.Bar()]), [{"x": [1]}])
