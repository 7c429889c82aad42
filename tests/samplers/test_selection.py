"""Pruning by prototypes, k-center and facility location against their definitions."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vicinal.samplers import facility_location_order, k_center_order, keep_rows, label_bands, prototype_distances


def drawn(rows=60, dim=4, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, dim))


def test_one_prototype_is_the_mean():
    x = drawn()
    np.testing.assert_allclose(
        prototype_distances(x, kind="euclidean"), np.linalg.norm(x - x.mean(0), axis=1), rtol=1e-12
    )
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    center = unit.mean(0) / np.linalg.norm(unit.mean(0))
    np.testing.assert_allclose(prototype_distances(x), 1 - unit @ center, rtol=1e-9, atol=1e-12)


def test_groups_have_their_own_prototypes():
    x, groups = drawn(), np.arange(60) % 3
    found = prototype_distances(x, groups=groups, kind="euclidean")
    for name in range(3):
        mine = groups == name
        np.testing.assert_allclose(found[mine], prototype_distances(x[mine], kind="euclidean"))


def test_difficulty_scales_with_euclidean_and_not_with_cosine():
    x = drawn()
    np.testing.assert_allclose(
        prototype_distances(3 * x, 4, kind="euclidean"), 3 * prototype_distances(x, 4, kind="euclidean"), rtol=1e-6
    )
    np.testing.assert_allclose(prototype_distances(3 * x, 4), prototype_distances(x, 4), atol=1e-9)


def test_as_many_prototypes_as_rows_leave_no_difficulty():
    assert prototype_distances(drawn(), 60).max() == 0
    assert prototype_distances(drawn(), 60, groups=np.arange(60)).max() == 0


def test_duplicates_and_flat_rows_are_no_trouble():
    assert np.isfinite(prototype_distances(np.zeros((6, 3)))).all()
    assert prototype_distances([[1e4, 1e4]]).tolist() == [0.0]


@given(st.lists(st.integers(0, 5), min_size=2, max_size=40), st.data())
def test_hard_and_easy_are_a_partition(values, data):
    number = data.draw(st.integers(1, len(values) - 1))
    share = number / len(values)
    hard, easy = keep_rows(values, share), keep_rows(values, 1 - share, keep="easy")
    assert sorted([*hard, *easy]) == list(range(len(values)))
    assert min(np.array(values)[hard]) >= max(np.array(values)[easy])


@given(st.floats(0.05, 1.0), st.floats(0, 1), st.integers(0, 100))
def test_no_group_starves(share, balance, seed):
    random = np.random.default_rng(seed)
    values, groups = random.normal(size=80), random.integers(0, 4, 80)
    kept = keep_rows(values, share, groups=groups, balance=balance)
    assert len(kept) == max(int(share * 80 + 0.5), 1)
    for name in range(4):
        assert (groups[kept] == name).sum() >= np.floor(balance * share * (groups == name).sum() + 1e-9)


def test_everything_is_kept_at_share_one():
    assert keep_rows([3.0, 1.0, 2.0], 1.0, groups=["a", "b", "a"]).tolist() == [0, 1, 2]


def test_bands_are_deciles():
    assert np.bincount(label_bands(np.random.default_rng(0).normal(size=1000))).tolist() == [100] * 10
    assert len(set(label_bands(np.zeros(5)).tolist())) == 1


@pytest.mark.parametrize("seed", range(5))
def test_k_center_is_within_twice_the_best(seed):
    x = drawn(12, 2, seed)
    found = k_center_order(x, 3)
    distances = np.linalg.norm(x[:, None] - x, axis=2)
    best = min(distances[:, list(some)].min(1).max() for some in itertools.combinations(range(12), 3))
    assert best <= found.values[-1] <= 2 * best + 1e-12
    assert found.values[-1] == pytest.approx(distances[:, found.rows].min(1).max())
    assert (np.diff(found.values) <= 1e-12).all()


def test_k_center_goes_on_from_rows_that_are_there():
    x = drawn()
    whole = k_center_order(x, 8)
    rest = k_center_order(x, 5, chosen=whole.rows[:3])
    assert rest.rows.tolist() == whole.rows[3:].tolist()
    assert sorted(k_center_order(np.zeros((4, 2)), 4).rows.tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", range(5))
def test_facility_location_is_greedy_and_near_the_best(seed):
    x = drawn(12, 3, seed)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    similar = (1 + unit @ unit.T) / 2
    found, picked = facility_location_order(x, 4), []
    for row, value in zip(found.rows.tolist(), found.values, strict=True):  # as plain greedy, ties aside
        gains = [similar[:, [*picked, j]].max(1).mean() for j in range(12)]
        assert gains[row] == pytest.approx(max(gains))
        assert value == pytest.approx(max(gains))
        picked.append(row)
    best = max(similar[:, list(some)].max(1).mean() for some in itertools.combinations(range(12), 4))
    assert found.values[-1] >= (1 - 1 / np.e) * best


def test_all_rows_can_be_ordered():
    assert sorted(facility_location_order(drawn(20), 20).rows.tolist()) == list(range(20))
    assert facility_location_order(np.ones((3, 2)), 3).values.tolist() == pytest.approx([1.0, 1.0, 1.0])


def test_wrong_arguments_are_named():
    x = drawn(5)
    for call, words in (
        (lambda: prototype_distances(x, 6), "prototypes: expected at most the 5 rows"),
        (lambda: prototype_distances(x, groups=[1, 2]), "groups: expected one for each of 5 rows"),
        (lambda: prototype_distances([[np.nan]]), "finite"),
        (lambda: keep_rows([1.0], 0.0), "share"),
        (lambda: keep_rows([], 0.5), "difficulty"),
        (lambda: keep_rows([1.0], 0.5, balance=2), "balance"),
        (lambda: k_center_order(x, 6), "k: expected at most the 5 rows left"),
        (lambda: k_center_order(x, 1, chosen=[7]), "chosen"),
        (lambda: facility_location_order(x, 6), "k: expected at most the 5 rows"),
        (lambda: label_bands([np.nan]), "labels"),
    ):
        with pytest.raises(ValueError, match=words):
            call()


def test_the_middle_band_and_exact_counts_of_each_group():
    values = np.random.default_rng(0).normal(size=41)
    for share in (0.1, 0.5, 0.9, 1.0):
        rows = keep_rows(values, share, keep="middle")
        assert len(rows) == max(1, math.floor(share * 41 + 0.5))
        rank = np.sort(values.argsort().argsort()[rows])
        assert (np.diff(rank) == 1).all()
        assert abs(rank[0] - (40 - rank[-1])) <= 1
        np.testing.assert_array_equal(keep_rows(np.exp(3 * values), share, keep="middle"), rows)
    groups = np.array(["a"] * 11 + ["b"] * 30)
    for keep in ("hard", "easy", "middle"):
        rows = keep_rows(values, 0.3, keep=keep, groups=groups, each_group=True)
        assert [int((groups[rows] == name).sum()) for name in "ab"] == [3, 9]
        np.testing.assert_array_equal(rows[rows < 11], keep_rows(values[:11], 0.3, keep=keep))
    assert not set(keep_rows(values, 0.5, keep="easy")) & set(keep_rows(values, 0.49, keep="hard"))
