"""Explanations equal what predict says of the changed configuration, and flags that ask for what was priced."""

import copy
import dataclasses
import math

import numpy as np
import pytest
import xarray as xr

import workbench as wb
from workbench.errors import WorkbenchError
from workbench.hardware import coefficients
from workbench.specs import formats
from workbench.specs.model import INDEX
from workbench.study.explain import question

pytestmark = pytest.mark.filterwarnings("ignore::workbench.study.predict.BeyondContext")

CASES = {
    "card": ("llama-3.1-8b", "rtx-4090", {"context": 8192}),
    "mixture": ("qwen3-30b-a3b", "apple-m4-pro-20-core-gpu", {"context": 20_000}),
    "batch": ("gemma-3-27b-it", "nvidia-rtx-a6000", {"context": 4096, "batch": 8}),
    "spilled": ("llama-3.3-70b-instruct", "rtx-4090", {"context": 4096}),
    "cpu": ("llama-3.1-8b", "ryzen-9-7950x", {"context": 2048}),
}


def priced(case: str, **changes) -> xr.Dataset:
    model, device, work = CASES[case]
    return wb.predict(
        wb.Model.preset(model), wb.Device.preset(device), wb.Workload(**work | changes)
    )


@pytest.fixture(scope="module", params=CASES)
def explained(request):
    ds = priced(request.param)
    return ds, wb.explain(ds)


def test_shares_are_those_of_a_whole(explained):
    ds, found = explained
    assert float(found.time_s.sum()) == pytest.approx(float(ds.time_s.sum()))
    assert float(ds.time_s.sum()) == pytest.approx(
        float(question(ds).work.batch) / ds.decode_tok_s.item()
    )
    assert float(found.share.sum()) == pytest.approx(1)
    assert (found.share >= 0).all()
    assert found.bound.item() == found.term.values[found.share.values.argmax()]
    assert found.share.attrs["units"] == found.gain.attrs["units"] == "1"


def test_signs(explained):
    slope = explained[1].elasticity.to_series()
    assert slope["bandwidth"] > 0 and slope["flops"] >= 0
    assert slope["bytes per weight"] < 0 and slope["context"] <= 0
    assert (slope[["memory", "link", "host_bandwidth"]] >= -1e-9).all()


def test_no_number_is_worth_more_than_all_of_the_time(explained):
    """Where everything fits, time is a sum of terms each proportional to one over a number of the machine."""
    ds, found = explained
    slope = found.elasticity.to_series()
    if ds.fits.item():
        assert 0 < slope["bandwidth"] + slope["flops"] < 1
        assert slope["memory"] == slope["link"] == 0
        shares = found.share.to_series()
        assert slope["bandwidth"] == pytest.approx(shares["weights"] + shares["kv"])
        assert slope["flops"] == pytest.approx(shares["compute"] + shares["attention"])


def speed_at(ds: xr.Dataset, name: str, factor: float) -> float:
    asked = question(ds)
    if name == "context":
        work = dataclasses.replace(asked.work, context=asked.work.context * factor)
        asked = asked._replace(work=work)
    elif name == "bytes per weight":
        stored = formats.weight_bytes(asked.model, asked.quant) * factor
        asked = asked._replace(model=dataclasses.replace(asked.model, stored_bytes=stored))
    else:
        changed = {name: getattr(asked.device, name) * factor}
        asked = asked._replace(device=dataclasses.replace(asked.device, **changed))
    return math.log(asked.predict().decode_tok_s.item())


@pytest.mark.parametrize("case", ["mixture", "batch", "spilled"])
@pytest.mark.parametrize("name", ["bandwidth", "flops", "memory", "bytes per weight", "context"])
def test_elasticities_are_finite_differences(case, name):
    ds = priced(case)
    step = 1e-4
    slope = (speed_at(ds, name, 1 + step) - speed_at(ds, name, 1 - step)) / (2 * step)
    assert wb.explain(ds).elasticity.sel(parameter=name).item() == pytest.approx(
        slope, rel=0.01, abs=1e-6
    )


def test_fixes_are_ranked_and_worth_a_line(explained):
    ds, found = explained
    gains = found.gain.values
    assert len(gains) and (np.diff(gains) <= 0).all() and (gains >= 1.02).all()
    np.testing.assert_allclose(found.fix_tok_s, gains * ds.decode_tok_s.item())
    assert len(set(found.fix.values.tolist())) == found.sizes["fix"]


