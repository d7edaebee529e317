"""A model as its GGUF file describes it: exact bytes by kind of tensor, and its geometry.

Names of tensors and keys: ggml docs/gguf.md and llama.cpp gguf-py/gguf/constants.py.
"""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from workbench import data
from workbench.errors import FileError, WorkbenchError
from workbench.specs import formats
from workbench.specs.gguf_cursor import Skipped
from workbench.specs.gguf_header import GgufHeader, read_header
from workbench.specs.model import INDEX, TENSOR_CLASSES, Model

__all__ = ["GgufHeader", "Skipped", "load_model", "read_header"]

_LAYER = re.compile(r"blk\.(\d+)\.(.+)")
#: First match wins; what no rule names is streamed like an FFN.
_CLASSES = [
    (re.compile(pattern), name)
    for pattern, name in (
        (r"token_embd\.weight", "embedding"),
        (r"output\.weight", "output"),
        (r"per_layer_token_embd|position_embd|token_types|ffn_gate_tid2eid", "lookup"),
        (r".*(_norm|_norm_\w+|\.bias|sinks.*|_scale|_scale\.weight|rope_f\w+)(\.weight)?", "norm"),
        (r"ffn_gate_inp", "router"),
        (r"ffn_down(_\w*exps|\.\d+)\.", "expert_down"),
        (r"ffn_(gate|up|gate_up)(_\w*exps|\.\d+)\.", "expert_up"),
        (r"ffn_down_shexp", "shared_down"),
        (r"ffn_(gate|up|gate_up)_shexp|ffn_latent", "shared_up"),
        (r"ffn_down", "ffn_down"),
        (r"attn_v\.", "attention_v"),
        (r"attn_out", "attention_out"),
        (r"ssm_|shortconv|time_mix|channel_mix", "recurrent"),
        (r"attn_|indexer", "attention_qk"),
    )
]
_RECURRENT = r"ssm_|shortconv|time_mix"


class _Layer(NamedTuple):
    """Cache elements one token adds in a layer, and the FLOPs of one query on one of them."""

    kv: int
    flops: float


def load_model(path: str | Path) -> Model:
    """Return the Model in the GGUF file at `path`, with `stored_bytes` (tensor_class,) exact.

    Raises:
        FileError: not readable as GGUF, no language model, or the KV cache cannot be known from it.
    """
    header = read_header(path)
    fields = Fields(header)
    if fields.arch in data.document("gguf.json")["not_decoders"]:
        raise FileError(
            f"{header.path.name}: {fields.arch} is no text decoder; give the language model"
        )
    layers = fields.whole("block_count", high=10_000)
    mtp = len(_layers_with(r"nextn\.", header.names))
    routed = _layers_with(r"ffn_down(_exps|\.\d)", header.names)
    params, stored = _totals(header, layers - mtp)
    kinds = dict(zip(header.names, header.shapes, strict=True))
    heads, kv_heads = fields.per_layer("attention.head_count", layers), kv_heads_of(fields, layers)
    return Model(
        name=str(header.metadata.get("general.name") or header.path.stem)[:120],
        arch=fields.arch,
        params=params,
        layers=float(layers - mtp),
        hidden=float(fields.whole("embedding_length")),
        heads=float(max(heads)),
        kv_heads=float(max(kv_heads)),
        head_dim=float(head_dim_of(fields, max(heads))),
        ffn=float(max(fields.per_layer("feed_forward_length", layers, 0))),
        vocab=float(_vocab(fields, kinds)),
        experts=float(fields.whole("expert_count", 0, low=0)),
        top_k=float(fields.whole("expert_used_count", 0, low=0)),
        moe_layers=float(sum(i < layers - mtp for i in routed)),
        **_cache(fields, kinds, heads, kv_heads, layers - mtp),
        max_context=float(fields.whole("context_length", 0, low=0, high=10**10)),
        stored_bytes=stored,
        tied="output.weight" not in kinds,
        quant=_quant(header),
        source=header.path.name,
    )


