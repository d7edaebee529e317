"""What a reader would call broken in a page: words cut off, words on words, figures too wide."""

from playwright.sync_api import Page

#: A panel: controls and a live figure.
PANEL = ".jp-OutputArea-output:has(.wb-group):has(.js-plotly-plot)"

_CLIPPED = """() => Array.from(document.querySelectorAll(
    '.widget-label, select, button, .wb-tile, .wb-table, .wb-command'))
    .filter(e => e.offsetParent && e.scrollWidth > e.clientWidth + 1)
    .map(e => `${e.className}: ${e.innerText} ${e.scrollWidth} > ${e.clientWidth}`)"""
_WIDER_THAN_CELL = """() => Array.from(document.querySelectorAll('.jp-OutputArea-output'))
    .filter(e => e.scrollWidth > e.clientWidth + 1)
    .map(e => `${e.innerText.slice(0, 60)} ${e.scrollWidth} > ${e.clientWidth}`)"""
_OUTSIDE = """() => Array.from(document.querySelectorAll('.js-plotly-plot')).flatMap(plot => {
    const box = plot.getBoundingClientRect();
    return Array.from(plot.querySelectorAll('.main-svg text')).filter(e => e.textContent.trim())
        .map(e => [e.textContent, e.getBoundingClientRect()])
        .filter(([_, b]) => b.right > box.right + 1 || b.left < box.left - 1
            || b.bottom > box.bottom + 1 || b.top < box.top - 1)
        .map(([s, b]) => `${s} ${Math.round(b.left)}..${Math.round(b.right)}`
            + ` of ${Math.round(box.left)}..${Math.round(box.right)}`); })"""
_OVERLAPPING = """() => Array.from(document.querySelectorAll('.js-plotly-plot')).flatMap(plot => {
    const texts = Array.from(plot.querySelectorAll('.main-svg text'))
        .filter(e => e.textContent.trim() && e.getBoundingClientRect().width)
        .map(e => [e.textContent, e.getBoundingClientRect()]);
    const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
        && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
    return texts.flatMap(([s, a], i) => texts.slice(i + 1)
        .filter(([_, b]) => meet(a, b)).map(([t, _]) => `${s} | ${t}`)); })"""
_FAULTS = {
    "clipped": _CLIPPED,
    "wider than the cell": _WIDER_THAN_CELL,
    "outside the figure": _OUTSIDE,
    "overlapping": _OVERLAPPING,
}
#: Shapes and places of every live figure: what a control must change.
_SHAPES = """panel => Array.from(document.querySelectorAll(panel)).map(output =>
    Array.from(output.querySelectorAll('.main-svg .trace path, .main-svg .points path, image'))
        .map(e => (e.getAttribute('d') ?? e.getAttribute('href') ?? '')
            + (e.getAttribute('transform') ?? '')).join())"""


def faults(page: Page) -> dict[str, list[str]]:
    """Return what is wrong with the page as it stands, by kind."""
    found = {kind: page.evaluate(script) for kind, script in _FAULTS.items()}
    return {kind: wrong for kind, wrong in found.items() if wrong}


def shapes(page: Page) -> list[str]:
    """Return for each panel what its figure shows."""
    return page.evaluate(_SHAPES, PANEL)


def wait_for_other_shapes(page: Page, panel: int, before: str) -> None:
    """Wait until the figure of the n-th panel shows something else than `before`."""
    changed = f"([before, panel, i]) => ({_SHAPES})(panel)[i] !== before"
    page.wait_for_function(changed, arg=[before, PANEL, panel], timeout=20_000)
