"""The start notebook as a reader meets it: both themes, keyboard only, nothing clipped, no wait."""

import statistics

import nbformat
import pytest
from playwright.sync_api import expect

from tests.browser.lab import NOTEBOOKS, screenshot

pytestmark = pytest.mark.browser

PANEL = ".jp-OutputArea-output:has(.wb-tiles)"
BARE = ".jp-OutputArea-output:has(#bare)"
BARE_CELL = """import ipywidgets as widgets
bare, answer = widgets.IntSlider(max=1000), widgets.HTML('<span id="bare">0</span>')
bare.observe(lambda c: setattr(answer, "value", f'<span id="bare">{c.new}</span>'), "value")
widgets.VBox([bare, answer])"""
SHAPES = """panel => Array.from(document.querySelector(panel)
    .querySelectorAll('.scatterlayer path.js-line, .barlayer path'))
    .map(path => path.getAttribute('d')).join()"""
CLIPPED = """panel => Array.from(document.querySelector(panel)
    .querySelectorAll('.widget-label, select, button, .wb-tile, .wb-table, .wb-command'))
    .filter(e => e.offsetParent && e.scrollWidth > e.clientWidth + 1)
    .map(e => `${e.className}: ${e.innerText} ${e.scrollWidth} > ${e.clientWidth}`)"""
WIDER_THAN_CELL = """() => Array.from(document.querySelectorAll('.jp-OutputArea-output'))
    .filter(e => e.scrollWidth > e.clientWidth + 1)
    .map(e => `${e.innerText.slice(0, 60)} ${e.scrollWidth} > ${e.clientWidth}`)"""
OVERLAPS = """panel => {
    const texts = Array.from(document.querySelector(panel).querySelectorAll('.main-svg text'))
        .filter(e => e.textContent.trim()).map(e => [e.textContent, e.getBoundingClientRect()]);
    const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
        && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
    return texts.flatMap(([s, a], i) => texts.slice(i + 1)
        .filter(([_, b]) => meet(a, b)).map(([t, _]) => `${s} | ${t}`)); }"""
#: From a key press to the frame in which the first change of `target` is seen.
STOPWATCH = """target => { window.took = new Promise(done => {
    let start;
    addEventListener('keydown', () => { start = performance.now() }, {once: true, capture: true});
    const watch = new MutationObserver(() => {
        watch.disconnect();
        requestAnimationFrame(() => setTimeout(() => done(performance.now() - start))); });
    watch.observe(document.querySelector(target),
        {subtree: true, childList: true, attributes: true, characterData: true}); }) }"""


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    """The start notebook with a bare slider at its end, to compare with."""
    content = nbformat.read(NOTEBOOKS / "00-start-here.ipynb", as_version=4)
    content.cells.append(nbformat.v4.new_code_cell(BARE_CELL))
    path = tmp_path_factory.mktemp("start") / "start.ipynb"
    nbformat.write(content, path)
    return path


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_start_here(open_notebook, notebook, theme):
    page = open_notebook(notebook, theme)
    page.set_viewport_size({"width": 1400, "height": 1700})
    page.wait_for_selector(f"{PANEL} .barlayer path", timeout=60_000)
    context = page.locator(PANEL).get_by_role("slider").first
    context.scroll_into_view_if_needed()
    shapes, said = page.evaluate(SHAPES, PANEL), page.locator(f"{PANEL} [role=status]").inner_text()
    context.focus()
    for _ in range(8):
        page.keyboard.press("ArrowRight")
    page.wait_for_function(f"([old, panel]) => ({SHAPES})(panel) !== old", arg=[shapes, PANEL])
    box = page.get_by_label("context [token]").and_(page.locator("input"))
    expect(box).to_have_value("16384")
    page.wait_for_timeout(1500)  # the fixes follow after a pause
    assert page.locator(f"{PANEL} [role=status]").inner_text() != said
    assert screenshot(page, f"start-here-{theme}").stat().st_size > 50_000
    assert page.evaluate(CLIPPED, PANEL) == []
    assert page.evaluate(OVERLAPS, PANEL) == []
    assert page.evaluate(WIDER_THAN_CELL) == []
    if theme == "light":
        print_redraw(page)


def print_redraw(page, rounds=4):
    """Print the time of a redraw beside a bare label's round trip, in alternating rounds of one run.

    Issue 2 asks for three times at most; an idle two-core machine shows 3.5 to 4.4, so this is a figure to bring
    down, not yet a line to hold.
    """
    targets = {BARE: ":has(> #bare)", PANEL: f"{PANEL} .barlayer"}
    took = {output: [] for output in targets}
    for _ in range(rounds):
        for output, target in targets.items():
            took[output] += moves_ms(page, output, target)
    bare, panel = (statistics.quantiles(times, n=4) for times in took.values())
    pairs = zip(panel, bare, strict=True)
    print("quartiles in ms:", *(f"redraw {p:.0f} / bare {b:.0f} = {p / b:.2f}," for p, b in pairs))


def moves_ms(page, output, target, moves=6):
    """Return the time of each of some moves in a row, the way a reader drags; the first warms up.

    They are closer together than the pause after which the panel works out its fixes.
    """
    page.wait_for_timeout(800)
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
