"""Models by name: presets, their aliases, and any spelling that leads to one or at least states a
size."""

import functools
import re

from workbench import data
from workbench.errors import UnknownNameError
from workbench.specs import hf
from workbench.specs.generic import generic, usual_active
from workbench.specs.model import Model

#: parts of a repository or file name that do not change the geometry
DECORATION = re.compile(
    r"(\.gguf|-gguf|-mlx.*|-awq.*|-gptq.*|-onnx.*|-(instruct|chat|it|base|hf|qat|thinking|bf16|fp16|f16|fp8|f32)"
    r"|[-.](ud-)?i?q\d(_[a-z0-9]+)*|[-.](iq|tq)\d.*|-(mxfp|nvfp)\d.*|-?\d(\.\d+)?-?bits?|-\d{5}-of-\d{5})$"
)
SIZE = re.compile(r"(?<![a-z0-9.])(\d+x)?(\d+(?:\.\d+)?)([bm])(?![a-z0-9])")
ACTIVE = re.compile(r"(?<![a-z0-9])a(\d+(?:\.\d+)?)([bm])(?![a-z0-9])")
UNIT = {"b": 1e9, "m": 1e6}


def models() -> list[str]:
    """Return the names of the model presets."""
    return sorted(_canonical())


def preset(name: str) -> Model:
    """Return the preset `name`: a slug, a canonical name or a known alias; see `Model.preset`."""
    slug = _find(str(name))
    if slug is None:
        raise UnknownNameError("model", name, models())
    return _load(slug)


@functools.lru_cache(4096)
def resolve(name: str, total: float | None = None, sparse: bool = False) -> Model:
    """Return the best Model for a free-form name: preset or alias, the name without decoration,
    else by its size.

    Args:
        name: any spelling.
        total: parameters, where known; a name that is no preset only rounds them.
        sparse: it is a mixture of experts, even if the name does not say how much of it is active.

    Raises:
        UnknownNameError: neither a known name nor a size such as "7B" or "30B-A3B" in it, nor
            `total`.
    """
    slug = _find(str(name)) or _find_plain(str(name))
    if slug is not None:
        return _load(slug)
    claimed, active = _sizes(str(name))
    total = total or claimed
    if total is None:
        raise UnknownNameError("model", name, models())
    if sparse and active is None:
        active = usual_active(total)
    return generic(str(name), total, active if active and active < total else None)


@functools.cache
def _canonical() -> dict[str, str]:
    """slug -> canonical name; on a collision the less known, further down the catalogue, keeps its
    organisation."""
    found: dict[str, str] = {}
    for row in data.rows("models.csv"):
        name = row["canonical_name"]
        slug = data.slug(name)
        found[data.slug(name.replace("/", " ")) if slug in found else slug] = name
    return found


@functools.cache
def _aliases() -> dict[str, str]:
    """Every known spelling, as a slug -> preset slug; presets win over aliases."""
    slugs = {name: slug for slug, name in _canonical().items()}
    known = {
        data.slug(a["spelling"]): slugs[a["canonical_name"]]
        for a in data.rows("model_aliases.csv")
        if a["canonical_name"] in slugs
    }
    return known | {slug: slug for slug in _canonical()}


@functools.cache
def _plain() -> dict[str, str]:
    """Undecorated spelling -> preset slug; the catalogue's own names win."""
    known = {plain(alias): slug for alias, slug in reversed(_aliases().items())}
    return known | {plain(slug): slug for slug in reversed(_canonical())}


def plain(name: str) -> str:
    """Return `name` without organisation, file ending, quantisation and tuning suffixes, hyphens:
    'llama3.18b'."""
    text, before = re.sub(r"[ :]", "-", name.rsplit("/", 1)[-1].lower()), None
    while text != before:
        before, text = text, DECORATION.sub("", text)
    return data.slug(text).removeprefix("meta-").replace("-", "")


def _find(name: str) -> str | None:
    return _aliases().get(data.slug(name))


def _find_plain(name: str) -> str | None:
    without_organisation = name.split("_", 1)[-1]  # quantisers write organisation_model
    return _plain().get(plain(name)) or _plain().get(plain(without_organisation))


def _sizes(name: str) -> tuple[float | None, float | None]:
    """Total and active parameters that a name claims; "8x7B" is read as eight of 7 B with two
    active."""
    text = name.rsplit("/", 1)[-1].lower().replace("_", "-")
    size, active = SIZE.search(text), ACTIVE.search(text)
    if size is None:
        return None, None
    each = float(size[2]) * UNIT[size[3]]
    if size[1]:
        return each * int(size[1][:-1]), 2 * each
    return each, float(active[1]) * UNIT[active[2]] if active else None


@functools.cache
def _load(slug: str) -> Model:
    name = _canonical()[slug]
    fields = data.document(f"models/{name.replace('/', '--')}.json")
    return hf.account(fields, slug, fields.get("_source", name))
