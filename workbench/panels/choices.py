"""What a panel offers to choose from: machines by kind, models by family, engines and formats."""

import functools
import os
import re

from workbench import data
from workbench.errors import WorkbenchError
from workbench.specs import engine as engines
from workbench.specs.catalogue import models
from workbench.specs.device import Device, device_table
from workbench.specs.model import Model

_CLASSES = {
    "apple-uma": "Apple",
    "nvidia-gpu": "NVIDIA GPU",
    "amd-gpu": "AMD GPU",
    "amd-apu": "AMD Ryzen with its GPU",
    "intel": "Intel GPU",
    "cpu": "CPU only",
    "sbc": "Small board",
    "npu": "NPU or phone",
}
_BACKENDS = {
    "nvidia-gpu": ("llama.cpp-vulkan",),
    "amd-gpu": ("llama.cpp-rocm",),
    "amd-apu": ("llama.cpp-rocm",),
    "intel": ("llama.cpp-sycl",),
}
_GGUF = (
    "F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_0", "IQ4_XS", "MXFP4", "Q3_K_M", "IQ3_XXS",
    "Q2_K",
)  # fmt: skip
_FORMATS = {
    "mlx": ("BF16", "MLX 8bit", "MLX 6bit", "MLX 5bit", "MLX 4bit", "MLX 3bit"),
    "exllama": ("F16", "EXL2 8bpw", "EXL2 6bpw", "EXL2 5bpw", "EXL2 4bpw", "EXL2 3bpw"),
    "vllm": ("BF16", "FP8", "INT8", "AWQ", "GPTQ"),
    "gpt-fast": ("BF16", "INT8", "INT4"),
}
KV_CACHES = ("f16", "q8_0", "q5_1", "q4_0")


@functools.cache
def machines() -> dict[str, dict[str, str]]:
    """Return kind -> name shown -> preset, without machines whose bandwidth nobody knows."""
    known = device_table()
    groups: dict[str, dict[str, str]] = {title: {} for title in _CLASSES.values()}
    for row, slug, kind, bandwidth in zip(
        data.rows("devices.csv"), known.device.values, known.device_class.values,
        known.device_bandwidth.values, strict=True,
    ):  # fmt: skip
        if bandwidth > 0:
            groups[_CLASSES[str(kind)]][row["device"]] = str(slug)
    return {
        title: dict(sorted(m.items(), key=lambda i: _natural(i[0]))) for title, m in groups.items()
    }


@functools.cache
def families() -> dict[str, dict[str, str]]:
    """Return family -> name shown -> preset; families of one or two go to "other"."""
    names = sorted(models(), key=_natural)
    found: dict[str, dict[str, str]] = {}
    for name in names:
        family = re.split(r"[^a-z]", name.removeprefix("meta-"), maxsplit=1)[0]
        found.setdefault(family, {})[name] = name
    large = {family: m for family, m in sorted(found.items()) if len(m) > 2}
    return large | {"other": {n: n for n in names if not any(n in m for m in large.values())}}


def _natural(text: str) -> list:
    return [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", text.lower())]


@functools.cache
def engines_for(kind: str) -> tuple[str, ...]:
    """Return the engines that run on a class of device, the most usual first."""
    found = [name for name in engines.families() if name != "other" and _runs(name, kind)]
    first = [name for name in ("llama.cpp", "ollama", "lm-studio", "mlx") if name in found]
    return tuple(dict.fromkeys([*first[:1], *_BACKENDS.get(kind, ()), *first, *found]))


def formats_for(engine: str) -> tuple[str, ...]:
    """Return the formats that people run with an engine."""
    return _FORMATS.get(engines.family(engine), _GGUF)


def _runs(name: str, kind: str) -> bool:
    try:
        return bool(engines.backend(name, kind))
    except WorkbenchError:
        return False


@functools.lru_cache(maxsize=64)
def device(name: str, memory: float | None = None) -> Device:
    """Return a preset, kept for the next move of a slider."""
    return Device.preset(name, memory=memory)


@functools.lru_cache(maxsize=64)
def preset(name: str) -> Model:
    """Return a preset, kept for the next move of a slider."""
    return Model.preset(name)


def own_model(text: str) -> Model:
    """Return the model in the file at the path `text`, read again only when the file changed."""
    path = os.path.expanduser(text)
    try:
        stamp = os.stat(path).st_mtime_ns
    except (OSError, ValueError):
        stamp = 0  # the reader says what is wrong with it
    return _read(path, stamp)


@functools.lru_cache(maxsize=4)
def _read(path: str, stamp: int) -> Model:
    return Model.from_gguf(path) if path.lower().endswith(".gguf") else Model.from_hf(path)
