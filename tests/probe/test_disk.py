"""A disk is measured and left as it was, whatever happens meanwhile."""

import errno
import os
import shutil
from collections import namedtuple

import numpy as np
import pytest

from workbench.errors import FileError, SpecError
from workbench.probe import disk, scratch

SMALL = {"size": "4 MiB", "blocks": (2**16, 2**20), "depths": (1, 4)}


@pytest.fixture(autouse=True)
def nothing_left(tmp_path):
    yield
    assert not list(tmp_path.iterdir())


def test_a_file_is_read_cold_and_warm_and_at_random(tmp_path):
    ds = disk.reads(tmp_path, **SMALL)
    assert ds.attrs["file_bytes"] == 2**22
    assert (ds.read_bandwidth > 0).all() and ds.write_bandwidth > 0
    np.testing.assert_allclose(ds.iops * ds.read_latency_s, ds.queue_depth)  # Little's law
    assert ds.iops.attrs["units"] == "1/s" and ds.attrs["unseen"]


def test_a_load_is_size_over_bandwidth(tmp_path):
    ds = disk.load(tmp_path, "3 MB")
    assert ds.attrs["file_bytes"] == 3_000_000
    np.testing.assert_allclose(ds.load_s * ds.read_bandwidth, 3e6)
    assert list(ds.cache_state.values) == ["cold", "warm"]


def test_cold_is_cold_and_warm_is_warm(tmp_path):
    with scratch.scratch(tmp_path) as file:
        size = scratch.fill(file, 2**22, lambda done: True)
        held = scratch.cached(file, size)
        if np.isnan(held) or not scratch.forget(file):
            pytest.skip("this system does not tell what it caches")
        assert held == 1 and scratch.cached(file, size) < 0.1


def test_the_file_has_no_name_while_it_is_there(tmp_path):
    """So that not even a killed process leaves it behind."""
    with scratch.scratch(tmp_path) as file:
        scratch.fill(file, 2**20, lambda done: True)
        assert not list(tmp_path.iterdir()) and os.fstat(file).st_size == 2**20


@pytest.mark.parametrize("steps", range(1, 8))
def test_a_stop_keeps_what_was_measured(tmp_path, steps):
    ds = disk.reads(tmp_path, **SMALL, report=lambda what, done, of: done < steps)
    numbers = [*ds.read_bandwidth.values.ravel(), *ds.iops.values]
    assert np.isnan(numbers).sum() == 6 - min(steps - 1, 6)
    assert ("stopped" in ds.attrs["unseen"]) == (steps <= 7)


def test_an_interrupt_leaves_nothing(tmp_path):
    def interrupt(what, done, of):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        disk.reads(tmp_path, **SMALL, report=interrupt)


def test_a_short_budget_shortens_the_file(tmp_path):
    ds = disk.load(tmp_path, "64 MiB", seconds=0.01)
    assert ds.attrs["file_bytes"] < 2**26
    assert "half of the budget" in ds.attrs["unseen"]


def test_a_disk_that_fills_up_meanwhile(tmp_path, monkeypatch):
    def full(descriptor, block):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(FileError, match="No space left.*smaller"):
        disk.reads(tmp_path, **SMALL)


def test_a_disk_with_too_little_room(tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")(2**30, 2**30 - 2**22, 2**22)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(FileError, match="4 MiB is more than half of the 4 MiB"):
        disk.reads(tmp_path, **SMALL)


def test_a_folder_without_permission(tmp_path, monkeypatch):
    def refused(*args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refused)
    with pytest.raises(FileError, match="Permission denied"):
        disk.load(tmp_path, "2 MiB")


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="Linux's /proc")
def test_a_folder_that_takes_no_files():
    with pytest.raises(FileError, match="/proc"):
        disk.reads("/proc", **SMALL)


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no file system in memory")
def test_memory_is_not_taken_for_a_disk():
    assert "memory, not a disk" in disk.reads("/dev/shm", **SMALL).attrs["unseen"]


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        ({"size": 2.0**70}, FileError, "free"),
        ({"size": 0}, SpecError, "size"),
        ({"size": "1 KiB"}, SpecError, "size"),
        ({"seconds": 0}, SpecError, "seconds"),
        ({"blocks": (3000,)}, SpecError, "blocks"),
        ({"blocks": (2**40,)}, SpecError, "blocks"),
        ({"depths": (0,)}, SpecError, "depths"),
        ({"depths": (2**70,)}, SpecError, "depths"),
    ],
    ids=str,
)
def test_questions_without_meaning(tmp_path, wrong, error, said):
    with pytest.raises(error, match=said):
        disk.reads(tmp_path, **SMALL | wrong)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileError, match="nowhere"):
        disk.reads(tmp_path / "nowhere", **SMALL)
