"""Checks of bandwidth: how much of it is reached, and what it does for decoding (M01, M02, M55)."""

import numpy as np

from workbench.study.checks import evidence
from workbench.study.checks.registry import Claim, Finding, check, compare, decide, number
from workbench.study.checks.token_time import (
    A_MLPERF,
    A_MLPERF_QUANT,
    A_QUANT,
    a_floor,
)


@check("A04")
def peak_is_not_reached(claim: Claim) -> Finding:
    shares = evidence.apple_shares()
    return decide(
        shares.max() < claim.value["eff_lt"],
        "wrong_fact",
        f"{shares.size} Apple rows of one 7B file reach {shares.min():.0%} to {shares.max():.0%} "
        f"of the specified bandwidth, median {np.median(shares):.0%}.",
    )


@check("A05")
def slower_than_a_4090(claim: Claim) -> Finding:
    speeds = evidence.measured(
        "decode_tok_s",
        device="NVIDIA GeForce RTX 4090",
        model="meta-llama/Meta-Llama-3-8B",
        quant=A_MLPERF_QUANT,
    )
    card, shares = float(np.nanmedian(speeds)), evidence.apple_shares()
    low, high = shares.min() / a_floor(), shares.max() / a_floor()
    reason = (
        f"an RTX 4090 decodes 8B {A_MLPERF_QUANT} at {number(card)} tok/s; 1.2 TB/s at the share "
        f"that Apple chips reach ({shares.min():.0%} to {shares.max():.0%}) gives {number(low)} to "
        f"{number(high)} tok/s."
    )
    if low < card < high:
        return Finding("unverifiable", reason)
    return decide((high < card) == claim.value["m5ultra_lt_rtx4090"], "wrong_physics", reason)


@check("A08")
def bandwidth_helps_decode(claim: Claim) -> Finding:
    def speed(device):
        where = {"model": "meta-llama/Llama-2-7b-hf", "quant": "Q4_0", "device": device}
        return float(np.nanmax(evidence.measured("decode_tok_s", **where)))

    fast, slow = "Apple M2 Ultra 76-core GPU", "Apple M1 7-core GPU"
    ratio = speed(fast) / speed(slow)
    wider = evidence.device(fast).bandwidth / evidence.device(slow).bandwidth
    return decide(
        ratio < 1.2,
        "wrong_physics",
        f"the same 7B Q4_0 file decodes {ratio:.1f} times faster on an M2 Ultra than on an M1 with "
        f"1/{wider:.1f} of its bandwidth: decode is where bandwidth helps.",
    )


@check("A14")
def sixty_three_per_cent(claim: Claim) -> Finding:
    expected = claim.value["util"] * (1 + claim.value["latency_excess"])
    reached = evidence.apple_shares().max()
    return decide(
        expected <= reached,
        "wrong_physics",
        f"at {claim.value['util']:.0%} a token takes {1 / claim.value['util']:.2f} times the "
        f"roofline; {claim.value['latency_excess']:.0%} above expectation means that "
        f"{expected:.0%} was expected, and the best measured Apple row reaches {reached:.0%}: one "
        "fact stated twice.",
    )


@check("A17")
def repacking_kv(claim: Claim) -> Finding:
    context = float(evidence.value("A55")["tokens"])
    total = evidence.step_bytes(A_MLPERF, A_MLPERF_QUANT, context)
    share = 1.0 - evidence.step_bytes(A_MLPERF, A_MLPERF_QUANT) / total
    best = claim.value["before"] / (1.0 - share)
    healthy = evidence.value("A94")["ok"][1]
    return decide(
        claim.value["after"] <= best * 1.05,
        "inconsistent",
        f"with {context:.0f} tokens KV is {share:.1%} of the bytes of {A_MLPERF}, so reading it in "
        f"no time lifts {claim.value['before']:.0%} to {best:.0%}, not {claim.value['after']:.0%}, "
        f"which is also outside the article's own healthy band (up to {healthy:.0%}).",
    )


@check("A18", "B79")
def time_from_bandwidth(claim: Claim) -> Finding:
    """Time at constant bytes goes as one over bandwidth."""
    before_after = evidence.value({"A18": "A17", "B79": "B78"}[claim.id])
    left = before_after["before"] / before_after["after"]
    claimed = 1.0 - next(iter(claim.value.values()))
    return compare(
        f"share of the time left when bandwidth rises from {before_after['before']} to "
        f"{before_after['after']}",
        claimed,
        left,
        "",
        within=0.05,
        otherwise="inconsistent",
    )


@check("A20")
def no_layer_threshold(claim: Claim) -> Finding:
    names = ("llama-2-7b", "llama-2-13b-hf", "meta-llama-3-70b")
    found = {evidence.model(n).layers: evidence.intensity(n, "F16") for n in names}
    spread = max(found.values()) / min(found.values()) - 1.0
    text = ", ".join(f"{layers:.0f} layers {x:.3f}" for layers, x in found.items())
    return decide(
        spread > 0.05,
        "wrong_physics",
        f"FLOP per byte of a decode step in F16: {text}; it differs by {spread:.1%}, so nothing "
        f"changes at {claim.value['layers_gt']} layers.",
    )


