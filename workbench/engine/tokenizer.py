"""Text to token ids and back, from the vocabulary that the GGUF file carries.

The `tokenizers` library does the work; here its parts are put together as the file says:
byte-level BPE ("gpt2") with the splitting rule named by tokenizer.ggml.pre, or SentencePiece BPE
("llama"), whose merges are not in the file but follow from the scores of the tokens.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from workbench import data
from workbench.engine.tokenizer_file import read_arrays
from workbench.errors import FileError, SpecError
from workbench.specs.gguf_header import GgufHeader

#: tokenizer.ggml.token_type
_NORMAL, _CONTROL, _USER = 1, 3, 4
#: Tokens that end a turn whatever the file's eos is (llama.cpp src/llama-vocab.cpp, special_eog_ids).
_ENDS = ("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>",
         "<|return|>", "<|call|>", "<EOT>", "_<EOT>", "<|end_of_text|>")  # fmt: skip
_SPACE = "\u2581"


@dataclass(frozen=True)
class Tokenizer:
    """A vocabulary at work.

    Args:
        inner: tokenizers.Tokenizer.
        bos: token put in front of a text, or None.
        ends: tokens that end a text.
    """

    inner: Any
    bos: int | None
    ends: frozenset[int]

    @property
    def size(self) -> int:
        return self.inner.get_vocab_size()

    def encode(self, text: str, *, bos: bool = True) -> list[int]:
        """Return the ids of `text`, special tokens written out in it included.

        Args:
            text: any text.
            bos: put the file's begin token in front, if it has one.

        Raises:
            SpecError: half a surrogate pair, which is no character.
        """
        try:
            text.encode()
        except UnicodeEncodeError as err:
            raise SpecError(
                f"the text has no character at {err.start} but {text[err.start]!r}, half of one"
            ) from None
        ids = self.inner.encode(text, add_special_tokens=False).ids
        return [self.bos, *ids] if bos and self.bos is not None and ids[:1] != [self.bos] else ids

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of `ids`, without special tokens."""
        return self.inner.decode(list(ids))

    def stream(self, ids: Iterable[int], before: Sequence[int] = ()) -> Iterator[str]:
        """Yield a text a token: empty while a character is still incomplete.

        Args:
            ids: tokens as they come.
            before: tokens that stand before them, whose text is not repeated.
        """
        # A few tokens are decoded again each time: what a token says depends on its neighbours.
        window = list(before)[-4:]
        said = len(self.decode(window))
        for token in ids:
            window.append(token)
            text = self.decode(window)
            if text.endswith("\ufffd"):
                yield ""
                continue
            yield text[said:]
            window = window[-4:]
            said = len(self.decode(window))


def read_tokenizer(header: GgufHeader) -> Tokenizer:
    """Return the Tokenizer in a GGUF file.

    Raises:
        FileError: no vocabulary, or one of a kind that is not run.
    """
    keys = ("tokens", "scores", "token_type", "merges")
    arrays = read_arrays(header, [f"tokenizer.ggml.{key}" for key in keys])
    tokens, scores, types, merges = (arrays.get(f"tokenizer.ggml.{key}") for key in keys)
    file, model = header.path.name, header.metadata.get("tokenizer.ggml.model")
    if not tokens:
        raise FileError(f"{file}: has no tokenizer.ggml.tokens, so it reads no text")
    types = types or [_NORMAL] * len(tokens)
    if len(types) != len(tokens) or (model == "llama" and len(scores or ()) != len(tokens)):
        raise FileError(f"{file}: {len(tokens)} tokens need as many types and scores")
    if model == "llama":
        inner = _sentencepiece(header, tokens, scores)
    elif model == "gpt2":
        inner = _byte_level(header, tokens, merges or [])
    else:
        raise FileError(f"{file}: tokenizer.ggml.model is {str(model)[:40]!r}; gpt2, llama are run")
    _add_special(inner, tokens, types)
    return Tokenizer(inner, _bos(header, len(tokens)), _ends(header, tokens))


