"""Parsers on what kernels and tools really printed; recorded/README.md says where it is from."""

from pathlib import Path

import pytest

from workbench.probe import readings

RECORDED = Path(__file__).parent / "recorded"


def recorded(name: str) -> str:
    return (RECORDED / name).read_text(encoding="utf-8")


def test_vmstat_of_a_server_that_runs_out_of_contiguous_memory():
    events = readings.counters(recorded("linux-server/proc/vmstat"))
    assert (events["compact_stall"], events["compact_success"]) == (205761, 23341)
    # the kernel counts a stall as a failure or a success (mm/page_alloc.c): the parts add up
    assert events["compact_fail"] + events["compact_success"] == events["compact_stall"]
    assert len(readings.counters(recorded("linux-vm/proc/vmstat"))) == 192  # wc -l


@pytest.mark.parametrize("text", ["", "nonsense\n\0", "a b c\n1 2 3"])
def test_what_cannot_be_read_gives_nothing(text):
    assert readings.counters(text) == {} and readings.memory_pressure(text) == {}
    assert readings.chosen(text) == "" and readings.cpu_name(text) == ""
    assert readings.sysctl(text) == {} and readings.nvidia(text) == []


def test_choice_in_brackets():
    assert readings.chosen("always [madvise] never\n") == "madvise"  # transhuge.rst's own example


def test_cpuinfo_names_the_chip_or_the_board():
    guest = recorded("linux-vm/proc/cpuinfo")
    assert readings.cpu_name(guest) == "Intel(R) Xeon(R) Processor"
    assert readings.hypervisor(guest)
    board = "processor\t: 0\nCPU part\t: 0xd0b\n\nModel\t\t: Raspberry Pi 5 Model B Rev 1.0\n"
    assert readings.cpu_name(board) == "Raspberry Pi 5 Model B Rev 1.0"
    assert not readings.hypervisor(board)


@pytest.mark.parametrize(
    ("text", "size"), [("48K\n", 48 * 2**10), ("307200K", 300 * 2**20), ("2M", 2**21), ("", 0)]
)
def test_cache_sizes(text, size):
    assert readings.cache_size(text) == size


def test_caches_of_an_apple_chip_are_those_of_its_fast_cores():
    found = readings.apple_caches(readings.sysctl(recorded("macos/sysctl")))
    assert found == {"L1d": 128 * 2**10, "L1i": 192 * 2**10, "L2": 12 * 2**20}


def test_caches_of_an_intel_mac_have_no_level():
    # kszucs' machine in github.com/apache/arrow, pull request 7408
    text = "hw.l1dcachesize: 32768\nhw.l2cachesize: 262144\nhw.l3cachesize: 12582912\n"
    found = readings.apple_caches(readings.sysctl(text))
    assert found == {"L1d": 2**15, "L2": 2**18, "L3": 12 * 2**20}


def test_memory_pressure():
    found = readings.memory_pressure(recorded("macos/memory_pressure"))
    assert found["memory"] == 16 * 2**30 and found["page_size"] == 16384
    assert found["free"] == 0.57
    assert found["Pages wired down"] == 123956 and found["Swapouts"] == 0


def test_cards_have_the_memory_they_are_sold_with():
    listing = "NVIDIA GeForce RTX 4090, 24564\nNVIDIA GB10, [N/A]\n"
    assert readings.nvidia(listing) == [
        ("NVIDIA GeForce RTX 4090", 24 * 2**30), ("NVIDIA GB10", 0.0),
    ]  # fmt: skip
