"""Pages are measured, what cannot be is said, and nothing is left behind."""

import errno
import os

import numpy as np
import pytest

from workbench.errors import FileError, SpecError
from workbench.hardware.paging import ACCESSES, touch
from workbench.hardware.paging_tlb import translation
from workbench.probe import chase, pages, system

SETS = (2**14, 2**20)
LINUX = pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="Linux alone")


@pytest.fixture(autouse=True)
def nothing_left(tmp_path):
    yield
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def chased():
    return pages.latency(SETS, seconds=5)


def test_an_access_is_measured_under_the_models_names(chased):
    model = translation([*SETS], 4096)
    assert chased.latency_s.attrs == model.latency_s.attrs
    assert chased.latency_s.dims == ("page_size", "working_set")
    measured = chased.latency_s.sel(page_size=chased.page_size[0])
    assert (measured > 0).all() and (measured < 1e-3).all()


def test_a_ring_visits_every_line_once():
    ring, _ = chase.memory(2**16, chase.mmap.PAGESIZE)
    chase.through(ring, 2**14, 0.01)
    seen, at = set(), 0
    while at not in seen:
        seen.add(at)
        at = int(ring[at])
    assert len(seen) == 2**14 // 64 and at == 0


def test_no_huge_pages_is_said_and_costs_nothing_else(monkeypatch):
    monkeypatch.setattr(chase, "_huge_bytes", lambda: 0)
    monkeypatch.setattr(chase, "MAP_HUGETLB", 1 << 30 | chase.MAP_HUGETLB)  # no pool has that size
    if not chase.huge_page():
        pytest.skip("no huge pages here")
    ds = pages.latency(SETS[:1], seconds=0.2)
    assert np.isnan(ds.latency_s[1]).all() and not np.isnan(ds.latency_s[0]).any()
    assert "madvise gave 0%" in ds.attrs["unseen"] and ds.attrs["huge"] == ""


@pytest.mark.parametrize("wrong", [0, 2**70, 5000, -(2**20)])
def test_working_sets_without_meaning(wrong):
    with pytest.raises(SpecError, match="multiple of 4096 up to"):
        pages.latency([wrong])


@pytest.fixture(scope="module")
def touched(tmp_path_factory):
    return pages.faults(tmp_path_factory.mktemp("faults"), "4 MiB", seconds=2)


def test_a_first_touch_is_measured_under_the_models_names(touched):
    assert touched.page_s.attrs == touch().page_s.attrs
    assert list(touched.access.values) == list(ACCESSES)
    assert (touched.page_s.dropna("access") > 0).all()
    assert {"anonymous", "cached file"} <= set(touched.page_s.dropna("access").access.values)


@LINUX
def test_a_file_cannot_be_mapped_in_huge_pages(touched):
    """M15: MAP_HUGETLB on a regular file gives EINVAL."""
    if touched.attrs["file_system"] in ("hugetlbfs", "tmpfs"):
        pytest.skip("no regular file")
    assert touched.attrs["map_hugetlb_on_file"] == "EINVAL"


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_a_stop_keeps_what_was_measured(tmp_path, steps):
    ds = pages.faults(tmp_path, "4 MiB", seconds=2, report=lambda what, done, of: done < steps)
    assert np.isnan(ds.page_s).sum() == len(ACCESSES) - (steps - 1)
    assert "stopped" in ds.attrs["unseen"]
    kept = pages.latency(SETS, seconds=1, report=lambda what, done, of: done < 1)
    assert np.isnan(kept.latency_s).sum() == kept.latency_s.size - 1


def test_a_short_budget_measures_less(tmp_path):
    ds = pages.faults(tmp_path, "64 MiB", seconds=0.01)
    assert "ran out" in ds.attrs["unseen"] or (ds.page_s > 0).all()


def test_a_system_that_drops_no_caches(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    ds = pages.faults(tmp_path, "1 MiB", seconds=1)
    assert np.isnan(ds.page_s.sel(access=["cold, readahead", "cold, no readahead"])).all()
    assert "does not drop caches" in ds.attrs["unseen"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_no_room_and_no_permission(tmp_path, monkeypatch, number):
    def refused(*args):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "write", refused)
    with pytest.raises(FileError, match=os.strerror(number)):
        pages.faults(tmp_path, "1 MiB")


def test_questions_without_meaning(tmp_path):
    with pytest.raises(SpecError, match="size"):
        pages.faults(tmp_path, 0)
    with pytest.raises(FileError):
        pages.faults(tmp_path, 2.0**70)
    with pytest.raises(SpecError, match="seconds"):
        pages.latency(SETS, seconds=0)


def test_settings_are_read(touched):
    assert touched.attrs["page_bytes"] >= 4096
    assert {"huge_page_bytes", "readahead_bytes", "fault_around_bytes"} <= set(touched.attrs)


def test_settings_that_cannot_be_read(tmp_path, monkeypatch):
    folder, root = tmp_path / "disk", tmp_path / "root"
    folder.mkdir()
    monkeypatch.setattr(system, "ROOT", root)
    ds = pages.faults(folder, "1 MiB", seconds=0.5)
    folder.rmdir()
    assert ds.attrs["readahead_bytes"] == ds.attrs["fault_around_bytes"] == -1
    assert ds.attrs["huge_page_bytes"] == 0
    assert "fault-around cannot be read" in ds.attrs["unseen"]
    assert "readahead cannot be read" in ds.attrs["unseen"]
