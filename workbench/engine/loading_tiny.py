"""Small GGUF files of random weights, one of every family: to take apart, and to test with.

    path = tiny("qwen3moe.gguf", "qwen3moe", quant="Q8_0")

They speak nonsense, but run through every path that a real model of the family runs through.
"""

from pathlib import Path

import gguf
import numpy as np

from workbench.engine import codecs
from workbench.engine.architectures import FAMILIES, Architecture
from workbench.engine.loading import expected_shapes
from workbench.engine.rope import Rope
from workbench.errors import FileError, SpecError, UnknownNameError

#: family -> (general.architecture, tensors that Llama lacks, fields of Architecture it has otherwise)
_QK_NORMS = ("attn_q_norm.weight", "attn_k_norm.weight")
_QKV_BIASES = ("attn_q.bias", "attn_k.bias", "attn_v.bias")
_POST_NORMS = ("post_attention_norm.weight", "post_ffw_norm.weight")
_EXPERT_BIASES = (
    "ffn_gate_inp.bias",
    "ffn_gate_exps.bias",
    "ffn_up_exps.bias",
    "ffn_down_exps.bias",
)
_MOE = {"experts": 8, "top_k": 2}
KINDS = {
    "llama": ("llama", (), {}),
    "mixtral": ("llama", (), _MOE),
    "qwen2": ("qwen2", _QKV_BIASES, {}),
    "qwen3": ("qwen3", _QK_NORMS, {}),
    "qwen3moe": ("qwen3moe", _QK_NORMS, _MOE),
    "gemma3": ("gemma3", _QK_NORMS + _POST_NORMS, {"window": 32}),
    "gpt-oss": (
        "gpt-oss",
        (*_QKV_BIASES, "attn_output.bias", "attn_sinks.weight", *_EXPERT_BIASES),
        {"window": 32, **_MOE},
    ),
}
_BYTES, _VOCAB, _CONTEXT = 256, 512, 4096
_YARN = 4.0  # context extension of the gpt-oss file


def tiny(
    path: str | Path,
    kind: str = "llama",
    *,
    quant: str = "Q8_0",
    layers: int = 6,
    hidden: int = 256,
    seed: int = 0,
) -> Path:
    """Write a model of random weights and return its path.

    Args:
        path: where to.
        kind: one of KINDS.
        quant: type of the matrices, one of codecs.FORMATS.
        layers: decoder layers.
        hidden: width, a multiple of 256.
        seed: of the weights.

    Raises:
        UnknownNameError: a kind or format that does not exist.
        SpecError: no layer, a width that does not fit, or a seed below 0.
        FileError: a place that cannot be written to.
    """
    _refuse(Path(path), kind, quant, layers, hidden, seed)
    name, optional, other = KINDS[kind]
    arch = _architecture(name, layers, hidden, other)
    writer = gguf.GGUFWriter(Path(path), name)
    _describe(writer, arch)
    _vocabulary(writer, name)
    rng = np.random.default_rng(seed)
    has = {f"blk.0.{tensor}" for tensor in optional} | {"output.weight"}
    if name == "gemma3":  # its embedding is its head
        has.remove("output.weight")
    for tensor, shape in expected_shapes(arch, has).items():
        _add(writer, tensor, _random(tensor, shape, rng), quant)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return Path(path)


def _refuse(path: Path, kind: str, quant: str, layers: int, hidden: int, seed: int) -> None:
    """Refuse what cannot be written, before a file is begun."""
    if kind not in KINDS:
        raise UnknownNameError("tiny model", kind, list(KINDS))
    if quant not in codecs.FORMATS:
        raise UnknownNameError("format", quant, list(codecs.FORMATS))
    if layers < 1 or hidden < 1 or hidden % 256 or seed < 0:
        raise SpecError(
            f"layers {layers}, hidden {hidden}, seed {seed}: at least one layer, a width that is a "
            "multiple of 256, and a seed from 0 are right"
        )
    if not path.parent.is_dir() or path.is_dir():
        raise FileError(f"{path}: no file can be written there; name one in a folder that exists")


