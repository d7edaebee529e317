"""Claims of the storage notebook, what quantised weights compress to, and a model's cache on a disk."""

import pytest

import workbench as wb
from workbench.errors import UnknownNameError
from workbench.study.claims import claims
from workbench.study.storage import compressibility, kv_per_token, offloaded

LISTED = [
    "A07", "A84", "B20", "B97", "B99", "B100", "B101", "B106", "B109", "C10", "C11", "C37", "C38",
    "C68", "C77", "C78", "C84", "C85", "C86", "C87",
]  # fmt: skip


@pytest.fixture(scope="module")
def found():
    return claims("NB07").sel(claim=LISTED)


def test_every_claim_of_the_walkthrough_is_computed(found):
    assert bool(found.computed.all())
    assert all(10 < len(text) < 300 and text.endswith(".") for text in found.reason.values)


def test_verdicts_are_the_readers(found):
    """datasets/claims.csv holds what a reader with the sources said before anything was computed."""
    assert found.verdict.values.tolist() == found.preliminary.values.tolist()


def test_reasons_carry_the_published_numbers(found):
    """Walkthrough NB07 and mechanisms M25 to M28."""
    said = {str(c): str(r) for c, r in zip(found.claim.values, found.reason.values, strict=True)}
    assert "7.88 GB/s" in said["C10"] and "3.94 GB/s" in said["C77"] and "63.0 GB/s" in said["B20"]
    assert "22.5 GB" in said["B20"] and "358 ms" in said["B20"]
    assert "19.7 s" in said["C38"] and "3.4 s per token" in said["C86"] and "359k" in said["C87"]


def test_quantised_weights_hardly_compress():
    """Mechanism M27: 1.0 to 1.1 for quantised weights."""
    assert 1.0 <= compressibility("Q4_K") <= 1.1
    assert 1.0 <= compressibility("Q8_0") <= 1.1
    assert compressibility("F32") < 1.3
    with pytest.raises(UnknownNameError):
        compressibility("Q99")


def test_cache_per_token_is_the_models():
    """Llama 3.1 8B: 2 x 32 layers x 8 KV heads x 128 x 2 B = 128 KiB a token."""
    token = wb.predict(
        wb.Model.preset("llama-3.1-8b"), wb.Device.preset("m4 pro"), wb.Workload(context=8192)
    )
    assert kv_per_token(token) == 2 * 32 * 8 * 128 * 2
    ds = offloaded(token, 1e9, [0.0, 1.0])
    waited = ds.tpot_s.values - float(token.time_s.sum())
    assert waited.tolist() == pytest.approx([token.kv_bytes.item() / 1e9, 0.0])