class Fields:
    """The metadata of one architecture; every value is checked when read."""

    def __init__(self, header: GgufHeader):
        self.file, self.metadata = header.path.name, header.metadata
        self.arch = header.metadata.get("general.architecture")
        if not isinstance(self.arch, str) or not re.fullmatch(r"[\w.-]{1,60}", self.arch):
            raise FileError(
                f"{self.file}: general.architecture is {str(self.arch)[:60]!r}, not a name"
            )

    def get(self, key: str, default=None):
        return self.metadata.get(f"{self.arch}.{key}", default)

    def whole(
        self, key: str, default: int | None = None, *, low: int = 1, high: int = 10**7
    ) -> int:
        value = self.get(key, default)
        values = value if isinstance(value, tuple) and value else [value]
        return max(self._checked(key, v, low, high) for v in values)

    def per_layer(self, key: str, layers: int, default: int | None = None) -> list[int]:
        value = self.get(key, default)
        if not isinstance(value, tuple):
            return [self._checked(key, value, 0, 10**7)] * layers
        if len(value) < layers:
            raise FileError(
                f"{self.file}: {self.arch}.{key} has {len(value)} entries for {layers} layers"
            )
        return [self._checked(key, v, 0, 10**7) for v in value[:layers]]

    def _checked(self, key: str, value, low: int, high: int) -> int:
        if value is None:
            known = sorted(k for k in self.metadata if k.startswith(f"{self.arch}."))
            understood = ", ".join(known)[:300] or "nothing"
            raise FileError(f"{self.file}: {self.arch}.{key} is missing; understood: {understood}")
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise FileError(
                f"{self.file}: {self.arch}.{key} is {str(value)[:40]}; "
                f"a whole number from {low} to {high} is right"
            )
        return value


def _totals(header: GgufHeader, layers: int) -> tuple[np.ndarray, np.ndarray]:
    """Return parameters and bytes (tensor_class,)."""
    params, stored = np.zeros(len(TENSOR_CLASSES)), np.zeros(len(TENSOR_CLASSES))
    recurrent = _recurrent_layers(header.names)
    for name, shape, size in zip(header.names, header.shapes, header.nbytes, strict=True):
        index = INDEX[_tensor_class(name, shape, layers, recurrent)]
        params[index] += np.prod(shape, dtype=np.float64)
        stored[index] += size
    return params, stored


def _tensor_class(name: str, shape: tuple[int, ...], layers: int, recurrent: set[int]) -> str:
    match = _LAYER.fullmatch(name)
    layer, rest = (int(match[1]), match[2]) if match else (-1, name)
    if layer >= layers or rest.startswith("nextn."):
        return "mtp"
    found = next((kind for pattern, kind in _CLASSES if pattern.match(rest)), "ffn_up")
    if len(shape) == 1 and found not in ("router", "recurrent"):
        return "norm"
    return "recurrent" if layer in recurrent and found == "attention_qk" else found


def _recurrent_layers(names: Iterable[str]) -> set[int]:
    """Return the layers with a recurrent mixer and no keys: their attn_qkv feeds the mixer."""
    return _layers_with(_RECURRENT, names) - _layers_with(r"attn_k\.weight", names)


def _layers_with(pattern: str | re.Pattern, names: Iterable[str]) -> set[int]:
    """Return the layers that have a tensor whose name, without the layer, starts as `pattern`."""
    split = (match for name in names if (match := _LAYER.fullmatch(name)))
    return {int(match[1]) for match in split if re.match(pattern, match[2])}


def kv_heads_of(fields: Fields, layers: int) -> list[int]:
    default = fields.get("attention.head_count")
    return fields.per_layer("attention.head_count_kv", layers, default)


