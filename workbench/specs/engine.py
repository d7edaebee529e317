"""Inference engines: which family an engine belongs to, which backend it runs on a machine, and how old a build is."""

import functools
import re

from workbench import data
from workbench.errors import SpecError, UnknownNameError

#: Engines whose rows make up the scoreboard; the others are predicted and reported apart.
SCORED = (
    "llama.cpp",
    "ik_llama.cpp",
    "llamafile",
    "ollama",
    "lm-studio",
    "mlx",
    "exllama",
    "gpt-fast",
)
ERAS = ("2023", "2024", "2025", "2026")


def families() -> list[str]:
    """Return the engine families that are known."""
    return [row["family"] for row in data.rows("engines.csv")]


@functools.cache
def family(engine: str) -> str:
    """Return the family of an engine as people spell it: 'llama.cpp-cuda' -> 'llama.cpp', 'mlx-lm' -> 'mlx'.

    Raises:
        UnknownNameError: no family has such a name.
    """
    return _row(engine)["family"]


@functools.cache
def backend(engine: str, device_class: str) -> str:
    """Return the kernels that do the work: 'cuda', 'metal', 'vulkan', 'cpu' ...; the unit that calibration pools.

    A backend named in the engine ("llama.cpp-vulkan") wins over the usual one for the class of device.

    Raises:
        SpecError: the engine does not run on such a device.
    """
    row = _row(engine)
    text = engine.lower()
    if device_class in ("cpu", "sbc"):
        found = row[device_class]
    else:
        named = [b for b in ("vulkan", "rocm", "sycl", "opencl", "hexagon") if b in text]
        found = (
            named[0] if named and row["family"] in ("llama.cpp", "ollama") else row[device_class]
        )
    if not found:
        raise SpecError(f"engine: {engine} does not run on a device of class {device_class}")
    return found


@functools.cache
def era(engine: str, build: str = "") -> str:
    """Return the year of kernels that a build has; an unknown or missing build counts as current.

    Args:
        engine: its family may fix the era (llamafile carries kernels of 2024).
        build: 'b6000', '081fe431 (3441)', '2024-05', a commit listed in datasets/builds.csv, or ''.
    """
    text = build.strip()
    for row in data.rows("builds.csv"):
        if row["kind"] == "commit" and text.startswith(row["build"]):
            return row["date"][:4]
    if re.match(r"20[2-3]\d", text):
        return min(max(text[:4], ERAS[0]), ERAS[-1])
    if row_era := _row(engine)["era"]:
        return row_era
    number = re.search(r"(?:^b|\(|^)(\d{4,5})(?:\)|\b)", text)
    if number and family(engine) == "llama.cpp":
        older = [
            r["date"]
            for r in data.rows("builds.csv")
            if r["kind"] == "number" and int(r["build"]) <= int(number[1])
        ]
        return max(older)[:4] if older else ERAS[0]
    return ERAS[-1]


def _row(engine: str) -> dict:
    if not isinstance(engine, str) or not engine.strip():
        raise SpecError(f"engine: {engine!r} is not a name; known are {', '.join(families())}")
    text = engine.strip().lower()
    for row in data.rows("engines.csv"):
        if re.match(row["pattern"], text):
            return row
    raise UnknownNameError("engine", engine, families())
