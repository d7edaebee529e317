"""The largest piece of memory: bounds, random zones, simulated zones, ways to it (M18, M19, M20)."""

import csv

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench import data
from workbench.errors import SpecError
from workbench.hardware.contiguity import (
    expected_blocks,
    fragmentation_index,
    largest_block,
    pages_of,
    sampled_order,
    unusable_share,
)
from workbench.hardware.contiguity_dma import compaction, transfer, ways
from workbench.hardware.contiguity_zone import simulate

MIB = 2**20
shares = st.floats(0, 1)


@pytest.mark.parametrize("zone", ["32 GiB", "64 GiB"])
@pytest.mark.parametrize(("pinned", "mib"), [(1e-4, 128), (1e-3, 16), (1e-2, 2)])
def test_scattered_pins_cap_the_largest_block_whatever_the_size(zone, pinned, mib):
    """M18 [S]."""
    ds = largest_block(zone, pinned)
    assert ds.largest_bytes == mib * MIB
    assert set(np.unique(ds.sampled_bytes)) <= {mib * MIB, 2 * mib * MIB}


def test_blocks_to_expect_at_one_in_a_thousand():
    """M18 [S]: 34 free aligned blocks of 16 MiB in 32 GiB; 33 MiB of pinned pages suffice for that."""
    ds = largest_block("32 GiB", 1e-3)
    assert ds.free_blocks.sel(order=12).item() == pytest.approx(34, abs=0.5)
    assert ds.pinned_bytes.item() / MIB == pytest.approx(33, abs=0.5)


def test_one_random_zone_page_by_page():
    """M18 [S]: longest pinned-free run 30 MiB, 34 blocks; one Monte Carlo of ours beside theirs."""
    rng = np.random.default_rng(7)
    pins = np.flatnonzero(rng.random(2**23) < 1e-3)
    run = np.diff(pins).max() * 4096 / MIB
    blocks = 2**23 // 2**12 - np.unique(pins >> 12).size
    assert 25 < run < 60 and blocks == pytest.approx(34, abs=4 * np.sqrt(34))


@pytest.mark.parametrize(
    ("utilisation", "order"), [(0.3, 17), (0.5, 16), (0.7, 16), (0.9, 14)]
)  # fmt: skip
def test_movable_churn_leaves_large_blocks(utilisation, order):
    """M18 [S]: a zone of 1 GiB, nothing pinned, no page cache."""
    ds = simulate("1 GiB", utilisation, 0.0, peak=utilisation, max_order=18)
    dropped = ds.isel(burst=int(np.flatnonzero(ds.phase == "cache dropped")[0]))
    assert dropped.largest_order == dropped.listed_order == order


@pytest.fixture(scope="module")
def lives() -> dict[bool, xr.Dataset]:
    """A zone of 2 GiB, grouped or not."""
    return {
        grouping: simulate("2 GiB", 0.25, 1e-3, grouping=grouping, seed=[0, 1])
        for grouping in (False, True)
    }


def test_a_simulated_zone_ends_where_the_bound_says(lives):
    bound = largest_block("2 GiB", 1e-3, utilisation=0.25)
    end = lives[False].isel(burst=-1).largest_order
    assert abs(end - bound.largest_order).max() <= 1
    assert lives[False].phase[-1] == "compacted"


def test_grouping_keeps_pins_out_of_the_way(lives):
    loose, grouped = (lives[g].isel(burst=-1).largest_bytes.min() for g in (False, True))
    assert grouped >= 32 * loose
    assert largest_block("2 GiB", 1e-3, grouping=True).largest_bytes > 32 * loose


def test_a_life_adds_up(lives):
    ds = lives[True]
    pages = ds.attrs["zone_bytes"] / 4096
    free = (ds.free_blocks * 2.0**ds.order).sum("order")
    np.testing.assert_allclose(1 - free / pages, ds.used_share.mean("cell"))
    assert bool((ds.pinned_share <= ds.used_share).all())
    assert bool((ds.moved_pages.diff("burst") >= 0).all())
    assert set(np.unique(ds.p_success)) <= {0.0, 0.5, 1.0}


def test_a_life_can_be_stopped():
    seen = []
    ds = simulate("1 GiB", report=lambda what, done, of: seen.append((done, of)) or done < 3)
    assert len(seen) == ds.sizes["burst"] == 3


