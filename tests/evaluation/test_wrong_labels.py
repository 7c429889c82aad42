"""Which labels are probably wrong: the mixture's own definition, no false alarm, and edge cases."""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_predict

from vicinal.evaluation import wrong_classes, wrong_labels


def spoiled(rows=600, wrong=30, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.uniform(-1, 1, rows)
    labels = truth + noise * rng.standard_t(5, rows)
    at = rng.choice(rows, wrong, replace=False)
    labels[at] = rng.permutation(labels)[:wrong]
    return labels, truth, at


def test_wrong_numbers_are_named_and_as_many_as_are_expected_to_be():
    labels, expected, at = spoiled()
    found = wrong_labels(labels, expected)
    named = np.flatnonzero(found.chance >= 0.5)
    right = np.isin(named, at).sum()
    assert found.worth == len(named) >= 15
    assert right >= 0.7 * len(named)
    assert found.expected == pytest.approx(found.chance[named].sum())
    assert abs(found.expected - right) < 6
    assert 0.02 < found.share < 0.1


def test_the_chance_is_bayes_rule_of_ratio_and_share():
    labels, expected, _ = spoiled()
    found = wrong_labels(labels, expected)
    odds = found.share / (1 - found.share) * np.exp(found.ratio)
    assert found.chance == pytest.approx(odds / (1 + odds), abs=1e-9)


@pytest.mark.parametrize("freedom", [3, 30])
def test_a_table_without_wrong_labels_has_none_to_check(freedom):
    rng = np.random.default_rng(1)
    truth = rng.normal(size=500)
    scale = 0.1 + 0.2 * (truth > 0)  # errors depend on the prediction
    found = wrong_labels(truth + scale * rng.standard_t(freedom, 500), truth)
    assert found.worth == found.expected == found.share == 0
    assert len(found.ratio) == 500


@pytest.mark.parametrize("seed", [4, 7])
def test_rows_that_are_hard_to_predict_have_no_wrong_labels(seed):
    rng = np.random.default_rng(seed)
    truth, hard = rng.normal(size=1500), rng.random(1500) < 0.08
    errors = 0.15 * rng.normal(size=1500) * np.where(hard, 5, 1)
    assert wrong_labels(truth + errors, truth).worth == 0


def test_slips_of_ten_and_the_same_error_in_all_are_found():
    rng = np.random.default_rng(0)
    truth, at = np.exp(rng.normal(size=1000)), np.arange(0, 1000, 100)
    labels = truth * np.exp(0.2 * rng.normal(size=1000))
    labels[at] *= 10
    assert np.isin(at, np.flatnonzero(wrong_labels(labels, truth).chance >= 0.5)).sum() >= 8
    labels = np.log(truth) + 0.1 * rng.normal(size=1000)
    labels[at] += 3
    assert np.isin(at, np.flatnonzero(wrong_labels(labels, np.log(truth)).chance >= 0.5)).all()


def test_many_wrong_labels_are_told_where_they_are_clear_and_not_of_noise():
    labels, expected, at = spoiled(wrong=90)
    found = wrong_labels(labels, expected)
    named = np.flatnonzero(found.chance >= 0.5)
    assert found.share > 0.1
    assert np.isin(named, at).sum() >= 0.9 * len(named) >= 40
    x, progression = load_diabetes(return_X_y=True)  # clean, and half of it noise to a linear model
    line = cross_val_predict(LinearRegression(), x, progression, cv=10)
    assert wrong_labels(progression, line).worth == 0


def test_classes_are_named_by_bayes_rule_and_only_where_there_is_a_sign():
    rng = np.random.default_rng(2)
    chance = rng.beta(0.2, 0.2, 500)
    shares = np.column_stack([1 - chance, chance])
    places = (rng.random(500) < chance).astype(int)
    assert wrong_classes(places, shares).worth == 0
    at = np.argsort(-np.abs(chance - 0.5))[:20]
    places[at] = 1 - places[at]
    found = wrong_classes(places, shares)
    assert np.isin(at, np.flatnonzero(found.chance >= 0.5)).all()
    assert set(np.argsort(-found.ratio)[:20]) == set(at)
    assert ((found.chance >= 0) & (found.chance <= 1)).all()


@pytest.mark.parametrize("labels", [[], [1.0], [2.0] * 50, [0.0, 1.0] * 10])
def test_few_or_equal_labels_give_no_sign(labels):
    found = wrong_labels(labels, np.zeros(len(labels)))
    assert found.worth == 0
    assert len(found.chance) == len(labels)
    assert np.isfinite(found.ratio).all()


def test_shapes_are_checked():
    with pytest.raises(ValueError, match=r"expected: expected the shape of the labels \(3,\), got \(2,\)"):
        wrong_labels([1.0, 2.0, 3.0], [1.0, 2.0])
