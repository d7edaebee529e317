"""What this machine really does, measured; and what cannot be seen of it here."""

from workbench.probe.bandwidth import bandwidth, strided
from workbench.probe.disk import disk, load
from workbench.probe.machine import from_file, this_machine
from workbench.probe.matmul import matmul
from workbench.probe.survey import PROBES, survey
from workbench.probe.system import system

__all__ = [
    "PROBES", "bandwidth", "disk", "from_file", "load", "matmul", "strided", "survey", "system",
    "this_machine",
]  # fmt: skip
