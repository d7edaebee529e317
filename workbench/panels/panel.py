"""What every panel shares: controls around one live figure that never blinks nor hides an error."""

import contextlib
import html
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import ipywidgets as widgets
import plotly.graph_objects as go
import traitlets
import xarray as xr

from workbench.errors import SpecError, UnknownNameError, WorkbenchError
from workbench.panels import style
from workbench.panels.plot import Plot

# Callbacks run on a thread of their own in JupyterLab >= 4.4, details on a timer's: one at a time.
_REDRAW = threading.RLock()
_OPEN: dict[str, "Panel"] = {}
PAUSE_S = 0.3  # after the last change, before the slow part is worked out


class Panel:
    """Controls in named groups, one figure and a sentence that says what it shows.

    A subclass says what its controls are (`controls`), what they ask (`compute`), and how the
    answer looks (`figure`, `draw`, `status`); it may add a slow part (`details`, shown by
    `below`), and controls that depend on others (`adapt`).

    `panel.set(context=8192)` drives it from code, `panel.data` is the Dataset shown,
    `panel.to_code()` the lines that compute it in a script. As the last line of a cell it shows
    itself; running that cell again closes the view before.
    """

    def __init__(self):
        if before := _OPEN.pop(type(self).__name__, None):
            before.close()
        self.groups = self.controls()
        self._controls: dict[str, Any] = {
            name: control for group in self.groups.values() for name, control in group.items()
        }
        self._quiet, self._timer = False, None
        self._alert, self._status = widgets.HTML(), widgets.HTML()
        self.data: xr.Dataset | None = None
        self.widget: Plot | None = None
        self._fig = self.figure()
        self.redraw()
        self.widget = Plot(self._fig)
        self.view = self._layout()
        for name, control in self._controls.items():
            control.observe(lambda change, name=name: self._changed(name), "value")
        self.flush()
        _OPEN[type(self).__name__] = self

    def controls(self) -> dict[str, dict[str, widgets.Widget]]:
        """Return title of a group -> name -> control with a `value`."""
        raise NotImplementedError

    def compute(self, **values) -> xr.Dataset:
        """Return what the values of the controls ask for."""
        raise NotImplementedError

    def figure(self) -> go.Figure:
        """Return the figure with all its traces, still empty; called once."""
        raise NotImplementedError

    def draw(self, fig: go.Figure, ds: xr.Dataset) -> None:
        """Refill the traces of `fig`; what is different reaches the browser in one message."""
        raise NotImplementedError

    def status(self, ds: xr.Dataset) -> str:
        """Return what is shown, in a sentence of plain text."""
        raise NotImplementedError

    def to_code(self) -> str:
        """Return the lines that compute `data` in a script."""
        raise NotImplementedError

    def headline(self, ds: xr.Dataset) -> str:
        """Return the status as HTML; by default the escaped sentence."""
        return html.escape(self.status(ds))

    def adapt(self, changed: str) -> None:
        """Adjust controls that depend on the one that `changed`, before anything is computed."""

    def details(self, ds: xr.Dataset) -> None:
        """Work out what is too slow for every move of a slider; runs after a pause."""

    def below(self) -> list[widgets.Widget]:
        """Return widgets to show beneath the figure."""
        return []

    @property
    def values(self) -> dict[str, Any]:
        """What the controls say now, by name."""
        return {name: control.value for name, control in self._controls.items()}

    @property
    def error(self) -> str:
        """What could not be answered or needs care, in a sentence of HTML; "" if nothing."""
        return self._alert.value

    def set(self, **values) -> "Panel":
        """Set controls by name, in the order given, then redraw once.

        Raises:
            WorkbenchError: no control has that name, or it cannot take the value.
        """
        with _REDRAW:
            for name, value in values.items():
                self._set(name, value)
            self.redraw()
            self.flush()
        return self

    def _set(self, name: str, value) -> None:
        if name not in self._controls:
            raise UnknownNameError("control", name, list(self._controls))
        with self._silence():
            try:
                self._controls[name].value = value
            except WorkbenchError:
                raise
            except (traitlets.TraitError, TypeError, ValueError) as err:
                raise SpecError(f"{name}: cannot be {value!r} ({err})") from None
            self.adapt(name)

    def _changed(self, name: str) -> None:
        if self._quiet:
            return
        with _REDRAW:
            try:
                with self._silence():
                    self.adapt(name)
            except WorkbenchError as err:
                self._say(str(err))
            else:
                self.redraw()
                self._later()

    @contextlib.contextmanager
    def _silence(self) -> Iterator[None]:
        self._quiet = True
        try:
            yield
        finally:
            self._quiet = False

    def redraw(self) -> None:
        """Compute and show what the controls say now; what went wrong is said in a sentence."""
        with _REDRAW, warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always", UserWarning)
            try:
                ds = self.compute(**self.values)
                self.draw(self._fig, ds)
                if self.widget:
                    self.widget.show()
                self.data = ds
                self._status.value = f'<div role="status">{self.headline(ds)}</div>'
                self._say(*(str(n.message) for n in noted if _is_ours(n.category)))
            except WorkbenchError as err:
                self._say(str(err))
            except Exception as err:  # JupyterLab would drop it without a trace
                self._say(f"This went wrong and should not have: {type(err).__name__}: {err}")

    def _say(self, *sentences: str) -> None:
        text = " ".join(html.escape(sentence) for sentence in sentences)
        self._alert.value = f'<div role="alert" class="wb-alert">{text}</div>' if text else ""

    def _later(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = threading.Timer(PAUSE_S, self.flush)
        self._timer.daemon = True
        self._timer.start()

    def flush(self) -> None:
        """Work out the details now instead of after the pause."""
        with _REDRAW, warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the redraw has shown them
            if self._timer:
                self._timer.cancel()
            try:
                self.details(self.data)
            except WorkbenchError as err:
                self._say(str(err))

    def _layout(self) -> widgets.VBox:
        boxes = [style.group(title, list(group.values())) for title, group in self.groups.items()]
        row = widgets.HBox(boxes, layout=style.ROW)
        parts = [style.Sheet(), row, self._alert, self._status, self.widget, *self.below()]
        return widgets.VBox(parts, layout={"width": "100%"})

    def close(self) -> None:
        """Close every widget of the view."""
        if self._timer:
            self._timer.cancel()
        for widget in style.family(self.view):
            widget.close()

    def _repr_mimebundle_(self, **kwargs) -> dict:
        bundle = self.view._repr_mimebundle_(**kwargs) or {}
        return bundle | {"text/plain": self.status(self.data)}


def _is_ours(category: type) -> bool:
    return category.__module__.startswith("workbench.")
