"""Checks of what must lie in one piece, and of the ways to one (M18, M19, M20, M21)."""

import math

import xarray as xr

from workbench.hardware.contiguity import constant, largest_block
from workbench.hardware.contiguity_dma import compaction, transfer, ways
from workbench.hardware.pools import orderings
from workbench.study.checks import evidence
from workbench.study.checks.registry import Claim, Finding, check, compare, decide, number
from workbench.units import GB, GiB, human_bytes

MINI = "apple-m6-12-core-gpu"
DENSE = "gemma-3-27b-it"
PAGE = 16384  # bytes, what the IOMMU of Apple chips maps (datasets/contiguity.csv has its costs)
PINNED = 1e-3  # a thousandth of the pages, anywhere: 33 MiB of 32 GiB


def wanted() -> float:
    """Return the bytes that the article wants in one piece."""
    return evidence.value("C18")["GB"] * GB


def through_an_iommu(size: float) -> xr.Dataset:
    """Return the transfer of weights in pages anywhere, at the chip's bandwidth, split as C21 says."""
    limit = evidence.value("C21")["kB"] * 1024
    return transfer(size, limit, bandwidth=evidence.device(MINI).bandwidth, page=PAGE)


@check("C06")
def one_dma(claim: Claim) -> Finding:
    mapped = through_an_iommu(claim.value["GB"] * GB)
    full = float(evidence.load(DENSE, "F16").file_bytes)
    memory = evidence.device(MINI).memory
    return decide(
        not bool(mapped.feasible),
        "wrong_physics",
        f"{claim.value['GB']} GB are {mapped.iommu_entries.item() / 1e6:.2f} million pages of 16 KiB, "
        f"mapped once in {mapped.map_s.item():.2f} s: no engine needs them in one piece. 27B in FP16 "
        f"fails because {human_bytes(full)} exceed the {human_bytes(memory)} there are.",
    )


@check("C15")
def more_memory(claim: Claim) -> Finding:
    chip = evidence.device(MINI)
    sizes = [size / GiB for size in chip.memory_options]
    blocks = [
        largest_block(f"{gib} GiB", PINNED).largest_bytes.item() for gib in (32, claim.value["GB"])
    ]
    return decide(
        claim.value["GB"] in sizes,
        "wrong_fact",
        f"memory is soldered, {max(sizes):.0f} GB at most, so no module adds to it. Right in spirit: "
        f"with {PINNED:.1%} of the pages pinned the largest block is {human_bytes(blocks[0])} in 32 GiB "
        f"and {human_bytes(blocks[1])} in {claim.value['GB']} GiB.",
    )


@check("C16")
def fragmentation_as_cause(claim: Claim) -> Finding:
    mapped = through_an_iommu(wanted())
    plain = wanted() / evidence.device(MINI).bandwidth
    slower = mapped.transfer_s.item() / plain - 1.0
    return decide(
        not bool(mapped.feasible),
        "wrong_physics",
        f"behind an IOMMU pages of 16 KiB suffice: {mapped.iommu_entries.item() / 1e6:.2f} million "
        f"entries take {mapped.map_s.item():.2f} s once and add {slower:.0%} at most to each read of "
        f"{plain:.2f} s; translation is the price, not a failure.",
    )


@check("C17")
def slab(claim: Claim) -> Finding:
    allocator = evidence.fact("linux_page_allocator")
    left = largest_block("32 GiB", PINNED).largest_bytes.item()
    kept = largest_block("32 GiB", PINNED, grouping=True).largest_bytes.item()
    return decide(
        allocator in claim.text.lower(),
        "wrong_fact",
        f"pages come from the {allocator} allocator; slab only takes them from it. Unmovable ones do "
        f"fragment if {PINNED:.1%} lie anywhere ({human_bytes(left)} left of 32 GiB), which is why Linux "
        f"groups them ({human_bytes(kept)}).",
    )


@check("C18")
def size_in_fp16(claim: Claim) -> Finding:
    full = float(evidence.load(DENSE, "F16").file_bytes)
    bits = claim.value["GB"] * GB * 8 / evidence.model(DENSE).total_params
    finding = compare(
        "27B weights of two bytes", claim.value["GB"], full / GB, " GB", within=0.1,
        otherwise="wrong_fact",
    )  # fmt: skip
    return finding._replace(
        reason=f"{finding.reason[:-1]}; {claim.value['GB']} GB are {bits:.1f} bits a weight."
    )


@check("C19")
def order_twelve(claim: Claim) -> Finding:
    block = (4096 << claim.value["order"]) / 2**20
    found = largest_block("32 GiB", PINNED)
    usual = int(constant("max_order_4096"))
    finding = compare(
        f"2^{claim.value['order']} pages of 4 KiB", claim.value["MB"], block, " MiB", within=0.01,
        otherwise="wrong_physics",
    )  # fmt: skip
    return finding._replace(
        reason=f"{finding.reason[:-1]}. Linux's lists end at order {usual} by default, but "
        f"{human_bytes(found.pinned_bytes.item())} pinned anywhere in 32 GiB do leave "
        f"{human_bytes(found.largest_bytes.item())}."
    )


