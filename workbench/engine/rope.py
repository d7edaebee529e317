"""Rotary positions: each pair of a head's dimensions turns by position × frequency (arXiv 2104.09864)."""

from dataclasses import dataclass
from functools import partial
from math import ceil, floor, log, pi

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from workbench.errors import SpecError

#: Which dimensions pair up: neighbours (llama.cpp's NORM) or the two halves (NeoX, and Hugging Face's Llama).
STYLES = ("norm", "neox")
SCALINGS = ("none", "linear", "llama3", "yarn")


@dataclass(frozen=True)
class Rope:
    """How a model turns its queries and keys.

    Args:
        dims: leading dimensions of a head that turn; the rest pass through (partial rotary).
        base: wavelength base, theta.
        style: which dimensions pair up, one of STYLES.
        scaling: how a longer context is squeezed in, one of SCALINGS.
        factor: context extension factor.
        original_context: context of the first training in tokens (llama3, yarn).
        low: llama3's low_freq_factor, in turns per original context.
        high: llama3's high_freq_factor.
        beta_fast: yarn keeps dimensions that turn at least this often.
        beta_slow: yarn interpolates those that turn at most this often.
        truncate: yarn rounds the two corners outwards to whole dimensions, as llama.cpp does.

    Raises:
        SpecError: an odd or empty rotation, or a scaling without what it needs.
    """

    dims: int
    base: float = 10_000.0
    style: str = "norm"
    scaling: str = "none"
    factor: float = 1.0
    original_context: int = 0
    low: float = 1.0
    high: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True

    def __post_init__(self) -> None:
        if self.dims < 2 or self.dims % 2:
            raise SpecError(f"rope dims {self.dims}: pairs turn, so an even number of at least 2")
        if self.style not in STYLES or self.scaling not in SCALINGS:
            raise SpecError(
                f"rope style {self.style!r} and scaling {self.scaling!r}: "
                f"one of {', '.join(STYLES)} and one of {', '.join(SCALINGS)}"
            )
        if not (self.base > 1 and self.factor > 0):
            raise SpecError(f"rope base {self.base} must exceed 1, and factor {self.factor} 0")
        if self.scaling in ("llama3", "yarn") and self.original_context < 1:
            raise SpecError(f"rope scaling {self.scaling!r} needs original_context in tokens")

    @property
    def frequencies(self) -> np.ndarray:
        """Return (dims / 2,) float32 radians per token: base^(-2i / dims), scaled."""
        plain = self.base ** -(np.arange(0, self.dims, 2) / self.dims)
        if self.scaling == "linear":
            plain = plain / self.factor
        elif self.scaling == "llama3":
            plain = self._llama3(plain)
        elif self.scaling == "yarn":
            kept = self._kept_by_yarn()
            plain = plain * kept + plain / self.factor * (1 - kept)
        return plain.astype(np.float32)

    @property
    def magnitude(self) -> float:
        """Return the factor on the turned dimensions: yarn's 0.1 ln(factor) + 1 (arXiv 2309.00071), else 1."""
        return 0.1 * log(self.factor) + 1 if self.scaling == "yarn" and self.factor > 1 else 1.0

    def _llama3(self, plain: np.ndarray) -> np.ndarray:
        """Keep fast dimensions, divide slow ones by the factor, blend between (Llama 3.1 model card)."""
        turns = self.original_context * plain / (2 * pi)
        kept = np.clip((turns - self.low) / (self.high - self.low), 0, 1)
        return plain * kept + plain / self.factor * (1 - kept)

    def _kept_by_yarn(self) -> np.ndarray:
        """Return (dims / 2,) shares of the unscaled frequency, falling from 1 to 0 between two corners."""
        first, last = self._corner(self.beta_fast), self._corner(self.beta_slow)
        if self.truncate:
            first, last = floor(first), ceil(last)
        first, last = max(first, 0), min(last, self.dims - 1)
        ramp = (np.arange(self.dims // 2) - first) / max(last - first, 0.001)
        return 1 - np.clip(ramp, 0, 1)

    def _corner(self, turns: float) -> float:
        """Return the (fractional) pair that turns `turns` times in the original context."""
        return self.dims * log(self.original_context / (turns * 2 * pi)) / (2 * log(self.base))


def rotate(x, positions, rope: Rope, factors=None) -> Array:
    """Turn heads to their positions.

    Args:
        x: (tokens, heads, head_dim).
        positions: (tokens,) whole positions, in tokens.
        rope: the rotation.
        factors: (dims / 2,) divisors of the frequencies, as GGUF's `rope_freqs` holds them, or None.

    Returns:
        (tokens, heads, head_dim) in the dtype of `x`.

    Raises:
        SpecError: a head narrower than the rotation, or positions that do not fit.
    """
    if x.ndim != 3 or x.shape[-1] < rope.dims:
        raise SpecError(f"x {x.shape}: must be (tokens, heads, head_dim >= {rope.dims})")
    if positions.shape != x.shape[:1]:
        raise SpecError(f"positions {positions.shape}: one per token, ({x.shape[0]},)")
    if factors is not None and factors.shape != (rope.dims // 2,):
        raise SpecError(f"rope factors {factors.shape}: one per pair, ({rope.dims // 2},)")
    return _rotate(x, positions, factors, rope)


@partial(jax.jit, static_argnames="rope")
def _rotate(x, positions, factors, rope: Rope) -> Array:
    frequencies = jnp.asarray(rope.frequencies)
    if factors is not None:
        frequencies = frequencies / factors.astype(jnp.float32)
    angle = positions.astype(jnp.float32)[:, None, None] * frequencies  # (T, 1, dims / 2)
    cos, sin = jnp.cos(angle) * rope.magnitude, jnp.sin(angle) * rope.magnitude
    turned, rest = x[..., : rope.dims].astype(jnp.float32), x[..., rope.dims :]
    if rope.style == "norm":
        turned = _turn(turned[..., 0::2], turned[..., 1::2], cos, sin)
        turned = jnp.stack(turned, -1).reshape(*x.shape[:-1], rope.dims)
    else:
        first, second = jnp.split(turned, 2, -1)
        turned = jnp.concatenate(_turn(first, second, cos, sin), -1)
    return jnp.concatenate([turned.astype(x.dtype), rest], -1)


def _turn(a, b, cos, sin) -> tuple[Array, Array]:
    return a * cos - b * sin, a * sin + b * cos
