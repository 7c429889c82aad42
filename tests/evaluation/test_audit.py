"""What an audit computes: slices, coverage, suspicion, left-out predictions."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import Ridge
from sklearn.metrics import average_precision_score

from vicinal.evaluation import average_precision, left_out_predictions, suspicion
from vicinal.evaluation.audit import class_suspicion, coverage_curve, error_slices, target_slices


def test_slices_are_means_of_their_rows_worst_first() -> None:
    rng = np.random.default_rng(0)
    errors, town = rng.random(200), rng.choice(["a", "b", "c"], 200)
    errors[town == "b"] += 1
    found = error_slices(errors, {"town": town.tolist(), "same": ["x"] * 200})
    assert found[0].value == "b"
    assert {part.column for part in found} == {"town"}  # one value only tells nothing
    for part in found:
        mine = errors[town == part.value]
        assert (part.rows, part.error) == (len(mine), pytest.approx(mine.mean()))
        assert part.low <= part.error <= part.high
        assert part.ratio == pytest.approx(mine.mean() / errors.mean())


def test_one_wrong_row_makes_no_group_stand_out() -> None:
    plan, errors = ["team"] * 20 + ["pro"] * 44, np.zeros(64)
    errors[3] = 1.0
    one = error_slices(errors, {"plan": plan})[0]
    assert (one.value, one.ratio, one.stands_out) == ("team", pytest.approx(3.2), False)
    errors[:12] = 1.0
    assert [part.stands_out for part in error_slices(errors, {"plan": plan})] == [True, False]


def test_intervals_of_shares_are_exact() -> None:
    errors = np.array([1.0] * 4 + [0.0] * 8)
    found = {part.value: part for part in error_slices(errors, {"c": ["a"] * 6 + ["b"] * 6})}
    assert (found["a"].low, found["a"].high) == pytest.approx((0.2228, 0.9567), abs=1e-4)  # R: binom.test(4, 6)
    assert (found["b"].low, found["b"].high) == pytest.approx((0, 1 - 0.025 ** (1 / 6)))


def test_missing_cells_are_a_slice_and_small_ones_are_left_out() -> None:
    cells = [None, float("nan"), "", None, "a", "a", "a", "b"]
    found = error_slices(np.arange(8.0), {"c": cells}, least=3)
    assert {(part.value, part.rows) for part in found} == {("missing", 4), ("a", 3)}
    with pytest.raises(ValueError, match="columns: expected 8 values in 'c', got 2"):
        error_slices(np.arange(8.0), {"c": ["a", "b"]})


def test_target_slices_cover_all_rows_once_even_with_ties() -> None:
    target = np.repeat([1.0, 2.0, 3.0], [50, 30, 20])
    found = target_slices(np.ones(100), target, parts=10, least=1)
    assert sum(part.rows for part in found) == 100
    assert all(part.error == 1 for part in found)
    prices = target_slices(np.ones(60), 200 * np.arange(60.0), parts=2, least=1)
    assert [part.value for part in prices] == ["0 to 5900", "5900 to 11800"], "no exponent"


def test_coverage_is_counted_overall_and_by_part() -> None:
    truth = np.arange(8.0)
    bounds = np.stack([truth - 1, truth + 1], 1)
    bounds[6:] += 5
    level = coverage_curve(truth, {0.9: bounds, 0.5: bounds}, parts=4)
    assert [part["coverage"] for part in level] == [0.5, 0.9]
    assert level[1]["covered"] == 0.75
    assert level[1]["by_part"] == [1.0, 1.0, 1.0, 0.0]
    assert level[1]["width"] == 2.0
    with pytest.raises(ValueError, match=r"intervals: expected shape \(8, 2\)"):
        coverage_curve(truth, {0.9: bounds[:3]})


def test_average_precision_is_that_of_scikit_learn_and_pessimistic_in_ties() -> None:
    rng = np.random.default_rng(0)
    scores, wanted = rng.random(300), rng.random(300) < 0.1
    assert average_precision(scores, wanted) == pytest.approx(average_precision_score(wanted, scores))
    assert average_precision(np.zeros(4), [True, False, False, False]) == 0.25
    assert np.isnan(average_precision(scores, np.zeros(300)))


def test_suspicion_by_hand() -> None:
    assert suspicion([1.0, 2.0], [0.0, 2.0], 0.5).tolist() == [2.0, 0.0]
    with pytest.raises(ValueError, match="spread: expected numbers above 0"):
        suspicion([1.0], [0.0], 0.0)
    assert class_suspicion([1, 0], [[0.7, 0.3], [0.6, 0.4]]) == pytest.approx([0.4, 0.0])


@pytest.mark.parametrize("targets", [1, 3])
def test_left_out_predictions_leave_each_row_out(targets: int) -> None:
    rng = np.random.default_rng(1)
    x, noise = rng.normal(size=(30, 4)), rng.normal(size=(30, targets))
    y = x @ rng.normal(size=(4, targets)) + noise
    found = left_out_predictions(x, y if targets > 1 else y[:, 0], strengths=[3.0]).reshape(30, targets)
    z = (x - x.mean(0)) / x.std(0)
    for row in range(30):
        others = np.arange(30) != row
        # the closed form keeps the mean of all rows' features as its origin, as the intercept of ridge allows
        model = Ridge(alpha=3.0).fit(z[others], y[others])
        assert found[row] == pytest.approx(model.predict(z[row : row + 1]).reshape(-1), abs=1e-8)


def test_sparse_and_grouped_rows_are_predicted_in_folds() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(200, 6))
    y = x[:, 0] + 0.1 * rng.normal(size=200)
    by_fold = left_out_predictions(sparse.csr_matrix(x), y)
    assert np.abs(by_fold - y).mean() < 0.15
    twins, groups = np.repeat(rng.normal(size=(60, 55)), 2, axis=0), np.repeat(np.arange(60), 2)
    labels = np.repeat(rng.normal(size=60), 2)
    alone = np.abs(left_out_predictions(twins, labels, strengths=[0.1]) - labels).mean()  # sees the twin
    assert alone < 0.5 * np.abs(left_out_predictions(twins, labels, strengths=[0.1], groups=groups) - labels).mean()
    mixed = [group if row % 2 else str(group) for row, group in enumerate(groups.tolist())]
    np.testing.assert_array_equal(
        left_out_predictions(twins, labels, strengths=[0.1], groups=mixed),
        left_out_predictions(twins, labels, strengths=[0.1], groups=list(map(str, groups))),
    )


def test_planted_wrong_labels_come_first() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(500, 8))
    y = x @ rng.normal(size=8) + 0.3 * rng.normal(size=500)
    wrong = np.zeros(500, dtype=bool)
    wrong[rng.choice(500, 10, replace=False)] = True
    y[wrong] = -y[wrong] + 2 * y.mean()
    expected = left_out_predictions(x, y)
    assert average_precision(suspicion(y, expected, 1.0), wrong) > 0.4  # chance: 0.02
    with pytest.raises(ValueError, match="features: expected 500 rows"):
        left_out_predictions(x[:10], y)
