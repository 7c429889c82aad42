"""What a long command says of how far it is: one line of at most 80 letters, or lines of JSON, or nothing."""

import io
import json
import sys

import numpy as np
import pandas as pd
import pytest

from vicinal.cli import run
from vicinal.cli.progress import shown_progress
from vicinal.core.progress import Display, Step, line_of, listening, report, shown
from vicinal.estimators import NeighborRegressor
from vicinal.evaluation import tuned_baselines
from vicinal.workflows import TableJob, fit_table

TINY = {"max_epochs": 3, "members": 1, "hidden": (8, 4), "patience": 2}


def houses(rows=60):
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"a": random.normal(size=rows), "b": random.normal(size=rows)})
    return frame.assign(price=frame["a"] + random.normal(0, 0.1, rows))


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def said():
    """What a display writes, and a display with a clock."""
    written, clock = io.StringIO(), Clock()

    def make(**settings):
        return Display(written, changing=False, clock=clock, **settings), clock, written

    return make


def test_without_a_terminal_there_is_a_line_every_ten_seconds(said):
    display, clock, written = said()
    for second in range(1, 35):
        clock.now = float(second)
        display.step(Step("encoding", second, 100, "rows"))
    lines = written.getvalue().splitlines()
    assert lines[0] == "encoding    10 of 100  about 2 min left  rows"
    assert len(lines) == 3


def test_time_left_is_that_of_this_phase_by_its_pace(said):
    display, clock, _ = said()
    display.step(Step("encoding", 0, 4))
    assert display.seconds_left(Step("encoding", 0, 4), 4.0) is None
    clock.now = 4.0
    display.step(Step("training", 2, 20))
    clock.now = 10.0
    display.step(Step("training", 5, 20))
    assert display.seconds_left(Step("training", 5, 20), clock.now) == 30
    display.step(Step("measuring"))
    assert display.seconds_left(Step("measuring"), clock.now + 2) is None


def test_lines_are_short_and_json_is_json(said):
    line = line_of(Step("training", 123456, 1234567, "epochs if no better comes " * 4), 1e5)
    assert len(line) <= 79
    assert "about 27 h 47 min left" in line
    events = []
    display, clock, written = said(events=events.append)
    display.log("reading")
    clock.now = 11.0
    display.step(Step("training", 1.5, None))
    display.event("plan", {"rows": 3})
    assert [event["event"] for event in events] == ["log", "step", "plan"]
    assert events[1]["seconds_left"] is None
    assert written.getvalue() == ""


def test_a_terminal_has_one_line_that_is_taken_away():
    written = io.StringIO()
    display = Display(written, changing=True, clock=iter([0.0, 1.0, 1.1, 2.0]).__next__)
    for done in (10, 2, 3):
        display.step(Step("encoding", done, 30))
    display.log("chosen")
    assert written.getvalue().split("\r") == [
        "",
        "encoding    10 of 30",
        "encoding    3 of 30 ",  # and what is left of the longer line
        " " * 19,
        "chosen\n",
    ]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_narrow_terminal_has_a_line_that_fits(monkeypatch):
    monkeypatch.setenv("COLUMNS", "36")
    written = Terminal()
    display = Display(written, changing=True, clock=iter([0.0, 1.0]).__next__)
    display.step(Step("training", 3, 200, "epochs if no better comes"))
    assert written.getvalue() == "\rtraining    3 of 200  epochs if ..."


def test_quiet_says_nothing_and_nobody_listens_afterwards(capsys):
    with shown_progress(quiet=True) as display:
        report("encoding", 1, 2)
        display.log("reading")
    with shown_progress(quiet=False, verbose=True):
        report("encoding", 1, 2)
    report("encoding", 2, 2)
    assert capsys.readouterr().err == ""


def test_training_is_not_expected_to_go_on_beyond_its_last_epoch():
    frame, steps = houses(), []
    with listening(steps.append):
        NeighborRegressor(metric="network", hidden=(2,), members=1, max_epochs=2).fit(frame[["a", "b"]], frame["price"])
    assert {step.total for step in steps if step.phase == "training"} == {None, 2}
    assert next(step.note for step in steps if step.phase == "training") == "epoch 1 of at most 2"


@pytest.mark.slow
def test_a_fit_reports_its_phases_in_order():
    steps = []
    with listening(steps.append):
        fit_table(TableJob(houses(), "price", parameters=TINY, baselines=False))
        tuned_baselines(np.eye(12), np.arange(12.0), np.eye(12), methods=["ridge"])
    order = list(dict.fromkeys(step.phase for step in steps))
    assert order == ["kernel", "trees", "measuring", "baselines"]
    assert all(step.total is None or step.done <= step.total for step in steps)


@pytest.mark.slow
def test_a_dry_run_says_what_is_trained_and_json_progress_is_lines_of_json(tmp_path, capsys):
    houses().to_csv(tmp_path / "h.csv", index=False)
    assert run(["fit", str(tmp_path / "h.csv"), "--target", "price", "--dry-run", "-q"]) == 0
    said = capsys.readouterr().out
    assert "Will train a kernel model and a tree model, and keep the better or their mean." in " ".join(said.split())
    assert "it will take" not in said
    options = ["--max-epochs", "2", "--members", "1", "--no-baselines", "--json", "--out", str(tmp_path / "m")]
    assert run(["fit", str(tmp_path / "h.csv"), "--target", "price", *options]) == 0
    told = capsys.readouterr()
    events = [json.loads(line) for line in told.err.splitlines()]
    assert {"log", "plan"} <= {event["event"] for event in events}
    assert events[0] == {"event": "log", "line": "reading h.csv"}
    assert json.loads(told.out)["task"] == "regression"


@pytest.mark.slow
def test_a_fit_in_python_says_what_was_tried_if_that_is_asked_for(capsys, request):
    frame = houses()
    x, y = frame[["a", "b"]], frame["price"]
    NeighborRegressor(metric="kernel").fit(x, y)
    assert capsys.readouterr() == ("", "")
    model = NeighborRegressor(metric="kernel", verbose=1).fit(x, y)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [str(model.fitted_.trials[0])]
    assert lines[0].startswith(f"kernel, read out by {model.readout_}: rmse ")
    steps = []
    with listening(steps.append):  # whoever shows the progress shows all of it
        NeighborRegressor(metric="kernel", verbose=1).fit(x, y)
    assert steps
    assert capsys.readouterr().err == ""
    logged = request.getfixturevalue("logged")  # from here on
    NeighborRegressor(metric="kernel").fit(x, y)
    assert len(logged) == 1


def test_a_notebook_shows_the_line_unless_it_is_silenced(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    monkeypatch.setattr("vicinal.core.progress.Display.step", lambda display, step: display.show(step, None))
    for verbose, printed in ((None, True), (0, False)):
        with monkeypatch.context() as patch:
            patch.delenv("PYTEST_CURRENT_TEST", raising=False)
            with shown(verbose):
                report("encoding", 1, 2)
        assert ("encoding    1 of 2" in capsys.readouterr().out) == printed
    with shown(None):
        report("encoding", 1, 2)
    assert capsys.readouterr().out == ""
