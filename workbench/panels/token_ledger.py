"""Where does a token's time go: bend its ledger until it runs through what was measured."""

import functools
import math

import ipywidgets as widgets
import plotly.graph_objects as go
import xarray as xr

from workbench.errors import SpecError
from workbench.figures import affine as affine_figure
from workbench.figures import roofline, theme, token_ledger
from workbench.hardware.affine import Line, affine
from workbench.panels import choices
from workbench.panels.controls import GroupedChoice, NumberSlider
from workbench.panels.decimal import DecimalSlider
from workbench.panels.panel import Panel
from workbench.specs.device import Device
from workbench.specs.model import Model
from workbench.specs.workload import Workload, axis
from workbench.study.predict import predict
from workbench.study.token_ledger import (
    bent,
    fixed_time,
    measured_tokens,
    operations,
    weight_efficiency,
)

BATCHES = (1, 4, 16, 64)  # on the roofline; the ledger is that of batch 1
PROMPT = 512  # tokens of the prefill on the roofline


class TokenLedgerPanel(Panel):
    """Pick a machine and a model; take the calibrated ledger of a token, or bend it."""

    def controls(self) -> dict[str, dict[str, widgets.Widget]]:
        """Return the controls of machine, model and ledger."""
        wide = {"width": "auto"}
        self._machine = GroupedChoice(
            ("kind", "machine"), choices.machines(), "apple-m2-10-core-gpu"
        )
        self._model = GroupedChoice(("family", "model"), choices.families(), "llama-2-7b-hf")
        self._quant = widgets.Dropdown(description="format", layout=wide)
        self._context = NumberSlider("context [token]", 512, 1, 131_072, log=True)
        self._efficiency = DecimalSlider("share of bandwidth", 0.9, 0.3, 1.1, 0.01)
        self._fixed = DecimalSlider("fixed time t0 [ms]", 4.0, 0.0, 60.0, 0.1)
        self._calibrated = widgets.Checkbox(
            True, description="as calibrated", indent=False, layout=wide
        )
        self._offer_formats()
        self._follow()
        return {
            "Machine": {"machine": self._machine},
            "Model": {"model": self._model, "quant": self._quant, "context": self._context},
            "Ledger: bend it": {
                "calibrated": self._calibrated,
                "efficiency": self._efficiency,
                "fixed": self._fixed,
            },
        }

    def adapt(self, changed: str) -> None:
        """Let both sliders follow the calibration until one of them is moved."""
        if changed == "machine":
            self._offer_formats()
        if changed in ("efficiency", "fixed"):
            self._calibrated.value = False
        elif self._calibrated.value and changed != "context":
            self._follow()

    def compute(self, **values) -> xr.Dataset:
        """Price the token at all batches in one call and return that of batch 1, bent if asked."""
        self._steps = self._ask(values["context"])
        self._token = self._steps.isel(batch=0)
        if values["calibrated"]:
            self._shown = self._steps
        else:
            own = {"efficiency": values["efficiency"], "fixed": values["fixed"] * 1e-3}
            self._shown = bent(self._steps, **own)
        ds = self._shown.isel(batch=0)
        share = weight_efficiency(ds)
        self._law = token_ledger.law(ds, fixed_time(ds), 1.0 if math.isnan(share) else share)
        return ds

    def figure(self) -> go.Figure:
        """Return the three views in one figure."""
        return token_ledger.empty()

    def draw(self, fig: go.Figure, ds: xr.Dataset) -> None:
        """Refill the three views."""
        device, law = self._device(), self._law
        points = operations(self._shown, self._asked_model(), PROMPT)
        share = law.bandwidth / device.bandwidth
        moved = ds.weight_bytes.item() + ds.kv_bytes.item()
        here = (moved, float(ds.time_s.sum()))
        measured, line = _measured(self._machine.value)
        values = token_ledger.all_values(
            self._token, ds,
            roofline.values(points, device.bandwidth, device.flops, share),
            affine_figure.values(measured, line, law, here),
        )  # fmt: skip
        theme.fill(fig, values)

    def status(self, ds: xr.Dataset) -> str:
        """Say how fast the token is, what binds, and by which law."""
        now, terms = self._token, ds.time_s.values
        share, step = terms.max() / terms.sum(), terms.sum()
        text = (
            f"{ds.decode_tok_s.item():.3g} tok/s: {step * 1e3:.3g} ms a token, "
            f"of which {share:.0%} is {token_ledger.NAMES.get(ds.bound.item(), ds.bound.item())}."
        )
        if not self._calibrated.value:
            text += (
                f" Calibrated: {now.decode_tok_s.item():.3g} tok/s "
                f"(80 % interval {now.lower.item():.3g} to {now.upper.item():.3g})."
            )
        if not now.fits.item():
            text += " It does not fit: part of the weights is read over a slower link."
        return f"{text} Law: {affine_figure.words(self._law)}."

    def to_code(self) -> str:
        """Return the lines that compute `data` in a script."""
        v = self.values
        lines = [
            "import workbench as wb",
            "",
            f"model = wb.Model.preset({v['model']!r})",
            f"device = wb.Device.preset({v['machine']!r})",
            f"work = wb.Workload(prompt={PROMPT}, context={v['context']})",
            f"ds = wb.predict(model, device, work, quant={v['quant']!r}, engine={self._engine!r})",
        ]
        if not v["calibrated"]:
            lines += [
                "from workbench.study.token_ledger import bent",
                f"ds = bent(ds, efficiency={v['efficiency']}, fixed={v['fixed'] * 1e-3:.6g})",
            ]
        return "\n".join(lines)

    @property
    def _engine(self) -> str:
        return choices.engines_for(self._device().device_class)[0]

    def _device(self) -> Device:
        return choices.device(self._machine.value)

    def _asked_model(self) -> Model:
        return choices.preset(self._model.value)

    def _ask(self, context: int) -> xr.Dataset:
        work = Workload(prompt=PROMPT, context=context, batch=axis("batch", BATCHES))
        return predict(
            self._asked_model(), self._device(), work, quant=self._quant.value, engine=self._engine
        )

    def _follow(self) -> None:
        """Show the calibrated numbers on the sliders."""
        token = self._ask(self._context.value).isel(batch=0)
        share = weight_efficiency(token)
        if not math.isnan(share):
            self._efficiency.value = self._efficiency.clip(share)
        self._fixed.value = self._fixed.clip(fixed_time(token) * 1e3)

    def _offer_formats(self) -> None:
        before, offered = self._quant.value, choices.formats_for(self._engine)
        self._quant.options = offered
        usual = next((q for q in offered if "4" in q), offered[0])
        self._quant.value = before if before in offered else usual


@functools.lru_cache(maxsize=64)
def _measured(machine: str) -> tuple[xr.Dataset, Line | None]:
    """Return the tokens measured on a machine, and their line if they lie on one."""
    points = measured_tokens(machine)
    try:
        ds = affine(points.size_bytes.values, points.time_s.values)
    except SpecError:
        return points, None
    return points, Line(ds.t0_s.item(), ds.bandwidth.item())
