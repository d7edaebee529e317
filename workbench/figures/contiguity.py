"""A zone as a map, its free lists, and the largest block that pinned pages leave (M18, M19, M20)."""

import html
import math

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from workbench.figures import theme
from workbench.figures.panes import Pane, place
from workbench.hardware.contiguity_dma import REQUESTS
from workbench.units import human_bytes

HEIGHT = 880
PINNED = tuple(10 ** (n / 8) for n in range(-56, 1))  # 1e-7 to 1
_BLUE, _ORANGE, _GREEN, _RED = theme.PALETTE[:4]
_BAND, _MOST = "rgba(0,114,178,0.25)", (0.1, 0.9)  # of random zones
#: A cell without pins is from 0 (free) to 1 (in use); one with pins from 1 to 2, by the logarithm of their share.
_SHADES = [
    [0.0, "rgba(128,128,128,0.12)"], [0.5, _BLUE],
    [0.5, "#FBE7C0"], [0.75, _ORANGE], [1.0, "#8C2D04"],
]  # fmt: skip
_FEWEST = 1e-4  # share of pins that is palest
_BLOCKS = tuple(2**n for n in range(12, 43, 3))  # byte, ticks of the sizes


def map_traces() -> list:
    """Return the trace of the map, still empty."""
    bar = {
        "tickvals": [0.05, 0.9, 1.1, 1.5, 1.95],
        "ticktext": ["free", "in use", f"{_FEWEST * 100:g} % pinned", "1 %", "all pinned"],
        "len": 0.42, "y": 1.0, "yanchor": "top", "x": 0.4, "thickness": 14,
    }  # fmt: skip
    return [
        go.Heatmap(
            colorscale=_SHADES, zmin=0.0, zmax=2.0, xgap=1, ygap=1, colorbar=bar,
            hovertemplate="%{customdata}<extra></extra>",
        )
    ]  # fmt: skip


def map_axes() -> dict[str, dict]:
    """Return the axes of the map: none, addresses run like text."""
    bare = {"showticklabels": False, "showgrid": False, "zeroline": False, "ticks": ""}
    return {
        "xaxis": bare | {"title": {"text": "addresses, row by row"}},
        "yaxis": bare | {"autorange": "reversed"},
    }


def map_values(ds: xr.Dataset, burst: int) -> list[dict]:
    """Return what the map shows of `used_share` and `pinned_share` (cell) after a step."""
    now = ds.isel(burst=burst)
    used, pinned = now.used_share.values, now.pinned_share.values
    side = math.isqrt(used.size)
    size = human_bytes(ds.attrs["zone_bytes"] / used.size)
    said = [f"{size}: {u:.0%} in use, {p:.2%} pinned" for u, p in zip(used, pinned, strict=True)]
    shade = 1 - np.log10(np.maximum(pinned, _FEWEST)) / np.log10(_FEWEST)
    cells = np.where(pinned > 0, 1.001 + 0.999 * shade, 0.999 * used)
    return [
        {
            "z": cells[: side * side].reshape(side, side),
            "customdata": np.array(said[: side * side]).reshape(side, side),
        }
    ]


def list_traces() -> list:
    """Return the traces of the free lists, still empty: simulated, and read from this machine."""
    look = {"simulated": (_BLUE, ""), "this machine": (_ORANGE, "/")}
    return [
        go.Bar(
            name=name, showlegend=True, legend="legend2", marker={"color": colour, "pattern": {"shape": pattern}},
            hovertemplate="%{x}: %{y:.1f} % of what is free<extra>" + name + "</extra>",
        )
        for name, (colour, pattern) in look.items()
    ]  # fmt: skip


def list_axes() -> dict[str, dict]:
    """Return the axes of the free lists."""
    return {
        "xaxis": {"type": "category", "title": {"text": "size of a free block"}, "nticks": 8, "showgrid": False},
        "yaxis": {"range": [0, 105], "title": {"text": "share of what is free [%]"}},
    }  # fmt: skip


def list_values(ds: xr.Dataset, burst: int, here: xr.Dataset | None = None) -> list[dict]:
    """Return what the free lists show.

    Args:
        ds: a simulated zone.
        burst: its step.
        here: what `probe.buddy.read` returned, all zones taken together.
    """
    simulated = _shares(ds.free_blocks.isel(burst=burst).values)
    sizes = _order_names(ds.sizes["order"], ds.attrs["page_bytes"])
    if here is None:
        return [{"x": sizes, "y": simulated}, {"x": [], "y": []}]
    names = _order_names(here.sizes["order"], here.attrs["page_bytes"])
    read = _shares(here.free_blocks.sum("zone").values)
    return [{"x": sizes, "y": simulated}, {"x": names, "y": read}]


