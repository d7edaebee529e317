"""Checks of what machines are, cost and were measured with: catalogue facts (M01, M69)."""

from workbench.study.checks import evidence
from workbench.study.checks.registry import Claim, Finding, check, compare, decide, listed


@check("A01")
def m5_ultra_bandwidth(claim: Claim) -> Finding:
    ultra, half = (
        evidence.device(f"apple-m5-{name}-core-gpu").bandwidth / 1e12
        for name in ("ultra-80", "max-40")
    )
    return compare(
        f"bandwidth of the M5 Ultra (two M5 Max of {half * 1e3:.0f} GB/s)",
        claim.value["peak_TB_s"],
        ultra,
        " TB/s",
        within=0.03,
        otherwise="wrong_fact",
    )


@check("A13")
def mlperf(claim: Claim) -> Finding:
    ran = evidence.fact("mlperf_inference_v4.0_llms").split("; ")
    model = claim.value["model"].split(" ")[0]
    return decide(
        any(model in name for name in ran),
        "wrong_fact",
        f"MLPerf Inference v4.0 ran the language models {' and '.join(ran)}; a Llama 8B came with "
        f"{evidence.fact('mlperf_inference_llama_8b_since')}.",
    )


@check("B14")
def cache_bandwidth(claim: Claim) -> Finding:
    memory = evidence.figure("lpddr5_transfers") * evidence.figure("m2_memory_bits") / 8 / 1e9
    return decide(
        claim.value["GB_s"] > 1.5 * memory,
        "wrong_fact",
        f"LPDDR5-6400 on {evidence.fact('m2_memory_bits')} bit moves {memory:.1f} GB/s: the "
        f"{claim.value['GB_s']} GB/s claimed for a cache are the bandwidth of the memory behind "
        "it.",
    )


@check("B37")
def m2_cores(claim: Claim) -> Finding:
    cores = [evidence.device(f"apple-m2-{n}-core-gpu").cores for n in (8, 10)]
    pro = evidence.device("apple-m2-pro-16-core-gpu")
    return decide(
        claim.value["n"] in cores,
        "wrong_fact",
        f"the GPU of an M2 has {listed(cores, ' cores')}; {pro.cores:.0f} is an M2 Pro, with "
        f"{pro.bandwidth / 1e9:.0f} GB/s.",
    )


@check("B107")
def mac_studio(claim: Claim) -> Finding:
    ultra = evidence.device("apple-m2-ultra-76-core-gpu")
    mini = evidence.device("apple-m2-pro-16-core-gpu")
    cores, faster = ultra.cores / mini.cores, ultra.bandwidth / mini.bandwidth
    price = evidence.figure("mac_studio_m2_max_price")
    return decide(
        abs(cores - 2) <= 0.2 and claim.value["usd"] > 1.1 * price,
        "wrong_fact",
        f"{ultra.cores:.0f} cores are {cores:.1f} times the article's {mini.cores:.0f}, not twice, "
        f"and bandwidth rises {faster:.0f} times; ${price:,.0f} is the price of the M2 Max.",
    )
