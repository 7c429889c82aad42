"""Tuned baselines: scikit-learn's own fits, chosen on folds of the training rows that cut no group."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GroupKFold, KFold
from sklearn.neighbors import KNeighborsRegressor
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from vicinal.evaluation import tuned_baselines
from vicinal.evaluation.tuned import CLASSES, NUMBERS


def wave(rows=120, width=4, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, width))
    return x, 3 * np.sin(2 * x[:, 0]) + x[:, 1] + 0.1 * rng.normal(size=rows) + 50


@pytest.fixture
def few_settings(monkeypatch):
    """To choose from, where it is not the choice that is tested."""
    monkeypatch.setattr("vicinal.evaluation.tuned.SCALES", {"rbf": (0.3,), "laplacian": (0.1,)})
    monkeypatch.setattr("vicinal.evaluation.tuned.STAGES", {(8, 5): (5, 10)})


def fitted(name, settings, x, z):
    """scikit-learn's model of the settings that were chosen, on standardized labels."""
    if name == "ridge":
        scaler = StandardScaler().fit(x)
        model = Ridge(alpha=settings["alpha"]).fit(scaler.transform(x), z)
        return lambda queries: model.predict(scaler.transform(queries))
    made = {"kernel ridge": KernelRidge, "support vectors": SVR, "k-NN": KNeighborsRegressor}
    if name == "boosting":
        model = HistGradientBoostingRegressor(early_stopping=False, random_state=0, **settings)
    elif name == "support vectors" and settings["kernel"] == "laplacian":
        gamma = settings["gamma"]
        kernel = lambda a, b: np.exp(-gamma * np.abs(a[:, None] - b[None]).sum(-1))
        model = SVR(kernel=kernel, C=settings["C"], epsilon=settings["epsilon"])
    else:
        model = made[name](**settings)
    return model.fit(x, z).predict


@pytest.mark.slow
@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", NUMBERS)
def test_the_prediction_is_that_of_scikit_learn_by_the_chosen_settings(name):
    x, y = wave()
    queries = wave(30, seed=1)[0]
    (got,) = tuned_baselines(x, y, queries, methods=[name])
    z = (y - y.mean()) / y.std()
    want = fitted(name, got.settings, x, z)(queries) * y.std() + y.mean()
    np.testing.assert_allclose(got.prediction, want, rtol=1e-7)
    assert got.rows == 120


@pytest.mark.slow
@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", NUMBERS)
def test_the_error_is_that_of_left_out_folds(name):
    x, y = wave()
    (got,) = tuned_baselines(x, y, None, methods=[name])
    z, squares = (y - y.mean()) / y.std(), []
    for inside, outside in KFold(5, shuffle=True, random_state=0).split(x):
        guess = fitted(name, got.settings, x[inside], z[inside])(x[outside])
        np.testing.assert_allclose(got.prediction[outside], guess * y.std() + y.mean(), rtol=1e-7)
        squares += np.square((guess - z[outside]) * y.std()).tolist()
    assert got.validation == pytest.approx(np.mean(squares))


def test_no_fold_cuts_a_group():
    x, y = wave(60)
    x, y, groups = np.repeat(x, 2, axis=0), np.repeat(y, 2), np.repeat(np.arange(60), 2)
    (leaky,) = tuned_baselines(x, y, None, methods=["k-NN"])
    (honest,) = tuned_baselines(x, y, None, methods=["k-NN"], groups=[f"g{code}" for code in groups])
    assert leaky.validation < honest.validation / 2
    folds = list(GroupKFold(5, shuffle=True, random_state=0).split(x, y, groups))
    assert all(not set(groups[inside]) & set(groups[outside]) for inside, outside in folds)


@pytest.mark.slow
def test_beyond_most_rows_settings_are_tried_on_a_draw_and_the_fit_says_of_how_many_it_is(monkeypatch):
    monkeypatch.setattr("vicinal.evaluation.tuned.FITTED", 150)
    x, y = wave(400)
    ridge, kernel = tuned_baselines(x, y, x[:5], methods=["ridge", "kernel ridge"], most=100)
    assert (ridge.rows, kernel.rows) == (400, 150)
    again = tuned_baselines(x, y, x[:5], methods=["kernel ridge"], most=100)[0]
    np.testing.assert_array_equal(again.prediction, kernel.prediction)


