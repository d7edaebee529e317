"""Controls that ipywidgets lacks: a slider with a number box, and a choice in two steps."""

import math

import ipywidgets as widgets
import traitlets

from workbench.errors import SpecError, UnknownNameError


class NumberSlider(widgets.HBox):
    """A slider and a number box for one whole number; the box carries the label."""

    value = traitlets.Int()

    def __init__(self, label: str, value: int, low: int, high: int, log: bool = False):
        """Lay out both.

        Args:
            label: with the unit, "context [token]".
            value, low, high: whole numbers.
            log: the slider moves in quarters of a doubling.
        """
        self.box = widgets.BoundedIntText(
            value, min=low, max=high, description=label, layout={"flex": "0 0 auto"}
        )
        short = {"width": "auto", "flex": "1 1 60px", "margin": "2px 12px"}
        if log:
            ends = {"min": math.log2(low), "max": math.log2(high), "base": 2, "step": 0.25}
            self.slider = widgets.FloatLogSlider(value, readout=False, layout=short, **ends)
        else:
            self.slider = widgets.IntSlider(value, low, high, readout=False, layout=short)
        super().__init__([self.box, self.slider], value=value, layout={"width": "auto"})
        traitlets.link((self, "value"), (self.box, "value"))
        self.slider.observe(self._from_slider, "value")
        self.observe(self._to_slider, "value")

    @traitlets.validate("value")
    def _in_range(self, proposal):
        low, high = self.box.min, self.box.max
        if not low <= proposal["value"] <= high:
            given = proposal["value"]
            raise SpecError(f"{self.box.description}: {given} must be from {low} to {high}")
        return proposal["value"]

    def _from_slider(self, change) -> None:
        self.value = round(change["new"])

    def _to_slider(self, change) -> None:
        if round(self.slider.value) != change["new"]:
            self.slider.value = change["new"]


class GroupedChoice(widgets.VBox):
    """A long list in two steps: a group, then one of its members."""

    value = traitlets.Any()

    def __init__(self, labels: tuple[str, str], groups: dict[str, dict[str, str]], value: str):
        """Lay out both steps.

        Args:
            labels: of the group and of the member.
            groups: group -> text shown -> value.
            value: the first choice.
        """
        self.groups = groups
        wide = {"width": "auto"}
        self.group = widgets.Dropdown(options=list(groups), description=labels[0], layout=wide)
        self.member = widgets.Dropdown(description=labels[1], layout=wide)
        self.group.observe(lambda change: self._offer(change["new"]), "value")
        self._offer(self.group.value)
        super().__init__([self.group, self.member], value=value)
        self._to_member({"new": value})
        self.observe(self._to_member, "value")
        self.member.observe(self._from_member, "value")

    @traitlets.validate("value")
    def _known(self, proposal):
        known = [value for members in self.groups.values() for value in members.values()]
        if proposal["value"] not in known:
            raise UnknownNameError(self.member.description, proposal["value"], known)
        return proposal["value"]

    def _offer(self, group: str) -> None:
        self.member.options = list(self.groups[group].items())

    def _from_member(self, change) -> None:
        if change["new"] is not None:  # None while the options are being replaced
            self.value = change["new"]

    def _to_member(self, change) -> None:
        wanted = change["new"]
        if self.member.value == wanted:
            return
        group = next(g for g, members in self.groups.items() if wanted in members.values())
        self.group.value = group
        self.member.value = wanted
