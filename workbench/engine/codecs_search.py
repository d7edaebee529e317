"""Scales searched for the least squared error: what K-quants and IQ4 need when they are written.

Each group first gets the scale (and floor) of its own that loses least, from a grid of candidates
each refined by least squares; then the block's scales are rounded to the few bits they have, and
every group tries the neighbours of its rounded scale. ggml's reference does the first two steps.
"""

import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from workbench.engine.codecs_bits import Fields, Layout

#: format -> largest rounded scale and floor: unsigned codes with a floor, signed ones without.
_AFFINE = {"Q2_K": (15, 15), "Q4_K": (63, 63), "Q5_K": (63, 63)}
_SIGNED = {"Q3_K": 32, "Q6_K": 128, "IQ4_XS": 32}
_STEPS = np.linspace(-0.9, 0.9, 19, dtype=np.float32)


def value_of(layout: Layout, codes: jax.Array) -> jax.Array:
    """Return what codes stand for before scaling, float32."""
    if layout.values:
        return jnp.asarray(layout.values, jnp.float32)[codes]
    return codes.astype(jnp.float32) - layout.offset


def code_of(layout: Layout, values: jax.Array) -> jax.Array:
    """Return the codes (uint8) whose values are nearest."""
    if layout.values:
        table = np.asarray(layout.values, np.float32)
        middle = jnp.asarray((table[1:] + table[:-1]) / 2)
        return jnp.searchsorted(middle, values, method="compare_all").astype(jnp.uint8)
    return jnp.clip(jnp.round(values) + layout.offset, 0, 2**layout.bits - 1).astype(jnp.uint8)


def search(name: str, layout: Layout, blocks: jax.Array) -> Fields:
    """Return the fields of blocks (..., block) float32 in format `name`."""
    x = blocks.reshape(*blocks.shape[:-1], -1, layout.group)
    if name in _AFFINE:
        return _affine_block(layout, x, *_AFFINE[name])
    scale = _signed_groups(layout, x)
    if name not in _SIGNED:
        scale = scale.astype(jnp.float16)
        codes = code_of(layout, x * _inverse(scale.astype(jnp.float32))[..., None])
        return Fields(codes.reshape(blocks.shape), scale)
    return _signed_block(layout, x, scale, _SIGNED[name])


def _inverse(scale: jax.Array) -> jax.Array:
    return jnp.where(scale == 0, jnp.float32(0), 1 / jnp.where(scale == 0, 1, scale))


def _least(candidates: jax.Array, loss_of, start):
    """Return the (loss, result) of least loss, elementwise, over a scan of candidates."""

    def step(best, candidate):
        loss, result = loss_of(candidate)
        better = loss < best[0]
        keep = jax.tree.map(lambda new, old: jnp.where(better, new, old), (loss, result), best)
        return keep, None

    return lax.scan(step, start, candidates)[0]


def _signed_groups(layout: Layout, x: jax.Array) -> jax.Array:
    """Return the scale (..., groups) of least loss without a floor: weight = scale·value."""
    at = jnp.abs(x).argmax(-1, keepdims=True)
    extreme = jnp.take_along_axis(x, at, -1)[..., 0]
    table = value_of(layout, jnp.arange(2**layout.bits, dtype=jnp.uint8))
    gap = table[1] - table[0]  # candidates send the extreme to about the lowest or highest value
    targets = jnp.concatenate([table[0] + gap * _STEPS, table[-1] + gap * _STEPS])

    def loss_of(target):
        value = value_of(layout, code_of(layout, x * (target * _inverse(extreme))[..., None]))
        xv, vv = (x * value).sum(-1), (value * value).sum(-1)
        return -xv * xv * _inverse(vv), xv * _inverse(vv)

    zero = jnp.zeros(x.shape[:-1], jnp.float32)
    return _least(targets, loss_of, (zero, zero))[1]


def _signed_block(layout: Layout, x: jax.Array, scales: jax.Array, top: int) -> Fields:
    """Return fields with the groups' scales rounded to integers from -top to top - 1."""
    at = jnp.abs(scales).argmax(-1, keepdims=True)
    unit = _half(jnp.take_along_axis(scales, at, -1) / -top)
    first = _signed_rounding(layout, x, scales, unit, top)
    refit = _half(_fit(first.sub[..., None] * first.values, x))
    best = _better(first, _signed_rounding(layout, x, scales, refit, top))
    codes = code_of(layout, x * _inverse(best.unit * best.sub)[..., None])
    return Fields(
        codes.reshape(*x.shape[:-2], -1), best.unit.astype(jnp.float16), best.sub.astype(jnp.int8)
    )


class _Rounding(NamedTuple):
    """Groups with rounded scales: loss (..., 1), unit and unit_floor (..., 1), one number a group."""

    loss: jax.Array
    unit: jax.Array
    sub: jax.Array
    values: jax.Array  # (..., groups, group)
    unit_floor: Any = None
    subfloor: Any = None


def _better(a: _Rounding, b: _Rounding) -> _Rounding:
    """Return, block by block, the rounding of less loss."""

    def choose(one, other):
        better = b.loss < a.loss
        return jnp.where(better[..., None] if one.ndim > better.ndim else better, other, one)

    return jax.tree.map(choose, a, b)


