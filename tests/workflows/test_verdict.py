"""The figures that a report begins with: right for known errors, doubtful where rows are few, the same each time."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes

from vicinal.report.records import Doubted
from vicinal.report.tables import verdict_sentence
from vicinal.workflows import TableJob, fit_table, open_table
from vicinal.workflows.measured import Measured, MeasuredClasses, Measurements
from vicinal.workflows.verdict import Covering, thirds, verdict, worst_groups


def judged(errors, others, *, groups=None, inside=None):
    truth = np.zeros(len(errors))
    named = {"model": np.asarray(errors, float), "ridge": np.asarray(others, float), "mean": np.full(len(errors), 9.0)}
    places = np.arange(len(errors))
    promise = Covering(places, [], inside=None if inside is None else np.asarray(inside))
    methods = {name: Measured(guess, truth) for name, guess in named.items()}
    return verdict(Measurements(methods, {}), places if groups is None else groups, promise)


def test_figures_are_those_of_the_errors():
    found = judged([1.0, 2.0, 3.0] * 10, [2.0, 4.0, 6.0] * 10, inside=[True] * 27 + [False] * 3)
    assert found.typical.value == 2.0
    assert (found.best, found.others) == ("ridge", 2)
    assert found.change == pytest.approx((-0.75, -0.75, -0.75))
    assert found.covered.value == 0.9
    assert found.covered.low < 0.8 < found.covered.high < 1  # Clopper and Pearson: 0.735 to 0.979
    assert found.covered.low == pytest.approx(0.7347, abs=1e-4)


@pytest.mark.slow
def test_the_doubt_holds_the_truth_about_as_often_as_it_says():
    rng, hits = np.random.default_rng(0), 0
    for _ in range(100):
        change = judged(rng.normal(size=80), 1.2 * rng.normal(size=80)).change
        hits += change.low <= 1 / 1.44 - 1 <= change.high
    assert 85 <= hits <= 100


def test_rows_of_a_group_are_one_witness():
    errors, others = np.repeat(np.arange(1.0, 21), 5), np.repeat(np.arange(2.0, 22), 5)
    alone = judged(errors, others, inside=[True] * 100)
    together = judged(errors, others, groups=np.repeat(np.arange(20), 5), inside=[True] * 100)
    assert together.typical.value == alone.typical.value
    assert together.typical.high - together.typical.low > 1.5 * (alone.typical.high - alone.typical.low)
    assert together.covered.low < alone.covered.low


def test_classes_that_are_all_right_leave_a_doubt():
    truth, guess = np.array(["a", "b"] * 25), np.tile(np.eye(2), (25, 1))
    measured = Measurements({"model": MeasuredClasses(guess, truth, classes=["a", "b"])}, {})
    found = verdict(measured, np.arange(50), Covering(np.arange(50), []))
    assert found.typical == pytest.approx((1.0, 0.025 ** (1 / 50), 1.0))  # Clopper and Pearson


def test_few_rows_have_no_doubt_to_tell():
    assert np.isnan(judged([1.0] * 9, [2.0] * 9, inside=[True] * 9).covered.low)
    assert np.isnan(judged([1.0] * 9, [2.0] * 9).typical.low)


@pytest.mark.parametrize("classes", [False, True])
def test_a_fit_is_judged_and_its_rows_are_listed(classes):
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    frame = X.assign(key=[f"p{i}" for i in range(len(X))], y=np.where(y > 140, "high", "low") if classes else y)[:150]
    settings = {"max_epochs": 3, "members": 1, "hidden": (8,)} if classes else {"metric": "kernel"}
    record = fit_table(TableJob(pd.DataFrame(frame), "y", id="key", parameters=settings, baselines=False)).record
    found = record.verdict
    assert found.rows == len(record.truth) == len(record.examples) == 30
    assert isinstance(found.change, Doubted)
    assert found.typical.low <= found.typical.value <= found.typical.high
    levels = {level["coverage"]: level["covered"] for level in record.coverage}
    assert found.covered.value == levels[0.9]
    assert verdict_sentence(record)
    truth = dict(zip(frame["key"], frame["y"], strict=True))
    assert all(truth[row.id] == row.target for row in record.examples)
    assert all(panel.id in truth for panel in record.panels)
    if classes:
        right = [row.prediction == row.target for row in record.examples]
        assert np.mean(right) == pytest.approx(found.typical.value)
    else:
        errors = [abs(row.prediction - row.target) for row in record.examples]
        assert errors == sorted(errors, reverse=True)
        inside = [row.interval[0] <= row.target <= row.interval[1] for row in record.examples]
        assert np.mean(inside) == pytest.approx(found.covered.value)


def test_without_test_rows_all_members_together_are_judged():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(121, 3)), columns=list("abc")).assign(y=lambda t: t["a"] + t["b"] ** 2)
    settings = {"members": 4, "hidden": (8, 4), "max_epochs": 8, "readout": "attention"}
    outcome = fit_table(TableJob(frame, "y", test=0, parameters=settings))
    model, record = outcome.model, outcome.record
    errors = record.truth - record.predicted
    assert record.scores["model"]["mse"] == pytest.approx(model.out_of_fold_error())
    assert record.scores["model"] == pytest.approx(record.out_of_fold)
    share = model.out_of_fold_error() / np.mean(errors**2)
    assert share < 0.99
    assert record.scores["model"]["r2"] == pytest.approx(1 - model.out_of_fold_error() / np.var(record.truth))
    assert record.scores["model"]["mae"] == pytest.approx(np.mean(np.abs(errors)) * share**0.5)
    assert record.verdict.typical.value == pytest.approx(np.median(np.abs(errors)) * share**0.5)


def test_thirds_of_numbers_and_dates():
    numbers = pd.Series([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, np.nan])
    assert thirds(numbers) == ["0 to 1.667"] * 2 + ["1.667 to 3.333"] * 2 + ["3.333 to 5"] * 2 + [None]
    days = pd.Series(pd.to_datetime(["2020-01-01", "2020-01-02", "2020-01-03", "2020-01-04", None]))
    assert thirds(days) == [
        "2020-01-01 to 2020-01-02",
        "2020-01-02 to 2020-01-03",
        "2020-01-03 to 2020-01-04",
        "2020-01-03 to 2020-01-04",
        None,
    ]
    assert thirds(days[:4].dt.tz_localize("UTC")) == thirds(days[:4])
    assert thirds(pd.Series([7, 7, 7])) == [None] * 3


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_rows_are_grouped_by_thirds_of_a_date(zone):
    frame = pd.DataFrame({"when": pd.date_range("2024-01-01 06:00", periods=18, tz=zone), "y": np.arange(18) / 7})
    frame = pd.concat([frame, pd.DataFrame({"when": [pd.NaT] * 6, "y": np.arange(6) / 3})], ignore_index=True)
    errors = np.repeat([2.0, 0.0, 1.9, 1.8], 6)  # the second third, below the mean, is not listed
    opened = open_table(TableJob(source=frame, target="y"))
    groups = worst_groups(opened, np.arange(24), Measured(opened.table.target + errors, opened.table.target))
    assert [(one.value, one.rows, one.error) for one in groups] == [
        ("2024-01-01 to 2024-01-06", 6, pytest.approx(4.0)),
        ("2024-01-12 to 2024-01-18", 6, pytest.approx(3.61)),
        ("missing", 6, pytest.approx(3.24)),
    ]
