"""Quantities with units at the edge, SI numbers inside: '32 GiB' -> bytes, '1.2 TB/s' -> B/s, '85 ms' -> s."""

import functools
import math
import re

from workbench.errors import SpecError

GB = 1e9
GiB = 2**30

_QUANTITY = re.compile(
    r"([+-]?[\d.]+(?:e[+-]?\d+)?)\s*([a-zµ]{1,20}(?:(?:\s?/\s?|\sper\s)[a-z]{1,20})?)",
    re.IGNORECASE,
)


#: All the units there are: pint's own thousand make a bit a plain number, so that hertz would pass for bytes.
_UNITS = """
kibi- = 2**10 = Ki- = ki-
mebi- = 2**20 = Mi-
gibi- = 2**30 = Gi-
tebi- = 2**40 = Ti-
nano- = 1e-9 = n-
micro- = 1e-6 = µ- = u-
milli- = 1e-3 = m-
kilo- = 1e3 = k- = K-
mega- = 1e6 = M-
giga- = 1e9 = G-
tera- = 1e12 = T-
peta- = 1e15 = P-
bit = [information]
byte = 8 * bit = B
second = [time] = s
minute = 60 * second = min
hour = 60 * minute = h
hertz = 1 / second = Hz
watt = [power] = W
token = [token] = _ = tok
FLOP = [operation]
FLOPS = FLOP / second
OPS = FLOP / second
"""


@functools.cache
def registry():
    """Return the pint registry of these units, built on first use."""
    import pint

    return pint.UnitRegistry(_UNITS.strip().splitlines())


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
    import pint

    # A number and a unit is all the edge accepts: pint would work out "9**9**9**9" until the end of time.
    found = _QUANTITY.fullmatch(text.strip())
    try:
        if not found:
            raise ValueError("not one number and one unit")
        units = registry().parse_units(found[2])
        return float(registry().Quantity(float(found[1]), units).to(unit).magnitude)
    except (pint.PintError, ValueError, AttributeError, AssertionError):
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
