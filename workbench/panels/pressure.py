"""What happens when a model outgrows the memory: the cliff, and what an engine can save of it."""

import functools

import ipywidgets as widgets
import plotly.graph_objects as go
import xarray as xr

from workbench.figures import pressure as figure
from workbench.figures import theme
from workbench.panels import choices
from workbench.panels.controls import GroupedChoice
from workbench.panels.decimal import DecimalSlider
from workbench.panels.panel import Panel
from workbench.study.pressure import under_pressure
from workbench.units import GiB, human_bytes


class PressurePanel(Panel):
    """Pick a model, the memory that its weights may take, and the disk behind it."""

    def controls(self) -> dict[str, dict[str, widgets.Widget]]:
        """Return the controls of memory, model and disk."""
        wide = {"width": "auto"}
        self._machine = GroupedChoice(("kind", "machine"), _unified(), "apple-m4-10-core-gpu")
        self._model = GroupedChoice(("family", "model"), choices.families(), "qwen3.6-27b")
        self._quant = widgets.Dropdown(description="format", layout=wide)
        self._offer()
        return {
            "Memory": {
                "memory": DecimalSlider("memory [GiB]", 12.0, 4.0, 512.0, 0.5),
                "ratio": DecimalSlider("compressor", 1.0, 1.0, 3.0, 0.05),
            },
            "Model": {"model": self._model, "quant": self._quant},
            "Machine": {
                "machine": self._machine,
                "disk": DecimalSlider("disk [GB/s]", 3.0, 0.1, 20.0, 0.1),
            },
        }

    def adapt(self, changed: str) -> None:
        """Offer the formats of the machine's engine."""
        if changed == "machine":
            self._offer()

    def compute(self, **values) -> xr.Dataset:
        """Price one memory, and look up all the others."""
        asked = tuple(values[name] for name in ("model", "machine", "quant", "disk", "ratio"))
        now = _priced(*asked, values["memory"] * GiB)
        edge = now.working_bytes.item() / values["ratio"]
        sizes = {*(size * GiB for size in figure.SIZES), edge * (1 - 1e-9), edge}
        self._curve = _priced(*asked, tuple(sorted(sizes)))
        return now

    def figure(self) -> go.Figure:
        """Return the figure, empty."""
        return figure.empty()

    def draw(self, fig: go.Figure, ds: xr.Dataset) -> None:
        """Refill the lines."""
        theme.fill(fig, figure.values(self._curve, ds, self.values["memory"] * GiB))

    def status(self, ds: xr.Dataset) -> str:
        """Say how much is missed at each token, and how fast that is either way."""
        paged, random, streamed = ds.tok_s.values
        whole, memory = ds.working_bytes.item(), self.values["memory"] * GiB
        if not ds.miss.values.any():
            return f"{human_bytes(whole)} of weights fit {human_bytes(memory)}: {paged:.3g} tok/s."
        return (
            f"{human_bytes(memory)} for {human_bytes(whole)} of weights: the system reads "
            f"{ds.miss.values[0]:.0%} of a token's bytes from the disk ({paged:.3g} tok/s; "
            f"{random:.3g} if it throws out at random), an engine that keeps what fits "
            f"{ds.miss.values[2]:.0%} ({streamed:.3g} tok/s)."
        )

    def to_code(self) -> str:
        """Return the lines that compute `data` in a script."""
        v = self.values
        return "\n".join([
            "import workbench as wb",
            "from workbench.study.pressure import under_pressure",
            "",
            f"model, device = wb.Model.preset({v['model']!r}), wb.Device.preset({v['machine']!r})",
            f"ds = under_pressure(model, device, '{v['memory']} GiB', storage='{v['disk']} GB/s',",
            f"                    quant={v['quant']!r}, engine={_engine(v['machine'])!r}, ratio={v['ratio']})",
        ])  # fmt: skip

    def _offer(self) -> None:
        before, offered = self._quant.value, choices.formats_for(_engine(self._machine.value))
        self._quant.options = offered
        usual = next((q for q in offered if "4" in q), offered[0])
        self._quant.value = before if before in offered else usual


@functools.lru_cache(maxsize=128)
def _priced(model: str, machine: str, quant: str, disk: float, ratio: float, memory) -> xr.Dataset:
    """Return what is asked, kept for the next move of a slider."""
    return under_pressure(
        choices.preset(model), choices.device(machine), list(memory) if isinstance(memory, tuple) else memory,
        storage=disk * 1e9, quant=quant, engine=_engine(machine), ratio=ratio,
    )  # fmt: skip


def _engine(machine: str) -> str:
    return choices.engines_for(choices.device(machine).device_class)[0]


@functools.cache
def _unified() -> dict[str, dict[str, str]]:
    """Return the machines whose memory has nothing behind it but the disk."""
    found = {
        kind: {text: name for text, name in members.items() if choices.device(name).unified}
        for kind, members in choices.machines().items()
    }
    return {kind: members for kind, members in found.items() if members}
