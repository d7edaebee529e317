"""The Bottleneck Workbench: which models run on a machine, how fast, and why."""

import jax

# Prices add nanoseconds to seconds and bytes to terabytes: float32 loses the small terms.
jax.config.update("jax_enable_x64", True)

from workbench.errors import FileError, SpecError, UnknownNameError, WorkbenchError  # noqa: E402
from workbench.figures.claims import claims_table  # noqa: E402
from workbench.results import open_ as open  # noqa: E402, A004
from workbench.results import save  # noqa: E402
from workbench.specs.catalogue import models  # noqa: E402
from workbench.specs.device import Device, device_table, devices  # noqa: E402
from workbench.specs.model import Model  # noqa: E402
from workbench.specs.workload import Workload, axis  # noqa: E402
from workbench.study.calibrate import calibrate  # noqa: E402
from workbench.study.claims import claims  # noqa: E402
from workbench.study.explain import explain, flags  # noqa: E402
from workbench.study.predict import predict  # noqa: E402

__all__ = [
    "Device", "FileError", "Model", "SpecError", "UnknownNameError", "WorkbenchError", "Workload",
    "axis", "calibrate", "claims", "claims_table", "device_table", "devices", "explain", "flags", "models", "open",
    "predict", "save",
]  # fmt: skip


def __getattr__(name: str):
    """Load the probes when they are first used: few scripts measure."""
    if name == "probe":
        import importlib

        return importlib.import_module("workbench.probe")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