def head_dim_of(fields: Fields, heads: int) -> int:
    if not heads:
        return 0
    hidden = fields.whole("embedding_length")
    return fields.whole("attention.key_length", hidden // heads, low=0)


def _vocab(fields: Fields, shapes: dict) -> int:
    if "token_embd.weight" not in shapes:
        raise FileError(
            f"{fields.file}: tensor token_embd.weight is missing; give a language model"
        )
    return shapes["token_embd.weight"][-1]


def _cache(
    fields: Fields, shapes: dict, heads: list[int], kv_heads: list[int], layers: int
) -> dict[str, float]:
    """Return the Model's fields about cache, windows, recurrent state and attention FLOPs."""
    names = ("kv_elements", "window_elements", "attention_flops", "window_flops")
    total = dict.fromkeys(names, 0.0)
    recurrent = _recurrent_layers(shapes)
    sharing = layers - fields.whole("attention.shared_kv_layers", 0, low=0, high=layers)
    window, slides = windows_of(fields, layers)
    for i in range(layers):
        if i in recurrent:
            continue
        layer = _layer(fields, shapes, i, heads[i], kv_heads[i])
        total["window_flops" if slides[i] else "attention_flops"] += layer.flops
        total["window_elements" if slides[i] else "kv_elements"] += layer.kv * (i < sharing)
    if not (total["kv_elements"] or total["window_elements"] or recurrent):
        raise FileError(
            f"{fields.file}: no layer of {fields.arch} has keys or recurrent state, so its cache "
            f"is unknown; understood: {layers} layers, {max(heads)} heads, {max(kv_heads)} KV heads"
        )
    mixers = sum(i < layers for i in _layers_with(_RECURRENT, shapes))
    state = float(mixers and mixers * _state(fields))
    return {**total, "window": float(window), "recurrent_elements": state}


def _layer(fields: Fields, shapes: dict, i: int, heads: int, kv_heads: int) -> _Layer:
    """Return the cache and FLOPs of layer `i`: QK and PV take 2 FLOPs an element of every head."""
    latent = shapes.get(f"blk.{i}.attn_kv_a_mqa.weight")
    if latent:
        rank = fields.whole("attention.kv_lora_rank")
        return _Layer(latent[1], 2.0 * heads * (latent[1] + rank))
    names = [f"blk.{i}.attn_{part}.weight" for part in ("k", "v", "qkv", "q")]
    if not any(name in shapes for name in names):
        return _Layer(0, 0.0)
    key, value = _key_value_rows(fields, shapes, names, heads, kv_heads)
    return _Layer(key + value, 2.0 * heads * (key + value) / max(kv_heads, 1))


def _key_value_rows(
    fields: Fields, shapes: dict, names: list[str], heads: int, kv_heads: int
) -> tuple[int, int]:
    """Return the lengths of K and V of one token: rows of attn_k, attn_v, or metadata if fused."""
    key, value = shapes.get(names[0]), shapes.get(names[1])
    if key and len(key) == 2:
        return key[1], value[1] if value and len(value) == 2 else key[1]
    if not kv_heads:
        raise FileError(
            f"{fields.file}: {fields.arch}.attention.head_count_kv is 0 for a layer with "
            f"{names[2]!r}; "
            "the KV cache's size cannot be known"
        )
    head_dim = head_dim_of(fields, heads)
    return kv_heads * head_dim, kv_heads * fields.whole("attention.value_length", head_dim)


def windows_of(fields: Fields, layers: int) -> tuple[int, list[bool]]:
    """Return the window in tokens and which layers have it; 0 and none if unsaid."""
    fixed = data.document("gguf.json")["window"].get(fields.arch, 0)
    window = fields.whole("attention.sliding_window", fixed, low=0, high=10**10)
    pattern = fields.get("attention.sliding_window_pattern")
    if window and isinstance(pattern, tuple) and len(pattern) >= layers:
        return window, [bool(slides) for slides in pattern[:layers]]
    known = data.document("gguf.json")["window_pattern"]
    every = pattern if isinstance(pattern, int) and pattern > 0 else known.get(fields.arch)
    if not window or not every:
        return 0, [False] * layers
    return window, [(i + 1) % every != 0 for i in range(layers)]


def _state(fields: Fields) -> int:
    """Return the elements of one recurrent layer's state: convolution tail and state matrix.

    Source: llama.cpp src/llama-hparams.cpp, n_embd_r and n_embd_s.
    """
    short = fields.whole("shortconv.l_cache", 0, low=0)
    if short:
        return fields.whole("embedding_length") * (short - 1)
    if head := fields.whole("wkv.head_size", 0, low=0):
        return fields.whole("embedding_length") * (head + 2)
    names = ("ssm.inner_size", "ssm.state_size", "ssm.group_count")
    inner, state, groups = (fields.whole(name, 0, low=0) for name in names)
    conv = fields.whole("ssm.conv_kernel", 1)
    return (conv - 1) * (inner + 2 * groups * state) + state * inner


def _quant(header: GgufHeader) -> str:
    """Return the name of the file's mix, or of its largest tensor type if no file_type says."""
    number = header.metadata.get("general.file_type")
    named = data.document("gguf.json")["file_types"].get(str(number))
    if not named:
        by_type: Counter[str] = Counter()
        for kind, size in zip(header.types, header.nbytes, strict=True):
            by_type[kind] += int(size)
        named = max(by_type, key=by_type.__getitem__, default="F16")
    try:
        return formats.normalise(named)
    except WorkbenchError:
        return "F16"
