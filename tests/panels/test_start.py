"""The start panel without a browser: its numbers, its files, its words."""

import json

import numpy as np
import pytest

import workbench as wb
from workbench.data import document
from workbench.panels import StartPanel, choices
from workbench.specs import engine as engines

pytestmark = pytest.mark.filterwarnings("ignore::workbench.study.predict.BeyondContext")


@pytest.fixture(scope="module")
def panel():
    return StartPanel()


@pytest.fixture(autouse=True)
def as_at_first(request):
    if "panel" in request.fixturenames:
        panel = request.getfixturevalue("panel")
        panel.set(
            machine="apple-m4-pro-20-core-gpu", model="llama-3.1-8b", file="", engine="llama.cpp",
            quant="Q4_K_M", context=4096, prompt=512, batch=1, kv="f16",
        )  # fmt: skip


def test_shows_what_predict_says(panel):
    panel.set(machine="nvidia-geforce-rtx-4090", context=5000, quant="Q6_K", kv="q8_0")
    ds = wb.predict(
        wb.Model.preset("llama-3.1-8b"),
        wb.Device.preset("rtx 4090"),
        wb.Workload(prompt=512, context=5000, kv_bits="q8_0"),
        quant="Q6_K",
    )
    np.testing.assert_allclose(panel.widget.data[0].x[:-1], ds.time_s * 1e3)
    here = panel.widget.data[6]
    assert (here.x[0], here.y[0]) == (5000, pytest.approx(ds.decode_tok_s.item()))
    np.testing.assert_allclose(panel.widget.data[7].x[:-1], ds.memory_bytes / 2**30)


def test_code_computes_the_same(panel):
    panel.set(machine="apple-m4-10-core-gpu", memory=16 * 2**30, batch=2, kv="q4_0")
    there = {}
    exec(panel.to_code(), there)
    for name in ("decode_tok_s", "time_s", "memory_bytes", "usable_bytes", "upper"):
        np.testing.assert_allclose(there["ds"][name], panel.data[name])


def test_status_says_fit_speed_interval_and_limit(panel):
    said = panel.set(model="llama-3.1-405b").status(panel.data)
    assert "does not fit" in said and "tok/s" in said and "80 % interval" in said
    assert "first token" in said and "Limit" in said
    assert "Loads in" in said and "if cached" in said and "after a cold start" in said


def test_offers_what_the_machine_can_do(panel):
    panel.set(machine="apple-m4-10-core-gpu")
    assert "mlx" in panel._engine.options and "exllama" not in panel._engine.options
    panel.set(engine="mlx")
    assert all("MLX" in quant or quant == "BF16" for quant in panel._quant.options)
    panel.set(machine="nvidia-geforce-rtx-4090")
    assert panel.values["engine"] == "llama.cpp" and "Q4_K_M" in panel._quant.options
    assert panel.error == ""


@pytest.mark.parametrize("kind", wb.specs.device.DEVICE_CLASSES)
def test_every_class_has_an_engine(kind):
    assert all(engines.backend(name, kind) for name in choices.engines_for(kind))


def test_every_machine_and_model_is_offered():
    machines = {slug for group in choices.machines().values() for slug in group.values()}
    known = wb.device_table()
    assert machines == set(known.device.values[known.device_bandwidth.values > 0])
    offered = [name for group in choices.families().values() for name in group.values()]
    assert sorted(offered) == sorted(wb.models())


def test_fixes_are_ranked_and_named(panel):
    gains = panel.explained.gain.values
    assert list(gains) == sorted(gains, reverse=True)
    for fix in panel.explained.fix.values:
        assert str(fix) in panel._fixes.value
    assert "llama-server -m llama-3.1-8b-Q4_K_M.gguf" in panel._fixes.value


def test_context_beyond_training_is_a_note(panel):
    panel.set(model="meta-llama-3-8b", context=65_536)
    assert "beyond what" in panel.error
    assert panel.data.context == 65_536
    panel.set(context=4096)
    assert panel.error == ""


def test_own_gguf(panel, gemma_path):
    panel.set(file=str(gemma_path))
    assert panel.error == ""
    assert panel.data.quant == "Q4_K_M" and panel._quant.disabled
    assert str(gemma_path) in panel._fixes.value
    there = {}
    exec(panel.to_code(), there)
    assert there["ds"].decode_tok_s == pytest.approx(panel.data.decode_tok_s.item())
    panel.set(model="qwen3-8b")
    assert panel.values["file"] == "" and not panel._quant.disabled


@pytest.fixture
def config(tmp_path):
    """Return write(**changes) -> path of a config.json of Llama 3.1 8B with changes."""

    def write(**changes):
        path = tmp_path / "config.json"
        fields = document("models/meta-llama--Llama-3.1-8B.json")
        path.write_text(json.dumps({k: v for k, v in fields.items() if k[0] != "_"} | changes))
        return str(path)

    return write


def test_names_from_files_are_escaped(panel, config):
    panel.set(file=config(_name_or_path="<img src=x onerror=alert(1)>"), context=262_144)
    shown = panel.error + panel._status.value + panel._fixes.value
    assert panel.data.context == 262_144
    assert "<img" not in shown


@pytest.mark.parametrize(
    "content", [b"", b"GGUF", b"GGUF\x03\0\0\0" + b"\xff" * 40, b'{"hidden_size": "<script>"}']
)
@pytest.mark.parametrize("name", ["m.gguf", "config.json"])
def test_bad_file_is_one_sentence(panel, tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    panel.set(file=str(path))
    assert 'role="alert"' in panel.error
    assert "Traceback" not in panel.error and "went wrong" not in panel.error
    assert "<script>" not in panel.error


@pytest.mark.parametrize(
    "path", ["/no/such/file.gguf", "nothing", "/", "~", "a\0b.gguf", "x" * 5000]
)
def test_bad_path_is_one_sentence(panel, path):
    speed = panel.data.decode_tok_s.item()
    panel.set(file=path)
    assert 'role="alert"' in panel.error and "went wrong" not in panel.error
    assert panel.data.decode_tok_s == speed


def test_error_stays_until_the_file_is_right(panel):
    panel.set(file="nothing.gguf").set(context=8192)
    assert "nothing.gguf" in panel.error
    assert panel.set(file="").error == ""


def test_the_guess_of_the_notebook_holds():
    """00-start-here says so: twice the context costs the 8B model less than a third of its speed."""
    work = wb.Workload(context=wb.axis("context", [4096, 8192]))
    ds = wb.predict(wb.Model.preset("llama-3.1-8b"), wb.Device.preset("m4 pro"), work)
    short, long = ds.decode_tok_s.values
    assert 2 / 3 < long / short < 0.98


def test_kv_cache_of_the_exercise():
    """Llama 3.1 config.json: 32 layers, 8 KV heads of 128; fp16 K and V at 8192 tokens: 1 GiB."""
    work = wb.Workload(context=8192)
    ds = wb.predict(wb.Model.preset("llama-3.1-8b"), wb.Device.preset("m4 pro"), work)
    assert ds.memory_bytes.sel(kind="kv") == 2 * 32 * 8 * 128 * 2 * 8192 == 2**30
