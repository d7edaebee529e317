"""A load predicted and measured on this machine, at the press of a button."""

import html
from pathlib import Path

import ipywidgets as widgets
import xarray as xr

from workbench.panels import style
from workbench.panels.job import Job
from workbench.study.load import trial
from workbench.units import human_bytes


class LoadTrial:
    """A button that writes a file, predicts and measures how long it loads, and removes it.

    `ds` is what the last press found, as `study.load.trial` returns it; None before.
    """

    def __init__(self, folder: str | Path = ".", size: float | str = 1e9):
        """Lay out the button; nothing is written before it is pressed."""
        self.ds: xr.Dataset | None = None
        self._table = widgets.HTML()
        self.job = Job(
            "Write, predict and load a file", lambda report: trial(folder, size, report), self._show
        )
        box = widgets.VBox([style.Sheet(), self.job.view, self._table])
        self.view = box

    def _show(self, ds: xr.Dataset) -> None:
        self.ds, self._table.value = ds, table(ds)

    def _repr_mimebundle_(self, **kwargs) -> dict:
        return self.view._repr_mimebundle_(**kwargs) or {}


def table(ds: xr.Dataset) -> str:
    """Return a trial as HTML: predicted, measured and the error, cold and warm."""
    states = {"cold": "from the disk", "warm": "from the page cache"}
    rows = "".join(
        f"<tr><td>{states[state]}</td><td class='wb-number'>{predicted:.2f} s</td>"
        f"<td class='wb-number'>{measured:.2f} s</td><td class='wb-number'>{error:+.0%}</td></tr>"
        for state, predicted, measured, error in zip(
            ds.cache_state.values, ds.load_predicted.values, ds.load_measured.values,
            ds.load_error.values, strict=True,
        )
    )  # fmt: skip
    head = "<tr><th></th><th>predicted</th><th>measured</th><th>error</th></tr>"
    about = f"{human_bytes(ds.attrs['size_bytes'])} read from end to end."
    if ds.attrs["unseen"]:
        about += f" Not seen here: {ds.attrs['unseen']}."
    return f'<table class="wb-table" role="status">{head}{rows}</table><p>{html.escape(about)}</p>'
