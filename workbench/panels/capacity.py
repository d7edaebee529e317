"""How much of the memory is mine: what fills it, which models fit, and what more would do."""

import dataclasses

import ipywidgets as widgets
import plotly.graph_objects as go
import xarray as xr

from workbench.figures import budget, context, headroom, memory_cliff, theme
from workbench.panels import choices
from workbench.panels.controls import GroupedChoice, NumberSlider
from workbench.panels.decimal import DecimalSlider
from workbench.panels.panel import Panel
from workbench.specs.device import Device
from workbench.specs.model import Model
from workbench.specs.workload import KV_TYPES, Workload
from workbench.study import capacity as study
from workbench.study.predict import predict
from workbench.units import GiB, human_bytes

#: The matrix: small to large, dense and sparse, of several houses.
MODELS = (
    "llama-3.2-3b", "llama-3.1-8b", "qwen3-14b", "qwen3.6-27b", "gemma-3-27b-it", "qwen3-30b-a3b",
    "qwen3.6-35b-a3b", "mixtral-8x7b-v0.1", "llama-3.3-70b-instruct",
)  # fmt: skip
QUANTS = ("Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0", "F16")


class CapacityPanel(Panel):
    """Pick a machine, how much of its memory a model may use, and what it shall hold."""

    def controls(self) -> dict[str, dict[str, widgets.Widget]]:
        """Return the controls of machine, model and use."""
        wide = {"width": "auto"}
        self._machine = GroupedChoice(
            ("kind", "machine"), choices.machines(), "apple-m4-10-core-gpu"
        )
        self._model = GroupedChoice(("family", "model"), choices.families(), "qwen3.6-27b")
        self._memory = widgets.Dropdown(description="memory", layout=wide)
        self._quant = widgets.Dropdown(description="format", layout=wide)
        self._limit = DecimalSlider("limit [GiB]", 1.0, 0.5, 512.0, 0.1)
        self._default = widgets.Checkbox(
            True, description="default limit", indent=False, layout=wide
        )
        self._offer()
        return {
            "Machine": {
                "machine": self._machine,
                "memory": self._memory,
                "default": self._default,
                "limit": self._limit,
            },
            "Model": {"model": self._model, "quant": self._quant},
            "Use": {
                "context": NumberSlider(
                    "context [token]", 8192, context.LOW, context.HIGH, log=True
                ),
                "batch": NumberSlider("batch", 1, 1, 64, log=True),
                "kv": widgets.Dropdown(
                    options=choices.KV_CACHES, value="f16", description="KV cache", layout=wide
                ),
            },
        }

    def adapt(self, changed: str) -> None:
        """Let the limit follow the system's rule until it is moved."""
        if changed == "machine":
            self._offer()
        if changed == "memory":
            self._limit.widen(self.values["memory"] / GiB)
        if changed == "limit":
            self._default.value = False
        elif self._default.value and changed in ("machine", "memory", "default"):
            self._follow()

    def compute(self, **values) -> xr.Dataset:
        """Price the model here, all of the matrix, and the model on other sizes of memory."""
        model, device, work = self._asked_model(), self._asked_device(), _workload(values)
        limit = {"wired_limit": None if values["default"] else values["limit"] * GiB}
        asked = {"quant": values["quant"], "engine": self._engine}
        ds = predict(model, device, work, **asked, **limit)
        models = [choices.preset(name) for name in MODELS]
        self._room = study.headroom(models, device, work, QUANTS, engine=self._engine, **limit)
        sizes = [size * GiB for size in memory_cliff.SIZES]
        self._curve = study.speed_by_memory(model, device, work, sizes, **asked)
        return ds

    def figure(self) -> go.Figure:
        """Return the three views in one figure."""
        return budget.empty(MODELS, QUANTS)

    def draw(self, fig: go.Figure, ds: xr.Dataset) -> None:
        """Refill the three views."""
        memory = self._memory.value
        bars, cells = budget.values(ds, memory), headroom.values(self._room)
        theme.fill(fig, [*bars, *cells, *memory_cliff.values(self._curve, ds, memory)])

    def status(self, ds: xr.Dataset) -> str:
        """Say whether it fits, how much is left or missing, and the longest context."""
        need, have = (human_bytes(float(b)) for b in (ds.memory_bytes.sum(), ds.usable_bytes))
        room, longest = ds.headroom_bytes.item(), ds.max_context.item()
        left = f"{human_bytes(abs(room))} {'left over' if room >= 0 else 'missing'}"
        text = f"{'It fits' if ds.fits.item() else 'It does not fit'}: {need} of {have}, {left}."
        if longest == float("inf"):
            return f"{text} Any context fits."
        return f"{text} Longest usable context: {longest:,.0f} tokens."

    def to_code(self) -> str:
        """Return the lines that compute `data` in a script."""
        v = self.values
        limit = "" if v["default"] else f", wired_limit={v['limit']} * 2**30"
        return "\n".join([
            "import workbench as wb",
            "",
            f"model = wb.Model.preset({v['model']!r})",
            f"device = wb.Device.preset({v['machine']!r}, memory={v['memory']:.0f})",
            f"work = wb.Workload(context={v['context']}, batch={v['batch']}, kv_bits={v['kv']!r})",
            f"ds = wb.predict(model, device, work, quant={v['quant']!r}, "
            f"engine={self._engine!r}{limit})",
        ])  # fmt: skip

    @property
    def _engine(self) -> str:
        return choices.engines_for(choices.device(self._machine.value).device_class)[0]

    def _asked_device(self) -> Device:
        return _sized(self._machine.value, self._memory.value)

    def _asked_model(self) -> Model:
        return choices.preset(self._model.value)

    def _offer(self) -> None:
        """Offer every size, the machine's own first choice, and the engine's formats."""
        device, before = choices.device(self._machine.value), self._quant.value
        sizes = {size * GiB for size in memory_cliff.SIZES} | {device.memory}
        self._memory.options = [(_sold(s, device), s) for s in sorted(sizes)]
        self._memory.value = device.memory
        self._limit.widen(device.memory / GiB)
        offered = choices.formats_for(self._engine)
        self._quant.options = offered
        usual = next((q for q in offered if "4" in q), offered[0])
        self._quant.value = before if before in offered else usual
        self._follow()

    def _follow(self) -> None:
        """Show the system's own limit on the slider."""
        model, device = self._asked_model(), self._asked_device()
        ds = predict(model, device, quant=self._quant.value, engine=self._engine)
        self._limit.value = self._limit.clip(ds.usable_bytes.item() / GiB)


def _workload(values: dict) -> Workload:
    return Workload(
        context=values["context"], batch=values["batch"], kv_bits=KV_TYPES[values["kv"]]
    )


def _sized(machine: str, memory: float) -> Device:
    return dataclasses.replace(choices.device(machine), memory=float(memory))


def _sold(size: float, device: Device) -> str:
    sold = size in (device.memory_options or (device.memory,))
    return human_bytes(size) if sold else f"{human_bytes(size)} (if it were sold)"
