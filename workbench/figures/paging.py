"""Where a load in pages goes, and what an access pays for translation: four views (M14, M15)."""

import math

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from workbench.figures import stacked, theme
from workbench.figures.panes import Pane, place
from workbench.hardware.paging import ACCESSES, PAGE_SIZES, PARTS, mappable
from workbench.units import human_bytes

HEIGHT = 820
WORKING_SETS = tuple(2.0 ** (n / 2) for n in range(28, 73))  # 16 KiB to 64 GiB
_NAMES = {"fault": "faults", "io": "waiting for the disk", "copy": "clear and copy"}
_COLOURS = ("#D55E00", "#0072B2", "#009E73")
_ROWS = tuple(
    f"{human_bytes(page)}, {'mapped' if mappable(page) else 'read'}" for page in PAGE_SIZES
)
_MARKS = (0.85, 0.62, 0.42, 0.22)  # miss rates at which the lines are named
_TICKS = tuple(2**n for n in range(16, 37, 4))
_NARROW = 0.12  # of the longest bar: a number would have to stand upright
_US, _NS = 1e-6, 1e-9


def load_traces() -> list:
    """Return the traces of the load, still empty: a bar for each page size, in parts."""
    return stacked.traces([_NAMES[part] for part in PARTS], _COLOURS, _ROWS)


def load_values(ds: xr.Dataset, page: float) -> list[dict]:
    """Return what the load shows of `hardware.paging.by_page_size`; `page` is set in bold."""
    parts = ds.stage_s.transpose("stage", "page_size").values
    sums = [_seconds(total) for total in parts.sum(0)]
    chosen = ds.page_size.values.tolist().index(page)
    sums[chosen] = f"<b>{sums[chosen]} ◂</b>"
    bars = stacked.values(parts, sums)
    narrow = parts < _NARROW * parts.sum(0).max()
    for bar, row in zip(bars, narrow, strict=False):
        bar["text"] = ["" if thin else said for thin, said in zip(row, bar["text"], strict=True)]
    return bars


def touch_traces() -> list:
    """Return the traces of a first touch, still empty: the model's bars, their labels, measured."""
    bars = go.Bar(
        orientation="h", y=list(ACCESSES), width=0.6, showlegend=False,
        marker={"color": "rgba(0,114,178,0.45)", "line": {"color": "#0072B2", "width": 1.5}},
        hovertemplate="%{y}: %{x:.3g} µs, model<extra></extra>",
    )  # fmt: skip
    seen = go.Scatter(
        mode="markers+text", y=list(ACCESSES), textposition="middle right", showlegend=False,
        marker={"color": "#E69F00", "size": 12, "symbol": "diamond"}, cliponaxis=False,
        hovertemplate="%{y}: %{x:.3g} µs, measured here<extra></extra>",
    )  # fmt: skip
    return [bars, seen]


def touch_axes() -> dict[str, dict]:
    """Return the axes of a first touch."""
    ticks = [0.01, 0.1, 1, 10, 100, 1000]
    return {
        "xaxis": {"type": "log", "range": [-2, 3.6], "tickvals": ticks, "ticktext": [f"{t:g}" for t in ticks],
                  "title": {"text": theme.axis_title("page_s", "µs")}},
        "yaxis": {"autorange": "reversed", "showgrid": False},
    }  # fmt: skip


def touch_values(model: xr.Dataset, seen: xr.Dataset | None) -> list[dict]:
    """Return what a first touch shows of `hardware.paging.touch` and, if any, the probe's."""
    bars = {"x": model.page_s.values / _US}
    if seen is None or "page_s" not in seen:
        return [bars, {"x": [None] * len(ACCESSES), "text": [""] * len(ACCESSES)}]
    found = seen.page_s.sel(access=list(ACCESSES)).values / _US
    text = ["" if math.isnan(value) else f" {value:.2g} µs" for value in found]
    return [bars, {"x": _known(found), "text": text}]


def miss_traces() -> list:
    """Return the traces of the TLB, still empty: a line for each page size, names, the model."""
    lines = [
        go.Scatter(
            mode="lines", x=WORKING_SETS, line=theme.line(i)["line"], showlegend=False,
            hovertemplate=f"{human_bytes(page)} pages: %{{y:.1f}} % walk<extra></extra>",
        )
        for i, page in enumerate(PAGE_SIZES)
    ]  # fmt: skip
    names = go.Scatter(
        mode="text", y=[100 * mark for mark in _MARKS],
        textposition=["middle left", *["middle right"] * (len(PAGE_SIZES) - 1)],
        text=[f" {human_bytes(page)} " for page in PAGE_SIZES], hoverinfo="skip", showlegend=False,
    )  # fmt: skip
    return [*lines, names, _here([0, 100])]


