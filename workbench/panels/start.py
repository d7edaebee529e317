"""Start here: which models run on my machine, how fast, why, and what would help."""

import html
import os
import shlex

import ipywidgets as widgets
import numpy as np
import plotly.graph_objects as go
import xarray as xr

from workbench.errors import WorkbenchError
from workbench.figures import context, ledger, start, theme
from workbench.panels import choices
from workbench.panels.controls import GroupedChoice, NumberSlider
from workbench.panels.panel import Panel
from workbench.specs.device import Device
from workbench.specs.model import Model
from workbench.specs.workload import KV_TYPES, Workload, axis
from workbench.study.explain import explain, flags
from workbench.study.predict import predict
from workbench.units import human_bytes

TRUST = {
    "measured": "this machine was measured with this engine",
    "calibrated": "machines of this kind were measured",
    "prior": "no machine of this kind was measured",
    "outside range": "beyond what was measured",
}
POINTS = 24  # of the curve; the current context takes the place of the nearest


class StartPanel(Panel):
    """Pick a machine and a model, or your own file, and read what to expect and what to change."""

    def controls(self) -> dict[str, dict[str, widgets.Widget]]:
        """Return the controls of machine, model and use."""
        wide = {"width": "auto"}
        self._memory = widgets.Dropdown(description="memory", layout=wide)
        self._engine = widgets.Dropdown(description="engine", layout=wide)
        self._quant = widgets.Dropdown(description="format", layout=wide)
        self._file = widgets.Text(
            description="or own file", placeholder="path, then Enter",
            continuous_update=False, layout=wide,
        )  # fmt: skip
        self._machine = GroupedChoice(
            ("kind", "machine"), choices.machines(), "apple-m4-pro-20-core-gpu"
        )
        self._model = GroupedChoice(("family", "model"), choices.families(), "llama-3.1-8b")
        self._offer_memory()
        self._offer_engines()
        return {
            "Your machine": {
                "machine": self._machine,
                "memory": self._memory,
                "engine": self._engine,
            },
            "Your model": {"model": self._model, "file": self._file, "quant": self._quant},
            "Your use": {
                "context": NumberSlider(
                    "context [token]", 4096, context.LOW, context.HIGH, log=True
                ),
                "prompt": NumberSlider("prompt [token]", 512, 1, context.HIGH, log=True),
                "batch": NumberSlider("batch", 1, 1, 64, log=True),
                "kv": widgets.Dropdown(
                    options=choices.KV_CACHES, value="f16", description="KV cache", layout=wide
                ),
            },
        }

    def adapt(self, changed: str) -> None:
        """Offer only what the machine, the engine and the file can do."""
        if changed == "machine":
            self._offer_memory()
            self._offer_engines()
        if changed == "model":
            self._file.value = ""
        if changed in ("machine", "engine", "model", "file"):
            self._offer_formats()

    def compute(self, **values) -> xr.Dataset:
        """Price the curve over context in one call and return the current point of it."""
        model, device = self._asked_model(), self._asked_device()
        grid = _grid(values["context"], model.max_context)
        self._curve = predict(
            model, device, _workload(values, axis("context", grid)),
            quant=values["quant"], engine=values["engine"],
        )  # fmt: skip
        return self._curve.isel(context=grid.index(values["context"]))

    def figure(self) -> go.Figure:
        """Return the three views in one figure."""
        return start.empty()

    def draw(self, fig: go.Figure, ds: xr.Dataset) -> None:
        """Refill the three views."""
        theme.fill(fig, start.values(self._curve, ds))

    def status(self, ds: xr.Dataset) -> str:
        """Say whether it fits, how fast it is, what binds."""
        return ". ".join(f"{head}: {rest}" for head, rest, _ in _reads(ds)) + "."

    def headline(self, ds: xr.Dataset) -> str:
        """Return the same as tiles."""
        tiles = (
            f'<div class="wb-tile {look}"><b>{html.escape(head)}</b>{html.escape(rest)}</div>'
            for head, rest, look in _reads(ds)
        )
        return f'<div class="wb-tiles">{"".join(tiles)}</div>'

    def below(self) -> list[widgets.Widget]:
        """Return the table of fixes and the command."""
        self._fixes = widgets.HTML()
        return [self._fixes]

    def details(self, ds: xr.Dataset) -> None:
        """Rank what to change, and write the command."""
        self.explained = explain(ds)
        self._fixes.value = _fix_table(self.explained) + self._command(ds)

    def to_code(self) -> str:
        """Return the lines that compute `data` in a script."""
        v = self.values
        memory = f", memory={human_bytes(v['memory'])!r}" if len(self._memory.options) > 1 else ""
        return "\n".join([
            "import workbench as wb",
            "",
            f"model = {self._model_code()}",
            f"device = wb.Device.preset({v['machine']!r}{memory})",
            f"work = wb.Workload(prompt={v['prompt']}, context={v['context']}, batch={v['batch']}, "
            f"kv_bits={v['kv']!r})",
            f"ds = wb.predict(model, device, work, quant={v['quant']!r}, engine={v['engine']!r})",
        ])  # fmt: skip

    def _model_code(self) -> str:
        path = self._file.value.strip()
        if not path:
            return f"wb.Model.preset({self._model.value!r})"
        reader = "from_gguf" if path.lower().endswith(".gguf") else "from_hf"
        return f"wb.Model.{reader}({os.path.expanduser(path)!r})"

    def _asked_device(self) -> Device:
        return choices.device(self._machine.value, self._memory.value)

    def _asked_model(self) -> Model:
        path = self._file.value.strip()
        return choices.own_model(path) if path else choices.preset(self._model.value)

    def _offer_memory(self) -> None:
        device = choices.device(self._machine.value)
        sizes = device.memory_options or (device.memory,)
        self._memory.options = [(human_bytes(size), size) for size in sorted(sizes)]
        self._memory.value = device.memory if device.memory in sizes else max(sizes)

    def _offer_engines(self) -> None:
        before, kind = self._engine.value, choices.device(self._machine.value).device_class
        self._engine.options = offered = choices.engines_for(kind)
        self._engine.value = before if before in offered else offered[0]
        self._offer_formats()

    def _offer_formats(self) -> None:
        before, own = self._quant.value, self._stored_format()
        offered = (own,) if own else choices.formats_for(self._engine.value)
        self._quant.options = offered
        self._quant.disabled = bool(own)
        usual = next((q for q in offered if "4" in q), offered[0])
        self._quant.value = before if before in offered else usual

    def _stored_format(self) -> str:
        """Return the format that a file's weights have; "" where it can be chosen."""
        try:
            model = self._asked_model()
        except WorkbenchError:
            return ""  # compute says what is wrong with it
        return model.quant if model.stored_bytes is not None else ""

    def _command(self, ds: xr.Dataset) -> str:
        file = os.path.expanduser(self._file.value.strip())
        if not file.lower().endswith(".gguf"):
            file = f"{ds.model.item()}-{ds.quant.item()}.gguf".replace(" ", "-")
        command = html.escape(shlex.join(flags(ds, file)))
        return f'<h4>Start it with llama.cpp</h4><code class="wb-command">{command}</code>'


