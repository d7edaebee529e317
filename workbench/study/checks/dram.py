"""Checks of DRAM: size and number of reads, alignment, layout of the KV cache, padding of files (M08, M10-M13, M17)."""

import functools

from workbench.hardware import dram, layout
from workbench.study.checks import evidence
from workbench.study.checks.registry import Claim, Finding, check, compare, decide, number
from workbench.study.checks.token_time import A_MLPERF, A_MLPERF_QUANT

STANDARD = "LPDDR5-6400"  # one channel of the memory that Apple's and most small machines have
QUEUED = 32
_SMALL, _PAGE = 64, 4096  # byte: a cache line, and what the article calls the worst
_MHA = "llama-2-7b-hf"  # 32 heads, each with its own K and V


@functools.cache
def share(granule: float, depth: float, mode: str = "queue") -> float:
    """Return the share of a channel's peak that random reads get."""
    return dram.efficiency(STANDARD, granule, depth, mode=mode).bus_share.item()


def tensors(name: str) -> float:
    """Return the tensors of a dense Llama's file: nine a layer, embedding, last norm and output."""
    return 9 * evidence.model(name).layers + 3


@check("A11")
def small_packets(claim: Claim) -> Finding:
    small, large = share(_SMALL, QUEUED), share(_PAGE, QUEUED)
    wanted = evidence.value("A15")["align_B"]
    return decide(
        small > large,
        "inconsistent",
        f"with {QUEUED} reads queued {_SMALL} B get {small:.0%} of an {STANDARD} channel and {_PAGE} B "
        f"{large:.0%}: large reads waste nothing, and section 2 of the same article asks for "
        f"contiguous blocks of {wanted} B.",
    )


@check("A15")
def alignment(claim: Claim) -> Finding:
    size = claim.value["align_B"]
    anywhere, aligned = (dram.overfetch(size, size, a).overfetch.item() for a in (1, size))
    row, _ = layout.kv_runs(1, 128, 1, order="head-major")
    return decide(
        anywhere > 1.5 and aligned == 1.0,
        "wrong_physics",
        f"if memory moves {size} B at once, reads of {size} B anywhere move {anywhere:.3f} times the "
        f"bytes and aligned ones {aligned:.0f}; a row of one head (128 x fp16) is {row:.0f} B anyway.",
    )


@check("A16")
def scattered_kv(claim: Claim) -> Finding:
    runs = layout.arrangements(evidence.model(_MHA), _machine(), 4096, _block())
    apart, whole = (
        runs.run_bytes.sel(arrangement=f"blocks, {n} by {n}").item() / 1024
        for n in ("head", "token")
    )
    pieces = runs.runs.sel(arrangement="blocks, token by token").item()
    layers = evidence.model(_MHA).layers
    return decide(
        pieces > 2 * layers,
        "wrong_fact",
        f"4096 tokens of a 32-head 7B lie in {pieces:,.0f} runs of {whole:.0f} KiB with vLLM's blocks "
        f"of {_block():.0f} tokens ({apart:.0f} KiB a head), in {2 * layers:.0f} in llama.cpp: pages, "
        "but far longer than what DRAM or TLB need.",
    )


@check("A69")
def placement(claim: Claim) -> Finding:
    alone, many = (share(_PAGE, q) / share(_SMALL, q) for q in (1, QUEUED))
    return Finding(
        "unverifiable",
        f"placing data in {_PAGE} B pieces instead of {_SMALL} B gains {alone:.1f} times with one read "
        f"queued and {many:.2f} times with {QUEUED}; {claim.value['factor']} times is more than "
        "placement has to give, but the article does not say against what.",
    )


@check("A70")
def slower_with_everything(claim: Claim) -> Finding:
    kv = _kv_share()
    return Finding(
        "unverifiable",
        f"no configuration is given; KV is {kv:.0%} of the bytes of {A_MLPERF} at 4096 tokens, so a "
        f"layout that halves its bandwidth costs {kv / (1 + kv):.0%}, less than the "
        f"{-claim.value['delta']:.0%} claimed, and options change more than layouts.",
    )


@check("A71")
def vllm_block(claim: Claim) -> Finding:
    run, _ = layout.kv_runs(evidence.model(_MHA).kv_heads, evidence.model(_MHA).head_dim, _block())
    grouped, _ = layout.kv_runs(8, 128, _block())
    return compare(
        f"a block of {_block():.0f} tokens, K and V of one layer (32 heads; {2 * grouped / 1024:.0f} "
        "KiB with 8 KV heads)",
        claim.value["B"] / 1024,
        2 * float(run) / 1024,
        " KiB",
        within=0.1,
        otherwise="wrong_fact",
    )


@check("A72")
def worst_granule(claim: Claim) -> Finding:
    here, smallest = share(claim.value["B"], QUEUED), share(32, QUEUED)
    alone, chase = share(_SMALL, 1), share(_SMALL, 1, "flight")
    return decide(
        here <= smallest,
        "wrong_physics",
        f"random reads of {claim.value['B']} B get {here:.0%} of the channel with {QUEUED} queued, of "
        f"{_SMALL} B {share(_SMALL, QUEUED):.0%}, of 32 B {smallest:.0%}; the worst is few at a time: "
        f"{_SMALL} B get {alone:.0%} with one queued, {chase:.0%} if each waits for the last.",
    )


