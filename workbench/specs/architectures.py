"""What each Hugging Face model_type does differently from Llama; everything else is read from the
config."""

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Traits:
    """How one architecture's tensors follow from its config; the defaults are Llama's."""

    gated: bool = True  # FFN has a gate beside the up projection
    norms: int = 2  # norm vectors of a layer, without q and k norms
    norm_bias: bool = False
    final_norms: int = 1
    qkv_bias: bool = False
    out_bias: bool = False
    ffn_bias: bool = False
    head_bias: bool = False
    qk_norm: str = ""  # "head": one vector of head_dim; "heads": over all heads; "" none
    gate: str = ""  # attention output gate: "element", "head"
    tied: bool = False  # when the config does not say
    # "all": every layer slides; "pattern": all but every n-th; "opt-in": with use_sliding_window
    windows: str = ""
    recurrent: str = ""  # kind of recurrent mixer, a name in recurrent.RECURRENT
    # recurrent layers: all but every n-th; "parallel": beside attention; "only": all
    mixing: str = "interval"
    attention: str = "grouped"  # "latent": MLA; "compressed": DeepSeek-V4
    sinks: bool = False
    ffn_per_hidden: int = 0  # FFN width in hidden sizes when the config does not say; 0: it must
    doubled_width: bool = False  # intermediate_size counts gate and up together
    positions: int | None = (
        None  # learned position embeddings beyond max_position_embeddings; None: none
    )
    expert_bias: bool = False  # routing bias, one per expert
    router_bias: bool = False
    experts_bias: bool = False  # on the matrices of each expert
    shared_gate: bool = False  # one more vector: a sigmoid gate on the shared expert
    prediction: str = (
        "block"  # prediction layers: like the last block; "embeddings": and their own; "dense" FFN
    )
    defaults: Mapping = dataclasses.field(default_factory=dict)


LLAMA = Traits()
QWEN2 = Traits(qkv_bias=True, windows="opt-in")
QWEN3 = Traits(qk_norm="head", windows="opt-in", defaults={"head_dim": 128})
GEMMA = Traits(tied=True, defaults={"head_dim": 256})
# the published config.json of Gemma 3 4B and larger leave out what equals the class default of
# transformers
GEMMA3 = Traits(
    tied=True,
    norms=4,
    qk_norm="head",
    windows="pattern",
    defaults={
        "vocab_size": 262208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131072,
        "sliding_window_pattern": 6,
    },
)
DEEPSEEK = Traits(attention="latent")
DEEPSEEK_V3 = Traits(attention="latent", expert_bias=True, prediction="embeddings")
GPT2 = Traits(
    gated=False,
    ffn_per_hidden=4,
    norm_bias=True,
    qkv_bias=True,
    out_bias=True,
    ffn_bias=True,
    tied=True,
)
GDN = Traits(
    qk_norm="head",
    gate="element",
    recurrent="gated_delta_net",
    shared_gate=True,
    defaults={"full_attention_interval": 4},
)
COHERE = Traits(tied=True, norms=1)

