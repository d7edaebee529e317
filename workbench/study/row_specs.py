"""What a measured row ran, and on what: by names where they are known, else by the numbers that the row states."""

import dataclasses
import functools
import math
import re

from workbench.errors import SpecError, UnknownNameError, WorkbenchError
from workbench.specs import device_names, formats
from workbench.specs import engine as engines
from workbench.specs.catalogue import resolve as resolve_model
from workbench.specs.device import DEVICE_CLASSES, Device
from workbench.specs.device import resolve as resolve_device
from workbench.specs.format_words import stated_bits
from workbench.specs.generic import generic
from workbench.specs.model import Model
from workbench.study import row_fields
from workbench.study.row_fields import text

_COPIES = re.compile(
    r"^\s*(\d{1,2})\s*[x×*]\s*\D|\s[x×]\s?(\d{1,2})$|^(dual|triple|quad) ", re.IGNORECASE
)
_BARE_BITS = re.compile(
    r"(?:q|int|w)?(\d(?:\.\d+)?)[-_ ]?(?:bits?|bpw)?(?: \(not stated\))?", re.IGNORECASE
)
#: What engines with a format of their own mean by "4bit".
_OWN_FORMAT = {"mlx": "MLX", "exllama": "EXL2"}
_USUAL = {"mlx": "MLX 4bit", "exllama": "EXL2 4bit", "ollama": "Q4_K_M"}


def engine(row: dict) -> str:
    """Return the engine of a row; "other" where no family has such a name.

    Raises:
        SpecError: the row names none.
    """
    name = text(row, "engine")
    if not name:
        raise SpecError(f"{row_fields.where(row, 'engine')} is blank; known are llama.cpp, mlx ...")
    mlx_tag = re.search(r"[:-].*\bmlx\b", text(row, "model").lower())
    if mlx_tag and name.lower() == "ollama":  # its -mlx tags run on MLX, not on llama.cpp
        return "ollama-mlx"
    try:
        engines.family(name)
    except UnknownNameError:
        return "other"
    return name


def build(row: dict) -> str:
    """Return the engine's build; where the row states none, the year that its note or source tells."""
    stated = text(row, "engine_version_or_build")
    return stated or engines.year(f"{text(row, 'note')}; {text(row, 'source')}")


def machines(row: dict) -> float:
    """Return how many devices worked together: the column, else what the name says ('2x RTX 3090')."""
    count = row_fields.optional(row, "n_gpus")
    found = _COPIES.search(text(row, "device"))
    if not math.isnan(count) or not found or "cpu" in text(row, "device_class").lower():
        return 1.0 if math.isnan(count) else count
    return float(found[1] or found[2] or {"dual": 2, "triple": 3, "quad": 4}[found[3].lower()])


def device_class(row: dict) -> str:
    """Return the class of the device: as given, else of the machine of that name, else what the words tell, else ''."""
    given = text(row, "device_class").lower()
    if given in DEVICE_CLASSES:
        return given
    if "cpu" in given:
        return "cpu"
    known = device_names.find(text(row, "device")) if text(row, "device") else None
    words = (text(row, "device"), given, text(row, "engine"))
    return known["device_class"] if known else device_names.infer_class(" ".join(words))


def device(row: dict) -> Device:
    """Return the machine of a row; its CPU where the engine says that the CPU did the work.

    Raises:
        WorkbenchError: nothing tells what kind of machine it is.
    """
    name = text(row, "device")
    if not name:
        raise SpecError(f"{row_fields.where(row, 'device')} is blank; see devices() for names")
    facts = (row_fields.bandwidth(row), row_fields.optional(row, "gpu_cores"))
    numbers = (fact if fact > 0 else None for fact in facts)
    stated = bool(text(row, "device_class"))
    found = _machine(name[:200], device_class(row), stated, *numbers)
    on_cpu = engines.on_cpu(text(row, "engine")) and found.device_class not in ("cpu", "sbc")
    return _its_cpu(name[:200], found) if on_cpu else found


