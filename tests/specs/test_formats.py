"""Quantisation formats against file sizes that llama.cpp and others report."""

import csv
import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import WorkbenchError
from workbench.specs import catalogue, formats
from workbench.specs.model import INDEX, TENSOR_CLASSES, Model


def dense(name, layers, hidden, heads, kv_heads, ffn, vocab, experts=0, tied=False):
    """A llama-shaped Model by hand: embedding, attention, gate-up-down, norms."""
    params = np.zeros(len(TENSOR_CLASSES))
    kv = hidden * hidden * kv_heads // heads
    kind = "expert" if experts else "ffn"
    values = {
        "embedding": vocab * hidden,
        "output": 0 if tied else vocab * hidden,
        "attention_qk": layers * (hidden * hidden + kv),
        "attention_v": layers * kv,
        "attention_out": layers * hidden * hidden,
        f"{kind}_up": layers * max(experts, 1) * 2 * hidden * ffn,
        f"{kind}_down": layers * max(experts, 1) * hidden * ffn,
        "router": layers * experts * hidden,
        "norm": (2 * layers + 1) * hidden,
    }
    for key, value in values.items():
        params[INDEX[key]] = value
    routed = {"experts": experts, "moe_layers": layers if experts else 0}
    shape = (layers, hidden, heads, kv_heads, hidden // heads, 0 if experts else ffn, vocab)
    return Model(name, "llama", params, *shape, **routed, tied=tied)


LLAMA_3_8B = dense("llama-3.1-8b", 32, 4096, 32, 8, 14336, 128256)
LLAMA_3_70B = dense("llama-3-70b", 80, 8192, 64, 8, 28672, 128256)
LLAMA_2_7B = dense("llama-2-7b", 32, 4096, 32, 32, 11008, 32000)
LLAMA_2_13B = dense("llama-2-13b", 40, 5120, 40, 40, 13824, 32000)
LLAMA_2_70B = dense("llama-2-70b", 80, 8192, 64, 8, 28672, 32000)
GIB = 2**30

#: llama.cpp tools/quantize/README.md at 311c2c9f, Llama-3.1-8B: bits per weight.
README = {
    "IQ1_S": 2.0042, "IQ1_M": 2.1460, "IQ2_XXS": 2.3824, "IQ2_XS": 2.5882, "IQ2_S": 2.7403,
    "IQ2_M": 2.9294, "IQ3_XXS": 3.2548, "IQ3_XS": 3.4977, "IQ3_S": 3.6606, "IQ3_M": 3.7628,
    "IQ4_XS": 4.4597, "IQ4_NL": 4.6818, "Q2_K_S": 2.9697, "Q2_K": 3.1593, "Q3_K_S": 3.6429,
    "Q3_K_L": 4.2979, "Q4_K_S": 4.6672, "Q4_K_M": 4.8944, "Q5_K_S": 5.5704, "Q5_K_M": 5.7036,
    "Q6_K": 6.5633, "Q8_0": 8.5008, "F16": 16.0005,
}  # fmt: skip
#: llama.cpp examples/quantize/README.md of 2024, Llama 2 7B, 13B, 70B: bits per weight.
LLAMA_2 = {
    "Q3_K_S": (3.50, 3.48, 3.47), "Q3_K_M": (3.91, 3.89, 3.85), "Q3_K_L": (4.27, 4.26, 4.19),
    "Q4_K_S": (4.58, 4.56, 4.53), "Q4_K_M": (4.84, 4.83, 4.80), "Q5_K_S": (5.52, 5.51, 5.50),
    "Q5_K_M": (5.68, 5.67, 5.65), "Q6_K": (6.56, 6.56, 6.56),
}  # fmt: skip
#: Formats of one scheme, each bigger than the one before.
LADDERS = (
    ("Q2_K_S", "Q3_K_S", "Q4_K_S", "Q5_K_S", "Q6_K", "Q8_0", "F16", "F32"),
    ("Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0", "BF16", "F32"),
    ("IQ2_XXS", "IQ2_XS", "IQ3_S", "IQ4_XS", "IQ4_NL", "Q8_0"),
    ("MLX 2bit", "MLX 3bit", "MLX 4bit", "MLX 4bit g32", "MLX 5bit", "MLX 6bit", "MLX 8bit"),
    ("EXL2 2.5bpw", "EXL2 3bpw", "EXL2 4.25bpw", "EXL2 6bpw"),
    ("GPTQ 3bit", "GPTQ 4bit", "GPTQ 4bit g32", "GPTQ 8bit", "F16"),
)


def per_weight(model, quant):
    return formats.weight_bytes(model, quant).sum() * 8 / model.params.sum()


@pytest.mark.parametrize(("quant", "bits"), README.items())
def test_llama_3_8b_has_the_published_bits_per_weight(quant, bits):
    assert per_weight(LLAMA_3_8B, quant) == pytest.approx(bits, rel=0.01)


@pytest.mark.parametrize(("quant", "bits"), LLAMA_2.items())
def test_llama_2_has_the_published_bits_per_weight(quant, bits):
    ours = [per_weight(model, quant) for model in (LLAMA_2_7B, LLAMA_2_13B, LLAMA_2_70B)]
    assert ours == pytest.approx(list(bits), rel=0.01)


@pytest.mark.parametrize(
    ("quant", "size"),
    {"Q4_K_M": 4.58, "Q5_K_M": 5.33, "Q6_K": 6.14, "Q8_0": 7.95, "F16": 14.96}.items(),
)
def test_llama_3_8b_files_have_the_size_in_the_readme(quant, size):
    assert formats.weight_bytes(LLAMA_3_8B, quant).sum() / GIB == pytest.approx(size, rel=0.003)


def rows(name):
    with Path(__file__).with_name(name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def error(row):
    """Relative error of a file's size, without prediction layers where that fits better.

    Converters dropped those layers from some files, and no source says from which.
    """
    parts = formats.weight_bytes(catalogue.resolve(row["model"]), row["quant"])
    sizes = np.array([parts.sum(), parts.sum() - parts[INDEX["mtp"]]]) / GIB
    errors = sizes / float(row["size_GiB"]) - 1
    return errors[np.argmin(abs(errors))]


SIZES = rows("file_sizes.csv")
EXACT = [row for row in SIZES if not row["exception"]]
UNSLOTH = [row for row in SIZES if row["exception"].startswith("Unsloth")]


@pytest.mark.parametrize("row", EXACT, ids=lambda row: f"{row['model']} {row['quant']}")
def test_file_size_is_within_a_percent_of_what_was_reported(row):
    last_digit = 10.0 ** -len(row["size_GiB"].partition(".")[2])
    assert abs(error(row)) <= max(0.01, 0.51 * last_digit / float(row["size_GiB"]))


def test_most_reported_files_are_exact_and_unsloths_close():
    assert len(EXACT) / (len(SIZES) - len(UNSLOTH)) > 0.75
    errors = [abs(error(row)) for row in UNSLOTH]
    assert np.median(errors) < 0.05 and max(errors) < 0.10


@pytest.mark.parametrize("row", rows("spellings.csv"), ids=lambda row: row["spelling"])
def test_spellings_of_the_measurements_are_understood(row):
    assert formats.normalise(row["spelling"]) == row["name"]
    assert formats.normalise(row["name"]) == row["name"]
    assert formats.family(row["spelling"]) == row["family"]


@pytest.mark.parametrize("text", ["", "Q9_K", "zzz", "MLX 99bit", "x" * 200, "EXL2 nan", None, 4])
def test_unknown_formats_are_refused(text):
    with pytest.raises(WorkbenchError, match="quant"):
        formats.normalise(text)


def test_unknown_format_suggests_the_nearest():
    with pytest.raises(WorkbenchError, match="Q4_K_M"):
        formats.normalise("Q4_K_N")


def test_every_named_format_has_a_family_and_positive_bits():
    for name in formats.names():
        assert formats.family(name) in formats.FAMILIES
        bits = formats.bits(name, LLAMA_3_8B)
        assert bits.shape == (len(TENSOR_CLASSES),) and (bits > 0).all() and (bits <= 64).all()


def test_group_formats_follow_the_definition():
    body = INDEX["ffn_up"]
    # mlx.core.quantize: a 16-bit scale and bias per group of 64
    for width in (4, 6, 8):
        assert formats.bits(f"MLX {width}bit", LLAMA_3_8B)[body] == width + 0.5
    assert formats.bits("EXL2 3.5bpw", LLAMA_3_8B)[body] == 3.5
    # a 16-bit scale and a 4-bit zero per group of 128
    assert formats.bits("AWQ INT4", LLAMA_3_8B)[body] == 4 + 20 / 128
    assert formats.bits("AWQ INT4", LLAMA_3_8B)[INDEX["output"]] == 16


def test_eight_experts_get_better_attention():
    # llama.cpp src/llama-quant.cpp: attn_k and attn_v of 8-expert models become Q8_0
    mixtral = dense("mixtral", 32, 4096, 32, 8, 14336, 32000, experts=8)
    assert formats.bits("Q4_K_M", mixtral)[INDEX["attention_v"]] == 8.5
    assert formats.bits("Q4_K_M", LLAMA_3_8B)[INDEX["attention_v"]] < 6.6


def test_bytes_read_from_a_file_override_the_format():
    stored = np.arange(len(TENSOR_CLASSES), dtype=float)
    model = dataclasses.replace(LLAMA_3_8B, stored_bytes=stored)
    np.testing.assert_array_equal(formats.weight_bytes(model, "Q8_0"), stored)


@given(
    layers=st.integers(1, 128),
    heads=st.integers(1, 64),
    grouped=st.sampled_from([1, 2, 4, 8]),
    head_dim=st.sampled_from([256, 512]),
    ffn=st.integers(1, 100).map(lambda n: 256 * n),
    experts=st.sampled_from([0, 4, 8, 128]),
    tied=st.booleans(),
    ladder=st.sampled_from(LADDERS),
)
def test_fewer_bits_never_take_more_bytes(
    layers, heads, grouped, head_dim, ffn, experts, tied, ladder
):
    # Rows of a multiple of 256: for others llama.cpp falls back to larger types, in which the order
    # of its mixes can turn (Q2_K_S, whose first layers are Q4_K, above Q3_K_S).
    heads *= grouped
    shape = (layers, heads * head_dim, heads, heads // grouped, ffn, 32000)
    model = dense("any", *shape, experts=experts, tied=tied)
    sizes = [formats.weight_bytes(model, quant).sum() for quant in ladder]
    assert sizes == sorted(sizes)


@pytest.mark.parametrize(
    ("wording", "name"),
    {
        # llama.cpp's own labels of file types (llama_model_ftype_name)
        "Q4_K - Medium": "Q4_K_M", "Q5_K - Small": "Q5_K_S", "Q3_K - Large": "Q3_K_L",
        "Q2_K - Medium": "Q2_K", "IQ2_XXS - 2.0625 bpw": "IQ2_XXS", "IQ3_S mix - 3.66 bpw": "IQ3_S",
        "IQ4_XS - 4.25 bpw": "IQ4_XS", "TQ1_0 - 1.69 bpw ternary": "TQ1_0", "MXFP4 MoE": "MXFP4",
        "q4km": "Q4_K_M", "Q4-K-M": "Q4_K_M", "Q4_K_M (llama.cpp)": "Q4_K_M", "iq4xs": "IQ4_XS",
        "Q4_0_4_4": "Q4_0", "q4f16_1": "4-bit", "q0f16": "F16", "6bit": "6-bit", "Q6": "Q6_K",
        "4-bit MLX": "MLX 4bit", "DWQ 4bit": "MLX 4bit", "mlx 4bit group size 32": "MLX 4bit g32",
        "4.5bpw exl2": "EXL2 4.5bpw", "w4a16 awq": "AWQ 4bit", "int4 gptq 128g": "GPTQ 4bit",
        "FP8-dynamic": "FP8", "bnb nf4": "NF4", "16-bit": "F16", "INT4_SYM": "INT4",
    }.items(),
)  # fmt: skip
def test_wordings(wording, name):
    assert formats.normalise(wording) == name


def test_nearest_stands_for_that_many_bits():
    named = ((2.1, "2-bit"), (4.3, "4-bit"), (4.9, "4-bit"), (6.6, "6-bit"), (8.0, "8-bit"))
    assert all(formats.nearest(bits) == name for bits, name in (*named, (16.0, "F16")))


@pytest.mark.parametrize(
    "quant", ["Q4_K_M", "IQ4_XS", "MLX 4bit g32", "UD-Q4_K_XL", "BF16", "Q8_0"]
)
def test_case_and_separators_do_not_matter(quant):
    for spelling in (quant.lower(), quant.upper(), quant.replace(" ", "_"), quant + ".gguf"):
        assert formats.normalise(spelling) == quant
