"""Baselines: equal to scikit-learn's estimators, settings chosen on validation rows, quick on sparse features."""

import itertools

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

from vicinal.evaluation import knn_grid, regression_scores
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


def test_classes_that_are_not_listed():
    (train, validation, test), (y, y_validation, _) = parts()
    truth = classes_of(y_validation)
    with pytest.raises(ValueError, match=r"^train_target: expected one of the classes .*, got 'z'$"):
        knn_grid(train, np.full(len(y), "z"), validation, truth, test, classes=CLASSES)


def test_bad_embeddings_get_one_sentence():
    good, bad = np.zeros((4, 2)), np.array([[0.0, 1.0], [np.nan, 0.0]])
    with pytest.raises(ValueError, match=r"^test: expected finite embeddings, got .* in row 1$"):
        knn_grid(good, np.arange(4), good, np.arange(4), bad)
    with pytest.raises(ValueError, match=r"^validation: expected embeddings \[rows, 2\], at least one row"):
        knn_grid(good, np.arange(4), np.zeros((0, 2)), [], good)
