"""Recorded machines are read right; what cannot be read is said, not guessed."""

import platform
from pathlib import Path

import numpy as np
import pytest

from workbench.probe import system

RECORDED = Path(__file__).parent / "recorded"


@pytest.fixture
def linux(monkeypatch):
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    return lambda folder: monkeypatch.setattr(system, "ROOT", folder)


def test_a_guest_inside_a_container(linux):
    linux(RECORDED / "linux-vm")
    ds = system.read()
    sizes = dict(zip(ds.cache.values.tolist(), ds.cache_size.values.tolist(), strict=True))
    assert sizes == {"L1d": 48 * 2**10, "L1i": 32 * 2**10, "L2": 2**21, "L3": 300 * 2**20}
    assert ds.attrs["thp"] == ds.attrs["thp_defrag"] == "madvise"
    assert ds.attrs["virtualization"] == "virtual machine" and ds.attrs["container"] == "docker"
    assert (ds.attrs["numa_nodes"], ds.attrs["numa_balancing"]) == (1, 0)
    assert ds.huge_pages.sel(page_size=2**30, state="total") == 0
    assert ds.events.sel(counter="pgfault") > 0
    assert "docker" in ds.attrs["unseen"] and "virtual machine" in ds.attrs["unseen"]


def test_an_unreadable_proc_is_said(linux, tmp_path):
    linux(tmp_path)
    ds = system.read()
    assert ds.sizes["counter"] == ds.sizes["cache"] == ds.sizes["page_size"] == 0
    assert ds.attrs["thp"] == "" and ds.attrs["numa_balancing"] == -1
    assert "no kernel event counters" in ds.attrs["unseen"]
    assert ds.memory_total > 0 and ds.attrs["cpu"]


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("proc/1/cgroup", "0::/kubepods.slice/burstable\n", "kubepods"),
        ("run/.containerenv", "", "podman"),
    ],
)
def test_containers(linux, tmp_path, file, text, said):
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(text)
    linux(tmp_path)
    assert system.container() == said


def test_a_container_has_the_memory_it_may_use(linux, tmp_path):
    groups = tmp_path / "sys/fs/cgroup"
    groups.mkdir(parents=True)
    (groups / "memory.max").write_text(f"{2**30}\n")
    (groups / "memory.current").write_text(f"{2**28}\n")
    linux(tmp_path)
    assert system.memory() == (2**30, 2**30 - 2**28)
    (groups / "memory.max").write_text("max\n")
    assert system.memory()[0] > 2**30


def test_wsl_is_named(linux, tmp_path):
    release = tmp_path / "proc/sys/kernel/osrelease"
    release.parent.mkdir(parents=True)
    release.write_text("5.15.167.4-microsoft-standard-WSL2\n")
    linux(tmp_path)
    assert system.virtualization() == "WSL"


def test_a_mac_says_it_through_its_tools(monkeypatch):
    said = {
        ("sysctl", "hw"): (RECORDED / "macos/sysctl").read_text(),
        ("memory_pressure",): (RECORDED / "macos/memory_pressure").read_text(),
        ("sysctl", "-n", "machdep.cpu.brand_string"): "Apple M1 Pro\n",
        ("sysctl", "-n", "kern.hv_vmm_present"): "0\n",
    }
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(system, "output", lambda command: said.get(tuple(command), ""))
    ds = system.read()
    assert ds.attrs["cpu"] == "Apple M1 Pro" and ds.attrs["virtualization"] == ""
    assert ds.cache_size.sel(cache="L2") == 12 * 2**20
    assert ds.events.sel(counter="Pages compressed") == 1712223
    assert not np.isnan(ds.events).any()


def test_a_tool_that_is_missing_or_fails_says_nothing():
    assert system.output(["no-such-tool-here"]) == ""
    assert system.output(["false"]) == ""
