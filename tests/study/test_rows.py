"""Rows as people write them: every cell that can be understood is, and any other raises a sentence with its name."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import data
from workbench.errors import WorkbenchError
from workbench.study import row_fields, row_specs
from workbench.study.rows import Request, best_threads, is_scored, request
from workbench.units import GB, GiB

ROW = {
    "id": "x1", "device": "NVIDIA GeForce RTX 4090", "device_class": "nvidia-gpu",
    "mem_bandwidth_GBps": "1008", "engine": "llama.cpp-cuda", "model": "llama-3.1-8b",
    "quant": "Q4_K_M", "decode_tok_s": "135", "trust": "A",
}  # fmt: skip
MAC = ROW | {"device": "Apple M3 Max 40-core GPU", "device_class": "apple-uma", "engine": "mlx-lm",
             "mem_bandwidth_GBps": "400"}  # fmt: skip


def ask(**cells) -> Request:
    return request(ROW | cells)


@pytest.mark.parametrize(
    ("stated", "value"),
    [
        ("1,234.5", 1234.5), ("1 234", 1234), ("7,92", 7.92), ("1.2k", 1200), ("52.3 ± 0.4", 52.3),
        ("52.3 +/- 0.4", 52.3), ("~52", 52), ("52 tok/s", 52), ("5.2e1", 52), ("52.", 52),
        ("1,234,567", 1234567), ("135.1 (median)", 135.1),
    ],
)  # fmt: skip
def test_speeds(stated, value):
    assert ask(decode_tok_s=stated).decode_tok_s == pytest.approx(value)


@pytest.mark.parametrize(
    ("stated", "value"),
    [("4k", 4096), ("pp512", 512), ("2048 tokens", 2048), ("32K", 32768), ("1,024", 1024)],
)
def test_tokens(stated, value):
    assert ask(prompt_tokens=stated).prompt == value


@pytest.mark.parametrize("field", ["decode_tok_s", "prefill_tok_s", "prompt_tokens", "gen_tokens",
                                   "context_depth_tokens"])  # fmt: skip
@pytest.mark.parametrize("wrong", ["fast", "-5", "inf", "1e999", "12 to 14", "5 5"])
def test_a_wrong_number_that_matters_names_its_cell(field, wrong):
    with pytest.raises(WorkbenchError, match=f"row x1: {field}"):
        ask(**{field: wrong})


@pytest.mark.parametrize("blank", ["", "nan", "None", "-", "n/a", None])
def test_blank_cells(blank):
    asked = ask(prompt_tokens=blank, gen_tokens=blank, context_depth_tokens=blank, threads=blank,
                prefill_tok_s=blank, kv_type=blank, mem_bandwidth_GBps=blank)  # fmt: skip
    assert (asked.prompt, asked.context, asked.depth, asked.kv_bits) == (512, 64, 0, 16)
    assert math.isnan(asked.prefill_tok_s) and math.isnan(asked.threads)


def test_numbers_that_only_refine_are_dropped_where_wrong():
    asked = ask(threads="many", gpu_cores="lots", mem_bandwidth_GBps="0", ubatch="?",
                model_size_bytes_or_GiB="big", params_B="x")  # fmt: skip
    assert asked.device.bandwidth == 1008 * GB
    assert math.isnan(asked.threads) and math.isnan(asked.size)
    assert ask(threads="8+8").threads == 16


@pytest.mark.parametrize(
    ("stated", "size"),
    [("4.58", 4.58 * GiB), ("4.58 GiB", 4.58 * GiB), ("4.92 GB", 4.92e9), ("4920000000", 4.92e9),
     ("4693 MiB", 4693 * 2**20), ("4693.5", 4693.5 * 2**20), ("4.58G", 4.58 * GiB),
     ("4,920,000,000", 4.92e9)],
)  # fmt: skip
def test_sizes(stated, size):
    assert ask(model_size_bytes_or_GiB=stated).size == pytest.approx(size)


@pytest.mark.parametrize("stated", ["1008", "1008 GB/s", "1.008 TB/s", "1,008", "1008GB/s"])
def test_bandwidths(stated):
    assert row_fields.bandwidth({"mem_bandwidth_GBps": stated}) == pytest.approx(1.008e12)


@pytest.mark.parametrize(
    ("stated", "bits"),
    [("q8_0", 8.5), ("Q8", 8.5), ("q8_0/q8_0", 8.5), ("K q8_0 / V q4_0", 6.5), ("int8", 8),
     ("fp8", 8), ("fp8_e4m3", 8), ("fp16", 16), ("BF16", 16), ("turbo3", 3.5), ("8-bit", 8.5),
     ("q4_0", 4.5), ("auto", 16), ("f32", 32)],
)  # fmt: skip
def test_kv_types(stated, bits):
    assert ask(kv_type=stated).kv_bits == bits


def test_an_unknown_kv_type_is_an_error():
    with pytest.raises(WorkbenchError, match="row x1: kv_type"):
        ask(kv_type="squeezed")


def test_flash_attention():
    for word, found in {"1": "on", "0": "off", "true": "on", "Off": "off", "": "", "?": ""}.items():
        assert ask(flash_attn=word).flash == found


def test_a_model_without_a_known_name_is_as_large_as_the_row_says():
    assert ask(model="Wombat", params_B="7.62").model.total_params == pytest.approx(7.62e9)
    assert ask(model="Wombat 7B", params_B="7.62").model.total_params == pytest.approx(7.62e9)
    assert ask(model="", params_B="8030000000").model.total_params == pytest.approx(8.03e9)
    sparse = ask(model="Wombat", params_B="30.5", arch_kind="moe").model
    assert sparse.experts > 0 and 1e9 < sparse.active_params < 10e9
    # llama.cpp tools/quantize/README.md: Llama-3.1-8B in Q4_K_M is 4.58 GiB
    by_size = ask(model="Wombat", model_size_bytes_or_GiB="4.58").model
    assert by_size.total_params == pytest.approx(8.03e9, rel=0.03)
    with pytest.raises(WorkbenchError, match="Wombat"):
        ask(model="Wombat")


@pytest.mark.parametrize(
    ("size", "quant"), [("4.58", "4-bit"), ("7.95", "8-bit"), ("14.96", "F16"), ("2.95", "3-bit")]
)
def test_an_unknown_format_takes_the_bits_that_the_file_has(size, quant):
    assert ask(quant="weird", model_size_bytes_or_GiB=size).quant == quant


def test_formats_follow_the_engine_and_the_model_name():
    assert request(MAC | {"quant": ""}).quant == "MLX 4bit"
    assert request(MAC | {"quant": "4-bit (not stated)"}).quant == "MLX 4bit"
    for eight in ("8bit", "q8", "MLX_q8", "8-bit DWQ", "Q8_0", "int8"):
        assert request(MAC | {"quant": eight}).quant == "MLX 8bit"
    assert request(MAC | {"quant": "", "model": "mlx-community/Qwen3-8B-6bit"}).quant == "MLX 6bit"
    assert ask(quant="4.5bpw", engine="tabbyAPI (exl2)").quant == "EXL2 4.5bpw"
    assert ask(quant="", model="Qwen3-8B-Q6_K.gguf").quant == "Q6_K"
    assert ask(quant="", engine="ollama").quant == "Q4_K_M"
    assert ask(quant="Q5_WEIRD").quant == "5-bit"
    # unsloth/gpt-oss-20b-GGUF: the Q8_0 file is 12.1 GB, hardly more than the MXFP4 one
    assert ask(model="gpt-oss-20b", quant="Q8_0").quant == "MXFP4"
    with pytest.raises(WorkbenchError, match="weird"):
        ask(quant="weird")


@pytest.mark.parametrize(
    ("cells", "name"),
    [
        ({"device": "MacBook Pro (M3 Max, 40-core GPU)"}, "Apple M3 Max 40-core GPU"),
        ({"device": "Mac Studio M2 Ultra 76-core GPU"}, "Apple M2 Ultra 76-core GPU"),
        ({"device": "Apple M3 Max (14-core CPU, 30-core GPU)"}, "Apple M3 Max 30-core GPU"),
        ({"device": "Mac mini (M4 Pro, 64GB)"}, "Apple M4 Pro 20-core GPU"),
        ({"device": "Framework Desktop (Strix Halo)", "device_class": "amd-apu"},
         "AMD Ryzen AI Max+ 395 (Radeon 8060S)"),
        ({"device": "GMKtec EVO-X2", "device_class": ""}, "AMD Ryzen AI Max+ 395 (Radeon 8060S)"),
        ({"device": "ASUS ROG Ally", "device_class": "gpu"}, "AMD Ryzen Z1 Extreme (Radeon 780M)"),
        ({"device": "Gigabyte RTX 3090 Gaming OC", "device_class": "nvidia"},
         "NVIDIA GeForce RTX 3090"),
        ({"device": "Intel Core Ultra 7 258V", "device_class": "intel"},
         "Intel Core Ultra 7 258V (Arc 140V)"),
        ({"device": "1x RTX 4090", "device_class": "GPU"}, "NVIDIA GeForce RTX 4090"),
    ],
    ids=str,
)  # fmt: skip
def test_machines_in_their_case(cells, name):
    base = {"device_class": "apple-uma", "mem_bandwidth_GBps": "", "engine": "llama.cpp"}
    assert ask(**(base | cells)).device.name == name


@pytest.mark.parametrize(
    ("name", "kind"),
    {
        "RTX 7090 Ti": "nvidia-gpu", "Tesla X9": "nvidia-gpu", "Apple M9 Ultra": "apple-uma",
        "Radeon RX 10900 XT": "amd-gpu", "Ryzen AI 11 HX 970": "amd-apu", "Intel Arc C770": "intel",
        "AMD EPYC 9999": "cpu", "Intel Core i9-19900K": "cpu", "Raspberry Pi 7": "sbc",
        "Snapdragon 9 Gen 9": "npu",
    }.items(),
)  # fmt: skip
def test_a_machine_that_nobody_knows_is_estimated_from_its_kind(name, kind):
    engine = "genie" if kind == "npu" else "llama.cpp"
    found = ask(device=name, device_class="", mem_bandwidth_GBps="", engine=engine).device
    assert found.device_class == kind
    assert "bandwidth estimated" in found.note and found.bandwidth > 1 * GB


def test_a_machine_of_no_kind_is_an_error():
    with pytest.raises(WorkbenchError, match="foo"):
        ask(device="Foo XPU", device_class="", mem_bandwidth_GBps="", engine="llama.cpp")


def test_a_cpu_engine_runs_on_the_cpu_of_the_machine():
    asked = ask(engine="llama.cpp-cpu")
    assert asked.device.device_class == "cpu"
    assert asked.device.bandwidth == 83.2 * GB  # dual channel DDR5-5200 beside a card of its time
    mac = request(MAC | {"device": "Apple M2 Max", "engine": "llama.cpp (CPU)"})
    assert mac.device.name == "Apple M2 Max (CPU)"


@pytest.mark.parametrize(
    ("cells", "scored"),
    [
        ({}, True), ({"trust": "b"}, True), ({"trust": "C"}, False), ({"trust": ""}, True),
        ({"n_gpus": "1.0", "batch": " 1 "}, True), ({"n_gpus": "2"}, False),
        ({"device": "2x RTX 3090", "n_gpus": ""}, False), ({"device": "RTX 3090 x2"}, False),
        ({"device": "Dual RTX 3090"}, False), ({"device": "GTX 1080"}, True),
        ({"batch": "8"}, False), ({"device_class": "GPU"}, True), ({"device_class": ""}, True),
        ({"engine": "vllm"}, False), ({"engine": "my own engine"}, False),
        ({"engine": "KoboldCpp 1.98"}, True), ({"engine": "LM Studio MLX"}, True),
    ],
    ids=str,
)  # fmt: skip
def test_the_scored_set(cells, scored):
    assert is_scored(ROW | cells) == scored


def test_engines():
    assert ask(engine="my own engine").engine == "other"
    tag = request(MAC | {"engine": "ollama", "model": "qwen3.6:27b-mlx", "quant": ""})
    assert tag.engine == "ollama-mlx"


def test_a_date_in_the_note_stands_in_for_the_build():
    assert ask(note="January 2025; secondary copy").build == "2025"
    assert ask(source="some/benchmarks/2024-03-01.md").build == "2024"
    assert ask(engine_version_or_build="b6000", note="Jan 2024").build == "b6000"


def test_best_threads_keeps_what_differs_in_more_than_threads():
    cpu = ROW | {"device": "AMD Ryzen 9 7950X", "device_class": "CPU"}
    runs = [cpu | {"threads": t, "decode_tok_s": s} for t, s in (("4", "9"), ("16", "12"))]
    other = cpu | {"threads": "4", "quant": "Q8_0"}
    assert best_threads([*runs, other]) == [runs[1], other]


def test_measured_rows_are_understood():
    rows = data.rows("measurements.csv")
    lost = []
    for row in rows:
        try:
            request(row)
        except WorkbenchError:
            lost.append(row["id"])
    assert len(lost) <= 0.003 * len(rows)


COLUMNS = sorted(data.rows("measurements.csv")[0])


@given(
    st.dictionaries(
        st.sampled_from(COLUMNS),
        st.one_of(st.text(max_size=30), st.none(), st.floats()),
        max_size=4,
    )
)
def test_any_junk_is_a_request_or_a_sentence(junk):
    try:
        asked = request(ROW | junk)
    except WorkbenchError as err:
        assert str(err)
    else:
        assert asked.device.bandwidth > 0 and asked.context >= 0 and 1 <= asked.kv_bits <= 32
    try:
        assert is_scored(ROW | junk) in (True, False)
    except WorkbenchError as err:
        assert str(err)


@given(st.text(alphabet="0123456789.,+-±ekGMB/s_ ()x", max_size=12))
def test_any_figure_is_a_finite_number_or_none(stated):
    value, unit = row_fields.quantity(stated)
    assert (math.isnan(value) or math.isfinite(value)) and isinstance(unit, str)


def test_how_many_machines():
    assert row_specs.machines({"device": "4x RTX A6000"}) == 4
    assert row_specs.machines({"device": "RTX 4090", "n_gpus": "1x"}) == 1
    assert row_specs.machines({"device": "2x Xeon 8488C", "device_class": "cpu"}) == 1
