"""The browser fixtures themselves: a notebook opens, runs, reacts and shows both themes."""

import nbformat
import pytest
from playwright.sync_api import expect

from tests.browser.lab import screenshot

pytestmark = pytest.mark.browser

PYTHON = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
DOUBLER = """import ipywidgets as widgets
slider = widgets.IntSlider(value=1, max=10, description="k")
answer = widgets.HTML()
slider.observe(lambda change: setattr(answer, "value", f"twice k is {2 * change.new}"), "value")
widgets.VBox([slider, answer])"""


@pytest.fixture
def notebook(tmp_path):
    """Return write(source) -> path of a notebook with that one code cell."""

    def write(source):
        path = tmp_path / "tiny.ipynb"
        cells = [nbformat.v4.new_code_cell(source)]
        nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=PYTHON), path)
        return path

    return write


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_slider_answers_in_both_themes(open_notebook, notebook, theme):
    page = open_notebook(notebook(DOUBLER), theme)
    slider = page.get_by_role("slider").first
    slider.focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_text("twice k is 4")).to_be_visible()
    is_light = page.locator("body").get_attribute("data-jp-theme-light")
    assert is_light == ("true" if theme == "light" else "false")
    assert screenshot(page, f"tiny-{theme}").stat().st_size > 10_000


def test_error_in_a_cell_fails(open_notebook, notebook):
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        open_notebook(notebook("1 / 0"))
