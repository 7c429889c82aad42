"""Labels go back to the rows they belong to."""

import itertools

import numpy as np
import pytest

from vicinal.data import match_labels


def drawn(family, seed=0, n=60, q=8, exchanged=12, scale=1.0):
    random = np.random.default_rng(seed)
    x, b = random.normal(size=(n, 3)), scale * random.normal(size=(3, q))
    u = x @ b
    y = {"normal": lambda: u, "poisson": lambda: np.round(np.exp(u)), "logistic": lambda: (u > 0) * 1.0}[family]()
    order = np.arange(n)
    some = random.choice(n, exchanged, replace=False)
    order[some] = random.permutation(order[some])
    return x, y, order


def test_few_exchanged_rows_are_put_back_and_the_objective_never_falls():
    x, y, order = drawn("normal")
    result = match_labels(x, y[order])
    np.testing.assert_array_equal(order[result.order], np.arange(len(x)))
    np.testing.assert_allclose(x @ result.coefficients, y, atol=1e-5)
    for family in ("poisson", "logistic"):
        x, y, order = drawn(family)
        result = match_labels(x, y[order], family=family, ridge=1e-2)
        assert (np.diff(result.objective) >= 0).all()
        right = (y[order][result.order] == y).all(axis=1).mean()
        assert right > (y[order] == y).all(axis=1).mean() + 0.1


def test_the_model_is_that_of_scikit_learn():
    from sklearn.linear_model import LogisticRegression, PoissonRegressor

    x, _, _ = drawn("normal")
    y = np.random.default_rng(1).poisson(np.exp(0.3 * x.sum(axis=1)))
    alone = np.arange(len(x))  # each row in a group of its own: nothing to match
    ours = match_labels(x, y, family="poisson", groups=alone, ridge=0.6).coefficients[:, 0]
    theirs = PoissonRegressor(alpha=0.01, fit_intercept=False, tol=1e-10, max_iter=1000).fit(x, y).coef_
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    ours = match_labels(x, y > 1, family="logistic", groups=alone, ridge=1.0).coefficients[:, 0]
    theirs = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-10).fit(x, y > 1).coef_[0]
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    ours = match_labels(x, y, groups=alone, ridge=0).coefficients[:, 0]
    np.testing.assert_allclose(ours, np.linalg.lstsq(x, y, rcond=None)[0])


def test_with_one_model_no_order_is_better():
    x, y, order = drawn("normal", n=5, q=2, exchanged=2)
    result = match_labels(x, y[order])
    value = [(y[order][list(o)] * (x @ result.coefficients)).sum() for o in itertools.permutations(range(5))]
    best = (y[order][result.order] * (x @ result.coefficients)).sum()
    assert best == pytest.approx(max(value))


def test_groups_keep_their_labels_and_rows_may_be_shuffled_with_them():
    x, y, order = drawn("normal", exchanged=0)
    groups = np.arange(60) // 10
    order = np.concatenate([10 * g + np.random.default_rng(g).permutation(10)[::1] for g in range(6)])
    order[:40] = np.arange(40)
    result = match_labels(x, y[order], groups=groups)
    np.testing.assert_array_equal(groups[result.order], groups)
    np.testing.assert_array_equal(order[result.order], np.arange(60))
    moved = np.random.default_rng(3).permutation(60)
    again = match_labels(x[moved], y[order][moved], groups=groups[moved])
    np.testing.assert_array_equal(moved[again.order], result.order[moved])
    assert match_labels([[2.0]], [3.0]).order.tolist() == [0]


def test_what_cannot_be_matched_is_refused():
    x, y, _ = drawn("normal")
    with pytest.raises(ValueError, match=r"^labels: expected \[n\] or \[n, q\] for rows \[n, d\]"):
        match_labels(x, y[:5])
    with pytest.raises(ValueError, match=r"^rows: expected finite numbers whose columns"):
        match_labels(np.concatenate([x, x[:, :1]], axis=1), y)
    with pytest.raises(ValueError, match=r"^labels: expected counts"):
        match_labels(x, -np.ones(60), family="poisson")
    with pytest.raises(ValueError, match=r"^labels: expected 0 and 1"):
        match_labels(x, 2 * np.ones(60), family="logistic")
    with pytest.raises(ValueError, match=r"^groups: expected \[60\]"):
        match_labels(x, y, groups=[1])
