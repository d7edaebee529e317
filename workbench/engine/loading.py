"""From a GGUF file to a decoder in memory: mapped, packed tensor by tensor, checked before use.

decoder = load("model.gguf")
for piece in generate(decoder, "The sky is"): print(piece.text, end="")
"""

import math
import mmap
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from workbench.engine.architectures import Architecture, architecture, rope_divisors
from workbench.engine.decoder_weights import Stack, Weights
from workbench.engine.loading_pack import check_finite, floats
from workbench.engine.matmul_pack import FLOATS, LAYOUTS, pack, pack_parts
from workbench.engine.moe_experts import Experts
from workbench.engine.tokenizer import Tokenizer, read_tokenizer
from workbench.errors import FileError, SpecError
from workbench.specs.gguf_header import GgufHeader, read_header, read_parts

Report = Callable[[str, int, int], Any]


@dataclass(frozen=True)
class Decoder:
    """A model ready to run."""

    path: Path
    arch: Architecture
    weights: Weights
    tokenizer: Tokenizer


def load(path: str | Path, report: Report = lambda what, done, of: None) -> Decoder:
    """Load the decoder in the GGUF file at `path`.

    Args:
        path: the file; of a split one, any part.
        report: is told what is loaded, how many bytes of it are, and of how many.

    Raises:
        FileError: no GGUF file, an architecture or tensor type that is not run, or tensors that
            contradict the metadata.
    """
    header = read_header(path)
    arch = architecture(header)
    shapes = expected_shapes(arch, set(header.names))
    _check(header, shapes)
    tokenizer = read_tokenizer(header)
    if tokenizer.size > arch.vocab:
        raise FileError(
            f"{header.path.name}: {tokenizer.size} tokens for {arch.vocab} rows of token_embd"
        )
    weights = _Loader(read_parts(path), arch, report).weights()
    return Decoder(header.path, arch, weights, tokenizer)


