"""The calibrated coefficients of every term, looked up for a machine, an engine, a format and a model.

A log coefficient is a sum of effects: the common value, what the backend adds, what the generation of the device adds,
and so on down to the device itself. Whatever calibration never saw adds nothing: the prediction then rests on the
wider pools, and its interval is wider.
"""

import functools
import math

import numpy as np

from workbench import data
from workbench.hardware.roofline import PREFILL_TERMS, TERMS, Coefficients, PrefillCoefficients
from workbench.specs import device_names, formats
from workbench.specs import engine as engines

#: The pools a prediction belongs to. Effects are named by them; "backend.family" is an interaction of two.
#: `vendor` is the backend of an engine outside the llama.cpp, MLX and exllama world, `flash` tells whether flash
#: attention is known to be on or off, `host` whether the card sits behind a slow computer, `library`
#: the matrix library or driver that was named.
KEYS = (
    *("backend", "era", "generation", "device_class", "device", "family", "arch", "attention"),
    *("vendor", "flash", "host", "library", "power"),
)

#: llama.cpp turns flash attention on by itself from this era on: the default since August 2025 (PR #15434).
FLASH_SINCE = "2026"

#: ROCm's matrix products go through hipBLASLt by themselves from this era on, through rocBLAS before.
HIPBLASLT_SINCE = "2026"

_STAGES = {"decode": (TERMS, Coefficients), "prefill": (PREFILL_TERMS, PrefillCoefficients)}


def device_keys(device, engine: str, build: str = "") -> dict[str, str]:
    """Return the pools of a device that runs an engine."""
    backend, era = engines.backend(engine, device.device_class), engines.era(engine, build)
    usual = engines.family(engine) in engines.SCORED and device.device_class != "npu"
    return {
        "backend": backend,
        "vendor": "" if usual else backend,
        "flash": "on" if engines.family(engine) == "llama.cpp" and era >= FLASH_SINCE else "",
        "host": "",
        "library": "rocblas" if backend == "rocm" and era < HIPBLASLT_SINCE else "",
        "power": _power(device),
        "era": era,
        "generation": device.generation,
        "device_class": device.device_class,
        "device": device_names.slug(device.name),
    }


def _power(device) -> str:
    """Return the watts behind a TFLOP/s of an NVIDIA chip, to a power of two; "" elsewhere and where unknown."""
    ratio = device.power / (device.flops / 1e12)
    known = device.device_class == "nvidia-gpu" and ratio > 0
    return str(round(math.log2(ratio))) if known else ""


def model_keys(model) -> dict[str, str]:
    """Return the pools of a model: its architecture, and how it attends."""
    attention = "windowed" if model.window_elements > 0 else "full"
    if model.recurrent_elements > 0:
        attention = "recurrent"
    return {"arch": model.arch, "attention": attention}


def quant_keys(quant: str) -> dict[str, str]:
    """Return the pool of a format: how a kernel decodes it."""
    return {"family": formats.family(quant)}


@functools.cache
def table() -> dict:
    """Return datasets/coefficients.json, which `workbench calibrate` writes."""
    return data.document("coefficients.json")


def resolve(keys: dict[str, np.ndarray], stage: str, effects: dict):
    """Return the coefficients of a stage as arrays that broadcast against each other.

    Args:
        keys: pool name -> array of text; all of one rank, with size 1 along the dimensions a pool does not vary in.
        stage: "decode" or "prefill".
        effects: a table as `calibrate` makes it; `table()` is the one in datasets.
    """
    terms, kind = _STAGES[stage]
    return kind(*(np.exp(_log(effects[stage][name], keys)) for name in (*terms, "machine")))


def _log(term: dict, keys: dict[str, np.ndarray]) -> np.ndarray:
    total = np.full((1,) * next(iter(keys.values())).ndim, float(term["base"]))
    for effect, values in term["effects"].items():
        total = total + look_up(values, effect, keys)
    return total


def look_up(
    values: dict[str, float], effect: str, keys: dict[str, np.ndarray], default: float = 0.0
) -> np.ndarray:
    """Return what an effect adds for each combination of the pools it is named by."""
    spread = np.broadcast(*(keys[field] for field in effect.split(".")))
    found = np.array([values.get("|".join(parts), default) for parts in spread], dtype=np.float64)
    return found.reshape(spread.shape)
