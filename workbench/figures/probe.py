"""What this machine measured: bandwidth by threads and stride, the disk by block and queue depth."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from workbench.figures import theme
from workbench.figures.panes import Pane, place
from workbench.units import human_bytes

_ROW, _TOP, _BOTTOM, _GAP = 290, 80, 60, 125  # px: of a row of panes, around all, between two
_LABELS = 6  # along an axis at most: they stay apart in half of a narrow notebook
_OVER = 26  # px that a title stands over the legend
_LEGEND = {"orientation": "h", "yanchor": "bottom", "xanchor": "left", "font": {"size": 12},
           "itemclick": False, "itemdoubleclick": False}  # fmt: skip


class _View(NamedTuple):
    """A variable over one of its dims, a line for each label of the other."""

    variable: str
    across: str
    by: str
    title: str
    name: Callable  # of a line, from its label
    log: bool  # the vertical axis; the other one always is


VIEWS = (
    _View("stream_bandwidth", "threads", "kernel", "Streaming", str, False),
    _View("strided_bandwidth", "stride", "threads", "4 bytes of every stride",
          lambda n: f"{n} thread" + "s" * (n > 1), True),
    _View("latency_s", "working_set", "page_size", "Reads that wait for one another",
          lambda n: f"{human_bytes(n)} pages", True),
    _View("read_bandwidth", "block_size", "cache_state", "File from end to end", str, True),
    _View("iops", "queue_depth", "", "Random reads of 4 KiB", str, True),
)  # fmt: skip


def figure(ds: xr.Dataset) -> go.Figure:
    """Draw every curve that a probe, or a survey, measured.

    Args:
        ds: what a probe of `workbench.probe` or its `survey` returned.

    Raises:
        ValueError: it has none of these curves.
    """
    views = [
        view for view in VIEWS if view.variable in ds and view.across in ds[view.variable].dims
    ]
    if not views:
        raise ValueError(f"no curve of a probe: {', '.join(view.variable for view in VIEWS)}")
    rows, cols = -(-len(views) // 2), min(2, len(views))
    inside = rows * _ROW + (rows - 1) * _GAP
    gap = _GAP / inside if rows > 1 else 0
    fig = make_subplots(rows=rows, cols=cols, horizontal_spacing=0.13, vertical_spacing=gap)
    panes = [
        Pane(1 + i // 2, 1 + i % 2, _traces(view, ds, i), _axes(view, ds), view.title)
        for i, view in enumerate(views)
    ]
    legends = {_nth("legend", i): _legend(fig, i) for i in range(len(views))}
    margin = {"l": 70, "r": 20, "t": _TOP, "b": _BOTTOM}
    height = inside + _TOP + _BOTTOM
    place(fig, panes, height=height, margin=margin, showlegend=True, **legends)
    return fig.update_annotations(yshift=_OVER)


def _traces(view: _View, ds: xr.Dataset, pane: int) -> list[go.Scatter]:
    array = ds[view.variable]
    factor, unit = _shown(array)
    hover = f"{array[view.across].attrs['long_name']} %{{x:,}}: %{{y:,.3g}} {unit}"
    return [
        go.Scatter(
            x=line[view.across].values, y=line.values / factor, name=name, mode="lines+markers",
            **theme.line(i), legend=_nth("legend", pane), showlegend=bool(name),
            hovertemplate=f"{hover}<extra>{name}</extra>",
        )
        for i, (name, line) in enumerate(_lines(view, array).items())
    ]  # fmt: skip


def _lines(view: _View, array: xr.DataArray) -> dict[str, xr.DataArray]:
    """Return name -> line, those without a number left out: other probes share the labels."""
    if not view.by:
        return {"": array}
    measured = array.dropna(view.by, how="all")
    return {view.name(n): measured.sel({view.by: n}) for n in measured[view.by].values.tolist()}


def _axes(view: _View, ds: xr.Dataset) -> dict[str, dict]:
    array = ds[view.variable]
    factor, unit = _shown(array)
    y: dict = {"title": {"text": theme.axis_title(array, unit)}}
    y |= _decades(array.values / factor) if view.log else {"rangemode": "tozero"}
    return {"xaxis": {"type": "log", **_ticks(ds[view.across])}, "yaxis": y}


def _ticks(across: xr.DataArray) -> dict:
    """Return ticks at some of the values measured, bytes as KiB and MiB."""
    values = across.values[:: -(-across.size // _LABELS)].tolist()
    if across.attrs["units"] != "byte":
        text = [f"{value:g}" for value in values]
    else:
        text = [human_bytes(value) for value in values]
    title = {"text": across.attrs["long_name"]}
    return {"tickvals": values, "ticktext": text, "title": title}


def _decades(values: np.ndarray) -> dict:
    """Return a logarithmic axis that holds the values, with ticks enough to read it."""
    seen = values[np.isfinite(values) & (values > 0)]
    if not seen.size:
        return {"type": "log"}
    low, high = np.log10(seen.min()) - 0.15, np.log10(seen.max()) + 0.15
    steps = (1, 2, 5) if high - low < 2 else (1,)
    powers = range(int(np.floor(low)), int(np.ceil(high)))
    ticks = [step * 10.0**power for power in powers for step in steps]
    text = [f"{tick:,.10g}" for tick in ticks]
    return {"type": "log", "range": [low, high], "tickvals": ticks, "ticktext": text}


def _shown(array: xr.DataArray) -> tuple[float, str]:
    """Return what a shown unit is in SI, and its name."""
    shown = {"byte/s": (theme.SHOWN["GB/s"], "GB/s"), "s": (1e-9, "ns")}
    return shown.get(array.attrs["units"], (1.0, array.attrs["units"]))


def _legend(fig: go.Figure, pane: int) -> dict:
    """Return the legend of a pane, over its left edge and under its title."""
    axes: dict = fig.to_dict()["layout"]
    left, top = axes[_nth("xaxis", pane)]["domain"][0], axes[_nth("yaxis", pane)]["domain"][1]
    return _LEGEND | {"x": left, "y": top}


def _nth(name: str, index: int) -> str:
    return name if index == 0 else f"{name}{index + 1}"