def _sentencepiece(header: GgufHeader, tokens: list[str], scores: list[float]):
    import tokenizers as lib

    vocab = _vocab(tokens)
    inner = lib.Tokenizer(lib.models.BPE(vocab, _merges(vocab, scores), byte_fallback=True,
                                         unk_token=_unknown(header, tokens), fuse_unk=True))  # fmt: skip
    prefix = header.metadata.get("tokenizer.ggml.add_space_prefix", True)
    spaces = lib.normalizers.Replace(" ", _SPACE)
    inner.normalizer = (
        lib.normalizers.Sequence([lib.normalizers.Prepend(_SPACE), spaces]) if prefix else spaces
    )
    decoders = [lib.decoders.Replace(_SPACE, " "), lib.decoders.ByteFallback(), lib.decoders.Fuse()]
    inner.decoder = lib.decoders.Sequence(
        [*decoders, lib.decoders.Strip(" ", 1, 0)] if prefix else decoders
    )
    return inner


def _merges(vocab: dict[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """Return the pairs that make up a token, best token first: what SentencePiece merges."""
    found = []
    for token, index in vocab.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in vocab and right in vocab:
                found.append((-scores[index], index, left, right))
    found.sort()
    return [(left, right) for _, _, left, right in found]


def _byte_level(header: GgufHeader, tokens: list[str], merges: list[str]):
    import tokenizers as lib

    rules, name = data.document("pretokenizers.json"), header.metadata.get("tokenizer.ggml.pre")
    rule = rules.get(name if name not in (None, "default") else "gpt-2")
    if not isinstance(rule, dict):
        known = ", ".join(key for key in rules if key != "source")
        raise FileError(
            f"{header.path.name}: tokenizer.ggml.pre is {str(name)[:40]!r}; these are run: {known}"
        )
    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    vocab = _vocab(tokens)
    if bad := next((p for p in pairs if len(p) != 2 or "".join(p) not in vocab), None):
        raise FileError(
            f"{header.path.name}: merge {str(bad)[:60]} makes no token of the vocabulary"
        )
    inner = lib.Tokenizer(
        lib.models.BPE(vocab, pairs, ignore_merges=rule.get("whole_words_first", False))
    )
    split = lib.pre_tokenizers.Split(lib.Regex(rule["regex"]), "isolated")
    bytes_ = lib.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.pre_tokenizer = lib.pre_tokenizers.Sequence([split, bytes_])
    inner.decoder = lib.decoders.ByteLevel()
    return inner


def _vocab(tokens: list[str]) -> dict[str, int]:
    """Return token -> id; of two alike the first, as llama.cpp finds it."""
    return {token: i for i, token in reversed(list(enumerate(tokens)))}


def _add_special(inner, tokens: list[str], types: list[int]) -> None:
    """Control tokens and the user's own are found in the text before anything is split."""
    from tokenizers import AddedToken as added

    of_type = {kind: [t for t, k in zip(tokens, types, strict=True) if k == kind and t]
               for kind in (_CONTROL, _USER)}  # fmt: skip
    inner.add_special_tokens([added(t, normalized=False) for t in of_type[_CONTROL]])
    inner.add_tokens([added(t, normalized=False) for t in of_type[_USER]])


def _unknown(header: GgufHeader, tokens: list[str]) -> str | None:
    index = _special(header, "unknown", len(tokens))
    return None if index is None else tokens[index]


def _special(header: GgufHeader, name: str, size: int) -> int | None:
    index = header.metadata.get(f"tokenizer.ggml.{name}_token_id")
    if index is None:
        return None
    if not isinstance(index, int) or not 0 <= index < size:
        raise FileError(
            f"{header.path.name}: tokenizer.ggml.{name}_token_id is {str(index)[:20]}, "
            f"outside the {size} tokens"
        )
    return index


def _bos(header: GgufHeader, size: int) -> int | None:
    rule = data.document("pretokenizers.json").get(header.metadata.get("tokenizer.ggml.pre"), {})
    by_default = header.metadata["tokenizer.ggml.model"] == "llama" or "add_bos" in rule
    wanted = header.metadata.get("tokenizer.ggml.add_bos_token", by_default)
    return _special(header, "bos", size) if wanted else None


def _ends(header: GgufHeader, tokens: list[str]) -> frozenset[int]:
    named = {_special(header, name, len(tokens)) for name in ("eos", "eot", "eom")}
    return frozenset(named - {None} | {i for i, token in enumerate(tokens) if token in _ENDS})


def check_ids(ids: Iterable[int], vocab: int) -> None:
    """Refuse token ids that the model has no row for."""
    for token in ids:
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < vocab:
            raise SpecError(f"token {str(token)[:40]}: ids are whole numbers from 0 to {vocab - 1}")