def redone(ds: xr.Dataset, fix: str) -> xr.Dataset:
    """Predict by hand what a fix says."""
    asked = question(ds)
    words = fix.split()
    if words[0] == "use":
        return asked._replace(quant=fix.removeprefix("use ").removesuffix(" weights")).predict()
    if words[0] == "keep":
        return asked._replace(work=dataclasses.replace(asked.work, kv_bits=words[-1])).predict()
    if words[0] == "halve":
        return asked._replace(
            work=dataclasses.replace(asked.work, context=float(words[4]))
        ).predict()
    engine = {
        "llama.cpp (Vulkan)": "llama.cpp-vulkan",
        "llama.cpp (ROCm)": "llama.cpp-rocm",
        "MLX": "mlx",
    }
    name = fix.removeprefix("run it with ")
    quant = "MLX 4bit" if name == "MLX" else asked.quant
    return asked._replace(engine=engine.get(name, name), quant=quant).predict()


def test_each_gain_is_what_predict_says(explained):
    ds, found = explained
    for fix, speed, fits in zip(
        found.fix.values, found.fix_tok_s.values, found.fix_fits.values, strict=True
    ):
        after = redone(ds, str(fix))
        assert after.decode_tok_s.item() == pytest.approx(speed), fix
        assert bool(after.fits) == fits, fix


def test_the_verdict_says_what_the_numbers_say(explained):
    ds, found = explained
    verdict = found.attrs["verdict"]
    assert verdict.startswith("fits" if ds.fits.item() else "does not fit")
    assert f"{ds.decode_tok_s.item():.3g} tok/s" in verdict and str(ds.bound.item()) in verdict


def test_a_sweep_is_refused_with_the_way_out():
    ds = wb.predict(wb.Model.preset("llama-3.1-8b"), wb.Device.preset("rtx 4090"),
                    wb.Workload(context=wb.axis("context", [1024, 8192])))  # fmt: skip
    for ask in (wb.explain, wb.flags):
        with pytest.raises(
            WorkbenchError, match=r"one configuration at a time.*ds\.isel\(context=0\)"
        ):
            ask(ds)
    with pytest.raises(WorkbenchError, match="`predict` returned"):
        wb.explain(xr.Dataset())


def test_a_part_of_a_sweep_is_explained_like_the_single_call():
    models = [wb.Model.preset(name) for name in ("llama-3.1-8b", "qwen3-30b-a3b")]
    device = wb.Device.preset("rtx 4090")
    swept = wb.predict(
        models,
        device,
        wb.Workload(context=wb.axis("depth", [1024, 8192])),
        quant=["Q4_K_M", "Q8_0"],
    )
    part = wb.explain(swept.isel(model=1, quant=0).sel(depth=8192))
    single = wb.explain(wb.predict(models[1], device, wb.Workload(context=8192)))
    for name in ("time_s", "share", "elasticity", "gain"):
        np.testing.assert_allclose(part[name], single[name], err_msg=name)
    assert part.fix.values.tolist() == single.fix.values.tolist()
    assert part.attrs["verdict"] == single.attrs["verdict"]


def test_a_saved_prediction_can_still_be_explained(tmp_path):
    ds = priced("mixture")
    opened = wb.open(wb.save(ds, tmp_path / "prediction.nc"))
    xr.testing.assert_identical(wb.explain(opened), wb.explain(ds))
    assert wb.flags(opened) == wb.flags(ds)


def test_a_limit_set_by_hand_is_kept():
    model, device = (
        wb.Model.preset("gemma-3-27b-it"),
        wb.Device.preset("apple-m4-10-core-gpu", memory="32 GiB"),
    )
    ds = wb.predict(model, device, wired_limit=12 * 2**30)
    assert not ds.fits.item() and question(ds).wired_limit == 12 * 2**30
    assert question(ds).predict().usable_bytes.item() == 12 * 2**30


def option(command: list[str], name: str) -> str | None:
    return command[command.index(name) + 1] if name in command else None


def flags(model: str, device: str, quant: str = "Q4_K_M", **work) -> tuple[xr.Dataset, list[str]]:
    ds = wb.predict(
        wb.Model.preset(model), wb.Device.preset(device), wb.Workload(**work), quant=quant
    )
    return ds, wb.flags(ds, "my model.gguf")


def test_flags_of_what_fits():
    _, command = flags("llama-3.1-8b", "rtx-4090", context=5000)
    assert command[:3] == ["llama-server", "-m", "my model.gguf"]
    assert (
        option(command, "-c") == "5120" and option(command, "-ngl") == "99"
    )  # 5000 to the next 256
    assert "-ctk" not in command and "--n-cpu-moe" not in command and "-np" not in command


