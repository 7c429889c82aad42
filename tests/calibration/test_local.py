"""The usual size of errors: ridge regression of roots on hats of ranks, left out as if fitted without the row."""

import numpy as np
import pytest

from vicinal.calibration import ErrorSize


def hats(features, known):
    """Five hats at the middle rank of each value, counted one by one."""
    ranks = np.array(
        [[(np.sum(k < v) + np.sum(k <= v)) / 2 / len(k) for v, k in zip(row, known.T, strict=True)] for row in features]
    )
    return np.concatenate([np.maximum(0, 1 - 4 * abs(ranks - knot)) for knot in np.linspace(0, 1, 5)], axis=1)


def by_ridge(columns, roots, queries):
    """Ridge of penalty 10 with a free constant, by least squares over rows of the penalty."""
    mean, columns, queries = roots.mean(), columns - columns.mean(0), queries - columns.mean(0)
    rows = np.r_[columns, np.sqrt(10) * np.eye(columns.shape[1])]
    weights = np.linalg.lstsq(rows, np.r_[roots - mean, np.zeros(columns.shape[1])], rcond=None)[0]
    return np.maximum(mean + queries @ weights, mean / 4) ** 2


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    x = np.c_[rng.normal(size=60).round(1), rng.exponential(size=60)]  # the first has ties
    return x, (0.2 + x[:, 1]) * rng.normal(size=60)


def test_sizes_are_those_of_a_ridge_regression(rows):
    x, errors = rows
    queries = np.array([[0.0, 1.0], [-9.0, 9.0], [1e4, -1e4]])
    expected = by_ridge(hats(x, x), np.sqrt(abs(errors)), hats(queries, x))
    np.testing.assert_allclose(ErrorSize(x, errors)(queries), expected, rtol=1e-9)
    np.testing.assert_allclose(ErrorSize(x, -errors)(queries), expected, rtol=1e-9)


def test_a_calibrating_row_has_no_part_in_its_own_size(rows):
    x, errors = rows
    columns, roots, others = hats(x, x), np.sqrt(abs(errors)), ~np.eye(60, dtype=bool)
    fitted = np.array([by_ridge(columns[one], roots[one], columns[[i]])[0] for i, one in enumerate(others)])
    free = fitted > roots.mean() ** 2 / 8  # where neither mean is a floor
    assert free.sum() > 50
    np.testing.assert_allclose(ErrorSize(x, errors).left_out[free], fitted[free], rtol=1e-9)


@pytest.mark.parametrize("errors", [[], [2.0], [0.0, 0.0, 0.0], [1.0, 1.0]])
def test_few_or_equal_errors_have_one_size(errors):
    size = ErrorSize(np.zeros((len(errors), 2)), errors)
    expected = 1.0 if not np.any(errors) else np.abs(errors).mean()
    np.testing.assert_allclose(size([[0.0, 0.0], [5.0, -5.0]]), expected)
    assert size.left_out.shape == (len(errors),)
    assert (size.left_out > 0).all()


def test_shapes_and_numbers_are_checked():
    with pytest.raises(ValueError, match="errors: expected 3 entries, got 2"):
        ErrorSize(np.zeros((3, 1)), [1.0, 2.0])
    with pytest.raises(ValueError, match="features: expected 2 columns, got 1"):
        ErrorSize(np.zeros((3, 2)), np.ones(3))([[1.0]])
