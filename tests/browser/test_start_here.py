"""The start notebook as a reader meets it: keyboard only, no wait, all there after a reload."""

import os
import statistics

import nbformat
import pytest
from playwright.sync_api import expect

from tests.browser.lab import NOTEBOOKS, settle
from tests.browser.look import shapes, wait_for_other_shapes

pytestmark = pytest.mark.browser

PANEL = ".jp-OutputArea-output:has(.wb-tiles)"
BARE = ".jp-OutputArea-output:has(#bare)"
BARE_CELL = """import ipywidgets as widgets
bare, answer = widgets.IntSlider(max=1000), widgets.HTML('<span id="bare">0</span>')
bare.observe(lambda c: setattr(answer, "value", f'<span id="bare">{c.new}</span>'), "value")
widgets.VBox([bare, answer])"""
#: From a key press to the frame in which the first change of `target` is seen.
STOPWATCH = """target => { window.took = new Promise(done => {
    let start;
    addEventListener('keydown', () => { start = performance.now() }, {once: true, capture: true});
    const watch = new MutationObserver(() => {
        watch.disconnect();
        requestAnimationFrame(() => setTimeout(() => done(performance.now() - start))); });
    watch.observe(document.querySelector(target),
        {subtree: true, childList: true, attributes: true, characterData: true}); }) }"""


@pytest.fixture
def page(open_notebook, tmp_path):
    """The first cells of the start notebook, up to its panel, and a bare slider to compare with."""
    content = nbformat.read(NOTEBOOKS / "00-start-here.ipynb", as_version=4)
    last = next(i for i, cell in enumerate(content.cells) if cell.id == "panel")
    content.cells[last + 1 :] = [nbformat.v4.new_code_cell(BARE_CELL)]
    nbformat.write(content, tmp_path / "start.ipynb")
    page = open_notebook(tmp_path / "start.ipynb")
    page.wait_for_selector(f"{PANEL} .barlayer path", timeout=60_000)
    return page


def test_keyboard_speed_and_reload(page):
    [before] = shapes(page)
    said = page.locator(f"{PANEL} [role=status]")
    spoken = said.inner_text()
    context = page.locator(PANEL).get_by_role("slider").first
    context.focus()
    for _ in range(8):
        page.keyboard.press("ArrowRight")
    wait_for_other_shapes(page, 0, before)
    box = page.get_by_label("context [token]").and_(page.locator("input"))
    expect(box).to_have_value("16384")
    expect(said).not_to_have_text(spoken)
    print_redraw(page)
    settle(page)
    [last] = shapes(page)
    page.evaluate("() => jupyterapp.commands.execute('docmanager:save')")
    page.reload()
    page.wait_for_selector(f"{PANEL} .barlayer path", timeout=60_000)
    settle(page)
    assert shapes(page) == [last]  # the notebook has its outputs, the kernel the figure


def print_redraw(page, rounds=4):
    """Print the time of a redraw beside a bare label's round trip, in alternating rounds of one run.

    Issue 2 asks for three times at most. The redraw needs both cores, so that it suffers more from whatever else runs.
    """
    targets = {BARE: ":has(> #bare)", PANEL: f"{PANEL} .barlayer"}
    took = {output: [] for output in targets}
    for _ in range(rounds):
        for output, target in targets.items():
            took[output] += moves_ms(page, output, target)
    bare, panel = (statistics.quantiles(times, n=4) for times in took.values())
    pairs = zip(panel, bare, strict=True)
    print("quartiles in ms:", *(f"redraw {p:.0f} / bare {b:.0f} = {p / b:.2f}," for p, b in pairs))
    print("load of the machine:", *os.getloadavg())


def moves_ms(page, output, target, moves=7):
    """Return the time of each of some moves in a row, the way a reader drags; the first warms up.

    They are closer together than the pause after which the panel works out its fixes.
    """
    settle(page)
    page.locator(output).get_by_role("slider").first.focus()
    took = []
    for i in range(moves):
        page.wait_for_timeout(100)
        took.append(press_ms(page, target, "ArrowLeft" if i % 2 else "ArrowRight"))
    return took[1:]


def press_ms(page, target, key):
    """Return the time from the press of `key` to the frame that shows `target` changed."""
    page.evaluate(STOPWATCH, target)
    page.keyboard.press(key)
    return page.evaluate("() => window.took")
