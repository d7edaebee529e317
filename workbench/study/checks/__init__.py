"""The checks of the claims ledger, one module a mechanism; importing the package registers them."""

from workbench.study.checks import (
    bandwidth,
    kv_cache,
    machines,
    memory,
    overhead,
    parameters,
    storage,
    token_time,
)
from workbench.study.checks.registry import CHECKS, VERDICTS, Claim, Finding

__all__ = [
    "CHECKS", "VERDICTS", "Claim", "Finding",
    "bandwidth", "kv_cache", "machines", "memory", "overhead", "parameters", "storage", "token_time",
]  # fmt: skip
