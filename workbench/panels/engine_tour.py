"""Pick a tensor of a model file and see what each format would lose of it; let the model write."""

import html
from pathlib import Path

import ipywidgets as widgets
import numpy as np
import plotly.graph_objects as go
import xarray as xr

from workbench.engine.decoder_generate import generate
from workbench.engine.loading import Decoder
from workbench.figures import engine_tour as figures
from workbench.figures import theme
from workbench.panels import style
from workbench.panels.controls import NumberSlider
from workbench.panels.job import Job, Report
from workbench.panels.panel import Panel
from workbench.specs.gguf_header import read_header
from workbench.study import engine_tour


class LossPanel(Panel):
    """Formats against a tensor: bits a weight, and signal over noise."""

    def __init__(self, path: str | Path):
        """Offer the matrices of the file at `path`."""
        self.path, header = Path(path), read_header(path)
        first = [n.split(".", 2)[2] for n in header.names if n.startswith("blk.0.")]
        flat = {n for n, s in zip(header.names, header.shapes, strict=True) if len(s) < 2}
        self._pieces = [name for name in first if f"blk.0.{name}" not in flat]
        self._layers = sum(name.endswith(".attn_q.weight") for name in header.names)
        super().__init__()

    def controls(self) -> dict[str, dict[str, widgets.Widget]]:
        """Return the controls: which matrix, of which layer."""
        piece = widgets.Dropdown(
            options=self._pieces, value="ffn_down.weight" if "ffn_down.weight" in self._pieces
            else self._pieces[0], description="matrix", layout={"width": "auto"},
        )  # fmt: skip
        layer = NumberSlider("layer", 0, 0, self._layers - 1)
        return {"Tensor": {"piece": piece, "layer": layer}}

    def compute(self, piece: str, layer: int) -> xr.Dataset:
        """Return the losses of the tensor."""
        return engine_tour.losses(self.path, f"blk.{layer}.{piece}")

    def figure(self) -> go.Figure:
        """Return the figure, empty."""
        return figures.empty()

    def draw(self, fig: go.Figure, ds: xr.Dataset) -> None:
        """Refill the points."""
        theme.fill(fig, figures.values(ds))

    def status(self, ds: xr.Dataset) -> str:
        """Say what the best format of at most 5 bits keeps."""
        few = ds.isel(quant=ds.bits_per_weight.values <= 5)
        at = int(np.argmax(few.sqnr.values))
        one = few.isel(quant=at)
        return (
            f"{ds.attrs['tensor']}: of the formats of at most 5 bits, {one.quant.item()} keeps "
            f"most: {one.sqnr.item():.1f} dB at {one.bits_per_weight.item():.2f} bits a weight."
        )

    def to_code(self) -> str:
        """Return the lines that compute `data` in a script."""
        name = self.data.attrs["tensor"] if self.data is not None else ""
        return "\n".join([
            "from workbench.study.engine_tour import losses",
            "",
            f"ds = losses({self.path.name!r}, {name!r})",
        ])  # fmt: skip


class Writer:
    """A prompt and a button: the model writes on, token by token, until it is stopped."""

    TOKENS = 32

    def __init__(self, decoder: Decoder):
        """Offer to run `decoder`."""
        self._decoder, self._text = decoder, widgets.HTML()
        self.prompt = widgets.Text(
            "The sky is", description="prompt", continuous_update=False, layout={"width": "auto"}
        )
        self.job = Job("Write", self._write)
        box = style.group("Let it write", [self.prompt, self.job.view, self._text])
        self.view = widgets.HBox([style.Sheet(), box], layout=style.ROW)

    def _write(self, report: Report) -> str:
        text = self.prompt.value
        report("the first token waits until XLA has compiled the step; tokens", 0, self.TOKENS)
        for n, piece in enumerate(generate(self._decoder, self.prompt.value, self.TOKENS), 1):
            text += piece.text
            self._text.value = f'<div class="wb-good">{html.escape(text)}</div>'
            if not report("tokens", n, self.TOKENS):
                break
        return text

    def _repr_mimebundle_(self, **kwargs) -> dict:
        return self.view._repr_mimebundle_(**kwargs)
