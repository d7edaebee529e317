"""Checks of what else takes time: the host, stages of a pipeline, prefill, batching (M03-M06)."""

import numpy as np

from workbench.hardware.amdahl import pipeline, speedup
from workbench.study.checks import evidence
from workbench.study.checks.registry import Claim, Finding, check, compare, decide, number
from workbench.study.checks.token_time import A_MODEL, A_QUANT, a_bandwidth, m2_line

CONTEXT = 2048.0  # tokens: max_seq_len of article A's batch table (claim A52)


@check("A07")
def loading_and_dispatch(claim: Claim) -> Finding:
    size = float(evidence.load(A_MODEL, A_QUANT).file_bytes)
    stages = {"ssd": size / evidence.figure("nvme_read"), "memory": size / a_bandwidth()}
    load = float(pipeline(stages, {"memory": 2.0}).speedup)
    host = evidence.value("A24")["share"]
    token = float(speedup(1.0 - host, np.inf))
    return decide(
        load < 1.05,
        "wrong_physics",
        f"twice the memory bandwidth loads {size / 1e9:.1f} GB from a 7 GB/s SSD "
        f"{load - 1:.1%} faster; and with {host:.0%} on the host no bandwidth makes a token more "
        f"than {token:.1f} times faster.",
    )


@check("A09")
def rag_context(claim: Claim) -> Finding:
    """Moving the retrieved text, against multiplying it through the model."""
    size = evidence.value("A10")["kB"][1] * 1e3
    tokens = size / evidence.figure("text_bytes_per_token")
    move = size / a_bandwidth()
    chip = evidence.device("apple-m5-ultra-80-core-gpu")
    prefill = 2 * evidence.model(A_MODEL).active_params * tokens / chip.flops
    return decide(
        move > 0.05 * prefill,
        "wrong_physics",
        f"{size / 1e3:.0f} kB cross a 1.2 TB/s bus in {move * 1e9:.0f} ns; multiplying their "
        f"{tokens / 1e3:.0f}k tokens through a 7B takes {prefill:.1f} s or more: RAG is prefill, "
        "not transfer.",
    )


@check("A24")
def host_share(claim: Claim) -> Finding:
    http, scheduling = (evidence.figure(f"vllm_0.5_{x}_share") for x in ("http", "scheduling"))
    gain = speedup(claim.value["share"], np.inf)
    return decide(
        claim.value["share"] <= http + scheduling,
        "wrong_fact",
        f"vLLM 0.5 was measured with {scheduling:.0%} scheduling and {http:.0%} HTTP; "
        f"{claim.value['share']:.0%} is moderate, and removing it gives {gain:.2f} times at most.",
    )


@check("A25")
def host_time_amortises(claim: Claim) -> Finding:
    line = m2_line()
    shares = []
    for batch in (1.0, 8.0):
        moved = evidence.step_bytes(A_MODEL, A_QUANT, CONTEXT, batch)
        shares.append(line.t0 / (line.t0 + moved / line.bandwidth))
    return decide(
        shares[0] > shares[1] > 0,
        "wrong_physics",
        f"a fixed {line.t0 * 1e3:.1f} ms (measured M2) moves no bytes and is {shares[0]:.1%} of a "
        f"step at batch 1, {shares[1]:.1%} at batch 8.",
    )


@check("A58")
def several_instances(claim: Claim) -> Finding:
    batch, limit = 8.0, float(claim.value["max"])
    together = evidence.step_bytes(A_MODEL, A_QUANT, CONTEXT, batch)
    apart = batch / limit * evidence.step_bytes(A_MODEL, A_QUANT, CONTEXT, limit)
    return decide(
        apart <= together,
        "wrong_physics",
        f"{batch:.0f} sequences of {CONTEXT:.0f} tokens: one instance moves {together / 1e9:.1f} "
        f"GB per step, {batch / limit:.0f} instances of {limit:.0f} move {apart / 1e9:.1f} GB, "
        f"{apart / together:.1f} times as much, for the weights are read and stored by each.",
    )


@check("A76")
def precomputing_masks(claim: Claim) -> Finding:
    host = evidence.value("A24")["share"]
    most = speedup(host, np.inf) - 1.0
    return decide(
        claim.value["gain"] < 0.9 * most,
        "inconsistent",
        f"the whole {host:.0%} that the host takes (A24) is worth {most:.0%}; a gain of "
        f"{claim.value['gain']:.0%} would need all of it gone, while the change adds host work.",
    )


@check("A101")
def shares_add_up(claim: Claim) -> Finding:
    total = claim.value["model"] + claim.value["other"]
    return compare(
        "sum of the stages' shares", total, 1.0, "", within=0.01, otherwise="inconsistent"
    )


@check("A102")
def faster_stage(claim: Claim) -> Finding:
    share = evidence.value("A101")["model"]
    gain = speedup(share, claim.value["stage_x"])
    return compare(
        f"speed-up of the whole when {share:.0%} of it gets {claim.value['stage_x']} times faster",
        claim.value["e2e_x"],
        gain,
        "",
        within=0.01,
        otherwise="inconsistent",
    )


@check("C05")
def one_turn(claim: Claim) -> Finding:
    table = evidence.value("C79")
    tokens = (claim.value["s"] - table["ttft_s"][0]) / (table["tpot_ms"][0] / 1e3)
    return decide(
        tokens >= 10,
        "inconsistent",
        f"with the article's own {table['ttft_s'][0]} s to the first token and "
        f"{table['tpot_ms'][0]} ms per token, {claim.value['s']} s is a reply of "
        f"{number(1 + tokens)} tokens (and the table calls the model 27B).",
    )


@check("C55")
def prefill_buffer(claim: Claim) -> Finding:
    hidden = evidence.model("qwen1.5-moe-a2.7b").hidden
    return compare(
        f"one fp16 activation vector of a {hidden:.0f}-wide model",
        claim.value["B"],
        2 * hidden,
        " B",
        within=0.01,
        otherwise="wrong_physics",
    )


@check("C88")
def image_preprocessing(claim: Claim) -> Finding:
    before = claim.value["ms"] * claim.value["x"] / 1e3
    first = evidence.value("C79")["ttft_s"][0]
    stages = {"preprocessing": before, "rest": first - before}
    gain = float(pipeline(stages, {"preprocessing": claim.value["x"]}).speedup)
    return decide(
        before < first,
        "inconsistent",
        f"{before * 1e3:.1f} ms on the CPU become {claim.value['ms']} ms, {gain - 1:.1%} of the "
        f"article's {first} s to the first token.",
    )