def _workload(values: dict, context_axis) -> Workload:
    return Workload(
        prompt=values["prompt"], context=context_axis, batch=values["batch"],
        kv_bits=KV_TYPES[values["kv"]],
    )  # fmt: skip


def _grid(here: int, trained: float) -> list[int]:
    """Return POINTS contexts up to what the model was trained for, `here` among them.

    Always as many, since a new shape would be compiled anew.
    """
    high = min(trained, context.HIGH) if trained > context.LOW * 4 else context.HIGH
    grid = np.unique(np.geomspace(context.LOW, high, POINTS).round().astype(int))
    grid[np.argmin(np.abs(np.log(grid / here)))] = here
    return sorted(grid.tolist())


def _reads(ds: xr.Dataset) -> list[tuple[str, str, str]]:
    """Return (what, in which words, look) for each thing to read at a glance."""
    need, have = (human_bytes(float(b)) for b in (ds.memory_bytes.sum(), ds.usable_bytes))
    step, binding = float(ds.time_s.sum()), ds.bound.item()
    share = float(ds.time_s.sel(term=binding)) / step
    cold, warm = ds.load_s.values  # as in load.CACHE_STATES
    start = ds.cold_start_s.sel(cache_state="cold").item()
    fits = ds.fits.item()
    return [
        ("It fits" if fits else "It does not fit", f"needs {need} of {have} usable",
         "wb-ok" if fits else "wb-bad"),
        (f"{ds.decode_tok_s.item():.3g} tok/s",
         f"80 % interval {ds.lower.item():.3g} to {ds.upper.item():.3g}; "
         f"{TRUST[ds.trust.item()]}", ""),
        (f"{_seconds(ds.ttft_s.item())} to the first token",
         f"the prompt is read at {ds.prefill_tok_s.item():.3g} tok/s", ""),
        (f"Loads in {_seconds(cold)}",
         f"from the disk, {_seconds(warm)} if cached; first token {_seconds(start)} after a cold "
         "start", ""),
        (f"Limit: {ledger.NAMES.get(binding, binding)}",
         f"takes {share:.0%} of the {_seconds(step)} of a step", ""),
    ]  # fmt: skip


def _seconds(value: float) -> str:
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"


def _fix_table(explained: xr.Dataset) -> str:
    """Return the ranked changes and what each gains, as HTML."""
    rows = "".join(
        f"<tr><td>{html.escape(str(fix))}</td><td class='wb-number'>{speed:.3g} tok/s</td>"
        f"<td class='wb-number'>{gain:.2f} ×</td><td>{'yes' if fits else 'no'}</td></tr>"
        for fix, speed, gain, fits in zip(
            explained.fix.values, explained.fix_tok_s.values, explained.gain.values,
            explained.fix_fits.values, strict=True,
        )
    )  # fmt: skip
    if not rows:
        return "<h4>What would help</h4><p>Nothing here gains more than 2 %.</p>"
    head = "<tr><th>change</th><th>speed then</th><th>gain</th><th>fits</th></tr>"
    return f'<h4>What would help</h4><table class="wb-table">{head}{rows}</table>'
