"""Bits per KV element are checked against the block sizes of the `gguf` library."""

import jax
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import SpecError
from workbench.specs.workload import KV_TYPES, Workload, axis


def test_defaults_and_mean_context():
    work = Workload()
    assert (work.prompt, work.generate, work.batch, work.kv_bits) == (512, 128, 1, 16)
    assert work.arrays()["context"] == 512 + 64
    assert Workload(context=4096).arrays()["context"] == 4096


@pytest.mark.parametrize("name", ["F32", "F16", "BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0",
                                  "IQ4_NL"])  # fmt: skip
def test_kv_types_take_the_bits_of_their_ggml_blocks(name):
    gguf = pytest.importorskip("gguf")
    elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    assert KV_TYPES[name.lower()] == size * 8 / elements
    assert Workload(kv_bits=name).kv_bits == size * 8 / elements


@pytest.mark.parametrize(
    ("field", "value", "right"),
    [("batch", 0, "1 or more"), ("batch", -1, "1 or more"), ("batch", 1.5, "whole"),
     ("batch", True, "whole"), ("prompt", -1, "0 or more"), ("prompt", float("nan"), "0 or more"),
     ("prompt", "many", "such as 512"), ("generate", 0, "1 or more"), ("generate", None, "whole"),
     ("generate", float("inf"), "whole"), ("context", -1, "0 or more"), ("context", [], "tokens"),
     ("kv_bits", 0, "q8_0"), ("kv_bits", "q3_k", "q4_0"), ("kv_bits", 64, "1 to 32")],
)  # fmt: skip
def test_nonsense_is_refused_with_the_field_and_what_would_be_right(field, value, right):
    with pytest.raises(SpecError, match=rf"Workload\.{field}: .*{right}"):
        Workload(**{field: value})


def test_axes_become_named_dimensions():
    work = Workload(
        context=axis("context", [2048, 8192]),
        batch=axis("batch", np.array([1, 2, 4])),
        kv_bits=axis("kv_type", ["f16", "q8_0"]),
    )
    arrays = work.arrays()
    assert list(work.axes()) == ["context", "batch", "kv_type"]
    assert arrays["context"].dims == ("context",)
    assert arrays["batch"].values.tolist() == [1, 2, 4]
    assert arrays["kv_bits"].sel(kv_type="q8_0") == 8.5
    assert (arrays["context"] * arrays["batch"] * arrays["kv_bits"]).shape == (2, 3, 2)


def test_context_follows_a_swept_prompt():
    context = Workload(prompt=axis("prompt", [512, 1024]), generate=128).arrays()["context"]
    xr.testing.assert_equal(
        context, xr.DataArray([576.0, 1088.0], dims="prompt", coords={"prompt": [512, 1024]})
    )


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [("two words", [1], "identifier"), ("batch", [], "flat list"), ("batch", 3, "flat list"),
     ("batch", "12", "flat list"), ("batch", [[1, 2]], "flat list"), ("batch", [1, 1], "repeats")],
)  # fmt: skip
def test_bad_axes_are_refused(name, values, message):
    with pytest.raises(SpecError, match=message):
        axis(name, values)


def test_axis_values_are_checked_by_their_field():
    with pytest.raises(SpecError, match=r"Workload\.batch: '0'"):
        Workload(batch=axis("batch", [1, 0]))
    with pytest.raises(SpecError, match="differs between two fields"):
        Workload(prompt=axis("n", [1, 2]), context=axis("n", [3, 4]))


@given(st.integers(0, 10**6), st.integers(1, 10**6), st.integers(1, 512))
def test_pytree_round_trip(prompt, generate, batch):
    work = Workload(prompt=prompt, generate=generate, batch=batch, kv_bits="q4_0")
    leaves, tree = jax.tree_util.tree_flatten(work)
    assert jax.tree_util.tree_unflatten(tree, leaves).arrays() == work.arrays()


def test_gradients_have_the_shape_of_a_workload():
    gradient = jax.grad(lambda w: 3 * w.prompt + w.kv_bits**2)(Workload(kv_bits=8))
    assert (float(gradient.prompt), float(gradient.kv_bits)) == (3, 16)
    swept = jax.jit(lambda w: w.context.values.sum())(Workload(context=axis("context", [1, 2])))
    assert float(swept) == 3
