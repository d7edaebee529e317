"""What a DRAM channel delivers: a map over size and number of reads, one line of it, alignment, latency (M10-M12)."""

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from workbench.figures import theme
from workbench.figures.panes import Pane, place

HEIGHT = 860
GRANULES = tuple(2**n for n in range(5, 13))  # byte
DEPTHS = tuple(2**n for n in range(7))
LENGTHS = tuple(2**n for n in range(5, 13))  # byte, of reads that may start anywhere
_BLUE, _ORANGE, _GREEN, _RED = theme.PALETTE[:4]


def size_name(count: float) -> str:
    """Return bytes as people write sizes of reads: 64 B, 4 KiB."""
    return f"{count:.0f} B" if count < 1024 else f"{count / 1024:.0f} KiB"


def map_traces() -> list:
    """Return the traces of the map, still empty: cells with their numbers, and what is chosen."""
    cells = go.Heatmap(
        x=[str(q) for q in DEPTHS], y=[size_name(s) for s in GRANULES], colorscale="Cividis", zmin=0, zmax=100,
        texttemplate="%{z:.0f}", xgap=2, ygap=2, showscale=False,
        hovertemplate="%{y}, %{x} queued: %{z:.1f} % of the peak<extra></extra>",
    )  # fmt: skip
    chosen = go.Scatter(
        mode="markers", hoverinfo="skip", cliponaxis=False, showlegend=False,
        marker={"symbol": "square-open", "size": 30, "color": _RED, "line": {"width": 3}},
    )  # fmt: skip
    return [cells, chosen]


def map_axes() -> dict[str, dict]:
    """Return the axes of the map."""
    plain = {"showgrid": False, "zeroline": False, "type": "category"}
    return {
        "xaxis": plain | {"title": {"text": "reads in the queue"}},
        "yaxis": plain | {"title": {"text": "size of a read"}},
    }


def map_values(ds: xr.Dataset, granule: float, depth: float) -> list[dict]:
    """Return what the map shows of `bus_share` (granule, queue_depth)."""
    cells = ds.bus_share.transpose("granule", "queue_depth").values * 100
    return [{"z": cells}, {"x": [f"{depth:.0f}"], "y": [size_name(granule)]}]


def line_traces() -> list:
    """Return the traces over the queue, still empty: simulated, by formula, the usual bound, and now."""
    names = ("simulated", "closed form", "usual bound")
    modes = ("markers", "lines", "lines")
    lines = [
        go.Scatter(x=DEPTHS, mode=mode, name=name, showlegend=True, **theme.line(i),
                   hovertemplate="%{x} queued: %{y:.1f} %<extra>" + name + "</extra>")
        for i, (name, mode) in enumerate(zip(names, modes, strict=True))
    ]  # fmt: skip
    return [*lines, _mark("text")]


def line_axes() -> dict[str, dict]:
    """Return the axes over the queue."""
    return {
        "xaxis": _log("reads in the queue", DEPTHS, [str(q) for q in DEPTHS]),
        "yaxis": {"title": {"text": "share of the peak [%]"}, "range": [0, 108]},
    }


def line_values(simulated: xr.Dataset, law: xr.Dataset, depth: float) -> list[dict]:
    """Return what the lines show, each over `queue_depth`."""
    shown = [ds.values * 100 for ds in (simulated.bus_share, law.bus_share, law.bus_bound)]
    now = simulated.bus_share.sel(queue_depth=depth).item() * 100
    marked = {"x": [depth], "y": [now], "text": [f"<b>{now:.0f} %</b>"]}
    return [*({"y": y} for y in shown), marked]


def fetch_traces() -> list:
    """Return the traces of alignment, still empty: anywhere, as chosen, aligned, and now."""
    names = ("start anywhere", "as chosen", "aligned")
    lines = [
        go.Scatter(x=LENGTHS, mode="lines", name=name, showlegend=False, **{"line": theme.line(i)["line"]},
                   hovertemplate="%{x} B: %{y:.3f} times<extra>" + name + "</extra>")
        for i, name in enumerate(names)
    ]  # fmt: skip
    names_at = go.Scatter(
        mode="text",
        hoverinfo="skip",
        textposition="middle right",
        cliponaxis=False,
        showlegend=False,
    )
    return [*lines, names_at, _mark("text")]


def fetch_axes() -> dict[str, dict]:
    """Return the axes of alignment."""
    y = {"title": {"text": "bytes moved per byte asked for"}, "type": "log", "range": [-0.05, 1.35]}
    ticks = (1, 2, 4, 8, 16)
    return {
        "xaxis": _log(
            "length of a read",
            LENGTHS,
            ["" if i % 2 else size_name(n) for i, n in enumerate(LENGTHS)],
        ),
        "yaxis": y | {"tickvals": ticks, "ticktext": [f"{n} ×" for n in ticks]},
    }


