"""Will huge pages fix a load of 90 seconds: pages, readahead, the disk, and this machine's own."""

import functools
import html

import ipywidgets as widgets
import plotly.graph_objects as go
import xarray as xr

from workbench.figures import paging as figure
from workbench.figures import theme
from workbench.hardware import paging
from workbench.hardware.paging_tlb import mmus, nearest, translation
from workbench.panels.controls import NumberSlider
from workbench.panels.decimal import DecimalSlider
from workbench.panels.panel import Panel
from workbench.panels.probe import measure
from workbench.probe import system
from workbench.units import human_bytes

_AROUND = tuple(2**n for n in range(12, 22))
PROBE = {"seconds": 8.0, "label": "Probe this machine: 64 MiB of pages"}


class PagingPanel(Panel):
    """Pick a page size, how the kernel reads, a disk and a CPU; or measure this machine's own."""

    def controls(self) -> dict[str, dict[str, widgets.Widget]]:
        """Return the controls of load, disk and machine."""
        wide, plain = {"width": "auto"}, {"indent": False, "layout": {"width": "auto"}}
        self._seen: xr.Dataset | None = None
        return {
            "Load": {
                "size": DecimalSlider("file [GB]", 3.8, 0.1, 200.0, 0.1),
                "page": widgets.Dropdown(
                    options=_sizes(paging.PAGE_SIZES), value=4096, description="page size",
                    layout=wide,
                ),
                "around": widgets.Dropdown(
                    options=_sizes(_AROUND), value=int(paging.known("fault_around")),
                    description="fault-around", layout=wide,
                ),
                "readahead": widgets.Checkbox(False, description="readahead", **plain),
                "cached": widgets.Checkbox(False, description="file is in the page cache", **plain),
            },
            "Disk": {
                "latency": NumberSlider("QD1 latency [µs]", 50, 25, 25_600, log=True),
                "bandwidth": DecimalSlider("sequential [GB/s]", 1.3, 0.05, 20.0, 0.05),
            },
            "Machine": {
                "cpu": widgets.Dropdown(options=list(mmus()), value=nearest(system.cpu_name()), description="TLB of",
                                       layout=wide),
                "virtual": widgets.Checkbox(False, description="in a virtual machine", **plain),
            },
        }  # fmt: skip

    def compute(self, **values) -> xr.Dataset:
        """Price the load in every page size, the other readahead, a first touch, and the TLB."""
        asked = _asked(values)
        size = values["size"] * 1e9
        self._other = paging.populate(
            size, 4096, **asked | {"readahead": not values["readahead"], "cached": False}
        )
        self._touch = paging.touch(
            **{name: asked[name] for name in ("bandwidth", "latency", "fault_around", "virtual")}
        )
        self._tlb = _translation(values["cpu"], values["virtual"])
        return paging.by_page_size(size, **asked)

    def figure(self) -> go.Figure:
        """Return the four views in one figure."""
        return figure.empty()

    def draw(self, fig: go.Figure, ds: xr.Dataset) -> None:
        """Refill the four views."""
        size = self.values["size"] * 1e9
        theme.fill(fig, [
            *figure.load_values(ds, self.values["page"]),
            *figure.touch_values(self._touch, self._seen),
            *figure.miss_values(self._tlb, size),
            *figure.access_values(self._tlb, size, self._seen),
        ])  # fmt: skip

    def status(self, ds: xr.Dataset) -> str:
        """Say how long the load takes, who works, and what readahead would change."""
        v, page = self.values, self.values["page"]
        one = ds.sel(page_size=page)
        took, other = one.load_s.item(), self._other.load_s.item()
        how = "mapped" if paging.mappable(page) else "read into memory of its own"
        text = (
            f"{v['size']:.3g} GB in pages of {human_bytes(page)}, {how}: {took:.3g} s, "
            f"{one.faults.item():,.0f} faults, {took / one.faults.item() * 1e6:.3g} µs each; "
            f"the CPU works {one.cpu_share.item():.0%} of the time."
        )
        if v["cached"]:
            return text
        small = ds.load_s.sel(page_size=4096).item()
        slow, fast = max(small, other), min(small, other)
        return (
            f"{text} In pages of 4 KiB it takes {slow:.3g} s without readahead and {fast:.3g} s "
            f"with it: {slow / fast:.3g} times faster."
        )

    def below(self) -> list[widgets.Widget]:
        """Return the button that measures this machine, and what it found."""
        self._found = widgets.HTML()
        self.job = measure(("pages", "faults"), self._show, **PROBE)
        return [self.job.view, self._found]

    def _show(self, ds: xr.Dataset) -> None:
        self._seen = ds
        self._found.value = found(ds)
        self.redraw()

    def to_code(self) -> str:
        """Return the lines that compute `data` in a script."""
        v = self.values
        return "\n".join([
            "from workbench.hardware import paging",
            "",
            f"ds = paging.by_page_size({v['size']}e9, bandwidth={v['bandwidth']}e9,",
            f"    latency={v['latency']}e-6, cached={v['cached']}, readahead={v['readahead']},",
            f"    fault_around={v['around']}, virtual={v['virtual']})",
        ])  # fmt: skip


def found(ds: xr.Dataset) -> str:
    """Return in a sentence of HTML what the probe of pages found."""
    said = []
    if "latency_s" in ds and (times := ds.latency_s).notnull().any():
        both = times.dropna("page_size", how="all").dropna("working_set", how="any")
        last = both.isel(working_set=-1)  # the largest that was measured in every page size
        each = ", ".join(
            f"{value * 1e9:.0f} ns in pages of {human_bytes(page)}"
            for page, value in zip(last.page_size.values, last.values, strict=True)
        )
        said.append(f"A random access to {human_bytes(last.working_set.item())} took {each}.")
    if (ahead := ds.attrs.get("readahead_bytes", -1)) >= 0:
        said.append(f"The kernel reads {human_bytes(ahead)} ahead of a stream from this disk.")
    if answer := ds.attrs.get("map_hugetlb_on_file"):
        said.append(f"Mapping a file with MAP_HUGETLB was answered with {answer}.")
    return f'<div role="status">{html.escape(" ".join(said))}</div>'


@functools.lru_cache(maxsize=32)
def _translation(cpu: str, virtual: bool) -> xr.Dataset:
    """Return the TLB of a CPU over all working sets, kept for the next move of a slider."""
    host = paging.SMALL if virtual else None
    return translation(list(figure.WORKING_SETS), list(paging.PAGE_SIZES), cpu, host_page=host)


def _asked(values: dict) -> dict:
    return {
        "bandwidth": values["bandwidth"] * 1e9, "latency": values["latency"] * 1e-6,
        "cached": values["cached"], "readahead": values["readahead"],
        "fault_around": values["around"], "virtual": values["virtual"],
    }  # fmt: skip


def _sizes(pages: tuple[int, ...]) -> list[tuple[str, int]]:
    return [(human_bytes(page), page) for page in pages]
