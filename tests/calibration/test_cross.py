"""Promises of CV+: every row calibrates, by the model fitted without its fold, and what is made covers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vicinal.calibration import class_scores, cross_conformal_interval, cross_conformal_sets


def interval_by_hand(low, high, scores, folds, coverage, unit):
    n = len(scores)
    rank = int(np.ceil((n + 1) * coverage - 1e-9))
    ends = []
    for row in range(len(low)):
        downs = sorted(low[row, folds[i]] - scores[i] * unit[row, folds[i]] for i in range(n))
        ups = sorted(high[row, folds[i]] + scores[i] * unit[row, folds[i]] for i in range(n))
        bottom, top = downs[n - rank], ups[rank - 1]
        middle = (bottom + top) / 2
        ends.append((min(bottom, middle), max(top, middle)))
    return np.array(ends)


@given(seed=st.integers(0, 10_000), rows=st.integers(12, 40), folds=st.integers(2, 6), coverage=st.floats(0.1, 0.9))
def test_intervals_are_those_of_the_definition(seed, rows, folds, coverage):
    rng = np.random.default_rng(seed)
    low = rng.normal(size=(5, folds))
    high, unit = low + rng.uniform(0, 1, (5, folds)), rng.uniform(0.5, 2, (5, folds))
    scores, codes = rng.normal(size=rows), rng.integers(0, folds, rows)
    found = cross_conformal_interval(low, high, scores, codes, coverage, unit=unit)
    np.testing.assert_allclose(found, interval_by_hand(low, high, scores, codes, coverage, unit))


def test_of_one_model_it_is_split_conformal():
    scores = np.arange(1.0, 20.0)
    found = cross_conformal_interval([[3.0, 3.0]], [[3.0, 3.0]], scores, np.arange(19) % 2, 0.9)
    assert found.tolist() == [[3.0 - 18.0, 3.0 + 18.0]]


@given(seed=st.integers(0, 10_000), rows=st.integers(12, 40), coverage=st.floats(0.1, 0.9))
def test_sets_are_those_of_the_definition(seed, rows, coverage):
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.ones(3), (4, 2))
    known, labels, folds = rng.dirichlet(np.ones(3), rows), rng.integers(0, 3, rows), rng.integers(0, 2, rows)
    for method in ("lac", "aps", "raps"):
        found = cross_conformal_sets(shares, known, labels, folds, coverage, method=method)
        scores = class_scores(known, method=method)[np.arange(rows), labels]
        rank = np.ceil((rows + 1) * coverage - 1e-9)
        for row in range(4):
            own = np.stack([class_scores(shares[row, f][None], method=method)[0] for f in range(2)])
            for c in range(3):
                below = sum(scores[i] < own[folds[i], c] for i in range(rows))
                assert found[row, c] == (below < rank)


def test_intervals_and_sets_cover():
    """Ridge in five folds on many draws: at least 1 - 2 alpha is promised, 1 - alpha is seen."""
    rng, covered = np.random.default_rng(0), []
    for _ in range(200):
        x, tail = rng.normal(size=(60, 5)), rng.normal(size=(50, 5))
        truth = rng.normal(size=5)
        y, z = x @ truth + rng.normal(size=60), tail @ truth + rng.normal(size=50)
        folds, said, scores = np.arange(60) % 5, np.empty((50, 5)), np.empty(60)
        for fold in range(5):
            rest = folds != fold
            slope = np.linalg.solve(x[rest].T @ x[rest] + np.eye(5), x[rest].T @ y[rest])
            said[:, fold], scores[~rest] = tail @ slope, np.abs(y[~rest] - x[~rest] @ slope)
        ends = cross_conformal_interval(said, said, scores, folds, 0.8)
        covered.append(np.mean((ends[:, 0] <= z) & (z <= ends[:, 1])))
    assert 0.79 < np.mean(covered) < 0.84


def test_wrong_input_is_named():
    one = [[0.0, 1.0]]
    with pytest.raises(ValueError, match=r"coverage: expected at most 0\.667 with 2 calibration rows"):
        cross_conformal_interval(one, one, [1.0, 2.0], [0, 1], 0.9)
    with pytest.raises(ValueError, match="folds: expected numbers from 0 to 1, got 0 to 2"):
        cross_conformal_interval(one, one, [1.0, 2.0], [0, 2], 0.5)
    with pytest.raises(ValueError, match="folds: expected 2 whole numbers"):
        cross_conformal_interval(one, one, [1.0, 2.0], [0.0, 1.0], 0.5)
    with pytest.raises(ValueError, match=r"probabilities: expected \[rows, folds, classes\]"):
        cross_conformal_sets(one, [[0.5, 0.5]], [0], [0], 0.5)
    with pytest.raises(ValueError, match="method: expected"):
        cross_conformal_sets([one], [[0.5, 0.5]], [0], [0], 0.5, method="other")


@given(seed=st.integers(0, 10_000), rows=st.integers(12, 30), coverage=st.floats(0.1, 0.8))
def test_with_weights_intervals_and_sets_are_weighted_quantiles(seed, rows, coverage):
    rng = np.random.default_rng(seed)
    low, codes, weights = rng.normal(size=(3, 2)), rng.integers(0, 2, rows), rng.integers(1, 4, rows).astype(float)
    scores = rng.normal(size=rows)
    found = cross_conformal_interval(low, low, scores, codes, coverage, weights=weights)
    goal = coverage * (weights.sum() + weights.mean()) - 1e-12
    for row in range(3):
        ups, downs = low[row, codes] + scores, low[row, codes] - scores
        top = min(value for value in ups if weights[ups <= value].sum() >= goal)
        bottom = max(value for value in downs if weights[downs >= value].sum() >= goal)
        middle = (top + bottom) / 2
        np.testing.assert_allclose(found[row], [min(bottom, middle), max(top, middle)])
    shares, known, labels = rng.dirichlet(np.ones(3), (4, 2)), rng.dirichlet(np.ones(3), rows), rng.integers(0, 3, rows)
    sets = cross_conformal_sets(shares, known, labels, codes, coverage, weights=weights)
    strange = class_scores(known)[np.arange(rows), labels]
    for row in range(4):
        own = np.stack([class_scores(shares[row, f][None])[0] for f in range(2)])
        for c in range(3):
            assert sets[row, c] == (weights[strange < own[codes, c]].sum() < goal)
    even = [cross_conformal_interval(low, low, scores, codes, coverage, weights=one) for one in (np.ones(rows), None)]
    np.testing.assert_array_equal(*even)
