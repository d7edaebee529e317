"""This machine as a Device: the catalogue's where it knows it, else as measured; and as a file."""

import dataclasses
import json
import math

import numpy as np
import pytest
import xarray as xr

from workbench import results
from workbench.errors import FileError, SpecError, WorkbenchError
from workbench.probe import machine, matmul, system
from workbench.probe.machine import describe, from_file, from_text, this_machine, to_text
from workbench.specs.device import Device


@pytest.fixture
def measured():
    return results.dataset(
        {
            "stream_bandwidth": (("kernel", "threads"), [[20e9, 30e9], [np.nan, 90e9]]),
            "matmul_flops": ("dtype", [1e11, np.nan]),
            "read_bandwidth": (("cache_state", "block_size"), [[1e9, 2e9], [7e9, 8e9]]),
        },
        {
            "cache_state": ["cold", "warm"],
            "block_size": [2**14, 2**20],
            "kernel": ["read", "triad"],
            "threads": [1, 2],
            "dtype": ["float32", "bfloat16"],
        },
    )


def named(monkeypatch, cpu="", cores=2, **said):
    """Make this machine call itself something else."""
    monkeypatch.setattr(system, "cpu_name", lambda: cpu)
    monkeypatch.setattr(system, "cores", lambda: cores)
    monkeypatch.setattr(system, "text", lambda name: "")
    monkeypatch.setattr(system, "output", lambda command: said.get(command[0], ""))


def test_this_machine_is_measured():
    device = this_machine(seconds=2)
    assert device.name and device.bandwidth > 1e8 and device.flops > 1e8
    assert device.memory == pytest.approx(system.memory()[0])


def test_an_unknown_cpu_is_what_was_measured(monkeypatch, measured):
    named(monkeypatch, "Some Processor", cores=6)
    device = describe(measured)
    assert (device.name, device.device_class) == ("Some Processor", "cpu")
    assert (device.bandwidth, device.flops, device.cores) == (30e9, 1e11, 6)  # reads, not triads
    assert device.disk == 2e9  # what is cached did not come from it
    assert "measured" in device.note and "measured" in device.source


def test_an_unknown_cpu_without_a_measurement_is_no_device(monkeypatch):
    named(monkeypatch, "Some Processor")
    with pytest.raises(WorkbenchError, match="bandwidth was not measured"):
        describe(xr.Dataset())


def test_an_nvidia_card_is_found_by_its_tool(monkeypatch, measured):
    named(monkeypatch, **{"nvidia-smi": "NVIDIA GeForce RTX 4090, 24564\n"})
    device = describe(measured)
    assert (device.name, device.memory) == ("NVIDIA GeForce RTX 4090", 24 * 2**30)
    assert device.bandwidth == 1008e9  # NVIDIA's page of the card
    assert device.host_bandwidth == 30e9 and device.host_memory == system.memory()[0]


def test_an_apple_chip_is_found_by_its_name_and_cores(monkeypatch, measured):
    monkeypatch.setattr(machine.platform, "system", lambda: "Darwin")
    named(monkeypatch, "Apple M4 Pro", system_profiler="  Total Number of Cores: 16\n")
    device = describe(measured)
    assert device.name == "Apple M4 Pro 16-core GPU"
    assert device.bandwidth == Device.preset("m4 pro").bandwidth and "30 GB/s" in device.note


def test_a_cpu_of_the_catalogue_needs_its_cores(monkeypatch, measured):
    """A guest with two of an EPYC's 96 cores is not that EPYC."""
    named(monkeypatch, "AMD EPYC 9654 96-Core Processor", cores=96)
    assert describe(measured).bandwidth == 460.8e9  # 12 channels of DDR5-4800
    named(monkeypatch, "AMD EPYC 9654 96-Core Processor", cores=2)
    assert describe(measured).bandwidth == 30e9


def test_a_device_survives_being_written():
    for name in ("rtx 4090", "m4 pro", "strix halo"):
        before = dataclasses.asdict(Device.preset(name))
        after = dataclasses.asdict(from_text(to_text(Device.preset(name))))
        for key in before.keys() - {"memory_options"}:
            assert before[key] == pytest.approx(after[key], nan_ok=True), key


@pytest.mark.parametrize(
    "changed",
    [
        {"bandwidth": -1}, {"bandwidth": "1e999"}, {"memory": math.inf}, {"flops": [1]},
        {"memory": None}, {"device_class": "toaster"}, {"bandwidth": {"a": 1}},
    ],
    ids=str,
)  # fmt: skip
def test_a_device_with_wrong_numbers_is_refused(changed):
    fields = json.loads(to_text(Device.preset("rtx 4090"))) | changed
    with pytest.raises(WorkbenchError):
        from_text(json.dumps(fields))


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", "[" * 10**5, '{"name": 1}'], ids=repr)
def test_text_that_is_no_device_is_refused(text):
    with pytest.raises(WorkbenchError, match="no device"):
        from_text(text)


def test_files_that_are_not_ours(tmp_path, measured):
    with pytest.raises(FileError, match=r"missing\.nc"):
        from_file(tmp_path / "missing.nc")
    noise = tmp_path / "noise.nc"
    noise.write_bytes(b"\x00noise" * 100)
    with pytest.raises(FileError, match="NetCDF"):
        from_file(noise)
    other = results.save(measured, tmp_path / "other.nc")
    with pytest.raises(FileError, match="workbench probe --save"):
        from_file(other)
    broken = results.save(measured.assign_attrs(device="{}"), tmp_path / "broken.nc")
    with pytest.raises(FileError, match=r"broken\.nc.*no device"):
        from_file(broken)


def test_matrix_products_are_measured():
    ds = matmul.flops(64, repeats=2)
    assert list(ds.dtype.values) == list(matmul.DTYPES) and (ds.matmul_flops > 0).all()
    stopped = matmul.flops(64, report=lambda what, done, of: False)
    assert np.isnan(stopped.matmul_flops).all() and "stopped" in stopped.attrs["unseen"]


@pytest.mark.parametrize(
    "wrong", [{"size": 2**70}, {"size": 1}, {"repeats": 0}, {"dtypes": ("int4",)}, {"seconds": 0}]
)
def test_products_without_meaning(wrong):
    with pytest.raises(SpecError):
        matmul.flops(**wrong)
