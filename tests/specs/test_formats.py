"""Quantisation formats against file sizes that llama.cpp and others report."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import WorkbenchError
from workbench.specs import formats
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
    return Model(name, "llama", params, layers, hidden, heads, kv_heads, hidden // heads, ffn, vocab,
                 experts=experts, moe_layers=layers if experts else 0, tied=tied)  # fmt: skip


LLAMA_3_8B = dense("llama-3.1-8b", 32, 4096, 32, 8, 14336, 128256)
LLAMA_3_70B = dense("llama-3-70b", 80, 8192, 64, 8, 28672, 128256)
LLAMA_2_7B = dense("llama-2-7b", 32, 4096, 32, 32, 11008, 32000)
LLAMA_2_13B = dense("llama-2-13b", 40, 5120, 40, 40, 13824, 32000)
LLAMA_2_70B = dense("llama-2-70b", 80, 8192, 64, 8, 28672, 32000)
GIB = 2**30

#: llama.cpp tools/quantize/README.md, Llama-3.1-8B, GiB.
README = {
    "IQ1_S": 1.87, "IQ1_M": 2.01, "IQ2_XXS": 2.23, "IQ2_XS": 2.42, "IQ2_S": 2.56, "IQ2_M": 2.74, "IQ3_XXS": 3.04,
    "IQ3_XS": 3.27, "IQ3_S": 3.42, "IQ3_M": 3.52, "Q2_K_S": 2.78, "Q2_K": 2.95, "Q3_K_S": 3.41, "Q3_K_M": 3.74,
    "Q3_K_L": 4.02, "IQ4_XS": 4.13, "IQ4_NL": 4.35, "Q4_0": 4.33, "Q4_1": 4.77, "Q4_K_S": 4.36, "Q4_K_M": 4.58,
    "Q5_0": 5.21, "Q5_1": 5.65, "Q5_K_S": 5.21, "Q5_K_M": 5.33, "Q6_K": 6.14, "Q8_0": 7.95, "F16": 14.96,
}  # fmt: skip


@pytest.mark.parametrize(("quant", "size"), README.items())
def test_llama_3_8b_files_have_the_published_size(quant, size):
    assert formats.weight_bytes(LLAMA_3_8B, quant).sum() / GIB == pytest.approx(size, rel=0.01)
