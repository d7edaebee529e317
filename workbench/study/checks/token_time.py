"""Checks of what a token takes: bytes over bandwidth, and what is left (M01, M02, M55)."""

import numpy as np

from workbench.hardware.affine import Line, affine, token_time
from workbench.specs import formats
from workbench.specs.model import INDEX
from workbench.study.checks import evidence
from workbench.study.checks.registry import Claim, Finding, check, compare, decide

# What articles A and B call their model; the formats are those of the same size in llama.cpp.
A_MODEL, A_QUANT = "qwen-7b-chat", "Q4_K_M"
A_MLPERF, A_MLPERF_QUANT = "meta-llama-3-8b", "Q4_K_M"


def a_bandwidth() -> float:
    """Return the bandwidth of article A in B/s."""
    return evidence.value("A01")["peak_TB_s"] * 1e12


def a_floor() -> float:
    """Return the least time of a token of article A's 8B model at full bandwidth, seconds."""
    return evidence.step_bytes(A_MLPERF, A_MLPERF_QUANT) / a_bandwidth()


def b_line() -> Line:
    """Return the law behind article B's own quantisation table (claim B80)."""
    fit = b_fit()
    return Line(float(fit.t0_s), float(fit.bandwidth))


def b_fit(peak: float | None = None):
    """Return the affine fit of article B's quantisation table: `affine` with sizes and speeds."""
    table = evidence.value("B80")
    return affine(np.array(table["GB"]) * 1e9, 1.0 / np.array(table["tok_s"]), peak)


@check("A26")
def bytes_of_a_layer(claim: Claim) -> Finding:
    model = evidence.model(A_MODEL)
    head = formats.weight_bytes(model, A_QUANT)[INDEX["output"]]
    weights = evidence.step_bytes(A_MODEL, A_QUANT) - head
    return compare(
        f"weights that a token reads in each of the {model.layers:.0f} layers of {A_MODEL} "
        f"{A_QUANT}",
        claim.value["weights_MB"],
        weights / model.layers / 1e6,
        " MB",
        within=0.25,
        otherwise="wrong_physics",
    )


@check("A27")
def bytes_of_a_token(claim: Claim) -> Finding:
    moved = evidence.step_bytes(A_MODEL, A_QUANT)
    return compare(
        f"bytes per token of {A_MODEL} {A_QUANT}",
        claim.value["MB"],
        moved / 1e6,
        " MB",
        within=0.25,
        otherwise="wrong_physics",
    )


@check("A28")
def transfer_time(claim: Claim) -> Finding:
    floor = evidence.step_bytes(A_MODEL, A_QUANT) / a_bandwidth()
    return compare(
        f"{A_MODEL} {A_QUANT} at the full 1.2 TB/s",
        claim.value["ms"],
        floor * 1e3,
        " ms",
        within=0.25,
        otherwise="wrong_physics",
    )


@check("A29")
def token_latency(claim: Claim) -> Finding:
    share, shares = a_floor() / (claim.value["ms"] / 1e3), evidence.apple_shares()
    contradicted = evidence.value("A52")["p95_ms"][0]
    return decide(
        shares.min() <= share <= shares.max(),
        "wrong_physics",
        f"8B {A_MLPERF_QUANT} in {claim.value['ms']} ms is {share:.0%} of 1.2 TB/s, within the "
        f"{shares.min():.0%} to {shares.max():.0%} measured on Apple chips (but the article's "
        f"batch table says {contradicted} ms).",
    )


@check("A30")
def overhead_left(claim: Claim) -> Finding:
    total, overhead = claim.value["total_ms"], claim.value["overhead_ms"]
    left, floor = total - overhead - evidence.value("A28")["ms"], a_floor() * 1e3
    return decide(
        left <= 0.05 * total and overhead <= total - floor,
        "inconsistent",
        f"{total} - {overhead} - {evidence.value('A28')['ms']} leaves {left:.2f} ms without a "
        f"cause, and streaming the weights alone takes {floor:.1f} ms at 1.2 TB/s, so overhead is "
        f"{total - floor:.1f} ms at most.",
    )


@check("A31")
def overhead_share(claim: Claim) -> Finding:
    parts = evidence.value("A30")
    return compare(
        f"{parts['overhead_ms']} of {parts['total_ms']} ms, the article's own overhead",
        claim.value["overhead"],
        parts["overhead_ms"] / parts["total_ms"],
        "",
        within=0.05,
        otherwise="inconsistent",
    )


@check("A32")
def weakest_link(claim: Claim) -> Finding:
    shares = evidence.apple_shares()
    bound = float((shares > 0.5).mean())
    return decide(
        bound < 0.5,
        "wrong_fact",
        f"in {bound:.0%} of {shares.size} measured Apple rows more than half of a token's time is "
        f"what the bytes take at full bandwidth (median {np.median(shares):.0%}): usually the bus "
        "is the weakest link.",
    )


@check("B05", "B70")
def same_speed_other_model(claim: Claim) -> Finding:
    """Article B reports one speed for several models; its own table says what each would reach."""
    name = {"B05": "meta-llama-3-8b", "B70": "qwen2.5-7b-instruct"}[claim.id]
    size = float(evidence.load(name, "Q4_K_M").file_bytes)
    return compare(
        f"{name} Q4_K_M ({size / 1e9:.2f} GB) by the line through the article's own table (B80), "
        f"whose {evidence.value('B80')['GB'][-1]} GB file already has this speed",
        claim.value["after"],
        1.0 / token_time(size, b_line()),
        " tok/s",
        within=claim.value.get("tol", 0.3) / claim.value["after"],
        otherwise="inconsistent",
    )


@check("B80")
def quantisation_table(claim: Claim) -> Finding:
    fit = b_fit(evidence.device("article_mac_mini").bandwidth)
    worst = float(abs(fit.residual_s).max())
    return decide(
        worst < 0.05 * float(fit.time_s.min()) and fit.efficiency <= 1.0,
        "inconsistent",
        f"fits t = {float(fit.t0_s) * 1e3:.1f} ms + size / {float(fit.bandwidth) / 1e9:.1f} GB/s "
        f"within {worst * 1e3:.1f} ms (tolerance 5 %), which is {float(fit.efficiency):.1%} of the "
        f"M2's bandwidth; the fixed part is {float(fit.t0_s) / m2_line().t0:.0f} times that of a "
        "measured M2.",
    )


def m2_line() -> Line:
    """Return the law of a measured M2: the three formats of one 7B file."""
    where = {"device": "Apple M2 10-core GPU", "model": "meta-llama/Llama-2-7b-hf"}
    quants = ("Q4_0", "Q8_0", "F16")
    speeds = [float(evidence.measured("decode_tok_s", quant=q, **where).max()) for q in quants]
    sizes = [evidence.step_bytes("llama-2-7b", q) for q in quants]
    fit = affine(np.array(sizes), 1.0 / np.array(speeds))
    return Line(float(fit.t0_s), float(fit.bandwidth))
