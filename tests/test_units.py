"""Quantities as people write them become SI numbers; anything else is refused, and nothing is worked out."""

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import SpecError
from workbench.units import GB, GiB, human_bytes, parse


@pytest.mark.parametrize(
    "text, unit, value",
    [
        ("1.2 TB/s", "byte/second", 1.2e12),
        ("1.2TB/s", "byte/second", 1.2e12),
        ("273 GB per second", "byte/second", 273e9),
        ("8 Gbit/s", "byte/second", 1e9),
        ("32 GiB", "byte", 32 * 1024**3),
        ("32 GB", "byte", 32 * 1000**3),
        ("512 KiB", "byte", 512 * 1024),
        ("1e3 B", "byte", 1000),
        ("85 ms", "second", 0.085),
        ("2 minutes", "second", 120),
        ("82.6 TFLOP/s", "FLOP/second", 82.6e12),
        ("38 TOPS", "FLOP/second", 38e12),
        ("2.5 GHz", "hertz", 2.5e9),
        ("60 W", "watt", 60),
        ("11.7 tok/s", "token/second", 11.7),
        ("4096", "byte", 4096),
        (4096, "byte", 4096),
    ],
)
def test_text_becomes_si(text, unit, value):
    assert parse(text, unit, "field") == pytest.approx(value, rel=1e-15)


def test_gb_and_gib_differ_by_what_the_standard_says():
    """IEC 80000-13: Gi is 2^30, G is 10^9: 7.4 % apart."""
    assert parse("1 GiB", "byte", "memory") == GiB == 1_073_741_824
    assert parse("1 GB", "byte", "memory") == GB == 1_000_000_000


@pytest.mark.parametrize(
    "text, unit",
    [
        ("32 GiB", "byte/second"),
        ("273 GB/s", "byte"),
        ("85 ms", "byte"),
        ("5 GHz", "byte/second"),
        ("80 TFLOP/s", "byte/second"),
        ("1 token", "byte"),
        ("60 W", "second"),
    ],
)
def test_another_dimension_is_refused(text, unit):
    with pytest.raises(SpecError, match=f"speed: .*is not a quantity in {unit}; write for example"):
        parse(text, unit, "speed")


@pytest.mark.parametrize(
    "text",
    ["2**99999", "1 9**9**9**9", "9**9**9**9 byte", "1 byte**99999999", "1 byte*9**9**9", "1 (byte)",
     "__import__('os').abort() byte", "1 __import__", "1 byte; 2", "1 byte 2", "lots", "", " ", "GiB", "1,5 GB",
     "3 GiB\x00", "1 " + "byte*" * 9999 + "byte", "1 " + "(" * 9999, "32 gigs"],
)  # fmt: skip
def test_what_is_no_quantity_is_refused_at_once(text):
    started = time.perf_counter()
    with pytest.raises(SpecError, match=r"memory: .* write for example '32 GiB'") as caught:
        parse(text, "byte", "memory")
    assert time.perf_counter() - started < 2
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "value", ["1e400", "1e400 GB", "nan", "inf", "-inf", math.nan, math.inf, -1, 0, "-3 GiB", "0 GiB"]
)  # fmt: skip
def test_numbers_that_no_machine_has(value):
    with pytest.raises(SpecError, match="memory: .*must be a finite number above 0, in byte"):
        parse(value, "byte", "memory")


def test_zero_is_allowed_where_asked_for_and_below_it_never():
    assert parse("0 ms", "second", "latency", positive=False) == 0
    with pytest.raises(SpecError, match="of at least 0"):
        parse(-1, "second", "latency", positive=False)


@pytest.mark.parametrize("value", [None, [], {}, object(), b"32 GiB"])
def test_other_types_are_refused(value):
    with pytest.raises(SpecError, match="memory: "):
        parse(value, "byte", "memory")


@given(st.text(max_size=200))
def test_any_text_gives_a_positive_number_or_a_spec_error(text):
    try:
        assert 0 < parse(text, "byte", "memory") < math.inf
    except SpecError as err:
        assert "memory" in str(err)


@given(st.floats(1e-6, 1e6), st.sampled_from(["B", "kB", "KiB", "MB", "MiB", "GB", "GiB", "TiB"]))
def test_a_unit_only_scales(number, unit):
    one = parse(f"1 {unit}", "byte", "memory")
    assert parse(f"{number!r} {unit}", "byte", "memory") == pytest.approx(number * one)


@pytest.mark.parametrize(
    "count, text",
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1.5 * 2**20, "1.5 MiB"), (32 * GiB, "32 GiB"),
     (-2 * GiB, "-2 GiB")],
)  # fmt: skip
def test_bytes_as_people_read_them(count, text):
    assert human_bytes(count) == text
