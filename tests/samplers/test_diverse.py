"""Diverse anchors, and columns that a search found."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vicinal.samplers import diverse_anchors, draw_negatives, with_relevant

GOLDEN = Path(__file__).parents[1] / "golden/losses/diverse_anchors.npz"


def stored(case):
    with np.load(GOLDEN) as data:
        found = {name: data[f"{case}_{name}"] for name in ("x", "picked", "maxsim", "k")}
        return found, {
            "exclude": float(data[f"{case}_similar_exclude"]),
            "include": float(data[f"{case}_similar_include"]),
        }


def nearest_before(x, picked):
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    return [(unit[picked[:i]] @ unit[picked[i]]).max() for i in range(1, len(picked))]


@pytest.mark.parametrize("case", ["A", "A2"])
def test_picks_what_the_authors_program_picks(case):
    data, shares = stored(case)
    picked = diverse_anchors(data["x"], int(data["k"]), **shares)
    np.testing.assert_array_equal(picked, data["picked"])
    np.testing.assert_allclose(nearest_before(data["x"], picked), data["maxsim"], rtol=1e-9)


def test_a_row_with_duplicates_is_picked_once_where_the_reference_picks_it_twice():
    """Case B: the reference leaves used rows out by sorting only, and of equal rows it leaves out another one."""
    data, shares = stored("B")
    assert data["picked"].tolist().count(0) == 2
    picked = diverse_anchors(data["x"], int(data["k"]), **shares)
    assert len(set(picked.tolist())) == len(picked) == 4
    np.testing.assert_allclose(nearest_before(data["x"], picked)[0], data["maxsim"][0], rtol=1e-9)


def pool(seed=0, n=20, d=4):
    return np.random.default_rng(seed).normal(size=(n, d))


@given(seed=st.integers(0, 10**6), exclude=st.floats(0, 1), more=st.floats(0, 1))
def test_picks_different_rows_within_the_window(seed, exclude, more):
    x = pool(seed)
    include = exclude + more * (1 - exclude)
    picked = diverse_anchors(x, 7, exclude=exclude, include=include, random=np.random.default_rng(seed))
    assert picked[0] == 0
    assert len(set(picked.tolist())) == 7
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    for i in range(1, 7):
        left = [row for row in range(20) if row not in picked[:i]]
        similar = sorted((unit[left] @ unit[picked[:i]].T).max(axis=1))
        mine = (unit[picked[i]] @ unit[picked[:i]].T).max()
        end = max(1, int(len(left) * (1 - exclude)))
        start = min(int(len(left) * (1 - include)), end - 1)
        assert similar[start] - 1e-12 <= mine <= similar[end - 1] + 1e-12


def test_excluding_all_but_one_is_farthest_point_sampling():
    x = pool(3)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    want = [0]
    while len(want) < 6:
        similar = (unit @ unit[want].T).max(axis=1)
        similar[want] = np.inf
        want.append(int(similar.argmin()))
    for random in (None, np.random.default_rng(0)):
        np.testing.assert_array_equal(diverse_anchors(x, 6, exclude=1.0, random=random), want)


def test_rotation_seed_and_all_rows():
    x = pool(4)
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))[0]
    settings = {"exclude": 0.3, "include": 0.8}
    picked = diverse_anchors(x, 9, random=np.random.default_rng(2), **settings)
    np.testing.assert_array_equal(diverse_anchors(x @ turn, 9, random=np.random.default_rng(2), **settings), picked)
    np.testing.assert_array_equal(diverse_anchors(3 * x, 9, random=np.random.default_rng(2), **settings), picked)
    others = [diverse_anchors(x, 9, random=np.random.default_rng(seed), **settings).tolist() for seed in range(3, 9)]
    assert any(other != picked.tolist() for other in others)
    assert sorted(diverse_anchors(x, 20).tolist()) == list(range(20))
    assert diverse_anchors(torch.from_numpy(x), 1).tolist() == [0]


def test_diverse_anchors_are_more_unlike_than_random_rows():
    x = np.concatenate([pool(5, 190) * 0.05 + 1, pool(6, 10)])
    x = np.random.default_rng(0).permutation(x)
    diverse, plain = diverse_anchors(x, 10, exclude=0.98), np.arange(10)
    assert np.mean(nearest_before(x, diverse)) < np.mean(nearest_before(x, plain)) - 0.1


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda x: diverse_anchors(x, 21), r"^k: expected at most the 20 rows, got 21"),
        (lambda x: diverse_anchors(x, 0), r"^k: expected a whole number of at least 1"),
        (lambda x: diverse_anchors(x, 2, exclude=1.1), r"^exclude: expected a number from 0 to 1"),
        (lambda x: diverse_anchors(x, 2, exclude=0.5, include=0.4), r"^include: expected a number from 0.5 to 1"),
        (lambda x: diverse_anchors(x * np.nan, 2), r"^embeddings: expected finite numbers"),
    ],
)
def test_diverse_anchors_refuse(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call(pool())


def test_related_rows_are_added_where_none_was_found():
    found = torch.tensor([[4, 7, 1], [2, 9, -1], [5, 6, 8]])
    relevant = torch.tensor([[7, 3], [3, -1], [0, 0]])
    made = with_relevant(found, relevant)
    assert made.columns.tolist() == [[4, 7, 1, 0, 0], [2, 9, 0, 3, 0], [5, 6, 8, 0, 0]]
    assert made.relation.tolist() == [[0, 1, 0, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 1, 0]]
    assert made.weight.tolist() == [[1, 1, 1, 0, 0], [1, 1, 0, 1, 0], [1, 1, 1, 1, 0]]
    every = with_relevant(found, relevant, always=True)
    assert every.columns[0].tolist() == [4, 7, 1, 0, 3]
    assert every.relation[0].tolist() == [0, 1, 0, 0, 1]
    torch.testing.assert_close(every.weight[1:], made.weight[1:])


def test_found_rows_refuse():
    found = torch.tensor([[4, 7], [2, 9]])
    with pytest.raises(ValueError, match=r"^relevant: expected at least one related row of each query, .* query 1$"):
        with_relevant(found, torch.tensor([[4], [-1]]))
    with pytest.raises(ValueError, match=r"^relevant: expected \[2, n\]"):
        with_relevant(found, torch.tensor([[4]]))
    with pytest.raises(TypeError, match=r"^results: expected whole numbers"):
        with_relevant(found.float(), torch.tensor([[4], [2]]))
    with pytest.raises(ValueError, match=r"^results: expected at least 2 unrelated rows, got 1 for query 0"):
        draw_negatives(found, torch.tensor([[4], [3]]), 2)


def test_static_negatives_are_drawn_evenly_and_never_related():
    found = torch.arange(8).expand(4000, 8).clone()
    found[:, 7] = -1
    relevant = torch.tensor([[3, 5, -1]]).expand(4000, 3)
    drawn = draw_negatives(found, relevant, 2, generator=torch.Generator().manual_seed(0))
    assert (drawn[:, 0] != drawn[:, 1]).all()
    share = torch.bincount(drawn.flatten(), minlength=8) / 8000
    torch.testing.assert_close(share, torch.tensor([0.2, 0.2, 0.2, 0, 0.2, 0, 0.2, 0]), rtol=0, atol=0.015)
    again = draw_negatives(found, relevant, 2, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(again, drawn)