#: model_type -> traits
ARCHITECTURES: dict[str, Traits] = {
    "llama": LLAMA,
    "mistral": Traits(windows="all"),
    "ministral3": Traits(windows="all"),
    "mixtral": Traits(windows="all"),
    "mistral4": DEEPSEEK,
    "qwen": Traits(qkv_bias=True, doubled_width=True),
    "qwen2": QWEN2,
    "qwen2_moe": dataclasses.replace(QWEN2, shared_gate=True),
    "qwen3": QWEN3,
    "qwen3_moe": QWEN3,
    "qwen3_next": GDN,
    "qwen3_5_text": GDN,
    "qwen3_5_moe_text": GDN,
    "gemma": GEMMA,
    "gemma2": Traits(
        tied=True,
        norms=4,
        windows="pattern",
        defaults={"head_dim": 256, "sliding_window": 4096, "sliding_window_pattern": 2},
    ),
    "gemma3_text": GEMMA3,
    "gemma3n_text": GEMMA3,
    "gemma4_text": GEMMA3,
    "gemma4_unified_text": GEMMA3,
    "phi": Traits(
        gated=False,
        norms=1,
        norm_bias=True,
        qkv_bias=True,
        out_bias=True,
        ffn_bias=True,
        head_bias=True,
    ),
    "phi3": Traits(windows="all"),
    "phimoe": Traits(norm_bias=True, qkv_bias=True, out_bias=True, head_bias=True),
    "gpt_oss": Traits(
        qkv_bias=True,
        out_bias=True,
        router_bias=True,
        experts_bias=True,
        sinks=True,
        windows="pattern",
        defaults={"sliding_window_pattern": 2},
    ),
    "glm": Traits(qkv_bias=True),
    "glm4": Traits(norms=4),
    "chatglm": Traits(qkv_bias=True),
    "glm4_moe": Traits(
        qk_norm="head", expert_bias=True, prediction="embeddings", defaults={"use_qk_norm": False}
    ),
    "glm4_moe_lite": DEEPSEEK_V3,
    "deepseek_v2": DEEPSEEK,
    "deepseek_v2_mha": LLAMA,
    "deepseek_v3": DEEPSEEK_V3,
    "deepseek_v4": Traits(attention="compressed", windows="all", expert_bias=True),
    "llama4_text": Traits(
        windows="pattern", defaults={"num_shared_experts": 1, "sliding_window_pattern": 4}
    ),
    "olmo2": Traits(qk_norm="heads"),
    "olmoe": Traits(qk_norm="heads"),
    "dots1": Traits(qk_norm="head", expert_bias=True),
    "hunyuan_v1_dense": Traits(qk_norm="head", tied=True),
    "hunyuan_v1_moe": Traits(qk_norm="head", tied=True),
    "minimax_m2": Traits(qk_norm="heads", expert_bias=True),
    "nemotron": Traits(gated=False, norm_bias=True),
    "nemotron_h": Traits(gated=False, recurrent="mamba2", expert_bias=True),
    "granite": LLAMA,
    "granitemoe": LLAMA,
    "granitemoehybrid": Traits(recurrent="mamba2"),
    "lfm2": Traits(qk_norm="head", tied=True, recurrent="short_convolution"),
    "lfm2_moe": Traits(qk_norm="head", tied=True, recurrent="short_convolution", expert_bias=True),
    "cohere": COHERE,
    "cohere2": dataclasses.replace(
        COHERE, windows="pattern", defaults={"sliding_window_pattern": 4}
    ),
    "cohere2_moe": COHERE,
    "exaone": LLAMA,
    "apertus": Traits(gated=False, qk_norm="head"),
    "smollm3": Traits(tied=True),
    "internlm2": LLAMA,
    "internlm3": LLAMA,
    "ernie4_5": Traits(tied=True),
    "ernie4_5_moe": Traits(tied=True, expert_bias=True),
    "minicpm": Traits(tied=True),
    "minicpm3": dataclasses.replace(DEEPSEEK, tied=True),
    "starcoder2": dataclasses.replace(GPT2, windows="all"),
    "gpt_bigcode": dataclasses.replace(GPT2, positions=0, defaults={"multi_query": True}),
    "gpt_neox": dataclasses.replace(GPT2, tied=False),
    "stablelm": Traits(norm_bias=True),
    "helium": LLAMA,
    "bloom": dataclasses.replace(GPT2, final_norms=2),
    "opt": dataclasses.replace(GPT2, positions=2),
    "kimi_linear": Traits(attention="latent", recurrent="kimi_delta", expert_bias=True),
    "jamba": Traits(recurrent="mamba"),
    "falcon_h1": Traits(recurrent="mamba2", mixing="parallel"),
    "rwkv7": Traits(gated=False, norm_bias=True, recurrent="rwkv7", mixing="only"),
    "baichuan": LLAMA,
    "mellum": Traits(qk_norm="head"),
    "afmoe": Traits(qk_norm="head", gate="element", norms=4, expert_bias=True),
    "laguna": Traits(qk_norm="head", gate="head", expert_bias=True),
    "step3p5": Traits(qk_norm="head", gate="head", expert_bias=True, prediction="dense"),
    "muse_glimmer_text": Traits(gate="element", norms=4),
    "telechat": LLAMA,
    "smallthinker": LLAMA,
    "arcee": Traits(gated=False),
    "deepseek": LLAMA,
    "deepseek_v32": DEEPSEEK_V3,
    "glm_moe_dsa": DEEPSEEK_V3,
    "seed_oss": Traits(qkv_bias=True),
    "internlm": Traits(qkv_bias=True, out_bias=True),
    "olmo": Traits(norms=0, final_norms=0),
    "olmo3": Traits(qk_norm="heads", windows="pattern", defaults={"sliding_window_pattern": 4}),
    "exaone4": Traits(qk_norm="head", windows="pattern", defaults={"sliding_window_pattern": 4}),
    "bamba": Traits(recurrent="mamba2"),
    "gpt2": dataclasses.replace(GPT2, positions=0),
    "gptj": Traits(
        gated=False, norms=1, norm_bias=True, ffn_bias=True, head_bias=True, ffn_per_hidden=4
    ),
    "falcon": Traits(gated=False, norms=1, norm_bias=True, tied=True, ffn_per_hidden=4),
}

#: other names of the same decoder: wrappers beside a vision or audio tower, checkpoints that
#: renamed it
SAME = {
    "ministral": "mistral",
    "mistral3": "ministral3",
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "llama4": "llama4_text",
    "kimi_k2": "deepseek_v3",
    "yi": "llama",
    "aquila": "llama",
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen3_vl": "qwen3",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe": "qwen3_moe",
    "qwen3_vl_moe_text": "qwen3_moe",
    "qwen3_omni_moe_text": "qwen3_moe",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "muse_glimmer": "muse_glimmer_text",
    "hunyuan": "hunyuan_v1_moe",
}
ARCHITECTURES |= {name: ARCHITECTURES[same] for name, same in SAME.items()}
