"""How much memory each model leaves over in each format, in words a colour-blind eye reads too."""

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from workbench.figures import theme

TITLE = "Memory left over (+) or missing (−) [GiB]"
REACH = 32.0  # GiB: the colours say no more beyond
#: Vermillion misses, blue is left over; signs and marks say the same.
_SCALE = ((0.0, "#D55E00"), (0.4999, "#FBE3D3"), (0.5, "#D6E9F5"), (1.0, "#0072B2"))


def traces(models, quants) -> list[go.Heatmap]:
    """Return the cells, still empty."""
    cells = go.Heatmap(
        x=list(quants), y=list(models), colorscale=_SCALE, zmin=-REACH, zmax=REACH, zmid=0,
        texttemplate="%{text}", showscale=False, xgap=3, ygap=3,
        hovertemplate="%{y} %{x}: %{text} GiB<extra></extra>",
    )  # fmt: skip
    return [cells]


def axes() -> dict[str, dict]:
    """Return the axes, the first model on top."""
    x = {
        "type": "category",
        "showgrid": False,
        "ticks": "",
        "title": {"text": theme.axis_title("quant")},
    }
    return {
        "xaxis": x,
        "yaxis": {"type": "category", "autorange": "reversed", "showgrid": False, "ticks": ""},
    }


def values(room: xr.DataArray) -> list[dict]:
    """Return what the cells show.

    Args:
        room: (model, quant) bytes left over, as `study.capacity.headroom` returns them.
    """
    gib = room.values / theme.SHOWN["GiB"]
    return [{"z": gib, "text": np.vectorize(_cell)(gib)}]


def figure(room: xr.DataArray) -> go.Figure:
    """Draw it as a plain figure; argument as for `values`."""
    title = {"text": TITLE}
    height = 150 + 32 * room.sizes["model"]
    drawn = traces(room.model.values, room.quant.values)
    return theme.figure(drawn, values(room), **axes(), height=height, title=title)


def _cell(gib: float) -> str:
    digits = 0 if abs(gib) >= 10 else 1 if abs(gib) >= 0.05 else 2
    size = f"{abs(gib):.{digits}f}"
    return f"✓ +{size}" if gib >= 0 else f"✗ −{size}"
