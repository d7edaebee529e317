"""Print what paging costs: decode attention over pages of 16 tokens against the contiguous cache, interleaved."""

import time

import jax
import jax.numpy as jnp
import numpy as np

import workbench  # noqa: F401  (64-bit JAX)
from workbench.engine import kv_cache, kv_cache_paged
from workbench.engine.attention import Rules
from workbench.engine.matmul import COMPILER_OPTIONS

CONTEXT, HEADS, KV_HEADS, HEAD_DIM, PAGE = 4096, 32, 8, 128, 16  # Llama-3-8B's attention
RUNS = 41
BLOCKS = (16, 32, 64, 128)


def seconds(calls: dict) -> dict[str, list[float]]:
    """Return RUNS times of each call, in turn, so that a disturbance meets all of them."""
    times = {name: [] for name in calls}
    for call in calls.values():
        jax.block_until_ready(call())
    for _ in range(RUNS):
        for name, call in calls.items():
            start = time.perf_counter()
            jax.block_until_ready(call())
            times[name].append(time.perf_counter() - start)
    return times


def caches(format: str, rng: np.random.Generator):
    """Return a full contiguous cache, a pool with the same tokens in scattered pages, and its table."""
    k, v = (jnp.asarray(rng.normal(size=(CONTEXT, KV_HEADS, HEAD_DIM)), jnp.float32) for _ in "kv")
    cache = kv_cache.contiguous(CONTEXT, KV_HEADS, HEAD_DIM, format=format)
    pool = kv_cache_paged.pool(CONTEXT // PAGE, KV_HEADS, HEAD_DIM, page=PAGE, format=format)
    table = jnp.asarray(rng.permutation(CONTEXT // PAGE), jnp.int32)
    return kv_cache.append(cache, k, v), kv_cache_paged.append(pool, table, 0, k, v), table


def calls(format: str) -> tuple[dict, int]:
    """Return what is timed, and the bytes of keys and values that each call reads."""
    rng = np.random.default_rng(0)
    cache, pool, table = caches(format, rng)
    q = jnp.asarray(rng.normal(size=(1, HEADS, HEAD_DIM)), jnp.float32)
    # As inside a decoder, whose outer jit sets the options.
    contiguous = jax.jit(
        kv_cache.attend, static_argnames="rules", compiler_options=COMPILER_OPTIONS
    )
    paged = jax.jit(
        kv_cache_paged.attend, static_argnames="rules", compiler_options=COMPILER_OPTIONS
    )
    length = jnp.int32(CONTEXT)
    whole = Rules(block=CONTEXT)  # the contiguous cache as it lies, in one dot
    timed = {f"contiguous {CONTEXT}": lambda: contiguous(cache, q, rules=whole)}
    for rules in map(lambda block: Rules(block=block), BLOCKS):
        timed[f"contiguous {rules.block}"] = lambda r=rules: contiguous(cache, q, rules=r)
        timed[f"paged {rules.block}"] = lambda r=rules: paged(pool, table, length, q, rules=r)
    return timed, sum(part.nbytes for part in (*cache.k, *cache.v))


def main() -> None:
    """Print times by block of the online softmax, and the ratio of the best of both."""
    print(f"decode, {CONTEXT} tokens, {HEADS} heads over {KV_HEADS} of {HEAD_DIM}, pages of {PAGE}")
    for format in ("float16", "float32", "bfloat16", "q8_0", "q4_0"):
        timed, size = calls(format)
        times = seconds(timed)
        for name, runs in times.items():
            best, middle = min(runs), float(np.median(runs))
            print(
                f"  {format:9} {name:16} best {best * 1e3:6.2f} ms, median {middle * 1e3:6.2f} ms,"
                f" {size / best / 1e9:5.1f} GB/s"
            )
        for what, reduce in (("best", min), ("median", np.median)):
            reduced = {name: reduce(runs) for name, runs in times.items()}
            best = [
                min(t for name, t in reduced.items() if name.startswith(kind))
                for kind in ("contiguous", "paged")
            ]
            print(f"  {format:9} paged / contiguous, {what}: {best[1] / best[0]:.2f} (limit 1.15)")


if __name__ == "__main__":
    main()
