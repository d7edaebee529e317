"""The experts' matmuls, whose time follows the experts touched and not those that exist (M46, M54).

Token-expert pairs are sorted by expert and cut into tiles of one expert each; a loop runs the tiles
there are. An expert's weights are read where they lie: cutting an expert out first would copy it.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.core import Tracer

from workbench.engine.matmul import COMPILER_OPTIONS, Packed, matmul
from workbench.engine.moe import Router, Routing, route
from workbench.errors import SpecError

TILE = 128  # rows at most: what keeps the matrix unit busy


def _silu(gate: Array, up: Array) -> Array:
    return jax.nn.silu(gate) * up


def _gelu(gate: Array, up: Array) -> Array:
    return jax.nn.gelu(gate) * up


def _clamped(gate: Array, up: Array) -> Array:
    """Return gpt-oss's gate: both clamped at 7, sigmoid with slope 1.702, up shifted by 1."""
    gate, up = jnp.minimum(gate, 7.0), jnp.clip(up, -7.0, 7.0)
    return gate * jax.nn.sigmoid(1.702 * gate) * (up + 1)


ACTIVATIONS = {"silu": _silu, "gelu": _gelu, "gpt-oss": _clamped}


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["gate", "up", "down", "gate_bias", "up_bias", "down_bias"],
    meta_fields=["activation"],
)
@dataclass(frozen=True)
class Experts:
    """The routed experts of one layer; each Packed is of (experts, out, in).

    Args:
        gate: (ff, hidden) an expert.
        up: (ff, hidden) an expert.
        down: (hidden, ff) an expert.
        gate_bias: (experts, ff) or None.
        up_bias: (experts, ff) or None.
        down_bias: (experts, hidden) or None.
        activation: one of ACTIVATIONS.
    """

    gate: Packed
    up: Packed
    down: Packed
    gate_bias: Array | None = None
    up_bias: Array | None = None
    down_bias: Array | None = None
    activation: str = "silu"

    @property
    def count(self) -> int:
        return self.gate.planes[0].shape[0]


def moe(x, gate, router: Router, experts: Experts, *, gate_bias=None, bias=None, shared=None):
    """Run a mixture-of-experts layer.

    Args:
        x: (tokens, hidden) float32.
        gate: (experts, hidden) float32, the router's matrix.
        router: the rule of choice.
        experts: the routed experts.
        gate_bias: (experts,) added to the router's logits (gpt-oss), or None.
        bias: (experts,) added for the choice only, see `route`.
        shared: Experts that every token gets with weight 1, or None.

    Returns:
        (tokens, hidden) float32, and the Routing.

    Raises:
        SpecError: shapes that do not fit.
    """
    if gate.shape != (router.experts, x.shape[-1]):
        raise SpecError(f"gate {gate.shape}: must be ({router.experts}, {x.shape[-1]})")
    logits = x @ gate.T
    routing = route(logits if gate_bias is None else logits + gate_bias, router, bias)
    y = run(experts, x, routing)
    if shared is not None:
        y = y + run(shared, x, everyone(x.shape[0], shared.count))
    return y, routing


def everyone(tokens: int, experts: int) -> Routing:
    """Return the routing of shared experts: every token to all of them, with weight 1."""
    ids = jnp.broadcast_to(jnp.arange(experts, dtype=jnp.int32), (tokens, experts))
    used = jnp.full(tokens, experts, jnp.int32)
    return Routing(ids, jnp.ones(ids.shape, jnp.float32), used, jnp.zeros(tokens, jnp.float32))


