"""Every cache against plain attention over the same tokens, and its report against counting by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.engine import kv_cache, kv_cache_paged, streaming
from workbench.engine.attention import Rules, prefill
from workbench.engine.kv_cache_formats import decode, encode
from workbench.engine.kv_cache_paged import Tables
from workbench.engine.rope import Rope, rotate
from workbench.errors import WorkbenchError

HEADS, KV_HEADS, HEAD_DIM = 4, 2, 32
RULES = Rules(block=8)


def tokens(count, seed=0):
    """Return Gaussian q (tokens, heads, head_dim) and k, v (tokens, kv_heads, head_dim)."""
    rng = np.random.default_rng(seed)
    shapes = (count, HEADS, HEAD_DIM), *[(count, KV_HEADS, HEAD_DIM)] * 2
    return [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes]


def exact(q, k, v, rules=RULES):
    """Return attention of the last tokens over all of k, v."""
    k, v = k.swapaxes(0, 1), v.swapaxes(0, 1)
    return prefill(q, k, v, start=k.shape[1] - q.shape[0], rules=rules)


@pytest.mark.parametrize("layout", ["head-major", "token-major"])
@pytest.mark.parametrize("capacity", [20, 24, 45])
def test_contiguous_in_two_appends(layout, capacity):
    q, k, v = tokens(20)
    cache = kv_cache.contiguous(capacity, KV_HEADS, HEAD_DIM, layout=layout, format="float32")
    cache = kv_cache.append(cache, k[:13], v[:13])
    cache = kv_cache.append(cache, k[13:], v[13:])
    out = kv_cache.attend(cache, q[13:], rules=RULES)
    np.testing.assert_allclose(out, exact(q[13:], k, v), atol=2e-6)


# Relative error of a uniform code with Gaussian values: half a step over the root of 12.
@pytest.mark.parametrize(
    "format, bits, error",
    [("float32", 32, 0), ("float16", 16, 3e-4), ("bfloat16", 16, 3e-3), ("q8_0", 8.5, 0.008),
     ("q4_0", 4.5, 0.12)],
)  # fmt: skip
def test_formats_cost_bits_and_lose_little(format, bits, error):
    q, k, v = tokens(64)
    cache = kv_cache.contiguous(64, KV_HEADS, HEAD_DIM, format=format)
    cache = kv_cache.append(cache, k, v)
    assert sum(x.nbytes for x in cache.k) == KV_HEADS * 64 * HEAD_DIM * bits / 8
    loss = jnp.linalg.norm(decode(cache.k, format).astype(jnp.float32) - k.swapaxes(0, 1))
    assert loss / jnp.linalg.norm(k) <= error
    out = kv_cache.attend(cache, q[-1:], rules=RULES)
    np.testing.assert_allclose(out, exact(q[-1:], k, v), atol=4 * error + 2e-6)


@pytest.mark.parametrize("format, kind", [("q8_0", "Q8_0"), ("q4_0", "Q4_0")])
def test_codes_are_those_of_gguf(format, kind):
    """gguf's blocks are a float16 scale followed by the codes."""
    import gguf

    x = np.random.default_rng(5).normal(size=(6, 64)).astype(np.float32)
    raw = gguf.quants.quantize(x, gguf.GGMLQuantizationType[kind])
    theirs = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[kind])
    ours = decode(encode(jnp.asarray(x), format), format)
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_quantised_zeros_stay_zero():
    zeros = jnp.zeros((2, 32), jnp.float32)
    for format in ("q8_0", "q4_0"):
        np.testing.assert_array_equal(decode(encode(zeros, format), format), zeros)


def paged(order, k, v, page=4, spare=3, format="float32"):
    """Return a pool that holds k, v in the pages of `order`, and the table."""
    pool = kv_cache_paged.pool(len(order) + spare, KV_HEADS, HEAD_DIM, page=page, format=format)
    table = jnp.asarray(order, jnp.int32)
    half = k.shape[0] // 2
    pool = kv_cache_paged.append(pool, table, 0, k[:half], v[:half])
    return kv_cache_paged.append(pool, table, half, k[half:], v[half:]), table


@given(st.permutations(range(9)))
@settings(max_examples=20, deadline=None)
def test_any_allocation_order_gives_the_same_output(order):
    q, k, v = tokens(33)
    pool, table = paged(order, k, v)
    out = kv_cache_paged.attend(pool, table, 33, q[-3:], rules=RULES)
    np.testing.assert_allclose(out, exact(q[-3:], k, v), atol=2e-6)


@pytest.mark.parametrize("format", ["float16", "q8_0"])
def test_paged_equals_contiguous_in_every_format(format):
    q, k, v = tokens(33)
    pool, table = paged([5, 0, 3, 8, 1, 2, 9, 7, 4], k, v, format=format)
    cache = kv_cache.contiguous(36, KV_HEADS, HEAD_DIM, format=format)
    cache = kv_cache.append(cache, k, v)
    np.testing.assert_array_equal(
        kv_cache_paged.attend(pool, table, 33, q[-1:], rules=RULES),
        kv_cache.attend(cache, q[-1:], rules=RULES),
    )


