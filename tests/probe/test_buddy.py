"""Free lists of recorded machines are read right; what cannot be read is said, not guessed."""

from pathlib import Path

import numpy as np
import pytest

from workbench import results
from workbench.errors import FileError
from workbench.hardware.contiguity_zone import simulate
from workbench.probe import buddy, system

RECORDED = Path(__file__).parent / "recorded"


@pytest.fixture
def machine(monkeypatch):
    def read(folder):
        monkeypatch.setattr(system, "ROOT", folder)
        return buddy.read()

    return read


def test_a_guest_inside_a_container(machine, tmp_path):
    ds = machine(RECORDED / "linux-vm")
    assert list(ds.zone.values) == ["DMA 0", "DMA32 0", "Normal 0"]
    assert ds.free_blocks.sel(zone="DMA32 0", order=10) == 744
    assert list(ds.listed_order) == [10, 10, 10] and ds.listed_bytes[0] == 4 * 2**20
    assert ds.pageblocks.sel(zone="Normal 0", mobility="Movable") > 10_000
    assert ds.compactions.sel(event="failed") == 2
    assert "docker" in ds.attrs["unseen"] and "virtual machine" in ds.attrs["unseen"]
    assert results.open_(results.save(ds, tmp_path / "x.nc")).identical(ds)


def test_a_server_of_two_nodes_without_its_page_types(machine):
    ds = machine(RECORDED / "linux-server")
    assert list(ds.zone.values) == ["DMA 0", "DMA32 0", "Normal 0", "Normal 1"]
    assert list(ds.listed_order) == [10, 8, 8, 8] and "pageblocks" not in ds
    assert ds.fi.sel(zone="Normal 0", order=9) > 900  # in pieces, not for lack of memory
    assert ds.fi.sel(zone="Normal 1", order=4) == -1000
    assert "only root" in ds.attrs["unseen"]


def test_a_phone_with_larger_pageblocks(machine):
    ds = machine(RECORDED / "arm64-phone")
    assert ds.listed_order.item() == 6 and ds.unusable.sel(order=7).item() == 1.0
    assert "pageblocks" not in ds  # the report was cut before that table


def test_page_types_of_more_kinds():
    text = (RECORDED / "linux-desktop/proc/pagetypeinfo").read_text()
    found = buddy.pageblocks(text)
    assert found["DMA32 0"]["Movable"] == 1466 and found["DMA32 0"]["CMA"] == 0


def test_a_line_of_an_old_kernel():
    text = "Node 0, zone   Normal 258 9 5 0 1 2 0 1 1 0 0\n"  # lwn.net/Articles/101230, 1 GB
    (counts,) = buddy.free_lists(text).values()
    assert counts == [258, 9, 5, 0, 1, 2, 0, 1, 1, 0, 0]


def test_orders_as_the_kernel_prints_them_on_64_kib_pages():
    """arch/arm64/Kconfig: order 13."""
    (counts,) = buddy.free_lists("Node 0, zone    DMA" + " 7" * 14 + " \n").values()
    assert len(counts) == 14


LONG = f"Node 0, zone   Normal      1 {10**40}\n"
CUT_OFF = "Node 0, zone      DMA      1      1      3\nNode 0, zone   Normal      1      1\n"


def test_page_types_of_two_nodes_whose_mixed_blocks_are_counted_too():
    """torvalds/linux mm/vmstat.c pagetypeinfo_show: tables repeat by node; mixed with page_owner."""
    table = "Number of {} type     Unmovable      Movable \nNode {}, zone   Normal {:12d} {:12d} \n"
    text = "\n".join(
        "Free pages count per migrate type at order       0      1 \n"
        f"Node    {node}, zone   Normal, type    Unmovable      9      9 \n\n"
        + table.format("blocks", node, 10 + node, 20)
        + "\nNumber of mixed blocks    Unmovable      Movable \n"
        + f"Node {node}, zone   Normal            1            2 \n"
        for node in (0, 1)
    )
    assert buddy.pageblocks(text) == {
        f"Normal {node}": {"Unmovable": 10 + node, "Movable": 20} for node in (0, 1)
    }


def test_page_types_that_are_cut_off_are_left_out():
    head = "Number of blocks type     Unmovable      Movable\n"
    lines = "Node 0, zone      DMA            3            5\nNode 0, zone    DMA32           "
    assert buddy.pageblocks(head + lines) == {"DMA 0": {"Unmovable": 3, "Movable": 5}}
    assert buddy.pageblocks(head + lines + " 3\n") == {"DMA 0": {"Unmovable": 3, "Movable": 5}}


@pytest.mark.parametrize(
    "text", ["", "\x00\xff", "Node 0, zone\n", "Node 0, zone Normal one two", CUT_OFF, LONG]
)
def test_nothing_readable_is_an_error_in_words(machine, tmp_path, text):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/buddyinfo").write_text(text, encoding="latin-1")
    with pytest.raises(FileError, match="buddyinfo.*only Linux"):
        machine(tmp_path)


def test_names_are_the_simulators(machine):
    ours, theirs = machine(RECORDED / "linux-vm"), simulate("64 MiB", 0.5, 0.0)
    for name in ("free_blocks", "fi", "unusable", "listed_order", "listed_bytes"):
        assert ours[name].attrs == theirs[name].attrs
    np.testing.assert_array_equal(ours.order, theirs.order)
