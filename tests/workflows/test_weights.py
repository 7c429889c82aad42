"""--weight: a column that says how much rows count, in the fit, in errors, in rows that are added, and in a refit."""

import json

import numpy as np
import pandas as pd
import pytest

from vicinal.cli import run
from vicinal.data import prepare_table
from vicinal.estimators import load_model
from vicinal.evaluation import classification_scores, regression_scores, tuned_baselines
from vicinal.evaluation.audit import coverage_curve
from vicinal.evaluation.baselines import mean_baseline
from vicinal.workflows import TableJob, add_table, audit_table, fit_table, refit_model
from vicinal.workflows.refit import _difference
from vicinal.workflows.verdict import _doubted, _median, _share

KERNEL = {"metric": "kernel"}


def houses(count=80, seed=0):
    random = np.random.default_rng(seed)
    frame = pd.DataFrame({"a": random.uniform(-3, 3, count), "b": random.choice(["x", "y"], count)})
    return frame.assign(price=np.sin(frame["a"]) + random.normal(0, 0.1, count), w=random.integers(1, 5, count))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A folder of a weighted fit, and what it said."""
    lines, place = [], tmp_path_factory.mktemp("weights")
    table = houses().assign(w=lambda rows: rows["w"].where(rows.index % 20 != 0, 0))
    job = TableJob(table, "price", weight="w", parameters=KERNEL, baselines=False)
    return fit_table(job, place / "model", lines.append), table, lines


def test_a_fit_takes_weights_and_its_errors_count_by_them(fitted):
    outcome, table, lines = fitted
    model, split = outcome.model, outcome.split
    assert "4 rows of weight 0 in w are left out." in lines
    assert "w" not in outcome.opened.kinds
    known = dict(zip(model.bank_.ids.tolist(), model.given_weights(), strict=True))
    assert known == pytest.approx({name: float(table["w"][name]) for name in known})
    part = outcome.opened.table.select(split.test)
    error = np.average((outcome.record.predicted - part.target) ** 2, weights=part.weights)
    assert outcome.record.scores["model"]["mse"] == pytest.approx(error)
    assert "Rows count by w, in errors, too; k-NN predicts without weights." in outcome.record.notes
    assert load_model(outcome.folder).notes_["weight"] == "w"


@pytest.mark.slow
def test_an_audit_counts_by_the_weights_of_the_fit_or_by_others(fitted):
    outcome, new = fitted[0], houses(40, 1)
    new.index += 1000
    by_fit, even = (audit_table(outcome.folder, rows) for rows in (new, new.drop(columns="w")))
    other = audit_table(outcome.folder, new.assign(v=new["w"] * 3), weight="v")
    assert by_fit.scores == pytest.approx(other.scores)
    assert by_fit.scores["mse"] != pytest.approx(even.scores["mse"])
    errors = (by_fit.predicted - by_fit.truth) ** 2
    assert by_fit.scores["mse"] == pytest.approx(np.average(errors, weights=new["w"]))
    assert even.scores["mse"] == pytest.approx(errors.mean())


def test_added_rows_bring_weights_and_a_refit_keeps_all_of_them(fitted, tmp_path):
    outcome, _, _ = fitted
    outcome.model.save(tmp_path / "model")
    model = load_model(tmp_path / "model")
    model.notes_ = {"target": "price", "weight": "w", "name": "houses"}
    model.save(tmp_path / "model")
    new = houses(30, 2)
    new.index += 1000
    before, added = add_table(tmp_path / "model", new.assign(w=new["w"].where(new.index > 1000, 0))), []
    assert before.changed == 29
    add_table(tmp_path / "model", new[:1].assign(v=9.0).drop(columns="w"), weight="v")
    now = load_model(tmp_path / "model")
    weights = now.given_weights()
    np.testing.assert_allclose(weights[-30:], [*new["w"][1:], 9.0])
    wanted = dict(zip(now.bank_.ids.tolist(), weights, strict=True))
    refitted = refit_model(tmp_path / "model", even_if_worse=True, log=added.append)
    assert refitted.replaced
    after = load_model(tmp_path / "model")
    got = dict(zip(after.bank_.ids.tolist(), after.given_weights(), strict=True))
    assert got == pytest.approx(wanted)
    assert after.notes_["weight"] == "w"
    held = dict(zip(after.calibration_.ids.tolist(), after.calibration_.weights.tolist(), strict=True))
    assert all(held[name] * after.weight_unit_ == pytest.approx(wanted[name]) for name in held)


def test_a_dry_run_leaves_the_column_of_weights_out(tmp_path, capsys):
    houses(60).to_csv(tmp_path / "houses.csv", index=False)
    assert run(["fit", str(tmp_path / "houses.csv"), "--target", "price", "--weight", "w", "--dry-run", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["columns"]) == ["a", "b"]


@pytest.mark.slow
def test_the_command_line_takes_weights_from_fit_to_show(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    houses(60).to_csv("houses.csv", index=False)
    command = ["--target", "price", "--weight", "w", "--metric", "kernel", "--no-baselines", "--quiet"]
    assert run(["fit", "houses.csv", *command]) == 0
    houses(5, 3).to_csv("more.csv", index=False)
    assert run(["add", "houses-model", "more.csv", "--weight", "w", "--quiet"]) == 0
    houses(12, 4).assign(v=1).to_csv("new.csv", index=False)
    capsys.readouterr()
    for further in ([], ["--weight", "v"]):
        assert run(["evaluate", "houses-model", "new.csv", *further, "--json", "--quiet"]) == 0
    first, _, second = capsys.readouterr().out.partition("}\n{")
    assert json.loads(first + "}")["scores"] != json.loads("{" + second)["scores"]
    assert run(["show", "houses-model"]) == 0
    assert "weight" in capsys.readouterr().out
    np.testing.assert_allclose(load_model("houses-model").given_weights()[-5:], houses(5, 3)["w"])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"w": -1.0}, "row 0, column w: expected a weight of at least 0, got -1.0"),
        ({"w": "heavy"}, "row 0, column w: expected a weight of at least 0, got 'heavy'"),
        ({"w": np.nan}, "row 0, column w: expected a weight of at least 0, got an empty cell .and 79 more such rows"),
        ({"w": 0.0}, "weight: expected a weight above 0 in 'w', got 0 in all rows"),
    ],
)
def test_wrong_weights_of_a_table_get_one_sentence(change, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        fit_table(TableJob(houses().assign(**change), "price", weight="w", parameters=KERNEL))


def test_a_weight_must_be_a_column_of_its_own():
    with pytest.raises(ValueError, match="weight: expected one of the columns"):
        fit_table(TableJob(houses(), "price", weight="mass", parameters=KERNEL))
    with pytest.raises(
        ValueError, match="target: expected a column that is not the id, group, time, weight or fair too"
    ):
        prepare_table(houses(), "w", weight="w")


def test_scores_with_whole_weights_are_those_of_repeated_rows():
    random = np.random.default_rng(0)
    truth, guess, weights = random.normal(size=30), random.normal(size=30), random.integers(1, 4, 30)
    again = np.arange(30).repeat(weights)
    assert regression_scores(truth, guess, weights) == pytest.approx(regression_scores(truth[again], guess[again]))
    classes, chances = random.choice(["a", "b"], 30), random.dirichlet([1, 1], 30)
    found = classification_scores(classes, chances, ["a", "b"], weights)
    assert found == pytest.approx(classification_scores(classes[again], chances[again], ["a", "b"]))
    mean, of_copies = mean_baseline(truth, 1, weights=weights), mean_baseline(truth[again], 1)
    np.testing.assert_allclose(mean.prediction, of_copies.prediction)
    bounds = np.sort(random.normal(size=(30, 2)), axis=1)
    one = coverage_curve(truth, {0.5: bounds}, parts=1, weights=weights)[0]
    other = coverage_curve(truth[again], {0.5: bounds[again]}, parts=1)[0]
    for name in ("covered", "width", "by_part"):
        assert one[name] == pytest.approx(other[name])
    with pytest.raises(ValueError, match="weights: expected 30 finite numbers above 0"):
        regression_scores(truth, guess, 0 * weights)


def test_doubts_and_differences_count_by_weights():
    random = np.random.default_rng(0)
    values, weights = np.abs(random.normal(size=40)), random.integers(1, 4, 40).astype(float)
    typical = _doubted(values, None, np.arange(40), weights, _median)
    order = np.argsort(values)
    half = values[order][(weights[order].cumsum() >= weights.sum() / 2).argmax()]
    assert typical.value == half
    assert typical.low <= half <= typical.high
    again = np.arange(40).repeat(weights.astype(int))
    assert typical == _doubted(values[again], None, again, np.ones(len(again)), _median)  # copies are drawn together
    share = _share(values > 0.5, np.arange(40), weights)
    assert share.value == pytest.approx(np.average(values > 0.5, weights=weights))
    assert (
        share.high - share.low
        > _share(values > 0.5, np.arange(40), np.ones(40)).high - _share(values > 0.5, np.arange(40), np.ones(40)).low
    )
    mean, doubt = _difference(values, None, weights)
    assert mean == pytest.approx(np.average(values, weights=weights))
    np.testing.assert_allclose((mean, doubt), _difference(values, None, 5 * weights))


OF_NUMBERS, OF_CLASSES = ("ridge", "kernel ridge", "support vectors", "boosting"), ("support vectors", "boosting")


@pytest.mark.parametrize(
    ("classes", "method"),
    [
        *(pytest.param(None, name, marks=[pytest.mark.slow] * (name != "ridge")) for name in OF_NUMBERS),
        ("abc", "logistic regression"),
        *(pytest.param("ab", name, marks=pytest.mark.slow) for name in OF_CLASSES),
    ],
)
def test_baselines_are_fitted_with_weights_where_they_take_them(classes, method):
    """Rows of a wrong label that weigh next to nothing change little."""
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 2))
    target = x[:, 0] if classes is None else np.array(list(classes))[np.digitize(x[:, 0], [0, 1][: len(classes) - 1])]
    wrong = -3 - target if classes is None else np.array(["a"] * 60)
    weights = np.r_[np.ones(60), np.full(60, 1e-6)]
    rows = np.r_[x, x + 1e-3], np.r_[target, wrong]
    settings = {"classes": classes and list(classes), "methods": [method]}
    (clean,) = tuned_baselines(x, target, x, **settings)
    (weighed,) = tuned_baselines(*rows, x, **settings, weights=weights)
    if classes is None:
        assert np.abs(weighed.prediction - clean.prediction).mean() < 0.3
    else:
        assert (weighed.prediction.argmax(1) == clean.prediction.argmax(1)).mean() > 0.8