def test_a_batch_of_sequences_is_a_vmap():
    q, k, v = tokens(33)
    pool, table = paged([5, 0, 3, 8, 1, 2, 9, 7, 4], k, v)
    tables, lengths = jnp.stack([table, table]), jnp.asarray([33, 18], jnp.int32)
    queries = jnp.stack([q[32:33], q[17:18]])
    attend = jax.vmap(lambda t, n, x: kv_cache_paged.attend(pool, t, n, x, rules=RULES))
    out = attend(tables, lengths, queries)
    np.testing.assert_allclose(out[0], exact(q[32:33], k, v), atol=2e-6)
    np.testing.assert_allclose(out[1], exact(q[17:18], k[:18], v[:18]), atol=2e-6)


def test_lengths_within_a_bucket_share_one_compilation():
    q, k, v = tokens(33)
    pool, table = paged(list(range(9)), k, v)
    cache = kv_cache.append(kv_cache.contiguous(36, KV_HEADS, HEAD_DIM), k[:2], v[:2])
    counters = kv_cache._append, kv_cache._attend, kv_cache_paged._append, kv_cache_paged._attend
    before = None
    for length in range(3, 12):
        cache = kv_cache.append(cache, k[:1], v[:1])
        kv_cache.attend(cache, q[:1])
        pool = kv_cache_paged.append(pool, table[::-1], length, k[:1], v[:1])
        kv_cache_paged.attend(pool, table, length, q[:1])
        before = before or [f._cache_size() for f in counters]
    assert [f._cache_size() for f in counters] == before


def test_prefix_of_full_blocks_is_shared():
    """A 14-token prompt that shares 10 tokens finds 8 cached at 4 to a page (vLLM's prefix caching notes)."""
    tables = Tables(pages=12, page=4)
    assert tables.admit(0, list(range(12))) == 0
    assert tables.admit(1, [*range(10), 90, 91, 92, 93]) == 8
    assert tables.blocks[0][:2] == tables.blocks[1][:2]
    assert tables.blocks[0][2] not in tables.blocks[1]
    tables.release(0)
    assert tables.admit(2, [*range(8), 70]) == 8  # sequence 1 still holds them
    tables.release(1)
    tables.release(2)
    assert sorted(tables.free) == list(range(12)) and not tables.users and not tables._known


def test_the_last_token_is_always_computed():
    tables = Tables(pages=8, page=4)
    tables.admit(0, list(range(8)))
    assert tables.admit(1, list(range(8))) == 4


def test_shared_pages_serve_both():
    q, k, v = tokens(12)
    tables = Tables(pages=8, page=4)
    pool = kv_cache_paged.pool(8, KV_HEADS, HEAD_DIM, page=4, format="float32")
    tables.admit(0, list(range(12)))
    pool = kv_cache_paged.append(pool, tables.table(0, 4), 0, k, v)
    cached = tables.admit(1, [*range(10), 50, 51])
    _, k2, v2 = tokens(12 - cached, seed=7)
    pool = kv_cache_paged.append(pool, tables.table(1, 4), cached, k2, v2)
    for sequence, keys, values in ((0, k, v), (1, [*k[:8], *k2], [*v[:8], *v2])):
        out = kv_cache_paged.attend(pool, tables.table(sequence, 4), 12, q[-1:], rules=RULES)
        keys, values = jnp.stack(list(keys)), jnp.stack(list(values))
        np.testing.assert_allclose(out, exact(q[-1:], keys, values), atol=2e-6)


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_pages_are_never_lost_nor_given_twice(data):
    tables = Tables(pages=10, page=3)
    for sequence in range(12):
        prompt = data.draw(st.lists(st.integers(0, 1), min_size=1, max_size=12))
        try:
            tables.admit(sequence, prompt)
        except WorkbenchError:
            assert sequence not in tables.tokens
        if tables.tokens and data.draw(st.booleans()):
            tables.release(data.draw(st.sampled_from(sorted(tables.tokens))))
        held = [page for blocks in tables.blocks.values() for page in blocks]
        assert {p: held.count(p) for p in set(held)} == tables.users
        assert sorted([*tables.free, *tables.users]) == list(range(10))


