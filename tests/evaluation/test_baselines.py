"""Baselines: equal to scikit-learn's estimators, settings chosen on validation rows, quick on sparse features."""

import itertools

import numpy as np
import pytest
import scipy.sparse
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from vicinal.evaluation import knn_grid, regression_scores, ridge_baseline
from vicinal.evaluation.baselines import mean_baseline, neighbor_mean, one_hot

CLASSES = ["a", "b", "c"]


def parts(seed=0, sizes=(80, 30, 40), width=4):
    rng = np.random.default_rng(seed)
    x = [rng.normal(size=(size, width)) for size in sizes]
    x[1][0] = x[0][3]  # a distance of exactly 0
    x[0][4] = x[0][3]
    y = [np.sin(2 * part[:, 0]) + 0.1 * rng.normal(size=len(part)) for part in x]
    return x, y


def classes_of(y):
    return np.array(CLASSES)[np.digitize(y, [-0.4, 0.4])]


def test_mean_and_shares():
    assert mean_baseline([1.0, 2.0, 6.0], 2).prediction.tolist() == [3.0, 3.0]
    assert mean_baseline(["a", "a", "b", "a"], 1, classes=CLASSES).prediction.tolist() == [[0.75, 0.25, 0.0]]


@pytest.mark.parametrize(("k", "p", "weights"), list(itertools.product((3, 5, 7), (1, 2), ("uniform", "distance"))))
def testneighbor_mean_equals_scikit_learn(k, p, weights):
    (train, validation, _), (y, _, _) = parts()
    settings = {"n_neighbors": k, "p": p, "weights": weights}
    number = KNeighborsRegressor(**settings).fit(train, y)
    distances, places = number.kneighbors(validation)
    np.testing.assert_allclose(neighbor_mean(y, distances, places, weights), number.predict(validation), rtol=1e-12)
    spread = KNeighborsClassifier(**settings).fit(train, classes_of(y)).predict_proba(validation)
    labels = one_hot(classes_of(y), CLASSES)
    np.testing.assert_allclose(neighbor_mean(labels, distances, places, weights), spread, rtol=1e-12)


def test_grid_is_that_of_scikit_learn_and_chosen_on_validation():
    (train, validation, test), (y, y_validation, _) = parts(seed=1)
    got = knn_grid(train, y, validation, y_validation, test)
    errors = {}
    for k, p, weights in itertools.product((3, 5, 7), (1, 2), ("uniform", "distance")):
        model = KNeighborsRegressor(n_neighbors=k, p=p, weights=weights).fit(train, y)
        errors[k, p, weights] = regression_scores(y_validation, model.predict(validation))["mse"]
    k, p, weights = min(errors, key=errors.get)
    assert got.settings == {"n_neighbors": k, "p": p, "weights": weights}
    assert got.validation == pytest.approx(errors[k, p, weights])
    want = KNeighborsRegressor(**got.settings).fit(train, y).predict(test)
    np.testing.assert_allclose(got.prediction, want, rtol=1e-12)


def test_grid_for_classes():
    (train, validation, test), (y, y_validation, _) = parts(seed=2)
    got = knn_grid(train, classes_of(y), validation, classes_of(y_validation), test, classes=CLASSES)
    want = KNeighborsClassifier(**got.settings).fit(train, classes_of(y)).predict_proba(test)
    np.testing.assert_allclose(got.prediction, want, rtol=1e-12)
    assert 0 <= got.validation < 0.5


def test_grid_with_fewer_rows_than_neighbors():
    got = knn_grid(np.eye(2), [0.0, 1.0], np.eye(2), [0.0, 1.0], np.eye(2))
    assert got.settings["n_neighbors"] == 2
    assert got.prediction.tolist() == [0.0, 1.0]


def test_test_rows_do_not_touch_the_choice():
    (train, validation, test), (y, y_validation, _) = parts()
    one = knn_grid(train, y, validation, y_validation, test)
    other = knn_grid(train, y, validation, y_validation, test[::-1] + 5)
    assert one.settings == other.settings


