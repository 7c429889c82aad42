"""Where rows come in groups, quantiles are those of groups: rows of new groups are covered, and few groups refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vicinal.calibration import (
    ConformalClasses,
    class_scores,
    conformal_quantile,
    cross_conformal_interval,
    cross_conformal_sets,
    drawn_rows,
    group_mass,
)


def drawn(rng, groups, most=20):
    """Group of each row, groups of 1 to ``most`` rows, and scores of which the group makes most."""
    codes = np.repeat(np.arange(groups), rng.integers(1, most + 1, groups))
    return codes, np.abs(2 * rng.normal(size=groups)[codes] + 0.3 * rng.normal(size=len(codes)))


@given(st.integers(0, 10_000), st.integers(10, 30), st.floats(0.1, 0.85), st.booleans())
def test_the_quantile_is_that_of_groups_each_of_mass_one(seed, number, coverage, weighted):
    rng = np.random.default_rng(seed)
    codes, scores = drawn(rng, number, 6)
    weights = rng.integers(1, 4, len(codes)).astype(float) if weighted else None
    q = conformal_quantile(scores, coverage, groups=codes, weights=weights)
    each = np.ones(len(codes)) if weights is None else weights

    def mass_up_to(value):
        return (np.bincount(codes, each * (scores <= value)) / np.bincount(codes, each)).sum()

    assert mass_up_to(q) >= coverage * (number + 1) - 1e-9
    assert mass_up_to(np.nextafter(q, -1)) < coverage * (number + 1)


def test_groups_of_one_row_are_rows():
    scores = np.random.default_rng(0).normal(size=40)
    names = [f"g{row}" for row in range(40)]
    assert conformal_quantile(scores, 0.9, groups=names) == conformal_quantile(scores, 0.9)
    low, folds = np.random.default_rng(1).normal(size=(5, 4)), np.arange(40) % 4
    both = [cross_conformal_interval(low, low, scores, folds, 0.9, groups=one) for one in (names, None)]
    np.testing.assert_array_equal(*both)


def test_rows_of_new_groups_are_covered_and_were_not_when_each_row_counted():
    rng = np.random.default_rng(2)
    covered = {"groups": [], "rows": []}
    for _ in range(1000):
        codes, scores = drawn(rng, 12)
        new = abs(2 * rng.normal() + 0.3 * rng.normal())
        covered["groups"].append(new <= conformal_quantile(scores, 0.9, groups=codes))
        covered["rows"].append(new <= conformal_quantile(scores, 0.9))
    assert np.mean(covered["groups"]) > 0.885
    assert np.mean(covered["rows"]) < 0.875


def test_folds_of_groups_cover_rows_of_new_groups():
    rng = np.random.default_rng(3)
    inside = []
    for _ in range(200):
        codes, _ = drawn(rng, 20, 8)
        y = 2 * rng.normal(size=20)[codes] + 0.3 * rng.normal(size=len(codes))
        folds, new = codes % 4, 2 * rng.normal(size=20) + 0.3 * rng.normal(size=20)
        said = np.array([np.mean([y[codes == g].mean() for g in range(20) if g % 4 != fold]) for fold in range(4)])
        low = np.tile(said, (20, 1))
        ends = cross_conformal_interval(low, low, np.abs(y - said[folds]), folds, 0.9, groups=codes)
        inside.append(np.mean((ends[:, 0] <= new) & (new <= ends[:, 1])))
    assert 0.88 < np.mean(inside) < 0.96


def test_sets_of_classes_count_groups():
    rng = np.random.default_rng(4)
    codes = np.repeat(np.arange(12), 5)
    shares, labels = rng.dirichlet(np.ones(3), 60), rng.integers(0, 3, 60)
    new = rng.dirichlet(np.ones(3), 30)
    scores = class_scores(shares)[np.arange(60), labels]
    one = ConformalClasses("lac", coverage=0.8).fit(shares, labels, groups=codes)
    assert one.threshold == conformal_quantile(scores, 0.8, groups=codes)
    crossed = cross_conformal_sets(new[:, None], shares, labels, np.zeros(60, int), 0.8, groups=codes)
    np.testing.assert_array_equal(crossed, class_scores(new) <= one.threshold)


def test_too_few_groups_are_refused_and_groups_without_weight_count_for_nothing():
    codes, scores = np.repeat([0, 1, 2], 10), np.arange(30.0)
    with pytest.raises(ValueError, match=r"coverage: expected at most 0\.750 with 3 calibration groups, got 0\.9"):
        conformal_quantile(scores, 0.9, groups=codes)
    with pytest.raises(ValueError, match=r"coverage: expected at most 0\.750 with 3 calibration groups, got 0\.9"):
        cross_conformal_interval([[0.0]], [[0.0]], scores, np.zeros(30, int), 0.9, groups=codes)
    assert conformal_quantile(scores, 0.75, groups=codes) == 29
    with pytest.raises(ValueError, match=r"at most 0\.667 with 2 calibration groups"):
        conformal_quantile(scores, 0.75, groups=codes, weights=(codes > 0).astype(float))
    with pytest.raises(ValueError, match="groups: expected 30 entries, got 29"):
        conformal_quantile(scores, 0.5, groups=codes[:29])
    assert group_mass(["b", "b", "a"], np.array([1.0, 3.0, 2.0]))[0].tolist() == [0.25, 0.75, 1.0]


def test_rows_are_drawn_by_weight_and_of_each_group_one():
    weights, codes = np.array([1.0, 3.0, 0.0, 2.0, 0.0]), ["a", "a", "a", "b", "c"]
    draws = [drawn_rows(5, weights, codes, seed=seed) for seed in range(400)]
    assert all(len(rows) == 2 and rows[0] < rows[1] == 3 for rows in draws)  # a group without weight has no row
    assert np.mean([rows[0] == 1 for rows in draws]) == pytest.approx(0.75, abs=0.07)
    counts = np.bincount(np.concatenate([drawn_rows(5, weights, seed=seed) for seed in range(400)]), minlength=5)
    assert counts / 400 == pytest.approx(weights / 3, abs=0.08)
    assert counts[1] == 400
    assert drawn_rows(4).tolist() == [0, 1, 2, 3]
    assert drawn_rows(0).tolist() == drawn_rows(0, groups=[]).tolist() == []
