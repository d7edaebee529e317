"""What must hold of every prediction, whatever the coefficients, and what wrong input is told."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import workbench as wb
from workbench.errors import SpecError, UnknownNameError
from workbench.study.predict import BeyondContext

pytestmark = pytest.mark.filterwarnings("ignore::workbench.study.predict.BeyondContext")

MODELS = ("llama-3.1-8b", "qwen3-30b-a3b", "gemma-3-27b-it", "deepseek-v3", "qwen3-next-80b-a3b-instruct",
          "gemma-3-270m-it", "llama-4-scout-17b-16e-instruct", "granite-4.0-h-small")  # fmt: skip
DEVICES = ("rtx-4090", "rtx-3060", "apple-m4-pro-20-core-gpu", "amd-radeon-rx-7900-xtx", "8060s", "ryzen-9-7950x",
           "raspberry-pi-5", "rtx-5090")  # fmt: skip
LADDER = ("F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M", "Q2_K")  # ever fewer bits
KV_LADDER = ("f32", "f16", "q8_0", "q5_1", "q5_0", "q4_0")

models = st.sampled_from(MODELS).map(wb.Model.preset)
devices = st.sampled_from(DEVICES).map(wb.Device.preset)
quants = st.sampled_from(LADDER)
tokens = st.integers(0, 200_000)
quick = settings(max_examples=40, deadline=None)


def speed(*args, **kwargs) -> float:
    return wb.predict(*args, **kwargs).decode_tok_s.item()


def needed(*args, **kwargs) -> float:
    return float(wb.predict(*args, **kwargs).memory_bytes.sum())


@quick
@given(models, devices, quants, tokens, st.floats(1.01, 10))
def test_more_bandwidth_is_never_slower(model, device, quant, context, more):
    work = wb.Workload(context=context)
    faster = dataclasses.replace(device, bandwidth=device.bandwidth * more)
    before = wb.predict(model, device, work, quant=quant)
    after = wb.predict(model, faster, work, quant=quant)
    assert after.decode_tok_s.item() >= before.decode_tok_s.item() * (1 - 1e-12)
    assert after.prefill_tok_s.item() >= before.prefill_tok_s.item() * (1 - 1e-12)


@quick
@given(models, devices, quants, tokens, tokens)
def test_more_context_never_needs_less_memory(model, device, quant, one, other):
    less, more = sorted((one, other))
    sizes = [needed(model, device, wb.Workload(context=c), quant=quant) for c in (less, more)]
    assert sizes[0] <= sizes[1]


@quick
@given(models, devices, st.integers(0, len(LADDER) - 2), st.integers(0, len(KV_LADDER) - 2))
def test_fewer_bits_never_need_more_bytes(model, device, step, kv_step):
    work = wb.Workload(context=4096)
    wide, narrow = (needed(model, device, work, quant=q) for q in LADDER[step : step + 2])
    assert narrow <= wide
    wide, narrow = (needed(model, device, dataclasses.replace(work, kv_bits=kv))
                    for kv in KV_LADDER[kv_step : kv_step + 2])  # fmt: skip
    assert narrow <= wide


@quick
@given(models, devices, quants, st.integers(0, 16_384), st.integers(1, 64), st.integers(1, 64))
def test_batch_never_lowers_total_throughput_while_it_fits(
    model, device, quant, context, one, other
):
    less, more = sorted((one, other))
    small, large = (wb.predict(model, device, wb.Workload(context=context, batch=b), quant=quant)
                    for b in (less, more))  # fmt: skip
    if large.fits.item():
        assert large.decode_tok_s.item() >= small.decode_tok_s.item() * (1 - 1e-12)


@quick
@given(models, devices, quants, tokens)
def test_parts_add_up(model, device, quant, context):
    ds = wb.predict(model, device, wb.Workload(context=context), quant=quant)
    assert float(ds.time_s.sum()) == pytest.approx(1 / ds.decode_tok_s.item())
    assert (ds.time_s >= 0).all() and (ds.prefill_time_s >= 0).all()
    assert ds.fits.item() == (ds.headroom_bytes.item() >= 0)
    assert ds.bound.item() == ds.term.values[ds.time_s.values.argmax()]


@pytest.mark.parametrize("name", wb.devices()[::12])
def test_the_interval_holds_the_prediction(name):
    ds = wb.predict(wb.Model.preset(MODELS[0]), wb.Device.preset(name))
    assert ds.lower <= ds.decode_tok_s <= ds.upper
    assert ds.prefill_lower <= ds.prefill_tok_s <= ds.prefill_upper


@quick
@given(models, devices, quants)
def test_the_longest_context_is_trained_and_fits_and_one_more_token_does_not(model, device, quant):
    longest = wb.predict(model, device, quant=quant).max_context.item()
    assert longest <= model.max_context
    if 1000 < longest < model.max_context:
        work = [wb.Workload(context=longest + more) for more in (0, 1)]
        assert [wb.predict(model, device, w, quant=quant).fits.item() for w in work] == [
            True,
            False,
        ]


def test_a_sweep_equals_the_single_calls():
    listed = [wb.Model.preset(n) for n in MODELS[:3]]
    machines = [wb.Device.preset(n) for n in DEVICES[:4]]
    contexts, batches, formats = [0, 5000, 60_000], [1, 7], ["Q4_K_M", "Q8_0"]
    work = wb.Workload(context=wb.axis("context", contexts), batch=wb.axis("batch", batches))
    swept = wb.predict(listed, machines, work, quant=formats)
    for m, d, q, c, b in np.ndindex(3, 4, 2, 3, 2):
        single = wb.predict(listed[m], machines[d],
                            wb.Workload(context=contexts[c], batch=batches[b]), quant=formats[q])  # fmt: skip
        part = swept.isel(model=m, device=d, quant=q, context=c, batch=b)
        for name in single.data_vars:
            mine, theirs = single[name].values, part[name].values
            if mine.dtype.kind == "f":
                np.testing.assert_allclose(theirs, mine, rtol=1e-12, err_msg=name)
            else:
                assert (mine == theirs).all(), name


def test_every_variable_has_a_unit_and_a_name():
    ds = wb.predict(wb.Model.preset(MODELS[0]), wb.Device.preset(DEVICES[0]))
    for name, variable in ds.variables.items():
        assert variable.attrs["units"] and variable.attrs["long_name"], name


@pytest.mark.parametrize("batch", [0, -1, 1.5, float("nan"), "two"])
def test_wrong_batch(batch):
    with pytest.raises(SpecError, match=r"Workload.batch.*whole number of sequences"):
        wb.Workload(batch=batch)


@pytest.mark.parametrize("name", ["rtx-4091", "nvidia rtx 490", "aple-m4-pro"])
def test_unknown_device_gets_suggestions(name):
    with pytest.raises(UnknownNameError, match="did you mean") as caught:
        wb.Device.preset(name)
    assert all(wb.Device.preset(suggested) for suggested in caught.value.suggestions)


def test_context_beyond_the_model_warns():
    model = wb.Model.preset("llama-2-7b-hf")  # trained for 4096 tokens, says its paper
    with pytest.warns(BeyondContext, match="llama-2-7b-hf.*4096"):
        ds = wb.predict(model, wb.Device.preset("rtx-4090"), wb.Workload(context=8192))
    assert ds.decode_tok_s > 0


@pytest.mark.parametrize("text", ["32 furlongs", "lots", "", "GiB", "-3 GiB", "1e400 GB", "inf"])
def test_units_that_do_not_parse(text):
    with pytest.raises(SpecError, match="memory"):
        wb.Device.preset("rtx-4090", memory=text)


@pytest.mark.parametrize("wrong", [None, "llama-3.1-8b", [], [1]])
def test_no_model(wrong):
    with pytest.raises(SpecError, match="model"):
        wb.predict(wrong, wb.Device.preset("rtx-4090"))


def test_an_engine_that_does_not_run_there():
    with pytest.raises(SpecError, match="mlx"):
        wb.predict(wb.Model.preset(MODELS[0]), wb.Device.preset("rtx-4090"), engine="mlx")
    with pytest.raises(UnknownNameError, match="engine"):
        wb.predict(wb.Model.preset(MODELS[0]), wb.Device.preset("rtx-4090"), engine="nonesuch")
    with pytest.raises(UnknownNameError, match="Q4_K_M"):
        wb.predict(wb.Model.preset(MODELS[0]), wb.Device.preset("rtx-4090"), quant="Q4_K_N")
