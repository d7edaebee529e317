"""Checks of links, disks, decompression and what is kept on an SSD (M24-M28)."""

from workbench.hardware import storage
from workbench.hardware.storage_link import find
from workbench.hardware.storage_offload import streamed
from workbench.specs import formats
from workbench.study.checks import evidence
from workbench.study.checks.registry import (
    Claim,
    Finding,
    check,
    compare,
    decide,
    listed,
    number,
)
from workbench.study.load import times
from workbench.study.storage import compressibility

MIXTRAL = "mixtral-8x7b-v0.1"
QWEN = "qwen2.5-7b-instruct"
USB = ("USB 3.2 10 Gb/s", "USB 3.2 5 Gb/s")


def delivered(name: str) -> float:
    """Return the GB/s of data that a link delivers."""
    return find(name).bandwidth / 1e9


def codec(name: str) -> float:
    """Return the GB/s of plain data that one core decompresses."""
    return storage.codecs()[name][1] / 1e9


@check("A84")
def compression_off(claim: Claim) -> Finding:
    needed, ratio = 1.0 / (1.0 - claim.value["loss"]), compressibility("Q4_K")
    return decide(
        ratio >= needed,
        "unverifiable",
        f"a loss of {claim.value['loss']:.0%} would need data that compress {needed:.2f} times; "
        f"our own Q4_K weights compress {ratio:.2f} times (zlib), and the runtime named is not "
        "public.",
    )


@check("B20")
def experts_over_pcie(claim: Claim) -> Finding:
    load, link = evidence.load(MIXTRAL, "F16"), find("PCIe 5.0 x16").raw
    moved = float(load.expert_bytes * load.top_k / load.experts)
    read = (
        evidence.step_bytes(MIXTRAL, "F16") / evidence.device("nvidia-geforce-rtx-4090").bandwidth
    )
    return decide(
        moved / link <= read,
        "wrong_physics",
        f"PCIe 5.0 x16 carries {link / 1e9:.1f} GB/s (claimed {claim.value['GB_s']}), so the "
        f"{moved / 1e9:.1f} GB of experts of a Mixtral token in fp16 take {moved / link * 1e3:.0f} "
        f"ms, against {read * 1e3:.0f} ms to read all weights at a 4090's bandwidth.",
    )


@check("B97")
def unquantised_controlnet(claim: Claim) -> Finding:
    does, rate = evidence.fact("comfyui_manager_does"), storage.disk("Mac internal").bandwidth
    return decide(
        "quantis" in does,
        "wrong_fact",
        f"comfyui-manager {does}, it does not quantise; and at the {rate / 1e9:.0f} GB/s of a "
        f"Mac's disk {claim.value['s_gt']} s are {claim.value['s_gt'] * rate / 1e9:.0f} GB, many "
        "times a ControlNet: the wait is elsewhere.",
    )


@check("B100")
def two_kinds_of_port(claim: Claim) -> Finding:
    kinds = evidence.fact("m2_mini_usb_c_kinds")
    return decide(
        "USB 3.2" in kinds,
        "wrong_fact",
        f"all USB-C ports of the M2 mini are {kinds}; the slow ones are USB-A with 5 Gb/s "
        f"({delivered(USB[1]):.2f} GB/s delivered), not {claim.value['usb_Gbps']}.",
    )


@check("B101")
def two_ports(claim: Claim) -> Finding:
    size, fast, slow = (claim.value[key] for key in ("GB", "tb4_s", "usb_s"))
    sizes = {q: formats.weight_bytes(evidence.model(QWEN), q).sum() / 1e9
             for q in ("F16", "Q8_0", "Q4_K_M")}  # fmt: skip
    exists = any(abs(size / each - 1.0) < 0.1 for each in sizes.values())
    reached = (size / fast) / delivered("Thunderbolt 4"), (size / slow) / delivered(USB[0])
    return decide(
        exists and min(reached) > 0.8,
        "inconsistent",
        f"the ratio is {slow / fast:.2f}, but {size / fast:.2f} and {size / slow:.2f} GB/s are "
        f"{reached[0]:.0%} and {reached[1]:.0%} of what those links deliver, and Qwen2.5-7B has "
        f"{listed(sizes.values(), ' GB')} in F16, Q8_0 and Q4_K_M, never {size}.",
    )


@check("B106")
def thunderbolt_ssd(claim: Claim) -> Finding:
    gains = sorted(delivered("Thunderbolt 4") / delivered(name) for name in USB)
    return decide(
        gains[0] <= claim.value["load_x"] <= gains[-1],
        "wrong_physics",
        f"Thunderbolt delivers {gains[0]:.1f} times what USB with 10 Gb/s does and {gains[-1]:.1f} "
        f"times that with 5 Gb/s (claimed {claim.value['load_x']}): loading gets faster, tokens "
        "never.",
    )


@check("B109")
def egpu(claim: Claim) -> Finding:
    known = evidence.fact("apple_silicon_egpu")
    return decide(
        known.startswith("no driver"),
        "wrong_fact",
        f"{known} for graphics; compute on external cards works since 2026 through another's "
        f"(TinyGPU), behind a link of {delivered('Thunderbolt 4'):.1f} GB/s.",
    )


@check("C10")
def pcie_rate(claim: Claim) -> Finding:
    return compare(
        f"{claim.value['link']}, one direction",
        claim.value["GB_s"],
        find(claim.value["link"]).raw / 1e9,
        " GB/s",
        within=0.05,
        otherwise="wrong_physics",
    )


