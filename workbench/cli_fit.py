"""Which models run on a machine: each in the best of the usual formats that fits."""

import warnings

import numpy as np
import xarray as xr

import workbench as wb
from workbench.cli_ask import records
from workbench.specs import engine as engines
from workbench.study.explain import _LADDER, _MLX_LADDER
from workbench.study.predict import BeyondContext


def ranked(device: wb.Device, context: float, engine: str, at_least: float) -> list[dict]:
    """Return the models that run, largest first; see `cli_ask.records` for what is known of each.

    Args:
        device: the machine.
        context: tokens to hold; models that were not trained for so many are left out.
        engine: what runs them.
        at_least: token/s below which a model does not count as running.
    """
    models = [m for m in map(wb.Model.preset, wb.models()) if m.max_context >= context]
    ladder = _MLX_LADDER if engines.family(engine) == "mlx" else _LADDER
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BeyondContext)  # by the prompt, which is the usual one
        work = wb.Workload(context=context)
        ds = wb.predict(models, device, work, quant=list(ladder), engine=engine)
    best, runs = _best(ds, at_least)
    sizes = np.array([float(m.total_params) for m in models])
    order = [i for i in np.argsort(-sizes, kind="stable") if runs[i]]
    return [
        {**records(ds.isel(model=[i], quant=[best[i]]))[0], "total_params": sizes[i],
         "active_params": float(models[i].active_params)}
        for i in order
    ]  # fmt: skip


def _best(ds: xr.Dataset, at_least: float) -> tuple[np.ndarray, np.ndarray]:
    """Return per model where its largest format that fits and is fast enough is, and if any."""
    good = ds.fits & (ds.decode_tok_s >= at_least)
    size = ds.file_bytes.where(good, -1.0).transpose("model", "quant").values
    return size.argmax(axis=1), size.max(axis=1) > 0
