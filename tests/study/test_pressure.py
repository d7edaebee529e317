"""A model that memory does not hold: equal to `predict` where it does (M23)."""

import numpy as np
import pytest

import workbench as wb
from workbench.errors import SpecError
from workbench.study.pressure import under_pressure

GIB = 2**30


@pytest.fixture(scope="module")
def mac():
    return wb.Device.preset("m4 10-core", memory="32 GiB")


@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen3-30b-a3b"])
def test_where_all_fits_it_is_predicts(mac, name):
    model = wb.Model.preset(name)
    ds = under_pressure(model, mac, 64 * GIB, storage="3 GB/s")
    np.testing.assert_allclose(ds.tok_s, wb.predict(model, mac).decode_tok_s, rtol=1e-6)
    assert ds.miss.max() == 0


def test_a_dense_model_falls_off_a_cliff(mac):
    model = wb.Model.preset("llama-3.1-8b")
    whole = under_pressure(model, mac, 64 * GIB, storage="3 GB/s").working_bytes.item()
    ds = under_pressure(model, mac, [0.99 * whole, whole], storage="3 GB/s")
    paged, random, streamed = ds.tok_s.transpose("pager", "memory").values
    assert paged[1] / paged[0] > 30 and streamed[1] / streamed[0] < 2
    assert paged[0] < random[0] < streamed[0] and random[1] == paged[1]


def test_a_sparse_model_keeps_its_dense_part(mac):
    model = wb.Model.preset("qwen3-30b-a3b")
    ds = under_pressure(model, mac, 8 * GIB, storage="3 GB/s")
    assert ds.miss.sel(pager="streamed by the engine") < 0.6
    assert ds.miss.sel(pager="paged by the system") == 1.0


def test_a_card_is_refused_in_words(mac):
    with pytest.raises(SpecError, match="card spills"):
        under_pressure(
            wb.Model.preset("llama-3.1-8b"), wb.Device.preset("rtx 4090"), GIB, storage=1e9
        )
    with pytest.raises(SpecError, match="ratio"):
        under_pressure(wb.Model.preset("llama-3.1-8b"), mac, GIB, storage=1e9, ratio=0.5)
