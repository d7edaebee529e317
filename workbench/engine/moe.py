"""Routing: which experts a token gets, with what weight, and how many (M48, M49)."""

from dataclasses import dataclass
from functools import partial
from math import ceil, inf, log
from numbers import Integral
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from workbench.errors import SpecError

SCORES = ("softmax", "sigmoid")
CHOICES = ("top-k", "mass", "entropy")


@dataclass(frozen=True)
class Router:
    """How a layer chooses experts.

    Softmax over all logits with weights normalised after the choice (Mixtral, Qwen3) equals softmax
    over the chosen logits alone (gpt-oss), so there is one way to say both.

    Args:
        experts: routed experts, E.
        top_k: experts a token gets at most, K.
        score: what turns logits into weights, one of SCORES; sigmoid is DeepSeek-V3's.
        normalise: the weights of a token sum to 1 before `scale`.
        scale: factor on the weights.
        choose: "top-k" takes K; "mass" the fewest whose softmax mass reaches `mass`; "entropy"
            from k_min at 0 to K at ln E, in proportion.
        mass: share of the probability to cover.
        k_min: experts a token gets at least.

    Raises:
        SpecError: numbers or names that make no sense.
    """

    experts: int
    top_k: int
    score: str = "softmax"
    normalise: bool = True
    scale: float = 1.0
    choose: str = "top-k"
    mass: float = 1.0
    k_min: int = 1

    def __post_init__(self) -> None:
        for name in ("experts", "top_k", "k_min"):
            if not _whole(getattr(self, name)):
                raise SpecError(f"{name} {getattr(self, name)!r}: a whole number is right")
        if not 1 <= self.top_k <= self.experts:
            raise SpecError(
                f"top_k {self.top_k}: must be 1 to {self.experts}, the experts there are"
            )
        if not 1 <= self.k_min <= self.top_k:
            raise SpecError(f"k_min {self.k_min}: must be 1 to top_k, {self.top_k}")
        if self.score not in SCORES or self.choose not in CHOICES:
            raise SpecError(
                f"score {self.score!r} and choose {self.choose!r}: "
                f"one of {', '.join(SCORES)} and one of {', '.join(CHOICES)}"
            )
        if not 0 < self.mass <= 1:
            raise SpecError(f"mass {self.mass}: a share of the probability, above 0 and at most 1")
        if not 0 < self.scale < float("inf"):
            raise SpecError(f"scale {self.scale}: a positive factor on the weights")


def _whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


class Routing(NamedTuple):
    """Where tokens go; an expert with weight 0 is not run."""

    experts: Array  # (tokens, top_k) int32, best first
    weights: Array  # (tokens, top_k) float32
    used: Array  # (tokens,) int32, experts that the token gets
    entropy: Array  # (tokens,) float32, nat, of the softmax over all experts


def route(logits, router: Router, bias=None) -> Routing:
    """Choose experts.

    Args:
        logits: (tokens, experts).
        router: the rule.
        bias: (experts,) added to the scores for the choice only, not for the weights (DeepSeek-V3,
            arXiv 2412.19437), or None.

    Raises:
        SpecError: logits or a bias of other experts than the router's.
    """
    if logits.ndim != 2 or logits.shape[0] == 0 or logits.shape[1] != router.experts:
        raise SpecError(f"logits {logits.shape}: must be (tokens, {router.experts})")
    if bias is not None and bias.shape != (router.experts,):
        raise SpecError(f"bias {bias.shape}: one per expert, ({router.experts},)")
    return _route(logits, bias, router)


@partial(jax.jit, static_argnames="router")
def _route(logits, bias, router: Router) -> Routing:
    logits = logits.astype(jnp.float32)
    shares = jax.nn.softmax(logits)
    scores = shares if router.score == "softmax" else jax.nn.sigmoid(logits)
    preference = scores if bias is None else scores + bias.astype(jnp.float32)
    _, experts = lax.top_k(preference, router.top_k)
    entropy = -(shares * jax.nn.log_softmax(logits)).sum(-1)
    used = _used(jnp.take_along_axis(shares, experts, -1), entropy, router)
    kept = jnp.arange(router.top_k, dtype=jnp.int32) < used[:, None]
    weights = jnp.where(kept, jnp.take_along_axis(scores, experts, -1), 0)
    if router.normalise:
        weights = weights / jnp.maximum(weights.sum(-1, keepdims=True), jnp.finfo(jnp.float32).tiny)
    return Routing(experts.astype(jnp.int32), weights * router.scale, used, entropy)


def _used(shares: Array, entropy: Array, router: Router) -> Array:
    """Return (tokens,) int32: how many of the chosen experts a token gets."""
    if router.choose == "mass":
        wanted = 1 + (jnp.cumsum(shares, -1)[:, :-1] < router.mass).sum(-1)
    elif router.choose == "entropy":
        spread = entropy / log(max(router.experts, 2))
        wanted = router.k_min + jnp.ceil((router.top_k - router.k_min) * spread - 1e-6)
    else:
        wanted = jnp.full(entropy.shape, router.top_k)
    return jnp.clip(wanted.astype(jnp.int32), router.k_min, router.top_k)


def capacity(tokens: int, router: Router, factor: float) -> int:
    """Return the tokens one expert takes in a step: ceil(factor · tokens · K / E) (arXiv 2101.03961).

    Raises:
        SpecError: a factor that is not positive and finite, or no token.
    """
    if not 0 < factor < inf:
        raise SpecError(f"capacity factor {factor}: must be positive and finite")
    if not _whole(tokens) or tokens < 1:
        raise SpecError(f"capacity for {tokens} tokens: at least 1, a whole number, is right")
    return ceil(factor * tokens * router.top_k / router.experts)


def limit(routing: Routing, router: Router, factor: float) -> tuple[Routing, Array]:
    """Drop what exceeds the experts' capacity, later tokens first.

    Returns:
        The routing with dropped weights 0, not renormalised (the residual carries such tokens), and
        () the share of the routed pairs that was dropped.

    Raises:
        SpecError: a factor that is not positive and finite, or another router's routing.
    """
    if routing.experts.shape[1] != router.top_k:
        raise SpecError(
            f"routing of {routing.experts.shape[1]} experts a token: the router gives {router.top_k}"
        )
    return _limit(routing, router.experts, capacity(routing.weights.shape[0], router, factor))


@partial(jax.jit, static_argnames=("experts", "places"))
def _limit(routing: Routing, experts: int, places: int) -> tuple[Routing, Array]:
    live = routing.weights > 0
    wants = jax.nn.one_hot(routing.experts, experts, dtype=bool) & live[..., None]
    queue = jnp.cumsum(wants.reshape(-1, experts), 0, jnp.int32).reshape(wants.shape)
    place = jnp.take_along_axis(queue, routing.experts[..., None], -1)[..., 0]
    kept = live & (place <= places)
    routed = jnp.maximum(live.sum(), 1).astype(jnp.float32)
    dropped = 1 - kept.sum().astype(jnp.float32) / routed
    weights = jnp.where(kept, routing.weights, 0)
    return routing._replace(weights=weights, used=kept.sum(-1).astype(jnp.int32)), dropped


def load(routing: Routing, experts: int) -> Array:
    """Return (experts,) int32: tokens that each expert got."""
    counts = jnp.zeros(experts, jnp.int32)
    return counts.at[routing.experts].add((routing.weights > 0).astype(jnp.int32))