def test_seeds_are_reported_as_one_and_whole_ones_kept():
    told = []
    ds = simulate("64 MiB", seed=[3, 4], report=lambda *step: told.append(step[1:]))
    assert [done for done, _ in told] == list(range(1, told[0][1] + 1))
    assert ds.sizes["seed"] == 2 and len(told) == 2 * ds.sizes["burst"]
    half = simulate("64 MiB", seed=[3, 4], report=lambda what, done, of: done <= of // 2)
    assert half.identical(simulate("64 MiB", seed=3))


def naive_index(blocks, order):
    """As torvalds/linux mm/vmstat.c does it, in whole numbers."""
    total, free = sum(blocks), sum(n << k for k, n in enumerate(blocks))
    if not total:
        return 0
    if any(blocks[order:]):
        return -1000
    return 1000 - (1000 + free * 1000 // (1 << order)) // total


@settings(max_examples=60)
@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=11))
def test_indices_are_the_kernels(blocks):
    found = fragmentation_index(np.array(blocks))
    assert list(found) == [naive_index(blocks, order) for order in range(len(blocks))]
    free = sum(n << k for k, n in enumerate(blocks))
    for order, share in enumerate(unusable_share(np.array(blocks))):
        small = sum(n << k for k, n in enumerate(blocks[:order]))
        assert share == pytest.approx(small / free if free else 0.0, abs=1e-12)


def test_index_tells_pieces_from_lack():
    """0: too little memory; 1000: in pieces (Gorman & Whitcroft, OLS 2006)."""
    pieces, lack = np.array([10**6, *[0] * 10]), np.array([1, *[0] * 10])
    assert fragmentation_index(pieces)[9] > 990 and fragmentation_index(lack)[9] <= 0


@settings(max_examples=40)
@given(shares, shares, st.integers(64, 2**40), st.integers(0, 30))
def test_more_pins_never_give_more(one, other, pages, order):
    low, high = sorted((one, other))
    assert expected_blocks(pages, order, low) >= expected_blocks(pages, order, high)
    assert expected_blocks(pages, order, low, 9) >= expected_blocks(pages, order, low) * (1 - 1e-9)
    assert expected_blocks(pages, order, 0.0) == pages / 2**order


@settings(max_examples=20)
@given(st.integers(1, 2**40), shares)
def test_random_zones_of_any_size(pages, pinned):
    largest = sampled_order(pages, pinned, 0, 4)
    assert (largest >= -1).all() and (largest <= np.log2(pages)).all()
    assert (sampled_order(pages, 0.0, 0, 2) == int(np.log2(pages))).all()
    assert (sampled_order(pages, 1.0, 0, 2) == -1).all()


def test_random_zones_have_the_law_of_page_by_page():
    rng = np.random.default_rng(1)
    slow = np.zeros(200, int)
    for trial in slow.reshape(-1, 1):
        free = rng.random(1000) > 0.05
        trial[0] = max(
            k for k in range(10) if free[: 1000 >> k << k].reshape(-1, 1 << k).all(1).any()
        )
    quick = sampled_order(1000, 0.05, 0, 200)
    assert abs(slow.mean() - quick.mean()) < 5 * np.hypot(slow.std(), quick.std()) / np.sqrt(200)


def test_pages_of_arm():
    """arch/arm64/Kconfig: order 10, 11, 13; pageblocks of 2, 32, 512 MiB."""
    for page, order, block in (("4 KiB", 10, 2), ("16 KiB", 11, 32), ("64 KiB", 13, 512)):
        cut = pages_of("8 GiB", page)
        assert cut.max_order == order and cut.page << cut.pageblock == block * MIB


def test_shares_broadcast_by_name():
    pinned = xr.DataArray([1e-4, 1e-3], dims="pinned")
    used = xr.DataArray([0.1, 0.5, 0.9], dims="utilisation")
    ds = largest_block("8 GiB", pinned, utilisation=used)
    assert ds.largest_order.sizes == {"pinned": 2, "utilisation": 3}


def test_chance_of_one_range():
    """M19 [Check]: P(16 MiB | q = 0.024 %) = 0.37; one pin per 16 MiB."""
    assert compaction("16 MiB", 0.00024).p_success.item() == pytest.approx(0.37, abs=0.005)


def test_time_of_a_compaction():
    """M19: 24 GB at 50 % occupancy, about 2.9 M pages, about 6 s."""
    ds = compaction("24 GB", 1e-3, utilisation=0.5)
    assert ds.moved_pages.item() == pytest.approx(2.9e6, rel=0.02)
    assert ds.compaction_s.item() == pytest.approx(6.0, rel=0.05)


def test_mapping_is_a_one_off():
    """M20 [Check]: 27 GB in 16 kB pages, 1.65 M entries, 0.3 s to map."""
    ds = transfer("27 GB", "2 MB", bandwidth="170 GB/s", page="16 KiB")
    assert ds.iommu_entries.item() == pytest.approx(1.65e6, rel=0.005)
    assert ds.map_s.item() == pytest.approx(0.3, abs=0.05)
    assert ds.first_transfer_s > ds.transfer_s and bool(ds.feasible)