def _architecture(name: str, layers: int, hidden: int, other: dict) -> Architecture:
    rope = Rope(64, 10_000.0, FAMILIES[name].rope_style)
    fields = {"window": None, "experts": 0, "top_k": 0, **other}
    return Architecture(
        name=name, layers=layers, hidden=hidden, heads=hidden // 64, kv_heads=2, head_dim=64,
        ffn=2 * hidden, vocab=_VOCAB, context=_CONTEXT, eps=1e-6, rope=rope, local_rope=rope,
        slides=(), scale=None, **fields,
    )  # fmt: skip


def _describe(writer: gguf.GGUFWriter, arch: Architecture) -> None:
    writer.add_name(f"tiny {arch.name}")
    writer.add_block_count(arch.layers)
    writer.add_context_length(arch.context)
    writer.add_embedding_length(arch.hidden)
    writer.add_feed_forward_length(arch.ffn)
    writer.add_head_count(arch.heads)
    writer.add_head_count_kv(arch.kv_heads)
    writer.add_key_length(arch.head_dim)
    writer.add_value_length(arch.head_dim)
    writer.add_layer_norm_rms_eps(arch.eps)
    writer.add_rope_freq_base(arch.rope.base)
    if arch.window:
        writer.add_sliding_window(arch.window)
    if arch.experts:
        writer.add_expert_count(arch.experts)
        writer.add_expert_used_count(arch.top_k)
        writer.add_expert_feed_forward_length(arch.ffn)
    if arch.name == "gpt-oss":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(_YARN)
        writer.add_rope_scaling_orig_ctx_len(int(arch.context / _YARN))


def _vocabulary(writer: gguf.GGUFWriter, name: str) -> None:
    """A token a byte, three special ones, and words to fill up."""
    sentencepiece = name in ("llama", "gemma3")
    special = ["<unk>", "<s>", "</s>"]
    words = [f"w{i}" for i in range(_VOCAB - _BYTES - len(special))]
    of_bytes = [f"<0x{i:02X}>" for i in range(_BYTES)] if sentencepiece else _byte_letters()
    types = gguf.TokenType
    writer.add_vocab_size(_VOCAB)
    writer.add_token_list([*special, *of_bytes, *words])
    byte = types.BYTE if sentencepiece else types.NORMAL
    writer.add_token_types(
        [
            types.UNKNOWN,
            types.CONTROL,
            types.CONTROL,
            *[byte] * _BYTES,
            *[types.NORMAL] * len(words),
        ]
    )
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    if sentencepiece:
        writer.add_tokenizer_model("llama")
        writer.add_token_scores([0.0] * _VOCAB)
    else:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-4o" if name == "gpt-oss" else "qwen2")
        writer.add_token_merges([f"w {i}" for i in range(10)])


def _byte_letters() -> list[str]:
    """Return the letters that stand for the bytes in byte-level BPE, from the library that sets them."""
    from tokenizers.pre_tokenizers import ByteLevel

    return sorted(ByteLevel.alphabet())


def _random(tensor: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    values = rng.standard_normal(shape).astype(np.float32)
    if "norm" in tensor:
        return 1 + 0.1 * values
    if tensor in ("output.weight", "token_embd.weight"):
        return values * np.float32(4 / shape[-1] ** 0.5)  # clear favourites, as a trained head has
    if len(shape) == 1 or tensor.endswith(".bias"):
        return 0.1 * values
    return values / np.float32(shape[-1] ** 0.5)


def _add(writer: gguf.GGUFWriter, tensor: str, values: np.ndarray, quant: str) -> None:
    if values.ndim == 1 or tensor.endswith((".bias", "gate_inp.weight")):
        writer.add_tensor(tensor, values.astype(np.float32))
        return
    blocks = np.asarray(codecs.encode(quant, values))
    writer.add_tensor(tensor, blocks, raw_dtype=gguf.GGMLQuantizationType[quant])
