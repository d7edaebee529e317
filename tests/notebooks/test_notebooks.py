"""Every notebook runs top to bottom, in JupyterLab where there is a browser, and none is kept with its outputs."""

import os
import time
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
HANG_S = 180  # one cell, on a machine that does much else

HAS_BROWSER = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium")).exists()

every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@pytest.mark.notebook
@pytest.mark.skipif(HAS_BROWSER, reason="tests/browser runs it in JupyterLab")
@every_notebook
def test_runs(path, tmp_path):
    """Runs in an empty folder, so that no notebook leans on where it was started."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=HANG_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
        store_widget_state=False,
    )
    start = time.monotonic()
    client.execute()
    print(f"{path.name}: {time.monotonic() - start:.1f} s (a reader waits 60)")


@every_notebook
def test_is_kept_stripped(path):
    """With a named kernel, too: JupyterLab stops to ask for one otherwise."""
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not [cell.source for cell in code if cell.outputs or cell.execution_count], "make fix"
    assert "widgets" not in notebook.metadata, "make fix"
    assert notebook.metadata.kernelspec.name == "python3"
