"""The checks of the claims ledger, one module a mechanism."""

import importlib
import pkgutil

from workbench.study.checks.registry import CHECKS, VERDICTS, Check, Claim, Finding

__all__ = ["VERDICTS", "Check", "Claim", "Finding", "checks"]


def checks() -> dict[str, Check]:
    """Return claim -> its check; every module of the room registers its own, when first asked."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return CHECKS