def miss_axes() -> dict[str, dict]:
    """Return the axes of the TLB."""
    return {
        "xaxis": _sizes(),
        "yaxis": {"range": [-3, 103], "title": {"text": "accesses that need a walk [%]"}},
    }


def miss_values(ds: xr.Dataset, size: float) -> list[dict]:
    """Return what the TLB shows of `translation` over page_size and working_set, with a model."""
    rates = ds.miss_rate.transpose("page_size", "working_set").values
    reach = ds.reach_bytes.isel(working_set=0).values
    named = reach / (1 - np.array(_MARKS))
    return [
        *({"y": 100 * row} for row in rates),
        {"x": _known(np.where(named < WORKING_SETS[-1] / 4, named, math.nan))},
        {"x": [size, size]},
    ]


def access_traces() -> list:
    """Return the traces of an access, still empty: model lines, the model's size, measured."""
    lines = [
        go.Scatter(
            mode="lines", x=WORKING_SETS, line=theme.line(i)["line"], showlegend=False,
            hovertemplate=f"{human_bytes(page)} pages: %{{y:.3g}} ns, model<extra></extra>",
        )
        for i, page in enumerate(PAGE_SIZES)
    ]  # fmt: skip
    seen = [
        go.Scatter(
            mode="markers", marker=theme.line(i)["marker"], showlegend=False,
            hovertemplate=f"{human_bytes(page)} pages: %{{y:.3g}} ns, measured here<extra></extra>",
        )
        for i, page in enumerate(PAGE_SIZES)
    ]  # fmt: skip
    return [*lines, _here([0.1, 1e5]), *seen]


def access_axes() -> dict[str, dict]:
    """Return the axes of an access."""
    ticks = [1, 10, 100, 1000]
    return {
        "xaxis": _sizes(),
        "yaxis": {"type": "log", "range": [-0.2, 3.2], "tickvals": ticks, "ticktext": [f"{t}" for t in ticks],
                  "title": {"text": theme.axis_title("latency_s", "ns")}},
    }  # fmt: skip


def access_values(ds: xr.Dataset, size: float, seen: xr.Dataset | None) -> list[dict]:
    """Return what an access shows of `translation`, a model's size, and the probe's points."""
    times = ds.latency_s.transpose("page_size", "working_set").values / _NS
    return [*({"y": row} for row in times), {"x": [size, size]}, *_measured(seen)]


def empty() -> go.Figure:
    """Return the four views in one figure, still empty."""
    fig = make_subplots(rows=2, cols=2, horizontal_spacing=0.15, vertical_spacing=0.19)
    panes = [
        Pane(1, 1, load_traces(), stacked.axes(_ROWS, "time to load [s]")),
        Pane(1, 2, touch_traces(), touch_axes(), "First touch of a page: model, ◆ measured here"),
        Pane(2, 1, miss_traces(), miss_axes(), "TLB misses at random, by page size"),
        Pane(2, 2, access_traces(), access_axes(), "Random access: model, markers measured here"),
    ]
    return place(fig, panes, height=HEIGHT, **stacked.layout("How long loading takes", HEIGHT))


def figure(parts: list[list[dict]]) -> go.Figure:
    """Draw the four views as a plain figure; `parts` as the four `_values` functions return."""
    fig = empty()
    theme.fill(fig, [values for part in parts for values in part])
    return fig


def _measured(seen: xr.Dataset | None) -> list[dict]:
    nothing = {"x": [None], "y": [None]}
    if seen is None or "latency_s" not in seen:
        return [nothing] * len(PAGE_SIZES)
    known = seen.page_size.values.tolist()
    return [
        {"x": seen.working_set.values, "y": _known(seen.latency_s.sel(page_size=page).values / _NS)}
        if page in known
        else nothing
        for page in PAGE_SIZES
    ]


def _sizes() -> dict:
    ends = [math.log10(WORKING_SETS[0]), math.log10(WORKING_SETS[-1])]
    return {
        "type": "log", "range": ends, "tickvals": list(_TICKS),
        "ticktext": [human_bytes(tick) for tick in _TICKS],
        "title": {"text": "memory touched at random"},
    }  # fmt: skip


def _here(y: list[float]) -> go.Scatter:
    line = {"color": theme.INK, "dash": "dash", "width": 1}
    return go.Scatter(mode="lines", y=y, line=line, hoverinfo="skip", showlegend=False)


def _known(values: np.ndarray) -> list:
    return [None if math.isnan(value) else float(value) for value in values]


def _seconds(value: float) -> str:
    return f"{value:.3g} s"
