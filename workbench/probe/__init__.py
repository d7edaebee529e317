"""What this machine really does, measured; and what cannot be seen of it here."""

from workbench.probe import bandwidth, buddy, disk, matmul, pages, system
from workbench.probe.machine import from_file, this_machine
from workbench.probe.probes import PROBES, survey

__all__ = [
    "PROBES", "bandwidth", "buddy", "disk", "from_file", "matmul", "pages", "survey", "system",
    "this_machine",
]  # fmt: skip
