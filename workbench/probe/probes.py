"""Every probe of this machine in one Dataset, which a file can hold and a prediction can use."""

import inspect
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import xarray as xr

from workbench.errors import UnknownNameError, WorkbenchError
from workbench.probe import bandwidth, buddy, disk, matmul, pages, system
from workbench.probe.machine import describe, to_text
from workbench.probe.pace import Pace, Report, silent
from workbench.results import dataset

#: name -> probe; each takes `seconds` and `report`
PROBES: dict[str, Callable[..., xr.Dataset]] = {
    "system": system.read,
    "bandwidth": bandwidth.stream,
    "strided": bandwidth.strided,
    "matmul": matmul.flops,
    "pages": pages.latency,
    "faults": pages.faults,
    "buddy": buddy.read,
    "disk": disk.reads,
}
_OF_ONE = ("version", "source", "mechanism", "unseen")  # attrs that say nothing of the whole


def survey(
    only: Sequence[str] = (), *, seconds: float | str = 10.0, folder: str | Path = ".",
    report: Report = silent,
) -> xr.Dataset:  # fmt: skip
    """Run the probes and return all that they measured.

    Args:
        only: names from PROBES; by default all.
        seconds: budget of each.
        folder: where the probes of the disk write their scratch file.
        report: progress; stops the survey, which keeps what it has, when it returns False.

    Returns:
        the variables of every probe. attrs["device"] is this machine as JSON, if it was measured;
        attrs["unseen"] has a line for each probe that could not see or do everything.

    Raises:
        UnknownNameError: no such probe.
        WorkbenchError: wrong options; or none of the probes could run, with the first one's reason.
    """
    for name in only:
        if name not in PROBES:
            raise UnknownNameError("probe", name, list(PROBES))
    budget, going = Pace("survey", 1, seconds).seconds, [True]
    found: dict[str, xr.Dataset] = {}
    failed: dict[str, WorkbenchError] = {}

    def told(what: str, done: int, of: int) -> bool:
        going[0] = going[0] and report(what, done, of) is not False
        return going[0]

    for name in only or PROBES:
        takes = inspect.signature(PROBES[name]).parameters
        options = {"folder": folder} if "folder" in takes else {}
        try:
            if not going[0]:
                raise WorkbenchError("stopped")
            found[name] = PROBES[name](seconds=budget, report=told, **options)
        except WorkbenchError as err:
            failed[name] = err
    if not found:
        raise next(iter(failed.values()))
    return _merged(found, failed)


def _merged(found: dict[str, xr.Dataset], failed: dict[str, WorkbenchError]) -> xr.Dataset:
    whole = xr.merge(found.values(), join="outer", compat="no_conflicts", combine_attrs="override")
    said = {key: value for ds in found.values() for key, value in ds.attrs.items()}
    lines = [f"{name}: {ds.attrs['unseen']}" for name, ds in found.items() if ds.attrs["unseen"]]
    lines += [f"{name}: not measured: {reason}" for name, reason in failed.items()]
    attrs = {key: value for key, value in said.items() if key not in _OF_ONE}
    try:
        attrs["device"] = to_text(describe(whole))
    except WorkbenchError:
        lines.append("device: its bandwidth was not measured")
    return dataset(
        dict(whole.data_vars), dict(whole.coords), **attrs, source="measured", mechanism="M68",
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"), unseen="\n".join(lines),
    )  # fmt: skip