@check("A21")
def waits_for_memory(claim: Claim) -> Finding:
    chip = evidence.device("apple-m5-ultra-80-core-gpu")
    ridge = chip.flops / chip.bandwidth
    alone = evidence.intensity("qwen-14b-chat", A_QUANT) / ridge
    batch = claim.value["util_peak"] / alone
    return decide(
        claim.value["util_peak"] < 1.0 and alone < 1.0,
        "wrong_physics",
        f"Qwen-14B {A_QUANT} does {alone * ridge:.1f} FLOP per byte against a ridge of "
        f"{ridge:.0f}: memory bound, as claimed. At batch 1 that occupies {alone:.0%} of the peak; "
        f"{claim.value['util_peak']:.0%} needs a batch of {batch:.0f} or a prefill.",
    )


@check("B76")
def metal_uses_the_bus(claim: Claim) -> Finding:
    where = {"device": "Apple M2 10-core GPU", "model": "meta-llama/Llama-2-7b-hf", "quant": "F16"}
    speed = float(evidence.measured("decode_tok_s", **where).max())
    reached = speed * evidence.step_bytes("llama-2-7b", "F16")
    share = reached / evidence.device("apple-m2-10-core-gpu").bandwidth
    return decide(
        share < 0.5,
        "wrong_fact",
        f"llama.cpp decodes 7B F16 on an M2 at {speed} tok/s, which moves {reached / 1e9:.0f} GB/s "
        f"({share:.0%} of the specification).",
    )


@check("C09")
def bandwidth_of_27b(claim: Claim) -> Finding:
    table = evidence.value("C79")
    needed = table["mem_GB"][1] / (table["tpot_ms"][1] / 1e3)
    return compare(
        f"{table['mem_GB'][1]} GB in the article's own {table['tpot_ms'][1]} ms per token",
        claim.value["dense_GB_s"],
        needed,
        " GB/s",
        within=0.25,
        otherwise="wrong_physics",
    )


@check("C13")
def light_or_well_scheduled(claim: Claim) -> Finding:
    speed = {
        name: float(evidence.measured("decode_tok_s", device="Apple M4 Pro", model=name).max())
        for name in ("gemma-3-27b-it-Q4_K_M.gguf", "Qwen3-30B-A3B-Instruct-2507-Q4_K_M.gguf")
    }
    dense, sparse = speed.values()
    fewer = evidence.step_bytes("gemma-3-27b-it", "Q4_K_M") / evidence.step_bytes(
        "qwen3-30b-a3b", "Q4_K_M"
    )
    return decide(
        sparse / dense > fewer,
        "wrong_physics",
        f"on one M4 Pro a 27B dense model runs at {dense:.1f} and a 30B-A3B at {sparse:.1f} tok/s, "
        f"{sparse / dense:.1f} times faster while it reads {fewer:.1f} times fewer bytes: being "
        "light explains all of it.",
    )


@check("C41")
def fp8_on_m6(claim: Claim) -> Finding:
    size = evidence.value("C79")["mem_GB"][1]
    needed = size / (claim.value["tpot_ms"] / 1e3)
    peak = evidence.device("apple-m6-12-core-gpu").bandwidth / 1e9
    return decide(
        needed <= peak,
        "wrong_physics",
        f"{size} GB every {claim.value['tpot_ms']} ms needs {needed:.0f} GB/s; an M6 has "
        f"{peak:.0f} GB/s, so a token takes {size / peak * 1e3:.0f} ms at least.",
    )


@check("C79")
def benchmark_table(claim: Claim) -> Finding:
    sizes, times = claim.value["mem_GB"], claim.value["tpot_ms"]
    rates = [size / time * 1e3 for size, time in zip(sizes, times, strict=True)]
    fp16 = float(evidence.load("gemma-3-27b-it", "F16").file_bytes) / 1e9
    peak = evidence.device("apple-m6-12-core-gpu").bandwidth / 1e9
    return decide(
        sizes[0] >= 0.9 * fp16 and max(rates) <= peak,
        "inconsistent",
        f"27B in FP16 is {fp16:.0f} GB, not {sizes[0]}; FP8 needs {rates[1]:.0f} GB/s of the "
        f"{peak:.0f} there are, while INT4 on the same chip uses only {rates[2]:.0f}.",
    )


@check("C90")
def not_compute(claim: Claim) -> Finding:
    chip = evidence.device("apple-m6-12-core-gpu")
    size = evidence.step_bytes("gemma-3-27b-it", "Q4_K_M")
    memory = size / chip.bandwidth
    compute = size * evidence.intensity("gemma-3-27b-it", "Q4_K_M") / chip.flops
    return decide(
        compute < memory,
        "wrong_physics",
        f"27B Q4_K_M on an M6: {memory * 1e3:.0f} ms of memory against {compute * 1e3:.1f} ms of "
        f"arithmetic per token, so compute is not the limit; {1 / memory:.1f} tok/s is the most "
        "that any software reaches.",
    )
