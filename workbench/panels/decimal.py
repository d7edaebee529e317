"""A slider with a number box for a number with decimals."""

import ipywidgets as widgets
import traitlets

from workbench.panels.controls import NumberSlider


class DecimalSlider(NumberSlider):
    """As NumberSlider, in even steps."""

    value = traitlets.Float()

    def __init__(self, label: str, value: float, low: float, high: float, step: float):
        """Lay out both.

        Args:
            label: with the unit, "fixed time [ms]".
            value, low, high, step: numbers.
        """
        self.step = step
        self.box = widgets.BoundedFloatText(
            value, min=low, max=high, step=step, description=label, layout={"flex": "0 0 auto"}
        )
        short = {"width": "auto", "flex": "1 1 60px", "margin": "2px 12px"}
        self.slider = widgets.FloatSlider(
            value, min=low, max=high, step=step, readout=False, layout=short
        )
        widgets.HBox.__init__(self, [self.box, self.slider], value=value, layout={"width": "auto"})
        traitlets.link((self, "value"), (self.box, "value"))
        self.slider.observe(self._from_slider, "value")
        self.observe(self._to_slider, "value")

    def clip(self, value: float) -> float:
        """Return the nearest value that the slider can show; a browser would move it there."""
        low, step = self.box.min, self.step
        value = min(max(value, low), self.box.max)
        return round(low + round((value - low) / step) * step, 3)

    def widen(self, high: float) -> None:
        """Let the range end at `high`."""
        self.box.max = self.slider.max = high

    def _from_slider(self, change) -> None:
        self.value = round(change["new"], 3)

    def _to_slider(self, change) -> None:
        if round(self.slider.value, 3) != change["new"]:
            self.slider.value = change["new"]
