"""What DRAM alone allows a token, beside calibration and measurements; padding of a catalogue model (M10, M17)."""

import numpy as np
import xarray as xr

from workbench import data, results
from workbench.errors import SpecError
from workbench.hardware import dram
from workbench.specs.device import Device
from workbench.specs.model import Model
from workbench.study.predict import predict
from workbench.study.token_ledger import bent, weight_efficiency


def derived(
    model: Model, devices: list[Device], quant: str = "Q4_K_M", *, granule=4096, queue_depth=32
) -> xr.Dataset:
    """Predict decoding with the bandwidth that DRAM gives, beside the calibrated and the measured speed.

    Args:
        model: a Model.
        devices: several Devices.
        quant: a format.
        granule, queue_depth: of reads in each channel, as for `dram.effective_bandwidth`.

    Returns:
        Over `device`: `decode_tok_s` token/s as calibrated, `dram_tok_s` token/s with weights at the bandwidth of
        `dram` and all other terms as calibrated, `dram_bound_tok_s` token/s with nothing else in the way, `measured`
        token/s (median of the rows, NaN for none); `calibrated_share` and `bus_share`, the shares of the specified
        bandwidth that both give the weights. A fit divides the time between terms, so that its share alone may be
        above 1.

    Raises:
        SpecError: a machine that does not hold the model.

    Equation: t = S / BW_dram + the other terms (M01, M10).
    """
    rows = [_one(model, device, quant, granule, queue_depth) for device in devices]
    columns = {name: ("device", np.array([row[name] for row in rows])) for name in rows[0]}
    return results.dataset(
        columns, {"device": [device.name for device in devices]}, mechanism="M10",
        source="datasets/dram.csv, datasets/coefficients.json, datasets/measurements.csv",
    )  # fmt: skip


def _one(model: Model, device: Device, quant: str, granule, queue_depth) -> dict[str, float]:
    calibrated = predict(model, device, quant=quant)
    if not calibrated.fits.item():
        raise SpecError(
            f"{device.name}: does not hold {model.name} in {quant}; what spills is not read from DRAM"
        )
    share = dram.effective_bandwidth(
        device, granule=granule, queue_depth=queue_depth
    ).bus_share.item()
    return {
        "decode_tok_s": calibrated.decode_tok_s.item(),
        "dram_tok_s": bent(calibrated, efficiency=share).decode_tok_s.item(),
        "dram_bound_tok_s": share * calibrated.naive_tok_s.item(),
        "measured": _measured(model, device, quant),
        "calibrated_share": weight_efficiency(calibrated),
        "bus_share": share,
    }


def _measured(model: Model, device: Device, quant: str) -> float:
    """Return the median decode speed, token/s, of the rows at batch 1 and a short context."""
    where = {"device": device.name, "quant": quant, "batch": "1"}
    found = [
        float(row["decode_tok_s"])
        for row in data.rows("measurements.csv")
        if all(row[k] == v for k, v in where.items()) and row["decode_tok_s"]
        and data.slug(row["model"]) == model.name and row["context_depth_tokens"] in ("", "0")
    ]  # fmt: skip
    return float(np.median(found)) if found else np.nan
