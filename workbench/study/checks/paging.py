"""Checks of pages, faults, TLBs and NUMA balancing (M14-M16)."""

from workbench import data
from workbench.hardware import storage
from workbench.hardware.paging import fact, known, numa_balancing, populate, recorded
from workbench.hardware.paging_tlb import longest_walk, translation
from workbench.study.checks import evidence
from workbench.study.checks.registry import Claim, Finding, check, compare, decide

SMALL = 4096
HUGE = 2**21


def weights() -> float:
    """Return the bytes of the model that article A loads."""
    return evidence.value("A35")["GB"] * 1e9


def round_trips() -> tuple[float, float]:
    """Return the shortest and longest read of one page from the NVMe drives that are known."""
    waits = [d.latency for name, d in storage.disks().items() if name.startswith("NVMe")]
    return min(waits), max(waits)


def text(claim: str) -> str:
    """Return what another claim says."""
    return next(row["claim"] for row in data.rows("claims.csv") if row["id"] == claim)


@check("A33")
def hangs_while_loading(claim: Claim) -> Finding:
    pages, least = weights() / SMALL, claim.value["s_gt"]
    waits, work = [pages * wait for wait in round_trips()], recorded("anonymous")[1] * pages
    return decide(
        work < least <= 2 * waits[1],
        "unverifiable",
        f"{least} s are {least / pages * 1e6:.0f} us per 4-KiB page: one SSD read at a time "
        f"takes {waits[0]:.0f} to {waits[1]:.0f} s, the dearest fault work {work:.0f} s; but a CPU "
        "that waits for a disk is idle, not at 99 %.",
    )


@check("A34")
def small_pages(claim: Claim) -> Finding:
    return compare(
        "page of macOS and of Linux on Apple silicon",
        claim.value["page_kB"],
        known("apple_page") / 1024,
        " kB",
        within=0.0,
        otherwise="wrong_fact",
    )


@check("A35")
def table_entries(claim: Claim) -> Finding:
    return compare(
        "3.8 GB / 4 KiB",
        claim.value["ptes"],
        weights() / SMALL,
        " entries",
        within=0.1,
        otherwise="inconsistent",
    )


@check("A36")
def flush_at_mmap(claim: Claim) -> Finding:
    flushing, cached = fact("mmap_shootdown")["value"], populate(weights(), cached=True)
    return decide(
        claim.value["per"] in flushing.split(),
        "wrong_physics",
        f"only {flushing} flush TLBs; a new mapping replaces nothing, and there is one a file. "
        f"Mapping all of it from the page cache takes {cached.load_s.item():.2g} s.",
    )


@check("A37")
def ninety_seconds(claim: Claim) -> Finding:
    pages = weights() / SMALL
    wait = (claim.value["s"] - evidence.value("A38")["s"]) / pages
    cpu = populate(weights(), readahead=False, latency=wait).cpu_share.item()
    again = evidence.value("A87")["gguf"]["load_s"]
    return decide(
        cpu > 0.9 * claim.value["cpu"],
        "inconsistent",
        f"beyond the load in huge pages that is {wait * 1e6:.1f} us per 4-KiB page, an SSD's round "
        f"trip; the CPU would work {cpu:.0%} of it, not {claim.value['cpu']:.0%}, and the article "
        f"itself loads this model in {again} s elsewhere.",
    )


@check("A38", "A39")
def huge_pages_load(claim: Claim) -> Finding:
    rate, most = weights() / claim.value["s"], recorded("sequential")[1]
    small = populate(weights(), SMALL, bandwidth=rate).load_s.item()
    return decide(
        rate <= most,
        "inconsistent",
        f"{claim.value['s']} s are {rate / 1e9:.2f} GB/s, one sequential stream; 4-KiB pages with "
        f"readahead take {small:.1f} s from that disk too (and reached {most / 1e9:.1f} GB/s where "
        "it was measured), so that it is the reading, not the page.",
    )


@check("A40")
def pool(claim: Claim) -> Finding:
    reserved = claim.value["n"] * HUGE
    return decide(
        reserved >= weights(),
        "inconsistent",
        f"{claim.value['n']} x 2 MiB = {reserved / 1e9:.2f} GB hold {weights() / 1e9:.1f} GB, while "
        "memory in one piece is left (safest at boot); macOS has no such file.",
    )


@check("A41")
def huge_mapping(claim: Claim) -> Finding:
    answer, write = fact("map_hugetlb_on_file")["value"], fact("hugetlbfs_write")["value"]
    return decide(
        answer == "granted",
        "wrong_fact",
        f"{claim.value['flag']} on a regular file gives {answer}; it is for anonymous memory and "
        f"for hugetlbfs, into which write() copies {write} file.",
    )


@check("A42")
def split_at_2_mib(claim: Claim) -> Finding:
    return compare("2 MiB", claim.value["B"], HUGE, " B", within=0.0, otherwise="inconsistent")


