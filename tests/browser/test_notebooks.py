"""Every notebook as a reader meets it: nothing cut off in either theme, and panels that answer.

A new notebook is taken in by itself.
"""

import pytest
from playwright.sync_api import expect

from tests.browser.lab import NOTEBOOKS, screenshot, set_theme, settle, show_all
from tests.browser.look import PANEL, faults, shapes, wait_for_other_shapes

pytestmark = pytest.mark.browser

NAMES = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))


@pytest.mark.parametrize("name", NAMES)
def test_notebook_is_legible_and_reacts(open_notebook, name):
    page = open_notebook(f"{name}.ipynb")
    show_all(page)
    assert_legible(page, name, "light")
    for panel in range(page.locator(PANEL).count()):
        assert_reacts(page, panel)
    set_theme(page, "dark")
    settle(page)
    assert_legible(page, name, "dark")


def assert_legible(page, name, theme):
    """No fault anywhere; keep a picture of the whole notebook."""
    screenshot(page, f"{name}-{theme}")
    assert faults(page) == {}


def assert_reacts(page, number):
    """The first slider, else the first list, changes the figure and the sentence, not the alert."""
    panel = page.locator(PANEL).nth(number)
    said = panel.locator("[role=status]").first
    drawn, before = shapes(page)[number], said.inner_text()
    slider = panel.get_by_role("slider")
    if slider.count():
        slider.first.press("ArrowRight")
    else:
        panel.locator("select").first.select_option(index=1)
    wait_for_other_shapes(page, number, drawn)
    expect(said).not_to_have_text(before)
    assert panel.locator("[role=alert]").count() == 0
