"""Attention against jax.nn.dot_product_attention, naive loops in float64, and the error growth of M41."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.engine import attention
from workbench.engine.attention import Rules, decode, prefill
from workbench.errors import WorkbenchError


def tensors(tokens, capacity, heads=4, kv_heads=2, head_dim=16, seed=0):
    """Return Gaussian q (tokens, heads, head_dim) and head-major k, v."""
    rng = np.random.default_rng(seed)
    shapes = (tokens, heads, head_dim), *[(kv_heads, capacity, head_dim)] * 2
    return [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes]


def naive(q, k, v, *, start=0, length=None, sinks=None, causal=True, window=None, softcap=None):
    """Return attention in float64, one query, head and softmax at a time."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    out = np.zeros_like(q)
    for i, h in np.ndindex(q.shape[:2]):
        group = h // (q.shape[1] // k.shape[0])
        end = k.shape[1] if length is None else length
        end = min(end, start + i + 1) if causal else end
        first = max(0, start + i - window + 1) if window else 0
        scores = k[group, first:end] @ q[i, h] / np.sqrt(q.shape[2])
        scores = softcap * np.tanh(scores / softcap) if softcap else scores
        weights = np.exp(scores)
        sink = 0.0 if sinks is None else np.exp(float(sinks[h]))
        out[i, h] = weights @ v[group, first:end] / (weights.sum() + sink)
    return out


@pytest.mark.parametrize(
    "heads, kv_heads, causal, window",
    [(4, 4, True, None), (4, 2, False, None), (8, 1, True, 7), (4, 2, True, None)],
)
def test_equals_jax_nn(heads, kv_heads, causal, window):
    q, k, v = tensors(33, 33, heads, kv_heads)
    ours = prefill(q, k, v, rules=Rules(causal=causal, window=window, block=8))
    theirs = jax.nn.dot_product_attention(
        q[None], k.swapaxes(0, 1)[None], v.swapaxes(0, 1)[None], is_causal=causal,
        local_window_size=(window - 1, 0) if window else None,
    )[0]  # fmt: skip
    np.testing.assert_allclose(ours, theirs, atol=2e-6)


@pytest.mark.parametrize(
    "rule", [{}, {"window": 5}, {"softcap": 2.0}, {"causal": False}, {"window": 9, "softcap": 0.5}]
)
@pytest.mark.parametrize("sinks", [None, [0.3, -1.0, 2.0, 5.0]])
def test_equals_the_naive_loop(rule, sinks):
    q, k, v = tensors(6, 40)
    sinks = jnp.asarray(sinks, jnp.float32) if sinks else None
    at = {"start": 21, "length": 27, "sinks": sinks}
    ours = prefill(q, k, v, **at, rules=Rules(**rule, block=8))
    np.testing.assert_allclose(ours, naive(q, k, v, **at, **rule), atol=2e-6)


def test_decode_is_the_last_row_of_prefill():
    q, k, v = tensors(40, 64)
    whole = prefill(q, k, v, length=40)
    np.testing.assert_allclose(decode(q[-1], k, v, length=40), whole[-1], atol=2e-6)


def test_large_scores_do_not_overflow():
    q, k, v = tensors(4, 32)
    out = prefill(q * 1e4, k, v, start=28)
    assert np.isfinite(out).all()


@given(st.permutations(range(24)))
@settings(max_examples=20, deadline=None)
def test_the_order_of_keys_does_not_matter(order):
    q, k, v = tensors(3, 24)
    order = jnp.asarray(order)
    rules = Rules(causal=False, block=8)
    shuffled = prefill(q, k[:, order], v[:, order], rules=rules)
    np.testing.assert_allclose(shuffled, prefill(q, k, v, rules=rules), atol=2e-6)