def test_flags_hold_the_whole_conversation():
    """-c is what all slots share (llama.cpp server README): 8192 + 512 tokens in each of 4."""
    _, command = flags("llama-3.1-8b", "rtx-4090", prompt=8192, generate=512, batch=4)
    assert option(command, "-c") == str(4 * 8704) and option(command, "-np") == "4"


@pytest.mark.parametrize("kv", ["q8_0", "q4_0", "q5_1"])
def test_flags_of_a_quantised_cache(kv):
    """A quantised V cache needs flash attention."""
    _, command = flags("llama-3.1-8b", "rtx-4090", context=4096, kv_bits=kv)
    assert (
        option(command, "-ctk") == option(command, "-ctv") == kv and option(command, "-fa") == "on"
    )


def test_flags_on_a_cpu():
    _, command = flags("llama-3.1-8b", "ryzen-9-7950x", context=4096)
    assert (
        option(command, "-ngl") == "0" and option(command, "-t") == "16"
    )  # the 7950X has 16 cores


@pytest.mark.parametrize(
    "model, device", [("llama-3.3-70b-instruct", "rtx-4090"), ("gemma-3-27b-it", "rtx-3060")]
)
def test_layers_that_leave_make_room(model, device):
    ds, command = flags(model, device, context=4096)
    layers = float(wb.Model.preset(model).layers)
    kept = int(option(command, "-ngl"))
    assert not ds.fits.item() and 0 < kept < layers
    weights = ds.memory_bytes.sel(kind="weights").item()
    room = ds.usable_bytes.item() - (float(ds.memory_bytes.sum()) - weights)
    assert kept / layers * weights <= room < (kept + 2) / layers * weights


@pytest.mark.parametrize(
    "model, device, quant, context",
    [
        ("mixtral-8x7b-v0.1", "rtx-4090", "Q4_K_M", 4096),
        ("gpt-oss-120b", "rtx-4090", "MXFP4", 32_768),
        ("glm-4.5-air", "rtx-5090", "Q4_K_M", 4096),  # one leading dense layer
        ("deepseek-v3", "rtx-5090", "Q4_K_M", 4096),  # three
        ("deepseek-v3", "rtx-3060", "Q4_K_M", 4096),  # not even what is not routed fits
        ("llama-4-scout-17b-16e-instruct", "rtx-4090", "Q4_K_M", 4096),
    ],
)
def test_experts_that_leave_make_room(model, device, quant, context):
    """--n-cpu-moe N keeps the experts of the first N layers in system memory; leading dense layers have none."""
    ds, command = flags(model, device, quant, context=context)
    spec = wb.Model.preset(model)
    stored = formats.weight_bytes(spec, quant)
    experts = stored[INDEX["expert_up"]] + stored[INDEX["expert_down"]]
    without = spec.layers - spec.moe_layers
    moved = (int(option(command, "--n-cpu-moe")) - without) / spec.moe_layers
    kept = min(int(option(command, "-ngl")), spec.layers) / spec.layers
    assert 0 < moved <= 1 and (kept == 1 or moved == 1)
    weights = ds.memory_bytes.sel(kind="weights").item()
    beside = float(ds.memory_bytes.sum()) - weights
    held = kept * (weights - experts) + (1 - moved) * experts
    assert held + beside <= ds.usable_bytes.item() * (1 + 1e-9)
    assert (
        held + beside
        >= ds.usable_bytes.item() - 2 * max(experts, weights - experts) / spec.moe_layers
    )


def test_a_prediction_by_another_table_is_explained_by_it():
    """Twice the time for weights: what is left over weighs less, and no fix is judged by the shipped table."""
    table = copy.deepcopy(coefficients.table())
    table["decode"]["weights"]["base"] += math.log(2)
    model, device, work = CASES["card"]
    ds = wb.predict(
        wb.Model.preset(model), wb.Device.preset(device), wb.Workload(**work), table=table
    )
    found = wb.explain(ds, table)
    shares = found.share.to_series()
    slope = found.elasticity.sel(parameter="bandwidth").item()
    assert slope == pytest.approx(shares["weights"] + shares["kv"])
    for fix, gain in zip(found.fix.values, found.gain.values, strict=True):
        if fix.startswith("use "):
            quant = fix.removeprefix("use ").removesuffix(" weights")
            after = question(ds, table)._replace(quant=quant).predict()
            assert gain == pytest.approx(after.decode_tok_s.item() / ds.decode_tok_s.item())
