"""The token ledger, the capacity and the scoreboard notebook as a reader meets them."""

import pytest

from tests.browser.lab import screenshot

pytestmark = pytest.mark.browser

#: notebook -> label of a slider or dropdown of its panel, key that moves it.
CONTROLS = {
    "01-token-ledger": ("share of bandwidth", "ArrowUp"),
    "06-capacity": ("context [token]", "ArrowUp"),
    "scoreboard": ("predicted", "ArrowDown"),
}
PANEL = ".jp-OutputArea-output:has(.wb-group):has(.js-plotly-plot)"
#: Text and shapes of a panel's figure: what a control must change.
SHOWN = """panel => { const all = Array.from(document.querySelector(panel)
    .querySelectorAll('.plot path, .plot text'));
    return all.map(e => (e.getAttribute('d') || '') + (e.getAttribute('transform') || '')
        + e.textContent).join(); }"""
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


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", CONTROLS)
def test_notebook_reacts_and_is_legible(open_notebook, name, theme):
    page = open_notebook(f"{name}.ipynb", theme)
    page.set_viewport_size({"width": 1400, "height": 1700})
    page.wait_for_selector(f"{PANEL} .plot path", timeout=60_000)
    page.locator(PANEL).scroll_into_view_if_needed()
    page.wait_for_timeout(1500)
    screenshot(page, f"{name}-{theme}")
    assert page.evaluate(CLIPPED) == []
    assert page.evaluate(OUTSIDE) == []
    assert page.evaluate(OVERLAPS) == []
    assert page.evaluate(WIDER_THAN_CELL) == []
    shown, said = page.evaluate(SHOWN, PANEL), page.locator(f"{PANEL} [role=status]").inner_text()
    label, key = CONTROLS[name]
    control = page.locator(PANEL).get_by_label(label).and_(page.locator("input, select")).first
    control.focus()
    page.keyboard.press(key)
    control.blur()
    page.wait_for_function(f"([old, panel]) => ({SHOWN})(panel) !== old", arg=[shown, PANEL])
    assert page.locator(f"{PANEL} [role=status]").inner_text() != said
    assert page.locator(f"{PANEL} [role=alert]").count() == 0
