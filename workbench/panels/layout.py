"""How the KV cache of a model lies in a machine's memory, and what gathering it costs."""

import ipywidgets as widgets
import plotly.graph_objects as go
import xarray as xr

from workbench.figures import layout as figure
from workbench.figures import theme
from workbench.figures.context import HIGH, LOW
from workbench.hardware import layout
from workbench.panels import choices
from workbench.panels.controls import GroupedChoice, NumberSlider
from workbench.panels.panel import Panel
from workbench.specs.workload import KV_TYPES, Workload
from workbench.study.predict import predict

_PAGES = {"4 KiB": 2**12, "16 KiB": 2**14, "2 MiB": 2**21}


class LayoutPanel(Panel):
    """Pick a model, a machine, the tokens of a block, and what a page walk costs."""

    def controls(self) -> dict[str, dict[str, widgets.Widget]]:
        """Return the controls of model, cache and memory."""
        wide = {"width": "auto"}
        return {
            "Model": {
                "machine": GroupedChoice(("kind", "machine"), choices.machines(), "apple-m4-pro-20-core-gpu"),
                "model": GroupedChoice(("family", "model"), choices.families(), "llama-3.1-8b"),
            },
            "KV cache": {
                "context": NumberSlider("context [token]", 8192, LOW, HIGH, log=True),
                "block": NumberSlider("block [token]", 16, 1, LOW, log=True),
                "kv": widgets.Dropdown(
                    options=choices.KV_CACHES, value="f16", description="KV cache", layout=wide
                ),
            },
            "Memory": {
                "depth": NumberSlider("reads queued", 32, 1, 64, log=True),
                "page": widgets.Dropdown(
                    options=list(_PAGES.items()), value=2**14, description="page", layout=wide
                ),
                "walk": NumberSlider("page walk [ns]", 0, 0, 400),
            },
        }  # fmt: skip

    def compute(self, **values) -> xr.Dataset:
        """Price the token and gather its cache in every arrangement."""
        model, machine = choices.preset(values["model"]), choices.device(values["machine"])
        bits = KV_TYPES[values["kv"]]
        work = Workload(context=values["context"], kv_bits=bits)
        engine = choices.engines_for(machine.device_class)[0]
        self._token = predict(model, machine, work, engine=engine)
        return layout.arrangements(
            model, machine, values["context"], values["block"], kv_bits=bits, queue_depth=values["depth"],
            page=values["page"], walk=values["walk"] * 1e-9,
        )  # fmt: skip

    def figure(self) -> go.Figure:
        """Return both views in one figure."""
        return figure.empty()

    def draw(self, fig: go.Figure, ds: xr.Dataset) -> None:
        """Refill both views."""
        theme.fill(fig, figure.values(ds, self.values["page"], self._token.time_s.sum().item()))

    def status(self, ds: xr.Dataset) -> str:
        """Say what the layout changes against what the KV cache is of a token."""
        took, token = ds.gather_s.values, self._token
        moved = (token.kv_bytes / (token.kv_bytes + token.weight_bytes)).item()
        spread = (took.max() - took[-1]) / token.time_s.sum().item()
        return (
            f"K and V are {moved:.0%} of the bytes of a token; from the best to the worst layout it takes "
            f"{spread:.0%} longer, at {ds.effective_bandwidth.values[0] / 1e9:.0f} to "
            f"{ds.effective_bandwidth.values[-1] / 1e9:.0f} GB/s."
        )

    def to_code(self) -> str:
        """Return the lines that compute `data` in a script."""
        v = self.values
        return "\n".join([
            "import workbench as wb",
            "from workbench.hardware import layout",
            "",
            f"model = wb.Model.preset({v['model']!r})",
            f"device = wb.Device.preset({v['machine']!r})",
            f"ds = layout.arrangements(model, device, {v['context']}, {v['block']}, kv_bits={KV_TYPES[v['kv']]},",
            f"                         queue_depth={v['depth']}, page={v['page']}, walk={v['walk']}e-9)",
        ])  # fmt: skip
