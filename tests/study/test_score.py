"""The scoreboard: one call prices every row as a single `predict` would, and drops nothing silently."""

import csv
import dataclasses
import json

import numpy as np
import pytest

import workbench as wb
from workbench import data
from workbench.errors import FileError, SpecError
from workbench.hardware.coefficients import device_keys
from workbench.hardware.ledger import UBATCH
from workbench.study import rows as measured_rows
from workbench.study import score
from workbench.study.scoreboard import scoreboard

ROW = {
    "id": "x1", "device": "NVIDIA GeForce RTX 4090", "device_class": "nvidia-gpu",
    "mem_bandwidth_GBps": "1008", "engine": "llama.cpp-cuda", "model": "llama-3.1-8b",
    "quant": "Q4_K_M", "decode_tok_s": "135", "trust": "A",
}  # fmt: skip
ERRORS = {"n", "median_ape", "p75_ape", "mape"}


@pytest.fixture(scope="module")
def rows() -> tuple[dict, ...]:
    return data.rows("measurements.csv")


@pytest.fixture(scope="module")
def board(rows):
    return scoreboard(rows)


def of(board, row: dict):
    return board.isel(row=board.row.values.tolist().index(row["id"]))


#: What a note says that `predict` has no argument for.
_NOTED = (
    "GPU behind",
    "no FA",
    "RADV",
    "AMDVLK",
    "amdvlk",
    "radv",
    "hipBLASLt",
    "rocWMMA",
    "hipblaslt",
    "rocwmma",
)


