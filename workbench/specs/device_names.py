"""Which catalogue row a spelling means: never a Ti for its plain card, never a Max for its Pro."""

import functools
import math
import re
import statistics
from difflib import get_close_matches

from workbench import data
from workbench.errors import SpecError, UnknownNameError
from workbench.units import GB, GiB

#: Words that vendors and people add or drop without meaning another product.
# fmt: off
_NEUTRAL = frozenset({
    "nvidia", "geforce", "rtx", "gtx", "tesla", "amd", "radeon", "rx", "instinct", "apple",
    "silicon", "intel", "arc", "core", "qualcomm", "gpu", "graphics", "processor", "desktop",
    "workstation", "edition", "generation", "gen", "with", "w", "the", "hbm2", "hbm2e",
    "hbm3", "hbm3e",
})
# fmt: on
#: Words that may be missing on one side, but must agree where both sides have one of the kind.
_OPTIONAL = (re.compile(r"[\d.]+gb"), re.compile(r"\d+core"), re.compile(r"pcie|sxm"))
_NOISE = re.compile(r"\d+th|[\d.]+ghz")
#: A core count of the processor beside the graphics, which names no variant.
_CPU_CORES = re.compile(r"\d+[\s-]?core cpu\b|\b\d+ cpu[\s-]cores?\b", re.IGNORECASE)
#: What the chip sits in.
_CASE = re.compile(
    r"\b(macbook (pro|air)|mac (studio|mini|pro)|macbook|imac|framework (desktop|mainboard|1[36])"
    r"|gmktec|evo-x\d|beelink|gtr9 pro|asus|rog (ally x?|flow z13)|ascent|lenovo|hp|dell|msi|claw"
    r"|acer|minisforum|geekom|zbook ultra|z2 mini|laptop with|mini ?pc|desktop|server"
    r"|founders edition|gaming( x)?|oc|oled|lcd|model b"
    r"|zotac|evga|palit|gigabyte|pny|sapphire|powercolor|1[3-6]([.,]\d)?[- ]?inch|20[12]\d)\b|1x ",
    re.IGNORECASE,
)
#: Words in brackets that make another product of the name before them.
_SUFFIX = re.compile(
    r"(?<![a-z])(ti|super|xt|xtx|gre|laptop|mobile|max-?q|cpu|ane|npu)(?![a-z])", re.IGNORECASE
)


def slug(name: str) -> str:
    """Return the preset name of a machine ("/" stands between two products, not for an owner)."""
    return data.slug(name.replace("/", " "))


def find(
    name: str,
    device_class: str | None = None,
    bandwidth: float | None = None,
    cores: float | None = None,
) -> dict[str, str] | None:
    """Return the row of datasets/devices.csv that `name` means, or None.

    A canonical name or slug wins, then an alias, then the rows of the same product; of several
    variants the one that `device_class`, `bandwidth` (B/s) and `cores` point to, else the one with
    most cores.

    Raises:
        SpecError: the name is not text.
    """
    if not isinstance(name, str) or not name.strip():
        raise SpecError(f"device: {name!r} is not a name; see devices() for the known ones")
    name = name[:200]
    found = _find(name, device_class, bandwidth, cores)
    if found is not None and device_class in (None, "", found["device_class"]):
        return found
    for reading in (name, *_readings(name)):
        other = _find(reading, device_class, bandwidth, cores) if reading != name else None
        other = other or _best(_chips(reading), device_class, bandwidth, cores)
        if other is not None and device_class in (None, "", other["device_class"]):
            return other
    return found


def _find(
    name: str, device_class: str | None, bandwidth: float | None, cores: float | None
) -> dict[str, str] | None:
    rows, aliases, products, _ = _index()
    exact = rows.get(slug(name)) or aliases.get(_key(name))
    if exact is not None and (
        device_class != "cpu" or exact["device_class"] == "cpu" or exact["device"] == name
    ):
        return exact
    return _best(_variants(name, device_class, products), device_class, bandwidth, cores) or exact


def stated_memory(name: str) -> float | None:
    """Return the bytes that the name states ("Apple M3 Ultra (256GB)"), else None."""
    sizes = [float(token[:-2]) for token in _tokens(name[:200]) if _OPTIONAL[0].fullmatch(token)]
    return sizes[0] * GiB if len(sizes) == 1 else None


def unknown(name: str) -> UnknownNameError:
    """Return the error for a name that no row fits; it suggests names that `find` accepts."""
    text = slug(str(name)[:80]) or str(name)[:80]
    slugs = [slug(row["device"]) for row in data.rows("devices.csv")]
    return UnknownNameError("device", text, short_names() if _near_any(text) else slugs)


def _near_any(text: str) -> bool:
    return bool(get_close_matches(text, short_names(), n=1, cutoff=0.5))


@functools.cache
def short_names() -> list[str]:
    """Return every slug without vendor and core count: "rtx-4090", "apple-m4-pro"."""
    vendor = re.compile(r"^((nvidia|geforce|amd|radeon|intel|qualcomm)-)+|-\d+-core-gpu$")
    return sorted({vendor.sub("", slug(row["device"])) for row in data.rows("devices.csv")})


def infer_generation(name: str, device_class: str) -> str:
    """Return the generation that the name tells; the class itself is the pool of last resort."""
    for row in data.rows("device_generations.csv"):
        if row["device_class"] == device_class and re.search(
            row["name_pattern"], name[:200], re.IGNORECASE
        ):
            return row["generation"]
    return device_class