def fetch_values(ds: xr.Dataset, length: float) -> list[dict]:
    """Return what alignment shows of `overfetch` (start, length), and the length chosen."""
    lines = ds.overfetch.transpose("alignment", "length").values
    now = ds.overfetch.isel(alignment=1).sel(length=length).item()
    lead = lines[:, 0]
    apart = [lead[0], lead[1]] if lead[0] > 1.25 * lead[1] else [lead[0], None]
    names = {"x": [LENGTHS[0]] * 2, "y": apart, "text": ["  anywhere", "  as chosen"]}
    return [
        *({"y": y} for y in lines), names,
        {"x": [length], "y": [now], "text": [f"<b>{now:.3f} ×</b>"]},
    ]  # fmt: skip


def latency_traces() -> list:
    """Return the traces of latency, still empty: simulated, M/D/1, and the knee."""
    lines = [
        go.Scatter(mode=mode, name=name, showlegend=False, **theme.line(i),
                   hovertemplate="%{x:.0f} % of the peak: %{y:.0f} ns<extra>" + name + "</extra>")
        for i, (name, mode) in enumerate((("simulated", "lines+markers"), ("M/D/1", "lines")))
    ]  # fmt: skip
    knee = go.Scatter(mode="lines+text", line={"color": _RED, "dash": "dot", "width": 2}, hoverinfo="skip",
                      showlegend=False, textposition="top left", cliponaxis=False)  # fmt: skip
    return [*lines, knee]


def latency_axes() -> dict[str, dict]:
    """Return the axes of latency."""
    return {
        "xaxis": {"title": {"text": "share of the peak [%]"}, "range": [0, 103]},
        "yaxis": {"title": {"text": "latency [ns]"}, "rangemode": "tozero"},
    }


def latency_values(simulated: xr.Dataset, law: xr.Dataset) -> list[dict]:
    """Return what latency shows: `bus_share` and `loaded_latency_s` (queue_depth), and M/D/1 (bus_use)."""
    wait, top = simulated.loaded_latency_s.values * 1e9, 4 * law.loaded_latency_s.values[0] * 1e9
    kept = wait <= top
    knee = law.knee.item() * 100
    queued = law.loaded_latency_s.values * 1e9
    return [
        {"x": simulated.bus_share.values[kept] * 100, "y": wait[kept]},
        {"x": law.bus_use.values * 100, "y": np.where(queued <= top, queued, np.nan)},
        {"x": [knee, knee], "y": [0, top], "text": ["", f"knee {knee:.0f} % "]},
    ]


def empty() -> go.Figure:
    """Return the four views in one figure, still empty."""
    fig = make_subplots(2, 2, horizontal_spacing=0.13, vertical_spacing=0.17)
    panes = (
        Pane(1, 1, map_traces(), map_axes(), "Share of a channel's peak [%], simulated"),
        Pane(1, 2, line_traces(), line_axes(), "The same at the size chosen"),
        Pane(2, 1, fetch_traces(), fetch_axes(), "Alignment: moved but not asked for"),
        Pane(2, 2, latency_traces(), latency_axes(), "Reads under way: latency under load"),
    )
    legend = {
        "x": 1,
        "y": 0.63,
        "xanchor": "right",
        "yanchor": "bottom",
        "bgcolor": "rgba(0,0,0,0)",
    }
    return place(
        fig, panes, height=HEIGHT, margin={"t": 60, "r": 30}, showlegend=True, legend=legend
    )


def values(views: tuple) -> list[dict]:
    """Return what all four views show.

    Args:
        views: arguments of `map_values`, `line_values`, `fetch_values`, `latency_values`.
    """
    shown = zip((map_values, line_values, fetch_values, latency_values), views, strict=True)
    return [each for view, arguments in shown for each in view(*arguments)]


def figure(ds: xr.Dataset) -> go.Figure:
    """Draw the map of `bus_share` over granule and queue_depth as a plain figure."""
    title = {"text": f"Share of a channel's peak [%]: {ds.attrs['standard']}"}
    cells = {"z": ds.bus_share.transpose("granule", "queue_depth").values * 100,
             "x": [f"{q:.0f}" for q in ds.queue_depth.values],
             "y": [size_name(s) for s in ds.granule.values]}  # fmt: skip
    return theme.figure(map_traces()[:1], [cells], **map_axes(), height=400, title=title)


def _mark(mode: str) -> go.Scatter:
    return go.Scatter(
        mode=f"markers+{mode}", marker={"color": _RED, "size": 13, "symbol": "diamond"}, showlegend=False,
        textposition="bottom right", hoverinfo="skip", cliponaxis=False,
    )  # fmt: skip


def _log(title: str, ticks, names) -> dict:
    ends = [np.log10(ticks[0] * 0.8), np.log10(ticks[-1] * 1.25)]
    return {"type": "log", "range": ends, "tickvals": list(ticks), "ticktext": list(names),
            "title": {"text": title}}  # fmt: skip
