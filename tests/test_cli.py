"""The command line: what it prints, one JSON document on request, one line for wrong input."""

import csv
import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import workbench as wb
from workbench import cli, cli_machine, data, results
from workbench.specs.device import Device
from workbench.study import calibrate
from workbench.study.rows import is_scored


def run(*args: str):
    return CliRunner().invoke(cli.app, list(args))


def answer(*args: str) -> dict:
    """Run with --json; the whole of stdout must be one document."""
    result = run(*args, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def some_rows(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    rows = [row for row in data.rows("measurements.csv") if is_scored(row)][:300:6]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_help_names_every_command():
    shown = run("--help").stdout
    for name in ("lab", "probe", "fit", "predict", "score", "calibrate", "models", "devices"):
        assert name in shown


def test_version():
    assert (
        run("--version").stdout.strip()
        == wb.predict(wb.Model.preset("llama-3.1-8b"), Device.preset("rtx-4090")).attrs["version"]
    )


def test_predict_says_what_the_library_says():
    found = answer("predict", "llama-3.1-8b", "rtx-4090", "--quant", "Q8_0", "--context", "4096")
    (record,) = found["predictions"]
    ds = wb.predict(wb.Model.preset("llama-3.1-8b"), Device.preset("rtx-4090"),
                    wb.Workload(context=4096), quant="Q8_0")  # fmt: skip
    assert record["decode_tok_s"] == pytest.approx(ds.decode_tok_s.item())
    assert record["lower"] < record["decode_tok_s"] < record["upper"]
    assert sum(record["time_s"].values()) == pytest.approx(1 / record["decode_tok_s"])
    assert record["cold_start_s"]["cold"] > record["load_s"]["cold"] > record["load_s"]["warm"]
    assert {"verdict", "fixes", "flags", "elasticity", "trust", "fits"} <= set(record)


def test_predict_prints_verdict_ledger_fixes_and_flags():
    shown = run("predict", "llama-3.3-70b-instruct", "rtx-4090").stdout
    for text in ("does not fit", "weights", "loads in", "what to change", "llama-server"):
        assert text in shown


def test_commas_sweep():
    found = answer("predict", "llama-3.1-8b,qwen3-30b-a3b", "rtx-4090,m4-pro", "--context",
                   "1024,8192", "--quant", "Q4_K_M,Q8_0")["predictions"]  # fmt: skip
    assert len(found) == 2 * 2 * 2 * 2
    assert {r["context"] for r in found} == {1024, 8192}
    table = run("predict", "llama-3.1-8b,qwen3-30b-a3b", "rtx-4090").stdout
    assert "qwen3-30b-a3b" in table


def test_predict_reads_files(tmp_path, gemma_path):
    config = tmp_path / "config.json"
    config.write_text(data.path("models/Qwen--Qwen3-8B.json").read_text())
    (record,) = answer("predict", str(config), "m4-pro")["predictions"]
    (preset,) = answer("predict", "qwen3-8b", "m4-pro")["predictions"]
    assert record["decode_tok_s"] == pytest.approx(preset["decode_tok_s"])
    (own,) = answer("predict", str(gemma_path), "m4-pro")["predictions"]
    assert own["file_bytes"] == pytest.approx(gemma_path.stat().st_size, rel=0.05)
    (other,) = answer("predict", str(gemma_path), "m4-pro", "--quant", "F16")["predictions"]
    assert other["file_bytes"] > 1.5 * own["file_bytes"]


def test_memory_and_wired_limit():
    (small,) = answer("predict", "llama-3.1-8b", "m4-pro", "--memory", "24 GiB")["predictions"]
    (wired,) = answer("predict", "llama-3.1-8b", "m4-pro", "--wired-limit", "20 GiB")["predictions"]
    assert small["usable_bytes"] == pytest.approx(24 * 2**30 * 2 / 3, rel=1e-3)  # macOS's rule
    assert wired["usable_bytes"] == 20 * 2**30


def test_a_disk_as_stated_is_what_files_come_from():
    def asked(*more: str) -> dict:
        return answer("predict", "llama-3.1-8b", "rtx-4090", *more)["predictions"][0]

    ssd, usb = asked("--disk", "3 GB/s"), asked("--disk", "40 MB/s")
    ds = wb.predict(wb.Model.preset("llama-3.1-8b"), Device.preset("rtx-4090", disk="3 GB/s"),
                    quant="Q4_K_M")  # fmt: skip
    assert ssd["load_s"]["cold"] == pytest.approx(ds.load_s.sel(cache_state="cold").item())
    read = usb["file_bytes"] / 40e6  # USB 2.0 takes longer than all the rest
    assert read < usb["load_s"]["cold"] < 1.1 * read
    assert usb["load_s"]["warm"] == ssd["load_s"]["warm"] == asked()["load_s"]["warm"]
    assert usb["decode_tok_s"] == ssd["decode_tok_s"]


def test_fit_ranks_what_fits_and_is_fast_enough():
    found = answer("fit", "--device", "rtx-4090", "--top", "10", "--at-least", "20", "--disk",
                   "40 MB/s")  # fmt: skip
    models = found["models"]
    assert len(models) == 10
    assert all(m["fits"] and m["decode_tok_s"] >= 20 for m in models)
    sizes = [m["total_params"] for m in models]
    assert sizes == sorted(sizes, reverse=True)
    assert all(m["load_s"]["cold"] > m["file_bytes"] / 40e6 for m in models)


def test_fit_of_a_small_machine_prints_a_sentence():
    shown = run("fit", "--device", "rtx-4090", "--at-least", "100000").stdout
    assert "no model" in shown


def test_score(some_rows, tmp_path):
    found = answer("score", str(some_rows), "--rows", str(tmp_path / "out.csv"))
    assert found["rows"] == found["predicted"] == 50
    written = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert len(written) == 50
    assert {"id", "predicted", "lower", "upper", "measured", "ape", "trust"} <= set(written[0])
    assert "50 of 50 rows predicted" in run("score", str(some_rows)).stdout


def test_calibrate_writes_a_table_that_predict_takes(some_rows, tmp_path, monkeypatch):
    monkeypatch.setattr(calibrate, "FOLDS", {"device": 2, "model": 2})
    out = tmp_path / "coefficients.json"
    found = answer("calibrate", str(some_rows), "--out", str(out))
    assert set(found["held_out"]) == {"decode", "prefill"}
    assert set(found["held_out"]["decode"]) == {"device", "model"}
    ds = wb.predict(wb.Model.preset("llama-3.1-8b"), Device.preset("m1-pro"),
                    table=json.loads(out.read_text()))  # fmt: skip
    assert 5 < ds.decode_tok_s.item() < 60


def test_lists():
    assert [m["model"] for m in answer("models", "qwen3-30b-a3b")["models"]][0] == "qwen3-30b-a3b"
    card = answer("devices", "geforce-rtx-4090")["devices"][0]
    assert card["mem_bandwidth_GBps"] == 1008  # NVIDIA's page of the card
    assert "llama-3.1-8b" in run("models").stdout
    assert "amd-apu" in run("devices", "8060s").stdout


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["predict", "llama-3.1-8b", "rtx-4091"], "rtx-4090"),
        (["predict", "llama-3.1-8bb", "rtx-4090"], "llama-3.1-8b"),
        (["predict", "missing.gguf", "rtx-4090"], "missing.gguf"),
        (["predict", "missing.json", "rtx-4090"], "missing.json"),
        (["predict", "llama-3.1-8b", "rtx-4090", "--quant", "Q99"], "Q99"),
        (["predict", "llama-3.1-8b", "rtx-4090", "--batch", "0"], "batch"),
        (["predict", "llama-3.1-8b", "rtx-4090", "--batch", "-1"], "batch"),
        (["predict", "llama-3.1-8b", "rtx-4090", "--context", "4k"], "context"),
        (["predict", "llama-3.1-8b", "rtx-4090", "--kv", "q9"], "kv_bits"),
        (["predict", "llama-3.1-8b", "rtx-4090", "--memory", "lots"], "memory"),
        (["predict", "llama-3.1-8b", "rtx-4090", "--disk", "0 GB/s"], "disk"),
        (["predict", "llama-3.1-8b", "rtx-4090", "--disk", "3 GB"], "disk"),
        (["fit", "--device", "rtx-4090", "--disk", "quick"], "disk"),
        (["predict", "llama-3.1-8b", "rtx-4090", "--wired-limit", "2 furlongs"], "wired-limit"),
        (["predict", "llama-3.1-8b", "rtx-4090", "--engine", "mlx"], "mlx"),
        (["predict", "llama-3.1-8b", "rtx-4090", "--engine", "nonesuch"], "nonesuch"),
        (["predict", ",", "rtx-4090"], "model"),
        (["score", "missing.csv"], "missing.csv"),
        (["calibrate", "missing.csv"], "missing.csv"),
        (["fit", "--device", "nonesuch"], "nonesuch"),
        (["fit", "--device", "nonesuch.nc"], "nonesuch.nc"),
        (["probe", "--only", "dsk"], "disk"),
        (["probe", "--only", "matmul", "--seconds", "0"], "seconds"),
        (["probe", "--only", "disk", "--folder", "nonesuch"], "nonesuch"),
        (["probe", "--save", "nonesuch/mine.nc"], "nonesuch"),
    ],
    ids=str,
)
@pytest.mark.parametrize("as_json", [[], ["--json"]], ids=["text", "json"])
def test_wrong_input_is_one_line_on_stderr(args, as_json, said):
    result = run(*args, *as_json)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
    assert said in result.stderr


