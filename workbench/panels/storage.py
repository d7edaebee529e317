"""From SSD to first byte: which port, disk or codec shortens a load, and may the KV cache live there."""

import functools

import ipywidgets as widgets
import plotly.graph_objects as go
import xarray as xr

from workbench.figures import storage as figure
from workbench.figures import theme
from workbench.figures.context import HIGH, LOW
from workbench.hardware import storage
from workbench.hardware.storage import Disk
from workbench.hardware.storage_link import find, generations, names
from workbench.hardware.storage_offload import restore
from workbench.panels import choices
from workbench.panels.controls import GroupedChoice, NumberSlider
from workbench.panels.decimal import DecimalSlider
from workbench.panels.panel import Panel
from workbench.specs.workload import Workload
from workbench.study.load import ready
from workbench.study.predict import predict
from workbench.study.storage import kv_per_token, offloaded

_CHUNKS = {"128 KiB (mmap)": 2**17, "256 KiB": 2**18, "1 MiB": 2**20, "4 MiB": 2**22}
_LANES = (1, 2, 4, 8, 16)


class StoragePanel(Panel):
    """Pick a model, its disk, the port between, how it is read, and what stays on the disk."""

    def controls(self) -> dict[str, dict[str, widgets.Widget]]:
        """Return the controls of model, disk, reading and offload."""
        wide = {"width": "auto"}
        self._machine = GroupedChoice(
            ("kind", "machine"), choices.machines(), "apple-m4-pro-20-core-gpu"
        )
        self._model = GroupedChoice(("family", "model"), choices.families(), "llama-3.1-8b")
        return {
            "Model": {
                "machine": self._machine,
                "model": self._model,
                "context": NumberSlider("context [token]", 8192, LOW, HIGH, log=True),
                "resident": DecimalSlider("KV in memory", 0.5, 0.0, 1.0, 0.05),
            },
            "Disk and port": {
                "disk": widgets.Dropdown(
                    options=list(storage.disks()), description="disk", layout=wide
                ),
                "link": GroupedChoice(("port", "link"), _links(), "PCIe 4.0 x4"),
                "depth": NumberSlider("queue depth", 1, 1, 256, log=True),
                "block": widgets.Dropdown(
                    options=[(name, size) for size, name in figure.BLOCKS.items()],
                    description="block", layout=wide,
                ),
            },
            "Loading": {
                "streams": NumberSlider("streams", 1, 1, 64, log=True),
                "chunk": widgets.Dropdown(
                    options=list(_CHUNKS.items()), description="request", layout=wide
                ),
                "ratio": DecimalSlider("ratio", 1.0, 1.0, 4.0, 0.05),
                "codec": DecimalSlider("codec [GB/s]", 1.6, 0.1, 20.0, 0.1),
                "overlap": widgets.Checkbox(
                    False, description="stages side by side", indent=False, layout=wide
                ),
            },
        }  # fmt: skip

    def compute(self, **values) -> xr.Dataset:
        """Price a token, what the disk gives it, and the load, which is returned."""
        model, machine = choices.preset(values["model"]), choices.device(values["machine"])
        engine = choices.engines_for(machine.device_class)[0]
        self._token = predict(model, machine, Workload(context=values["context"]), engine=engine)
        self._behind = behind = _behind(values["disk"], values["link"])
        self._parts = self._queues(behind, values) + self._offloads(behind, values)
        first = ready()
        return storage.load(
            self._token.file_bytes.item(), values["disk"], streams=values["streams"],
            chunk=values["chunk"], ratio=values["ratio"], link=find(values["link"]).bandwidth,
            decompress=values["codec"] * 1e9 if values["ratio"] > 1 else float("inf"),
            prepare=first.rate, start=first.start, overlap=values["overlap"],
        )  # fmt: skip

    def _queues(self, disk: Disk, values: dict) -> list[dict]:
        curves = _curves(disk)
        self._reads = storage.nvme(disk, values["depth"], values["block"])
        return figure.queue_values(curves, self._reads, values["depth"])

    def _offloads(self, disk: Disk, values: dict) -> list[dict]:
        share, rate, speed = values["resident"], disk.bandwidth, self._token.prefill_tok_s.item()
        each = kv_per_token(self._token)
        self._kept = offloaded(self._token, rate, share)
        self._prefix = restore(1, each, rate, speed)
        over = offloaded(self._token, rate, list(figure.SHARES))
        sizes = _prefixes(rate, speed)
        return [
            *figure.offload_values(over, self._kept, share),
            *figure.restore_values(sizes, self._prefix, each),
        ]

    def figure(self) -> go.Figure:
        """Return the four views in one figure."""
        return figure.empty()

    def draw(self, fig, ds: xr.Dataset) -> None:
        """Refill the four views."""
        theme.fill(fig, [*figure.stage_values(ds), *self._parts])

    def status(self, ds: xr.Dataset) -> str:
        """Say what the load waits for, how many reads the disk answers, what offloading costs."""
        step, kept = float(self._token.time_s.sum()), self._kept.tpot_s.item()
        gain = self._prefix.restore_gain.item()
        return (
            f"{self._token.file_bytes.item() / 1e9:.3g} GB are ready after {ds.load_s.item():.3g} s; "
            f"longest stage: {ds.bottleneck.item()}. "
            f"The disk answers {self._reads.iops.item():,.0f} reads/s at queue depth "
            f"{self.values['depth']}. "
            f"With {1 - self.values['resident']:.0%} of the KV cache on the disk a token takes "
            f"{kept * 1e3:.3g} instead of {step * 1e3:.3g} ms; restoring a prefix once is "
            f"{max(gain, 1 / gain):.3g} times {'faster' if gain >= 1 else 'slower'} than computing it."
        )

    def to_code(self) -> str:
        """Return the lines that compute `data` in a script."""
        v = self.values
        codec = f", decompress={v['codec']}e9" if v["ratio"] > 1 else ""
        return "\n".join([
            "import workbench as wb",
            "from workbench.hardware import storage, storage_link",
            "from workbench.study.load import ready",
            "",
            f"model, device = wb.Model.preset({v['model']!r}), wb.Device.preset({v['machine']!r})",
            "size = wb.predict(model, device).file_bytes.item()",
            f"link = storage_link.find({v['link']!r}).bandwidth",
            f"ds = storage.load(size, {v['disk']!r}, streams={v['streams']}, chunk={v['chunk']},",
            f"    ratio={v['ratio']}{codec}, link=link, prepare=ready().rate, start=ready().start,",
            f"    overlap={v['overlap']})",
        ])  # fmt: skip


@functools.lru_cache(maxsize=64)
def _curves(disk: Disk) -> xr.Dataset:
    """Return what the disk answers at every depth, kept for the next move of a slider."""
    return storage.nvme(disk, list(figure.DEPTHS), list(figure.BLOCKS))


@functools.lru_cache(maxsize=64)
def _prefixes(bandwidth: float, prefill_tok_s: float) -> xr.Dataset:
    """Return restoring against computing for every size of a cache, kept likewise."""
    return restore(1, list(figure.PER_TOKEN), bandwidth, prefill_tok_s)


def _links() -> dict[str, dict[str, str]]:
    pcie = {f"PCIe {g}": {f"x{n}": f"PCIe {g} x{n}" for n in _LANES} for g in generations()}
    return pcie | {"Thunderbolt, USB, SATA": {name: name for name in names()}}


def _behind(disk_name: str, link: str) -> Disk:
    """Return the disk as seen through the link."""
    disk = storage.disk(disk_name)
    return disk._replace(bandwidth=min(disk.bandwidth, find(link).bandwidth))