@check("A86")
def m5f_alignment(claim: Claim) -> Finding:
    default = evidence.figure("gguf_alignment")
    added = _added(claim.value["B"])
    return Finding(
        "unverifiable",
        f"no such format is public; GGUF aligns to {default:.0f} B and to any other power of two if "
        f"told so (general.alignment), and {claim.value['B']} B would add {number(added / 1e3)} kB.",
    )


@check("A87")
def m5f_size(claim: Claim) -> Finding:
    fewer = claim.value["gguf"]["mem_GB"] - claim.value["m5f"]["mem_GB"]
    unit = evidence.value("A86")["B"]
    most = tensors(_MHA) * unit
    return decide(
        fewer * 1e9 <= most,
        "wrong_physics",
        f"aligning the {tensors(_MHA):.0f} tensors of a 7B to {unit} B adds about "
        f"{number(_added(unit) / 1e3)} kB and at most {number(most / 1e3)} kB; {fewer:.1f} GB less "
        "memory has another cause.",
    )


@check("A88")
def m5f_options(claim: Claim) -> Finding:
    hint = claim.value["prefetch_hint"]
    needed = dram.in_flight(evidence.device("apple-m5-ultra-80-core-gpu").bandwidth, "120 ns", hint)
    return Finding(
        "unverifiable",
        f"the tool is not public; as bytes, {hint} a hint would take "
        f"{needed.lines_in_flight.item():.0f} hints under way to fill the bandwidth at 120 ns.",
    )


@check("A91")
def no_prefetch(claim: Claim) -> Finding:
    return compare(
        f"share of a channel with one read of {_SMALL} B queued",
        claim.value["util"],
        share(_SMALL, 1),
        "",
        within=0.35,
        otherwise="wrong_physics",
    )


@check("B78")
def cold_experts(claim: Claim) -> Finding:
    peak = evidence.device("apple-m2-10-core-gpu").bandwidth / 1e9
    low, high = (claim.value[key] / peak for key in ("before", "after"))
    most = dram.effective_bandwidth(evidence.device("apple-m2-10-core-gpu")).bus_share.item()
    reason = (
        f"{claim.value['before']} and {claim.value['after']} GB/s are {low:.0%} and {high:.0%} of an "
        f"M2; its DRAM gives {share(_SMALL, 1):.0%} to one read of {_SMALL} B queued and {most:.0%} to a stream: "
        "possible, but nothing says how it was measured."
    )
    return Finding("unverifiable" if high <= most else "wrong_physics", reason)


def _machine():
    return evidence.device("apple-m5-ultra-80-core-gpu")


def _block() -> float:
    return evidence.figure("vllm_block_tokens")


def _added(unit: float) -> float:
    """Return the bytes that aligning a 7B's tensors to `unit` adds, on average, to GGUF's default."""
    return float(layout.expected_padding(tensors(_MHA), unit, evidence.figure("gguf_alignment")))


def _kv_share() -> float:
    total = evidence.step_bytes(A_MLPERF, A_MLPERF_QUANT, 4096.0)
    return 1.0 - evidence.step_bytes(A_MLPERF, A_MLPERF_QUANT) / total


@check("A73")
def grouped_weights(claim: Claim) -> Finding:
    grouped, apart = (_tiles(claim.value["groups"], g) for g in (True, False))
    return decide(
        grouped.effective_bandwidth > apart.effective_bandwidth,
        "wrong_physics",
        f"a tile of 32 rows x 32 columns in 4.5 bits is one run of {grouped.run_bytes.item():.0f} B when "
        f"grouped, else 32 runs of {apart.run_bytes.item():.0f} B, which get "
        f"{apart.bus_share.item():.0%} of the bandwidth instead of {grouped.bus_share.item():.0%}; llama.cpp "
        "repacks Q4_0 so.",
    )


@check("A74")
def grouped_latency(claim: Claim) -> Finding:
    grouped, apart = (_tiles(128, g).bus_share.item() for g in (True, False))
    baseline = 1 - claim.value["reduction"]
    return Finding(
        "unverifiable",
        f"{claim.value['reduction']:.0%} less needs a layout that gets {baseline:.0%} of the bandwidth or "
        f"less before; scattered tiles of 18 B get {apart:.0%}, grouped ones {grouped:.0%}, but "
        "no engine reads weights like that, and the article does not say what it compares with.",
    )


@check("A94")
def healthy_band(claim: Claim) -> Finding:
    praised, (_, top) = evidence.value("A17")["after"], claim.value["ok"]
    knee = float(dram.knee(100e-9, 5e-9))
    return decide(
        praised <= top,
        "inconsistent",
        f"latency turns up at {knee:.0%} (100 ns idle, 5 ns a read), which asks for a margin when many "
        f"share the memory; one user's decode wants all of it, and the article praises {praised:.0%}, above its "
        f"own {top:.0%}.",
    )


def _tiles(units: int, grouped: bool):
    ds = layout.weight_read(
        32 * units, 4096, _machine(), tile_rows=32, tile_columns=32, grouped=grouped
    )
    return ds.assign(bus_share=ds.effective_bandwidth / _machine().bandwidth)
