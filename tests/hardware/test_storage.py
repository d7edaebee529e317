"""Load pipeline, queue depth and codecs against published runs and data sheets (M24, M26, M27)."""

import dataclasses
import math

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import workbench as wb
from workbench.errors import SpecError, UnknownNameError, WorkbenchError
from workbench.hardware import roofline, storage
from workbench.hardware.contiguity import within
from workbench.hardware.storage_input import quantity

rates = st.floats(1e6, 1e11)
few = settings(max_examples=25)


def test_streams_fill_a_cloud_volume():
    """Run:ai Model Streamer, 15 GB on a volume of 1000 MiB/s: 47.56 s with 1, 14.34-14.53 with 4 to 16."""
    ds = storage.load("15 GB", "Cloud volume (gp3)", streams=[1, 4, 8, 16], chunk="256 KiB")
    np.testing.assert_allclose(ds.load_s, [47.6, 14.4, 14.4, 14.4], rtol=0.01)
    assert set(ds.bottleneck.values) == {"read"}


def test_one_small_read_at_a_time():
    """Measured on a machine with NVMe: 45 to 55 us for 4 KiB; Samsung rates 22,000 reads/s."""
    ds = storage.nvme("NVMe PCIe 4.0")
    assert 44e-6 < ds.read_latency_s.item() <= 55e-6
    assert ds.iops.item() == pytest.approx(22_000, rel=0.02)


def test_queue_depth_up_to_the_data_sheet():
    """Samsung 980 PRO 1 TB: 7 GB/s and a million reads/s."""
    ds = storage.nvme("NVMe PCIe 4.0", queue_depth=[1, 2, 64, 256], block_size=["4 KiB", "1 MiB"])
    small, large = ds.isel(block_size=0), ds.isel(block_size=1)
    assert small.iops.values[1] == 2 * small.iops.values[0]
    np.testing.assert_allclose(small.iops[2:], 1e6)
    np.testing.assert_allclose(large.read_bandwidth[2:], 7e9)
    np.testing.assert_allclose(small.read_latency_s[3], 256e-6)  # Little's law


@few
@given(
    st.integers(1, 300),
    st.sampled_from([4096.0, 131072.0, 2.0**22]),
    st.sampled_from(list(storage.disks())),
)
def test_no_disk_beats_its_limits(depth, block, name):
    disk = storage.disk(name)
    iops, rate, wait = (float(x) for x in storage.queue(disk, float(depth), block))
    assert rate <= disk.bandwidth * (1 + 1e-9) and iops <= disk.iops * (1 + 1e-9)
    assert wait >= disk.latency * (1 - 1e-9)
    assert wait * iops == pytest.approx(depth)
    more = float(storage.queue(disk, depth + 1.0, block)[0])
    assert more >= iops


@few
@given(rates, rates, rates, st.floats(1, 4))
def test_a_load_takes_at_least_its_longest_stage(link, codec, prepare, ratio):
    asked = {"link": link, "decompress": codec, "prepare": prepare, "ratio": ratio, "start": 1.5}
    beside = storage.load(1e9, "SATA SSD", **asked)
    turn = storage.load(1e9, "SATA SSD", overlap=False, **asked)
    stages = beside.stage_s.sel(stage=["read", "link", "decompress", "prepare"])
    assert beside.load_s.item() == pytest.approx(float(stages.max()) + 1.5)
    assert beside.load_s.item() <= turn.load_s.item() <= float(stages.sum()) + 1.5 + 1e-9
    assert beside.stage_s.sel(stage=str(beside.bottleneck.item())) == beside.stage_s.max()


def test_the_bottleneck_is_named():
    slow = storage.load("10 GB", "NVMe PCIe 4.0", link="1 GB/s", prepare="4 GB/s", streams=8)
    assert slow.bottleneck.item() == "link" and slow.load_s.item() == pytest.approx(10.0)
    codec = storage.load("10 GB", "NVMe PCIe 4.0", ratio=2, decompress="500 MB/s", streams=8)
    assert codec.bottleneck.item() == "decompress" and codec.load_s.item() == pytest.approx(20.0)


