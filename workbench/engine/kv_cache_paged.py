"""The paged KV cache: a pool of pages, a block table per sequence, prefixes shared by reference count (M13, M35).

The pool is arrays and pure functions; who owns which page is plain Python, decided between steps.
A page is head-major inside: (kv_heads, page, head_dim), so that a gathered page needs no turning.
"""

from dataclasses import dataclass, field, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax import Array, lax

from workbench.engine import attention
from workbench.engine.attention import PLAIN, Blocks, Rules
from workbench.engine.kv_cache import cache_report, check_pair, check_room, check_sizes
from workbench.engine.kv_cache_formats import decode, empty, encode
from workbench.errors import SpecError


@partial(jax.tree_util.register_dataclass, data_fields=["k", "v"], meta_fields=["format"])
@dataclass(frozen=True)
class Pool:
    """One layer's pages.

    Args:
        k: parts, each (pages, kv_heads, page, …).
        v: parts, as `k`.
        format: one of kv_cache_formats.FORMATS.
    """

    k: tuple[Array, ...]
    v: tuple[Array, ...]
    format: str

    @property
    def kv_heads(self) -> int:
        return self.k[0].shape[1]

    @property
    def page(self) -> int:
        """Return tokens per page."""
        return self.k[0].shape[2]


def pool(
    pages: int, kv_heads: int, head_dim: int, *, page: int = 16, format: str = "float16"
) -> Pool:
    """Reserve `pages` empty pages of `page` tokens.

    Raises:
        SpecError: a size below 1, or a format that does not exist.
    """
    check_sizes(pages=pages, kv_heads=kv_heads, head_dim=head_dim, page=page)
    k, v = (empty((pages, kv_heads, page, head_dim), format) for _ in "kv")
    return Pool(k, v, format)


def append(pool: Pool, table: Array, length, k: Array, v: Array) -> Pool:
    """Return the pool with new tokens of one sequence written behind its `length` filled ones.

    Args:
        table: (blocks,) int32, the sequence's pages in order; its size, not its content, is compiled.
        length: filled tokens before the call.
        k: (tokens, kv_heads, head_dim), rotated to their positions.
        v: (tokens, kv_heads, head_dim).

    Raises:
        SpecError: shapes that do not fit, or more tokens than the table has room for.
    """
    check_pair(k, v, pool.kv_heads)
    check_room(length, k.shape[0], table.shape[0] * pool.page)
    return _append(pool, table, jnp.int32(length), k, v)


