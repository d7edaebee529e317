"""A cache on the disk: read at every token, or restored once (M28)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import SpecError
from workbench.hardware.storage_offload import offload, restore


def test_prefix_of_ds4():
    """ds4 README: 13.76 kB a token at 2.1 GB/s is 6.6 us, computed at 410 tok/s 2.4 ms: 370 times."""
    ds = restore(1, 13_764, "2.1 GB/s", 410)
    assert ds.restore_s.item() == pytest.approx(6.6e-6, rel=0.01)
    assert ds.recompute_s.item() == pytest.approx(2.4e-3, rel=0.02)
    assert ds.restore_gain.item() == pytest.approx(370, rel=0.01)


def test_read_again_at_every_token():
    """7.2 GB at 2.1 GB/s: 3.4 s a token."""
    assert offload("7.2 GB", 0, "2.1 GB/s").tpot_s.item() == pytest.approx(3.4, abs=0.05)
    assert offload("7.2 GB", 1, "2.1 GB/s", "20 ms").tpot_s.item() == 0.02


@settings(max_examples=25)
@given(st.floats(1e8, 1e11), st.floats(1, 1e5), st.floats(1, 1e7))
def test_break_even_is_where_both_take_as_long(bandwidth, speed, tokens):
    even = restore(tokens, 1.0, bandwidth, speed).breakeven_bytes.item()
    assert restore(tokens, even, bandwidth, speed).restore_gain.item() == pytest.approx(1)
    assert restore(tokens, even / 2, bandwidth, speed).restore_gain.item() == pytest.approx(2)


def test_shares_make_a_dimension_and_fall_in_a_straight_line():
    ds = offload("1 GB", [0.0, 0.5, 1.0], "1 GB/s", 0.1)
    assert ds.tpot_s.dims == ("resident",)
    assert ds.tpot_s.values.tolist() == pytest.approx([1.1, 0.6, 0.1])
    assert (ds.decode_tok_s * ds.tpot_s).values.tolist() == pytest.approx([1, 1, 1])


@pytest.mark.parametrize("resident", [-0.1, 1.1, float("nan"), [0.5, 2.0]])
def test_a_share_is_from_0_to_1(resident):
    with pytest.raises(SpecError, match="resident: .* from 0"):
        offload(1e9, resident, 1e9)


@pytest.mark.parametrize(
    "call",
    [
        lambda: offload(2**70, 0.5, 1e9),
        lambda: offload(1e9, 0.5, 0),
        lambda: offload(1e9, 0.5, 1e9, -1),
        lambda: restore(0, 1e4, 1e9, 100),
        lambda: restore(10, 2**70, 1e9, 100),
        lambda: restore(10, 1e4, 1e9, 0),
    ],
)
def test_bad_input(call):
    with pytest.raises(SpecError):
        call()
