"""Every measured row beside its prediction, to filter and to look at the worst of."""

import functools
import html

import ipywidgets as widgets
import numpy as np
import plotly.graph_objects as go
import xarray as xr

from workbench import data
from workbench.figures import scoreboard as figures
from workbench.figures import theme
from workbench.panels.panel import Panel
from workbench.specs import engine as engines
from workbench.study import accuracy
from workbench.study.scoreboard import scoreboard

ALL = "all"
WORST = 12


@functools.cache
def board() -> xr.Dataset:
    """Return the scoreboard of every row in the datasets, priced once."""
    return scoreboard(data.rows("measurements.csv"))


class ScoreboardPanel(Panel):
    """Choose which rows to see; all of them at first."""

    def controls(self) -> dict[str, dict[str, widgets.Widget]]:
        """Return what is compared, and the filters."""
        self._board = board()
        self._families = np.array([engines.family(str(e)) for e in self._board.engine.values])
        self._text = np.char.lower(np.char.add(self._board.model.values + " ", self._board.device))
        wide = {"width": "auto"}
        kinds = [(figures.NAMES[k], k) for k in figures.KINDS if k in self._board.device_class]
        families = sorted(set(self._families.tolist()))
        return {
            "What is compared": {
                "stage": widgets.Dropdown(
                    options=list(accuracy.STAGES), description="predicted", layout=wide
                ),
            },
            "Which rows": {
                "kind": widgets.Dropdown(
                    options=[(ALL, ALL), *kinds], description="machines", layout=wide
                ),
                "engine": widgets.Dropdown(
                    options=[ALL, *families], description="engine", layout=wide
                ),
            },
            "Which names": {
                "name": widgets.Text(
                    description="model or machine", placeholder="qwen3 rtx",
                    layout=wide,
                ),
            },
        }  # fmt: skip

    def compute(self, stage, kind, engine, name) -> xr.Dataset:
        """Return the pairs that the filters leave."""
        kept = np.ones(self._board.sizes["row"], dtype=bool)
        if kind != ALL:
            kept &= self._board.device_class.values == kind
        if engine != ALL:
            kept &= self._families == engine
        for word in name.lower().split():
            kept &= np.char.find(self._text, word) >= 0
        self._reach = figures.reach(stage)
        return accuracy.pairs(self._board.isel(row=kept), stage)

    def figure(self) -> go.Figure:
        """Return scatter, errors and coverage in one figure."""
        return figures.empty()

    def draw(self, fig: go.Figure, ds: xr.Dataset) -> None:
        """Refill them, and turn the axes to the stage."""
        theme.fill(fig, figures.values(ds))
        fig.update_layout({axis: {"range": self._reach} for axis in ("xaxis", "yaxis")})

    def status(self, ds: xr.Dataset) -> str:
        """Say how many rows there are and how wrong the prediction is."""
        sums = accuracy.whole(ds)
        if not sums["rows"]:
            return "No row matches."
        text = (
            f"{sums['rows']:,.0f} rows: median error {sums['error']:.1%}, "
            f"{sums['coverage']:.0%} of the measured values inside the 80 % interval."
        )
        if not np.isnan(sums["naive_error"]):
            text += f" Bandwidth ÷ bytes: median error {sums['naive_error']:.0%}."
        return (
            f"{text} The fit has seen these rows; errors on unseen machines and models stand below."
        )

    def below(self) -> list[widgets.Widget]:
        """Return the worst rows."""
        self._worst = widgets.HTML()
        return [self._worst]

    def details(self, ds: xr.Dataset) -> None:
        """List the worst rows that are shown."""
        self._worst.value = worst_table(ds)

    def to_code(self) -> str:
        """Return the lines that compute `data` in a script, before the filters."""
        return "\n".join([
            "from workbench import data",
            "from workbench.study.accuracy import pairs",
            "from workbench.study.scoreboard import scoreboard",
            "",
            f"ds = pairs(scoreboard(data.rows('measurements.csv')), {self.values['stage']!r})",
        ])  # fmt: skip


def worst_table(found: xr.Dataset, count: int = WORST) -> str:
    """Return the rows that are predicted worst as an HTML table."""
    ds = accuracy.worst(found, count)
    columns = ("row", "device", "model", "quant", "engine", "measured", "predicted")
    cells = zip(*(ds[name].values for name in columns), strict=True)
    rows = "".join(f"<tr>{''.join(map(_cell, row))}{_factor(row)}</tr>" for row in cells)
    head = "".join(f"<th>{name}</th>" for name in (*columns, "predicted ÷ measured"))
    return f'<h4>The worst of them</h4><table class="wb-table"><tr>{head}</tr>{rows}</table>'


def _cell(value) -> str:
    if isinstance(value, float):
        return f"<td class='wb-number'>{value:.3g}</td>"
    return f"<td>{html.escape(str(value))}</td>"


def _factor(row: tuple) -> str:
    return f"<td class='wb-number'>{row[-1] / row[-2]:.2f} ×</td>"
