"""partial_fit: the first call fits, later ones add, and a refit is a fit on all rows."""

import numpy as np
import pandas as pd
import pytest

from vicinal.estimators import ModelFolder, NeighborClassifier, NeighborRegressor, load_model

QUICK = {"max_epochs": 2, "members": 1, "hidden": (8, 4)}
RANDOM = np.random.default_rng(0)
X = pd.DataFrame(RANDOM.normal(size=(80, 2)), columns=["a", "b"]).assign(c=RANDOM.choice(["u", "v"], 80))
Y = (X["a"] + X["b"] ** 2).to_numpy()
CLASSES = np.array(["low", "high", "top"])[np.digitize(Y, [0.5, 2.0])]


def test_the_first_call_fits_and_the_next_adds():
    ids = [f"r{i}" for i in range(80)]
    model = NeighborRegressor(metric="kernel").partial_fit(X[:60], Y[:60], ids=ids[:60])
    wanted = NeighborRegressor(metric="kernel").fit(X[:60], Y[:60], ids=ids[:60])
    np.testing.assert_array_equal(model.predict(X), wanted.predict(X))
    assert model.partial_fit(X[60:], Y[60:], ids=ids[60:]) is model
    wanted.add(X[60:], Y[60:], ids=ids[60:])
    np.testing.assert_array_equal(model.predict(X), wanted.predict(X))
    with pytest.raises(ValueError, match=r"[Ff]eature names"):
        model.partial_fit(X[["b", "a", "c"]], Y)


@pytest.mark.slow
def test_a_refit_is_a_fit_on_all_rows_of_the_bank(tmp_path):
    model = NeighborRegressor(metric="kernel").partial_fit(X[:60], Y[:60])
    model.save(tmp_path / "m")
    for one in (model, load_model(tmp_path / "m")):
        one.forget([3])
        one.partial_fit(X[60:], Y[60:], refit=True)
        at = one.bank_.ids
        assert sorted(at.tolist()) == [*range(3), *range(4, 80)]
        wanted = NeighborRegressor(metric="kernel").fit(X.iloc[at], Y[at], ids=at)
        np.testing.assert_array_equal(one.predict(X), wanted.predict(X))


@pytest.mark.sweep(9)
@pytest.mark.parametrize("given", ["table", "array"])
def test_a_deep_forget_is_a_fit_without_the_rows_and_with_the_same_rows_held_out(given):
    count = RANDOM.integers(1, 4, 80)
    x = np.column_stack([X["a"], count]) if given == "array" else X.assign(c=[f"{one} kg" for one in count])
    settings = {"metric": "kernel", "columns": None if given == "array" else {"c": "number"}}
    model = NeighborRegressor(**settings).fit(x, Y)
    held_out = np.isin(np.arange(80), model.calibration_.ids)
    assert model.forget([3, 40], deep=True) is model
    assert (model.columns, model.form) == (settings["columns"], None)
    left = np.delete(np.arange(80), [3, 40])
    rows = x[left] if given == "array" else x.iloc[left]
    validation = np.flatnonzero(held_out[left])
    wanted = NeighborRegressor(**settings).fit(rows, Y[left], ids=left, validation=validation)
    np.testing.assert_array_equal(model.predict(x), wanted.predict(x))
    with pytest.raises(ValueError, match=r"at least 10 rows"):
        model.forget(left[5:], deep=True)
    np.testing.assert_array_equal(model.predict(x), wanted.predict(x))  # nothing has changed
    pairs = pd.DataFrame({"a": X["a"], "v": [[one, one] for one in X["b"]]})
    with pytest.raises(ValueError, match=r"^deep: expected columns of numbers, .*, got 'v' of kind vector"):
        NeighborRegressor(metric="kernel").fit(pairs, Y).forget([3], deep=True)


def test_classes_of_later_calls_are_named_in_the_first():
    few = CLASSES != "top"
    model = NeighborClassifier(**QUICK, metric="network").partial_fit(X[few], CLASSES[few], ["top", "low", "high"])
    assert model.classes_.tolist() == ["high", "low", "top"]
    assert model.predict_proba(X).shape == (80, 3)
    assert (model.predict_proba(X)[:, 2] == 0).all()
    model.partial_fit(X[~few], CLASSES[~few], classes=["low", "high", "top"])
    assert (model.predict_proba(X)[:, 2] > 0.1).all()
    model.partial_fit(X[:5], CLASSES[:5], refit=True)
    assert model.classes_.tolist() == ["high", "low", "top"]
    with pytest.raises(ValueError, match=r"^classes: expected those of the first call, 'high', .*, got 'high', 'low'$"):
        model.partial_fit(X[:5], CLASSES[:5], classes=["low", "high"])
    with pytest.raises(ValueError, match=r"^y: expected a class that the model was fitted with, got 'top' in row"):
        NeighborClassifier(**QUICK).partial_fit(X, CLASSES, classes=["low", "high"])
    model.fit(X[few], CLASSES[few])
    assert model.classes_.tolist() == ["high", "low"], "a fit knows nothing of them"


def test_several_classes_a_row_may_come_later_too():
    tags = [["p"] * (a > 0) + ["q"] * (b > 0) for a, b in zip(X["a"], X["b"], strict=True)]
    model = NeighborClassifier(**QUICK).partial_fit(X, tags, classes=["p", "q", "r"])
    model.partial_fit(X[:9], [["r"]] * 9, refit=True)
    assert model.classes_.tolist() == ["p", "q", "r"]
    assert model.predict_proba(X).shape == (80, 3)


def test_a_refit_needs_the_cells():
    frame = X.assign(v=[[1.0, float(i)] for i in range(80)])
    model = NeighborRegressor(metric="kernel").fit(frame[:60], Y[:60])
    with pytest.raises(
        ValueError, match=r"^refit: expected columns of numbers, categories and texts, .* got 'v' of kind"
    ):
        model.partial_fit(frame[60:], Y[60:], refit=True)
    assert len(model.bank_) == 60


def test_rows_with_dates_are_added_to_a_folder_as_to_the_model(tmp_path):
    dated = X[["a"]].assign(day=pd.date_range("2024-01-01", periods=80))
    model = NeighborRegressor(metric="kernel").fit(dated[:60], Y[:60], ids=range(60))
    model.save(tmp_path / "m")
    ModelFolder(tmp_path / "m").add(dated[60:], Y[60:], ids=range(60, 80))
    model.add(dated[60:], Y[60:], ids=range(60, 80))
    again = load_model(tmp_path / "m")
    assert again.bank_.rows["day"].iloc[-1] == dated["day"].iloc[-1]
    np.testing.assert_allclose(
        again.predict(dated[60:], ids=range(60, 80)), model.predict(dated[60:], ids=range(60, 80))
    )
