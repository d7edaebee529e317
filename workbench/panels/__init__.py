"""Widgets around figures; what a notebook needs of them."""

from workbench.panels.job import Job
from workbench.panels.quiz import check, guess
from workbench.panels.start import StartPanel

__all__ = ["Job", "StartPanel", "check", "guess"]
