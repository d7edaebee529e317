"""The ledger of a token: memory, decode step, prefill and what binds, from numbers alone (M01-M04, M22, M34)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from workbench.hardware import capacity, roofline, traffic

UBATCH = 512.0  # tokens of one prefill pass: llama.cpp's default --ubatch-size


def price(load, machine, budget, decode, prefill, work) -> dict[str, jax.Array]:
    """Return every number of a prediction; pure and differentiable, arguments broadcast.

    Args:
        load: traffic.Load of the model in its format.
        machine: roofline.Machine.
        budget: capacity.Budget.
        decode: roofline.Coefficients.
        prefill: roofline.PrefillCoefficients.
        work: context, batch, kv_bits, prompt and generate, as `Workload.arrays()` gives them; `depth`, the tokens
            cached before the prompt, is 0 and `ubatch` UBATCH unless given.

    Returns:
        name -> array; `time_s`, `prefill_time_s` and `memory_bytes` lead with a term axis.
    """
    context, batch, kv_bits, prompt = (work[n] for n in ("context", "batch", "kv_bits", "prompt"))
    ubatch = work.get("ubatch", UBATCH)
    # What must fit is the longest that the conversation gets, not its mean while decoding.
    longest = jnp.maximum(context, prompt + work["generate"])
    needed = capacity.memory(load, longest, batch, kv_bits, ubatch, budget.runtime)
    share = capacity.resident_share(load, needed, budget.usable)
    costs = roofline.decode_costs(load, machine, context, batch, kv_bits, share)
    terms = roofline.price(costs, decode)
    costs = roofline.prefill_costs(
        load, machine, prompt, work.get("depth", 0.0), batch, kv_bits, share, ubatch
    )
    prefill_terms = roofline.price(costs, prefill)
    step, first = terms.sum(0), prefill_terms.sum(0)
    moved = traffic.decode(load, context, batch, kv_bits)
    flops = moved.flops + moved.attention_flops
    return {
        "time_s": terms,
        "prefill_time_s": prefill_terms,
        "memory_bytes": jnp.stack(jnp.broadcast_arrays(*needed)),
        "decode_tok_s": batch / step,
        "prefill_tok_s": prompt * batch / first,
        "ttft_s": first + step,
        "usable_bytes": budget.usable,
        "headroom_bytes": budget.usable - sum(needed),
        "fits": sum(needed) <= budget.usable,
        "max_context": capacity.max_context(load, needed, budget.usable, batch, kv_bits),
        "bound": jnp.argmax(terms, axis=0),
        "naive_tok_s": roofline.naive_tok_s(load, machine, batch),
        "weight_bytes": moved.weight_bytes,
        "kv_bytes": moved.kv_bytes,
        "flops": flops,
        "arithmetic_intensity": flops / (moved.weight_bytes + moved.kv_bytes),
        "file_bytes": load.file_bytes,
    }


def stack(tuples: list):
    """Turn a list of Loads, Machines or Budgets into one of float64 arrays (len,)."""
    return type(tuples[0])(
        *(np.array(column, dtype=np.float64) for column in zip(*tuples, strict=True))
    )


@functools.partial(jax.jit, static_argnums=0)
def price_flat(structure, *leaves) -> dict[str, jax.Array]:
    """Price from the flattened arguments of `price`: one compiled function for every caller and shape."""
    return price(*jax.tree.unflatten(structure, leaves))