# M35: lognormal lengths with mean 357 and cap 2048; wasted share by tokens to a page.
@pytest.mark.parametrize("page, waste", [(16, 0.020), (32, 0.041), (128, 0.149), (256, 0.267)])
def test_fragmentation_of_m35(page, waste):
    rng = np.random.default_rng(3)
    lengths = np.clip(np.exp(rng.normal(np.log(357) - 0.5, 1.0, 4000)), 1, 2048).astype(int)
    lengths = (lengths * 357 / lengths.mean()).round().astype(int).clip(1)
    tables = Tables(pages=int((-(-lengths // page)).sum()), page=page)
    for sequence, length in enumerate(lengths):
        tables.admit(sequence, [sequence] * length)
    pool = kv_cache_paged.pool(tables.pages, 1, 1, page=page)
    assert float(tables.report(pool).fragmentation) == pytest.approx(waste, rel=0.12)


def test_contiguous_runs_of_m13():
    """16 tokens of 32 heads of 128 in fp16: 4 KiB a head if head-major, 128 KiB together if token-major."""
    k = jnp.zeros((16, 32, 128), jnp.float32)
    for layout, reader, run in (
        ("head-major", "one head", 4096),
        ("token-major", "all heads", 131072),
        ("token-major", "one head", 256),
    ):
        cache = kv_cache.contiguous(16, 32, 128, layout=layout)
        ds = kv_cache.report(kv_cache.append(cache, k, k))
        assert ds.run_bytes.sel(reader=reader).item() == run
        assert ds.fragmentation == 0 and ds.used_bytes.attrs["units"] == "byte"


def test_paged_runs():
    tables = Tables(pages=8, page=16)
    tables.admit(0, list(range(48)))
    pool = kv_cache_paged.pool(8, 32, 128)
    ds = tables.report(pool)
    assert ds.run_bytes.sel(reader="one head").item() == 4096
    assert ds.run_bytes.sel(reader="all heads").item() == 3 * 131072  # neighbouring pages join
    assert ds.reserved_bytes.item() == 2 * 48 * 32 * 128 * 2


def stream(count, window, sinks):
    q, k, v = tokens(count)
    cache = streaming.streaming(window, KV_HEADS, HEAD_DIM, sinks=sinks, format="float32")
    for i in range(count):
        cache = streaming.append(cache, k[i : i + 1], v[i : i + 1])
    return q, k, v, cache


@pytest.mark.parametrize("count", [3, 10, 11, 17, 26])
@pytest.mark.parametrize("window, sinks", [(6, 4), (10, 0), (7, 1)])
def test_streaming_keeps_sinks_and_window(count, window, sinks):
    q, k, v, cache = stream(count, window, sinks)
    rope = Rope(HEAD_DIM)
    kept = [i for i in range(count) if i < sinks or i >= count - window]
    at = jnp.arange(len(kept), dtype=jnp.int32)
    chosen = jnp.asarray(kept)
    keys = rotate(k[chosen], at, rope)
    query = rotate(q[-1:], at[-1:], rope)
    out = streaming.attend(cache, q[-1:], rope, rules=RULES)
    np.testing.assert_allclose(out, exact(query, keys, v[chosen]), atol=2e-6)


def test_streaming_memory_does_not_grow():
    reports = [streaming.report(stream(count, 6, 4)[3]) for count in (10, 23)]
    assert reports[0].reserved_bytes == reports[1].reserved_bytes == reports[1].used_bytes


@pytest.mark.parametrize(
    "call, match",
    [
        (lambda: kv_cache.contiguous(0, 2, 32), "capacity is 0"),
        (lambda: kv_cache.contiguous(8, 2, 32, layout="diagonal"), "layout"),
        (lambda: kv_cache.contiguous(8, 2, 32, format="q3"), "KV format"),
        (lambda: kv_cache.contiguous(8, 2, 24, format="q8_0"), "head_dim 24"),
        (lambda: kv_cache_paged.pool(8, 2, 32, page=0), "page is 0"),
        (lambda: Tables(pages=2, page=0), "page is 0"),
        (lambda: Tables(pages=2, page=4).admit(0, []), "needs a prompt"),
        (lambda: Tables(pages=2, page=4).admit(0, list(range(9))), "3 more pages: 2 are free"),
        (lambda: Tables(pages=2, page=4).extend(7, [1]), "not live"),
        (lambda: Tables(pages=2, page=4).release(7), "not live"),
        (lambda: streaming.streaming(0, 2, 32), "window is 0"),
        (lambda: streaming.streaming(4, 2, 32, sinks=-1), "sinks"),
    ],
)
def test_bad_sizes(call, match):
    with pytest.raises(WorkbenchError, match=match):
        call()


def test_no_room():
    _, k, v = tokens(9)
    cache = kv_cache.contiguous(8, KV_HEADS, HEAD_DIM)
    with pytest.raises(WorkbenchError, match="holds 8"):
        kv_cache.append(cache, k, v)
    cache = kv_cache.append(cache, k[:7], v[:7])
    with pytest.raises(WorkbenchError, match="2 more tokens after 7"):
        kv_cache.append(cache, k[:2], v[:2])
    with pytest.raises(WorkbenchError, match="KV heads"):
        kv_cache.attend(cache, jnp.zeros((1, 3, HEAD_DIM), jnp.float32))
    with pytest.raises(WorkbenchError, match="length 0"):
        kv_cache.attend(kv_cache.contiguous(8, KV_HEADS, HEAD_DIM), k.repeat(2, 1)[:1])
