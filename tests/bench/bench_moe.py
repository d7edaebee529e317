"""Print what sparsity saves: an MoE layer's decode against the same layer running every expert, interleaved."""

import time

import jax
import jax.numpy as jnp
import numpy as np

import workbench  # noqa: F401  (64-bit JAX)
from workbench.engine.matmul import Packed, pack
from workbench.engine.moe import Router, Routing, route
from workbench.engine.moe_experts import Experts, everyone, run

HIDDEN = 1024
#: (experts, top_k, shared, ff): Mixtral's and Qwen3's shapes, narrower
LAYERS = ((8, 2, 0, 2048), (8, 2, 1, 2048), (64, 8, 0, 512))
RUNS = 21


def packed(rng: np.random.Generator, tensor_type: str, *shape: int) -> Packed:
    """Return random weights; the time does not depend on their values."""
    nbytes = {"Q4_0": 18 / 32, "Q8_0": 34 / 32, "F16": 2}[tensor_type]
    raw = np.zeros(int(np.prod(shape) * nbytes), np.uint8)
    raw[::7] = rng.integers(0, 60, raw[::7].size)  # small bytes: no scale becomes infinite
    return pack(tensor_type, raw.reshape(shape[0], -1), shape)


def layer(rng: np.random.Generator, tensor_type: str, count: int, ff: int) -> Experts:
    """Return `count` experts of `ff` units."""
    up = (count, ff, HIDDEN), (count, ff, HIDDEN), (count, HIDDEN, ff)
    return Experts(*(packed(rng, tensor_type, *shape) for shape in up))


def times(calls: dict) -> dict[str, list[float]]:
    """Return RUNS times of each call, in turn, so that a disturbance meets all of them."""
    seconds = {name: [] for name in calls}
    for _ in range(RUNS + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            jax.block_until_ready(call())
            seconds[name].append(time.perf_counter() - start)
    return {name: runs[1:] for name, runs in seconds.items()}


def compare(tensor_type: str, count: int, k: int, shared: int, ff: int) -> None:
    """Print one layer's times and their ratio against its share of touched experts."""
    rng = np.random.default_rng(0)
    experts = layer(rng, tensor_type, count, ff)
    x = jnp.asarray(rng.normal(size=(1, HIDDEN)), jnp.float32)
    logits = jnp.asarray(rng.normal(size=(1, count)), jnp.float32)
    chosen, every = route(logits, Router(count, k)), everyone(1, count)
    calls = {"chosen": lambda: run(experts, x, chosen), "all": lambda: run(experts, x, every)}
    if shared:
        always = layer(rng, tensor_type, shared, ff)
        both: Routing = everyone(1, shared)
        calls = {
            "chosen": lambda: (run(experts, x, chosen), run(always, x, both)),
            "all": lambda: (run(experts, x, every), run(always, x, both)),
        }
    runs = times(calls)
    share = (shared + k) / (shared + count)
    for what, reduce in (("best", min), ("median", np.median)):
        one, rest = (float(reduce(runs[name])) for name in ("chosen", "all"))
        print(
            f"  {tensor_type} {count}x{k}+{shared}, {what}: {one * 1e3:6.2f} ms of {rest * 1e3:6.2f} ms,"
            f" {one / rest:.3f} = {one / rest / share:.2f} times the share touched (limit 1.20)"
        )


if __name__ == "__main__":
    print(f"decode of one token, hidden {HIDDEN}")
    for tensor_type in ("Q4_0", "Q8_0", "F16"):
        for shape in LAYERS:
            compare(tensor_type, *shape)
