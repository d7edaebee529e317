"""What fills the memory, and which models fit in which format (M22, M23, M34)."""

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from workbench.figures import theme, waterfall
from workbench.hardware.capacity import KINDS

NAMES = {
    "weights": "weights",
    "kv": "KV cache",
    "buffers": "scratch buffers",
    "runtime": "engine itself",
}
_ROWS = (*(NAMES.get(kind, kind) for kind in KINDS), "<b>needed</b>")
_COLOURS = (*(theme.COLOURS.get(kind, theme.INK) for kind in KINDS), theme.INK)


def traces() -> list:
    """Return the traces, still empty: bars, labels, and the line of what may be used."""
    limit = go.Scatter(
        mode="lines+text",
        y=[len(_ROWS) - 0.5, -0.75],
        line={"color": "#D55E00", "dash": "dash", "width": 2},
        textposition="top center",
        cliponaxis=False,
        hoverinfo="skip",
    )
    return [*waterfall.traces(_ROWS, _COLOURS), limit]


def axes() -> dict[str, dict]:
    """Return the axes."""
    return waterfall.axes(_ROWS, theme.axis_title("memory_bytes", "GiB"), top=1.1)


def values(ds: xr.Dataset) -> list[dict]:
    """Return what the traces show of one configuration's `memory_bytes` (kind)."""
    parts = ds.memory_bytes.values / theme.SHOWN["GiB"]
    usable = ds.usable_bytes.item() / theme.SHOWN["GiB"]
    text = [_gib(part) for part in parts] + [f"<b>{_gib(parts.sum())}</b>"]
    limit = {"x": [usable, usable], "text": ["", f"usable: {_gib(usable)}"]}
    return [*waterfall.values(parts, text, reach=usable * 1.2), limit]


def figure(ds: xr.Dataset) -> go.Figure:
    """Draw what fills the memory beside how much may be used.

    Args:
        ds: one configuration of `predict`.
    """
    return theme.figure(
        traces(), values(ds), **axes(), height=290, title={"text": "What fills the memory"}
    )


def fit_matrix(ds: xr.Dataset) -> go.Figure:
    """Draw speed where a model fits and what is missing where it does not.

    Args:
        ds: `predict` over the dimensions model and quant.
    """
    ds = ds.transpose("model", "quant", ...)
    fits = ds.fits.values
    speed = np.where(fits, ds.decode_tok_s.values, np.nan)
    cells = go.Heatmap(
        x=ds.quant.values,
        y=ds.model.values,
        z=speed,
        texttemplate="%{z:.3g}",
        colorscale="Cividis",
        colorbar={"title": {"text": theme.axis_title(ds.decode_tok_s), "side": "right"}},
        hovertemplate="%{y} %{x}: %{z:.3g} tok/s<extra></extra>",
        xgap=2,
        ygap=2,
    )
    axes = {
        "xaxis": {"title": {"text": theme.axis_title(ds.quant)}, "showgrid": False},
        "yaxis": {"autorange": "reversed", "showgrid": False},
    }
    title = {"text": "Decode speed where it fits, GiB missing where it does not"}
    height = 180 + 34 * ds.sizes["model"]
    return theme.figure([cells, _missing(ds, fits)], **axes, height=height, title=title)


def _missing(ds: xr.Dataset, fits: np.ndarray) -> go.Scatter:
    rows, columns = np.nonzero(~fits)
    short = -ds.headroom_bytes.values[rows, columns] / theme.SHOWN["GiB"]
    text = [f"{gib:.3g} GiB short" for gib in short]
    x, y = ds.quant.values[columns], ds.model.values[rows]
    return go.Scatter(x=x, y=y, text=text, mode="text", hoverinfo="skip")


def _gib(count: float) -> str:
    return f"{count:.3g} GiB" if count >= 1 else f"{count:.2f} GiB"
