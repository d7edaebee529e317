"""Prices against closed forms: with coefficient 1 a term takes its bytes over its bandwidth, and nothing else."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from workbench.hardware import roofline, traffic
from workbench.hardware.roofline import PREFILL_TERMS, TERMS, Coefficients, Machine
from workbench.specs import formats

MACHINE = Machine(bandwidth=100e9, flops=10e12, spill_bandwidth=10e9)


def load(name: str = "llama-3.1-8b", quant: str = "F16") -> traffic.Load:
    model = wb.Model.preset(name)
    return traffic.load_of(model, formats.weight_bytes(model, quant))


def costs(name="llama-3.1-8b", quant="F16", context=0.0, batch=1.0, resident=1.0, machine=MACHINE):
    found = roofline.decode_costs(load(name, quant), machine, context, batch, 16.0, resident)
    return dict(zip(TERMS, (float(cost) for cost in found), strict=True))


def test_terms_and_coefficients_have_the_same_names():
    assert Coefficients._fields == (*TERMS, "machine")
    assert roofline.PrefillCoefficients._fields == (*PREFILL_TERMS, "machine")


def test_each_byte_is_priced_once():
    """Llama-3.1-8B reads 7.50 G weights at 2 B and 131,072 B of KV per token."""
    found = costs(context=8192.0)
    assert found["weights"] == pytest.approx(2 * 7.505e9 / 100e9, rel=1e-3)
    assert found["kv"] == pytest.approx(8192 * 131_072 / 100e9)
    assert found["compute"] == pytest.approx(2 * 7.505e9 / 10e12, rel=1e-3)
    assert found["attention"] == pytest.approx(32 * 4 * 8192 * 32 * 128 / 10e12)
    assert found["spill"] == 0
    assert (found["dispatch"], found["routing"], found["fixed"]) == (32e-6, 0, 1e-3)


def test_what_does_not_fit_is_read_at_the_slower_bandwidth():
    whole, half = costs(), costs(resident=0.5)
    assert half["weights"] == pytest.approx(whole["weights"] / 2)
    assert half["spill"] == pytest.approx(whole["weights"] / 2 * 10)  # 10 instead of 100 GB/s
    slow = dataclasses.replace(wb.Device.preset("rtx 4090"), link=2e9, host_bandwidth=50e9)
    assert float(roofline.machine_of(slow).spill_bandwidth) == 2e9


def test_routing_is_paid_by_layers_with_experts_only():
    """DeepSeek-V3: 61 layers, of which the first 3 are dense (config.json: first_k_dense_replace)."""
    found = costs("deepseek-v3", "Q4_K_M")
    assert (found["dispatch"], found["routing"]) == pytest.approx((61e-6, 58e-6))


@pytest.mark.parametrize("quant, bits", [("F16", 16), ("Q8_0", 8.5), ("Q4_0", 4.5)])
def test_the_ridge(quant, bits):
    """Weights and compute take equally long at B* = P b_w / (2 BW) (M03), here 100 for fp16."""
    ridge = 10e12 * bits / 8 / (2 * 100e9)
    below, above = (costs(quant=quant, batch=ridge * f) for f in (0.9, 1.1))
    assert below["weights"] > below["compute"]
    assert above["compute"] > above["weights"]


def roofline_tok_s(batch, context=0.0):
    """B / max(bytes, FLOPs): the ideal of M03, from the costs at coefficient 1."""
    found = costs(batch=batch, context=context)
    return batch / max(found["weights"] + found["kv"], found["compute"] + found["attention"])


def test_throughput_is_linear_below_the_ridge_and_flat_above():
    below = [roofline_tok_s(b) / b for b in (1.0, 10.0, 90.0)]
    above = [roofline_tok_s(b) for b in (120.0, 300.0, 1000.0)]
    np.testing.assert_allclose(below, below[0])
    np.testing.assert_allclose(above, 10e12 / (2 * 7.505e9), rtol=1e-3)


def test_long_context_bounds_throughput_whatever_the_batch():
    """X <= BW / kv(n) (M03): at 100k tokens of 131,072 B that is 7.6 tok/s."""
    speeds = [roofline_tok_s(b, context=100_000.0) for b in (8.0, 64.0, 4096.0)]
    assert speeds == sorted(speeds)
    assert speeds[-1] == pytest.approx(100e9 / (100_000 * 131_072), rel=0.01)


def test_price_multiplies_and_adds_up():
    coefficients = Coefficients(*range(1, 9), machine=2.0)
    terms = roofline.price((1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, np.ones(3)), coefficients)
    assert terms.shape == (8, 3)
    np.testing.assert_allclose(terms[:, 0], [2, 0, 6, 8, 10, 12, 14, 16])


def test_the_naive_line_is_bandwidth_over_bytes():
    """A 7B at fp16 on 100 GB/s is 13.2 GB read: 7.6 tok/s, as the usual rule of thumb has it."""
    assert float(roofline.naive_tok_s(load("llama-2-7b-hf"), MACHINE)) == pytest.approx(
        100e9 / (2 * 6.607e9), rel=1e-3
    )


@given(st.integers(1, 8192), st.integers(0, 65_536), st.integers(1, 16))
def test_prefill_terms_grow_with_the_prompt(prompt, depth, batch):
    found = [
        roofline.prefill_costs(load("qwen3-30b-a3b"), MACHINE, n, float(depth), float(batch), 16.0, 1.0, 512.0)
        for n in (float(prompt), 2.0 * prompt)
    ]  # fmt: skip
    for name, short, long in zip(PREFILL_TERMS, *found, strict=True):
        assert 0 <= float(short) <= float(long) * (1 + 1e-12), name


# What follows prices with the coefficients that ship, against measurements that they were not fitted to.


@pytest.mark.parametrize(
    "batch_gain, name, quant",
    [
        # llama.cpp benches/dgx-spark/dgx-spark.md, 512 tokens of prompt: tok/s at B = 1, 2, 4, 8
        ([29.2, 54.5, 103.6, 194.4], "qwen2.5-coder-7b", "Q8_0"),
        ([80.1, 109.7, 156.0, 271.8], "gpt-oss-20b", "MXFP4"),
    ],
)
def test_a_batch_gains_on_a_dense_model_and_little_on_a_mixture(batch_gain, name, quant):
    work = wb.Workload(prompt=512, generate=32, batch=wb.axis("batch", [1, 2, 4, 8]))
    ds = wb.predict(
        wb.Model.preset(name), wb.Device.preset("nvidia-dgx-spark-gb10"), work, quant=quant
    )
    measured = np.array(batch_gain) / batch_gain[0]
    np.testing.assert_allclose(ds.decode_tok_s / ds.decode_tok_s[0], measured, rtol=0.3)


def test_depth_curve_of_a_model_with_windows():
    """Published llama-bench runs of gpt-oss-120b MXFP4 on a DGX Spark: tg32 at depth 0 to 32k, none fitted to."""
    depths, measured = [0, 4096, 8192, 16_384, 32_768], [59.1, 55.9, 53.1, 49.5, 42.9]
    work = wb.Workload(context=wb.axis("context", [depth + 16 for depth in depths]))
    ds = wb.predict(
        wb.Model.preset("gpt-oss-120b"),
        wb.Device.preset("nvidia-dgx-spark-gb10"),
        work,
        quant="MXFP4",
    )
    assert (ds.lower <= measured).all() and (measured <= ds.upper).all()
    shape = ds.decode_tok_s / ds.decode_tok_s[0]
    np.testing.assert_allclose(shape, np.array(measured) / measured[0], rtol=0.1)


def test_apple_machines_of_a_known_build():
    """XiongjieDai/GPU-Benchmarks-on-LLM-Inference, May 2024: Llama-3-8B Q4_K_M, 1024 tokens generated (M01)."""
    measured = {
        "apple-m2-ultra-76-core-gpu": 76.3,
        "apple-m3-max-40-core-gpu": 50.7,
        "apple-m1-max-32-core-gpu": 34.5,
        "apple-m1-7-core-gpu": 9.7,
    }
    devices = [wb.Device.preset(name) for name in measured]
    work = wb.Workload(prompt=512, generate=1024, context=512)
    ds = wb.predict(wb.Model.preset("meta-llama-3-8b"), devices, work, build="2024-05")
    error = np.abs(ds.decode_tok_s / list(measured.values()) - 1)
    assert error.median() < 0.1 and error.max() < 0.3


def test_dense_against_mixture():
    """M4 Pro (llmfit community data, M55): gemma-3-27B 13.2, Qwen3-30B-A3B 70.6 tok/s: 5.3 times."""
    device = wb.Device.preset("apple-m4-pro-20-core-gpu")
    models = [wb.Model.preset(name) for name in ("gemma-3-27b-it", "qwen3-30b-a3b")]
    dense, mixture = wb.predict(models, device, wb.Workload(prompt=64)).decode_tok_s.values
    assert mixture / dense == pytest.approx(5.3, rel=0.25)


def test_time_to_first_token_of_a_measured_prefill():
    """M2 Ultra, 8B: 1024 tok/s of prefill is 16.4 TFLOP/s at work (M04), half of what it has, as on every M1 to M4."""
    ds = wb.predict(wb.Model.preset("meta-llama-3-8b"), wb.Device.preset("apple-m2-ultra-76-core-gpu"),
                    wb.Workload(prompt=1024), build="2024-05")  # fmt: skip
    assert ds.prefill_tok_s.item() == pytest.approx(1024, rel=0.25)
    assert ds.ttft_s.item() == pytest.approx(
        1024 / ds.prefill_tok_s.item() + 1 / ds.decode_tok_s.item()
    )