def test_a_saved_probe_stands_for_the_machine(tmp_path):
    file = str(tmp_path / "mine.nc")
    asked = ["--only", "bandwidth", "--only", "matmul", "--seconds", "2", "--save", file]
    found = answer("probe", *asked)
    assert found["variables"]["stream_bandwidth"]["attrs"]["units"] == "byte/s"
    (record,) = answer("predict", "llama-3.2-1b", file, "--memory", "64 GiB", "--disk",
                       "40 MB/s")["predictions"]  # fmt: skip
    assert record["load_s"]["cold"] > record["file_bytes"] / 40e6
    bandwidth = found["device"]["bandwidth"]
    assert record["naive_tok_s"] == pytest.approx(
        wb.predict(wb.Model.preset("llama-3.2-1b"),
                   Device.custom("mine", bandwidth=bandwidth, memory="64 GiB", device_class="cpu"),
                   quant="Q4_K_M").naive_tok_s.item()
    )  # fmt: skip
    shown = run("probe", "--only", "system").stdout
    assert "memory" in shown and "not seen" in shown


def test_the_first_interrupt_stops_the_probes_and_the_second_one_the_program():
    with cli_machine._stoppable(lambda what, done, of: True) as told:
        assert told("disk", 1, 2)
        signal.raise_signal(signal.SIGINT)
        assert not told("disk", 2, 2)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_a_probe_could_not_measure_is_not_printed(capsys):
    ds = results.dataset(
        {
            "iops": ("queue_depth", [np.nan, np.nan]),
            "read_latency_s": ("queue_depth", [np.nan, np.nan]),
            "read_bandwidth": (("cache_state", "block_size"), [[np.nan], [np.nan]]),
            "fi": (("zone", "order"), [[-1000.0, 512.5]]),
        },
        {"queue_depth": [1, 2], "cache_state": ["cold", "warm"], "block_size": [4096],
         "zone": ["Normal 0"], "order": [0, 1]},
        unseen="pages: why", numa_balancing=-1, thp="", readahead_bytes=131072,
    )  # fmt: skip
    cli_machine.print_probe(ds)
    shown = capsys.readouterr().out
    assert "random read" not in shown and "reading" not in shown
    assert "-1,000" in shown and "512" in shown
    assert "128 KiB" in shown and "balancing" not in shown and "thp" not in shown
    assert "not seen: pages: why" in shown


