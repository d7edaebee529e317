"""From disk to ready, and what a disk can stand in for: four views of one choice (M24, M26, M28)."""

import math

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from workbench.figures import theme
from workbench.figures.panes import Pane, place
from workbench.hardware.storage import STAGES

HEIGHT = 780
DEPTHS = tuple(2**n for n in range(9))
BLOCKS = {2**12: "4 KiB", 2**14: "16 KiB", 2**17: "128 KiB", 2**20: "1 MiB"}
SHARES = tuple(n / 20 for n in range(21))
PER_TOKEN = tuple(10 ** (n / 4) for n in range(12, 34))  # byte of KV cache per token

_NAMES = {
    "read": "read from disk",
    "link": "cross the link",
    "decompress": "decompress",
    "prepare": "copy, convert",
    "start": "start engine",
}
_BLUE, _ORANGE, _GREEN, _RED = theme.PALETTE[:4]


def stage_traces() -> list:
    """Return the traces of the pipeline, still empty: bars and their labels."""
    rows = [*(_NAMES[stage] for stage in STAGES), "<b>ready</b>"]
    bars = go.Bar(orientation="h", y=list(range(len(rows))), customdata=rows, width=0.65,
                  hovertemplate="%{customdata}: %{x:.3g} s<extra></extra>")  # fmt: skip
    labels = go.Scatter(mode="text", y=[*range(len(rows)), 0], textposition="middle right",
                        hoverinfo="skip", cliponaxis=False)  # fmt: skip
    return [bars, labels]


def stage_axes() -> dict[str, dict]:
    """Return the axes of the pipeline."""
    rows = [*(_NAMES[stage] for stage in STAGES), "<b>ready</b>"]
    look = {"range": [len(rows) - 0.5, -0.5], "showgrid": False, "zeroline": False}
    ticks = {"tickvals": list(range(len(rows))), "ticktext": rows}
    return {
        "xaxis": {"title": {"text": "time [s]"}, "rangemode": "tozero", "nticks": 6},
        "yaxis": ticks | look,
    }


def stage_values(ds: xr.Dataset) -> list[dict]:
    """Return what the pipeline shows of one `hardware.storage.load`."""
    took, total = ds.stage_s.values, ds.load_s.item()
    longest = ds.bottleneck.item()
    colours = [_ORANGE if stage == longest else _BLUE for stage in STAGES]
    text = [
        f" {_seconds(t)}{' ← waited for' if stage == longest else ''}" if t > 0 else " –"
        for stage, t in zip(STAGES, took, strict=True)
    ]
    end = 1.45 * max(total, float(took.max()))
    return [
        {"x": [*took, total], "marker": {"color": [*colours, theme.INK]}},
        {"x": [*took, total, end], "text": [*text, f" <b>{_seconds(total)}</b>", ""]},
    ]


def queue_traces() -> list:
    """Return the traces over the queue depth, still empty: a line for each block, and now."""
    lines = [
        go.Scatter(mode="lines", x=DEPTHS, name=name, showlegend=False, **{"line": theme.line(i)["line"]},
                   hovertemplate=f"{name}, depth %{{x}}: %{{y:.3g}} GB/s<extra></extra>")
        for i, name in enumerate(BLOCKS.values())
    ]  # fmt: skip
    names = go.Scatter(mode="text", x=[DEPTHS[0]] * len(BLOCKS), text=list(BLOCKS.values()),
                       textposition="middle left", hoverinfo="skip", showlegend=False,
                       cliponaxis=False)  # fmt: skip
    return [*lines, names, _mark()]


def queue_axes() -> dict[str, dict]:
    """Return the axes over the queue depth."""
    return {
        "xaxis": {"type": "log", "range": [-0.75, math.log10(DEPTHS[-1]) + 0.1],
                  "tickvals": list(DEPTHS), "ticktext": list(map(str, DEPTHS)),
                  "title": {"text": "reads in flight (queue depth)"}},
        "yaxis": {"type": "log", "title": {"text": "read [GB/s]"}, "range": [-3.6, 1.4], **_powers(-3, 1)},
    }  # fmt: skip


