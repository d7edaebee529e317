"""The button that measures: progress, a stop that keeps, errors as sentences, nothing injected."""

import threading

from workbench import results
from workbench.panels.probe import measure, unseen


def test_it_measures_and_hands_over_what_it_found():
    shown = []
    job = measure(("system",), shown.append)
    job.start().join(20)
    assert shown == [job.result] and "memory_total" in job.result
    assert "done" in job._note.value
    assert "cannot be seen" in job.view.children[1].value or not job.result.attrs["unseen"]


def test_a_stop_keeps_what_was_measured():
    seen = threading.Event()
    job = measure(("system", "matmul", "bandwidth"), seconds=30)
    report = job.report

    def told(what, done, of):
        if what == "matmul":
            job.stop()
            seen.set()
        return report(what, done, of)

    job.report = told
    job.start().join(60)
    assert seen.is_set() and "memory_total" in job.result and "stream_bandwidth" not in job.result
    assert "stopped" in job._note.value and "stopped" in job.view.children[1].value


def test_what_goes_wrong_is_one_sentence(tmp_path):
    job = measure(("disk",), folder=tmp_path / "<nowhere>")
    job.start().join(20)
    assert 'role="alert"' in job._note.value and "&lt;nowhere&gt;" in job._note.value
    assert job.result is None


def test_reasons_are_escaped():
    ds = results.dataset({"memory_total": 1.0}, unseen="disk: <b>x</b>\npages: y")
    assert unseen(ds).count("<li>") == 2 and "<b>" not in unseen(ds)
    assert unseen(ds.assign_attrs(unseen="")) == ""
