"""The affine law of a token's time: something fixed, and bytes over a bandwidth (M02).

Whoever has measured one machine with a few sizes of a model can read both off a straight line.
"""

from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from workbench import results
from workbench.errors import SpecError
from workbench.units import parse


class Line(NamedTuple):
    """The two numbers of the law; they broadcast."""

    t0: Any  # s: what a token takes before its first byte
    bandwidth: Any  # B/s


def token_time(size, line: Line):
    """Return the seconds of a token that reads `size` bytes: t = t0 + S / BW (M02)."""
    return line.t0 + size / line.bandwidth


def fit(size, time, weight=1.0) -> Line:
    """Return the least-squares line through points (..., point).

    Args:
        size: (point,) bytes read per token.
        time: (point,) seconds per token.
        weight: (..., point), 0 leaves a point out.
    """
    weight = weight * np.ones_like(size)
    centre = [
        (weight * x).sum(-1, keepdims=True) / weight.sum(-1, keepdims=True) for x in (size, time)
    ]
    from_size, from_time = size - centre[0], time - centre[1]
    slope = (weight * from_size * from_time).sum(-1) / (weight * from_size**2).sum(-1)
    return Line(centre[1][..., 0] - slope * centre[0][..., 0], 1.0 / slope)


def affine(size, time, peak: float | str | None = None) -> xr.Dataset:
    """Fit the affine law to measured pairs and say how far it can be trusted.

    Args:
        size: (point,) bytes read per token: the file, or the active bytes of a mixture of experts.
        time: (point,) seconds per token.
        peak: specified bandwidth of the machine, B/s or text such as "102.4 GB/s".

    Returns:
        `t0_s` s, `bandwidth` B/s, `residual_s` (point) s, and `t0_without_s`, `bandwidth_without`
        (point): the same fit with that point left out, whose range says how much hangs on one
        point. With a peak, `efficiency`: above 1 the line claims more than the memory can give.

    Raises:
        SpecError: fewer than three points or two sizes, numbers that are not positive, or a time
            that does not grow with the bytes.

    Equation: t = t0 + S / BW, ordinary least squares (M02; measured in that form in
    XiongjieDai/GPU-Benchmarks-on-LLM-Inference issue #1).
    """
    size, time = _column(size, "size"), _column(time, "time")
    _refuse(size, time)
    line = fit(size, time)
    without = fit(size, time, 1.0 - np.eye(size.size))
    variables = {
        "size_bytes": ("point", size, _attrs("byte", "bytes read per token")),
        "time_s": ("point", time),
        "t0_s": ((), line.t0, _attrs("s", "fixed time of a token")),
        "bandwidth": ((), line.bandwidth, _attrs("byte/s", "bandwidth reached")),
        "residual_s": (
            "point",
            time - token_time(size, line),
            _attrs("s", "measured minus fitted"),
        ),
        "t0_without_s": ("point", without.t0, _attrs("s", "fixed time without this point")),
        "bandwidth_without": (
            "point",
            without.bandwidth,
            _attrs("byte/s", "bandwidth reached without this point"),
        ),
    }
    if peak is not None:
        share = line.bandwidth / parse(peak, "byte/second", "peak")
        variables["efficiency"] = ((), share, _attrs("1", "share of the specified bandwidth"))
    return results.dataset(variables, source="least squares on the points given", mechanism="M02")


def _column(values, field: str) -> np.ndarray:
    column = np.asarray(values, dtype=np.float64)
    if column.ndim != 1 or not np.all(np.isfinite(column)) or not np.all(column > 0):
        raise SpecError(f"{field}: give a list of finite numbers above 0, one for each point")
    return column


def _refuse(size: np.ndarray, time: np.ndarray) -> None:
    if size.shape != time.shape:
        raise SpecError(f"size has {size.size} points and time {time.size}; give one of each")
    if size.size < 3 or np.unique(size).size < 3:
        raise SpecError("a line with residuals needs three points of different size or more")
    lines = fit(size, time, np.vstack([np.ones(size.size), 1.0 - np.eye(size.size)]))
    if not np.all(lines.bandwidth > 0):
        raise SpecError("time does not grow with the bytes: these points are no affine law")


def _attrs(units: str, long_name: str) -> dict[str, str]:
    return {"units": units, "long_name": long_name}
