"""A button that measures this machine, to stand in any panel or notebook."""

import html
from collections.abc import Callable, Sequence
from pathlib import Path

import ipywidgets as widgets
import xarray as xr

from workbench.panels.job import Job, Report
from workbench.probe import survey


def measure(
    only: Sequence[str] = (), done: Callable[[xr.Dataset], object] = lambda ds: None, *,
    label: str = "Measure this machine", seconds: float = 10.0, folder: str | Path = ".",
) -> Job:  # fmt: skip
    """Return a Start button with a progress bar and a Stop, which runs probes of this machine.

    Args:
        only: names from `probe.PROBES`; by default all.
        done: is given the Dataset when the probes end or are stopped; it may redraw a figure.
        label: of the button.
        seconds: budget of each probe.
        folder: where the disk is measured.

    Returns:
        the Job; its `result` is the Dataset of `probe.survey`. What cannot be seen here stands
        under the button.
    """
    below = widgets.HTML()

    def work(report: Report) -> xr.Dataset:
        below.value = ""
        return survey(only, seconds=seconds, folder=folder, report=report)

    def show(ds: xr.Dataset) -> None:
        below.value = unseen(ds)
        done(ds)

    job = Job(label, work, show)
    job.view = widgets.VBox([job.view, below])
    return job


def unseen(ds: xr.Dataset) -> str:
    """Return what a survey could not see as an HTML list, folded away; "" if it saw everything."""
    lines = "".join(f"<li>{html.escape(line)}</li>" for line in ds.attrs["unseen"].splitlines())
    return f"<details><summary>What cannot be seen here</summary><ul>{lines}</ul></details>" * bool(
        lines
    )
