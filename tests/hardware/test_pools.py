"""A pool's operations in every order (M21)."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import SpecError
from workbench.hardware.pools import FREE, MOVABLE, OPERATIONS, PAGES, PINNED, Pool, orderings

names = st.sampled_from(list(OPERATIONS))


def test_order_decides():
    """M21 [Check]: create, defrag, load succeeds; create, load, defrag does not."""
    ds = orderings(
        "24 GB", "10 GB", order=[["create", "defrag", "load"], ["create", "load", "defrag"]]
    )
    assert list(ds.feasible) == [True, False]
    assert "device uses" in ds.outcome.values[1, 2]


def test_of_all_orders_only_those_that_move_before_they_pin():
    ds = orderings("24 GB", "20 GB")
    assert ds.sizes["ordering"] == 24
    good = [name for name, ok in zip(ds.ordering.values, ds.feasible.values, strict=True) if ok]
    assert good == ["create, flush, defrag, load"]  # 20 of 24 GB need the cache's pages, too
    half = orderings("24 GB", "10 GB")
    for operations, ok in zip(
        half.operation_name.values.tolist(), half.feasible.values, strict=True
    ):
        at = operations.index
        assert ok == (at("create") < at("defrag") < at("load"))


@settings(max_examples=60)
@given(st.lists(names, max_size=8), st.floats(0, 1), st.floats(0, 1), st.integers(1, PAGES))
def test_any_sequence_keeps_the_pages(sequence, used, cached, load):
    pool = Pool(used, cached, load)
    for name in sequence:
        before = pool.pages.copy()
        outcome = OPERATIONS[name](pool)
        was, now = (np.bincount(pages, minlength=3) for pages in (before, pool.pages))
        assert now.sum() == PAGES
        assert (pool.pages[before == PINNED] == PINNED).all()  # whatever happens, under DMA
        if outcome.startswith(("refused", "nothing", "created")):
            assert (before == pool.pages).all()
        elif name == "flush":
            assert now[FREE] > was[FREE] and now[PINNED] == was[PINNED]
        elif name == "defrag":
            assert (now == was).all() and pool.largest == now[FREE]
        elif name == "load":
            assert now[PINNED] - was[PINNED] == load and now[MOVABLE] == was[MOVABLE]
            assert (pool.pieces == 1) == (outcome == "loaded in one piece")


@settings(max_examples=30)
@given(st.lists(names, max_size=6))
def test_nothing_happens_without_a_pool(sequence):
    pool = Pool(0.5, 0.5, 100)
    for name in itertools.takewhile(lambda name: name != "create", sequence):
        assert OPERATIONS[name](pool) == "refused: no pool"


def test_nonsense_is_refused_in_words():
    with pytest.raises(SpecError, match="more than the pool"):
        orderings("1 GB", "2 GB")
    with pytest.raises(SpecError, match="'defragment' is no operation.*create, flush, defrag"):
        orderings("2 GB", "1 GB", order=[["defragment"]])
    for order in ("create", [1], 1, ["create", "load"]):
        with pytest.raises(SpecError, match="order.*such as"):
            orderings("2 GB", "1 GB", order=order)
    with pytest.raises(SpecError, match="seed.*whole number"):
        orderings("2 GB", "1 GB", seed=-1)
    with pytest.raises(SpecError, match="utilisation: give one"):
        orderings("2 GB", "1 GB", utilisation=[0.1, 0.2])
    with pytest.raises(SpecError, match="same length"):
        orderings("2 GB", "1 GB", order=[["create"], ["create", "load"]])
    with pytest.raises(SpecError, match="order"):
        orderings("2 GB", "1 GB", order=[])
    with pytest.raises(SpecError, match="utilisation"):
        orderings("2 GB", "1 GB", utilisation=2.0)
    with pytest.raises(SpecError, match="no machine"):
        orderings(2**70, "1 GB")
