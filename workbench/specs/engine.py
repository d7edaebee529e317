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

#: Families built with one of several backends, and the words that say which.
_SELECTABLE = ("llama.cpp", "llamafile", "ollama", "lm-studio")
_BACKENDS = {
    "vulkan": r"vulkan|radv|amdvlk",
    "rocm": r"rocm|rocwmma|(?<![a-z])hip",
    "sycl": r"sycl|one-?api|ipex",
    "opencl": r"opencl|clblast",
    "hexagon": r"hexagon|htp",
}
_CPU = re.compile(r"(?<![a-z])(cpu|(open)?blas|avx\w*)(?![a-z])")
_GPU = re.compile(r"cuda|metal|vulkan|rocm|hip|sycl|opencl|gpu")
_DATE = re.compile(
    r"\b(20[2-3]\d)[-/.](?:0?[1-9]|1[0-2])(?!\d)|"
    r"\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?,?\s+(?:\d{1,2},?\s+)?(20[2-3]\d)\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\bb(\d{4,5})\b|\((\d{4,5})\)|(?<![\w.])(\d{4,5})(?![\w.])")
_VERSION = re.compile(
    r"(?:^|\bversion(?: is)?:? |(?:\bmlx|\bmlx-lm|ollama|studio|llamafile|koboldcpp|exllamav2)[ =-])"
    r"v?(\d+(?:\.\d+)+)"
)


def families() -> list[str]:
    """Return the engine families that are known."""
    return list(dict.fromkeys(row["family"] for row in data.rows("engines.csv")))


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
    found = row[device_class]
    if row["family"] in _SELECTABLE and device_class not in ("cpu", "sbc"):
        text = engine.lower()
        found = next((name for name, word in _BACKENDS.items() if re.search(word, text)), found)
    if not found:
        raise SpecError(f"engine: {engine} does not run on a device of class {device_class}")
    return found


@functools.cache
def on_cpu(engine: str) -> bool:
    """Tell whether the name says that the CPU does all the work: 'llama.cpp-cpu', 'OpenBLAS'."""
    text = engine.lower()
    return bool(_CPU.search(text)) and not _GPU.search(text)


@functools.cache
def era(engine: str, build: str = "") -> str:
    """Return the year of kernels that a build has; an unknown or missing build counts as current.

    Args:
        engine: its family may fix the era (llamafile carries kernels of 2024).
        build: 'b6000', '081fe431 (3441)', '2024-05', 'Aug 2025', a version such as '0.5.7', a commit listed in
            datasets/builds.csv, or ''.
    """
    date = _commit(build) or year(build) or _numbered(engine, build) or _versioned(engine, build)
    return min(max((date or _row(engine)["era"] or ERAS[-1])[:4], ERAS[0]), ERAS[-1])


def year(text: str) -> str:
    """Return the latest year of the dates in a text ('2025-08-12', 'Oct-Nov 2023'), or ''."""
    return max((first or second for first, second in _DATE.findall(text)), default="")


def _commit(build: str) -> str:
    words = re.findall(r"\b[0-9a-f]{7,40}\b", build)
    commits = (row for row in data.rows("builds.csv") if row["kind"] == "commit")
    return next((r["date"] for r in commits if any(w.startswith(r["build"]) for w in words)), "")


def _numbered(engine: str, build: str) -> str:
    """Return the date of a build number of llama.cpp; forks count their own commits."""
    found = _NUMBER.search(build)
    if not found or family(engine) not in _SELECTABLE:
        return ""
    rows = [row for row in data.rows("builds.csv") if row["kind"] == "number"]
    number = int(found[1] or found[2] or found[3])
    return max(row["date"] for row in rows if int(row["build"]) <= number)


def _versioned(engine: str, build: str) -> str:
    """Return the date of a release such as '0.5.7', by the engine's own numbering."""
    found = _VERSION.search(build.strip().lower())
    if not found:
        return ""
    name = re.sub(r"\s+", "-", engine.strip().lower())
    rows = [r for r in data.rows("builds.csv") if re.fullmatch(r["kind"], name)]
    older = [row["date"] for row in rows if _parts(row["build"]) <= _parts(found[1])]
    return max(older, default=min((row["date"] for row in rows), default=""))


def _parts(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


@functools.cache
def _row(engine: str) -> dict:
    if not isinstance(engine, str) or not engine.strip():
        raise SpecError(f"engine: {engine!r} is not a name; known are {', '.join(families())}")
    text = engine.strip().lower()
    for row in data.rows("engines.csv"):
        if re.search(row["pattern"], text):
            return row
    raise UnknownNameError("engine", engine, families())