@check("C11")
def read_jitter(claim: Claim) -> Finding:
    rate = find("PCIe 4.0 x4").bandwidth
    ahead = claim.value["sd_us"] * 1e-6 * rate
    most = evidence.figure("pcie_tags") * evidence.figure("pcie_max_read_request")
    return decide(
        ahead <= most,
        "wrong_physics",
        f"{claim.value['sd_us']} us are {ahead / 1e3:.0f} kB ahead in the queue of a PCIe 4.0 x4 "
        f"link, {ahead / most:.0%} of the {most / 1e3:.0f} kB that may be in flight: bulk traffic "
        "explains it.",
    )


@check("C37")
def zstd_speed(claim: Claim) -> Finding:
    return decide(
        claim.value["GB_s"] <= codec("zstd -1"),
        "wrong_fact",
        f"one desktop core decompresses zstd -1 at {codec('zstd -1'):.2f} GB/s (zstd's own "
        f"table); claimed {claim.value['GB_s']}.",
    )


@check("C38")
def zstd_slower(claim: Claim) -> Finding:
    size, speed = evidence.value("C18")["GB"], evidence.value("C37")["GB_s"]
    return decide(
        codec("lz4") > codec("zstd -1"),
        "wrong_fact",
        f"lz4 decompresses at {codec('lz4'):.1f} GB/s, zstd at {codec('zstd -1'):.2f}; but "
        f"{size} GB at {speed} GB/s are {size / speed:.1f} s, for every token if weights stay "
        f"compressed, and Q4_K weights compress {compressibility('Q4_K'):.2f} times.",
    )


@check("C77")
def trained_link(claim: Claim) -> Finding:
    said, lanes = evidence.value("C10")["link"], claim.value["lanes"]
    seen, wanted = find(f"PCIe 3.0 x{lanes}").raw, find(said).raw
    return decide(
        seen >= wanted,
        "inconsistent",
        f"{claim.value['GT_s']} GT/s x{lanes} is PCIe 3.0, {seen / 1e9:.2f} GB/s; the article "
        f"itself has {said}, {wanted / 1e9:.2f} GB/s.",
    )


@check("C78")
def power_down_training(claim: Claim) -> Finding:
    limit = evidence.figure("pcie_slot_power_x4")
    slow, narrow = find("PCIe 1.0 x4").raw / 1e9, find("PCIe 4.0 x1").raw / 1e9
    return decide(
        claim.value["npu_W"] <= limit,
        "unverifiable",
        f"{limit:.0f} W is what an x4 slot gives, and such links would carry {number(slow)} and "
        f"{number(narrow)} GB/s; whether {claim.value['npu_W']} W train a link down or reset it "
        "is documented nowhere, and an NPU on the chip sits in no slot.",
    )


@check("C85")
def direct_read(claim: Claim) -> Finding:
    link, drive = find("PCIe 4.0 x4").bandwidth, storage.disk("NVMe PCIe 4.0").bandwidth
    most = min(link, drive) / 1e9
    return decide(
        claim.value["GB_s"] <= most,
        "wrong_physics",
        f"link ({link / 1e9:.1f} GB/s with packets) and drive ({drive / 1e9:.1f} GB/s) allow "
        f"{most:.1f}; claimed {claim.value['GB_s']}.",
    )


@check("C86")
def first_token_only(claim: Claim) -> Finding:
    moved = (evidence.value("C18")["GB"] - evidence.value("C84")["GB"]) * 1e9
    rate = evidence.value("C85")["GB_s"] * 1e9
    every = float(streamed(moved, 0.0, rate))
    return decide(
        every < 0.05 * claim.value["ttft_s"],
        "wrong_physics",
        f"dense attention reads the {moved / 1e9:.1f} GB again for every token: "
        f"{every:.1f} s per token at {rate / 1e9:.1f} GB/s, more than the {claim.value['ttft_s']} "
        "s said of the first alone.",
    )


@check("C87")
def random_reads(claim: Claim) -> Finding:
    rated = sorted(d.iops for name, d in storage.disks().items() if name.startswith("NVMe PCIe 4"))
    meant = claim.value["pc300"] / claim.value["ratio"]
    return decide(
        meant >= 0.9 * rated[0],
        "wrong_fact",
        f"{claim.value['pc300'] / 1e3:.0f}k / {claim.value['ratio']} = {meant / 1e3:.0f}k reads/s, "
        f"below every 980 PRO ({listed([r / 1e3 for r in rated], 'k')}).",
    )


@check("C68")
def cold_start(claim: Claim) -> Finding:
    size, rate = evidence.value("C18")["GB"], evidence.value("C85")["GB_s"]
    needed = size / claim.value["prealloc_s"]
    return decide(
        needed <= rate,
        "inconsistent",
        f"{size} GB in {claim.value['prealloc_s']} s are {needed:.2f} GB/s with no time for "
        f"anything else; the article reads its SSD at {rate}.",
    )


@check("B99")
def purge(claim: Claim) -> Finding:
    size, disk = evidence.load(QWEN, "Q4_K_M").file_bytes, storage.disk("Mac internal")
    cold, warm = (float(t) for t in times(size, 0.0, disk)["load_s"])
    return decide(
        cold <= warm,
        "inconsistent",
        f"purge empties the page cache, so that the next load takes {cold:.1f} s instead of "
        f"{warm:.1f} (Qwen2.5-7B in Q4_K_M from a Mac's disk); only the dummy run helps.",
    )
