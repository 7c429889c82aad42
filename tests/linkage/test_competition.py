"""Probabilities of pairs that compete, against all matchings of small graphs."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vicinal.linkage import competition as module
from vicinal.linkage.competition import Competition, freedom

NEAR = 1e-2
"""Messages are not sent without end."""


def competing(pairs, rows=(9, 9), links="one-to-one", single=False, **others):
    return Competition.of(np.array(pairs, dtype=np.int64).reshape(-1, 2), rows, links, is_single=single, **others)


def by_enumeration(pairs, log_odds, again):
    """A set of pairs is as probable as the product of their odds, and of ``again`` for each further pair of a row."""
    logs, members = [], []
    for size in range(len(pairs) + 1):
        for some in combinations(range(len(pairs)), size):
            more = [len(some) - len({pairs[e][side] for e in some}) for side in (0, 1)]
            factor = math.prod(share**count for share, count in zip(again, more, strict=True))
            if factor:
                logs.append(sum(log_odds[e] for e in some) + math.log(factor))
                members.append(some)
    weights = np.exp(np.array(logs) - max(logs))
    chances = np.zeros(len(pairs))
    for weight, some in zip(weights, members, strict=True):
        chances[list(some)] += weight
    return chances / weights.sum()


@st.composite
def forests(draw, most=9):
    """Candidates without a cycle, as pairs of up to five left and five right rows, and their log odds."""
    edges = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=20, unique=True))
    root = list(range(10))
    kept = []
    for left, right in edges:
        ends = [left, right + 5]
        for place, end in enumerate(ends):
            while root[end] != end:
                end = root[end]
            ends[place] = end
        if ends[0] != ends[1]:
            root[ends[0]] = ends[1]
            kept.append((left, right))
    kept = kept[:most]
    log_odds = draw(st.lists(st.floats(-15, 15), min_size=len(kept), max_size=len(kept)))
    return kept, np.array(log_odds)


@pytest.mark.parametrize("links", ["one-to-one", "one-to-many", "many"])
@given(forest=forests())
def test_trees_are_exact(links, forest):
    pairs, log_odds = forest
    for again in ((0.0, 0.0), (0.1, 0.01)):
        chances = competing(pairs, links=links, again=again).chances(log_odds, 0.0)
        odds = again[0] if links == "one-to-one" else 1.0, again[1] if links != "many" else 1.0
        np.testing.assert_allclose(chances, by_enumeration(pairs, log_odds, odds), atol=NEAR)


def test_one_row_with_rivals_by_hand():
    pairs, odds = [(0, 0), (0, 1), (0, 2), (1, 3)], np.array([3.0, 2.0, 1.0, 4.0])
    found = competing(pairs).chances(np.log(odds), 0.0)
    np.testing.assert_allclose(found, [3 / 7, 2 / 7, 1 / 7, 4 / 5], atol=NEAR)
    mirrored = competing([pair[::-1] for pair in pairs], links="one-to-many")  # one right row, several left ones
    np.testing.assert_allclose(mirrored.chances(np.log(odds), 0.0), found, atol=NEAR)
    left = competing(pairs, links="one-to-many").chances(np.log(odds), 0.0)  # a left row may have several
    np.testing.assert_allclose(left, odds / (1 + odds), atol=NEAR)


def test_one_table_has_no_competition():
    pairs, odds = [(0, 1), (0, 2), (1, 2)], np.array([3.0, 2.0, 1.0])
    for links in ("one-to-one", "one-to-many", "many"):
        one = competing(pairs, (5, 5), links, single=True)
        assert one.sides == []
        np.testing.assert_allclose(one.chances(np.log(odds), 4.0), odds / (1 + odds))
        assert one.possible == 10
        assert one.most == 3  # all candidates


@pytest.mark.parametrize("size", [12.0, 25.0, 1e4])
def test_equal_rivals_share_however_large_their_odds(size):
    pairs = [(0, 0), (0, 1), (1, 2), (2, 2), (3, 2)]
    found = competing(pairs).chances(np.full(5, size), 0.0)
    np.testing.assert_allclose(found, [1 / 2] * 2 + [1 / 3] * 3, atol=NEAR)


@pytest.mark.parametrize("size", [20.0, 60.0, 99.0])
def test_a_pair_ahead_of_its_rival_wins_however_large_both_odds(size):
    pairs, log_odds = [(0, 0), (0, 1), (1, 1)], np.array([size, size - 5, size - 10])
    found = competing(pairs[:2]).chances(log_odds[:2], 0.0)
    np.testing.assert_allclose(found, by_enumeration(pairs[:2], log_odds[:2], (0.0, 0.0)), atol=NEAR)
    found = competing(pairs).chances(log_odds, 0.0)  # the first and the third go together
    np.testing.assert_allclose(found, by_enumeration(pairs, log_odds, (0.0, 0.0)), atol=NEAR)


def test_huge_and_tiny_odds():
    pairs = [(0, 0), (0, 1), (1, 1), (2, 2), (3, 3)]
    with np.errstate(all="raise"):
        found = competing(pairs).chances(np.array([1e4, 3.0, 2.0, -1e4, 0.0]), 0.0)
    np.testing.assert_allclose(found, [1, 0, by_enumeration([(1, 1)], [2.0], (0.0, 0.0))[0], 0, 0.5], atol=NEAR)
    for links in ("one-to-one", "many"):
        nothing = competing([], links=links).chances(np.zeros(0), 3.0)
        assert nothing.shape == (0,)


@given(forest=forests(), data=st.data())
def test_the_order_of_pairs_does_not_matter_and_sides_mirror(forest, data):
    pairs, log_odds = forest
    order = data.draw(st.permutations(range(len(pairs))))
    chances = competing(pairs).chances(log_odds, 2.0)
    moved = competing([pairs[place] for place in order]).chances(log_odds[order], 2.0)
    np.testing.assert_allclose(moved, chances[order], atol=1e-9)
    mirrored = competing([pair[::-1] for pair in pairs]).chances(log_odds, 2.0)
    np.testing.assert_allclose(mirrored, chances, atol=NEAR)
    more = competing([*pairs, (7, 7)]).chances(np.append(log_odds, 1.0), 2.0)
    np.testing.assert_allclose(more[:-1], chances, atol=1e-9)  # of rows by themselves


@pytest.mark.parametrize("links", ["one-to-one", "one-to-many", "many"])
@given(forest=forests(), matches=st.floats(0, 4))
def test_a_pair_outside_is_what_it_would_be_among_the_candidates(links, forest, matches):
    pairs, log_odds = forest
    with_it = competing(pairs, links=links).chances(log_odds, matches)
    others = competing(pairs[:-1], links=links)
    alone = others.outside(np.array(pairs[-1:]), log_odds[-1:], log_odds[:-1], matches)
    np.testing.assert_allclose(alone, with_it[-1:], atol=NEAR)


@pytest.mark.parametrize("links", ["one-to-one", "one-to-many", "many"])
def test_many_pairs_are_as_few(monkeypatch, links):
    rng = np.random.default_rng(0)
    pairs = np.unique(rng.integers(0, 60, (500, 2)), axis=0)
    log_odds = np.where(rng.random(len(pairs)) < 0.1, rng.normal(3, 3, len(pairs)), rng.normal(-18, 4, len(pairs)))
    plain = competing(pairs, (60, 60), links)
    chances, odds = plain.chances(log_odds, 20.0), plain.messages(log_odds, 20.0)[0]
    monkeypatch.setattr(module, "_MANY", 10)
    np.testing.assert_allclose(plain.chances(log_odds, 20.0), chances, rtol=1e-2)
    np.testing.assert_array_equal(plain.messages(log_odds, 20.0)[0], odds)


def test_a_probable_pair_makes_rivals_improbable_and_frees_theirs():
    pairs = [(0, 0), (0, 1), (1, 1)]
    log_odds = np.array([6.0, 2.0, 1.0])
    found = competing(pairs).chances(log_odds, 0.0)
    assert found[1] < 0.05 < 1 / (1 + math.exp(-2.0))
    assert found[2] == pytest.approx(1 / (1 + math.exp(-1.0)), abs=0.03)  # its rival is taken by another
    raised = competing(pairs).chances(log_odds + np.array([0, 6.0, 0]), 0.0)
    assert raised[0] < found[0]
    assert raised[2] < found[2]


def test_the_prior_odds_of_matchings():
    rows, matches = (4000, 9000), 3000.0
    two = competing([(0, 0)], rows)
    assert two.possible == 36e6
    assert two.most == 4000
    prior = math.log(matches / two.possible) + two.crowding(matches)
    assert prior == pytest.approx(math.log(matches / ((4000 - matches) * (9000 - matches))))
    assert two.chances(np.log([2.0]), matches)[0] == pytest.approx(1 - 1 / (1 + 2 * 36e6 / (1000 * 6000)))
    right = competing([(0, 0)], rows, "one-to-many")
    assert right.crowding(matches) == pytest.approx(math.log(9000 / 6000))
    assert right.most == 9000
    assert competing([(0, 0)], rows, "many").crowding(matches) == 0
    assert two.crowding(4000.0) == pytest.approx(
        math.log(1 / 0.03) + math.log(9000 / 5000)
    )  # 3 % of a full one are free


@given(st.lists(st.tuples(st.floats(-100, 100).map(math.exp), st.integers(0, 3)), min_size=1, max_size=8))
def test_freedom_leaves_the_pair_itself_out(offers):
    values, rows = np.array([o for o, _ in offers]), np.array([row for _, row in offers])
    others = [sum(o for f, (o, r) in enumerate(offers) if f != e and r == rows[e]) for e in range(len(offers))]
    np.testing.assert_allclose(freedom(values, rows), 1 / (1 + np.array(others)), rtol=1e-9)


def test_a_part_of_the_left_rows_has_the_prior_of_all():
    pairs = np.array([[0, 0], [1, 1]])
    every, part = (Competition.of(pairs, (20, 40), "one-to-one", is_single=False, share=s) for s in (1.0, 0.5))
    assert part.possible == every.possible / 2
    assert part.most == every.most / 2
    assert part.crowding(5) == every.crowding(10) > every.crowding(5)


def test_messages_go_on_from_those_of_like_odds():
    random = np.random.default_rng(0)
    pairs = np.array([(row, row + more) for row in range(39) for more in (0, 1)])
    log_odds = random.normal(1, 3, len(pairs))
    competition = competing(pairs, (40, 40))
    _, before = competition.messages(log_odds + 0.05, 10.0)
    further, afresh = competition.messages(log_odds, 10.0, before)[1], competition.messages(log_odds, 10.0)[1]
    np.testing.assert_allclose(further, afresh, atol=0.05)