def run(experts: Experts, x, routing: Routing) -> Array:
    """Return the weighted sum of the experts' outputs (tokens, hidden) float32.

    Args:
        experts: the experts.
        x: (tokens, hidden) float32.
        routing: where each token goes.

    Raises:
        SpecError: shapes that do not fit, or an activation that does not exist.
    """
    hidden = experts.gate.shape[1]
    if x.ndim != 2 or x.shape != (routing.experts.shape[0], hidden):
        raise SpecError(f"x {x.shape}: must be ({routing.experts.shape[0]}, {hidden})")
    if experts.activation not in ACTIVATIONS:
        raise SpecError(f"activation {experts.activation!r}: one of {', '.join(ACTIVATIONS)}")
    if experts.up.shape != experts.gate.shape or experts.down.shape != experts.gate.shape[::-1]:
        raise SpecError(
            f"gate {experts.gate.shape}, up {experts.up.shape}, down {experts.down.shape}: "
            "must be (ff, hidden), the same, and (hidden, ff)"
        )
    # JAX takes compiler options for the outermost jit only
    traced = isinstance(x, Tracer)
    return (_run if traced else _compiled)(experts, x, routing)


def _run(experts: Experts, x, routing: Routing) -> Array:
    tokens, k = routing.experts.shape
    size = tile_size(tokens, k, experts.count)
    plan = _plan(routing, experts.count, size)

    def tile(i, rows):
        expert, first = plan.expert[i], plan.first[i]
        pairs = lax.dynamic_slice_in_dim(plan.order, first, size)
        y = _ffn(experts, expert, x[pairs // k])
        # Rows behind this expert's last are the next one's, whose tile comes later and overwrites.
        return lax.dynamic_update_slice_in_dim(rows, y, first, 0)

    rows = jnp.zeros((tokens * k + size, x.shape[1]), jnp.float32)
    rows = lax.fori_loop(0, plan.tiles, tile, rows)
    back = jnp.argsort(plan.order[: tokens * k])
    pairs = rows[back].reshape(tokens, k, -1)
    return (jnp.where(routing.weights > 0, routing.weights, 0)[..., None] * pairs).sum(1)


_compiled = jax.jit(_run, compiler_options=COMPILER_OPTIONS)


def tile_size(tokens: int, k: int, experts: int) -> int:
    """Return rows per tile: about the rows an expert gets, so that it is read once and pads little."""
    if tokens == 1:
        return 1
    even = tokens * k / experts
    return min(tokens, next(size for size in (8, 16, 32, 64, TILE) if size >= min(even, TILE)))


class _Plan(NamedTuple):
    order: Array  # (pairs + size,) pair numbers sorted by expert, padded
    expert: Array  # (tiles at most,) int32
    first: Array  # (tiles at most,) int32, where the tile begins in `order`
    tiles: Array  # () int32


def _plan(routing: Routing, experts: int, size: int) -> _Plan:
    """Cut the pairs with a weight, sorted by expert, into tiles of one expert each."""
    ids = jnp.where(routing.weights > 0, routing.experts, experts).reshape(-1)
    order = jnp.pad(jnp.argsort(ids).astype(jnp.int32), (0, size))
    counts = jnp.zeros(experts, jnp.int32).at[ids].add(1, mode="drop")
    tiles = -(-counts // size)
    ends = jnp.cumsum(tiles, dtype=jnp.int32)
    number = jnp.arange(min(ids.size, experts + ids.size // size), dtype=jnp.int32)
    expert = jnp.searchsorted(ends, number, side="right").astype(jnp.int32)
    expert = jnp.minimum(expert, experts - 1)
    begin = jnp.cumsum(counts, dtype=jnp.int32) - counts
    first = begin[expert] + (number - (ends - tiles)[expert]) * size
    return _Plan(order, expert, first, ends[-1])


def _ffn(experts: Experts, expert: Array, x: Array) -> Array:
    """Return down(activation(gate x, up x)) of one expert: (rows, hidden)."""

    def linear(matrix: Packed, bias, x):
        y = matmul(matrix, x, expert)
        return y if bias is None else y + bias[expert]

    gate = linear(experts.gate, experts.gate_bias, x)
    up = linear(experts.up, experts.up_bias, x)
    return linear(experts.down, experts.down_bias, ACTIVATIONS[experts.activation](gate, up))