@functools.lru_cache(4096)
def _machine(
    name: str, kind: str, stated: bool, bandwidth: float | None, cores: float | None
) -> Device:
    single = re.sub(r"^\s*\d+\s*[x×*]\s*", "", name) if "+" not in name else name
    try:
        return resolve_device(single, kind or None, bandwidth, cores)
    except WorkbenchError:
        # A class that only the engine tells is no ground for an estimate.
        if bandwidth is not None or not (kind and (stated or device_names.infer_class(name))):
            raise
    usual = device_names.usual_bandwidth(name, kind, cores)
    found = resolve_device(single, kind, usual, cores)
    return dataclasses.replace(found, note=f"bandwidth estimated from its generation; {found.note}")


@functools.lru_cache(4096)
def _its_cpu(name: str, found: Device) -> Device:
    """Return the CPU beside or within a device: the catalogue's, else host memory at its bandwidth."""
    known = device_names.find(name, "cpu")
    if known and known["device_class"] == "cpu":
        return resolve_device(known["device"], "cpu")
    return Device.custom(
        f"{found.name} (CPU)",
        bandwidth=found.host_bandwidth,
        memory=found.host_memory,
        device_class="cpu",
    )


def weights(row: dict) -> tuple[Model, str]:
    """Return the model and the format of a row; where one has no known name, the file's size and the other tell it.

    Raises:
        WorkbenchError: neither names nor numbers tell.
    """
    quant = _quant(row)
    model = _model(row, quant)
    quant = quant or _quant_of_size(row, model)
    if model.arch == "gpt_oss" and formats.family(quant) in ("float", "bf16", "q8", "kquant"):
        # Its experts are MXFP4 in every GGUF file; the name says what the rest is.
        quant = {"F16": "MXFP4 F16", "BF16": "MXFP4 BF16"}.get(quant, "MXFP4")
    return model, quant


def _model(row: dict, quant: str) -> Model:
    name, stated, size = text(row, "model"), row_fields.params(row), row_fields.size(row)
    sparse = text(row, "arch_kind").lower() in ("moe", "sparse")
    if not name and math.isnan(stated) and math.isnan(size):
        raise SpecError(f"{row_fields.where(row, 'model')} is blank; see models() for names")
    try:
        return resolve_model(name[:200], None if math.isnan(stated) else stated, sparse)
    except UnknownNameError:
        if not quant or math.isnan(size):
            raise
    return resolve_model(name[:200], size * 8 / _usual_bits(quant), sparse)


def _quant(row: dict) -> str:
    """Return the format that a row names, in its column or at the end of the model's name; '' where it does not."""
    family = engines.family(engine(row))
    given = text(row, "quant")[:100] or _ending(text(row, "model")[-90:])
    if not given and math.isnan(row_fields.size(row)):
        given = _USUAL.get(family, "4-bit")
    bits = stated_bits(given)
    found = _normal(given) or (formats.nearest(bits) if bits and 1 <= bits <= 32 else "")
    own = _BARE_BITS.fullmatch(given) or re.fullmatch(r"(?:UD-)?Q?(\d)(?:-bit|_K.*|_0)", found)
    if own and family in _OWN_FORMAT and found != "Q2_0":  # ternary weights are Q2_0 in MLX too
        return formats.normalise(f"{_OWN_FORMAT[family]} {own[1]}bit")
    return found


@functools.lru_cache(4096)
def _normal(spelling: str) -> str:
    """Return the canonical name of a format, '' where the spelling means none."""
    try:
        return formats.normalise(spelling)
    except WorkbenchError:
        return ""


@functools.lru_cache(4096)
def _ending(name: str) -> str:
    """Return the format that ends a model's name: 'Qwen3-8B-MLX-4bit' -> 'MLX-4bit'."""
    tails = (name[mark.end() :] for mark in re.finditer(r"[-_.: ]", name))
    return next((tail for tail in tails if _normal(tail)), "")


def _quant_of_size(row: dict, model: Model) -> str:
    size = row_fields.size(row)
    if math.isnan(size):
        return formats.normalise(text(row, "quant"))  # raises, with the nearest names
    bits = size * 8 / float(model.total_params)
    if not 0.5 <= bits <= 40:
        place = row_fields.where(row, "model_size_bytes_or_GiB")
        raise SpecError(f"{place} means {bits:.2g} bits per weight of {model.name}")
    return formats.nearest(bits)


@functools.lru_cache(4096)
def _usual_bits(quant: str) -> float:
    """Return bits per weight of a file of this format, for a model of usual size."""
    usual = generic("usual", 8e9)
    return float(formats.weight_bytes(usual, quant).sum()) * 8 / float(usual.total_params)