@given(
    block=st.sampled_from([1, 7, 16, 70]),  # few, because each one is compiled
    length=st.integers(6, 60),
    window=st.sampled_from([None, 5]),
)
@settings(max_examples=25, deadline=None)
def test_the_block_size_does_not_matter(block, length, window):
    q, k, v = tensors(6, 60)
    at = {"start": length - 6, "length": length}
    ours = prefill(q, k, v, **at, rules=Rules(block=block, window=window))
    np.testing.assert_allclose(ours, naive(q, k, v, **at, window=window), atol=2e-6)


def test_what_lies_beyond_the_length_is_never_read():
    q, k, v = tensors(2, 32)
    spoiled = [x.at[:, 20:].set(jnp.inf) for x in (k, v)]
    rules = Rules(block=4)
    at = {"start": 18, "length": 20, "rules": rules}
    np.testing.assert_array_equal(prefill(q, *spoiled, **at), prefill(q, k, v, **at))


def relative_error(context, rules, seed=0):
    """Return the median error of decode with 32 heads of 128 and Gaussian q, k, v against float64."""
    q, k, v = tensors(1, context, heads=32, kv_heads=1, head_dim=128, seed=seed)
    exact = naive(q, k, v, start=context - 1)[0]
    ours = np.asarray(decode(q[0], k, v, length=context, rules=rules), np.float64)
    return np.median(np.linalg.norm(ours - exact, axis=1) / np.linalg.norm(exact, axis=1))


# M41 gives one draw's errors, which rise 200-fold; another draw stays within a factor of 1.6.
@pytest.mark.parametrize(
    "context, error",
    [(512, 0.004), (1024, 0.006), (2048, 0.033), (4096, 0.14), (8192, 0.40), (16384, 0.84)],
)
def test_a_running_fp16_sum_loses_the_tail(context, error):
    running = Rules(block=1, accumulator="float16")
    assert error / 1.6 < relative_error(context, running) < error * 1.6


@pytest.mark.parametrize("context", [512, 4096, 16384])
def test_fp32_across_fp16_blocks_keeps_the_error_flat(context):
    blocked = Rules(block=64, accumulator="float16", across="float32")
    assert relative_error(context, blocked) == pytest.approx(0.0013, rel=0.2)
    assert relative_error(context, Rules()) < 2e-4


def test_fp16_sum_of_ones_stops_at_2048():
    ones = jnp.ones((1, 1, 4096), jnp.float16)
    total, _ = attention._sums_in_order(ones, jnp.ones((1, 4096, 1), jnp.float16))
    assert total == 2048


def test_lengths_share_one_compilation():
    q, k, v = tensors(1, 128)
    decode(q[0], k, v, length=1)
    before = attention._prefill._cache_size()
    for length in (2, 17, 128):
        decode(q[0], k, v, length=length)
    assert attention._prefill._cache_size() == before


@pytest.mark.parametrize(
    "rule",
    [{"block": 0}, {"block": -3}, {"window": 0}, {"softcap": 0.0}, {"accumulator": "int8"},
     {"across": "float8"}, {"scale": float("nan")}],
)  # fmt: skip
def test_rules_that_make_no_sense(rule):
    with pytest.raises(WorkbenchError, match=next(iter(rule)).replace("across", "accumulator")):
        Rules(**rule)


@pytest.mark.parametrize(
    "change, match",
    [
        ({"heads": 3}, "3 heads cannot share 2 KV heads"),
        ({"length": 33}, "length 33"),
        ({"length": 0}, "length 0"),
        ({"start": -1}, "start -1"),
        ({"sinks": jnp.zeros(3)}, "one logit per head"),
        ({"v": jnp.zeros((2, 31, 16))}, "alike"),
        ({"q": jnp.zeros((4, 4, 8))}, "head_dim 16"),
    ],
)
def test_bad_input(change, match):
    q, k, v = tensors(4, 32, heads=change.pop("heads", 4))
    given = {"q": q, "k": k, "v": v} | change
    with pytest.raises(WorkbenchError, match=match):
        prefill(**given)