@jax.jit
def _append(pool: Pool, table, length, k, v) -> Pool:
    position = length + jnp.arange(k.shape[0], dtype=jnp.int32)
    pages, slots = table[position // pool.page], position % pool.page

    def write(parts, new):
        encoded = encode(new, pool.format)
        return tuple(p.at[pages, :, slots].set(x) for p, x in zip(parts, encoded, strict=True))

    return replace(pool, k=write(pool.k, k), v=write(pool.v, v))


def attend(pool: Pool, table, length, q, *, sinks=None, rules: Rules = PLAIN) -> Array:
    """Attend from the newest tokens of one sequence; `jax.vmap` over table, length and q for a batch.

    Args:
        table: (blocks,) int32, the sequence's pages in order.
        length: filled tokens, those of `q` included.
        q: (tokens, heads, head_dim), the last `tokens` positions.
        sinks: (heads,) learned logits or None.
        rules: mask, cap, block (rounded up to whole pages, each a piece of the
            compiled code: 32 to 128 tokens) and accumulator.

    Returns:
        (tokens, heads, head_dim) in the dtype of `q`.
    """
    attention.check_heads(q, pool.kv_heads, q.shape[-1], sinks)
    attention.check_length(length - q.shape[0], length, table.shape[0] * pool.page)
    return _attend(pool, table, jnp.int32(length), q, sinks, rules)


@partial(jax.jit, static_argnames="rules")
def _attend(pool: Pool, table, length, q, sinks, rules: Rules) -> Array:
    count = min(-(-rules.block // pool.page), table.shape[0])  # pages gathered at a time
    block = count * pool.page

    def fetch(first):
        pages = lax.dynamic_slice_in_dim(table, first // pool.page, count)
        return tuple(_gather(pool, parts, pages) for parts in (pool.k, pool.v))

    capacity = table.shape[0] * pool.page
    blocks = Blocks(fetch, block, capacity, pool.kv_heads)
    return attention.attend(q, blocks, length - q.shape[0], length, sinks, rules)


def _gather(pool: Pool, parts, pages: Array) -> Array:
    """Return the pages' tokens in order: (kv_heads, pages x page, head_dim).

    Each page is cut and decoded where it lies: XLA writes that in one pass, in the order the dots
    want, where a gather of pages is a copy that must be turned by another.
    """
    cut = partial(lax.dynamic_index_in_dim, keepdims=False)
    each = [
        decode(tuple(cut(part, pages[i]) for part in parts), pool.format)
        for i in range(pages.shape[0])
    ]
    return jnp.concatenate(each, axis=1)


@dataclass
class Tables:
    """Which page belongs to whom: free list, block tables and reference counts.

    Full blocks are shared between live sequences that begin alike. A block is known by its tokens
    and the page before it, which stands for everything earlier; only full blocks are shared, and
    nothing writes to a full block, so no copy is ever needed.

    Args:
        pages: pages in the pool.
        page: tokens per page.
    """

    pages: int
    page: int
    tokens: dict[int, list[int]] = field(default_factory=dict)  # sequence -> its tokens
    blocks: dict[int, list[int]] = field(default_factory=dict)  # sequence -> its pages
    users: dict[int, int] = field(default_factory=dict)  # page -> sequences that hold it

    def __post_init__(self) -> None:
        check_sizes(pages=self.pages, page=self.page)
        self.free = list(range(self.pages - 1, -1, -1))
        self._known: dict[tuple[int, tuple[int, ...]], int] = {}

    def admit(self, sequence: int, tokens: list[int]) -> int:
        """Give a new sequence its pages and return how many of its tokens are cached already.

        At least the last token is left to compute, because its logits are wanted. A block counts as
        cached from its admission on, so sequences are computed in the order they were admitted.

        Raises:
            SpecError: an empty prompt, a sequence that is already live, or too few free pages.
        """
        if sequence in self.tokens or not tokens:
            raise SpecError(f"sequence {sequence}: needs a prompt, and must not be live already")
        shared = self._shared(tokens)
        self._check_free(len(tokens), len(shared), sequence)
        for page in shared:
            self.users[page] += 1
        cached = len(shared) * self.page
        self.tokens[sequence], self.blocks[sequence] = tokens[:cached], shared
        self.extend(sequence, tokens[cached:])
        return cached

    def extend(self, sequence: int, tokens: list[int]) -> None:
        """Add tokens to a live sequence, with new pages as they are needed.

        Raises:
            SpecError: an unknown sequence, or too few free pages; nothing has changed then.
        """
        if sequence not in self.tokens:
            raise SpecError(f"sequence {sequence} is not live: {sorted(self.tokens)[:8]} are")
        known, blocks = self.tokens[sequence], self.blocks[sequence]
        self._check_free(len(known) + len(tokens), len(blocks), sequence)
        full = len(known) // self.page
        known.extend(tokens)
        while len(blocks) * self.page < len(known):
            page = self.free.pop()
            self.users[page] = 1
            blocks.append(page)
        for block in range(full, len(known) // self.page):
            self._known.setdefault(self._key(known, blocks, block), blocks[block])

    def release(self, sequence: int) -> None:
        """Forget a sequence; pages that nobody else holds are free again."""
        if sequence not in self.tokens:
            raise SpecError(f"sequence {sequence} is not live: {sorted(self.tokens)[:8]} are")
        known, blocks = self.tokens.pop(sequence), self.blocks.pop(sequence)
        for block in reversed(range(len(blocks))):
            page = blocks[block]
            self.users[page] -= 1
            if not self.users[page]:
                del self.users[page]
                self.free.append(page)
                key = self._key(known, blocks, block)
                if self._known.get(key) == page:
                    del self._known[key]

    def table(self, sequence: int, blocks: int) -> Array:
        """Return the sequence's pages, (blocks,) int32; entries behind its end are 0 and never read.

        Raises:
            SpecError: an unknown sequence, or one that is longer than the table.
        """
        pages = self.blocks.get(sequence)
        if pages is None or len(pages) > blocks:
            raise SpecError(f"sequence {sequence}: not live, or longer than {blocks} blocks")
        return jnp.asarray(pages + [0] * (blocks - len(pages)), jnp.int32)

    def report(self, pool: Pool) -> xr.Dataset:
        """Return bytes, fragmentation and contiguous runs of every live sequence in one layer's pool.

        A shared page is divided between those who hold it.
        """
        parts = (*pool.k, *pool.v)
        token_bytes = sum(part.nbytes for part in parts) / (self.pages * self.page)
        share = {page: 1 / users for page, users in self.users.items()}
        ids, size = list(self.tokens), self.page
        lengths = [
            sum(
                share[p] * min(size, len(self.tokens[i]) - size * b)
                for b, p in enumerate(self.blocks[i])
            )
            for i in ids
        ]
        ds = cache_report(
            lengths=lengths,
            reserved=[size * sum(share[p] for p in self.blocks[i]) for i in ids],
            token_bytes=token_bytes,
            runs=[[len(parts) * n for n in _runs(self.blocks[i])] for i in ids],
            kv_heads=pool.kv_heads,
            kind=f"paged by {size} tokens, {pool.format}",
        )
        return ds.assign_coords(sequence=("sequence", ids, ds["sequence"].attrs))

    def _shared(self, tokens: list[int]) -> list[int]:
        """Return pages of live sequences that hold the leading full blocks of `tokens`."""
        pages: list[int] = []
        for block in range((len(tokens) - 1) // self.page):
            page = self._known.get(self._key(tokens, pages, block))
            if page is None:
                break
            pages.append(page)
        return pages

    def _key(self, tokens: list[int], pages: list[int], block: int):
        before = pages[block - 1] if block else -1
        return before, tuple(tokens[block * self.page : (block + 1) * self.page])

    def _check_free(self, tokens: int, held: int, sequence: int) -> None:
        wanted = -(-tokens // self.page) - held
        if wanted > len(self.free):
            raise SpecError(
                f"sequence {sequence} needs {wanted} more pages: {len(self.free)} are free"
            )


def _runs(pages: list[int]) -> tuple[int, int]:
    """Return how many stretches one head, and all heads together, read: neighbouring pages join for all."""
    return len(pages), 1 + int((np.diff(pages) != 1).sum()) if pages else 0
