"""A model taken apart: what formats lose of a tensor, and which experts its tokens go to."""

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from workbench.figures import theme

TITLE = "What is left of a tensor in fewer bits"
_BEST = 60.0  # dB: lossless has no noise, and stands at the top


def empty() -> go.Figure:
    """Return the formats' figure, still without points."""
    points = go.Scatter(
        mode="markers+text", cliponaxis=False,
        hovertemplate="%{text}: %{y:.1f} dB at %{x:.2f} bits<extra></extra>",
        marker={"size": 11, "color": theme.PALETTE[0]},
    )  # fmt: skip
    rule = go.Scatter(
        mode="lines", hoverinfo="skip", line={"dash": "dot", "color": theme.INK, "width": 1.5}
    )
    return theme.figure(
        [points, rule], title={"text": TITLE}, height=400,
        xaxis={"range": [2, 9.2], "title": {"text": theme.axis_title("bits_per_weight")}},
        yaxis={"range": [0, _BEST + 6], "title": {"text": theme.axis_title("sqnr")}},
    )  # fmt: skip


def values(ds: xr.Dataset) -> list[dict]:
    """Return what the traces show of `study.engine_tour.losses`: the formats, and 6 dB a bit."""
    bits, sqnr = ds.bits_per_weight.values, np.minimum(ds.sqnr.values, _BEST)
    text = [f"{name} (as stored)" if np.isinf(v) else str(name)
            for name, v in zip(ds.quant.values, ds.sqnr.values, strict=True)]  # fmt: skip
    ends = np.array([2.0, 9.2])
    # A bit halves the step, and with it the noise: 20 log10(2) dB, drawn through the finest format.
    finest = int(np.argmax(np.where(np.isinf(ds.sqnr.values), -1, bits)))
    line = sqnr[finest] + 20 * np.log10(2) * (ends - bits[finest])
    points = {"x": bits, "y": sqnr, "text": text, "textposition": _places(bits, sqnr)}
    return [points, {"x": ends, "y": line}]


def _places(bits: np.ndarray, sqnr: np.ndarray) -> list[str]:
    """Return where names stand: under a point that has another right above it."""
    above = (np.abs(bits - bits[:, None]) < 0.5) & (sqnr > sqnr[:, None])
    return ["bottom center" if any(row) else "top center" for row in above]


def losses(ds: xr.Dataset) -> go.Figure:
    """Draw the formats as a plain figure."""
    fig = empty()
    theme.fill(fig, values(ds))
    return fig


def routing(trace: xr.Dataset, layer: int = 0) -> go.Figure:
    """Draw which experts each token of `routing_trace` goes to in a layer, and with what weight."""
    one = trace.isel(layer=layer)
    weights = np.zeros((trace.attrs["experts"], one.sizes["token"]))
    for expert, weight in zip(one.expert.values.T, one.expert_weight.values.T, strict=True):
        weights[expert, np.arange(weights.shape[1])] = weight
    cells = go.Heatmap(
        z=weights, zmin=0, zmax=1, colorscale="Cividis", xgap=1, ygap=1,
        colorbar={"title": {"text": "weight"}},
        hovertemplate="token %{x}, expert %{y}: %{z:.2f}<extra></extra>",
    )  # fmt: skip
    return theme.figure(
        [cells], title={"text": f"Where tokens go in layer {layer}"}, height=320,
        xaxis={"title": {"text": "token"}}, yaxis={"title": {"text": "expert"}, "dtick": 1},
    )  # fmt: skip
