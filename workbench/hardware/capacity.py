"""What fills the memory and how much of it a model may use (M22, M23, M34)."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from workbench import data
from workbench.hardware import traffic
from workbench.hardware.traffic import Load
from workbench.units import GiB

#: What fills the memory, in the order of the result.
KINDS = ("weights", "kv", "buffers", "runtime")


class Budget(NamedTuple):
    """Memory of the accelerator, of which `usable` bytes may be taken; `runtime` bytes go to the engine itself."""

    usable: Any
    runtime: Any


def budget_of(device, wired_limit: float | None = None) -> Budget:
    """Return how much of a Device's memory a model may use.

    Args:
        device: a Device.
        wired_limit: bytes, an explicit `iogpu.wired_limit_mb` or GTT size; overrides the default rule.

    The rules (datasets/capacity.csv): macOS lets the GPU wire 2/3 of up to 36 GiB and 3/4 above; a discrete card
    keeps some memory for the driver and the desktop; a CPU or APU shares its memory with the system, a small board
    with a smaller one.
    """
    if wired_limit is not None:
        return Budget(wired_limit, data.rule("runtime_bytes"))
    if device.device_class == "apple-uma":
        small = device.memory <= data.rule("wired_small_GiB") * GiB
        ratio = jnp.where(small, data.rule("wired_ratio_small"), data.rule("wired_ratio_large"))
        usable = device.memory * ratio
    elif device.unified:
        system = data.rule("board_system_bytes" if device.device_class == "sbc" else "system_bytes")
        usable = jnp.maximum(device.memory - system, device.memory * data.rule("shared_ratio"))
    else:
        usable = device.memory * data.rule("card_ratio")
    return Budget(usable, data.rule("runtime_bytes"))


def memory(load: Load, context, batch, kv_bits, ubatch, runtime) -> tuple:
    """Return bytes needed by kind, in KINDS order.

    Args:
        load: the model in its format.
        context: tokens of KV cache to hold per sequence.
        batch: sequences.
        kv_bits: bits per KV element.
        ubatch: tokens of one prefill pass: its logits and about four activations a token are held
            in float32 (an estimate; the logits are most of it).
        runtime: bytes the engine takes for itself.
    """
    buffers = ubatch * 4 * (load.vocab + 4 * load.hidden)
    return load.resident_bytes, batch * traffic.kv_bytes(load, context, kv_bits), buffers, runtime


def resident_share(load: Load, needed: tuple, usable):
    """Return the share of the weights that fits beside everything else, 0 to 1."""
    left = usable - sum(needed[1:])
    return jnp.clip(left / load.resident_bytes, 0.0, 1.0)


def max_context(load: Load, needed: tuple, usable, batch, kv_bits):
    """Return the longest context per sequence, in tokens, whose KV cache still fits; 0 when the weights do not.

    Inverts the piecewise linear KV size: below the window every layer grows, above it the full layers alone.
    """
    left = (
        usable - needed[0] - needed[2] - needed[3]
    ) * 8 / kv_bits / batch - load.recurrent_elements * 32 / kv_bits
    both = load.kv_elements + load.window_elements
    within = left / jnp.maximum(both, 1.0)
    beyond = (left - load.window_elements * load.window) / jnp.maximum(load.kv_elements, 1.0)
    unbounded = (load.kv_elements == 0) & (within > load.window)
    tokens = jnp.where(within <= load.window, within, beyond)
    tokens = jnp.where(load.window_elements == 0, left / jnp.maximum(load.kv_elements, 1.0), tokens)
    return jnp.where(unbounded, jnp.inf, jnp.maximum(jnp.floor(tokens), 0.0))
