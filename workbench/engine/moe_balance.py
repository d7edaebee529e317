"""Load balance over time: a bias that corrects, and one that decays idle experts and collapses (M49)."""

from functools import partial
from math import inf

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax import Array, lax

from workbench.engine.moe import Router, load, route
from workbench.errors import SpecError
from workbench.results import dataset


def still(bias: Array, counts: Array, rate: float) -> Array:
    """Leave the bias as it is."""
    return bias


def correct(bias: Array, counts: Array, rate: float) -> Array:
    """Return b + rate · sign(mean load - load): no loss term is needed (DeepSeek-V3, arXiv 2412.19437)."""
    counts = counts.astype(jnp.float32)
    return bias + rate * jnp.sign(counts.mean() - counts)


def decay(bias: Array, counts: Array, rate: float) -> Array:
    """Return b - rate for idle experts: who was not chosen is chosen even less, so idleness is for ever."""
    return jnp.where(counts == 0, bias - rate, bias)


POLICIES = {"none": still, "correct": correct, "decay": decay}


def balance(
    router: Router,
    *,
    steps: int = 400,
    tokens: int = 64,
    rate: float = 0.01,
    skew: float = 1.0,
    seed: int = 0,
) -> xr.Dataset:
    """Route random tokens for many steps under each policy, with a gate that likes some experts better.

    Args:
        router: the rule of choice.
        steps: steps to run.
        tokens: tokens a step.
        rate: what a policy adds to or takes from a bias in a step.
        skew: standard deviation of the gate's mean logits over experts; a token's own noise has 1.
        seed: of the random numbers, the same for every policy.

    Returns:
        load_share (policy, step, expert_id), load_cv and idle_experts (policy, step),
        router_bias (policy, expert_id) at the end.

    Raises:
        SpecError: no steps or tokens, a rate or skew below 0 or infinite, or a seed out of range.
    """
    whole = all(isinstance(n, int) for n in (steps, tokens, seed))
    if not whole or steps < 1 or tokens < 1 or not 0 <= seed < 2**63:
        raise SpecError(
            f"steps {steps}, tokens {tokens}, seed {str(seed)[:40]}: "
            "whole numbers from 1, from 1, and from 0 to 2**63 - 1 are right"
        )
    if not (0 <= rate < inf and 0 <= skew < inf):
        raise SpecError(f"rate {rate} and skew {skew}: finite numbers from 0 are right")
    run = [_run(router, p, steps, tokens, rate, skew, seed) for p in POLICIES]
    counts, bias = (np.stack(x) for x in zip(*run, strict=True))
    share = counts / counts.sum(-1, keepdims=True)
    over = ("policy", "step")
    return dataset(
        {
            "load_share": ((*over, "expert_id"), share),
            "load_cv": (over, share.std(-1) / share.mean(-1)),
            "idle_experts": (over, (counts == 0).sum(-1)),
            "router_bias": (("policy", "expert_id"), bias),
        },
        {
            "policy": list(POLICIES),
            "step": np.arange(steps),
            "expert_id": np.arange(router.experts),
        },
        source="arXiv 2412.19437",
        mechanism="M49",
        seed=seed,
        tokens=tokens,
        rate=rate,
        skew=skew,
    )


@partial(jax.jit, static_argnames=("router", "policy", "steps", "tokens"))
def _run(router: Router, policy: str, steps: int, tokens: int, rate, skew, seed):
    """Return counts (steps, experts) int32 and the last bias (experts,) float32."""
    key, liking = jax.random.split(jax.random.key(seed))
    means = jax.random.normal(liking, (router.experts,), jnp.float32) * jnp.float32(skew)

    def step(bias, key):
        noise = jax.random.normal(key, (tokens, router.experts), jnp.float32)
        counts = load(route(means + noise, router, bias), router.experts)
        return POLICIES[policy](bias, counts, jnp.float32(rate)), counts

    start = jnp.zeros(router.experts, jnp.float32)
    bias, counts = lax.scan(step, start, jax.random.split(key, steps))
    return counts, bias
