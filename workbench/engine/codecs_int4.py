"""INT4 in groups, with the activation-aware scales of AWQ (arXiv 2306.00978)."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from workbench.errors import SpecError

_ALPHAS = np.linspace(0, 1, 21, dtype=np.float32)


class Int4(NamedTuple):
    """weight = (scale·code + floor) / stretch, in groups along the inputs."""

    codes: jax.Array  # (out, in/2) uint8: the group's first half in the low bits
    scale: jax.Array  # (out, in/group) float16
    floor: jax.Array  # (out, in/group) float16
    stretch: jax.Array  # (in,) float32: what each input's weights were multiplied by
    alpha: jax.Array  # () float32: 0 is plain rounding


def encode_int4(
    weights: jax.Array, activations: jax.Array | None = None, *, group: int = 128
) -> Int4:
    """Return weights (out, in) in 4 bits, stretched so that loud inputs lose least.

    AWQ: stretch s = mean|x|^α by input, α from 0 to 1 by least ‖X(W - Q(W·s)/s)ᵀ‖².

    Args:
        weights: (out, in) float32.
        activations: (tokens, in) float32 that the layer saw; None rounds without stretching.
        group: inputs that share a scale, an even number that divides `in`.

    Raises:
        SpecError: shapes that do not fit, or values that are not finite.
    """
    weights = jnp.asarray(weights)
    if not isinstance(group, int) or group < 2 or group % 2:
        raise SpecError(f"INT4: group {group}: an even number of at least 2 is right")
    if weights.ndim != 2 or not weights.size or weights.shape[1] % group:
        raise SpecError(f"INT4: weights {weights.shape} are no (out, multiple of {group})")
    _check(weights)
    if activations is None:
        return _quantise(weights, jnp.ones(weights.shape[1], jnp.float32), jnp.float32(0), group)
    activations = jnp.asarray(activations)
    if activations.ndim != 2 or activations.shape[1] != weights.shape[1] or not len(activations):
        raise SpecError(
            f"INT4: activations {activations.shape} are no (tokens, {weights.shape[1]})"
        )
    _check(activations)
    return _search(weights, activations, group)


def _check(values: jax.Array) -> None:
    if values.dtype != jnp.float32:
        raise SpecError(f"INT4: {values.dtype} given; float32 is right")
    largest = float(jnp.abs(values).max())
    if not largest <= float(jnp.finfo(jnp.float16).max):  # scale and floor are float16
        raise SpecError(f"INT4: values up to {largest:.3g}, or NaN; float16 holds up to 65504")


@functools.partial(jax.jit, static_argnums=2)
def _search(weights: jax.Array, activations: jax.Array, group: int) -> Int4:
    loudness = jnp.maximum(jnp.abs(activations).mean(0), 1e-8)

    def loss_of(alpha):
        lost = weights - decode_int4(_quantise(weights, _stretch(loudness, alpha), alpha, group))
        return ((activations @ lost.T) ** 2).sum()

    alphas = jnp.asarray(_ALPHAS)
    best = alphas[lax.map(loss_of, alphas).argmin()]
    return _quantise(weights, _stretch(loudness, best), best, group)


def _stretch(loudness: jax.Array, alpha: jax.Array) -> jax.Array:
    """Return loudness^α, centred so that the weights keep their range."""
    stretch = loudness**alpha
    return stretch / jnp.sqrt(stretch.max() * stretch.min())


@functools.partial(jax.jit, static_argnums=3)
def _quantise(weights: jax.Array, stretch: jax.Array, alpha: jax.Array, group: int) -> Int4:
    groups = (weights * stretch).reshape(weights.shape[0], -1, group)
    low, high = jnp.minimum(groups.min(-1), 0), jnp.maximum(groups.max(-1), 0)
    scale, floor = ((high - low) / 15).astype(jnp.float16), low.astype(jnp.float16)
    step = scale.astype(jnp.float32)
    offset = (groups - floor.astype(jnp.float32)[..., None]) / jnp.where(step == 0, 1, step)[
        ..., None
    ]
    codes = jnp.clip(jnp.round(offset), 0, 15).astype(jnp.uint8)
    first, second = jnp.split(codes, 2, axis=-1)
    packed = (first | second << 4).reshape(weights.shape[0], -1)
    return Int4(packed, scale, floor, stretch, alpha)


@jax.jit
def decode_int4(int4: Int4) -> jax.Array:
    """Return the weights (out, in) float32."""
    packed = int4.codes.reshape(*int4.scale.shape, -1)
    codes = jnp.concatenate([packed & 15, packed >> 4], axis=-1).astype(jnp.float32)
    scale, floor = (part.astype(jnp.float32)[..., None] for part in (int4.scale, int4.floor))
    return (scale * codes + floor).reshape(len(packed), -1) / int4.stretch
