"""The cells of a measured row as numbers: '1,234.5', '52.3 ± 0.4', '4k', '8+8', '4.58 GiB', '1008 GB/s'."""

import math
import re

from workbench.errors import SpecError
from workbench.hardware.ledger import UBATCH
from workbench.specs.workload import KV_TYPES
from workbench.units import GB, GiB

_BLANK = ("", "nan", "none", "null", "na", "n/a", "-", "--", "?", "unknown", "not stated")
_FIGURE = re.compile(
    r"(?:[~≈<>=\s]|pp|tg|ctx|d(?=\d))*(-?[\d.,' _]*\d\.?(?:e[+-]?\d+)?)\s*([a-z][a-z/. ]*)?", re.I
)
_BYTES = re.compile(r"([kmgt]?)(i?)b?(?:ytes?)?(?:/s(?:ec)?|ps)?", re.IGNORECASE)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_PARAMS = {"": 1e9, "b": 1e9, "m": 1e6, "t": 1e12}
_MOST_TOKENS = 1e8
_SWITCH = {
    **dict.fromkeys(("1", "1.0", "on", "yes", "true", "enabled", "fa"), "on"),
    **dict.fromkeys(("0", "0.0", "off", "no", "false", "disabled"), "off"),
}


def text(row: dict, field: str) -> str:
    """Return a cell without surrounding spaces; '' where it is missing or says that nothing is known."""
    value = row.get(field)
    found = "" if value is None else str(value).strip()
    return "" if found.lower() in _BLANK else found


def number(row: dict, field: str) -> float:
    """Return a number that a prediction or its verdict rests on, NaN where the cell is blank.

    Raises:
        SpecError: the cell holds something else than a number of at least 0.
    """
    stated = text(row, field)
    if not stated:
        return math.nan
    value = optional(row, field)
    if not value >= 0:
        raise SpecError(f"{where(row, field)} = {stated[:40]!r} is not a number of at least 0")
    return value


def optional(row: dict, field: str) -> float:
    """Return a number that only refines a prediction, NaN where the cell holds none."""
    value, unit = quantity(text(row, field))
    if unit[:1].lower() == "k":  # 4k of tokens are 4096, 1.2k tokens a second are 1200
        value *= 1024 if field.endswith("_tokens") else 1000
    return value


def tokens(row: dict, field: str) -> float:
    """Return a count of tokens, NaN where the cell is blank.

    Raises:
        SpecError: as `number`, or there are more tokens than any machine remembers.
    """
    value = number(row, field)
    if value > _MOST_TOKENS:
        raise SpecError(f"{where(row, field)} = {value:g} tokens; no context is that long")
    return value


def where(row: dict, field: str) -> str:
    """Return the words that name a cell in an error."""
    return f"row {text(row, 'id')[:40] or '?'}: {field}"


def quantity(stated: str) -> tuple[float, str]:
    """Return the number that a text begins with and the unit behind it; NaN where it begins otherwise."""
    head = re.split(r"±|\+/-|\+-|\(", stated)[0].strip()
    if re.fullmatch(r"\d{1,3}(\s*\+\s*\d{1,3})+", head):  # 8+8 cores
        return float(sum(int(part) for part in head.split("+"))), ""
    found = _FIGURE.fullmatch(head)
    if not found:
        return math.nan, ""
    grouped = re.sub(r"(?<=\d)[,' _](?=\d{3}(?!\d))", "", found[1])
    try:
        value = float(grouped.replace(",", "."))
    except ValueError:
        return math.nan, ""
    return (value if math.isfinite(value) else math.nan), (found[2] or "").strip()


def bandwidth(row: dict) -> float:
    """Return the memory bandwidth that a row states, B/s; NaN where it states none that a machine could have."""
    value, unit = quantity(text(row, "mem_bandwidth_GBps"))
    value *= _factor(unit) if unit else GB
    return value if 1e8 <= value <= 1e14 else math.nan


def size(row: dict) -> float:
    """Return the bytes of the model's file, NaN where not stated; a plain number is GiB, a large one MiB or bytes."""
    value, unit = quantity(text(row, "model_size_bytes_or_GiB"))
    if unit:
        value *= _factor(unit) if "b" in unit.lower() else _factor(unit + "ib")
    else:
        value *= 1.0 if value > 1e6 else 2.0**20 if value > 4096 else GiB
    return value if 1e6 <= value <= 1e14 else math.nan


def params(row: dict) -> float:
    """Return the parameters that a row states, NaN where none; a plain number is billions, a large one parameters."""
    value, unit = quantity(text(row, "params_B"))
    value *= 1.0 if value > 1e6 else _PARAMS.get(unit[:1].lower(), math.nan)
    return value if 1e6 <= value <= 1e14 else math.nan


def kv_bits(row: dict) -> float:
    """Return the bits of a KV element; the mean where keys and values differ ('q8_0/q4_0').

    Raises:
        SpecError: the cell names no type and no number of bits.
    """
    stated = text(row, "kv_type").lower()
    parts = [part for part in re.split(r"[\s/,;:=|+&]+", stated) if part not in ("", "k", "v")]
    if not parts or stated in ("auto", "default"):
        return KV_TYPES["f16"]
    bits = [_kv_type(part) for part in parts]
    if not all(bits):
        raise SpecError(
            f"{where(row, 'kv_type')} = {stated[:40]!r} is none of {', '.join(KV_TYPES)}"
        )
    return sum(bits) / len(bits)


def flash(row: dict) -> str:
    """Return whether flash attention was "on" or "off", or "" where the row does not say."""
    if "no FA" in text(row, "note"):
        return "off"
    return _SWITCH.get(text(row, "flash_attn").lower(), "")


def library(row: dict) -> str:
    """Return the matrix library or driver that the note names, or ""."""
    note = text(row, "note").lower()
    return next((name for name in ("hipblaslt", "rocwmma", "amdvlk", "radv") if name in note), "")


def ubatch(row: dict) -> float:
    """Return the tokens of one prefill pass: stated, else llama.cpp's default."""
    stated = optional(row, "ubatch")
    return UBATCH if math.isnan(stated) or stated < 16 else stated


def _kv_type(name: str) -> float:
    """Return the bits of one type, 0 where unknown; integer types store a 16-bit scale per 32 elements."""
    found = re.fullmatch(r"([a-z]*?)-?(\d{1,2})(?:[-_]?\w*)?", name)
    if name in KV_TYPES or not found or not 1 <= int(found[2]) <= 32:
        return KV_TYPES.get(name, 0.0)
    plain = int(found[2]) >= 16 or found[1] in ("int", "fp", "f", "bf", "float")
    return int(found[2]) + (0.0 if plain else 0.5)


def _factor(unit: str) -> float:
    found = _BYTES.fullmatch(unit.replace(" ", ""))
    return float((1024 if found[2] else 1000) ** _POWER[found[1].lower()]) if found else math.nan
