"""`python -m workbench` is the command `workbench`."""

from workbench.cli import app

app(prog_name="workbench")
