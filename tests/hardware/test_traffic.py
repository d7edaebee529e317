"""Counts against the papers' own sizes, published caches and the arithmetic of mechanisms M01, M34, M46, M54."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from workbench import data
from workbench.hardware import traffic
from workbench.specs import formats

NAMES = ("llama-3.1-8b", "qwen3-30b-a3b", "gemma-3-27b-it", "deepseek-v3", "gpt-oss-20b",
         "qwen3-next-80b-a3b-instruct", "gemma-3-270m-it", "llama-2-7b-hf")  # fmt: skip
loads = st.builds(
    lambda name, quant: load(name, quant),
    st.sampled_from(NAMES),
    st.sampled_from(["F16", "Q8_0", "Q4_K_M"]),
)
tokens = st.integers(0, 200_000)
batches = st.integers(1, 512)


def load(name: str, quant: str = "F16") -> traffic.Load:
    model = wb.Model.preset(name)
    return traffic.load_of(model, formats.weight_bytes(model, quant))


@pytest.mark.parametrize(
    "experts, top_k, tokens, distinct",
    [
        (8, 2, [1, 2, 4, 8], [2, 3.5, 5.47, 7.2]),
        (128, 8, [1, 4, 16, 64], [8, 29, 82, 126]),
        (64, 64, [1, 5], [64, 64]),
    ],
)
def test_distinct_experts_of_a_batch(experts, top_k, tokens, distinct):
    """E (1 - (1 - K/E)^B): mechanism M54, values for Mixtral and Qwen3-MoE."""
    touched = experts * traffic.experts_touched(experts, top_k, np.array(tokens, dtype=float))
    np.testing.assert_allclose(touched, distinct, rtol=0.006)


def test_distinct_experts_agree_with_drawing_them():
    """128 experts, 8 drawn without replacement by each of 16 tokens that choose independently."""
    rng = np.random.default_rng(7)
    scores = rng.random((2000, 16, 128))
    chosen = np.argsort(scores, axis=-1)[..., :8].reshape(2000, -1)
    mean = np.mean([len(set(row)) for row in chosen])
    assert 128 * float(traffic.experts_touched(128.0, 8.0, 16.0)) == pytest.approx(mean, rel=0.005)


def test_a_dense_model_has_no_experts_to_touch():
    assert float(traffic.experts_touched(0.0, 0.0, 8.0)) == 0.0


@pytest.mark.parametrize(
    "name, per_token",
    [
        ("llama-2-7b-hf", 524_288),  # 2 x 32 layers x 32 heads x 128 x 2 B
        ("meta-llama-3-8b", 131_072),  # 8 KV heads
        ("mixtral-8x7b-v0.1", 131_072),
        ("qwen2.5-7b-instruct", 57_344),  # 28 layers, 4 KV heads
        ("gemma-3-27b-it", 507_904),  # 62 layers, 16 KV heads, before any window is full
    ],
)
def test_kv_bytes_of_the_first_token(name, per_token):
    assert float(traffic.kv_bytes(load(name), 1.0, 16.0)) == per_token


def test_windows_bound_the_cache():
    """Gemma 3 (report, section 2): 5 of 6 layers see 1024 tokens only, so 52 of 62 layers stop growing."""
    gemma = load("gemma-3-27b-it")
    sizes = [float(traffic.kv_bytes(gemma, n, 16.0)) for n in (1024.0, 1025.0, 32_768.0)]
    full = 507_904 * 10 / 62
    assert sizes[1] - sizes[0] == pytest.approx(full)
    assert sizes[2] == pytest.approx(1024 * 507_904 + (32_768 - 1024) * full)


def test_slope_of_a_measured_cache():
    """antirez/ds4 speed-bench/m2_ultra.csv: 13,764 B per token: 32-bit elements and a 32-bit token id."""
    rows = data.rows("kv_measured.csv")
    context, size = (np.array([float(r[k]) for r in rows]) for k in ("context", "kv_bytes"))
    slope = np.polyfit(context, size, 1)[0]
    assert slope == pytest.approx(13_764)
    model = load("deepseek-v4-flash")
    ours = np.diff([float(traffic.kv_bytes(model, n, 32.0)) for n in (2048.0, 65_536.0)])
    assert ours.item() / (65_536 - 2048) == pytest.approx(slope - 4)


@pytest.mark.parametrize(
    "name, total, active",
    [("mixtral-8x7b-v0.1", 46.703e9, 12.880e9), ("qwen1.5-moe-a2.7b", 14.316e9, 2.689e9)],
)
def test_parameters_of_a_mixture(name, total, active):
    """Mechanism M46; a step at batch 1 streams the active ones, but looks up its embedding row."""
    model, counted = wb.Model.preset(name), load(name)
    assert float(counted.file_bytes) / 2 == pytest.approx(total, rel=1e-3)  # norms take 32 bits
    embedding = float(model.vocab * model.hidden)
    step = traffic.decode(counted, 0.0, 1.0, 16.0)
    assert float(step.weight_bytes) / 2 == pytest.approx(active - embedding, rel=2e-3)
    assert float(step.flops) / 2 == pytest.approx(active - embedding, rel=2e-3)


@pytest.mark.parametrize("quant, bits", [("F16", 16), ("Q8_0", 8.5), ("4-bit", 4.5)])
def test_arithmetic_intensity_of_decode(quant, bits):
    """2 FLOP per weight over its bytes: 1 FLOP/B at fp16, 4 at int4 (M01), 3.6 with the scales of int4."""
    step = traffic.decode(load("llama-3.1-8b", quant), 0.0, 1.0, 16.0)
    assert float(step.flops / step.weight_bytes) == pytest.approx(2 * 8 / bits, rel=0.05)


def test_decode_attention_flops():
    """4 n H d_h per layer (M01): Llama-3.1-8B has 32 layers of 32 heads of 128."""
    step = traffic.decode(load("llama-3.1-8b"), 1000.0, 3.0, 16.0)
    assert float(step.attention_flops) == 3 * 32 * 4 * 1000 * 32 * 128


def test_causal_prefill_is_half_of_the_square():
    """2 n^2 H d_h per layer for both products with a causal mask (M04), 2 N n for the weights."""
    n, model = 4096.0, wb.Model.preset("llama-3.1-8b")
    step, expert_flops = traffic.prefill(load("llama-3.1-8b"), n, 0.0, 1.0, 16.0, 512.0)
    assert float(step.attention_flops) == 32 * 2 * n**2 * 32 * 128
    head = float(model.vocab * model.hidden)
    body = float(model.total_params) - 2 * head
    assert float(step.flops) == pytest.approx(2 * body * n + 2 * head)
    assert float(expert_flops) == 0


def test_prefill_streams_the_weights_once_per_ubatch():
    step = [traffic.prefill(load("llama-3.1-8b"), n, 0.0, 1.0, 16.0, 512.0)[0].weight_bytes
            for n in (1.0, 512.0, 513.0, 2048.0)]  # fmt: skip
    np.testing.assert_allclose(np.array(step) / float(step[0]), [1, 1, 2, 4])


def test_a_tied_embedding_is_streamed_and_an_untied_one_looked_up():
    """Gemma 3 270M has 268 M parameters, 168 M of them an embedding that is the output head too."""
    tied = load("gemma-3-270m-it")
    assert float(tied.dense_bytes) / 2 == pytest.approx(268e6, rel=0.01)
    untied = load("llama-3.1-8b")
    assert float(untied.file_bytes - untied.dense_bytes) == pytest.approx(128_256 * 4096 * 2)


@given(loads, tokens, batches, st.sampled_from([4.5, 8.5, 16.0]))
def test_a_batch_shares_weights_and_nothing_else(loaded, context, batch, kv_bits):
    one = traffic.decode(loaded, float(context), 1.0, kv_bits)
    many = traffic.decode(loaded, float(context), float(batch), kv_bits)
    assert float(one.weight_bytes) <= float(many.weight_bytes) * (1 + 1e-12)
    assert float(many.weight_bytes) <= float(loaded.dense_bytes + loaded.expert_bytes) * (1 + 1e-12)
    for field in ("kv_bytes", "flops", "attention_flops"):
        assert float(getattr(many, field)) == pytest.approx(batch * float(getattr(one, field)))


@given(loads, st.integers(1, 8192), tokens, tokens)
def test_more_context_is_never_less_traffic(loaded, prompt, one, other):
    less, more = (float(n) for n in sorted((one, other)))
    for a, b in (
        (traffic.decode(loaded, less, 1.0, 16.0), traffic.decode(loaded, more, 1.0, 16.0)),
        (traffic.prefill(loaded, prompt, less, 1.0, 16.0, 512.0)[0],
         traffic.prefill(loaded, prompt, more, 1.0, 16.0, 512.0)[0]),
    ):  # fmt: skip
        assert all(float(x) <= float(y) for x, y in zip(a, b, strict=True))


@given(loads)
def test_what_is_streamed_and_what_is_resident_is_in_the_file(loaded):
    step = traffic.decode(loaded, 0.0, 1.0, 16.0)
    assert 0 < float(step.weight_bytes) <= float(loaded.resident_bytes) * (1 + 1e-12)
    assert float(loaded.resident_bytes) <= float(loaded.file_bytes) * (1 + 1e-12)
