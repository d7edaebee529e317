"""Checks of what fits, and of the settings that decide it (M22)."""

from workbench.study.checks import evidence
from workbench.study.checks.registry import Claim, Finding, check, compare, decide, listed
from workbench.units import GiB, human_bytes

MINI = "article_mac_mini"
MIXTRAL = "mixtral-8x7b-v0.1"


def weights(name: str, quant: str) -> float:
    """Return the weight bytes of a catalogue model that stay in memory."""
    return float(evidence.load(name, quant).resident_bytes)


@check("A03")
def unified(claim: Claim) -> Finding:
    chip = evidence.device("apple-m5-ultra-80-core-gpu")
    return decide(
        chip.unified == claim.value["uma"],
        "wrong_fact",
        f"the M5 Ultra has one memory for all engines and {claim.value['vram_GB']} GB of its own "
        "for the GPU (on the package, though, not on the chip).",
    )


@check("A56", "B108", "C03")
def sold_sizes(claim: Claim) -> Finding:
    """A memory size, against those that the machine is sold with."""
    name = {
        "A56": "apple-m5-ultra-80-core-gpu",
        "B108": "apple-m2-pro-16-core-gpu",
        "C03": "apple-m6-12-core-gpu",
    }[claim.id]
    sizes = [size / GiB for size in evidence.device(name).memory_options]
    return decide(
        claim.value["GB"] in sizes,
        "wrong_fact",
        f"{evidence.device(name).name} is sold with {listed(sizes, ' GB')}, soldered; "
        f"claimed {claim.value['GB']} GB.",
    )


@check("A57")
def pressure(claim: Claim) -> Finding:
    chip = evidence.device("article_m5_ultra")
    used, limit = claim.value["pct"] / 100 * chip.memory, evidence.usable("article_m5_ultra")
    return decide(
        used > limit,
        "wrong_physics",
        f"{claim.value['pct']} % of {chip.memory / GiB:.0f} GB is {used / GiB:.0f} GiB, beyond the "
        f"{limit / GiB:.0f} GiB that macOS lets a GPU wire by default: compression and swapping "
        "are to be expected.",
    )


@check("B01")
def seventy_b(claim: Claim) -> Finding:
    vram = claim.value["vram_GB"] * GiB
    every = vram + claim.value["ram_GB"] * GiB
    small, full = (weights("meta-llama-3-70b", quant) for quant in ("Q4_K_M", "F16"))
    return decide(
        small > vram and full > every,
        "wrong_physics",
        f"70B takes {human_bytes(full)} in F16 and {human_bytes(small)} in Q4_K_M: neither fits "
        f"{human_bytes(vram)} of VRAM, and F16 not even all {human_bytes(every)} together.",
    )


@check("B18")
def cold_experts(claim: Claim) -> Finding:
    load, mini = evidence.load(MIXTRAL, "Q4_K_M"), evidence.device(MINI)
    cold = float(load.experts - load.top_k)
    size = float(load.expert_bytes) * cold / float(load.experts)
    return decide(
        claim.value["n"] == cold and size < mini.memory,
        "wrong_physics",
        f"{load.experts:.0f} - {load.top_k:.0f} = {cold:.0f} cold experts a layer, "
        f"{size / 1e9:.0f} GB in Q4_K_M, can sit in system memory behind a discrete card; in "
        "unified memory they are there already and nothing is copied or saved.",
    )


@check("B29")
def mixtral_on_32(claim: Claim) -> Finding:
    size, limit = weights(MIXTRAL, "Q4_K_M"), evidence.usable(MINI)
    after = size * (1 + claim.value["peak_mem"])
    return Finding(
        "unverifiable" if size > limit else "wrong_physics",
        f"Mixtral Q4_K_M ({size / 1e9:.1f} GB) {'exceeds' if size > limit else 'fits'} the "
        f"{limit / 1e9:.1f} GB that 32 GB allow by default, and {claim.value['peak_mem']:.0%} "
        f"would be {after / 1e9:.1f} GB: the speed before depends on swapping, which is not "
        "stated.",
    )


@check("B53")
def gpu_pool(claim: Claim) -> Finding:
    return compare(
        "memory that macOS lets the GPU use of 32 GB (one cap, no pools)",
        claim.value["gpu_usable"],
        evidence.usable(MINI) / GiB,
        " GiB",
        within=0.1,
        otherwise="wrong_fact",
    )


@check("B54")
def pools_add_up(claim: Claim) -> Finding:
    pools = evidence.value("B53")
    memory = evidence.device(MINI).memory / GiB
    total = pools["gpu"] + pools["cpu"]
    return decide(
        total == memory,
        "inconsistent",
        f"{pools['gpu']} + {pools['cpu']} = {total} GB, with the shared buffer "
        f"{total + pools['shared_max']} GB, of {memory:.0f} GB.",
    )


@check("B55")
def boot_arguments(claim: Claim) -> Finding:
    setting = evidence.fact("macos_gpu_limit_setting")
    return decide(
        setting in claim.text,
        "wrong_fact",
        f"the cap is set by sysctl {setting}, without a restart; agdpmod=pikera belongs to "
        f"{evidence.fact('pikera_belongs_to')}.",
    )


