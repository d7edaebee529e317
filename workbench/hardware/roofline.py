"""What the traffic costs on a machine: one visible term for each thing that can be waited for (M01-M04, M34, M55).

Two resources that overlap cost the longer of the two; the terms here are what is left after overlap, as measured:
their coefficients come from `study.calibrate`, so a sum of them is a fit, not an assumption of no overlap.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from workbench.hardware import storage, traffic
from workbench.hardware.traffic import Load

#: The terms of a decode step, in the order of the result.
TERMS = ("weights", "spill", "kv", "attention", "compute", "dispatch", "routing", "fixed")
#: The terms of a prefill.
PREFILL_TERMS = ("weights", "spill", "kv", "attention", "dense", "experts", "dispatch", "fixed")

LAYER_S = 1e-6  # dispatch and routing coefficients are microseconds per layer
STEP_S = 1e-3  # the fixed coefficient is milliseconds per step


class Machine(NamedTuple):
    """The numbers of a Device that pricing uses; every field broadcasts."""

    bandwidth: Any  # B/s
    flops: Any  # FLOP/s
    spill_bandwidth: Any  # B/s at which weights that do not fit are read


class Coefficients(NamedTuple):
    """What calibration found, one field a term; `machine` multiplies them all.

    `weights`, `spill`, `kv`, `compute`, `attention` are one over an efficiency; `dispatch` and `routing` microseconds
    per layer, `fixed` milliseconds per step.
    """

    weights: Any
    spill: Any
    kv: Any
    attention: Any
    compute: Any
    dispatch: Any
    routing: Any
    fixed: Any
    machine: Any


class PrefillCoefficients(NamedTuple):
    """The same for the prefill; `dense` and `experts` are one over the share of peak FLOP/s."""

    weights: Any
    spill: Any
    kv: Any
    attention: Any
    dense: Any
    experts: Any
    dispatch: Any
    fixed: Any
    machine: Any


def machine_of(device) -> Machine:
    """Return the pricing numbers of a Device.

    What a card cannot hold is read from the host, at the slower of link and host memory; what a machine of one memory
    cannot hold comes from its disk at every step (M23).
    """
    if device.unified:
        return Machine(device.bandwidth, device.flops, storage.disk_of(device).bandwidth)
    slower = jnp.minimum(device.link, device.host_bandwidth)
    return Machine(device.bandwidth, device.flops, slower)


def decode_costs(load: Load, machine: Machine, context, batch, kv_bits, resident) -> tuple:
    """Return what each decode term costs at coefficient 1, in TERMS order, seconds.

    Args:
        load: the model in its format.
        machine: bandwidth and FLOP/s.
        context: tokens cached per sequence.
        batch: sequences decoded together.
        kv_bits: bits per KV element.
        resident: share of the weights that fit in the accelerator's memory, 0 to 1.
    """
    step = traffic.decode(load, context, batch, kv_bits)
    return (
        *_moved(step, machine, resident),
        load.layers * LAYER_S,
        load.moe_layers * LAYER_S,
        STEP_S,
    )


def prefill_costs(
    load: Load, machine: Machine, prompt, context, batch, kv_bits, resident, ubatch
) -> tuple:
    """Return what each prefill term costs at coefficient 1, in PREFILL_TERMS order, seconds."""
    step, expert_flops = traffic.prefill(load, prompt, context, batch, kv_bits, ubatch)
    passes = jnp.ceil(prompt * batch / ubatch)
    return (
        *_moved(step, machine, resident),
        expert_flops / machine.flops,
        passes * load.layers * LAYER_S,
        STEP_S,
    )


def _moved(step: traffic.Traffic, machine: Machine, resident) -> tuple:
    """Return seconds of weights held, weights spilled, KV cache, attention and matrix products."""
    return (
        step.weight_bytes * resident / machine.bandwidth,
        step.weight_bytes * (1 - resident) / machine.spill_bandwidth,
        step.kv_bytes / machine.bandwidth,
        step.attention_flops / machine.flops,
        step.flops / machine.flops,
    )


def price(costs: tuple, coefficients) -> jax.Array:
    """Return the terms (term, ...) in seconds: coefficient times cost, broadcast, times the machine's own factor."""
    terms = [c * k * coefficients.machine for c, k in zip(costs, coefficients[:-1], strict=True)]
    return jnp.stack(jnp.broadcast_arrays(*terms))


def naive_tok_s(load: Load, machine: Machine, batch=1.0):
    """Return bandwidth divided by the bytes of the weights that a token reads: the line every other tool draws."""
    step = traffic.decode(load, 0.0, batch, 16.0)
    return batch * machine.bandwidth / step.weight_bytes
