"""Can I get it in one piece: a zone with pinned pages, the ways to a large block, and a device without them."""

import functools

import ipywidgets as widgets
import plotly.graph_objects as go
import xarray as xr

from workbench.figures import contiguity as figure
from workbench.figures import theme
from workbench.hardware.contiguity import SEEDS, constant, largest_block
from workbench.hardware.contiguity_dma import ways
from workbench.hardware.contiguity_zone import COMPACTIONS, simulate
from workbench.panels.controls import NumberSlider
from workbench.panels.decimal import DecimalSlider
from workbench.panels.job import Job, Report
from workbench.panels.panel import Panel
from workbench.panels.probe import measure
from workbench.panels.stepper import Stepper
from workbench.units import GB, GiB, human_bytes

_ZONES = tuple(2**n for n in range(10))  # GiB
_SHARES = tuple(10 ** (n / 4) for n in range(-24, -3))
_CHUNKS = tuple(2**n for n in range(12, 35, 2))  # byte
_PAGE = 4096  # byte
_SMALL = 2**18  # pages: the zone that is simulated again whenever a slider has moved
_BOOT = {
    "nothing": "",
    "1 GiB pages": "hugetlb at boot",
    "CMA": "CMA at boot",
    "mem=": "mem= at boot",
}


class ContiguityPanel(Panel):
    """Pick a zone, what is pinned in it, what a device wants, and what was reserved at boot."""

    def controls(self) -> dict[str, dict[str, widgets.Widget]]:
        """Return the controls of zone, device and step."""
        wide = {"width": "auto"}
        self._here: xr.Dataset | None = None
        self._key: tuple = ()
        last = int(constant("zone_bursts")) + 1 + COMPACTIONS
        self._step = Stepper("step", last - COMPACTIONS, last, "Compact")
        return {
            "Zone": {
                "zone": _slider("zone", {f"{g} GiB": g for g in _ZONES}, 32),
                "used": DecimalSlider("in use", 0.2, 0.0, 1.0, 0.05),
                "pinned": _slider("pinned", {f"{100 * q:.2g} %": q for q in _SHARES}, _SHARES[12]),
                "order": NumberSlider("max order", 10, 0, 18),
                "grouping": widgets.Checkbox(
                    False, description="grouped by mobility", indent=False, layout=wide
                ),
            },
            "Device": {
                "size": DecimalSlider("wants [GB]", 23.6, 0.1, 100.0, 0.1),
                "chunk": _slider("in pieces of", {human_bytes(c): c for c in _CHUNKS}, 2**30),
                "iommu": widgets.Checkbox(
                    False, description="behind an IOMMU", indent=False, layout=wide
                ),
                "boot": widgets.Dropdown(
                    options=list(_BOOT.items()), description="at boot", layout=wide
                ),
                "reserve": DecimalSlider("set aside [GiB]", 24.0, 0.0, 100.0, 1.0),
            },
            "Life of the zone": {"step": self._step},
        }  # fmt: skip

    def adapt(self, changed: str) -> None:
        """Keep what is set aside within the zone."""
        reserve = self._controls["reserve"]
        reserve.value = min(reserve.value, float(self.values["zone"]))

    def compute(self, **values) -> xr.Dataset:
        """Return the bound of one zone; look up its curves and compare the ways to a large block."""
        zone, grouping = values["zone"] * GiB, values["grouping"]
        used = self._asked()[0]
        self._curves = _curve(zone, used, grouping, SEEDS), _curve(zone, used, not grouping, 1)
        self._ways = ways(
            values["size"] * GB, values["chunk"], memory=zone, pinned=values["pinned"],
            utilisation=used, reserve=values["reserve"] * GiB if values["boot"] else 0.0,
            max_order=values["order"], grouping=grouping,
        )  # fmt: skip
        if not self._key:
            self._live(_small(*self._asked()), self._asked())
        return largest_block(zone, values["pinned"], utilisation=values["used"], grouping=grouping)

    def details(self, ds: xr.Dataset) -> None:
        """Live through a small zone again if what it depends on has moved."""
        if self._key != self._asked():
            self._live(_small(*self._asked()), self._asked())
            self.redraw()

    def figure(self) -> go.Figure:
        """Return the three views in one figure."""
        return figure.empty()

    def draw(self, fig: go.Figure, ds: xr.Dataset) -> None:
        """Refill the three views and the table."""
        v, step = self.values, self._step.value
        levels = (_PAGE << v["order"], v["chunk"])
        theme.fill(fig, [
            *figure.map_values(self._life, step),
            *figure.list_values(self._life, step, self._here),
            *figure.curve_values(*self._curves, ds, self._life, levels),
        ])  # fmt: skip
        self._table.value = figure.ways_table(self._shown())

    def status(self, ds: xr.Dataset) -> str:
        """Say what the pins leave, what works, and which step is shown."""
        v = self.values
        ok = [str(way) for way in self._shown().request.values[self._shown().feasible.values]]
        now = self._life.isel(burst=self._step.value)
        listed, largest = now.listed_bytes.item(), now.largest_bytes.item()
        free = (
            f"largest free block {human_bytes(largest)}, in the free lists {human_bytes(listed)}"
            if largest
            else "nothing is free"
        )
        return (
            f"{human_bytes(ds.pinned_bytes.item())} of pinned pages "
            f"{'kept together' if v['grouping'] else 'anywhere'} in {v['zone']} GiB leave blocks of "
            f"{human_bytes(ds.largest_bytes.item())} at most. {v['size']:g} GB in pieces of "
            f"{human_bytes(v['chunk'])} can be had by: {', '.join(ok) or 'nothing here'}. "
            f"Step {self._step.value} of the {human_bytes(self._life.attrs['zone_bytes'])} simulated "
            f"({now.phase.item()}): {free}."
        )

    def below(self) -> list[widgets.Widget]:
        """Return the table, and the buttons that simulate all and read this machine."""
        self._run = Job("Simulate the whole zone", self._whole, lambda _: self.redraw())
        self._read = measure(("buddy",), self._show_here, label="Read this machine's free lists")
        return [self._table, self._run.view, self._read.view]

    def to_code(self) -> str:
        """Return the lines that compute `data` in a script."""
        v = self.values
        return "\n".join([
            "from workbench.hardware.contiguity import largest_block",
            "",
            f"ds = largest_block('{v['zone']} GiB', {v['pinned']:.6g}, utilisation={self._asked()[0]:.6g},",
            f"                   grouping={v['grouping']})",
        ])  # fmt: skip

    @functools.cached_property
    def _table(self) -> widgets.HTML:
        return widgets.HTML()

    def _shown(self) -> xr.Dataset:
        """Return the ways that exist here."""
        boot = [way for way in _BOOT.values() if way and way != self.values["boot"]]
        missing = boot + ([] if self.values["iommu"] else ["IOMMU"])
        return self._ways.drop_sel(request=missing)

    def _asked(self) -> tuple:
        """Return what the life of a zone depends on; pinned pages are in use."""
        v = self.values
        return max(v["used"], v["pinned"]), v["pinned"], v["order"], v["grouping"]

    def _live(self, life: xr.Dataset, key: tuple) -> None:
        """Show another life."""
        self._life, self._key = life, key
        with self._silence():
            self._step.extend(life.sizes["burst"] - 1)

    def _whole(self, report: Report) -> xr.Dataset:
        used, pinned, order, grouping = key = self._asked()
        life = simulate(
            self.values["zone"] * GiB,
            used,
            pinned,
            max_order=order,
            grouping=grouping,
            report=report,
        )
        self._live(life, key)
        return life

    def _show_here(self, ds: xr.Dataset) -> None:
        self._here = ds
        self.redraw()


@functools.lru_cache(maxsize=64)
def _curve(zone: float, used: float, grouping: bool, seeds: int) -> xr.Dataset:
    """Return the bound over every share pinned, kept for the next move of a slider."""
    shares = list(figure.PINNED)
    return largest_block(zone, shares, utilisation=used, grouping=grouping, seeds=seeds)


@functools.lru_cache(maxsize=16)
def _small(used: float, pinned: float, order: int, grouping: bool) -> xr.Dataset:
    """Return the life of a zone that takes a fraction of a second."""
    return simulate(_SMALL * _PAGE, used, pinned, max_order=order, grouping=grouping)


def _slider(label: str, options: dict, value) -> widgets.SelectionSlider:
    return widgets.SelectionSlider(
        options=list(options.items()), value=value, description=label, layout={"width": "auto"}
    )
