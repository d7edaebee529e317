"""How far a prediction can be trusted: what calibration saw, and how wrong held-out predictions of that kind were."""

import numpy as np

from workbench.hardware import coefficients

#: From best to worst. measured: this device with this backend has rows. calibrated: the backend has rows on devices of
#: this class. prior: it has none. outside range: the model does not
#: fit, or more context or a larger batch is asked for than any row had.
LEVELS = ("measured", "calibrated", "prior", "outside range")


def intervals(
    priced: dict[str, np.ndarray],
    keys: dict[str, np.ndarray],
    work: dict[str, np.ndarray],
    table: dict,
) -> dict[str, np.ndarray]:
    """Return `trust`, and the 80 % interval of decode and prefill speed from residuals of held-out rows.

    Args:
        priced: arrays of `ledger.price`.
        keys: pools, as for `coefficients.resolve`.
        work: `context` and `batch`, as priced.
        table: coefficients, with `known` pools, the `range` of the rows, and `residuals` by level and device class.
    """
    known = table["known"]
    seen_device = coefficients.look_up(known["device.backend"], "device.backend", keys) > 0
    seen_class = (
        coefficients.look_up(known["device_class.backend"], "device_class.backend", keys) > 0
    )
    level = np.where(seen_device, 0, np.where(seen_class, 1, 2))
    beyond = ~priced["fits"]
    for name, most in table["range"].items():
        beyond = beyond | (work[name] > most)
    level = np.where(beyond, 3, level)
    found = {"trust": np.array(LEVELS)[level]}
    for stage, prefix in (("decode", ""), ("prefill", "prefill_")):
        low, high = (_quantile(table["residuals"][stage], end, level, keys) for end in (0, 1))
        speed = priced[f"{stage}_tok_s"]
        found |= {f"{prefix}lower": speed * low, f"{prefix}upper": speed * high}
    return found


def _quantile(
    residuals: dict, end: int, level: np.ndarray, keys: dict[str, np.ndarray]
) -> np.ndarray:
    """Return measured/predicted at one end of the interval, by trust level and class of device."""
    ends = []
    for name in LEVELS:
        by_class = {label: pair[end] for label, pair in residuals[name].items()}
        ends.append(coefficients.look_up(by_class, "device_class", keys, default=by_class["all"]))
    return np.choose(level, ends)
