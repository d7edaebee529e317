"""Where the facts are: datasets/ beside the package in a checkout, inside the package when installed."""

import csv
import functools
import json
from pathlib import Path

_PACKAGE = Path(__file__).parent


def path(name: str) -> Path:
    """Return the path of the dataset file or folder `name`."""
    inside = _PACKAGE / "datasets" / name
    return inside if inside.exists() else _PACKAGE.parent / "datasets" / name


@functools.cache
def rows(name: str) -> tuple[dict[str, str], ...]:
    """Return the rows of the CSV dataset `name` as dicts of text."""
    with path(name).open(newline="", encoding="utf-8") as file:
        return tuple(csv.DictReader(file))


@functools.cache
def document(name: str):
    """Return the parsed JSON dataset `name`."""
    return json.loads(path(name).read_text(encoding="utf-8"))


@functools.cache
def rule(name: str) -> float:
    """Return the number of a rule in capacity.csv, in the unit stated there."""
    return next(float(row["value"]) for row in rows("capacity.csv") if row["rule"] == name)


def slug(name: str) -> str:
    """Return the preset name of a canonical name: 'Apple M4 Pro 20-core GPU' -> 'apple-m4-pro-20-core-gpu'."""
    text = name.rsplit("/", 1)[-1].lower()
    return "-".join(
        part for part in "".join(c if c.isalnum() or c == "." else " " for c in text).split()
    )