def expected_shapes(arch: Architecture, names: set[str]) -> dict[str, tuple[int, ...]]:
    """Return the tensors of the decoder and their shapes, slowest dimension first.

    Those that a family may lack (biases, norms of heads) are expected if layer 0 has them.
    """
    shapes = {"token_embd.weight": (arch.vocab, arch.hidden), "output_norm.weight": (arch.hidden,)}
    if "output.weight" in names:
        shapes["output.weight"] = (arch.vocab, arch.hidden)
    if "rope_freqs.weight" in names:
        shapes["rope_freqs.weight"] = (arch.rope.dims // 2,)
    always, optional = _layer_shapes(arch)
    chosen = always | {name: s for name, s in optional.items() if f"blk.0.{name}" in names}
    layers = range(arch.layers)
    return shapes | {f"blk.{i}.{name}": shape for i in layers for name, shape in chosen.items()}


def _layer_shapes(arch: Architecture) -> tuple[dict[str, tuple], dict[str, tuple]]:
    """Return the tensors that every layer has, and those that it may have."""
    hidden, q, kv = arch.hidden, arch.heads * arch.head_dim, arch.kv_heads * arch.head_dim
    always = {
        "attn_q.weight": (q, hidden),
        "attn_k.weight": (kv, hidden),
        "attn_v.weight": (kv, hidden),
        "attn_output.weight": (hidden, q),
        "attn_norm.weight": (hidden,),
        f"{arch.family.ffn_norm}.weight": (hidden,),
    }
    of_experts, ends = ((arch.experts,), "_exps") if arch.experts else ((), "")
    for name, shape in _ffn_shapes(arch).items():
        always[f"{name}{ends}.weight"] = (*of_experts, *shape)
    optional = {
        "attn_q_norm.weight": (arch.head_dim,),
        "attn_k_norm.weight": (arch.head_dim,),
        "post_attention_norm.weight": (hidden,),
        "post_ffw_norm.weight": (hidden,),
        "attn_sinks.weight": (arch.heads,),
        "ffn_gate_inp.bias": (arch.experts,),
    }
    if arch.experts:
        always["ffn_gate_inp.weight"] = (arch.experts, hidden)
    biased = {**always}
    for name, shape in biased.items():
        if len(shape) > 1 and name != "ffn_gate_inp.weight":
            optional[name.replace(".weight", ".bias")] = shape[:-1]
    return always, optional


def _ffn_shapes(arch: Architecture) -> dict[str, tuple[int, int]]:
    up, down = (arch.ffn, arch.hidden), (arch.hidden, arch.ffn)
    return {"ffn_gate": up, "ffn_up": up, "ffn_down": down}


def _check(header: GgufHeader, shapes: dict[str, tuple[int, ...]]) -> None:
    """Refuse a file that lacks a tensor, has one too many, or one of another shape or type."""
    file, arch = header.path.name, header.metadata["general.architecture"]
    found = dict(zip(header.names, header.shapes, strict=True))
    if missing := sorted(shapes.keys() - found.keys()):
        raise FileError(f"{file}: {arch} needs tensor {missing[0]!r}, which is missing")
    if extra := sorted(found.keys() - shapes.keys()):
        raise FileError(f"{file}: tensor {extra[0]!r} is no part of the {arch} that is run here")
    for name, kind in zip(header.names, header.types, strict=True):
        if found[name][::-1] != shapes[name]:
            raise FileError(
                f"{file}: tensor {name!r} is {found[name][::-1]}; the metadata make it {shapes[name]}"
            )
        if kind not in FLOATS and kind not in LAYOUTS:
            known = ", ".join([*FLOATS, *LAYOUTS])
            raise FileError(f"{file}: tensor {name!r} is of type {kind}; these are run: {known}")


class _Tensor(NamedTuple):
    """Where a tensor lies."""

    shape: tuple[int, ...]  # fastest dimension first
    kind: str
    file: mmap.mmap
    start: int
    nbytes: int

    @property
    def raw(self) -> np.ndarray:
        """Its bytes, mapped."""
        return np.frombuffer(self.file, np.uint8, self.nbytes, self.start)

    def let_go(self) -> None:
        """Give the pages back: they count as memory of this process as long as they are mapped."""
        ahead = self.start % mmap.PAGESIZE
        self.file.madvise(mmap.MADV_DONTNEED, self.start - ahead, self.nbytes + ahead)


def _tensors(header: GgufHeader) -> dict[str, _Tensor]:
    """Return the tensors in one part of a file, mapped into memory."""
    with header.path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    starts = header.data_offset + header.offsets
    columns = zip(header.names, header.shapes, header.types, starts, header.nbytes, strict=True)
    return {
        name: _Tensor(shape, kind, mapped, int(start), int(nbytes))
        for name, shape, kind, start, nbytes in columns
    }


class _Loader:
    """The mapped file, and what is still to be packed."""

    def __init__(self, parts: list[GgufHeader], arch: Architecture, report: Report):
        self.file, self.arch, self.report, self.done = parts[0].path.name, arch, report, 0
        self.tensors: dict[str, _Tensor] = {}
        self.read: _Tensor | None = None
        for part in parts:
            self.tensors |= _tensors(part)
        self.total = sum(tensor.nbytes for tensor in self.tensors.values())
        layer0 = (re.fullmatch(r"blk\.0\.(.+)", name) for name in self.tensors)
        self.roles = [match[1] for match in layer0 if match]

    def weights(self) -> Weights:
        big = [r for r in self.roles if len(self.tensors[f"blk.0.{r}"].shape) > 1]
        matrices = [r for r in big if "_exps" not in r and r != "ffn_gate_inp.weight"]
        vectors = [r for r in self.roles if r not in matrices and not r.endswith("_exps.weight")]
        tied = "output.weight" not in self.tensors
        return Weights(
            embedding=self.packed("token_embd.weight"),
            head=None if tied else self.packed("output.weight"),
            output_norm=jnp.asarray(self.floats("output_norm.weight")),
            matrices={_short(role): self.stack(role) for role in matrices},
            vectors={_short(role): self.vectors(role) for role in vectors} | {"rope": self.rope()},
            experts=self.experts() if self.arch.experts else None,
        )

    def raw(self, name: str) -> np.ndarray:
        """Return a tensor's bytes; those asked for before are packed by then."""
        if self.read:
            self.read.let_go()
        self.read = self.tensors[name]
        self.done += self.read.nbytes
        self.report("loading", self.done, self.total)
        self.named(name, check_finite, self.read.kind, self.read.raw)
        return self.read.raw

    def packed(self, name: str):
        shape, kind = self.tensors[name][:2]
        return self.named(name, pack, kind, self.raw(name), shape[::-1])

    def named(self, name: str, packing, *args):
        """Return what `packing` makes of a tensor, or say which one it refuses."""
        try:
            return packing(*args)
        except SpecError as err:
            raise FileError(f"{self.file}: tensor {name!r}: {err}") from None

    def of_layers(self, role: str, group: list[int]):
        """Return a matrix of some layers behind one another: (layers, out, in), or of all experts."""
        shape, kind = self.tensors[f"blk.{group[0]}.{role}"][:2]
        *experts, out, in_ = shape[::-1]
        count = len(group) * math.prod(experts)
        raw = (self.raw(f"blk.{i}.{role}") for i in group)
        return self.named(f"blk.*.{role}", pack_parts, kind, raw, (count, out, in_))

    def floats(self, name: str) -> np.ndarray:
        """Return a small tensor as float32."""
        shape, kind = self.tensors[name][:2]
        values = floats(kind, self.raw(name), shape[::-1])
        if not np.isfinite(values).all() or (name == "rope_freqs.weight" and values.min() <= 0):
            right = "above 0" if name == "rope_freqs.weight" else "finite"
            raise FileError(f"{self.file}: tensor {name!r}: a number is not {right}")
        return values

    def vectors(self, role: str):
        return jnp.asarray(np.stack([self.floats(f"blk.{i}.{role}") for i in self.layers]))

    def rope(self):
        factors = self.floats("rope_freqs.weight") if "rope_freqs.weight" in self.tensors else None
        return jnp.asarray(rope_divisors(self.arch, factors))

    @property
    def layers(self) -> range:
        return range(self.arch.layers)

    def stack(self, role: str) -> Stack:
        kinds = [self.tensors[f"blk.{i}.{role}"].kind for i in self.layers]
        return _stack(kinds, lambda group: self.of_layers(role, group))

    def experts(self) -> Stack:
        roles = [f"{name}_exps.weight" for name in ("ffn_gate", "ffn_up", "ffn_down")]
        kinds = [tuple(self.tensors[f"blk.{i}.{r}"].kind for r in roles) for i in self.layers]
        return _stack(kinds, lambda group: self.experts_of(roles, group))

    def experts_of(self, roles: list[str], group: list[int]) -> Experts:
        """Return the experts of some layers behind one another: (layers · experts, …)."""
        matrices = [self.of_layers(role, group) for role in roles]
        biases = [self.expert_bias(role.replace(".weight", ".bias"), group) for role in roles]
        return Experts(*matrices, *biases, activation=self.arch.family.activation)

    def expert_bias(self, role: str, group: list[int]):
        if role not in self.roles:
            return None
        return jnp.asarray(np.concatenate([self.floats(f"blk.{i}.{role}") for i in group]))


def _short(role: str) -> str:
    return role.removesuffix(".weight")


def _stack(kinds: list, together) -> Stack:
    """Return the Stack of a matrix whose type in each layer is `kinds`."""
    order = list(dict.fromkeys(kinds))
    groups = [[i for i, kind in enumerate(kinds) if kind == one] for one in order]
    place = {i: at for group in groups for at, i in enumerate(group)}
    return Stack(
        tuple(together(group) for group in groups),
        jnp.asarray([order.index(kind) for kind in kinds], jnp.int32),
        jnp.asarray([place[i] for i in range(len(kinds))], jnp.int32),
    )
