"""Fixtures of the browser tests: one JupyterLab and one Chromium a session, one page a notebook."""

import os
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from tests.browser import lab as jupyter

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
# No sandbox, since CI is root; the rest keeps Chromium from calling home.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def browser():
    """Chromium, headless; without it the tests are skipped, except in CI, where they fail.

    All pages share one profile, so that JupyterLab's own files are read once.
    """
    if not Path(CHROMIUM).exists():
        stop = pytest.fail if os.environ.get("CI") else pytest.skip
        stop(f"no Chromium at {CHROMIUM}: apt install chromium, or set CHROMIUM=/path/to/it")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium.new_context(viewport={"width": jupyter.WIDTH, "height": 1100})
        chromium.close()


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    """A running JupyterLab that serves copies only."""
    with jupyter.serve(tmp_path_factory.mktemp("lab")) as running:
        yield running


@pytest.fixture
def open_notebook(browser, lab):
    """Return open(name, theme="light") -> page: a notebook of notebooks/, or a path, all cells run.

    An error in any cell fails at once; one in the browser's console fails when the test ends,
    unless closing the page caused it: what JupyterLab still asks of a kernel is then cancelled.
    """
    pages, errors = [], []

    def open_(name, theme="light"):
        page = browser.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
        pages.append(page)
        jupyter.open_page(page, lab.add(jupyter.NOTEBOOKS / name), theme)
        jupyter.run_all(page)
        return page

    yield open_
    before_closing = list(errors)
    for page in pages:
        jupyter.close_page(page)
    assert not before_closing, before_closing
