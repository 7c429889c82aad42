"""Match weights against known ones that data are drawn from, and against plain expectation maximization."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vicinal.linkage.competition import Competition
from vicinal.linkage.fellegi_sunter import MatchWeights, Patterns, estimate

M = [[0, 0.05, 0.15, 0.8], [0, 0.1, 0.1, 0.1, 0.7], [0, 0.3, 0.7], [0, 0.1, 0.2, 0.7]]
U = [[0, 0.95, 0.04, 0.01], [0, 0.87, 0.06, 0.04, 0.03], [0, 0.9, 0.1], [0, 0.93, 0.05, 0.02]]
SIZES = [len(m) for m in M]


def one_class(m=M, u=U):
    return MatchWeights([list(map(np.array, m))], list(map(np.array, u)), np.ones(1))


def drawn(rng, matches, m=M, u=U, empty=0.05):
    """Levels of pairs, each column by itself, some cells empty."""
    levels = np.zeros((len(matches), len(m)), dtype=np.int8)
    for column, (of_matches, of_others) in enumerate(zip(m, u, strict=True)):
        each = [rng.choice(len(share), len(matches), p=share) for share in (of_others, of_matches)]
        levels[:, column] = np.where(matches, each[1], each[0]) * (rng.random(len(matches)) >= empty)
    return levels


def shares(levels, weights, prior, sizes=SIZES):
    """Of each level among filled cells, with one pair more."""
    found = []
    for column, size in enumerate(sizes):
        count = np.array([weights[levels[:, column] == level].sum() for level in range(size)]) + prior[column]
        count[0] = 0
        found.append(count / count.sum())
    return found


def of_single(rows=250, share=0.02, seed=0, **kinds):
    """All pairs of one table, of which a share matches."""
    rng = np.random.default_rng(seed)
    pairs = np.stack(np.triu_indices(rows, 1), axis=1)
    matches = rng.random(len(pairs)) < share
    levels = drawn(rng, matches, **kinds)
    u = shares(levels, np.ones(len(pairs)), np.zeros((levels.shape[1], 1)))
    return levels, matches, u, Competition.of(pairs, (rows, rows), "many", is_single=True)


def of_two(rows=(120, 100), count=70, seed=0):
    """All pairs of two tables, of which the first rows match."""
    rng = np.random.default_rng(seed)
    pairs = np.stack(np.divmod(np.arange(rows[0] * rows[1]), rows[1]), axis=1)
    matches = (pairs[:, 0] == pairs[:, 1]) & (pairs[:, 0] < count)
    levels = drawn(rng, matches)
    u = shares(levels, np.ones(len(pairs)), np.zeros((4, 1)))
    return levels, matches, u, Competition.of(pairs, rows, "one-to-one", is_single=False)


def pooled(m, u):
    """The ratios of highest likelihood that never fall: of all ways to make neighbors one, by brute force."""
    best, ratios, size = -np.inf, None, len(m)
    for cuts in range(1 << (size - 1)):
        ends = [0, *(at + 1 for at in range(size - 1) if cuts >> at & 1), size]
        each = np.concatenate([np.full(b - a, sum(m[a:b]) / sum(u[a:b])) for a, b in pairwise(ends)])
        if (np.diff(np.log(each)) >= -1e-12).all() and (likelihood := m @ np.log(each)) > best:
            best, ratios = likelihood, each
    return ratios


def maximized(levels, u, rarity, possible, rows):
    """The same by plain arrays: no patterns, no competition."""
    ramps = [np.arange(size) ** 2.0 for size in SIZES]
    for ramp in ramps:
        ramp[-1] *= 3
    ramps = [ramp / ramp.sum() for ramp in ramps]
    total, m, count = u, ramps, 0.3 * rows
    for turn in range(60):
        weights = [np.append(0.0, np.log(pooled(a[1:], b[1:]))) for a, b in zip(m, u, strict=True)]
        score = sum(weight[levels[:, column]] for column, weight in enumerate(weights))
        chances = 1 / (1 + np.exp(-(score + rarity + np.log(count / (possible - count)))))
        before, count = count, chances.sum()
        m = shares(levels, chances, ramps)
        rest = [np.maximum(a - count / possible * b, 0.02 * a) for a, b in zip(total, m, strict=True)]
        u = [each / each.sum() for each in rest]
        if turn >= 10 and abs(count - before) < 1e-3 * before:
            break
    return m, u, chances, count


@pytest.mark.parametrize("is_rare", [False, True])
def test_against_expectation_maximization_pair_by_pair(is_rare):
    levels, _, u, competition = of_single(120)
    rarity = np.random.default_rng(1).normal(0, 1, len(levels)) * (levels[:, 0] == 3) * is_rare
    found = estimate(Patterns.of(levels, SIZES), rarity, u, competition)
    m, cleaned, chances, count = maximized(levels, u, rarity, len(levels), 120)
    for column in range(4):
        np.testing.assert_allclose(found.weights.m[0][column], m[column], atol=1e-6)
        np.testing.assert_allclose(found.weights.u[column], cleaned[column], atol=1e-6)
    np.testing.assert_allclose(found.chances, chances, atol=1e-6)
    assert found.matches == pytest.approx(count, rel=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_known_weights_are_found(seed):
    levels, matches, u, competition = of_single(seed=seed)
    found = estimate(Patterns.of(levels, SIZES), np.zeros(len(levels)), u, competition)
    true = [shares(levels, (matches == kind).astype(float), np.zeros((4, 1))) for kind in (0, 1)]
    for column in range(4):
        np.testing.assert_allclose(found.weights.u[column], true[0][column], atol=0.003)
        np.testing.assert_allclose(found.weights.m[0][column], true[1][column], atol=0.05)
    assert found.matches == pytest.approx(matches.sum(), rel=0.06)
    for low, high in pairwise([0, 0.1, 0.5, 0.9, 1]):  # probabilities are shares
        band = (found.chances >= low) & (found.chances <= high)
        assert matches[band].mean() == pytest.approx(found.chances[band].mean(), abs=0.12)


def test_u_is_of_pairs_that_do_not_match():
    levels, matches, u, competition = of_single(share=0.1)
    found = estimate(Patterns.of(levels, SIZES), np.zeros(len(levels)), u, competition)
    apart = shares(levels, (~matches).astype(float), np.zeros((4, 1)))
    for column in range(4):
        assert u[column][-1] > 1.5 * apart[column][-1]
        assert found.weights.u[column][-1] == pytest.approx(apart[column][-1], rel=0.15)
        assert found.weights.u[column].sum() == pytest.approx(1)


def test_pairs_that_compete_are_told_apart_better():
    levels, matches, u, competition = of_two()
    patterns = Patterns.of(levels, SIZES)
    found = estimate(patterns, np.zeros(len(levels)), u, competition)
    free = estimate(
        patterns, np.zeros(len(levels)), u, Competition.of(competition.pairs, (120, 100), "many", is_single=False)
    )
    assert found.matches == pytest.approx(70, abs=6)
    for side in (0, 1):
        assert np.bincount(competition.pairs[:, side], weights=found.chances).max() <= 1.02
    errors = [((each.chances - matches) ** 2).sum() for each in (found, free)]
    assert errors[0] < 0.6 * errors[1]


def test_u_among_candidates():
    levels, matches, u, competition = of_two()
    near = (levels > 1).sum(axis=1) >= 1  # candidates resemble each other more than random pairs do
    some = Competition.of(competition.pairs[near], (120, 100), "one-to-one", is_single=False)
    found = estimate(Patterns.of(levels[near], SIZES), np.zeros(near.sum()), u, some, among=True)
    apart = shares(levels[near], (~matches[near]).astype(float), np.zeros((4, 1)))
    for column in range(4):
        np.testing.assert_allclose(found.weights.u[column], apart[column], atol=0.01)
    assert found.matches == pytest.approx(matches[near].sum(), abs=15)


def test_few_matches_are_found_from_a_start_at_them():
    levels, _, u, competition = of_two(count=4)
    start = ((levels == np.array(SIZES) - 1) | (levels == 0)).all(axis=1).astype(float)
    found = estimate(Patterns.of(levels, SIZES), np.zeros(len(levels)), u, competition, start=start)
    assert found.matches < 12
    again = estimate(Patterns.of(levels, SIZES), np.zeros(len(levels)), u, competition, start=found.chances)
    assert again.matches == pytest.approx(found.matches, rel=0.05)


def moved(rows=250, share=0.03, seed=0, part=0.2):
    """Six columns; of the matches a part has moved: three columns of the address differ together."""
    m, u = [M[3]] * 6, [U[3]] * 6
    levels, matches, _, competition = of_single(rows, share, seed, m=m, u=u)
    rng = np.random.default_rng(seed + 1)
    movers = matches & (rng.random(len(matches)) < part)
    levels[np.ix_(movers, [3, 4, 5])] = drawn(rng, np.zeros(movers.sum(), dtype=bool), m[3:], u[3:], 0)
    total = shares(levels, np.ones(len(levels)), np.zeros((6, 1)), [4] * 6)
    return levels, matches, movers, total, competition


def test_a_second_class_of_matches_has_what_differs_together():
    levels, matches, movers, u, competition = moved()
    patterns = Patterns.of(levels, [4] * 6)
    one, two = (estimate(patterns, np.zeros(len(levels)), u, competition, second=second) for second in (False, True))
    assert one.weights.shares.tolist() == [1]
    assert two.weights.shares == pytest.approx([0.8, 0.2], abs=0.07)
    differs = np.array([[of_column[1] for of_column in m] for m in two.weights.m])
    np.testing.assert_allclose(differs[0], 0.1, atol=0.07)
    np.testing.assert_allclose(differs[1, :3], 0.1, atol=0.12)
    np.testing.assert_allclose(differs[1, 3:], 0.85, atol=0.12)
    errors = [((each.chances - matches)[movers | ~matches] ** 2).sum() for each in (one, two)]
    assert errors[1] < 0.9 * errors[0]


def test_columns_that_differ_each_by_itself_make_no_second_class():
    levels, _, _, u, competition = moved(part=0.0)
    found = estimate(Patterns.of(levels, [4] * 6), np.zeros(len(levels)), u, competition, second=True)
    assert len(found.weights.m) == 1


def test_rare_equal_values_raise_the_odds_by_as_much():
    levels, _, u, competition = of_single(80)
    rarity = np.where(levels[:, 0] == 3, 2.0, 0.0)
    found = estimate(Patterns.of(levels, SIZES), rarity, u, competition)
    weights = found.weights.weights[0]
    start = found.log_odds - rarity - sum(weight[levels[:, at]] for at, weight in enumerate(weights))
    assert (rarity > 0).any()
    np.testing.assert_allclose(start, start[0], atol=0.2)  # the weights are of one round later
    np.testing.assert_allclose(found.chances, 1 / (1 + np.exp(-found.log_odds)), atol=1e-9)


PROBABILITIES = st.integers(2, 6).flatmap(
    lambda size: st.tuples(*[st.lists(st.floats(0, 1), min_size=size, max_size=size)] * 2)
)


@example(([0.0, 0.0], [0.375, 0.5]))
@given(PROBABILITIES)
def test_weights_never_fall(both):
    m, u = (np.array([0.0, *each]) for each in both)
    weights = one_class([m], [u]).weights[0][0]
    assert weights[0] == 0
    assert (np.diff(weights[1:]) >= -1e-9).all()
    assert np.isfinite(weights).all()
    np.testing.assert_allclose(
        weights[1:], np.log(pooled(np.maximum(m[1:], 1e-12), np.maximum(u[1:], 1e-12))), atol=1e-6
    )


def test_weights_by_hand():
    weights = one_class([[0, 0.1, 0.3, 0.2, 0.4]], [[0, 0.6, 0.1, 0.2, 0.1]]).weights[0][0]
    np.testing.assert_allclose(weights, [0, *np.log([0.1 / 0.6, 0.5 / 0.3, 0.5 / 0.3, 4])])
    np.testing.assert_allclose(one_class().weights[0][0], [0, *np.log([0.05 / 0.95, 0.15 / 0.04, 0.8 / 0.01])])


def test_ratios_and_what_columns_add():
    rng = np.random.default_rng(0)
    levels = drawn(rng, rng.random(50) < 0.5)
    one = one_class()
    np.testing.assert_allclose(one.by_column(levels).sum(axis=1), one.ratios(levels))
    second = [np.array([0, *m[:0:-1]]) for m in M]
    two = MatchWeights([one.m[0], second], one.u, np.array([0.7, 0.3]))
    each = [share * np.exp(one_class(m, U).ratios(levels)) for share, m in ((0.7, M), (0.3, second))]
    np.testing.assert_allclose(two.ratios(levels), np.log(each[0] + each[1]))
    chances = np.stack(each) / sum(each)
    left_over = (chances * (np.log([[0.7], [0.3]]) - np.log(chances))).sum(axis=0)
    np.testing.assert_allclose(two.by_column(levels).sum(axis=1) + left_over, two.ratios(levels))
    assert (one.by_column(np.zeros((1, 4), dtype=np.int8)) == 0).all()


@given(st.data())
def test_patterns_are_the_distinct_rows_of_levels(data):
    sizes = data.draw(st.lists(st.integers(2, 7), min_size=1, max_size=60))
    some = st.tuples(*(st.integers(0, size - 1) for size in sizes))
    levels = np.array(data.draw(st.lists(some, min_size=1, max_size=8)), dtype=np.int8)
    patterns = Patterns.of(levels, sizes)
    np.testing.assert_array_equal(patterns.levels[patterns.place], levels)
    assert len(np.unique(levels, axis=0)) == len(patterns.levels)
    assert patterns.counts().sum() == len(levels)
    weights = np.arange(len(levels)) + 0.5
    sums = [weights[(levels == row).all(axis=1)].sum() for row in patterns.levels]
    np.testing.assert_allclose(patterns.counts(weights), sums)


@pytest.mark.parametrize("column", [0, 99, 199])
def test_patterns_of_many_columns_are_told_apart(column):
    levels = np.zeros((3, 200), dtype=np.int8)
    levels[1, column] = 1
    assert Patterns.of(levels, [2] * 200).place.tolist() == [0, 1, 0]


def test_the_order_of_pairs_does_not_matter():
    levels, _, u, competition = of_two()
    order = np.random.default_rng(0).permutation(len(levels))
    found = estimate(Patterns.of(levels, SIZES), np.zeros(len(levels)), u, competition, second=True)
    other = Competition.of(competition.pairs[order], competition.rows, "one-to-one", is_single=False)
    again = estimate(Patterns.of(levels[order], SIZES), np.zeros(len(levels)), u, other, second=True)
    np.testing.assert_allclose(again.chances, found.chances[order], atol=1e-9)


@pytest.mark.parametrize("links", ["one-to-one", "many"])
@pytest.mark.parametrize(
    "levels", [np.zeros((0, 4)), [[0, 0, 0, 0]], [[3, 4, 2, 3]], [[1, 1, 1, 1]] * 5, [[3, 4, 2, 3]] * 5]
)
@pytest.mark.parametrize("among", [False, True])
def test_flat_empty_and_single_pairs(levels, links, among):
    levels = np.array(levels, dtype=np.int8)
    pairs = np.stack([np.arange(len(levels))] * 2, axis=1)
    competition = Competition.of(pairs, (5, 5), links, is_single=False)
    u = list(map(np.array, U))
    found = estimate(Patterns.of(levels, SIZES), np.zeros(len(levels)), u, competition, second=True, among=among)
    assert found.chances.shape == found.log_odds.shape == (len(levels),)
    assert np.isfinite(found.log_odds).all()
    assert ((found.chances >= 0) & (found.chances <= 1)).all()
    assert found.matches > 0
    assert all(np.isfinite(part).all() for part in (*found.weights.m[0], *found.weights.u))


def test_rows_without_columns():
    patterns = Patterns.of(np.zeros((3, 0), dtype=np.int8), [])
    competition = Competition.of(np.array([[0, 0], [1, 1], [2, 2]]), (3, 3), "one-to-one", is_single=False)
    found = estimate(patterns, np.zeros(3), [], competition)
    assert found.chances.shape == (3,)


def test_what_a_part_of_the_pairs_came_to_is_gone_on_with(monkeypatch):
    pairs = np.stack(np.divmod(np.arange(3600), 60), axis=1)
    levels = drawn(np.random.default_rng(0), pairs[:, 0] == pairs[:, 1])
    competition = Competition.of(pairs, (60, 60), "one-to-one", is_single=False)
    inputs = Patterns.of(levels, SIZES), np.zeros(len(pairs)), list(map(np.array, U)), competition
    whole = estimate(*inputs)
    monkeypatch.setattr("vicinal.linkage.fellegi_sunter.ROUNDS", 1)
    again = estimate(*inputs, start=(whole.weights, whole.matches))
    np.testing.assert_allclose(again.chances, whole.chances, atol=2e-3)
    assert np.abs(estimate(*inputs).chances - whole.chances).max() > 0.05
