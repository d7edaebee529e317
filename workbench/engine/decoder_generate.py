"""Generation: the prompt in chunks of a few sizes, then token by token, handed out as they come."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import tee

import jax.numpy as jnp
import numpy as np

from workbench.engine.decoder import Cache, empty_cache, step
from workbench.engine.loading import Decoder
from workbench.engine.sampling import GREEDY, Sampling, choose
from workbench.engine.tokenizer import check_ids
from workbench.errors import SpecError

#: Tokens of a prefill step: a few sizes, so that any prompt meets a compiled one.
BUCKETS = (16, 32, 64, 128, 256)
_LEAST_CAPACITY = 512


@dataclass(frozen=True)
class Piece:
    """A generated token and the text it completes."""

    token: int
    text: str


def generate(
    decoder: Decoder,
    prompt: str | Sequence[int],
    max_tokens: int = 128,
    sampling: Sampling = GREEDY,
    *,
    ignore_end: bool = False,
) -> Iterator[Piece]:
    """Generate from a prompt, one Piece a token, until the model ends the text.

    Args:
        decoder: from `load`.
        prompt: text, or token ids.
        max_tokens: tokens at most.
        sampling: how they are drawn.
        ignore_end: go on behind tokens that end the text.

    Raises:
        SpecError: an empty prompt, ids outside the vocabulary, or more tokens than the context has.
    """
    ids = prompt_ids(decoder, prompt, max_tokens)
    tokens = _tokens(decoder, ids, max_tokens, sampling, ignore_end)
    return _pieces(decoder, ids, tokens)


def prompt_ids(decoder: Decoder, prompt: str | Sequence[int], max_tokens: int) -> list[int]:
    """Return the prompt's token ids, or refuse it."""
    if not isinstance(max_tokens, int) or max_tokens < 1:
        raise SpecError(f"max_tokens {max_tokens}: at least 1")
    if len(prompt) == 0:
        raise SpecError("the prompt is empty: give at least one token")
    ids = decoder.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
    check_ids(ids, decoder.arch.vocab)
    if len(ids) + max_tokens > decoder.arch.context:
        raise SpecError(
            f"{len(ids)} tokens of prompt and {max_tokens} to generate exceed "
            f"the context of {decoder.arch.context}"
        )
    return ids


def _pieces(decoder: Decoder, prompt: list[int], tokens: Iterator[int]) -> Iterator[Piece]:
    own, same = tee(tokens)
    for token, text in zip(own, decoder.tokenizer.stream(same, prompt), strict=True):
        yield Piece(token, text)


def _tokens(decoder: Decoder, ids, max_tokens: int, sampling: Sampling, ignore_end: bool):
    rng = np.random.default_rng(sampling.seed)
    cache = empty_cache(decoder.arch, 1, capacity_for(len(ids) + max_tokens))
    logits, cache = prefill(decoder, cache, ids)
    for position in range(len(ids), len(ids) + max_tokens):
        token = choose(np.asarray(logits)[0], sampling, rng)
        if token in decoder.tokenizer.ends and not ignore_end:
            return
        yield token
        logits, cache = decode(decoder, cache, [token], position)


def capacity_for(tokens: int) -> int:
    """Return the tokens of cache to reserve: few sizes, so that few are compiled."""
    return max(_LEAST_CAPACITY, 1 << (tokens - 1).bit_length())


def prefill(decoder: Decoder, cache: Cache, ids: Sequence[int]):
    """Run one sequence's prompt into an empty cache: logits (1, vocab) of its last token, Cache.

    A chunk is filled up to its bucket; what is written behind the prompt is never seen, and the
    tokens to come overwrite it.
    """
    logits = None
    for start in range(0, len(ids), BUCKETS[-1]):
        chunk = ids[start : start + BUCKETS[-1]]
        size = next(size for size in BUCKETS if size >= len(chunk))
        tokens = np.zeros((1, size), np.int32)
        tokens[0, : len(chunk)] = chunk
        last = jnp.int32(len(chunk) - 1)
        logits, cache = step(
            decoder.weights, cache, jnp.asarray(tokens), jnp.full(1, start, jnp.int32), last,
            decoder.arch,
        )  # fmt: skip
    return logits, cache


def decode(decoder: Decoder, cache: Cache, tokens: Sequence[int], position: int):
    """Run the next token of each sequence, all at `position`: logits (batch, vocab), Cache."""
    batch = np.asarray(tokens, np.int32)[:, None]
    start = jnp.full(len(batch), position, jnp.int32)
    return step(decoder.weights, cache, jnp.asarray(batch), start, jnp.int32(0), decoder.arch)