def curve_traces() -> list:
    """Return the traces over the pinned share, still empty.

    They are: band of random zones (low, high), bound, the other grouping, free lists' end, wanted
    chunk, the simulated zone, and now.
    """
    edge = {"mode": "lines", "line": {"width": 0, "shape": "hv"}, "hoverinfo": "skip"}
    return [
        go.Scatter(**edge, showlegend=False),
        go.Scatter(**edge, showlegend=True, fill="tonexty", fillcolor=_BAND, name="80 % of random zones"),
        _line("as chosen", _BLUE, "solid", 3), _line("", _GREEN, "dot", 2),
        _level("free lists end", theme.INK), _level("a piece wanted", _RED),
        go.Scatter(
            mode="markers", name="simulated zone, compacted", showlegend=True, cliponaxis=False,
            marker={"symbol": "circle-open", "size": 19, "color": _GREEN, "line": {"width": 3}},
            hovertemplate="%{text}<extra></extra>",
        ),
        go.Scatter(
            mode="markers+text", showlegend=False, hoverinfo="skip", cliponaxis=False,
            marker={"symbol": "diamond", "size": 13, "color": _ORANGE}, textposition="top right",
        ),
    ]  # fmt: skip


def curve_axes() -> dict[str, dict]:
    """Return the axes over the pinned share."""
    ticks = [10.0**n for n in range(-7, 1)]
    return {
        "xaxis": {"type": "log", "range": [-7, 0.02], "tickvals": ticks,
                  "ticktext": [f"{100 * t:.5f}".rstrip("0").rstrip(".") + " %" for t in ticks],
                  "title": {"text": "share of the pages that are pinned"}},
        "yaxis": {"type": "log", "range": [math.log10(2**11), math.log10(2**41)],
                  "tickvals": list(_BLOCKS), "ticktext": [human_bytes(b) for b in _BLOCKS],
                  "title": {"text": "largest block in one piece"}},
    }  # fmt: skip


def curve_values(
    chosen: xr.Dataset, other: xr.Dataset, now: xr.Dataset, life: xr.Dataset, levels: tuple
) -> list[dict]:
    """Return what the view over the pinned share shows.

    Args:
        chosen, other: `hardware.contiguity.largest_block` over pinned (PINNED), the grouping
            chosen and the other one.
        now: the same for one share.
        life: a simulated zone; its last step is shown, unless it was stopped before.
        levels: bytes of the end of the free lists, and of a piece wanted.
    """
    drawn = np.moveaxis(chosen.sampled_bytes.values, chosen.sampled_bytes.get_axis_num("seed"), 0)
    low, high = map(_positive, np.quantile(drawn, _MOST, axis=0, method="inverted_cdf"))
    grouped = chosen.attrs["grouping"]
    q, block = now.pinned_bytes.item() / now.attrs["zone_bytes"], now.largest_bytes.item()
    ends = [PINNED[0], PINNED[-1]]
    end, pinned = life.isel(burst=-1), life.pinned_share.isel(burst=-1).mean().item()
    compacted = end.largest_bytes.item() if end.phase.item() == "compacted" else 0.0
    x, left = [max(q, PINNED[0])], "top left" if q > 3e-3 else "top right"
    return [
        {"x": PINNED, "y": low},
        {"x": PINNED, "y": high},
        {"x": PINNED, "y": _positive(chosen.largest_bytes.values), "name": _grouping(grouped)},
        {"x": PINNED, "y": _positive(other.largest_bytes.values), "name": _grouping(not grouped)},
        {"x": ends, "y": [levels[0]] * 2},
        {"x": ends, "y": [levels[1]] * 2},
        {
            "x": [max(pinned, PINNED[0])],
            "y": _positive(np.array([compacted])),
            "text": [f"simulated: {human_bytes(compacted)}"],
        },
        {"x": x, "y": _positive(np.array([block])), "text": [f"<b>{human_bytes(block)}</b>"], "textposition": left},
    ]  # fmt: skip


def empty() -> go.Figure:
    """Return the three views in one figure, still empty."""
    fig = make_subplots(
        rows=2, cols=2, specs=[[{}, {}], [{"colspan": 2}, None]],
        horizontal_spacing=0.22, vertical_spacing=0.14,
    )  # fmt: skip
    panes = [
        Pane(1, 1, map_traces(), map_axes(), "The zone, step by step"),
        Pane(1, 2, list_traces(), list_axes(), "Its free lists"),
        Pane(2, 1, curve_traces(), curve_axes(), "Largest block that compaction can free"),
    ]
    legend = {"x": 1, "xanchor": "right", "yanchor": "top", "bgcolor": "rgba(0,0,0,0)"}
    return place(
        fig, panes, height=HEIGHT, margin={"l": 10, "r": 20, "t": 40, "b": 50}, showlegend=True,
        legend=legend | {"y": 0.44}, legend2=legend | {"y": 1.0},
    )  # fmt: skip


