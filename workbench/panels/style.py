"""How panels look: labels as wide as their text, groups that wrap, the reader's theme."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets as widgets

from workbench.panels.controls import NumberSlider

ROW = {"display": "flex", "flex_flow": "row wrap", "width": "100%", "align_items": "stretch"}


class Sheet(anywidget.AnyWidget):
    """The style sheet; it takes no room."""

    _css = Path(__file__).parent / "panel.css"
    _esm = "export default { render() {} }"


def group(title: str, controls: Sequence[widgets.Widget]) -> widgets.VBox:
    """Return `controls` under a `title`, their labels aligned and wide enough for the longest."""
    inside = (widget for control in controls for widget in family(control))
    labels = [  # the words of a checkbox stand beside it, not in the column of labels
        w for w in inside if getattr(w, "description", "")
        and hasattr(w.style, "description_width") and not isinstance(w, widgets.Checkbox)
    ]  # fmt: skip
    # A letter is narrower than the digit that "ch" measures.
    width = math.ceil(0.85 * max((len(w.description) for w in labels), default=0)) + 1
    for widget in labels:
        widget.style.description_width = f"{width}ch"
    for control in controls:
        if isinstance(control, NumberSlider):
            control.box.layout.width = f"calc({width}ch + 72px)"
    head = widgets.HTML(f'<span class="wb-title">{title}</span>')
    box = widgets.VBox([head, *controls], layout={"flex": "1 1 300px", "overflow": "hidden"})
    box.add_class("wb-group")
    return box


def family(widget: widgets.Widget) -> Iterator[Any]:
    """Yield a widget and everything inside it."""
    yield widget
    for child in getattr(widget, "children", ()):
        yield from family(child)
