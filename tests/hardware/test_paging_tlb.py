"""TLB reach and page walks: mechanism M14, its points and what was once measured."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import SpecError, UnknownNameError
from workbench.hardware.paging import recorded
from workbench.hardware.paging_tlb import longest_walk, lru_hits, mmus, nearest, translation

MIB, GIB = 2**20, 2**30
HUGE = 2 * MIB


@pytest.mark.parametrize(
    ("cpu", "page", "first", "second"),
    [("Apple M1", 2**14, 2.5 * MIB, 48 * MIB), ("AMD Zen 2", 4096, 0.25 * MIB, 8 * MIB),
     ("AMD Zen 2", HUGE, 128 * MIB, 4 * GIB)],
)  # fmt: skip
def test_reach_is_entries_times_page(cpu, page, first, second):
    """M14: 160 / 3072 x 16 KiB, 64 / 2048 x 4 KiB, 2048 x 2 MiB."""
    ds = translation([first, second, 2 * second], page, cpu)
    assert ds.reach_bytes.values.tolist() == [second] * 3
    assert ds.l1_miss_rate[0] == 0 and ds.miss_rate[1] == 0
    assert ds.miss_rate[2].item() == pytest.approx(0.5)


def test_a_stream_misses_once_a_page():
    """M14: with lines of 128 bytes 3.1 % at 4 KiB and 0.78 % at 16 KiB."""
    ds = translation(GIB, [4096, 2**14], "Apple M1", pattern="streaming")
    np.testing.assert_allclose(ds.miss_rate, [0.031, 0.0078], rtol=0.01)
    assert "latency_s" not in ds


@pytest.mark.parametrize("size", [64 * MIB, GIB])
def test_what_small_pages_add_is_as_once_recorded(size):
    """M14: 46-120 against 25-66 ns in 64 MiB, 460-650 against 330-520 ns in 1 GiB.

    Measured once on a loaded virtual machine, so that an order of magnitude is all that counts.
    """
    small, huge = (recorded(f"latency_{page}_{size}") for page in (4096, HUGE))
    low, high = (a - b for a, b in zip(small, huge, strict=True))
    ds = translation(size, [4096, HUGE], "Xeon in a busy VM", host_page=4096)
    added = ds.latency_s[0].item() - ds.latency_s[1].item()
    assert low / 10 < added < high * 10
    assert ds.latency_s[0] > ds.latency_s[1]


def test_a_cache_that_forgets_the_least_recent():
    """Che's approximation against a simulated cache of 64 lines and two kinds of lines."""
    rng, lines, rates = np.random.default_rng(0), np.array([400, 40]), np.array([1.0, 0.5])
    hits = _simulated(rng, 64, lines, rates, 40_000)
    np.testing.assert_allclose(lru_hits(64.0, lines * 1.0, rates), hits, atol=0.02)


def _simulated(rng, capacity, lines, rates, steps):
    from collections import OrderedDict

    held, found, asked = OrderedDict(), np.zeros(2), np.zeros(2)
    for kind in rng.choice(2, steps, p=rates / rates.sum()):
        line = (kind, int(rng.integers(lines[kind])))
        asked[kind] += 1
        found[kind] += line in held
        held[line] = held.pop(line, None)
        if len(held) > capacity:
            held.popitem(last=False)
    return found / asked


@settings(max_examples=25)
@given(
    st.sampled_from(sorted(mmus())), st.floats(2**13, 2**45), st.sampled_from([4096, 2**14, 2**16]),
    st.sampled_from([None, 4096, HUGE]),
)  # fmt: skip
def test_larger_pages_never_add_more(cpu, size, page, host):
    ds = translation(size, [page, HUGE], cpu, host_page=host)
    assert (ds.miss_rate >= 0).all() and (ds.miss_rate <= 1).all()
    assert ds.added_s[1] <= ds.added_s[0] * (1 + 1e-9) + 2.5e-9  # an L1 has fewer huge entries
    assert (ds.latency_s >= ds.added_s).all() and (
        ds.added_s < longest_walk(cpu, virtual=True)
    ).all()


def test_a_virtual_machine_walks_two_tables():
    """Splintered to the host's 4 KiB, a huge page reaches no farther than a small one."""
    ds = translation(GIB, [4096, HUGE], "Intel Golden Cove", host_page=4096)
    bare = translation(GIB, [4096, HUGE], "Intel Golden Cove")
    assert ds.reach_bytes[0] == ds.reach_bytes[1] == bare.reach_bytes[0]
    assert (ds.added_s > bare.added_s).all()


def test_a_walk_is_bounded():
    """C24: 4 steps, or (4 + 1)^2 - 1 = 24 under a hypervisor: microseconds, never a timeout."""
    ratio = longest_walk("Intel Skylake", virtual=True) / longest_walk("Intel Skylake")
    assert ratio == 6
    assert longest_walk("Intel Skylake", virtual=True) < 5e-6


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"working_set": 0}, "working_set: 0 must be above 0"),
        ({"working_set": 2.0**70}, "working_set"),
        ({"page_size": 3 * MIB}, "no power of two; give 2 MiB or 4 MiB"),
        ({"host_page": 5000}, "host_page"),
        ({"pattern": "zigzag"}, "random, streaming"),
    ],
)
def test_questions_without_meaning(wrong, message):
    with pytest.raises(SpecError, match=message):
        translation(**{"working_set": GIB, **wrong})


def test_a_cpu_that_nobody_knows():
    with pytest.raises(UnknownNameError, match="AMD Zen 2"):
        translation(GIB, cpu="AMD Zen2")
    with pytest.raises(UnknownNameError, match="known are AMD Zen 2, "):
        translation(GIB, cpu="my own")


@pytest.mark.parametrize(
    ("name", "cpu"),
    [("AMD EPYC 7742 64-Core Processor", "AMD Zen 2"), ("AMD EPYC 9654 96-Core Processor", "AMD Zen 4"),
     ("Intel(R) Xeon(R) Platinum 8180 CPU @ 2.50GHz", "Intel Skylake"), ("Apple M4 Pro", "Apple M1"),
     ("12th Gen Intel(R) Core(TM) i9-12900K", "Intel Golden Cove"), ("no such thing", "AMD Zen 2")],
)  # fmt: skip
def test_the_nearest_cpu_is_of_the_same_maker(name, cpu):
    assert nearest(name) == cpu
