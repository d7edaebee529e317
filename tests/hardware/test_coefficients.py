"""A coefficient is the product of what its pools add; what calibration never saw adds nothing."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from workbench.hardware import coefficients
from workbench.hardware.roofline import PREFILL_TERMS, TERMS
from workbench.study import effects

POOLS = {name: np.array(["?"], dtype=object) for name in coefficients.KEYS}


def table(**terms) -> dict:
    """A table in which every coefficient is 1 but for the terms given."""
    plain = {"base": 0.0, "effects": {}}
    return {
        "decode": {name: terms.get(name, plain) for name in (*TERMS, "machine")},
        "prefill": {name: plain for name in (*PREFILL_TERMS, "machine")},
    }


def keys(**given) -> dict[str, np.ndarray]:
    return POOLS | {name: np.array(labels, dtype=object) for name, labels in given.items()}


def test_effects_multiply():
    weights = {
        "base": math.log(1.2),
        "effects": {
            "backend": {"cuda": math.log(1.1), "metal": math.log(0.5)},
            "backend.family": {"cuda|kquant": math.log(2.0)},
        },
    }
    asked = keys(
        backend=["cuda", "cuda", "metal", "vulkan"], family=["kquant", "q8", "kquant", "kquant"]
    )
    found = coefficients.resolve(asked, "decode", table(weights=weights))
    np.testing.assert_allclose(found.weights, [1.2 * 1.1 * 2, 1.2 * 1.1, 1.2 * 0.5, 1.2])
    np.testing.assert_allclose(found.kv, 1.0)


def test_pools_broadcast_against_each_other():
    weights = {"base": 0.0, "effects": {"backend.family": {"cuda|q8": 1.0}}}
    backend = np.array([["cuda"], ["metal"]], dtype=object)
    family = np.array([["q8", "kquant", "float"]], dtype=object)
    asked = {k: np.array([["?"]], dtype=object) for k in POOLS} | {
        "backend": backend,
        "family": family,
    }
    found = coefficients.resolve(asked, "decode", table(weights=weights)).weights
    np.testing.assert_allclose(found, np.exp([[1, 0, 0], [0, 0, 0]]))


def test_unknown_pools_add_nothing():
    shipped = coefficients.table()
    for stage in ("decode", "prefill"):
        found = coefficients.resolve(POOLS, stage, shipped)
        for name in found._fields:
            np.testing.assert_allclose(getattr(found, name), math.exp(shipped[stage][name]["base"]))


@given(st.text(max_size=30), st.floats(-3, 3))
def test_look_up(label, value):
    asked = keys(backend=[label, label + "x"])
    found = coefficients.look_up({label: value}, "backend", asked, default=7.0)
    np.testing.assert_array_equal(found, [value, 7.0])


def test_the_table_that_ships_has_every_term_and_only_known_pools():
    shipped = coefficients.table()
    for stage, terms in (("decode", TERMS), ("prefill", PREFILL_TERMS)):
        assert set(shipped[stage]) == {*terms, "machine"}
        for name, term in shipped[stage].items():
            assert math.isfinite(term["base"]), name
            for effect, values in term["effects"].items():
                assert set(effect.split(".")) <= set(coefficients.KEYS), effect
                assert all(len(label.split("|")) == len(effect.split(".")) for label in values)
                assert all(abs(value) < 5 for value in values.values()), (name, effect)


def test_efficiencies_are_physical():
    """One over an efficiency: no backend streams weights faster than 1.1 times what its memory is sold with."""
    shipped = coefficients.table()
    for backend in ("cuda", "metal", "rocm", "vulkan", "mlx", "cpu"):
        found = coefficients.resolve(keys(backend=[backend]), "decode", shipped)
        assert 0.9 < found.weights.item() < 3, backend


def test_effects_of_the_fit_are_those_that_are_looked_up():
    for terms, _ in effects.STAGES.values():
        for term in terms.values():
            for effect in term.effects:
                assert set(effect.split(".")) <= set(coefficients.KEYS)


def test_pools_of_a_device():
    found = coefficients.device_keys(wb.Device.preset("rtx 4090"), "llama.cpp")
    assert found["backend"] == "cuda" and found["generation"] == "ada" and found["vendor"] == ""
    assert found["device"] == "nvidia-geforce-rtx-4090" and found["device_class"] == "nvidia-gpu"
    assert coefficients.device_keys(wb.Device.preset("rtx 4090"), "vllm")["vendor"] != ""


@pytest.mark.parametrize(
    "engine, build, flash",
    [
        ("llama.cpp", "", "on"),  # the default since August 2025: llama.cpp PR #15434
        ("llama.cpp-vulkan", "2026-03", "on"),
        ("llama.cpp", "2024-05", ""),
        ("exllama", "", ""),
    ],
)
def test_flash_attention_is_on_where_the_engine_turns_it_on(engine, build, flash):
    assert coefficients.device_keys(wb.Device.preset("rtx 4090"), engine, build)["flash"] == flash


@pytest.mark.parametrize(
    "name, pool",
    [
        ("llama-3.1-8b", "full"),
        ("gemma-3-27b-it", "windowed"),
        ("qwen3-next-80b-a3b-instruct", "recurrent"),
    ],
)
def test_pools_of_a_model(name, pool):
    assert coefficients.model_keys(wb.Model.preset(name))["attention"] == pool


def test_every_key_is_given_by_something():
    model, device = wb.Model.preset("llama-3.1-8b"), wb.Device.preset("rtx 4090")
    given = (
        coefficients.device_keys(device, "llama.cpp")
        | coefficients.model_keys(model)
        | coefficients.quant_keys("Q4_K_M")
    )
    assert set(given) == set(coefficients.KEYS)


@pytest.mark.parametrize(
    ("device", "watts_per_tflops"),
    [("rtx 6000 ada", 300 / 364), ("rtx 3090", 350 / 142.4), ("h100 pcie 80gb", 350 / 756)],
)
def test_power_behind_a_flop_is_pooled_in_doublings(device, watts_per_tflops):
    """Vendors' specifications; a workstation card of the same chip shares its generation but not its power."""
    pool = coefficients.device_keys(wb.Device.preset(device), "llama.cpp")["power"]
    assert 2 ** (int(pool) - 0.5) <= watts_per_tflops <= 2 ** (int(pool) + 0.5)


def test_power_is_not_asked_where_it_says_nothing():
    unknown = wb.Device.custom(
        "RTX 9999", bandwidth="2 TB/s", memory="48 GiB", device_class="nvidia-gpu"
    )
    for device in (unknown, wb.Device.preset("m4 pro")):
        assert coefficients.device_keys(device, "llama.cpp")["power"] == ""


@pytest.mark.parametrize(
    ("engine", "build", "library"),
    [("llama.cpp-rocm", "2025-07", "rocblas"), ("llama.cpp-rocm", "2026-05", ""),
     ("llama.cpp-vulkan", "2025-07", "")],
)  # fmt: skip
def test_rocm_multiplied_through_rocblas_before_2026(engine, build, library):
    pools = coefficients.device_keys(wb.Device.preset("rx 7900 xtx"), engine, build)
    assert pools["library"] == library
