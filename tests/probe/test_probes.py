"""All probes in one Dataset that a file can hold; one that fails does not cost the others."""

import inspect

import pytest

from workbench import results
from workbench.errors import FileError, SpecError, UnknownNameError
from workbench.probe import PROBES, from_file, survey

QUICK = ("system", "bandwidth", "matmul")


@pytest.fixture(scope="module")
def surveyed():
    return survey(QUICK, seconds=1)


def test_a_survey_comes_back_from_its_file(surveyed, tmp_path):
    path = results.save(surveyed, tmp_path / "mine.nc")
    assert results.open_(path).identical(surveyed)
    assert from_file(path).bandwidth > 0


def test_a_survey_says_what_it_could_not_see_probe_by_probe(surveyed):
    names = {line.split(":")[0] for line in surveyed.attrs["unseen"].splitlines()}
    assert names <= {*QUICK, "device"}


@pytest.mark.parametrize("name", PROBES)
def test_every_probe_takes_a_budget_and_reports(name):
    assert {"seconds", "report"} <= set(inspect.signature(PROBES[name]).parameters)


def test_a_stop_keeps_what_was_measured():
    ds = survey(("system", "matmul"), report=lambda what, done, of: what != "matmul")
    assert "memory_total" in ds and "stopped" in ds.attrs["unseen"]


def test_a_probe_that_cannot_run_does_not_cost_the_others(tmp_path):
    ds = survey(("system", "disk"), folder=tmp_path / "nowhere")
    assert "memory_total" in ds and "iops" not in ds
    assert "disk: not measured" in ds.attrs["unseen"]


def test_alone_it_says_why_it_cannot_run(tmp_path):
    with pytest.raises(FileError, match="nowhere"):
        survey(("disk",), folder=tmp_path / "nowhere")


def test_questions_without_meaning():
    with pytest.raises(UnknownNameError, match="disk"):
        survey(("dsk",))
    with pytest.raises(SpecError, match="seconds"):
        survey(seconds=-1)
