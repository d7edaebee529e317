"""Long work beside the notebook: a worker thread, a progress bar, a Stop that answers at once."""

import html
import threading
from collections.abc import Callable

import ipywidgets as widgets

from workbench.errors import WorkbenchError

Report = Callable[[str, int, int], bool]


class Job:
    """Run `work(report)` when the reader presses Start.

    The work calls `report(what, done, of)` between steps and stops, keeping what it has, when that
    returns False. `result` is what it returned, None before. `done(result)` runs at the end.
    """

    def __init__(
        self, label: str, work: Callable[[Report], object], done: Callable = lambda _: None
    ):
        self.result = None
        self._work, self._done, self._halt = work, done, threading.Event()
        fit = {"width": "auto"}
        self._start = widgets.Button(description=label, icon="play", layout=fit)
        self._stop = widgets.Button(description="Stop", icon="stop", disabled=True, layout=fit)
        self._bar = widgets.IntProgress(description="", layout={"width": "220px"})
        self._note = widgets.HTML()
        self._start.on_click(lambda _: self.start())
        self._stop.on_click(lambda _: self.stop())
        self.view: widgets.Box = widgets.HBox([self._start, self._stop, self._bar, self._note])

    def start(self) -> threading.Thread:
        """Start the work and return its thread."""
        self._halt.clear()
        self._start.disabled, self._stop.disabled = True, False
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        return thread

    def stop(self) -> None:
        """Ask the work to stop at its next step."""
        self._halt.set()

    def report(self, what: str, done: int, of: int) -> bool:
        """Show progress and tell the work whether to go on."""
        self._bar.max, self._bar.value = of, done
        self._say("status", f"{what}: {done} of {of}")
        return not self._halt.is_set()

    def _run(self) -> None:
        try:
            self.result = self._work(self.report)
            self._say("status", "stopped; what was done is kept" if self._halt.is_set() else "done")
            self._done(self.result)
        except WorkbenchError as err:
            self._say("alert", str(err))
        except Exception as err:  # a thread's error would vanish
            self._say("alert", f"This went wrong and should not have: {type(err).__name__}: {err}")
        finally:
            self._start.disabled, self._stop.disabled = False, True

    def _say(self, role: str, text: str) -> None:
        self._note.value = f'<span role="{role}">{html.escape(text)}</span>'

    def _repr_mimebundle_(self, **kwargs) -> dict:
        return self.view._repr_mimebundle_(**kwargs)
