"""The ledger of a token: where the time of one decode step goes (M01-M04)."""

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from workbench.figures import theme, waterfall
from workbench.hardware.roofline import TERMS

#: What a term is, in words that need no glossary.
NAMES = {
    "weights": "reading the weights",
    "spill": "reading spilled weights",
    "kv": "reading the KV cache",
    "attention": "attention arithmetic",
    "compute": "matrix arithmetic",
    "dispatch": "launching the layers",
    "routing": "routing to experts",
    "fixed": "fixed cost per token",
}
_ROWS = (*(NAMES.get(term, term) for term in TERMS), "<b>one token</b>")
_COLOURS = (*(theme.COLOURS.get(term, theme.INK) for term in TERMS), theme.INK)


def traces() -> list:
    """Return the traces, still empty."""
    return waterfall.traces(_ROWS, _COLOURS)


def axes() -> dict[str, dict]:
    """Return the axes."""
    return waterfall.axes(_ROWS, theme.axis_title("time_s", "ms"))


def values(ds: xr.Dataset) -> list[dict]:
    """Return what the traces show of one configuration's `time_s` (term)."""
    parts = ds.time_s.values / theme.SHOWN["ms"]
    share = parts / parts.sum()
    binding = int(np.argmax(parts))
    text = [_label(p, s, i == binding) for i, (p, s) in enumerate(zip(parts, share, strict=True))]
    return waterfall.values(parts, [*text, f"<b>{parts.sum():.3g} ms</b>"])


def figure(ds: xr.Dataset) -> go.Figure:
    """Draw where the time of one token goes.

    Args:
        ds: one configuration of `predict`.
    """
    return theme.figure(
        traces(), values(ds), **axes(), height=380, title={"text": "Where one token's time goes"}
    )


def _label(part: float, share: float, binds: bool) -> str:
    if share < 5e-4:
        return "–"
    text = f"{part:.3g} ms, {share:.0%}" if share >= 0.01 else f"{part:.2g} ms, <1%"
    return f"<b>{text}, binds</b>" if binds else text
