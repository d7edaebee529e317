"""Where the checks look things up: other claims, models, machines, measurements, facts."""

import functools
import json
import math

import numpy as np

from workbench import data
from workbench.hardware import capacity, traffic
from workbench.hardware.traffic import Load
from workbench.specs import formats
from workbench.specs.catalogue import models
from workbench.specs.catalogue import preset as model_preset
from workbench.specs.device import Device
from workbench.specs.model import Model

KV_BITS = 16.0  # FP16, where an article does not say


@functools.cache
def value(claim: str) -> dict:
    """Return the numbers of another claim."""
    return json.loads(next(r["value_json"] for r in data.rows("claims.csv") if r["id"] == claim))


def fact(name: str) -> str:
    """Return a documented name or number that no other dataset holds (datasets/claim_facts.csv)."""
    return next(row["value"] for row in data.rows("claim_facts.csv") if row["fact"] == name)


def figure(name: str) -> float:
    """Return a documented number, in the unit its row states."""
    return float(fact(name))


@functools.cache
def model(name: str) -> Model:
    """Return a catalogue model."""
    return model_preset(name)


@functools.cache
def device(name: str) -> Device:
    """Return a catalogue machine."""
    return Device.preset(name)


def exists(name: str) -> bool:
    """Tell whether the catalogue has a model whose name contains `name`."""
    return any(data.slug(name) in known for known in models())


@functools.cache
def load(name: str, quant: str) -> Load:
    """Return what pricing needs of a catalogue model in a format."""
    return traffic.load_of(model(name), formats.weight_bytes(model(name), quant))


def step_bytes(name: str, quant: str, context: float = 0.0, batch: float = 1.0) -> float:
    """Return the bytes, weights and KV, that one decode step moves."""
    step = traffic.decode(load(name, quant), context, batch, KV_BITS)
    return float(step.weight_bytes + step.kv_bytes)


def intensity(name: str, quant: str) -> float:
    """Return the FLOPs of a decode step at batch 1 per byte it reads."""
    step = traffic.decode(load(name, quant), 0.0, 1.0, KV_BITS)
    return float(step.flops / step.weight_bytes)


def usable(name: str) -> float:
    """Return the bytes that a machine lets a model take by default."""
    return float(capacity.budget_of(device(name)).usable)


def rule(name: str) -> float:
    """Return a number of the capacity rules (datasets/capacity.csv)."""
    return next(float(row["value"]) for row in data.rows("capacity.csv") if row["rule"] == name)


def measured(field: str, **where: str) -> np.ndarray:
    """Return a numeric column of the measured rows at batch 1 whose other columns equal `where`."""
    wanted = where | {"batch": "1"}
    rows = (r for r in data.rows("measurements.csv") if all(r[k] == v for k, v in wanted.items()))
    return np.array([float(r[field]) if r[field] else math.nan for r in rows])


@functools.cache
def apple_shares() -> np.ndarray:
    """Return decode speed x bytes read / specified bandwidth of the Apple rows of one 7B model.

    The table of ggml-org/llama.cpp discussion 4167: every machine ran the same file and build.
    """
    where = {"device_class": "apple-uma", "source": "ggml-org/llama.cpp#4167"}
    where |= {"model": "meta-llama/Llama-2-7b-hf", "context_depth_tokens": "0"}
    shares = []
    for quant in ("Q4_0", "Q8_0", "F16"):
        speed = measured("decode_tok_s", quant=quant, **where)
        peak = measured("mem_bandwidth_GBps", quant=quant, **where) * 1e9
        shares.append(speed * step_bytes("llama-2-7b", quant) / peak)
    found = np.concatenate(shares)
    return found[np.isfinite(found)]
