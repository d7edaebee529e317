"""What a faster part does for the whole (M05, Amdahl 1967)."""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from workbench import results
from workbench.errors import SpecError


def speedup(share, factor):
    """Return how many times faster the whole gets when a part gets `factor` times faster.

    Args:
        share: the part's share of the time now, 0 to 1; any array.
        factor: how many times faster the part gets; `inf` removes it.

    Equation: S = 1 / ((1 - f) + f / s) (Amdahl 1967; M05).
    """
    return 1.0 / ((1.0 - share) + share / factor)


def pipeline(times: Mapping[str, float], faster: Mapping[str, float] | None = None) -> xr.Dataset:
    """Return what stages that run one after another take, before and after some get faster.

    Args:
        times: stage -> seconds now.
        faster: stage -> how many times faster it gets; stages left out stay as they are.

    Returns:
        Over `stage`: `stage_s` s, `share` of the time now (which is also the elasticity of the
        whole to the stage), `stage_after_s` s; and `total_s`, `total_after_s` s, `speedup`.

    Raises:
        SpecError: a time or a factor that makes no sense, or a factor for no stage.
    """
    factors = {stage: 1.0 for stage in times} | dict(faster or {})
    if strange := sorted(set(factors) - set(times)):
        raise SpecError(f"faster: no stage {', '.join(strange)}; stages are {', '.join(times)}")
    now = np.array([times[stage] for stage in times], dtype=np.float64)
    divided = np.array([factors[stage] for stage in times], dtype=np.float64)
    if not (np.all(np.isfinite(now)) and np.all(now >= 0) and now.sum() > 0):
        raise SpecError("times: give seconds of 0 or more, not all 0")
    if not np.all(divided > 0):
        raise SpecError("faster: give factors above 0, such as 5 for five times faster")
    after = now / divided
    variables = {
        "stage_s": ("stage", now, _attrs("s", "time of the stage")),
        "stage_after_s": ("stage", after, _attrs("s", "time of the stage after the change")),
        "share": ("stage", now / now.sum()),
        "total_s": ((), now.sum(), _attrs("s", "time of all stages")),
        "total_after_s": ((), after.sum(), _attrs("s", "time of all stages after the change")),
        "speedup": ((), now.sum() / after.sum(), _attrs("1", "times faster")),
    }
    stages = {"stage": ("stage", list(times), _attrs("1", "stage"))}
    return results.dataset(variables, stages, source="Amdahl 1967", mechanism="M05")


def _attrs(units: str, long_name: str) -> dict[str, str]:
    return {"units": units, "long_name": long_name}