@check("C20")
def fits_in_four_megabytes(claim: Claim) -> Finding:
    block = 4096 << claim.value["order"]
    times = claim.value["GB"] * GB / (claim.value["MB"] * 1e6)
    return decide(
        claim.value["GB"] * GB <= block,
        "inconsistent",
        f"{claim.value['GB']} GB are {number(times)} times {claim.value['MB']} MB (order "
        f"{claim.value['order']}: {human_bytes(block)}); either both are split, or neither is.",
    )


@check("C21")
def chunk_limit(claim: Claim) -> Finding:
    return compare(
        f"{claim.value['kB']} KiB",
        claim.value["GB"],
        claim.value["kB"] * 1024 / GB,
        " GB",
        within=0.05,
        otherwise="inconsistent",
    )


@check("C22")
def tuned_for_moe(claim: Claim) -> Finding:
    model, limit = evidence.model(DENSE), evidence.value("C21")["kB"] * 1024
    table = float(model.vocab * model.hidden) * 2
    layer = float(evidence.load(DENSE, "F16").file_bytes) / float(model.layers)
    return Finding(
        "unverifiable",
        f"a limit of {human_bytes(limit)} a piece lets a whole dense 27B layer through, too "
        f"({human_bytes(layer)} in FP16; only the embeddings, {human_bytes(table)}, are larger); for whom "
        "it was chosen is not documented.",
    )


@check("C34")
def one_window(claim: Claim) -> Finding:
    total, window = claim.value["chunks"] * claim.value["GB"] * GB, claim.value["region_MB"] * 1e6
    return decide(
        total <= window,
        "wrong_physics",
        f"{claim.value['chunks']} x {claim.value['GB']} GB are {number(total / window)} times the "
        f"{claim.value['region_MB']} MB in which they shall lie.",
    )


@check("C35")
def boot_arguments(claim: Claim) -> Finding:
    whole, aside = (float(claim.value[key].rstrip("G")) * GiB for key in ("mem", "cma"))
    memory = evidence.device("article_m6_mini").memory
    by_cma = ways(wanted(), wanted(), memory=whole, reserve=aside, pinned=PINNED)
    by_mem = ways(wanted(), wanted(), memory=memory, reserve=whole, pinned=PINNED)
    lost = by_mem.hidden_bytes.sel(request="mem= at boot").item()
    return decide(
        bool(by_cma.feasible.sel(request="CMA at boot")),
        "wrong_fact",
        f"cma={claim.value['cma']} sets {human_bytes(aside)} aside, less than "
        f"{wanted() / GB} GB; mem={claim.value['mem']} reserves nothing, it only hides "
        f"{human_bytes(lost)} from the kernel.",
    )


@check("C40")
def pool_after_defrag(claim: Claim) -> Finding:
    pool = math.ceil(claim.value["after_GB"]) * GB
    done = orderings(pool, wanted(), cached=1.0, order=[["create", "flush", "defrag"]])
    after = done.largest_bytes.values[0, -1]
    few = 1.0 / (claim.value["before_MB"] * 2**20 / 4096)
    chance = compaction(pool, few).p_success.item()
    return decide(
        after >= claim.value["after_GB"] * GB,
        "wrong_physics",
        f"flush and defrag leave {after / GB:.1f} of {pool / GB:.0f} GB in one piece if every page may "
        f"move; one pinned page per {claim.value['before_MB']} MiB ({few:.3%}) makes that a chance of "
        f"{chance:.0%}. Setting memory aside at boot is the sure way.",
    )


@check("C42")
def defrag_under_dma(claim: Claim) -> Finding:
    done = orderings(24 * GB, GB, order=[["create", "defrag", "load", "defrag"]])
    outcome = done.outcome.values[0, -1]
    return decide(
        outcome.startswith("refused"),
        "wrong_physics",
        f"pages under DMA are pinned, and moving one while a device reads it corrupts the read: after "
        f"create, defrag, load ({done.outcome.values[0, 2]}) another defrag is {outcome}. The call itself "
        "is not public.",
    )


@check("C63")
def order_of_operations(claim: Claim) -> Finding:
    other = ["create", "load", "defrag"]
    tried = orderings(24 * GB, 10 * GB, order=[claim.value["ok"], other])
    good, bad = tried.feasible.values
    return decide(
        good and not bad,
        "wrong_physics",
        f"{', '.join(claim.value['ok'])}: {tried.outcome.values[0, -1]}; {', '.join(other)}: "
        f"{tried.outcome.values[1, 1]}, and defrag is then {tried.outcome.values[1, 2]}.",
    )


@check("C70")
def bytes_in_the_error(claim: Claim) -> Finding:
    block = largest_block("32 GiB", PINNED).largest_bytes.item()
    return compare(
        f"{claim.value['B']:,} bytes are {claim.value['B'] / 1e6:.1f} MB, just above one block of "
        f"{human_bytes(block)}; bytes that were said to be missing",
        claim.value["B"],
        wanted(),
        "",
        within=0.05,
        otherwise="wrong_physics",
    )
