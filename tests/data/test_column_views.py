"""Columns that say something of one another, and views of rows that hide half of them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import mutual_info_score

from vicinal.data import hidden_columns, mutual_information

GOLDEN = Path(__file__).parents[1] / "golden/retrieval/cfm_mutual_information.npz"


def draw(seed):
    return np.random.default_rng(seed)


def test_information_and_the_columns_it_hides_are_those_of_the_public_code():
    with np.load(GOLDEN) as data:
        features, want = data["features"], data["mutual_information_nats"]
        got = mutual_information(features)
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-10)
        for seed, columns in enumerate(data["masked_columns_by_seed"]):
            say = got[seed]  # of equal ones, as those that say nothing, any may be chosen
            say[seed] = -1
            assert np.sort(say[columns])[::-1] == pytest.approx(np.sort(say)[::-1][: len(columns)])


def test_information_is_symmetric_and_0_for_what_is_constant_or_independent():
    grid = np.stack(np.meshgrid(range(3), range(4)), axis=-1).reshape(-1, 2)
    table = pd.DataFrame({"a": grid[:, 0], "b": grid[:, 1], "c": "x", "d": grid[:, 0].astype(str)})
    got = mutual_information(table)
    np.testing.assert_array_equal(got, got.T)
    np.testing.assert_allclose(got.diagonal(), [np.log(3), np.log(4), 0, np.log(3)], atol=1e-12)
    np.testing.assert_allclose(got[[0, 0, 1], [1, 2, 2]], 0, atol=1e-12)
    assert got[0, 3] == pytest.approx(np.log(3))
    one, other = draw(0).integers(4, size=(2, 50))
    assert mutual_information(np.stack([one, other], axis=1))[0, 1] == pytest.approx(mutual_info_score(one, other))
    missing = mutual_information(pd.DataFrame({"a": ["x", None, "x", None], "b": [1, 2, 1, 2]}))
    assert missing[0, 1] == pytest.approx(np.log(2))


@pytest.mark.parametrize("count", [2, 5, 6])
def test_views_hide_what_says_most_of_a_column_and_all_others(count):
    information = draw(1).random((count, count))
    information += information.T
    seeds = set()
    for seed in range(30):
        first, second = hidden_columns(information, draw(seed))
        assert first.sum() == count // 2
        np.testing.assert_array_equal(second, ~first)
        c = int(draw(seed).integers(count))
        seeds.add(c)
        others = np.delete(np.arange(count), c)
        best = others[np.argsort(-information[c, others])][: count // 2]
        assert set(np.flatnonzero(first)) == set(best)
        whole, _ = hidden_columns(information, draw(seed), with_seed=True)
        assert set(np.flatnonzero(whole)) == {c, *best[: count // 2 - 1]}
    assert seeds == set(range(count))


def test_random_halves():
    information = np.zeros((6, 6))
    first, second = hidden_columns(information, draw(0), how="complement")
    np.testing.assert_array_equal(second, ~first)
    pairs = [hidden_columns(information, draw(seed), how="independent") for seed in range(30)]
    assert all(view.sum() == 3 for pair in pairs for view in pair)
    assert any((first & second).any() for first, second in pairs)


def test_what_has_no_two_columns_is_refused():
    with pytest.raises(ValueError, match=r"^information: expected \[k, k\] with k of at least 2, got \(1, 1\)"):
        hidden_columns(np.zeros((1, 1)), draw(0))
    with pytest.raises(ValueError, match=r"^how: expected"):
        hidden_columns(np.zeros((2, 2)), draw(0), how="half")
    with pytest.raises(ValueError, match=r"^table: expected at least one row"):
        mutual_information(np.zeros((0, 2)))
