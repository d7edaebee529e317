"""Questions to the reader: guess before it is revealed, or work a number out and check it."""

import html
from collections.abc import Sequence

import ipywidgets as widgets

from workbench.panels import style


def check(question: str, answer: float, tolerance: float = 0.02, hint: str = "") -> widgets.VBox:
    """Ask for a number and say whether it is right.

    Args:
        question: plain text, with the unit wanted.
        answer: the right number.
        tolerance: how far off still counts, as a fraction of the answer.
        hint: plain text shown after a wrong answer.
    """
    box = widgets.FloatText(value=0, description="Your answer", layout={"width": "auto"})
    box.style.description_width = "initial"
    button, reply = _button("Check"), widgets.HTML()

    def judge(_=None):
        right = abs(box.value - answer) <= tolerance * abs(answer)
        wrong = f"Not yet: {box.value:g}. {hint}".strip()
        reply.value = _reply(f"Right: {answer:.4g}." if right else wrong, right)

    button.on_click(judge)
    return _view(question, [widgets.HBox([box, button])], reply)


def guess(question: str, options: Sequence[str], answer: str, why: str) -> widgets.VBox:
    """Ask for a prediction before anything is revealed, then say what happens and why.

    Args:
        question: plain text.
        options: what may be chosen; nothing is chosen at first.
        answer: the option that is right.
        why: plain text shown with the answer.
    """
    if answer not in options:
        raise ValueError(f"answer {answer!r} is not one of the options {list(options)}")
    choice = widgets.RadioButtons(options=options, value=None, layout={"width": "auto"})
    button, reply = _button("Reveal"), widgets.HTML()
    button.disabled = True
    choice.observe(lambda change: setattr(button, "disabled", change["new"] is None), "value")

    def reveal(_=None):
        right = choice.value == answer
        reply.value = _reply(f"{'Yes' if right else 'No'}: {answer}. {why}", right)

    button.on_click(reveal)
    return _view(question, [choice, widgets.HBox([button])], reply)


def _button(text: str) -> widgets.Button:
    return widgets.Button(description=text, layout={"width": "auto"})


def _reply(text: str, right: bool) -> str:
    look = "wb-good" if right else "wb-alert"
    return f'<div role="status" class="{look}">{html.escape(text)}</div>'


def _view(question: str, controls: list[widgets.Widget], reply: widgets.HTML) -> widgets.VBox:
    text = widgets.HTML(f'<span class="wb-title">{html.escape(question)}</span>')
    box = widgets.VBox([style.Sheet(), text, *controls, reply], layout={"overflow": "hidden"})
    box.add_class("wb-group")
    return box
