"""The storage panel and the trial button without a browser."""

import time

import pytest

from workbench.hardware import storage
from workbench.panels.storage import StoragePanel
from workbench.panels.storage_trial import LoadTrial


@pytest.fixture(scope="module")
def panel():
    return StoragePanel()


@pytest.fixture(autouse=True)
def as_at_first(request):
    if "panel" in request.fixturenames:
        request.getfixturevalue("panel").set(
            disk="NVMe PCIe 4.0", link="PCIe 4.0 x4", depth=1, block=4096, streams=1,
            chunk=2**17, ratio=1.0, overlap=False, resident=0.5,
        )  # fmt: skip


def test_code_computes_the_same(panel):
    for asked in ({}, {"ratio": 1.5, "streams": 4, "overlap": True, "link": "USB 3.2 5 Gb/s"}):
        panel.set(**asked)
        there = {}
        exec(panel.to_code(), there)
        assert there["ds"].load_s.item() == pytest.approx(panel.data.load_s.item())
        assert panel.error == ""


def test_a_slow_port_becomes_the_bottleneck(panel):
    panel.set(link="USB 3.2 5 Gb/s", streams=8)
    assert panel.data.bottleneck.item() == "link" and "link" in panel.status(panel.data)


def test_depth_and_block_are_the_disks_behind_the_port(panel):
    panel.set(depth=256, block=2**20, link="USB 2.0")
    said = panel.status(panel.data)
    assert f"{0.04e9 / 2**20:,.0f} reads/s" in said


def test_all_of_the_cache_in_memory_costs_nothing(panel):
    panel.set(resident=1.0)
    step = float(panel._token.time_s.sum())
    assert panel._kept.tpot_s.item() == pytest.approx(step)


def test_every_disk_and_link_draws(panel):
    for disk in storage.disks():
        panel.set(disk=disk)
        assert panel.error == ""
    for link in ("PCIe 1.0 x1", "PCIe 6.0 x16", "Thunderbolt 5", "SATA 6 Gb/s"):
        panel.set(link=link)
        assert panel.error == ""


def test_a_move_of_a_slider(panel):
    """Issue 4: 50 ms of the kernel; printed, since CI shares its cores."""
    took = []
    for depth in range(2, 12):
        start = time.process_time()
        panel._controls["depth"].value = depth
        took.append(time.process_time() - start)
    print(f"slider: {sorted(took)[5] * 1e3:.1f} ms")
    assert panel.error == ""


def test_trial_shows_predicted_measured_and_error(tmp_path):
    button = LoadTrial(tmp_path, "4 MiB")
    assert button.ds is None and not list(tmp_path.iterdir())
    button.job.start().join()
    shown = button._table.value
    assert "predicted" in shown and "from the page cache" in shown and "%" in shown
    assert not list(tmp_path.iterdir())


def test_trial_says_what_is_wrong_in_a_sentence(tmp_path):
    button = LoadTrial(tmp_path / "none")
    button.job.start().join()
    assert button.ds is None and "Traceback" not in button.job._note.value
    assert "none" in button.job._note.value
