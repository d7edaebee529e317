"""Speed of a model that memory does not hold, against what people measured (M23)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import SpecError, WorkbenchError
from workbench.hardware.pressure import REPLACEMENTS, fault_rate, measured, miss_share, pressure

sizes = st.floats(1e6, 1e15)


@pytest.fixture(scope="module")
def rows():
    return measured()


def test_the_cliff_of_an_81_gb_model(rows):
    """M23 [Check]: 64 GB with expert streaming about 5 tok/s, 32 GB about 0.17 (within a third)."""
    pair = rows.sel(
        row=["DeepSeek-V4-Flash, M1 Ultra, 64 GB", "DeepSeek-V4-Flash, M1 Ultra, 32 GB"]
    )
    np.testing.assert_allclose(pair.measured, [5.0, 0.17])
    np.testing.assert_allclose(pair.predicted, pair.measured, rtol=1 / 3)


def test_every_published_row_within_a_third(rows):
    assert rows.sizes["row"] >= 4
    np.testing.assert_allclose(rows.predicted, rows.measured, rtol=1 / 3)


def scanned(blocks, capacity, replacement, rounds=40):
    """Run a cyclic scan through a cache, block by block, and count the misses of its second half."""
    rng, cache, missed = np.random.default_rng(0), [], 0
    for at in range(blocks * rounds):
        block = at % blocks
        if block in cache:
            cache.remove(block)
        else:
            missed += at >= blocks * rounds // 2
            if len(cache) == capacity:
                cache.pop({"lru": 0, "mru": -1, "random": int(rng.integers(capacity))}[replacement])
        cache.append(block)  # the most recent last
    return missed / (blocks * (rounds - rounds // 2))


@pytest.mark.parametrize(("blocks", "capacity"), [(10, 10), (10, 12), (10, 9), (10, 3), (25, 24)])
def test_lru_under_a_scan_is_all_or_nothing(blocks, capacity):
    assert miss_share(blocks, capacity, np.array("lru")) == scanned(blocks, capacity, "lru")


@pytest.mark.parametrize("replacement", ["random", "mru"])
@pytest.mark.parametrize("capacity", [250, 190, 125, 50])
def test_other_replacements_under_a_scan(capacity, replacement):
    """The worst of it: half a working set in memory still misses 80 % of the reads at random."""
    expected = scanned(200, capacity, replacement)
    assert miss_share(200.0, capacity, np.array(replacement)) == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("replacement", REPLACEMENTS)
def test_reads_at_random_miss_alike(replacement):
    """Experts: 1 - C / W whatever goes, which is why they are priced as under MRU."""
    rng, cache, missed = np.random.default_rng(1), list(range(100)), 0
    for block in rng.integers(200, size=4000):
        if block in cache:
            cache.remove(block)
        else:
            missed += 1
            cache.pop({"lru": 0, "mru": -1, "random": int(rng.integers(100))}[replacement])
        cache.append(block)
    assert missed / 4000 == pytest.approx(miss_share(200.0, 100.0, np.array("mru")), abs=0.03)


@settings(max_examples=50)
@given(sizes, sizes, sizes, st.floats(1, 4))
def test_more_memory_never_hurts(working_set, one, other, ratio):
    memory = np.sort([one, other])
    ds = pressure(working_set, memory, bandwidth=1e11, storage=5e9, ratio=ratio)
    assert (np.diff(ds.tok_s.transpose("memory", ...), axis=0) >= 0).all()
    assert bool((ds.miss >= 0).all()) and bool((ds.miss <= 1).all())
    lru, random, mru = (ds.tok_s.sel(replacement=name) for name in ("lru", "random", "mru"))
    assert bool((lru <= random * (1 + 1e-9)).all()) and bool((random <= mru * (1 + 1e-9)).all())


def test_at_the_edge_one_byte_decides():
    ds = pressure("80 GB", [80e9, 80e9 - 1e6], bandwidth="800 GB/s", storage="7 GB/s")
    np.testing.assert_allclose(ds.tok_s.sel(replacement="lru"), [10.0, 7 / 80])
    np.testing.assert_allclose(ds.tok_s.sel(replacement=["random", "mru"]), 10.0, rtol=0.01)


def test_compression_helps_only_what_can_be_compressed():
    """M23 [K]: about 1.0 for quantised weights, 2 to 3 for data of applications."""
    given_ = {"bandwidth": 1e11, "storage": 5e9}
    assert pressure(30e9, 16e9, ratio=2.0, **given_).miss.max() == 0
    assert pressure(30e9, 16e9, ratio=1.0, **given_).miss.max() == 1
    both = pressure(30e9, 16e9, ratio=[1.0, 2.0], **given_).miss.sel(replacement="lru")
    assert both.dims == ("ratio",) and list(both) == [1, 0]


def test_what_every_token_reads_stays():
    """Experts of 78 GB beside 9 GB held: the miss is counted on the experts alone."""
    ds = pressure(78e9, 41e9, read=1.8e9, held=9e9, bandwidth=8e11, storage=7e9)
    missed = 1.8 * (1 - 32 / 78)
    assert ds.miss.sel(replacement="mru").item() == pytest.approx(missed / 10.8, rel=1e-3)


def test_faults_are_slower_than_streams():
    assert 1e9 < fault_rate("7.4 GB/s") < 2.5e9 < fault_rate("7.4 GB/s", "1 MiB") < 7.4e9
    assert fault_rate("Mac internal") < fault_rate("DGX Spark internal")


@pytest.mark.parametrize(
    ("given_", "says"),
    [(("3 GB/s", 0), "chunk"), (("3 GB/s", -1), "chunk"), ((0,), "disk"), (("floppy",), "floppy")],
)
def test_faults_of_no_disk_are_refused_in_words(given_, says):
    with pytest.raises(WorkbenchError, match=says):
        fault_rate(*given_)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"ratio": 0.5}, "ratio"),
        ({"ratio": float("nan")}, "ratio"),
        ({"storage": 0}, "storage"),
        ({"bandwidth": "fast"}, "bandwidth"),
        ({"memory": 0}, "memory"),
        ({"memory": 2.0**70}, "memory"),
        ({"working_set": -1}, "working_set"),
        ({"working_set": "2000 PB"}, "working_set"),
        ({"read": 90e9}, "cannot read more"),
        ({"read": 0}, "read"),
        ({"ratio": "dense"}, "ratio.*not a number"),
    ],
)
def test_nonsense_is_refused_in_words(change, says):
    good = {"working_set": 80e9, "memory": 32e9, "bandwidth": 1e11, "storage": 5e9}
    with pytest.raises(SpecError, match=says):
        pressure(**(good | change))
