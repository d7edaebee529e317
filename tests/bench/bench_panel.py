"""Print what one change of a control costs the kernel, for every panel."""

import importlib
import inspect
import pkgutil
import statistics
import time

import ipywidgets as widgets

from workbench import panels
from workbench.panels.panel import Panel

LIMIT_MS = 50  # 15 for the panel of the first notebook
RUNS = 7


def panel_classes() -> list[type[Panel]]:
    """Return every Panel that opens without a model file, once each."""
    rooms = [
        importlib.import_module(f"workbench.panels.{m.name}")
        for m in pkgutil.iter_modules(panels.__path__)
    ]
    found = [kind for room in rooms for _, kind in inspect.getmembers(room, inspect.isclass)]
    panels_found = {k for k in found if issubclass(k, Panel) and k is not Panel}
    alone = {k for k in panels_found if "path" not in inspect.signature(k).parameters}
    return sorted(alone, key=lambda k: k.__name__)


def moves(control) -> list:
    """Return two values that the control can take, or none if it is no slider and no choice."""
    if isinstance(control, widgets.SelectionSlider | widgets.Dropdown | widgets.ToggleButtons):
        return [value for _, value in control._options_full][:2]
    if isinstance(control, widgets.Checkbox):
        return [True, False]
    if hasattr(control, "min") and hasattr(control, "max"):
        return [control.min, control.max]
    return []


def change_ms(panel: Panel, name: str) -> float:
    """Return the median milliseconds that a change of the control takes."""
    control, took = panel._controls[name], []
    values = moves(control)
    for run in range(RUNS):
        start = time.perf_counter()
        control.value = values[run % 2]
        took.append((time.perf_counter() - start) * 1e3)
    panel.flush()
    return statistics.median(took)


def main() -> None:
    for kind in panel_classes():
        start = time.perf_counter()
        panel = kind()
        opened = time.perf_counter() - start
        names = [name for name, control in panel._controls.items() if len(moves(control)) == 2]
        each = {name: change_ms(panel, name) for name in names}
        slowest = max(each, key=each.get, default="")
        print(
            f"{kind.__name__}: opens in {opened:.2f} s; slowest of {len(each)} controls: "
            f"{slowest} {each.get(slowest, 0):.1f} ms (limit {LIMIT_MS})"
        )
        panel.close()


if __name__ == "__main__":
    main()