def queue_values(curves: xr.Dataset, now: xr.Dataset, depth: float) -> list[dict]:
    """Return what the view over the queue depth shows.

    Args:
        curves: `hardware.storage.nvme` over queue_depth (DEPTHS) and block_size (BLOCKS).
        now: the same for one depth and block.
        depth: that depth.
    """
    rates = curves.read_bandwidth.transpose("block_size", "queue_depth").values / 1e9
    reads, rate = now.iops.item(), now.read_bandwidth.item() / 1e9
    said = f"<b>{_count(reads)} reads/s</b>"
    return [
        *({"y": row} for row in rates),
        {"y": rates[:, 0], "text": [f"{name} " for name in _merged(rates[:, 0])]},
        {"x": [depth], "y": [rate], "text": [said], "textposition": _beside(depth > 8)},
    ]


def offload_traces() -> list:
    """Return the traces over the resident share, still empty: the line, all in memory, now."""
    line = go.Scatter(mode="lines", line={"color": _BLUE, "width": 3}, showlegend=False,
                      hovertemplate="%{x:.0f} %: %{y:.3g} ms<extra></extra>")  # fmt: skip
    floor = go.Scatter(mode="lines", x=[0, 100], showlegend=False, hoverinfo="skip",
                       line={"color": theme.INK, "dash": "dash"})  # fmt: skip
    return [line, floor, _mark()]


def offload_axes() -> dict[str, dict]:
    """Return the axes over the resident share."""
    return {
        "xaxis": {"range": [-2, 102], "title": {"text": "KV cache kept in memory [%]"}},
        "yaxis": {"title": {"text": "time per token [ms]"}, "nticks": 6, "rangemode": "tozero"},
    }


def offload_values(curve: xr.Dataset, now: xr.Dataset, share: float) -> list[dict]:
    """Return what the view over the resident share shows.

    Args:
        curve: `study.storage.offloaded` over resident (SHARES).
        now: the same for one share.
        share: that share.
    """
    held = curve.tpot_s.isel(resident=-1).item() * 1e3
    here = now.tpot_s.item() * 1e3
    return [
        {"x": 100 * curve.resident.values, "y": curve.tpot_s.values * 1e3},
        {"y": [held, held]},
        {
            "x": [100 * share],
            "y": [here],
            "text": [f"<b>{_seconds(here / 1e3)}</b>"],
            "textposition": "top left" if share > 0.75 else "top right",
        },
    ]


def restore_traces() -> list:
    """Return the traces over the cache per token, still empty: restored, computed, even, now."""
    hover = "%{x:.3g} KiB a token: %{y:.3g} ms<extra></extra>"
    return [
        go.Scatter(mode="lines", line={"color": _BLUE, "width": 3}, hovertemplate=hover, showlegend=False),
        go.Scatter(mode="lines", line={"color": _RED, "width": 3, "dash": "dash"}, hovertemplate=hover,
                   showlegend=False),
        go.Scatter(mode="text", textposition=["top right", "bottom right"], hoverinfo="skip", showlegend=False,
                   textfont={"size": 13}),
        go.Scatter(mode="markers+text", textposition="bottom center", showlegend=False, cliponaxis=False,
                   marker={"color": theme.INK, "symbol": "x", "size": 9}, hoverinfo="skip"),
        _mark(),
    ]  # fmt: skip


def restore_axes() -> dict[str, dict]:
    """Return the axes over the cache per token."""
    ends = [math.log10(PER_TOKEN[0] / 1024), math.log10(PER_TOKEN[-1] / 1024)]
    return {
        "xaxis": {"type": "log", "range": ends, **_powers(0, 5),
                  "title": {"text": "KV cache per token [KiB]"}},
        "yaxis": {"type": "log", "title": {"text": "time per token of prefix [ms]"}, **_powers(-5, 5)},
    }  # fmt: skip


def restore_values(curve: xr.Dataset, now: xr.Dataset, kv_per_token: float) -> list[dict]:
    """Return what the view over the cache per token shows.

    Args:
        curve: `hardware.storage_offload.restore` of one token over kv_per_token (PER_TOKEN).
        now: the same for one model.
        kv_per_token: that model's bytes.
    """
    size = curve.kv_per_token.values / 1024
    read, computed = curve.restore_s.values * 1e3, curve.recompute_s.item() * 1e3
    even, gain = curve.breakeven_bytes.item() / 1024, now.restore_gain.item()
    words = "faster" if gain >= 1 else "slower"
    return [
        {"x": size, "y": read},
        {"x": size[[0, -1]], "y": [computed, computed]},
        {"x": [size[0], size[0]], "y": [computed, computed], "text": [" compute again", ""]},
        {
            "x": [even],
            "y": [computed],
            "text": [f"even at {_kib(even)}"],
            "textposition": "top left" if even > 100 else "bottom right",
        }
        if even < size[-1]
        else {"x": [], "y": [], "text": []},
        {
            "x": [kv_per_token / 1024],
            "y": [now.restore_s.item() * 1e3],
            "text": [f"<b>restore: {max(gain, 1 / gain):.3g} × {words}</b>"],
            "textposition": "top left" if kv_per_token > 2**19 else "bottom right",
        },
    ]