@check("A79")
def balancing_by_default(claim: Claim) -> Finding:
    found, least = known("recorded_numa_balancing"), known("numa_least_nodes")
    return decide(
        claim.value["default"] == found,
        "wrong_fact",
        f"Linux switches it on from {least:.0f} NUMA nodes; a machine with unified memory has one, "
        f"and such a host says {found:.0f}.",
    )


@check("A80")
def balancing_and_jitter(claim: Claim) -> Finding:
    one, two = (numa_balancing(n).overhead.item() for n in (1, 2))
    return decide(
        one > 0,
        "wrong_physics",
        f"it takes {one:.0%} of a core on one node, so that nothing is left to gain; on two nodes "
        f"at most {two:.1%} for hinting faults. {claim.value['before_ms']} ms come from elsewhere.",
    )


@check("A81")
def binding(claim: Claim) -> Finding:
    return decide(
        claim.value["node"] == 0 and numa_balancing(1).overhead.item() == 0,
        "wrong_fact",
        "node 0 is all there is on one node: binding to it changes nothing and harms nothing.",
    )


@check("A96")
def fault_alarm(claim: Claim) -> Finding:
    ds = populate(weights(), bandwidth=sum(recorded("sequential")) / 2)
    rate = (ds.faults / ds.load_s).item()
    return decide(
        rate > claim.value["max_per_s"],
        "unverifiable",
        f"weights that are in memory fault no more, while loading 3.8 GB with readahead raises "
        f"{ds.faults.item():,.0f} faults, {rate:,.0f} a second: the limit tells them apart.",
    )


@check("A97")
def miss_limit(claim: Claim) -> Finding:
    def rate(pattern: str, page: int) -> float:
        return translation(weights(), page, "Apple M1", pattern=pattern).miss_rate.item()

    streams = [rate("streaming", page) for page in (SMALL, 2**14)]
    return decide(
        streams[0] < rate("random", SMALL) < claim.value["max"],
        "unverifiable",
        f"of what is not said: a stream misses at {streams[0]:.1%} of its 128-byte lines in 4-KiB "
        f"pages and {streams[1]:.2%} in 16-KiB pages, random reads of the weights at "
        f"{rate('random', 2**14):.0%}.",
    )


@check("B22")
def step_in_size(claim: Claim) -> Finding:
    around = [part * claim.value["GB"] * 1e9 for part in (0.9, 1.1)]
    below, above = translation(around, known("apple_page"), "Apple M1").latency_s.values
    drop = 1 - below / above
    return decide(
        drop >= claim.value["drop"] / 2,
        "wrong_physics",
        f"only {fact('mmap_shootdown')['value']} flush TLBs, a memory controller sees none. From 10 "
        f"% below {claim.value['GB']} GB to 10 % above random reads slow by {drop:.1%}, not by "
        f"{claim.value['drop']:.0%}: misses begin at 48 MiB and grow smoothly.",
    )


@check("B46")
def no_mmap_recommended(claim: Claim) -> Finding:
    later = text("B67")
    return decide(
        "--no-mmap" not in claim.text or "--no-mmap is bad" not in later,
        "inconsistent",
        "the same article later calls --no-mmap bad and these layers a flaw; and main has been "
        f"named {fact('llama_binary')['value']} since mid-2024.",
    )


@check("B67")
def mmap_helps(claim: Claim) -> Finding:
    alone = SMALL / populate(SMALL, readahead=False, latency=round_trips()[0]).load_s.item()
    low, high = recorded("sequential")
    return decide(
        "--no-mmap" not in text("B46"),
        "inconsistent",
        f"it recommends --no-mmap elsewhere. Cold pages come at {alone / 1e9:.2f} GB/s one by one "
        f"and at {low / 1e9:.1f} to {high / 1e9:.1f} GB/s with readahead: mmap is fine with it.",
    )


@check("C24")
def walk_timeouts(claim: Claim) -> Finding:
    metal, guest = (longest_walk("Apple M1", virtual=v) * 1e6 for v in (False, True))
    return decide(
        False,
        "unverifiable",
        f"a walk is {known('table_levels'):.0f} reads, at worst all from memory: {metal:.1f} us, "
        f"{guest:.1f} us under a hypervisor. It cannot time out, and no such counter is documented.",
    )


@check("C74")
def characters_in_the_path(claim: Claim) -> Finding:
    return decide(
        False,
        "unverifiable",
        f"permissions can be it (EACCES); characters cannot, since paths are {fact('paths')['value']} "
        "to Linux and macOS and UTF-8 passes. No error code is given to tell which.",
    )


@check("C75")
def mmap_returns_zero(claim: Claim) -> Finding:
    returned = fact("mmap_success")["value"]
    return decide(
        str(claim.value["ok"]) == returned,
        "wrong_fact",
        f"mmap returns {returned} of the mapping, -1 (MAP_FAILED) on error; strace shows "
        f"0x7f..., never {claim.value['ok']}.",
    )
