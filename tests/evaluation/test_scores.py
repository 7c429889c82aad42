"""Scores against scikit-learn, and at their edges."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    f1_score,
    hamming_loss,
    log_loss,
    precision_score,
    recall_score,
)

from vicinal.evaluation import (
    classification_scores,
    knn_grid,
    regression_scores,
    scores_by_class,
    several_scores,
    tuned_baselines,
)
from vicinal.evaluation.baselines import mean_baseline
from vicinal.metrics.predictions import HIGHER_IS_BETTER, PRIMARY, PRIMARY_OF_SEVERAL


@given(seed=st.integers(0, 10_000), rows=st.integers(2, 50), targets=st.sampled_from([None, 1, 3]))
def test_regression_equals_scikit_learn(seed, rows, targets):
    rng = np.random.default_rng(seed)
    shape = (rows,) if targets is None else (rows, targets)
    y, p = rng.normal(size=shape), rng.normal(size=shape)
    got = regression_scores(y, p)
    assert got["mse"] == pytest.approx(metrics.mean_squared_error(y, p))
    assert got["mae"] == pytest.approx(metrics.mean_absolute_error(y, p))
    assert got["r2"] == pytest.approx(metrics.r2_score(y, p))


@given(seed=st.integers(0, 10_000), rows=st.integers(1, 50), count=st.integers(2, 5))
def test_classification_equals_scikit_learn(seed, rows, count):
    rng = np.random.default_rng(seed)
    classes = [f"class {i}" for i in range(count)]
    p = rng.dirichlet([0.3] * count, size=rows)
    p[0] = np.eye(count)[0]  # certain, and perhaps wrong
    y = rng.choice(classes, size=rows)
    got = classification_scores(y, p, classes)
    assert got["accuracy"] == pytest.approx(metrics.accuracy_score(y, np.array(classes)[p.argmax(1)]))
    assert got["log_loss"] == pytest.approx(metrics.log_loss(y, p, labels=classes))


def test_edges_of_r2():
    assert regression_scores([1, 2, 3], [2, 2, 2])["r2"] == 0
    assert regression_scores([2, 2], [2, 2])["r2"] == 1
    assert regression_scores([2, 2], [2, 3])["r2"] == 0
    assert math.isnan(regression_scores([2], [3])["r2"])


def test_a_class_never_seen_counts_as_wrong():
    scores = classification_scores(["a", "new"], [[0.5, 0.5], [0.0, 1.0]], ["a", "b"])
    assert scores["accuracy"] == 0.5
    assert scores["log_loss"] == pytest.approx((math.log(2) - math.log(np.finfo(float).eps)) / 2)


def test_every_score_has_a_direction():
    known = {*regression_scores([1, 2], [1, 2]), *classification_scores(["a"], [[1.0]], ["a"])}
    known |= set(several_scores([("a",)], [[1.0]], ["a"], [0.5]))
    assert known | {"ndcg@10"} == set(HIGHER_IS_BETTER)  # of rows ranked within queries
    assert {*PRIMARY.values(), PRIMARY_OF_SEVERAL} <= known


def drawn_rows(count=80, classes=4):
    rng = np.random.default_rng(0)
    labels, chances = (rng.random((count, classes)) < 0.3).astype(float), rng.random((count, classes)).round(1)
    names = list("abcd")[:classes]
    cells = [tuple(name for name, has in zip(names, row, strict=True) if has) for row in labels]
    return labels, chances, names, cells, rng.integers(1, 4, count).astype(float)


def test_scores_of_several_classes_are_those_of_sklearn():
    labels, chances, names, cells, weights = drawn_rows()
    limits = np.array([0.2, 0.5, 0.7, 0.9])
    said = chances >= limits
    for mass in (None, weights):
        scores, known = several_scores(cells, chances, names, limits, mass), {"sample_weight": mass}
        assert scores["micro_f1"] == pytest.approx(f1_score(labels, said, average="micro", **known))
        assert scores["macro_f1"] == pytest.approx(f1_score(labels, said, average="macro", **known))
        assert scores["subset_accuracy"] == pytest.approx(accuracy_score(labels, said, **known))
        assert scores["hamming_loss"] == pytest.approx(hamming_loss(labels, said, **known))
        assert scores["average_precision"] == pytest.approx(average_precision_score(labels, chances, **known))
        each = [log_loss(labels[:, k], chances[:, k], **known) for k in range(4)]
        assert scores["log_loss"] == pytest.approx(np.mean(each))
    half = scores_by_class(labels, chances, limits)[2]
    assert half["precision"] == pytest.approx(precision_score(labels[:, 2], said[:, 2]))
    assert half["recall"] == pytest.approx(recall_score(labels[:, 2], said[:, 2]))


def test_a_class_that_training_never_saw_is_missed_and_one_that_no_row_has_says_nothing():
    cells, chances = [("a", "new"), ("a",)], [[0.9, 0.1], [0.9, 0.2]]
    scores = several_scores(cells, chances, ["a", "b"], [0.5, 0.5])
    assert scores["micro_f1"] == pytest.approx(4 / 5)  # of three that are there two are said
    assert scores["subset_accuracy"] == 0.5
    assert scores["macro_f1"] == scores["average_precision"] == 1  # nobody has b
    assert scores["hamming_loss"] == 0


def test_baselines_of_several_classes_are_one_model_for_each_with_thresholds_of_rows_left_out():
    rng = np.random.default_rng(1)
    x, new = rng.normal(size=(120, 3)), rng.normal(size=(60, 3))

    def named(rows):
        return [tuple(name for name, value in zip("abc", row, strict=True) if value > 0.4) for row in rows]

    cells, truth = named(x), named(new)
    for one in tuned_baselines(x, cells, new, classes=list("abc")):
        assert one.prediction.shape == (60, 3)
        assert one.thresholds.shape == (3,)
        scores = several_scores(truth, one.prediction, list("abc"), one.thresholds)
        assert scores["micro_f1"] > (0.9 if one.name == "logistic regression" else 0.6)
    logistic = tuned_baselines(x, cells, None, classes=list("abc"), methods=["logistic regression"])[0]
    assert 0.8 < several_scores(cells, logistic.prediction, list("abc"), logistic.thresholds)["micro_f1"] < 1
    shares = mean_baseline(cells, 2, classes=list("abcd")).prediction  # no row has d
    np.testing.assert_allclose(shares[0], [*(x > 0.4).mean(0), 0])
    near = knn_grid(x[:80], cells[:80], x[80:], cells[80:], new, classes=list("abc"))
    assert near.validation == pytest.approx(knn_grid(x[:80], (x > 0.4)[:80], x[80:], (x > 0.4)[80:], new).validation)
    with pytest.raises(ValueError, match=r"^methods: expected one of 'logistic regression', 'k-NN', got 'boosting'"):
        tuned_baselines(x, cells, new, classes=list("abc"), methods=["boosting"])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: regression_scores([1, 2], [1, 2, 3]), r"^prediction: expected shape \(2,\) .*, got \(3,\)$"),
        (lambda: regression_scores([], []), r"^prediction: expected .* at least one row"),
        (lambda: regression_scores([1, 2], [1, math.nan]), r"^prediction: expected finite numbers, got nan in row 1$"),
        (lambda: regression_scores([math.inf, 2], [1, 2]), r"^truth: expected finite numbers, got inf in row 0$"),
        (lambda: classification_scores(["a"], [[0.5]], ["a", "b"]), r"^probabilities: expected shape \(1, 2\)"),
        (lambda: several_scores([("a",)], [[1.5]], ["a"], [0.5]), r"^probabilities: expected numbers from 0 to 1, got"),
        (lambda: several_scores([], [], ["a"], [0.5]), r"^probabilities: expected shape \(0, 1\)"),
        (
            lambda: classification_scores(["a"], [[0.5, 0.2]], ["a", "b"]),
            r"^probabilities: expected rows that sum to 1",
        ),
        (
            lambda: classification_scores(["a"], [[1.5, -0.5]], ["a", "b"]),
            r"^probabilities: expected rows that sum to 1",
        ),
        (lambda: classification_scores(["a"], [[math.nan, 1]], ["a", "b"]), r"^probabilities: expected finite numbers"),
    ],
)
def test_bad_input_gets_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