def empty() -> go.Figure:
    """Return the four views in one figure, still empty."""
    fig = make_subplots(rows=2, cols=2, horizontal_spacing=0.11, vertical_spacing=0.16)
    panes = [
        Pane(1, 1, stage_traces(), stage_axes(), "What the load waits for"),
        Pane(1, 2, queue_traces(), queue_axes(), "Reads by queue depth and block"),
        Pane(2, 1, offload_traces(), offload_axes(), "KV cache on the disk, read at every token"),
        Pane(2, 2, restore_traces(), restore_axes(), "KV cache on the disk, restored once"),
    ]
    margin = {"l": 10, "r": 20, "t": 40, "b": 50}
    return place(fig, panes, height=HEIGHT, margin=margin, showlegend=False)


def figure(parts: list[list[dict]]) -> go.Figure:
    """Draw the four views as a plain figure; `parts` as the four `_values` functions return."""
    fig = empty()
    theme.fill(fig, [values for part in parts for values in part])
    return fig


def scoreboard(ds: xr.Dataset) -> go.Figure:
    """Draw predicted against measured load times of the public rows.

    Args:
        ds: what `study.load.score` returned.
    """
    used = ds.isel(row=np.isfinite(ds.load_error.values))
    ends = [2.0, 1000.0]
    line = go.Scatter(x=ends, y=ends, mode="lines", line={"color": theme.INK, "dash": "dash"},
                      hoverinfo="skip")  # fmt: skip
    dots = go.Scatter(
        x=used.load_measured.values, y=used.load_predicted.values, mode="markers", marker={"size": 9},
        text=used.row.values, hovertemplate="%{text}: %{x:.3g} s, predicted %{y:.3g} s<extra></extra>",
    )  # fmt: skip
    axes = {"type": "log", "range": [math.log10(end) for end in ends],
            "tickvals": [2, 5, 10, 20, 50, 100, 200, 500, 1000]}  # fmt: skip
    title = f"{ds.attrs['rows']} loads, median error {ds.attrs['median_ape']:.0%}"
    return theme.figure(
        [line, dots], height=420, title={"text": title},
        xaxis=axes | {"title": {"text": theme.axis_title(ds.load_measured)}},
        yaxis=axes | {"title": {"text": theme.axis_title(ds.load_predicted)}},
    )  # fmt: skip


def _mark() -> go.Scatter:
    return go.Scatter(
        mode="markers+text", cliponaxis=False, showlegend=False, hoverinfo="skip",
        marker={"color": _ORANGE, "size": 13, "symbol": "diamond"}, textposition="top right",
    )  # fmt: skip


def _beside(right: bool) -> str:
    """Return where the label of a mark stays off the line and inside the view."""
    return "bottom left" if right else "bottom right"


def _merged(rates: np.ndarray) -> list[str]:
    """Return the names of the blocks where their lines start, together where those meet."""
    names = list(BLOCKS.values())
    for i in range(len(names) - 1):
        if rates[i + 1] < 1.5 * rates[i]:
            names[i], names[i + 1] = "", f"{names[i]}, {names[i + 1]}"
    return names


def _powers(first: int, last: int) -> dict:
    ticks = [10.0**n for n in range(first, last + 1)]
    return {"tickvals": ticks, "ticktext": [f"{t:,.0f}" if t >= 1 else f"{t:g}" for t in ticks]}


def _seconds(value: float) -> str:
    if value < 1e-3:
        return f"{value * 1e6:.3g} µs"
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"


def _count(value: float) -> str:
    return f"{value / 1e3:,.0f}k" if value >= 1e4 else f"{value:,.0f}"


def _kib(value: float) -> str:
    return f"{value:.3g} KiB" if value < 1024 else f"{value / 1024:.3g} MiB"
