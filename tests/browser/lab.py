"""A real JupyterLab on loopback, and what a test asks of a notebook page in it."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
SCREENSHOTS = Path(__file__).parent / "screenshots"
WIDTH = 1400  # px of the window
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}

# The news prompt of a first start would cover the page.
_SETTINGS = {
    "@jupyterlab/apputils-extension/notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
    }
}
_KERNEL_IS_IDLE = (
    "() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status"
    " === 'idle'"
)
_ERROR_OUTPUTS = """() => Array.from(jupyterapp.shell.currentWidget.content.model.cells)
    .flatMap(cell => cell.type === 'code' ? cell.outputs.toJSON() : [])
    .filter(output => output.output_type === 'error')
    .map(output => output.ename + ': ' + output.evalue)"""

_TO_TOP = "() => { document.querySelector('.jp-WindowedPanel-outer').scrollTop = 0; }"
_NEEDED_HEIGHT = """() => { const cells = document.querySelectorAll('.jp-Notebook .jp-Cell');
    return Math.ceil(cells[cells.length - 1].getBoundingClientRect().bottom) + 50; }"""
_SETTLED = """quiet => new Promise(done => {
    let last = performance.now();
    const changes = {subtree: true, childList: true, attributes: true, characterData: true};
    const watch = new MutationObserver(() => { last = performance.now(); });
    watch.observe(document.querySelector('.jp-Notebook'), changes);
    const poll = setInterval(() => { if (performance.now() - last > quiet) {
        clearInterval(poll); watch.disconnect(); done(); } }, 50); })"""


@dataclass(frozen=True)
class Lab:
    """A running JupyterLab: its address, and the folder that it serves."""

    url: str
    root: Path

    def add(self, notebook: Path) -> str:
        """Copy `notebook` to a folder of its own, so that nothing is saved over; return its URL."""
        folder = self.root / str(time.time_ns())
        folder.mkdir()
        shutil.copy(notebook, folder)
        return f"{self.url}/lab/workspaces/{folder.name}/tree/{folder.name}/{notebook.name}?reset"


@contextlib.contextmanager
def serve(home: Path) -> Iterator[Lab]:
    """Run JupyterLab on a free loopback port with everything private to the folder `home`."""
    lab = Lab(f"http://127.0.0.1:{_free_port()}", home / "root")
    lab.root.mkdir()
    log = home / "lab.log"
    with log.open("w") as out:
        process = subprocess.Popen(_command(lab), env=_environment(home), stdout=out, stderr=out)
    try:
        _wait_until_up(lab.url, process, log)
        yield lab
    finally:
        process.terminate()
        process.wait(20)


def open_page(page: Page, url: str, theme: str) -> None:
    """Load the notebook at `url` in the "light" or "dark" `theme` and wait for its kernel."""
    page.goto(url)
    page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=60_000)
    page.wait_for_function(_KERNEL_IS_IDLE, timeout=60_000)
    set_theme(page, theme)


def run_all(page: Page, timeout: float = 120) -> None:
    """Run every cell as the Run menu does, within `timeout` s; fail on any error output."""
    page.evaluate("() => jupyterapp.commands.execute('notebook:run-all-cells')")
    page.wait_for_function(_KERNEL_IS_IDLE, timeout=timeout * 1000)
    errors = page.evaluate(_ERROR_OUTPUTS)
    assert not errors, errors


def set_theme(page: Page, theme: str) -> None:
    """Turn the page to the "light" or "dark" `theme`, as the Settings menu does."""
    change = "theme => jupyterapp.commands.execute('apputils:change-theme', {theme})"
    page.evaluate(change, THEMES[theme])
    shown = f"body[data-jp-theme-name='{THEMES[theme]}']"
    page.wait_for_selector(shown, state="attached", timeout=20_000)


def show_all(page: Page) -> None:
    """Make the window as high as the notebook: JupyterLab draws only cells that are in view."""
    for _ in range(5):  # heights of cells not yet drawn are guessed
        page.evaluate(_TO_TOP)
        settle(page)
        needed = page.evaluate(_NEEDED_HEIGHT)
        if page.viewport_size["height"] == needed:
            return
        page.set_viewport_size({"width": WIDTH, "height": needed})


def settle(page: Page, quiet_ms: int = 700) -> None:
    """Wait until the notebook has not changed for longer than a panel's pause for its details."""
    page.evaluate(_SETTLED, quiet_ms)


def close_page(page: Page) -> None:
    """Close `page` and end its kernel, which would otherwise keep a core busy for the next test."""
    page.evaluate("() => jupyterapp.serviceManager.sessions.shutdownAll()")
    page.close()


def screenshot(page: Page, name: str) -> Path:
    """Save what `page` shows as screenshots/`name`.png and return that path."""
    path = SCREENSHOTS / f"{name}.png"
    page.screenshot(path=path)
    return path


def _free_port() -> int:
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _command(lab: Lab) -> list[str]:
    port = lab.url.rsplit(":", 1)[1]
    as_root = ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    return [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", *as_root),
        *("--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0"),
        *(f"--ServerApp.root_dir={lab.root}", "--IdentityProvider.token="),
        *("--LabApp.expose_app_in_browser=True", "--LabApp.extension_manager=readonly"),
    ]


def _environment(home: Path) -> dict[str, str]:
    for plugin, values in _SETTINGS.items():
        file = home / "settings" / f"{plugin}.jupyterlab-settings"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(values))
    private = {
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "IPYTHONDIR": "ipython",
    }
    return {**os.environ, **{name: str(home / folder) for name, folder in private.items()}}


def _wait_until_up(url: str, process: subprocess.Popen, log: Path, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/api", timeout=1):
            return
        time.sleep(0.1)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()}")
