"""A control that walks through recorded steps: one at a time, by itself, or to the end."""

import ipywidgets as widgets
import traitlets

from workbench.panels.controls import NumberSlider

_FRAME_MS = 400


class Stepper(widgets.VBox):
    """A slider of steps with buttons that say what they do, and a player."""

    value = traitlets.Int()

    def __init__(self, label: str, value: int, last: int, end: str):
        """Lay out all of it.

        Args:
            label: of the number box.
            value, last: step at first, and the last one; the first is 0.
            end: what the button that goes to the last step says.
        """
        self.number = NumberSlider(label, value, 0, last)
        self.number.box.layout.width = "130px"
        self.player = widgets.Play(
            value=value,
            min=0,
            max=last,
            interval=_FRAME_MS,
            show_repeat=False,
            tooltip="Play, pause, stop: walk through the steps without clicking",
        )
        widgets.jslink((self.player, "value"), (self.number.slider, "value"))
        buttons = [
            self._button(*each)
            for each in (("Back", -1), ("Step", 1), (end, last), ("Start", -last))
        ]
        row = widgets.HBox([*buttons, self.player], layout={"flex_flow": "row wrap"})
        super().__init__([self.number, row], value=value)
        traitlets.link((self, "value"), (self.number, "value"))

    def extend(self, last: int) -> None:
        """Let the steps end at `last`."""
        self.value = min(self.value, last)
        self.number.box.max = self.number.slider.max = self.player.max = last

    def _button(self, text: str, by: int) -> widgets.Button:
        button = widgets.Button(description=text, layout={"width": "auto"})
        button.on_click(lambda _: self._go(by))
        return button

    def _go(self, by: int) -> None:
        self.value = min(max(self.value + by, 0), self.number.box.max)