def infer_class(text: str) -> str:
    """Return the class of machine that a name, or words around it, tell; '' where nothing does."""
    rows = data.rows("device_classes.csv")
    return next(
        (r["device_class"] for r in rows if re.search(r["pattern"], text[:300], re.IGNORECASE)), ""
    )


def usual_bandwidth(name: str, device_class: str, cores: float | None = None) -> float:
    """Return the bandwidth (B/s) that the median machine of the name's generation, else class, would have,
    scaled by `cores` where they are known."""
    generation = infer_generation(name, device_class)
    rows = [row for row in data.rows("devices.csv") if row["mem_bandwidth_GBps"]]
    peers = [row for row in rows if row["generation"] == generation]
    peers = peers or [row for row in rows if row["device_class"] == device_class]
    if cores and (known := [row for row in peers if row["gpu_cores"]]):
        each = [float(row["mem_bandwidth_GBps"]) / float(row["gpu_cores"]) for row in known]
        return statistics.median(each) * cores * GB
    return statistics.median(float(row["mem_bandwidth_GBps"]) for row in peers) * GB


@functools.cache
def _index() -> tuple[dict, dict, list[tuple[frozenset, dict]], list[tuple[frozenset, dict]]]:
    """Return slug -> row, alias key -> row, the words of every row, and those before brackets."""
    rows = {slug(row["device"]): row for row in data.rows("devices.csv")}
    aliases = {_key(a["alias"]): rows[slug(a["device"])] for a in data.rows("device_aliases.csv")}
    chips = [
        (_tokens(row["device"].split("(")[0]), row)
        for row in rows.values()
        if "(" in row["device"] and row["device_class"] != "cpu"
    ]
    return rows, aliases, [(_tokens(row["device"]), row) for row in rows.values()], chips


def _readings(name: str) -> list[str]:
    """Return what may be left of a name without the case and the brackets around the chip."""
    inside = re.findall(r"\(([^()]+)\)", name)
    outside = re.sub(r"\([^()]*\)", " ", name)
    bare = [name] if any(map(_SUFFIX.search, inside)) else [name, *inside, outside]
    stripped = [_CASE.sub(" ", part) for part in bare]
    halves = [half for part in stripped for half in re.split(r"\s(?:w/|with)\s", part)]
    return [part for part in dict.fromkeys([*bare[1:], *stripped, *halves]) if _key(part)]


def _tokens(name: str) -> frozenset[str]:
    text = (
        re.sub(r"\((r|tm)\)|[®™]", " ", name.lower())
        .replace("gib", "gb")
        .replace("mobile", "laptop")
    )
    text = re.sub(r"(\d+)[\s-]?gpu[\s-]?core", r"\1core", text)
    text = re.sub(r"(\d+)[\s-]?(gb|core)s?\b", r" \1\2 ", text)
    text = re.sub(r"\b(rtx|gtx|rx)(?=\d)", r"\1 ", text)
    text = re.sub(r"(\d{4})(ti|super|xtx|xt|gre)\b", r"\1 \2", text)
    text = re.sub(r"\bsxm\d\b", "sxm", text)
    return frozenset(word for word in re.findall(r"[a-z0-9.]+", text) if not _NOISE.fullmatch(word))


def _key(name: str) -> frozenset[str]:
    return _tokens(name) - _NEUTRAL


def _variants(name: str, device_class: str | None, products: list) -> list[dict]:
    """Return the rows of the same product; a bare name means a CPU only if nothing else has it."""
    tokens = _tokens(_CPU_CORES.sub(" ", name) if device_class != "cpu" else name)
    readings = [tokens | {"cpu"}] if device_class == "cpu" else [tokens, tokens | {"cpu"}]
    for reading in readings:
        if rows := [row for words, row in products if _same_product(reading, words)]:
            return rows
    return []


def _chips(name: str) -> list[dict]:
    """Return the rows whose name before the brackets is this: 'Core Ultra 7 258V' has an Arc 140V."""
    tokens = _tokens(name)
    return [row for words, row in _index()[3] if _same_product(tokens, words)]


def _same_product(one: frozenset[str], other: frozenset[str]) -> bool:
    for kind in _OPTIONAL:
        mine, theirs = ({word for word in words if kind.fullmatch(word)} for words in (one, other))
        if mine and theirs and mine != theirs:
            return False
    return all(
        word in _NEUTRAL or any(kind.fullmatch(word) for kind in _OPTIONAL) for word in one ^ other
    )


def _best(
    rows: list[dict], device_class: str | None, bandwidth: float | None, cores: float | None
) -> dict | None:
    rows = [row for row in rows if row["device_class"] == device_class] or rows
    rows = _near(rows, "mem_bandwidth_GBps", bandwidth and bandwidth / GB)
    rows = _near(rows, "gpu_cores", cores)
    return max(
        rows,
        key=lambda row: (float(row["gpu_cores"] or 0), float(row["mem_bandwidth_GBps"] or 0)),
        default=None,
    )


def _near(rows: list[dict], column: str, value: float | None) -> list[dict]:
    """Keep the rows within 5 % of the value where any are."""
    if not value or math.isnan(value):
        return rows
    return [
        row for row in rows if row[column] and abs(float(row[column]) / value - 1) <= 0.05
    ] or rows