@pytest.mark.parametrize("sparse", [False, True])
def test_ridge_equals_scikit_learn(sparse):
    (train, validation, test), (y, y_validation, _) = parts(seed=3)
    give = scipy.sparse.csr_matrix if sparse else np.asarray
    got = ridge_baseline(give(train), y, give(validation), y_validation, give(test))
    model = Ridge(alpha=got.settings["alpha"])
    model = (model if sparse else make_pipeline(StandardScaler(), model)).fit(train, y)
    np.testing.assert_allclose(got.prediction, model.predict(test), atol=1e-3 if sparse else 1e-10)
    assert got.validation == pytest.approx(np.mean((model.predict(validation) - y_validation) ** 2), abs=1e-3)


def test_ridge_chooses_a_strong_penalty_for_noise_and_a_weak_one_for_signal():
    rng = np.random.default_rng(0)
    x = [rng.normal(size=(n, 30)) for n in (60, 200, 10)]
    noise = [rng.normal(size=len(part)) for part in x]
    assert ridge_baseline(x[0], noise[0], x[1], noise[1], x[2]).settings["alpha"] >= 100
    signal = [part[:, 0] for part in x]
    assert ridge_baseline(x[0], signal[0], x[1], signal[1], x[2]).settings["alpha"] <= 0.1


@pytest.mark.parametrize("sparse", [False, True])
def test_logistic_regression(sparse):
    (train, validation, test), (y, y_validation, _) = parts(seed=4)
    give = scipy.sparse.csr_matrix if sparse else np.asarray
    labels = classes_of(y)
    got = ridge_baseline(give(train), labels, give(validation), classes_of(y_validation), give(test), classes=CLASSES)
    model = LogisticRegression(C=1 / got.settings["alpha"])
    model = (model if sparse else make_pipeline(StandardScaler(), model)).fit(train, labels)
    np.testing.assert_allclose(got.prediction, model.predict_proba(test), atol=0.02)


def test_classes_that_training_rows_lack():
    (train, validation, test), (y, y_validation, _) = parts()
    truth = classes_of(y_validation)
    two = ridge_baseline(train, np.where(y > 0, "a", "c"), validation, truth, test, classes=CLASSES)
    assert (two.prediction[:, 1] == 0).all()
    np.testing.assert_allclose(two.prediction.sum(1), 1)
    one = ridge_baseline(train, np.full(len(y), "b"), validation, truth, test, classes=CLASSES)
    assert one.prediction.tolist() == [[0.0, 1.0, 0.0]] * len(test)
    with pytest.raises(ValueError, match=r"^train_target: expected one of the classes .*, got 'z'$"):
        knn_grid(train, np.full(len(y), "z"), validation, truth, test, classes=CLASSES)


def test_bad_embeddings_get_one_sentence():
    good, bad = np.zeros((4, 2)), np.array([[0.0, 1.0], [np.nan, 0.0]])
    with pytest.raises(ValueError, match=r"^test: expected finite embeddings, got .* in row 1$"):
        knn_grid(good, np.arange(4), good, np.arange(4), bad)
    with pytest.raises(ValueError, match=r"^validation: expected embeddings \[rows, 2\], at least one row"):
        knn_grid(good, np.arange(4), np.zeros((0, 2)), [], good)


def test_ridge_learns_from_wide_sparse_text():
    rng = np.random.default_rng(0)
    rows, width, each = 7000, 30_000, 50
    values = rng.normal(size=rows * each) / each**0.5
    places = (rng.zipf(1.3, size=rows * each) % width, np.repeat(np.arange(rows), each))
    x = scipy.sparse.csr_matrix((values, places[::-1]), shape=(rows, width))
    y = np.asarray(x @ rng.normal(size=width)) + 0.1 * rng.normal(size=rows)
    got = ridge_baseline(x[:5000], y[:5000], x[5000:6000], y[5000:6000], x[6000:])
    assert regression_scores(y[6000:], got.prediction)["r2"] > 0.3
