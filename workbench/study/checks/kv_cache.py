"""Checks of the KV cache: how large it is and how it grows (M34)."""

import numpy as np

from workbench import data
from workbench.study.checks import evidence
from workbench.study.checks.registry import Claim, Finding, check, compare, decide
from workbench.study.checks.token_time import A_MODEL


def measured_growth() -> np.ndarray:
    """Return KV bytes per token of each step of a published series (datasets/kv_measured.csv)."""
    rows = data.rows("kv_measured.csv")
    context = np.array([float(row["context"]) for row in rows])
    size = np.array([float(row["kv_bytes"]) for row in rows])
    return np.diff(size) / np.diff(context)


@check("A54")
def growth(claim: Claim) -> Finding:
    slopes = measured_growth()
    model = evidence.model(A_MODEL)
    doubled = model.kv_bytes(4096.0) / model.kv_bytes(2048.0)
    return decide(
        doubled > 3.0,
        "wrong_physics",
        f"twice the tokens are {doubled:.2f} times the bytes (n^2 would be 4); a published series "
        f"grows by {slopes.min():,.0f} to {slopes.max():,.0f} B per token in each of "
        f"{slopes.size} steps from 2k to 63k tokens.",
    )


@check("A55")
def size_at_2048(claim: Claim) -> Finding:
    tokens = float(claim.value["tokens"])
    return compare(
        f"fp16 KV of {A_MODEL} for {tokens:.0f} tokens",
        claim.value["GB"],
        evidence.model(A_MODEL).kv_bytes(tokens) / 1e9,
        " GB",
        within=0.1,
        otherwise="wrong_physics",
    )


@check("C64")
def beyond_the_limit(claim: Claim) -> Finding:
    total, limit = claim.value["prompt"] + claim.value["gen"], evidence.value("C73")["max"]
    return decide(
        total <= limit,
        "inconsistent",
        f"{claim.value['prompt']} + {claim.value['gen']} = {total} tokens exceed the article's own "
        f"limit of {limit}.",
    )


@check("C73")
def vllm_option(claim: Claim) -> Finding:
    option = evidence.fact("vllm_context_option")
    return decide(
        option in claim.text,
        "wrong_fact",
        f"vLLM's option for the context length is {option}; no firmware is involved.",
    )


@check("C84")
def kv_is_the_bulk(claim: Claim) -> Finding:
    total = evidence.value("C18")["GB"]
    moved = total - claim.value["GB"]
    tokens = moved * 1e9 / evidence.model("gemma-3-27b-it").kv_bytes(1.0)
    return decide(
        moved > 0.5 * total,
        "wrong_physics",
        f"{total} - {claim.value['GB']} = {moved:.1f} GB of KV are {moved / total:.0%} of the "
        f"memory, and would be {tokens / 1e3:.0f}k tokens of a 27B with all layers full: weights "
        "are the bulk.",
    )
