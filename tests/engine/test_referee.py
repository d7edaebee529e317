"""The count against the run: FLOPs that XLA sees in the step, and bytes of the arrays it is given.

Counted by `traffic`: 2 FLOPs a weight and token for each matrix and norm, and for each cached element
and query head 2 for the score and 2 for the sum. XLA counts rotations, softmax, activations and
residuals too, which are well under 1 % at this width.

XLA's analysis sees the body of a loop once. So layers and blocks of rows are unrolled for it,
attention has one block of keys, and of the loop over chosen experts the body is analysed alone and
added for the other rounds. Weights are float32, because taking codes apart counts as arithmetic.
Of a batch through experts, the run multiplies whole tiles of 8 rows: more than is counted, on purpose.
"""

from functools import partial

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from workbench.engine import decoder, moe_experts
from workbench.engine.loading import load
from workbench.engine.loading_tiny import tiny
from workbench.hardware import traffic
from workbench.specs.gguf import load_model

LAYERS, HIDDEN, EQUAL = 1, 1024, pytest.approx(1, abs=0.01)


@pytest.fixture(scope="module", params=["llama", "qwen3", "mixtral", "qwen3moe"])
def loaded(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("referee") / f"{request.param}.gguf"
    tiny(path, request.param, quant="F32", layers=LAYERS, hidden=HIDDEN)
    model = load_model(path)
    path_decoder = load(path)
    path.unlink()
    return path_decoder, traffic.load_of(model, model.stored_bytes)


def unrolled(weights, cache, tokens, start, arch):
    """The decode step, its layers one after the other."""

    def loop(first, end, body, state):
        for layer in range(arch.layers):
            state = body(jnp.int32(layer), state)
        return state

    x, cache = decoder.forward(weights, cache, tokens, start, arch, loop)
    return decoder.matmul(weights.head, x[:, -1]), cache


def flops(function, *args, **static) -> float:
    lowered = jax.jit(function, static_argnames=tuple(static)).lower(*args, **static)
    return lowered.cost_analysis()["flops"]


def step_flops(loaded, batch: int, context: int) -> float:
    """Return what XLA counts in one decode step, all experts of a token included."""
    weights, arch = loaded.weights, loaded.arch
    cache = decoder.empty_cache(arch, batch, context)
    tokens = jnp.ones((batch, 1), jnp.int32)
    start = jnp.full(batch, context - 1, jnp.int32)
    counted = flops(unrolled, weights, cache, tokens, start, arch=arch)
    if arch.experts:
        (experts,) = weights.experts.kinds
        x = jnp.ones((1, arch.hidden), jnp.float32)
        one = flops(moe_experts._ffn, experts, jnp.int32(0), x)
        counted += arch.layers * (arch.top_k - 1) * one
    return counted


@pytest.mark.parametrize("context", [32, 128])
@pytest.mark.parametrize("batch", [1, 4])
def test_flops_are_xlas(loaded, batch, context, monkeypatch):
    decoder_, load_ = loaded
    if decoder_.arch.experts and batch > 1:
        pytest.skip("tiles of 8 rows: see above")
    monkeypatch.setattr(lax, "scan", partial(lax.scan, unroll=True))
    monkeypatch.setattr(decoder, "CACHE_DTYPE", jnp.float32)  # no conversion to count
    counted = traffic.decode(load_, context, batch, 32)
    ratio = step_flops(decoder_, batch, context) / float(counted.flops + counted.attention_flops)
    assert ratio == EQUAL


def held(loaded) -> tuple[int, int]:
    """Return the bytes of the arrays that every step reads, and of those of all experts."""
    weights = loaded.weights
    experts = sum(leaf.nbytes for leaf in jax.tree.leaves(weights.experts))
    unread = weights.embedding.nbytes if weights.head is not None else 0  # rows are looked up
    return weights.nbytes - unread - experts, experts


def test_weight_bytes_are_the_arrays(loaded):
    decoder_, load_ = loaded
    dense, experts = held(decoder_)
    arch = decoder_.arch
    touched = experts * arch.top_k / arch.experts if arch.experts else 0
    counted = float(traffic.decode(load_, 0, 1, 16).weight_bytes)
    assert (dense + touched) / counted == EQUAL


@pytest.mark.parametrize("quant", ["F16", "Q8_0", "Q4_0"])
def test_packed_bytes_are_the_files(quant, tmp_path):
    """Q4_K is not among them: its 6-bit scales are widened to 8, which makes 6 % more."""
    path = tiny(tmp_path / "packed.gguf", "llama", quant=quant, layers=1, hidden=512)
    model = load_model(path)
    load_ = traffic.load_of(model, model.stored_bytes)
    assert held(load(path))[0] / float(load_.dense_bytes) == EQUAL


@pytest.mark.parametrize("context", [32, 4096])
@pytest.mark.parametrize("batch", [1, 4])
def test_kv_bytes_are_the_cache(loaded, batch, context):
    decoder_, load_ = loaded
    cache = decoder.empty_cache(decoder_.arch, batch, context)
    counted = traffic.decode(load_, context, batch, 16).kv_bytes
    assert cache.k.nbytes + cache.v.nbytes == float(counted)
