"""Quantities with units at the edge, SI numbers inside: '32 GiB' -> bytes, '1.2 TB/s' -> B/s, '85 ms' -> s."""

import functools
import math

from workbench.errors import SpecError

GB = 1e9
GiB = 2**30


@functools.cache
def registry():
    """Return the pint registry, built on first use because that takes a quarter of a second."""
    import pint

    ureg = pint.UnitRegistry()
    ureg.define("token = [token]")
    ureg.define("FLOP = []")
    return ureg


def parse(value: float | str, unit: str, field: str, *, positive: bool = True) -> float:
    """Return `value` as a float in `unit`; plain numbers are taken to be in `unit` already.

    Args:
        value: a number in `unit`, or text such as "32 GiB", "1.2 TB/s", "85 ms".
        unit: the pint spelling of the SI unit wanted: "byte", "byte/second", "second", "watt".
        field: the name to use in the error.
        positive: refuse zero and negative values.

    Raises:
        SpecError: the text does not parse, has another dimension, or is not finite (or not positive).
    """
    if isinstance(value, str):
        value = _from_text(value, unit, field)
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise SpecError(
            f"{field}: {value!r} is not a number; give {unit} or text such as {_example(unit)!r}"
        ) from None
    if not math.isfinite(number) or (positive and number <= 0) or number < 0:
        raise SpecError(
            f"{field}: {number} must be a finite number {'above' if positive else 'of at least'} 0, in {unit}"
        )
    return number


def _from_text(text: str, unit: str, field: str) -> float:
    try:
        return float(text)
    except ValueError:
        pass
    import tokenize

    import pint

    try:
        # pint.Quantity would evaluate arithmetic; one number and one unit is all the edge accepts.
        number, _, spelled = text.strip().partition(" ")
        if not spelled:
            cut = next((i for i, c in enumerate(text) if c.isalpha()), len(text))
            number, spelled = text[:cut], text[cut:]
        return (
            float(number) * registry().parse_units(spelled.strip().replace("tok/", "token/"))
        ).m_as(unit)
    except (
        pint.PintError,
        ValueError,
        TypeError,
        AttributeError,
        tokenize.TokenError,
        AssertionError,
    ):
        raise SpecError(
            f"{field}: {text[:60]!r} is not a quantity in {unit}; write for example {_example(unit)!r}"
        ) from None


def _example(unit: str) -> str:
    return {"byte": "32 GiB", "byte/second": "273 GB/s", "second": "85 ms", "watt": "60 W"}.get(
        unit, f"1 {unit}"
    )


def human_bytes(count: float) -> str:
    """Return bytes as GiB, MiB or KiB with three significant digits."""
    for size, name in ((GiB, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if abs(count) >= size:
            return f"{count / size:.3g} {name}"
    return f"{count:.0f} B"
