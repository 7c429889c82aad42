"""Clusters for which most speaks, beside all partitions; and links of at most so many right rows."""

import itertools

import numpy as np
import pandas as pd
import pytest

from vicinal.data import cars_table
from vicinal.estimators import RowMatcher
from vicinal.estimators.linking import assigned
from vicinal.estimators.match_clusters import (
    AGAINST,
    LARGEST,
    consistent_clusters,
    cut,
    drawn_wedges,
    total_gain,
    with_new,
)
from vicinal.linkage.competition import partners


def partitions(count):
    """All of so many rows, as the number of each row's cluster."""
    names = [[0]]
    for _ in range(count - 1):
        names = [[*each, new] for each in names for new in range(max(each) + 2)]
    return np.array(names)


def gains_of(count, seed):
    """Two or three groups, and pairs that say something else."""
    random = np.random.default_rng(seed)
    group = random.integers(0, 3, count)
    gains = np.where(group[:, None] == group, 2.0, -2.0) + random.normal(0, 3, (count, count))
    return np.triu(gains, 1) + np.triu(gains, 1).T


@pytest.mark.parametrize("count", [1, 2, 4, 7])
def test_no_partition_gains_more(count):
    every = partitions(count)
    for seed in range(20):
        gains = gains_of(count, seed)
        best = max(total_gain(gains, names) for names in every)
        found = consistent_clusters(gains)
        assert total_gain(gains, found) == pytest.approx(best)
        first, second = np.triu_indices(count, 1)
        inside = found[first] == found[second]
        assert total_gain(gains, found) == pytest.approx(gains[first, second][inside].sum())


def test_equal_gains_and_rows_that_nothing_joins():
    assert len(set(consistent_clusters(np.full((5, 5), 1e4)))) == 1
    assert len(set(consistent_clusters(np.full((5, 5), -1e4)))) == 5
    assert len(set(consistent_clusters(np.zeros((3, 3))))) <= 3


def test_only_components_that_contradict_themselves_are_cut_and_large_ones_are_counted():
    sizes = [3, 4, 1, LARGEST + 1]
    clusters = np.repeat(np.arange(4), sizes)
    pairs = [np.array(list(itertools.combinations(np.flatnonzero(clusters == each), 2))) for each in (0, 1, 3)]
    gains = [np.full(3, 2.0), np.array([5.0, -3, -3, -3, -3, 5]), np.full(len(pairs[2]), -1.0)]
    order = np.random.default_rng(0).permutation(sum(map(len, pairs)))
    parts, count, too_large = cut(clusters, np.concatenate(pairs)[order], np.concatenate(gains)[order])
    assert parts[3] == parts[4] != parts[5] == parts[6]
    assert not parts[:3].any()
    assert not parts[7:].any()
    assert count == 1
    assert too_large.tolist() == [3]


def test_a_row_between_two_things_joins_one_of_them(monkeypatch):
    names = ["anna maria weber", "anna maria weber ulm", "ulm trier bonn", "ulm trier bonn kleve"]
    names += [f"{i * 37 % 101} {i * 53 % 97} lamp" for i in range(36)]
    table = pd.DataFrame({"id": range(40), "name": names})
    model = RowMatcher(encoders={"text": "none"}).fit(table, None)

    def cluster_of(kind, chances, other):
        model._above = lambda: (np.array(list(chances)), np.ones(len(chances)), np.array(list(chances.values())))
        model._chances = lambda at: np.array([chances.get(tuple(pair), other) for pair in at.tolist()])
        model.tables_.forget("scored")
        return model.clusters(kind)[0].set_index("id")["cluster"]

    chances = {(0, 1): 0.99, (2, 3): 0.98, (1, 2): 0.6}
    whole, parts = (cluster_of(kind, chances, 1e-6) for kind in ("components", "consistent"))
    assert model.link()[["left", "right"]].to_numpy().tolist() == [[0, 1], [2, 3]]  # no link speaks against clusters
    assert whole[[0, 1, 2, 3]].nunique() == 1
    assert parts[0] == parts[1] != parts[2] == parts[3]  # log(.6 / .4) less three times AGAINST, or nothing
    assert "components of links that contradict themselves, cut into clusters that do not: 1" in model.notes_
    assert np.log(0.6 / 0.4) < 3 * AGAINST
    with monkeypatch.context() as few:
        few.setattr("vicinal.estimators.match_clusters.LARGEST", 3)
        assert cluster_of("consistent", chances, 1e-6)[[0, 1, 2, 3]].nunique() == 1
    assert "the component of row 0 contradicts itself, and stays whole: it has 4 rows" in model.notes_[-1]
    model.labels_ = pd.DataFrame({"left": [1], "right": [2], "match": [1]})
    assert cluster_of("consistent", chances, 0.3)[[0, 1, 2, 3]].nunique() == 1
    model.labels_ = model.labels_.head(0)
    chain = {(0, 1): 0.99, (1, 2): 0.99}  # 2 log(99) less AGAINST: more for than against, but not less log(1e6)
    assert cluster_of("consistent", chain, 1e-6)[[0, 1, 2]].nunique() == 1
    with pytest.raises(ValueError, match=r"^kind: expected one of 'components', 'consistent'"):
        model.clusters("best")