def _half(number: jax.Array) -> jax.Array:
    """Return float32 as it will be once stored in 16 bits."""
    return number.astype(jnp.float16).astype(jnp.float32)


def _fit(basis: jax.Array, x: jax.Array) -> jax.Array:
    """Return the factor (..., 1) that brings basis nearest to x over a block."""
    moment, power = ((basis * y).sum((-2, -1))[..., None] for y in (x, basis))
    return moment * _inverse(power)


def _signed_rounding(layout: Layout, x, scales, unit, top: int) -> _Rounding:
    near = jnp.round(scales * _inverse(unit))

    def loss_of(move):
        sub = jnp.clip(near + move, -top, top - 1)
        step = (unit * sub)[..., None]
        value = value_of(layout, code_of(layout, x * _inverse(step)))
        return ((step * value - x) ** 2).sum(-1), sub

    moves = jnp.asarray([0.0, -1.0, 1.0], jnp.float32)
    loss, sub = _least(moves, loss_of, (jnp.full_like(near, jnp.inf), near))
    value = value_of(layout, code_of(layout, x * _inverse(unit * sub)[..., None]))
    return _Rounding(loss.sum(-1, keepdims=True), unit, sub, value)


def _affine_groups(layout: Layout, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return scale and floor (..., groups), floor at most 0, of least loss."""
    levels = 2**layout.bits - 1
    low, high = jnp.minimum(x.min(-1), 0), x.max(-1)
    count, sum_x = x.shape[-1], x.sum(-1)

    def loss_of(candidate):
        reach, depth = candidate  # a lone outlier is best served by a floor at zero
        start = depth * low
        code = jnp.round((x - start[..., None]) * (reach * _inverse(high - start))[..., None])
        code = jnp.clip(code, 0, levels)
        c, cc, cx = code.sum(-1), (code * code).sum(-1), (code * x).sum(-1)
        scale = (count * cx - c * sum_x) * _inverse(count * cc - c * c)
        floor = (sum_x - scale * c) / count
        scale = jnp.where(floor > 0, cx * _inverse(cc), scale)
        floor = jnp.minimum(floor, 0)
        residual = scale[..., None] * code + floor[..., None] - x
        return (residual * residual).sum(-1), (scale, floor)

    start = (jnp.full_like(low, jnp.inf), (jnp.zeros_like(low), low))
    reaches = levels + np.linspace(-1.0, 1.0, 21)
    candidates = list(itertools.product(reaches, (1.0, 0.5, 0.0)))
    return _least(jnp.asarray(candidates, jnp.float32), loss_of, start)[1]


def _affine_block(layout: Layout, x: jax.Array, top: int, top_floor: int) -> Fields:
    """Return fields with the groups' scales and floors rounded to unsigned integers."""
    groups = _affine_groups(layout, x)
    unit = _half(groups[0].max(-1, keepdims=True) / top)
    unit_floor = _half(groups[1].min(-1, keepdims=True) / top_floor)
    best = _affine_rounding(layout, x, groups, (unit, unit_floor), (top, top_floor))
    for _ in range(2):
        refit = _fit_two(best, x)
        best = _better(best, _affine_rounding(layout, x, groups, refit, (top, top_floor)))
    return Fields(
        best.values.astype(jnp.uint8).reshape(*x.shape[:-2], -1),
        best.unit.astype(jnp.float16),
        best.sub.astype(jnp.uint8),
        best.unit_floor.astype(jnp.float16),
        best.subfloor.astype(jnp.uint8),
    )


def _fit_two(r: _Rounding, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the unit and unit_floor (..., 1) that bring a block nearest to x, sub and codes kept."""
    a = r.sub[..., None] * r.values
    b = jnp.broadcast_to(r.subfloor[..., None], a.shape)
    aa, bb, ab, ax, bx = (
        (p * q).sum((-2, -1))[..., None] for p, q in ((a, a), (b, b), (a, b), (a, x), (b, x))
    )
    inverse = _inverse(aa * bb - ab * ab)
    unit = jnp.where(inverse == 0, ax * _inverse(aa), (bb * ax - ab * bx) * inverse)
    return _half(unit), _half((aa * bx - ab * ax) * inverse)


def _affine_rounding(layout: Layout, x, groups, units, tops) -> _Rounding:
    near = [jnp.round(g * _inverse(u)) for g, u in zip(groups, units, strict=True)]
    unit, unit_floor = units

    def values(sub, subfloor):
        step, base = (unit * sub)[..., None], (unit_floor * subfloor)[..., None]
        value = value_of(layout, code_of(layout, (x - base) * _inverse(step)))
        return value, ((step * value + base - x) ** 2).sum(-1)

    def loss_of(move):
        subs = [jnp.clip(n + m, 0, top) for n, m, top in zip(near, move, tops, strict=True)]
        return values(*subs)[1], tuple(subs)

    moves = jnp.asarray(list(itertools.product((0.0, -1.0, 1.0), repeat=2)), jnp.float32)
    loss, (sub, subfloor) = _least(moves, loss_of, (jnp.full_like(near[0], jnp.inf), tuple(near)))
    value = values(sub, subfloor)[0]
    return _Rounding(loss.sum(-1, keepdims=True), unit, sub, value, unit_floor, subfloor)
