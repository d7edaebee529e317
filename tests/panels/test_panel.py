"""What every panel promises: one redraw a change, no error lost, nothing left behind."""

import threading

import ipywidgets as widgets
import plotly.graph_objects as go
import pytest

from workbench import results
from workbench.errors import SpecError, UnknownNameError, WorkbenchError
from workbench.figures import theme
from workbench.panels import Job, check, guess
from workbench.panels.controls import GroupedChoice, NumberSlider
from workbench.panels.panel import Panel


class Doubler(Panel):
    def controls(self):
        self.redraws = self.worked_out = 0
        self.number = NumberSlider("number [token]", 4, 1, 1024, log=True)
        return {"Numbers": {"number": self.number, "name": widgets.Text("a")}}

    def compute(self, number, name):
        if name == "bug":
            raise ZeroDivisionError("division by zero")
        if "<" in name:
            raise SpecError(f"name: {name} is wrong; give letters")
        self.redraws += 1
        return results.dataset({"decode_tok_s": 2.0 * number})

    def figure(self):
        return theme.figure([go.Bar(x=["speed"])])

    def draw(self, fig, ds):
        theme.fill(fig, [{"y": [ds.decode_tok_s.item()]}])

    def status(self, ds):
        return f"twice is <{ds.decode_tok_s.item():g}>"

    def details(self, ds):
        self.worked_out += 1


@pytest.fixture
def panel():
    return Doubler()


def test_shows_its_first_answer_at_once(panel):
    assert panel.widget.data[0].y == (8.0,)
    assert panel.data.decode_tok_s == 8
    assert "twice is &lt;8&gt;" in panel._status.value and 'role="status"' in panel._status.value
    assert panel._repr_mimebundle_()["text/plain"] == "twice is <8>"


def test_set_redraws_once(panel):
    before = panel.redraws
    assert panel.set(number=16, name="b") is panel
    assert panel.redraws == before + 1
    assert panel.widget.data[0].y == (32.0,)


def test_slider_and_box_move_together(panel):
    panel.number.slider.value = 2**4.25
    assert panel.number.box.value == panel.values["number"] == 19
    panel.number.box.value = 100
    assert panel.number.slider.value == 100
    assert panel.data.decode_tok_s == 200


def test_error_is_one_escaped_sentence_and_the_figure_stays(panel):
    panel.set(name="<img src=x onerror=alert(1)>")
    assert 'role="alert"' in panel.error and "<img" not in panel.error
    assert panel.data.decode_tok_s == 8
    panel.set(name="ok")
    assert panel.error == ""


def test_a_bug_shows_in_the_panel(panel):
    panel.set(name="bug")
    assert "ZeroDivisionError" in panel.error and "Traceback" not in panel.error


@pytest.mark.parametrize(
    ("values", "error"),
    [({"numbr": 1}, UnknownNameError), ({"number": 0}, SpecError), ({"number": "x"}, SpecError)],
)
def test_set_refuses_what_no_control_can_show(panel, values, error):
    with pytest.raises(error, match="number"):
        panel.set(**values)


def test_details_wait_for_a_pause(panel):
    before = panel.worked_out
    for n in range(5, 10):
        panel.number.box.value = n
    assert panel.worked_out == before
    panel._timer.join(5)
    assert panel.worked_out == before + 1


def test_running_again_closes_the_view_before(panel):
    again = Doubler()
    for widget in (panel.view, panel.widget, panel.number.slider):
        assert widget.comm is None
    assert again.view.comm is not None


def test_labels_have_room(panel):
    width = float(panel.number.box.style.description_width.removesuffix("ch"))
    assert width > 0.85 * len("number [token]")


def test_grouped_choice_finds_the_group_of_a_value():
    groups = {"fruit": {"Apple": "apple"}, "tree": {"Oak": "oak", "Elm": "elm"}}
    choice = GroupedChoice(("kind", "plant"), groups, "elm")
    assert (choice.group.value, choice.member.label) == ("tree", "Elm")
    choice.value = "apple"
    assert (choice.group.value, choice.member.value) == ("fruit", "apple")
    choice.group.value = "tree"
    assert choice.value == "oak"
    with pytest.raises(UnknownNameError, match="did you mean oak"):
        choice.value = "oaks"


def test_check_judges_within_tolerance():
    view = check("How many ms?", 49.0, tolerance=0.01, hint="Fit a line.")
    box, button = view.children[2].children
    reply = view.children[-1]
    box.value = 50
    button.click()
    assert "Fit a line." in reply.value
    box.value = 49.2
    button.click()
    assert "Right" in reply.value


def test_guess_reveals_only_after_a_choice():
    view = guess("It will …", ["rise", "fall"], "fall", "Because <b>.")
    choice, button, reply = view.children[2], view.children[3].children[0], view.children[-1]
    assert choice.value is None and button.disabled
    choice.value = "rise"
    assert not button.disabled and reply.value == ""
    button.click()
    assert "No: fall" in reply.value and "&lt;b&gt;" in reply.value


def test_guess_needs_a_possible_answer():
    with pytest.raises(ValueError, match="one of the options"):
        guess("?", ["a"], "b", "")


def test_job_runs_beside_and_keeps_its_result():
    shown = []
    job = Job("Fit", lambda report: [n for n in range(3) if report("step", n, 3)], shown.append)
    job.start().join(5)
    assert job.result == [0, 1, 2] and shown == [[0, 1, 2]]
    assert "done" in job._note.value and not job._start.disabled


def test_job_stops_between_steps():
    first, go_on = threading.Event(), threading.Event()

    def work(report):
        done = []
        while report("step", len(done), 100):
            done.append(len(done))
            first.set()
            go_on.wait(5)
        return done

    job = Job("Fit", work)
    thread = job.start()
    first.wait(5)
    job.stop()
    go_on.set()
    thread.join(5)
    assert job.result == [0] and "stopped" in job._note.value


def test_job_shows_its_error():
    def fail(report):
        raise WorkbenchError("rows: <none>")

    job = Job("Fit", fail)
    job.start().join(5)
    assert "rows: &lt;none&gt;" in job._note.value and 'role="alert"' in job._note.value