def largest(rows):
    """How often the most frequent row stands there."""
    return np.bincount(rows, minlength=1).max()


@pytest.mark.parametrize("most", [1, 2, 3])
def test_an_assignment_of_several_right_rows_has_the_highest_gain(most):
    for seed in range(10):
        random = np.random.default_rng(seed)
        left, right = np.divmod(np.flatnonzero(random.random(16) < 0.6), 4)
        gains = random.uniform(0.1, 5, len(left))
        sets = [np.array(each, dtype=bool) for each in itertools.product([False, True], repeat=len(left))]
        allowed = [each for each in sets if largest(left[each]) <= most and largest(right[each]) <= 1]
        best = max(gains[each].sum() for each in allowed)
        taken = assigned(left, right, gains, most)
        assert gains[taken].sum() == pytest.approx(best)
        assert largest(left[taken]) <= most
        assert largest(right[taken]) <= 1


@pytest.mark.parametrize("links", ["1:0", "1:", "2:1", "1:x", "1:-1", "one", "", None])
def test_other_links_are_refused(links):
    with pytest.raises(ValueError, match=r"^links: expected 'one-to-one', 'one-to-many', 'many-to-many', or '1:3'"):
        partners(links)


def test_rows_that_stand_there_more_than_once_are_told_where_only_one_of_them_is_linked():
    names = [f"{i * 37 % 101} {i * 53 % 97} lamp" for i in range(30)]
    left = pd.DataFrame({"id": range(30), "name": names})
    right = pd.DataFrame({"id": range(33), "name": [*names, *names[:3]]})
    told = {}
    for links in ("one-to-one", "one-to-many", "1:2", "many"):
        model = RowMatcher(encoders={"text": "none"}, links=links).fit(right, left)
        other = RowMatcher(encoders={"text": "none"}, links=links).fit(left, right)
        told[links] = ["3 rows of the" in " ".join(each.notes_) for each in (model, other)]
        assert len(other.link()) == (30 if links == "one-to-one" else 33)
    assert told == {"one-to-one": [True, True], "one-to-many": [True, False], "1:2": [True, False], "many": [False] * 2}


def test_rows_that_are_merely_alike_are_no_copies():
    """Cars of a table are like other cars, which are not like one another."""
    model = RowMatcher().fit(cars_table().rename_axis("id").reset_index()[:150], None)
    assert len(model.link()) == 0
    assert any(note.startswith("no sign of duplicates") for note in model.notes_)


def test_many_copies_of_one_thing_are_linked_though_few_pairs_of_them_are_candidates():
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdefghijklmnopqrstuvwxyz"), 7)) for _ in range(200)]
    things = np.repeat(np.arange(8), 30)
    texts = np.array([" ".join(rng.choice(words, 4)) for _ in range(8)])[things]
    places = np.sort(rng.integers(0, 30, (240, 2)), axis=1).tolist()
    names = [text[:at] + text[at + 1 : to] + text[to + 1 :] for text, (at, to) in zip(texts, places, strict=True)]
    frame = pd.DataFrame({"id": range(240), "name": names, "born": 1900 + 7 * things})
    model = RowMatcher().fit(frame, None)
    links = model.link()
    assert len(links) > 1000
    assert (things[links["left"]] == things[links["right"]]).all()


def test_wedges_are_drawn_with_equal_chances():
    pairs = np.array([[0, 1], [0, 2], [0, 3], [4, 5], [5, 6], [7, 8]])
    ends, count = drawn_wedges(pairs, 4000)
    assert count == 4  # three of row 0, one of row 5
    shares = {
        tuple(pair): times / 4000 for pair, times in zip(*np.unique(ends, axis=0, return_counts=True), strict=True)
    }
    assert shares == {pair: pytest.approx(0.25, abs=0.03) for pair in ((1, 2), (1, 3), (2, 3), (4, 6))}
    assert drawn_wedges(pairs[-1:], 5)[1] == 0
    assert len(drawn_wedges(np.zeros((0, 2), dtype=np.int64), 5)[0]) == 0


def test_a_new_row_joins_the_cluster_of_most_log_odds_or_a_new_row_before_it():
    links = pd.DataFrame(
        {"left": [5, 5, 5, 7, 8], "right": [1, 2, 3, 6, 7], "probability": [0.8, 0.7, 0.9, 0.6, 0.99]}
    )  # log odds 1.39 + 0.85 of the first cluster, 2.20 of the second one
    assert with_new({1: 0, 2: 0, 3: 1}, [5, 6, 7, 8], links) == {5: 0, 6: 2, 7: 2, 8: 2}
    assert with_new({1: 4}, ["a"], links[:0]) == {"a": 5}