def test_decompression_at_every_token():
    """23.6 GB at 1.2 GB/s: 19.7 s a token (mechanism M27)."""
    ds = storage.decompress("23.6 GB", "7 GB/s", 1.0, "1.2 GB/s")
    assert ds.decompress_s.item() == pytest.approx(19.7, abs=0.05)
    assert ds.load_s.item() == pytest.approx(19.7, abs=0.05)


@few
@given(rates, rates, st.floats(1, 5))
def test_a_codec_gains_only_if_faster_than_the_disk(disk, speed, ratio):
    gain = storage.decompress(1e9, disk, ratio, speed).gain.item()
    assert gain <= ratio * (1 + 1e-9)
    if gain > 1 + 1e-9:
        assert ratio > 1 and speed > disk


def test_codecs_are_those_of_the_table():
    """zstd's project page: zstd -1 1580 MB/s, lz4 4000 MB/s."""
    known = storage.codecs()
    assert known["zstd -1"] == (2.887, 1.58e9) and known["lz4"][1] == 4e9


@pytest.mark.parametrize(
    ("device", "disk"),
    [
        ("m4 pro", "Mac internal, larger chips"),
        ("m2 10-core", "Mac internal"),
        ("rtx 4090", "NVMe PCIe 4.0"),
        ("gtx 1080 ti", "NVMe PCIe 3.0"),
        ("raspberry pi 5", "microSD"),
    ],
)
def test_usual_disk_of_a_machine(device, disk):
    found = wb.Device.preset(device)
    assert storage.usual(found.device_class, found.generation, found.name) == disk
    assert storage.disk_of(found) == storage.disks()[disk]


def test_every_machine_has_a_disk():
    for name in wb.devices()[::20]:
        try:
            found = storage.disk_of(wb.Device.preset(name))
        except SpecError:
            continue
        assert 1e7 < found.bandwidth < 2e10 and 1e-6 < found.latency < 0.1


def test_a_machines_own_disk():
    own = wb.Device.preset("m4 pro", disk="450 MB/s")
    assert storage.disk_of(own).bandwidth == 450e6
    spilled = roofline.machine_of(own).spill_bandwidth
    assert spilled == 450e6  # what a unified memory cannot hold comes from there
    card = dataclasses.replace(wb.Device.preset("rtx 4090"), disk=1e9)
    assert float(roofline.machine_of(card).spill_bandwidth) > 1e9


def test_a_disk_by_its_rate():
    assert storage.disk("3.5 GB/s").bandwidth == 3.5e9 and storage.disk(2e9).bandwidth == 2e9
    assert storage.disk(storage.disk(2e9)) == storage.disk(2e9)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: storage.nvme(queue_depth=0), "queue_depth: 0 must be at least 1"),
        (lambda: storage.nvme(queue_depth=[1, 0]), "at least 1"),
        (lambda: storage.nvme(block_size=0), "block_size"),
        (lambda: storage.load(2**70), "size"),
        (lambda: storage.load("1 GB", ratio=0.9), "ratio: 0.9 must be at least 1"),
        (lambda: storage.decompress(1e9, 1e9, 0.5, 1e9), "ratio: 0.5"),
        (lambda: storage.load("1 GB", streams=0), "streams"),
        (lambda: storage.load("1 GB", chunk=2**70), "chunk"),
        (lambda: storage.load("1 GB", link=0.0), "link"),
        (lambda: storage.load("1 GB", start=-1.0), "start"),
        (lambda: storage.load("1 parsec"), "size"),
        (lambda: storage.load(math.nan), "size"),
        (lambda: storage.load({}), "size"),
        (lambda: storage.disk("-1 GB/s"), "disk"),
        (lambda: storage.disk(math.inf), "disk"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(call, says):
    with pytest.raises(WorkbenchError, match=says):
        call()


def test_an_unknown_disk_suggests_others():
    with pytest.raises(UnknownNameError, match="USB stick"):
        storage.disk("USB sticks")


@pytest.mark.parametrize("door", [quantity, lambda v, unit, field: within(v, field, 0.0, 1.0)])
def test_text_in_an_array_is_no_number(door):
    """Both doors have one way to read numbers, and one error."""
    with pytest.raises(SpecError, match="rate: .*many.* is not a number"):
        door(xr.DataArray(["many"], dims="x"), "dimensionless", "rate")
    with pytest.raises(SpecError, match="more than one dimension"):
        door(np.ones((2, 2)), "dimensionless", "rate")