def test_a_row_gets_the_number_of_a_single_predict(rows, board):
    """Where a row tells of nothing that predict cannot be asked: no depth, the usual attention, driver and batch."""
    predicted = set(board.row.values[board.reason.values == ""])
    plain = [r for r in rows if r["id"] in predicted and "GPU behind" not in r["note"]
             and r["context_depth_tokens"] in ("", "0", "0.0")]  # fmt: skip
    asked_for = [(row, measured_rows.request(row)) for row in plain]
    usual = [(row, asked) for row, asked in asked_for
             if asked.flash == device_keys(asked.device, asked.engine, asked.build)["flash"]
             and asked.ubatch == UBATCH and not asked.library]  # fmt: skip
    assert len(usual) > 100
    for row, asked in usual[:: len(usual) // 25]:
        mine = of(board, row)
        model = dataclasses.replace(asked.model, stored_bytes=measured_rows.stored(asked))
        work = wb.Workload(asked.prompt, context=asked.context, kv_bits=asked.kv_bits)
        ds = wb.predict(model, asked.device, work, quant=asked.quant, engine=asked.engine,
                        build=asked.build)  # fmt: skip
        for name, theirs in (("predicted", "decode_tok_s"), ("lower", "lower"), ("upper", "upper"),
                             ("prefill_predicted", "prefill_tok_s")):  # fmt: skip
            assert mine[name].item() == pytest.approx(ds[theirs].item(), rel=1e-9), row["id"]
        assert mine.trust.item() == ds.trust.item()


def test_the_scored_set_is_that_of_the_rows(rows, board):
    comparable = [r for r in rows if measured_rows.is_scored(r)]
    kept = {r["id"] for r in measured_rows.best_threads(comparable)}
    assert set(board.row.values[board.scored.values]) == kept


def test_errors_are_those_of_the_formula(board):
    found = score.summary(board)
    chosen = board.isel(row=board.scored.values & np.isfinite(board.measured.values))
    ape = [abs(p / m - 1) for p, m in zip(chosen.predicted.values, chosen.measured.values,
                                          strict=True) if not np.isnan(p)]  # fmt: skip
    assert found["decode"]["n"] == len(ape)
    assert found["decode"]["mape"] == pytest.approx(sum(ape) / len(ape))
    assert found["decode"]["median_ape"] == pytest.approx(sorted(ape)[len(ape) // 2], abs=1e-3)


def test_summary_is_json_with_the_promised_keys(board):
    found = json.loads(json.dumps(score.summary(board), allow_nan=False))
    assert list(found) == [
        "rows", "predicted", "decode", "prefill", "moe", "depth_4096", "by_class", "other_engines",
        "coverage_80", "naive", "failures",
    ]  # fmt: skip
    for part in (found["decode"], found["prefill"], found["naive"]["decode"]):
        assert set(part) == ERRORS
    for part in (found["moe"], found["depth_4096"], found["other_engines"],
                 *found["by_class"].values()):  # fmt: skip
        assert set(part) >= ERRORS
    assert set(found["by_class"]) == set(found["naive"]["by_class"])
    assert sum(part["n"] for part in found["by_class"].values()) == found["decode"]["n"]
    assert found["rows"] == found["predicted"] + sum(f["scored"] for f in found["failures"])


def test_at_least_95_percent_of_the_shared_rows_are_predicted(board):
    found = score.summary(board)
    assert found["predicted"] >= 0.95 * found["rows"]


def test_every_failure_on_shared_rows_is_the_rows_own(board):
    """An exception that is no WorkbenchError would be named in the reason: our own mistake."""
    assert not [f for f in score.summary(board)["failures"] if "Error:" in f["reason"]]


def test_predictions_beat_the_naive_line(board):
    found = score.summary(board)
    assert found["decode"]["median_ape"] < found["naive"]["decode"]["median_ape"] / 3


@pytest.mark.parametrize(
    "odd",
    [
        {"device": "NVIDIA GeForce RTX 9095 Ti", "mem_bandwidth_GBps": "2200"},
        {"device": "Apple M9 Pro", "device_class": "apple-uma", "mem_bandwidth_GBps": "400"},
        {"device": "Foo CPU", "device_class": "cpu", "mem_bandwidth_GBps": "80"},
        {"device": "RTX4090 24GB", "mem_bandwidth_GBps": "", "device_class": ""},
        {"model": "SomeLab/Wombat-7B-v0.3-GGUF"},
        {"model": "Wombat 30B A3B"},
        {"quant": ""},
        {"quant": " q4_k_m (bartowski)"},
        {"n_gpus": "1.0", "batch": " 1 "},
        {"prompt_tokens": "nan", "context_depth_tokens": "NaN", "n_gpus": "nan", "threads": "None"},
        {"engine": "LM Studio 0.3"},
        {"kv_type": "turbo3"},
        {"context_depth_tokens": "200000"},
        {"decode_tok_s": "", "prefill_tok_s": "4000"},
    ],
    ids=str,
)  # fmt: skip
def test_an_odd_row_is_predicted(odd):
    board = scoreboard([ROW | odd])
    assert board.reason.item() == ""
    assert 0 < board.lower.item() < board.predicted.item() < board.upper.item() < 1e4
    assert board.scored.item()


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ({"device": "Foo XPU", "mem_bandwidth_GBps": "", "device_class": ""}, "foo-xpu"),
        ({"model": "Wombat"}, "Wombat"),
        ({"model": ""}, "model"),
        ({"quant": "weird"}, "weird"),
        ({"decode_tok_s": "fast"}, "decode_tok_s"),
        ({"engine": "mlx"}, "mlx"),
        ({"prompt_tokens": "-5"}, ""),
    ],
    ids=str,
)
def test_a_row_that_cannot_be_understood_is_listed_and_counted(odd, said):
    found = score.score([ROW, ROW | {"id": "x2"} | odd])
    assert (found["rows"], found["predicted"]) == (2, 1)
    assert [f["id"] for f in found["failures"]] == ["x2"]
    assert said in found["failures"][0]["reason"]
    assert found["decode"]["n"] == 1


def test_rows_outside_the_scored_set():
    """Another engine is reported apart; trust C, two cards and batches are not compared at all."""
    npu = {"device": "Rockchip RK3588", "device_class": "npu", "engine": "rkllm",
           "mem_bandwidth_GBps": "34", "quant": "w8a8"}  # fmt: skip
    others = [{"trust": "C"}, {"n_gpus": "2"}, {"batch": "8"}, npu]
    found = score.score([ROW] + [ROW | {"id": f"o{i}"} | other for i, other in enumerate(others)])
    assert found["rows"] == 1
    assert found["other_engines"]["n"] == 1


def test_only_three_columns_and_one_speed_are_required():
    bare = {k: ROW[k] for k in ("device", "engine", "model", "decode_tok_s")}
    assert score.score([bare | {"surplus": "x"}])["decode"]["n"] == 1
    for missing in ("device", "engine", "model"):
        with pytest.raises(SpecError, match=missing):
            score.score([{k: v for k, v in bare.items() if k != missing}])
    with pytest.raises(SpecError, match="decode_tok_s or prefill_tok_s"):
        score.score([{k: v for k, v in bare.items() if k != "decode_tok_s"}])


def test_a_cpu_counts_at_its_best_thread_count():
    cpu = ROW | {"device": "AMD Ryzen 9 7950X", "device_class": "cpu", "mem_bandwidth_GBps": "83"}
    listed = [cpu | {"id": t, "threads": t, "decode_tok_s": s}
              for t, s in (("1", "4"), ("8", "12"), ("16", "11"))]  # fmt: skip
    assert scoreboard(listed).row.values.tolist() == ["8"]


def test_files(tmp_path, rows):
    path = tmp_path / "some.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows[:20])
    assert score.score(score.read(path))["rows"] == 20
    table = list(csv.DictReader(score.table(scoreboard(score.read(path))).splitlines()))
    assert [r["id"] for r in table] == [r["id"] for r in rows[:20]]
    first = table[0]
    expected = abs(float(first["predicted"]) / float(first["measured"]) - 1)
    assert float(first["ape"]) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("bad", ["missing.csv", ".", "binary.csv"])
def test_unreadable_files(tmp_path, bad):
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)))
    with pytest.raises(FileError):
        score.read(tmp_path / bad)