@check("B56")
def memory_tools(claim: Claim) -> Finding:
    setting = evidence.fact("macos_gpu_limit_setting")
    return decide(
        setting in claim.text,
        "wrong_fact",
        f"hw.memsize is {evidence.fact('hw_memsize_means')}, whatever the GPU may use; the cap is "
        f"read from {setting}.",
    )


@check("B57")
def larger_pool(claim: Claim) -> Finding:
    """The nearest model that exists: Qwen1.5-MoE-A2.7B, 7B-class in quality, 14.3 B parameters."""
    load, small = evidence.load("qwen1.5-moe-a2.7b", "Q4_K_M"), claim.value["pool_GB"][0] * 1e9
    layers = evidence.device(MINI).bandwidth * float(load.experts * load.moe_layers)
    read = float(load.expert_bytes) / layers
    return decide(
        load.resident_bytes > small,
        "wrong_physics",
        f"there is no Qwen2.5-7B-MoE; Qwen1.5-MoE-A2.7B in Q4_K_M ({load.resident_bytes / 1e9:.1f} "
        f"GB) is resident in {small / 1e9:.0f} GB already, where reading an expert takes "
        f"{read * 1e3:.2f} ms, not {claim.value['cold_ms'][1]}.",
    )


@check("B77")
def storage_mode(claim: Claim) -> Finding:
    mode = int(evidence.fact("mtl_storage_mode_shared"))
    return decide(
        mode != 0,
        "wrong_fact",
        f"MTLStorageModeShared is {mode}, the default on Apple GPUs: or-ing it in changes nothing.",
    )


@check("B83")
def freed(claim: Claim) -> Finding:
    full, *_, small = evidence.value("B80")["GB"]
    return compare(
        f"{full} - {small} GB of the article's own table",
        claim.value["GB"],
        full - small,
        " GB",
        within=0.05,
        otherwise="inconsistent",
    )


@check("B93")
def raise_the_limit(claim: Claim) -> Finding:
    memory, wanted = evidence.device(MINI).memory, claim.value["GB"] * GiB
    left, system = memory - wanted, evidence.rule("system_bytes")
    return decide(
        evidence.usable(MINI) < wanted and left >= system,
        "wrong_physics",
        f"{evidence.fact('macos_gpu_limit_setting')}={wanted / 2**20:.0f} raises the "
        f"{evidence.usable(MINI) / GiB:.1f} GiB that are the default and leaves {left / GiB:.0f} "
        f"GiB to a system that needs about {system / GiB:.0f}.",
    )


@check("B94")
def fluctuation(claim: Claim) -> Finding:
    """How much must go wrong for that swing: other traffic on the bus, or weights read from SSD."""
    slow, fast = claim.value["tok_s"]
    bandwidth = evidence.device(MINI).bandwidth
    taken = bandwidth * (1 - slow / fast)
    spilled = (fast / slow - 1) / (bandwidth / evidence.figure("nvme_read") - 1)
    return decide(
        spilled > 1.0,
        "unverifiable",
        f"a swing of {fast / slow:.0f} times needs {taken / 1e9:.0f} of {bandwidth / 1e9:.0f} GB/s "
        f"taken by others, or {spilled:.0%} of the weights paged from a 7 GB/s SSD; nothing said "
        "tells them apart.",
    )


@check("B95")
def mps_out_of_memory(claim: Claim) -> Finding:
    ratio, setting = (evidence.fact(f"pytorch_mps_limit_{x}") for x in ("ratio", "setting"))
    return decide(
        setting in claim.text,
        "wrong_fact",
        f"the message means that allocations passed {setting} ({ratio} by default) times the "
        f"recommended working set ({evidence.usable(MINI) / GiB:.1f} GiB of 32); experts are "
        "ordinary tensors.",
    )


@check("C14")
def starts_in_8(claim: Claim) -> Finding:
    needed = evidence.value("C79")["mem_GB"][0]
    return decide(
        needed <= claim.value["GB"],
        "inconsistent",
        f"the article's own table says that it occupies {needed} GB; {claim.value['GB']} GB are "
        "free.",
    )


@check("C25")
def int4_failed(claim: Claim) -> Finding:
    table = evidence.value("C79")
    ran = [m for m in table["model"] if m.startswith("dense") and m.endswith("INT4")]
    row = table["model"].index(ran[0]) if ran else -1
    return decide(
        not ran,
        "inconsistent",
        f"the article's own table lists '{table['model'][row]}' in {table['mem_GB'][row]} GB at "
        f"{table['tpot_ms'][row]} ms per token.",
    )


@check("C36")
def left_for_the_system(claim: Claim) -> Finding:
    reserved = evidence.value("C35")
    whole, cma = (float(reserved[key].rstrip("G")) for key in ("mem", "cma"))
    return compare(
        f"{whole:.0f} - {cma:.0f} GB",
        claim.value["GB"],
        whole - cma,
        " GB",
        within=0.05,
        otherwise="inconsistent",
    )
