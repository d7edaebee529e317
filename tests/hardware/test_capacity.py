"""Budgets against what machines were seen to allow, and the longest context against the memory it fills (M22, M34)."""

import dataclasses

import jax
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import workbench as wb
from workbench.hardware import capacity, traffic
from workbench.specs import formats
from workbench.units import GiB, parse

MODELS = ("llama-3.1-8b", "qwen3-30b-a3b", "gemma-3-27b-it", "deepseek-v3", "qwen3-next-80b-a3b-instruct",
          "gemma-3-270m-it", "granite-4.0-h-small", "gpt-oss-120b")  # fmt: skip
models = st.sampled_from(MODELS)
sizes = st.floats(1, 1024).map(lambda gib: gib * GiB)


def load(name: str, quant: str = "Q4_K_M") -> traffic.Load:
    model = wb.Model.preset(name)
    return traffic.load_of(model, formats.weight_bytes(model, quant))


def usable(name: str, memory: str) -> float:
    return float(capacity.budget_of(wb.Device.preset(name, memory=memory)).usable)


@pytest.mark.parametrize(
    "device, memory, limit, tolerance",
    [
        ("apple-m4-10-core-gpu", "16 GB", "10.67 GB", 0.001),  # llmfit PR #754
        ("apple-m4-10-core-gpu", "32 GB", "21.3 GB", 0.005),
        ("apple-m4-max-40-core-gpu", "128 GiB", "107.5 GiB", 0.12),  # ds4 #893: above the usual 3/4
    ],
)
def test_what_macos_lets_the_gpu_have(device, memory, limit, tolerance):
    assert usable(device, memory) == pytest.approx(parse(limit, "byte", "limit"), rel=tolerance)


def test_an_explicit_limit_overrides_the_rule():
    device = wb.Device.preset("apple-m4-10-core-gpu", memory="32 GiB")
    assert float(capacity.budget_of(device, 28 * GiB).usable) == 28 * GiB


def test_a_card_keeps_little_for_itself_and_an_apu_shares():
    assert 0.93 * 24 * GiB < usable("rtx 4090", "24 GiB") < 24 * GiB
    assert 64 * GiB < usable("ryzen ai max+ 395", "128 GiB") < 128 * GiB


def test_a_board_holds_what_it_was_seen_to_run():
    """A Raspberry Pi 400 of 4 GB decodes Llama 3.2 3B in Q4_K_M at 1.6 token/s (geerlingguy/ai-benchmarks)."""
    found = wb.predict(
        wb.Model.preset("llama-3.2-3b"),
        wb.Device.preset("raspberry-pi-400"),
        wb.Workload(context=2048),
        quant="Q4_K_M",
        engine="ollama",
    )
    assert found.fits


@pytest.mark.parametrize(
    "name, quant, gigabytes, fits",
    [
        ("mixtral-8x7b-v0.1", "Q4_K_M", (26, 28.5), False),
        ("gemma-3-27b-it", "Q4_K_M", (16.4, 16.7), True),
        ("gemma-3-27b-it", "FP8", (26.9, 28.5), False),
    ],
)
def test_what_fits_a_mac_of_32_gb(name, quant, gigabytes, fits):
    """Mechanism M22: file sizes as published by those who quantised them."""
    device = wb.Device.preset("apple-m4-10-core-gpu", memory="32 GB")
    ds = wb.predict(wb.Model.preset(name), device, wb.Workload(context=2048), quant=quant)
    assert gigabytes[0] <= ds.file_bytes.item() / 1e9 <= gigabytes[1]
    assert ds.fits.item() is fits


def test_memory_by_kind():
    """Llama-3.1-8B at 8192 tokens of fp16 cache needs 1 GiB for it, at q8_0 8.5/16 of that."""
    loaded = load("llama-3.1-8b")
    kinds = dict(
        zip(capacity.KINDS, capacity.memory(loaded, 8192.0, 1.0, 16.0, 512.0, 3e8), strict=True)
    )
    assert float(kinds["kv"]) == GiB
    assert float(kinds["weights"]) == pytest.approx(
        4.58 * GiB, rel=0.08
    )  # llama.cpp's table, embedding aside
    assert kinds["runtime"] == 3e8
    quantised = capacity.memory(loaded, 8192.0, 3.0, 8.5, 512.0, 3e8)
    assert float(quantised[1]) == pytest.approx(3 * GiB * 8.5 / 16)


@given(models, sizes, st.integers(1, 32), st.sampled_from([4.5, 8.5, 16.0, 32.0]))
def test_the_longest_context_fits_and_more_does_not(name, room, batch, kv_bits):
    loaded = load(name)
    needed = capacity.memory(loaded, 0.0, float(batch), kv_bits, 512.0, 3e8)
    longest = float(capacity.max_context(loaded, needed, room, float(batch), kv_bits))
    assume(0 < longest < 2**40)

    def total(tokens: float) -> float:
        return float(sum(capacity.memory(loaded, tokens, float(batch), kv_bits, 512.0, 3e8)))

    assert total(longest) <= room * (1 + 1e-12)
    assert total(longest + 256) > room


@given(models, sizes)
def test_weights_that_do_not_fit_leave_no_context(name, room):
    loaded = load(name)
    needed = capacity.memory(loaded, 0.0, 1.0, 16.0, 512.0, 3e8)
    longest = float(capacity.max_context(loaded, needed, room, 1.0, 16.0))
    assert (longest == 0) if room < float(needed[0] + needed[2] + needed[3]) else longest >= 0


@given(models, sizes, st.integers(0, 200_000))
def test_resident_share(name, room, context):
    loaded = load(name)
    needed = capacity.memory(loaded, float(context), 1.0, 16.0, 512.0, 3e8)
    share = float(capacity.resident_share(loaded, needed, room))
    assert 0 <= share <= 1
    assert (share == 1) == (float(sum(needed)) <= room * (1 + 1e-12)) or share > 1 - 1e-9
    assert share * float(needed[0]) <= max(room - float(sum(needed[1:])), 0) * (1 + 1e-12)


def test_the_budget_has_a_gradient():
    """Elasticities need d usable / d memory: the share that macOS allows."""
    device = dataclasses.replace(wb.Device.preset("apple-m4-10-core-gpu"), memory=32.0 * GiB)
    slope = jax.grad(lambda d: capacity.budget_of(d).usable)(device).memory
    assert float(slope) == pytest.approx(2 / 3, rel=1e-3)