def life(ds: xr.Dataset, burst: int) -> go.Figure:
    """Draw one step of a simulated zone as a plain figure."""
    title = {"text": f"{human_bytes(ds.attrs['zone_bytes'])}, {ds.phase.values[burst]}"}
    return theme.figure(map_traces(), map_values(ds, burst), **map_axes(), height=420, title=title)


def ways_table(ds: xr.Dataset) -> str:
    """Return `hardware.contiguity_dma.ways` as an HTML table: how, largest piece, whether it works.

    Args:
        ds: rows of REQUESTS.
    """
    heads = ("asked for by", "largest piece", "works", "takes [s]", "left for others")
    rows = [
        (
            f"{way}: {REQUESTS[str(way)]}", human_bytes(piece), "✓ yes" if ok else "✗ no", f"{seconds:.2g}",
            human_bytes(left) + (f", {human_bytes(lost)} lost" if lost else ""),
        )
        for way, piece, ok, seconds, left, lost in zip(
            ds.request.values, ds.contiguous_bytes.values, ds.feasible.values, ds.compaction_s.values,
            ds.left_bytes.values, ds.hidden_bytes.values, strict=True,
        )
    ]  # fmt: skip
    left = 'style="text-align:left"'  # JupyterLab's own tables are flush right
    head = "".join(f'<th scope="col" {left}>{text}</th>' for text in heads)
    body = "".join(
        f"<tr>{''.join(f'<td {left}>{html.escape(c)}</td>' for c in row)}</tr>" for row in rows
    )
    caption = f"{ds.attrs['size'] / 1e9:g} GB in pieces of {human_bytes(ds.attrs['chunk'])}"
    return (
        f'<table class="wb-table"><caption {left}>{caption}</caption><tr>{head}</tr>{body}</table>'
    )


def pool(ds: xr.Dataset) -> go.Figure:
    """Draw what every order of operations on a pool comes to, best first.

    Args:
        ds: `hardware.pools.orderings`; orders that do not begin with "create" are left out, since
            nothing happens before there is a pool.
    """
    first = ds.operation_name.isel(operation=0).values == "create"
    ds = ds.isel(ordering=np.flatnonzero(first))
    ds = ds.isel(ordering=np.argsort(~ds.feasible.values, kind="stable"))
    names = [
        f"{name} {'✓' if ok else '✗'}"
        for name, ok in zip(ds.ordering.values, ds.feasible.values, strict=True)
    ]
    share = ds.largest_bytes.values / ds.attrs["size"] * 100
    steps = [f"step {n}" for n in ds.operation.values]
    cells = go.Heatmap(
        x=steps, y=names, z=share, colorscale=[[0, "rgba(128,128,128,0.10)"], [1, "rgba(0,158,115,0.55)"]],
        zmin=0, zmax=100, showscale=False, xgap=3, ygap=3, hoverinfo="skip",
    )  # fmt: skip
    words = go.Scatter(
        x=steps * len(names), y=np.repeat(names, len(steps)), mode="text", hoverinfo="skip", textfont={"size": 12},
        text=[
            f"<b>{op}</b><br>{outcome.replace(': ', ':<br>')}<br>{human_bytes(size)}"
            for op, outcome, size in zip(
                ds.operation_name.values.ravel(), ds.outcome.values.ravel(), ds.largest_bytes.values.ravel(),
                strict=True,
            )
        ],
    )  # fmt: skip
    axes = {
        "xaxis": {"showgrid": False, "side": "top"},
        "yaxis": {"autorange": "reversed", "showgrid": False},
    }
    title = {"text": "Largest free piece after each step"}
    height = 90 + 80 * len(names)
    return theme.figure([cells, words], **axes, height=height, title=title, margin={"t": 80})


def _line(name: str, colour: str, dash: str, width: float) -> go.Scatter:
    return go.Scatter(
        mode="lines", name=name, showlegend=True, connectgaps=False,
        line={"color": colour, "dash": dash, "width": width, "shape": "hv"},
        hovertemplate="%{x:.2e} pinned: %{text}<extra></extra>" if not name else None,
    )  # fmt: skip


def _level(name: str, colour: str) -> go.Scatter:
    return go.Scatter(
        mode="lines", name=name, showlegend=True, hoverinfo="skip",
        line={"color": colour, "dash": "dash", "width": 1.5},
    )  # fmt: skip


def _grouping(grouped: bool) -> str:
    return "pinned pages grouped" if grouped else "pinned pages anywhere"


def _positive(values: np.ndarray) -> np.ndarray:
    return np.where(values > 0, values, np.nan)


def _shares(blocks: np.ndarray) -> np.ndarray:
    held = blocks * 2.0 ** np.arange(blocks.size)
    return 100 * held / max(held.sum(), 1.0)


def _order_names(orders: int, page: int) -> list[str]:
    return [human_bytes(page << order) for order in range(orders)]
