"""The ledger holds together: its numbers follow from its terms, for one configuration as for many."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from workbench.hardware import capacity, ledger, roofline, traffic
from workbench.hardware.roofline import PREFILL_TERMS, TERMS, Coefficients, PrefillCoefficients
from workbench.specs import formats

UNIT = (Coefficients(*np.ones(9)), PrefillCoefficients(*np.ones(9)))
WORK = {"context": 4096.0, "batch": 1.0, "kv_bits": 16.0, "prompt": 512.0, "generate": 128.0}
NAMES = (
    "llama-3.1-8b",
    "qwen3-30b-a3b",
    "gemma-3-27b-it",
    "deepseek-v3",
    "qwen3-next-80b-a3b-instruct",
)


def load(name: str, quant: str = "Q4_K_M") -> traffic.Load:
    model = wb.Model.preset(name)
    return traffic.load_of(model, formats.weight_bytes(model, quant))


def priced(name="llama-3.1-8b", device="rtx 4090", coefficients=UNIT, **work) -> dict:
    machine = wb.Device.preset(device)
    return ledger.price(
        load(name),
        roofline.machine_of(machine),
        capacity.budget_of(machine),
        *coefficients,
        WORK | work,
    )


works = st.fixed_dictionaries(
    {
        "context": st.floats(0, 1e5),
        "batch": st.integers(1, 64).map(float),
        "prompt": st.integers(1, 10_000).map(float),
        "kv_bits": st.sampled_from([4.5, 8.5, 16.0]),
    }
)


@given(st.sampled_from(NAMES), st.sampled_from(["rtx 4090", "apple-m4-10-core-gpu"]), works)
def test_numbers_follow_from_the_terms(name, device, work):
    found = {key: np.asarray(value) for key, value in priced(name, device, **work).items()}
    step, first = found["time_s"].sum(), found["prefill_time_s"].sum()
    assert found["decode_tok_s"] == pytest.approx(work["batch"] / step)
    assert found["prefill_tok_s"] == pytest.approx(work["prompt"] * work["batch"] / first)
    assert found["ttft_s"] == pytest.approx(first + step)
    assert found["headroom_bytes"] == pytest.approx(
        found["usable_bytes"] - found["memory_bytes"].sum()
    )
    assert found["fits"] == (found["headroom_bytes"] >= 0)
    assert found["bound"] == found["time_s"].argmax()
    assert found["arithmetic_intensity"] == pytest.approx(
        found["flops"] / (found["weight_bytes"] + found["kv_bytes"])
    )
    assert (found["time_s"] >= 0).all() and (found["prefill_time_s"] >= 0).all()


def test_shapes_lead_with_the_terms():
    found = priced(context=np.array([0.0, 4096.0, 8192.0]))
    assert found["time_s"].shape == (len(TERMS), 3)
    assert found["prefill_time_s"].shape == (
        len(PREFILL_TERMS),
        3,
    )  # what spills hangs on the context
    assert found["memory_bytes"].shape == (len(capacity.KINDS), 3)


def test_an_ideal_machine_reads_each_byte_once():
    """Q4_K_M Llama-3.1-8B, 4.9 GB with its embedding, on 1008 GB/s: 218 tok/s is what nothing can beat."""
    ideal = Coefficients(*np.eye(9)[0] + np.eye(9)[8])
    found = priced(coefficients=(ideal, UNIT[1]))
    assert float(found["decode_tok_s"]) == pytest.approx(float(found["naive_tok_s"]))
    assert float(found["naive_tok_s"]) == pytest.approx(1008e9 / (4.58 * 2**30), rel=0.07)


def test_memory_is_needed_for_the_longest_that_the_conversation_gets():
    """A reply that follows 8192 tokens ends at 8320; the mean context while decoding is shorter."""
    short = priced(context=100.0, prompt=8192.0)
    long = priced(context=8320.0, prompt=512.0)
    np.testing.assert_allclose(short["memory_bytes"], long["memory_bytes"])
    assert float(short["kv_bytes"]) < float(long["kv_bytes"])


def test_a_prompt_after_many_tokens_is_slower():
    deep = priced(depth=32_768.0)
    assert float(deep["prefill_tok_s"]) < float(priced()["prefill_tok_s"])
    assert float(deep["decode_tok_s"]) == float(priced()["decode_tok_s"])


def test_a_smaller_ubatch_streams_the_weights_more_often():
    small, large = (priced(prompt=2048.0, ubatch=n)["prefill_time_s"][0] for n in (256.0, 2048.0))
    assert float(small) == pytest.approx(8 * float(large))


def test_slower_prefill_at_depth_as_measured():
    """antirez/ds4, M2 Ultra: 411 tok/s at 2k falls to 270 at 65k of context (M04): attention alone grows."""
    found = [priced("deepseek-v4-flash", "apple-m2-ultra-76-core-gpu", depth=d, prompt=2048.0)["prefill_time_s"]
             for d in (0.0, 63_488.0)]  # fmt: skip
    grown = {name for name, a, b in zip(PREFILL_TERMS, *found, strict=True) if b > a}
    assert grown == {"kv", "attention"} or grown == {"kv", "attention", "weights", "spill"}


def test_the_ledger_has_a_gradient_everywhere():
    def speed(machine):
        device = wb.Device.preset("rtx 4090")
        found = ledger.price(load("llama-3.1-8b"), machine, capacity.budget_of(device), *UNIT, WORK)
        return jnp.log(found["decode_tok_s"])

    slopes = jax.grad(speed)(roofline.machine_of(wb.Device.preset("rtx 4090")))
    assert (
        float(slopes.bandwidth) > 0
        and float(slopes.flops) > 0
        and float(slopes.spill_bandwidth) == 0
    )


def test_stacked_equals_one_by_one():
    stacked = ledger.stack([load(name) for name in NAMES])
    assert stacked.dense_bytes.shape == (len(NAMES),) and stacked.dense_bytes.dtype == np.float64
    device = wb.Device.preset("rtx 4090")
    many = ledger.price(
        stacked, roofline.machine_of(device), capacity.budget_of(device), *UNIT, WORK
    )
    for i, name in enumerate(NAMES):
        one = priced(name)
        for key in ("decode_tok_s", "prefill_tok_s", "max_context", "headroom_bytes"):
            np.testing.assert_allclose(many[key][i], one[key], rtol=1e-12, err_msg=f"{name} {key}")


def test_compiled_once_whatever_the_values():
    leaves, structure = jax.tree.flatten(
        (
            ledger.stack([load("llama-3.1-8b")]),
            roofline.Machine(np.array([1e11]), np.array([1e13]), np.array([1e10])),
            capacity.Budget(np.array([1e10]), np.array([3e8])),
            *UNIT,
            WORK,
        )
    )
    leaves = [np.asarray(leaf, dtype=np.float64) for leaf in leaves]
    first = ledger.price_flat(structure, *leaves)
    before = ledger.price_flat._cache_size()
    second = ledger.price_flat(structure, *(leaf * 1.01 for leaf in leaves))
    assert ledger.price_flat._cache_size() == before
    assert float(first["decode_tok_s"][0]) != float(second["decode_tok_s"][0])
