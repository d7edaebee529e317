"""Presets, aliases, free-form names and estimates; the derived sizes of a Model."""

import contextlib
import subprocess
import sys

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import data
from workbench.errors import SpecError, UnknownNameError
from workbench.specs.catalogue import models, resolve
from workbench.specs.model import INDEX, TENSOR_CLASSES, Model


def test_issue_names_are_presets():
    assert {"llama-3.1-8b", "qwen3-30b-a3b"} <= set(models())
    assert len(models()) == len(data.rows("models.csv")) == len(set(models()))


def test_preset_is_cached_and_named_by_its_slug():
    assert Model.preset("llama-3.1-8b") is Model.preset("meta-llama/Llama-3.1-8B")
    assert Model.preset("llama-3.1-8b").name == "llama-3.1-8b"


def test_llama_3_1_8b():
    model = Model.preset("llama-3.1-8b")
    assert model.total_params == 8_030_261_248  # as published
    assert model.total_params - model.decode_read_params == 128256 * 4096  # input embedding
    assert model.kv_bytes(131072) == 16 * 2**30  # 128 KiB a token
    assert model.kv_bytes(131072, bits=8.5) == 8.5 * 2**30


def test_unknown_preset_suggests():
    with pytest.raises(UnknownNameError, match="did you mean") as err:
        Model.preset("llama-3.1-9b")
    assert "llama-3.1-8b" in err.value.suggestions


def test_every_alias_resolves_to_its_canonical_model():
    for row in data.rows("model_aliases.csv"):
        if row["canonical_name"]:
            expected = Model.preset(row["canonical_name"])
            assert Model.preset(row["spelling"]) is expected
            assert resolve(row["spelling"]) is expected


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("llama3.1:8b", "llama-3.1-8b"),
        ("bartowski/Meta-Llama-3.1-8B-Instruct-GGUF", "llama-3.1-8b"),
        ("Meta-Llama-3.1-8B-Instruct-IQ4_XS.gguf", "llama-3.1-8b"),
        ("Qwen3 30B A3B", "qwen3-30b-a3b"),
        ("Qwen_Qwen3-8B-Q4_K_M.gguf", "qwen3-8b"),
        ("mlx-community/Qwen3-4B-4bit", "qwen3-4b"),
        ("unsloth/Qwen3-30B-A3B-UD-Q4_K_XL-00001-of-00002.gguf", "qwen3-30b-a3b"),
        ("PHI4", "phi-4"),
    ],
)
def test_decoration_does_not_hide_a_model(name, preset):
    assert resolve(name) is Model.preset(preset)


def test_a_size_in_an_unknown_name_gives_an_estimate():
    model = resolve("Someone/Novel-30B-A3B-Q4_K_M.gguf")
    assert "estimate" in model.source
    assert model.total_params == pytest.approx(30e9)
    assert model.active_params == pytest.approx(3e9)


@pytest.mark.parametrize("name", ["no-size-here", "", "q4_k_m", "../../etc/passwd", "<b>x</b>"])
def test_a_name_without_a_size_is_unknown(name):
    with pytest.raises(UnknownNameError):
        resolve(name)


@given(st.text(max_size=40))
def test_resolve_never_fails_otherwise(name):
    with contextlib.suppress(UnknownNameError, SpecError):
        assert isinstance(resolve(name), Model)


@given(
    st.floats(min_value=1e8, max_value=1e12),
    st.one_of(st.none(), st.floats(min_value=0.01, max_value=1.0)),
)
def test_generic_has_exactly_the_sizes_asked_for(total, share):
    active = None if share is None else total * share
    model = Model.generic("x", total, active)
    assert model.total_params == pytest.approx(total)
    if share is not None and share < 0.9:
        assert model.active_params == pytest.approx(active)
        assert 0 < model.top_k < model.experts
    assert np.all(model.params >= 0) and model.kv_elements > 0


@pytest.mark.parametrize(
    "preset", ["llama-3.1-8b", "mistral-7b-instruct-v0.3", "qwen2.5-14b-instruct"]
)
def test_generic_is_near_a_real_model_of_that_size(preset):
    real = Model.preset(preset)
    guess = Model.generic("x", real.total_params)
    assert guess.layers == pytest.approx(real.layers, rel=0.35)
    assert guess.kv_elements == pytest.approx(real.kv_elements, rel=0.6)
    assert guess.decode_read_params == pytest.approx(real.decode_read_params, rel=0.08)


@pytest.mark.parametrize(
    ("total", "active"),
    [(0, None), (-7e9, None), (float("nan"), None), ("7B", None), (True, None), (7e9, 8e9)],
)
def test_generic_refuses_impossible_sizes(total, active):
    with pytest.raises(SpecError, match="_params"):
        Model.generic("x", total, active)


def test_window_layers_stop_growing():
    model = Model.preset("gemma-3-27b-it")
    beyond = model.kv_bytes(65536) - model.kv_bytes(32768)
    assert beyond == 32768 * 2 * model.kv_elements
    assert model.kv_bytes(512) == 512 * 2 * (model.kv_elements + model.window_elements)


def test_kv_bytes_takes_arrays_and_tracers():
    model = Model.preset("gpt-oss-20b")
    contexts = np.array([64.0, 128.0, 4096.0])
    expected = [model.kv_bytes(c) for c in contexts]
    np.testing.assert_array_equal(model.kv_bytes(contexts), expected)
    np.testing.assert_allclose(jax.jit(Model.kv_bytes)(model, contexts), expected, rtol=1e-6)


def test_mixture_reads_only_the_chosen_experts():
    model = Model.preset("qwen3-30b-a3b")
    share = dict(zip(TENSOR_CLASSES, model.read_share, strict=True))
    assert share["expert_up"] == share["expert_down"] == 8 / 128
    assert share["embedding"] == share["lookup"] == share["mtp"] == 0
    assert share["output"] == share["router"] == share["norm"] == 1


def test_tied_embedding_is_streamed_once():
    model = Model.preset("gemma-3-270m-it")
    assert model.tied and model.params[INDEX["output"]] == 0
    assert model.decode_read_params == model.total_params


def test_model_is_a_pytree_whose_leaves_are_numbers():
    model = Model.preset("llama-3.1-8b")
    leaves, tree = jax.tree.flatten(model)
    assert all(isinstance(leaf, (float, np.ndarray)) for leaf in leaves)
    assert jax.tree.unflatten(tree, leaves).name == model.name


def test_importing_model_reads_no_data():
    code = (
        "import sys; import workbench.specs.model, workbench.data as d; "
        "assert 'pint' not in sys.modules and d.rows.cache_info().currsize == 0"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
