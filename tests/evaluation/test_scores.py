"""Scores against scikit-learn, and at their edges."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from vicinal.evaluation import HIGHER_IS_BETTER, PRIMARY, classification_scores, regression_scores


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
    assert known == set(HIGHER_IS_BETTER)
    assert set(PRIMARY.values()) <= known


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: regression_scores([1, 2], [1, 2, 3]), r"^prediction: expected shape \(2,\) .*, got \(3,\)$"),
        (lambda: regression_scores([], []), r"^prediction: expected .* at least one row"),
        (lambda: regression_scores([1, 2], [1, math.nan]), r"^prediction: expected finite numbers, got nan in row 1$"),
        (lambda: regression_scores([math.inf, 2], [1, 2]), r"^truth: expected finite numbers, got inf in row 0$"),
        (lambda: classification_scores(["a"], [[0.5]], ["a", "b"]), r"^probabilities: expected shape \(1, 2\)"),
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
