"""The nearest metric to a table of dissimilarities."""

from pathlib import Path

import numpy as np
import pytest

from vicinal.data import nearest_metric

GOLDEN = Path(__file__).parents[1] / "golden/sets/metric_nearness.npz"


def ratings(seed, count=12):
    table = np.triu(np.random.default_rng(seed).random((count, count)), 1)
    return table + table.T


def largest_violation(x):
    return max(float((x - x[:, [k]] - x[k]).max()) for k in range(len(x)))


def objective(x, d, w=1.0):
    return float((w * (x - d) ** 2).sum()) / 4


def test_it_is_that_of_a_quadratic_program():
    with np.load(GOLDEN) as data:
        plain, weighted = nearest_metric(data["D"]), nearest_metric(data["D"], data["W"])
        np.testing.assert_allclose(plain, data["nearest"], rtol=0, atol=1e-6)
        np.testing.assert_allclose(weighted, data["nearest_weighted"], rtol=0, atol=1e-6)
        np.testing.assert_allclose(nearest_metric(data["metric_D"]), data["metric_nearest"], rtol=0, atol=1e-6)
        assert objective(plain, data["D"]) == pytest.approx(float(data["value"]), abs=1e-9)
        assert objective(weighted, data["D"], data["W"]) == pytest.approx(float(data["value_weighted"]), abs=1e-7)


@pytest.mark.slow
def test_every_triangle_holds_and_a_metric_is_itself():
    d = ratings(0, 40)
    x = nearest_metric(d)
    assert largest_violation(x) <= 1e-15
    np.testing.assert_array_equal(x, x.T)
    np.testing.assert_array_equal(nearest_metric(x), x)
    points = np.random.default_rng(1).normal(size=(9, 2))
    metric = np.linalg.norm(points[:, None] - points, axis=-1)
    np.testing.assert_allclose(nearest_metric(metric), metric, rtol=1e-15)


@pytest.mark.slow
def test_no_metric_near_it_is_nearer():
    d = ratings(2)
    x = nearest_metric(d)
    best = objective(x, d)
    for seed in range(20):
        other = nearest_metric(ratings(seed + 10))
        for share in (0.5, 0.01, 1e-4):
            assert objective((1 - share) * x + share * other, d) > best - 1e-9  # metrics are convex


def test_shortest_paths_only_decrease_and_are_further():
    d = ratings(3)
    x, less = nearest_metric(d), nearest_metric(d, decrease_only=True)
    assert (less <= d).all()
    assert largest_violation(less) <= 1e-15
    assert objective(x, d) < objective(less, d)


def test_the_order_of_the_things_does_not_matter():
    d, w = ratings(4), ratings(5) + 0.1
    order = np.random.default_rng(0).permutation(len(d))
    x, moved = nearest_metric(d, w), nearest_metric(d[order][:, order], w[order][:, order])
    np.testing.assert_allclose(moved, x[order][:, order], rtol=0, atol=1e-7)
    np.testing.assert_allclose(nearest_metric(1e4 * d), 1e4 * nearest_metric(d), rtol=0, atol=1e-3)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_with_fewer_than_three_things_there_is_nothing_to_do(count):
    d = ratings(6, count)
    np.testing.assert_array_equal(nearest_metric(d), d)


def test_equal_and_zero_entries_stay_metrics():
    d = np.array([[0.0, 0, 3], [0, 0, 1], [3, 1, 0]])
    np.testing.assert_allclose(nearest_metric(d), [[0, 2 / 3, 7 / 3], [2 / 3, 0, 5 / 3], [7 / 3, 5 / 3, 0]], atol=1e-7)
    ones = 1.0 - np.eye(4)
    np.testing.assert_array_equal(nearest_metric(ones), ones)


def test_what_is_no_table_is_refused():
    d = ratings(7, 4)
    with pytest.raises(ValueError, match=r"^dissimilarities: expected \[n, n\], got \(2, 3\)"):
        nearest_metric(np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"^dissimilarities: expected a symmetric table"):
        nearest_metric(np.triu(d))
    with pytest.raises(ValueError, match=r"^dissimilarities: expected a symmetric table"):
        nearest_metric(-d)
    with pytest.raises(ValueError, match=r"^dissimilarities: expected 0 on the diagonal"):
        nearest_metric(d + np.eye(4))
    with pytest.raises(ValueError, match=r"^weight: expected"):
        nearest_metric(d, np.zeros((4, 4)))
    with pytest.warns(UserWarning, match=r"^nearest_metric: 1 rounds were not enough"):
        nearest_metric(ratings(8, 30), rounds=1)
