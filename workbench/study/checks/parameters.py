"""Checks of parameters: how many, how many of them work, how many are read (M46, M54)."""

from workbench.hardware.traffic import experts_touched
from workbench.study.checks import evidence
from workbench.study.checks.memory import MIXTRAL, weights
from workbench.study.checks.registry import Claim, Finding, check, compare, decide


@check("B07")
def total(claim: Claim) -> Finding:
    return compare(
        "parameters of Mixtral 8x7B (experts share attention and embeddings)",
        claim.value["B"],
        evidence.model(MIXTRAL).total_params / 1e9,
        " B",
        within=0.03,
        otherwise="wrong_fact",
    )


@check("B08")
def active(claim: Claim) -> Finding:
    return compare(
        "parameters of Mixtral 8x7B that a token uses",
        claim.value["B"],
        evidence.model(MIXTRAL).active_params / 1e9,
        " B",
        within=0.05,
        otherwise="wrong_fact",
    )


@check("B13")
def memory_is_not_saved(claim: Claim) -> Finding:
    model, stored = evidence.model(MIXTRAL), weights(MIXTRAL, "Q4_K_M")
    read = evidence.step_bytes(MIXTRAL, "Q4_K_M")
    per_weight = stored / (model.params.sum() - model.vocab * model.hidden)
    dense = per_weight * model.total_params
    return decide(
        stored < 0.8 * dense,
        "wrong_physics",
        f"Mixtral Q4_K_M keeps {stored / 1e9:.1f} GB in memory, a dense model of its size "
        f"{dense / 1e9:.1f} GB; what it saves is bytes per token ({read / 1e9:.1f} GB) and the "
        "work on them, which nobody pays for.",
    )


@check("B23")
def models_that_exist(claim: Claim) -> Finding:
    names = [key.removesuffix("_B") for key in claim.value]
    missing = [name for name in names if not evidence.exists(name)]
    real = ", ".join(
        f"{label} ({evidence.model(slug).total_params / 1e9:.1f} B, "
        f"{evidence.model(slug).active_params / 1e9:.1f} B active)"
        for label, slug in (("Qwen1.5-MoE", "qwen1.5-moe-a2.7b"), ("Mixtral", MIXTRAL))
    )
    return decide(
        not missing,
        "wrong_fact",
        f"no catalogue model is called {' or '.join(missing)}; there are {real}.",
    )


@check("B66")
def layers_on_the_cpu(claim: Claim) -> Finding:
    layers = evidence.model(MIXTRAL).layers
    left = layers - claim.value["ngl"]
    return decide(
        left <= 1,
        "wrong_fact",
        f"of {layers:.0f} layers {claim.value['ngl']} go to the GPU: {left:.0f} and the output "
        "head stay on the CPU, not one.",
    )


@check("B81")
def q4_size(claim: Claim) -> Finding:
    size = float(evidence.load(MIXTRAL, "Q4_K_M").file_bytes) / 1e9
    return compare(
        "Mixtral 8x7B, which the command quantises, in Q4_K_M",
        claim.value["GB"],
        size,
        " GB",
        within=0.1,
        otherwise="wrong_fact",
    )


@check("C07")
def training(claim: Claim) -> Finding:
    """Training takes 6 FLOPs per active parameter and token."""
    model = evidence.model(MIXTRAL)
    ratio = model.active_params / model.total_params
    low, high = claim.value["x"]
    return decide(
        low <= ratio <= high,
        "wrong_fact",
        f"6 x active parameters x tokens: Mixtral trains with {ratio:.2f} times the FLOPs of a "
        f"dense model of its size, claimed {low} to {high} times.",
    )


@check("C08")
def unread(claim: Claim) -> Finding:
    experts, top_k = float(claim.value["E"]), float(claim.value["k"])
    share = 1 - float(experts_touched(experts, top_k, 1.0))
    prompt = float(experts_touched(experts, top_k, 64.0))
    return decide(
        share > claim.value["unread_gt"],
        "wrong_physics",
        f"{experts - top_k:.0f} of {experts:.0f} experts are {share:.1%} of the expert weights, "
        f"less than {claim.value['unread_gt']:.0%} before shared weights count; a prompt of 64 "
        f"tokens reads {prompt:.2%} of them.",
    )


@check("C33")
def experts_in_sram(claim: Claim) -> Finding:
    elsewhere = evidence.value("C20")["GB"] * 1e3
    model = evidence.model("qwen1.5-moe-a2.7b")
    load = evidence.load("qwen1.5-moe-a2.7b", "F16")
    real = float(load.expert_bytes) / float(model.experts * model.moe_layers) / 1e6
    return decide(
        claim.value["n"] * real <= claim.value["MB"],
        "inconsistent",
        f"{claim.value['n']} x {claim.value['expert_MB']} MB fit {claim.value['MB']} MB, but the "
        f"article's expert is {elsewhere:,.0f} MB elsewhere (C20), and one of Qwen1.5-MoE is "
        f"{real:.1f} MB a layer in FP16.",
    )


@check("C62")
def ffn_share(claim: Claim) -> Finding:
    shares = {}
    for name in ("llama-2-7b", "meta-llama-3-8b"):
        model = evidence.model(name)
        layers = model.decode_read_params - model.vocab * model.hidden
        shares[name] = 3 * model.hidden * model.ffn * model.layers / layers
    low, high = min(shares.values()), max(shares.values())
    text = ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
    return decide(
        low - 0.02 <= claim.value["ffn"] <= high + 0.02,
        "wrong_fact",
        f"share of the feed-forward part in the layers' FLOPs: {text}; claimed "
        f"{claim.value['ffn']:.0%}.",
    )
