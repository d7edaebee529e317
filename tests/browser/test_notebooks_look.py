"""The token ledger, the capacity and the scoreboard notebook as a reader meets them."""

import pytest
from playwright.sync_api import expect

from tests.browser import lab as jupyter
from tests.browser.lab import screenshot

pytestmark = pytest.mark.browser

#: notebook -> label of a number box of its panel, which an arrow key moves, or of a list.
CONTROLS = {
    "01-token-ledger": "share of bandwidth",
    "06-capacity": "limit [GiB]",
    "scoreboard": "predicted",
}
PANEL = ".jp-OutputArea-output:has(.wb-group):has(.js-plotly-plot)"
#: Shapes and places of a panel's figure: what a control must change.
SHOWN = """panel => { const all = Array.from(document.querySelector(panel)
    .querySelectorAll('.scatterlayer path, .barlayer path'));
    return all.map(e => (e.getAttribute('d') || '') + (e.getAttribute('transform') || '')
        ).join(); }"""
CLIPPED = """() => Array.from(document.querySelectorAll(
    '.widget-label, select, button, .wb-tile, .wb-table'))
    .filter(e => e.offsetParent && e.scrollWidth > e.clientWidth + 1)
    .map(e => `${e.className}: ${e.innerText} ${e.scrollWidth} > ${e.clientWidth}`)"""
WIDER_THAN_CELL = """() => Array.from(document.querySelectorAll('.jp-OutputArea-output'))
    .filter(e => e.scrollWidth > e.clientWidth + 1)
    .map(e => `${e.innerText.slice(0, 60)} ${e.scrollWidth} > ${e.clientWidth}`)"""
OUTSIDE = """() => Array.from(document.querySelectorAll('.js-plotly-plot')).flatMap(plot => {
    const box = plot.getBoundingClientRect();
    return Array.from(plot.querySelectorAll('.main-svg text')).filter(e => e.textContent.trim())
        .map(e => [e.textContent, e.getBoundingClientRect()])
        .filter(([_, b]) => b.right > box.right + 1 || b.left < box.left - 1
            || b.bottom > box.bottom + 1 || b.top < box.top - 1)
        .map(([s, b]) => `${s} ${Math.round(b.left)}..${Math.round(b.right)}`
            + ` of ${Math.round(box.left)}..${Math.round(box.right)}`); })"""
OVERLAPS = """() => Array.from(document.querySelectorAll('.js-plotly-plot')).flatMap(plot => {
    const texts = Array.from(plot.querySelectorAll('.main-svg text'))
        .filter(e => e.textContent.trim() && e.getBoundingClientRect().width)
        .map(e => [e.textContent, e.getBoundingClientRect()]);
    const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
        && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
    return texts.flatMap(([s, a], i) => texts.slice(i + 1)
        .filter(([_, b]) => meet(a, b)).map(([t, _]) => `${s} | ${t}`)); })"""


LOOK = {"clipped": CLIPPED, "outside": OUTSIDE, "overlaps": OVERLAPS, "wide": WIDER_THAN_CELL}
IDS = "() => Array.from(jupyterapp.shell.currentWidget.content.model.cells).map(c => c.id)"
#: JupyterLab draws only the cells that are in view.
GO_TO = """i => { const content = jupyterapp.shell.currentWidget.content;
    content.activeCellIndex = i; return content.scrollToItem(i, 'start'); }"""
#: anywidget gives a model 2 s; a busy machine needs more to read 5 MB of plotly.js, and gets it.
SLOW = "[anywidget] Failed to initialize model."


@pytest.fixture
def open_notebook(browser, lab):
    """As the shared fixture, but a slow start of Plotly is no error."""
    pages, errors = [], []

    def open_(name, theme):
        page = browser.new_page(viewport={"width": 1400, "height": 1500})
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
        pages.append(page)
        jupyter.open_page(page, lab.add(jupyter.NOTEBOOKS / f"{name}.ipynb"), theme)
        jupyter.run_all(page)
        return page

    yield open_
    for page in pages:
        jupyter.close_page(page)
    assert not [error for error in errors if SLOW not in error]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", CONTROLS)
def test_notebook_is_legible_and_reacts(open_notebook, name, theme):
    page = open_notebook(name, theme)
    cells = page.evaluate(IDS)
    for index, cell in enumerate(cells):
        page.evaluate(GO_TO, index)
        page.wait_for_timeout(300)
        if cell == "panel":
            page.wait_for_selector(f"{PANEL} .scatterlayer path", state="attached", timeout=60_000)
            page.wait_for_timeout(1500)
            screenshot(page, f"{name}-{theme}")
        wrong = {what: page.evaluate(js) for what, js in LOOK.items()}
        assert not any(wrong.values()), (cell, wrong)
    page.evaluate(GO_TO, cells.index("panel"))
    assert_panel_reacts(page, CONTROLS[name])


def assert_panel_reacts(page, label):
    """A change of a control changes the figure and the sentence, and raises no alert."""
    said = page.locator(f"{PANEL} [role=status]").first
    shown, before = page.evaluate(SHOWN, PANEL), said.inner_text()
    control = page.locator(PANEL).get_by_label(label).and_(page.locator("input, select")).first
    if control.evaluate("e => e.tagName") == "SELECT":
        control.select_option(index=1)
    else:
        control.press("ArrowUp")
        control.blur()
    page.wait_for_function(f"([old, panel]) => ({SHOWN})(panel) !== old", arg=[shown, PANEL])
    expect(said).not_to_have_text(before)
    assert page.locator(f"{PANEL} [role=alert]").count() == 0
