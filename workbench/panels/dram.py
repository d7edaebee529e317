"""DRAM is not a flat pipe: how large, how many, how aligned reads must be."""

import functools

import ipywidgets as widgets
import numpy as np
import plotly.graph_objects as go
import xarray as xr

from workbench.figures import dram as figure
from workbench.figures import theme
from workbench.hardware import dram
from workbench.hardware.dram_sim import MODES, REFRESHES
from workbench.hardware.dram_standards import find
from workbench.hardware.dram_stream import MAPPINGS
from workbench.panels.controls import NumberSlider
from workbench.panels.panel import Panel

LOCALITIES = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
_REQUESTS = 1024  # of each cell of the map: half a point of noise, drawn in half a second
_USED = np.linspace(0.0, 0.99, 100)
_WORDS = {"queue": "in the queue", "flight": "under way"}


class DramPanel(Panel):
    """Pick a memory, how it is read, and where reads start."""

    def controls(self) -> dict[str, dict[str, widgets.Widget]]:
        """Return the controls of memory, reads and alignment."""
        return {
            "Reads": {
                "granule": _slider("size", {figure.size_name(s): s for s in figure.GRANULES}, 64),
                "depth": _slider("reads", {str(q): q for q in figure.DEPTHS}, 32),
                "locality": _slider("row hits [%]", {f"{h:.0%}"[:-1]: h for h in LOCALITIES}, 0.0),
                "mode": _choice("they", {"wait in the queue": MODES[0], "are under way": MODES[1]}),
            },
            "Memory": {
                "standard": _choice("standard", dram.standards()),
                "mapping": _choice("a read lies in", dict(zip(("one bank", "all bank groups"), MAPPINGS, strict=True))),
                "refresh": _choice("refresh", REFRESHES),
                "channels": NumberSlider("channels", 8, 1, 128, log=True),
            },
            "Alignment": {
                "block": _slider("moved at once", {figure.size_name(s): s for s in (32, 64, 128, 256, 512)}, 256),
                "start": _slider("start offset", {_multiple(s): s for s in (1, 32, 64, 128, 256, 512)}, 1),
                "length": _slider("length", {figure.size_name(s): s for s in figure.LENGTHS}, 256),
            },
        }  # fmt: skip

    def adapt(self, changed: str) -> None:
        """Keep to refreshes that the standard has, and to starts within what is moved at once."""
        refresh, start = self._controls["refresh"], self._controls["start"]
        if np.isnan(find(self.values["standard"]).rfc_bank) and refresh.value == "per-bank":
            refresh.value = "all-bank"
        start.value = min(start.value, self.values["block"])

    def compute(self, **values) -> xr.Dataset:
        """Look up the channel's map and lines, count what alignment moves, and return the map."""
        asked = (values["standard"], values["mapping"], values["refresh"])
        grid, law = (
            _map(*asked, values["mode"]),
            _law(values["standard"], values["refresh"], values["mode"]),
        )
        here = grid.sel(locality=values["locality"])
        one = {"granule": values["granule"]}
        starts = [1, values["start"], values["block"]]
        fetched = dram.overfetch(list(figure.LENGTHS), values["block"], starts)
        waits = _map(*asked, "flight").sel(locality=values["locality"], **one)
        timing = find(values["standard"])
        alone = waits.loaded_latency_s.values[0]
        service = max(values["granule"], timing.burst_bytes) / timing.rate
        self._views = (
            (here, values["granule"], values["depth"]),
            (here.sel(**one), law.sel(**one), values["depth"]),
            (fetched, values["length"]),
            (waits, dram.loaded_latency(_USED, float(alone), service)),
        )
        return here

    def figure(self) -> go.Figure:
        """Return the four views in one figure."""
        return figure.empty()

    def draw(self, fig: go.Figure, ds: xr.Dataset) -> None:
        """Refill the four views."""
        theme.fill(fig, figure.values(self._views))

    def status(self, ds: xr.Dataset) -> str:
        """Say what the channels deliver, how often rows are open, and what is moved in vain."""
        v = self.values
        here = ds.sel(granule=v["granule"], queue_depth=v["depth"])
        rate = here.dram_bandwidth.item() * v["channels"] / 1e9
        vain = self._views[2][0].overfetch.isel(alignment=1).sel(length=v["length"]).item() - 1
        return (
            f"{figure.size_name(v['granule'])} reads, {v['depth']} {_WORDS[v['mode']]}: {here.bus_share.item():.0%} "
            f"of a channel, {rate:.3g} GB/s from {v['channels']}; {here.row_hit.item():.0%} find their row open. "
            f"Reads of {figure.size_name(v['length'])} at such starts move {vain:.1%} in vain."
        )

    def to_code(self) -> str:
        """Return the lines that compute `data` in a script."""
        v = self.values
        return "\n".join([
            "from workbench.hardware import dram",
            "",
            f"ds = dram.simulate({v['standard']!r}, {list(figure.GRANULES)}, {list(figure.DEPTHS)},",
            f"                   locality={v['locality']}, mapping={v['mapping']!r}, mode={v['mode']!r},",
            f"                   refresh={v['refresh']!r}, requests={_REQUESTS})",
        ])  # fmt: skip


@functools.lru_cache(maxsize=64)
def _map(standard: str, mapping: str, refresh: str, mode: str) -> xr.Dataset:
    """Return the map for every locality: half a second once, so that no slider waits for it."""
    return dram.simulate(
        standard, list(figure.GRANULES), list(figure.DEPTHS), locality=list(LOCALITIES),
        mapping=mapping, mode=mode, refresh=refresh, requests=_REQUESTS,
    )  # fmt: skip


@functools.lru_cache(maxsize=64)
def _law(standard: str, refresh: str, mode: str) -> xr.Dataset:
    return dram.efficiency(
        standard, list(figure.GRANULES), list(figure.DEPTHS), mode=mode, refresh=refresh
    )


def _choice(label: str, options) -> widgets.Dropdown:
    return widgets.Dropdown(
        options=list(options.items()) if isinstance(options, dict) else options,
        description=label, layout={"width": "auto"},
    )  # fmt: skip


def _slider(label: str, options: dict, value) -> widgets.SelectionSlider:
    return widgets.SelectionSlider(
        options=list(options.items()), value=value, description=label, layout={"width": "auto"}
    )


def _multiple(step: int) -> str:
    return "anywhere" if step == 1 else f"× {step} B"