def test_many_rows_try_all_settings_on_few_and_the_best_on_all(monkeypatch):
    x, y = wave(300)
    (whole,) = tuned_baselines(x, y, x[:5], methods=["kernel ridge"])
    monkeypatch.setattr("vicinal.evaluation.tuned.FEW", 60)
    (quick,) = tuned_baselines(x, y, x[:5], methods=["kernel ridge"])
    assert quick.validation <= 1.1 * whole.validation


@pytest.mark.parametrize(("rows", "fits"), [(200, 5), (230, 10), (400, 10)])
def test_trees_that_so_few_rows_cannot_tell_apart_are_grown_once(rows, fits, monkeypatch):
    """Of 160 rows at most 8 leaves have 20 each, of 184 rows 9: from there on 8 and 31 leaves may give other trees."""
    grown = []

    class Counted(HistGradientBoostingRegressor):
        def fit(self, *args, **settings):
            grown.append(self)
            return super().fit(*args, **settings)

    monkeypatch.setattr("vicinal.evaluation.tuned.HistGradientBoostingRegressor", Counted)
    x, y = wave(rows)
    found = []
    for allowed in ([8], [31], [8, 31]):
        grown.clear()
        monkeypatch.setattr("vicinal.evaluation.tuned.STAGES", {(leaves, 20): (9,) for leaves in allowed})
        found += tuned_baselines(x, y, None, methods=["boosting"])
    small, large, chosen = found
    assert len(grown) == fits
    assert (small.prediction == large.prediction).all() == (rows < 400)
    assert chosen.validation == min(small.validation, large.validation)
    if fits == 5:  # as it was when both were grown: of equal errors the first
        assert chosen.settings == small.settings


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", CLASSES)
def test_classes_get_probabilities_and_a_class_without_rows_gets_none(name, few_settings):
    x, y = wave(150)
    truth = np.array(["low", "mid", "high"])[np.digitize(y, [49, 51])]
    names = ["high", "low", "mid", "never"]
    (got,) = tuned_baselines(x[:120], truth[:120], x[120:], methods=[name], classes=names)
    np.testing.assert_allclose(got.prediction.sum(1), 1)
    assert not got.prediction[:, 3].any()
    assert (np.array(names)[got.prediction.argmax(1)] == truth[120:]).mean() > 0.5
    if name == "logistic regression":
        scaler = StandardScaler().fit(x[:120])
        model = LogisticRegression(C=got.settings["C"], max_iter=200, tol=1e-3)
        model.fit(scaler.transform(x[:120]), truth[:120])
        np.testing.assert_allclose(got.prediction[:, :3], model.predict_proba(scaler.transform(x[120:])), atol=1e-3)


@pytest.mark.parametrize("name", CLASSES)
def test_rare_classes_and_a_single_one_do_no_harm(name, few_settings):
    x, _ = wave(30)
    rare = np.array(["a"] * 26 + ["b"] * 3 + ["c"])
    (got,) = tuned_baselines(x, rare, x, methods=[name], classes=["a", "b", "c"])
    np.testing.assert_allclose(got.prediction.sum(1), 1)
    (one,) = tuned_baselines(x, ["a"] * 30, x, methods=[name], classes=["a", "b"])
    assert (one.prediction == [1, 0]).all()


def test_sparse_features_and_constant_ones(few_settings):
    x, y = wave(40)
    for baseline in tuned_baselines(scipy.sparse.csr_matrix(x), y, scipy.sparse.csr_matrix(x[:3])):
        assert baseline.prediction.shape == (3,)
        assert baseline.name != "boosting"
    for baseline in tuned_baselines(np.ones((20, 2)), y[:20], np.ones((2, 2))):
        np.testing.assert_allclose(baseline.prediction, y[:20].mean(), rtol=0.05)


def test_bad_arguments_get_one_sentence():
    x, y = wave(20)
    with pytest.raises(ValueError, match=r"^methods: expected one of 'ridge'"):
        tuned_baselines(x, y, x, methods=["random forest"])
    with pytest.raises(ValueError, match=r"^features: expected at least 10 rows, got 9$"):
        tuned_baselines(x[:9], y[:9], x)