def test_a_context_beyond_the_model_warns_once_and_answers():
    result = run("predict", "llama-2-7b", "rtx-4090", "--context", "40000", "--json")
    assert result.exit_code == 0
    assert result.stderr.count("beyond what") == 1
    assert len(json.loads(result.stdout)["predictions"]) == 1


def test_a_hostile_name_does_not_steer_the_terminal(tmp_path):
    config = json.loads(data.path("models/Qwen--Qwen3-8B.json").read_text())
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config | {"_name_or_path": "x\x1b[2J[red]y"}))
    shown = run("predict", str(path), "m4-pro")
    assert shown.exit_code == 0
    assert "\x1b" not in shown.stdout


def test_lab_copies_packaged_notebooks_but_never_over_own_work(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "workbench"
    (package / "notebooks").mkdir(parents=True)
    (package / "notebooks" / "00-start-here.ipynb").write_text("new")
    (package / "notebooks" / "01-token-ledger.ipynb").write_text("new")
    monkeypatch.setattr(cli, "__file__", str(package / "cli.py"))
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / "workbench-notebooks" / "00-start-here.ipynb"
    mine.parent.mkdir()
    mine.write_text("mine")
    started = []
    monkeypatch.setattr(cli.os, "execv", lambda program, command: started.append(command))
    assert run("lab", "--port", "9999").exit_code == 0
    assert mine.read_text() == "mine"
    assert (mine.parent / "01-token-ledger.ipynb").read_text() == "new"
    assert f"--ServerApp.root_dir={mine.parent}" in started[0]
    assert started[0][-2:] == ["--port", "9999"]


def test_the_program_is_installed():
    shown = subprocess.run(
        [sys.executable, "-m", "workbench", "--version"], capture_output=True, text=True, check=True
    )
    assert shown.stdout.count(".") == 2