def test_what_an_iommu_costs_again_and_again():
    """M20: misses x t_walk, one miss per line of eight entries; none while the IOTLB holds all."""
    large = transfer("16 GiB", "1 GiB", bandwidth="100 GB/s", page="16 KiB")
    plain = 2**34 / 100e9 + 16 * 3e-7
    assert large.transfer_s.item() == pytest.approx(plain + 2**20 / 8 * 2e-7)
    assert (large.first_transfer_s - large.transfer_s).item() == pytest.approx(2**20 * 2e-7)
    small = transfer("16 MiB", "1 MiB", bandwidth="100 GB/s", page="16 KiB")
    assert small.transfer_s.item() == pytest.approx(2**24 / 100e9 + 16 * 3e-7)


def test_without_an_iommu_a_chunk_must_be_one_piece():
    chunks = [4 * MIB, 16 * MIB, 64 * MIB]
    ds = transfer("1 GiB", chunks, bandwidth="100 GB/s", iommu=False, largest="16 MiB")
    assert list(ds.feasible) == [True, True, False] and ds.map_s == 0
    assert list(ds.descriptors) == [256, 64, 16]


def test_ways_to_the_articles_24_gb():
    """kernel-parameters.txt: cma= sets aside, mem= hides; hugetlbpage.rst: boot is the time."""
    ds = ways("23.6 GB", "1.8 GB", memory="32 GiB", utilisation=0.2, reserve="24 GiB")
    held = dict(zip(ds.request.values, ds.feasible.values, strict=True))
    assert held == {
        "free lists": False, "compaction": False, "hugetlb at boot": False, "CMA at boot": True,
        "mem= at boot": False, "IOMMU": True,
    }  # fmt: skip
    assert ds.hidden_bytes.sel(request="mem= at boot") == 8 * 2**30
    small = ways("23.6 GB", "1 GiB", memory="32 GiB", utilisation=0.2, reserve="16 GiB")
    assert not small.feasible.sel(request="CMA at boot") and small.feasible.sel(request="IOMMU")


def test_every_constant_has_a_source():
    with data.path("contiguity.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            assert float(row["value"]) >= 0 and row["unit"] and len(row["source"]) > 20


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: largest_block("1 MiB", 0.1), "smaller than one block"),
        (lambda: largest_block("64 KiB", 0.1, page="64 KiB"), "smaller than one block"),
        (lambda: largest_block(2**70, 0.1), "no machine addresses"),
        (lambda: largest_block("32 GiB", 1.5), "pinned.*from 0 to 1"),
        (lambda: largest_block("32 GiB", -0.1), "pinned.*from 0 to 1"),
        (lambda: largest_block("32 GiB", float("nan")), "pinned"),
        (lambda: largest_block("32 GiB", "many"), "not a number"),
        (lambda: largest_block("32 GiB", xr.DataArray(["many"])), "many.*not a number"),
        (lambda: largest_block("32 GiB", 0.1, seeds=0), "seeds.*from 1"),
        (lambda: pages_of("32 GiB", max_order="ten"), "max_order.*whole number"),
        (lambda: largest_block("32 GiB", 0.1, utilisation=1.2), "utilisation.*from 0 to 1"),
        (lambda: largest_block("32 GiB", 0.1, page=5000), "power of two"),
        (lambda: largest_block("32 GiB", 0.1, page=2**70), "power of two"),
        (lambda: largest_block("32 horses", 0.1), "zone"),
        (lambda: pages_of("32 GiB", max_order=99), "max_order"),
        (lambda: simulate("2 TiB"), "too many"),
        (lambda: simulate("1 GiB", 0.1, 0.5), "pinned pages are in use"),
        (lambda: simulate("1 GiB", 0.9, 0.0, peak=0.5), "exceed its peak"),
        (lambda: simulate("1 GiB", [0.1, 0.2]), "utilisation: give one number"),
        (lambda: simulate("1 GiB", seed=[]), "seed: give one"),
        (lambda: simulate("1 GiB", seed=[0, -1]), "seed.*whole number"),
        (lambda: simulate("1 GiB", seed="many"), "seed.*whole number"),
        (lambda: ways("1 GB", "1 MB", memory="8 GiB", pinned=[0.1, 0.2]), "pinned: give one"),
        (lambda: compaction(0, 0.1), "size"),
        (lambda: transfer("1 GB", 16, bandwidth=1e9), "chunk.*from 4096"),
        (lambda: transfer("1 GB", "1 MB", bandwidth=0), "bandwidth"),
        (lambda: ways("1 GB", "1 MB", memory="8 GiB", reserve="9 GiB"), "more than the memory"),
    ],
)
def test_nonsense_is_refused_in_words(call, says):
    with pytest.raises(SpecError, match=says):
        call()
