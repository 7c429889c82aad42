"""One test per promise of the samplers, and what each of them adds."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from vicinal import samplers
from vicinal.core import entries
from vicinal.samplers.clusters import split_in_two

GOLDEN = Path(__file__).parents[1] / "golden/retrieval/ngame_balanced_kmeans.npz"
SAMPLERS = entries("sampler")
each_sampler = pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda e: e.name)


def made(sampler, n=60, data_seed=0, **settings):
    random = np.random.default_rng(data_seed)
    labels = random.integers(0, 9, n)
    inputs = {
        "classes": (labels,),
        "hierarchical": (labels, labels // 3),
        "clusters": (random.normal(size=(n, 4)),),
        "groups": (labels,),
        "strata": (random.normal(size=n),),
    }[sampler.name]
    own = {"classes": {"classes": 3, "per_class": 2}, "hierarchical": {"classes": 2, "per_class": 3}}
    return sampler.factory(*inputs, **own.get(sampler.name, {"batch_size": 8}), **settings)


def test_all_of_the_issue_are_there():
    assert {e.name for e in SAMPLERS} == {"classes", "hierarchical", "clusters", "groups", "strata"}


@each_sampler
def test_the_same_seed_and_epoch_give_the_same_batches_and_others_do_not(sampler):
    first, second = made(sampler, seed=3), made(sampler, seed=3)
    once, twice = list(first), list(first)
    assert once == list(second)
    assert once != twice
    first.set_epoch(0)
    second.set_epoch(1)
    assert list(first) == once
    assert list(second) == twice
    assert list(made(sampler, seed=4)) != once


@each_sampler
def test_batches_are_lists_of_plain_numbers_as_many_as_len_says_none_twice_in_a_batch(sampler):
    found = made(sampler)
    for _ in range(3):
        size = len(found)
        batches = list(found)
        assert len(batches) == size > 0
        for batch in batches:
            assert type(batch) is list
            assert all(type(row) is int and 0 <= row < 60 for row in batch)
            assert len(batch) == len(set(batch)) > 0


@each_sampler
def test_processes_share_the_batches(sampler):
    whole = list(made(sampler))
    parts = [list(made(sampler, processes=3, process=k)) for k in range(3)]
    assert len({len(part) for part in parts}) == 1
    mixed = [batch for together in zip(*parts, strict=True) for batch in together]
    assert mixed == whole[: len(whole) // 3 * 3]


@each_sampler
def test_in_a_data_loader(sampler):
    loader = DataLoader(TensorDataset(torch.arange(60)), batch_sampler=made(sampler))
    assert [batch[0].tolist() for batch in loader] == list(made(sampler))


@each_sampler
def test_bad_settings(sampler):
    with pytest.raises(ValueError, match=r"^process: expected a number below 2, got 2"):
        made(sampler, processes=2, process=2)
    with pytest.raises(ValueError, match=r"^seed: expected a whole number of at least 0"):
        made(sampler, seed=-1)
    with pytest.raises(ValueError, match=r"^epoch: expected"):
        made(sampler).set_epoch(-1)


@given(seed=st.integers(0, 10**6), n=st.integers(12, 80), kinds=st.integers(4, 9), per_class=st.integers(2, 5))
def test_classes(seed, n, kinds, per_class):
    random = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(kinds), random.integers(0, kinds, n)])
    size = Counter(labels.tolist())
    sampler = samplers.ClassBatches(labels, classes=4, per_class=per_class, seed=seed)
    for batch in sampler:
        counts = Counter(labels[batch].tolist())
        assert len(counts) == 4
        assert all(count == min(per_class, size[label]) for label, count in counts.items())
    loose = samplers.ClassBatches(labels, classes=4, per_class=per_class, seed=seed, drop_last=False)
    seen = {row for batch in loose for row in batch}
    assert seen == set(range(len(labels)))


def test_classes_uses_up_nearly_all_rows_of_balanced_classes():
    labels = np.repeat(np.arange(50), 20)
    rows = [row for batch in samplers.ClassBatches(labels, classes=10, per_class=5) for row in batch]
    assert len(set(rows)) == len(rows) >= 900


@given(seed=st.integers(0, 10**6))
def test_hierarchical(seed):
    random = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(12), random.integers(0, 12, 60)])
    parents = labels % 4
    sampler = samplers.HierarchicalBatches(labels, parents, parents_per_batch=2, classes=2, per_class=3, seed=seed)
    seen = set()
    for batch in sampler:
        above = parents[batch]
        assert len(set(above)) <= 2
        for parent in set(above):
            counts = Counter(labels[batch][above == parent].tolist())
            assert len(counts) <= 2
            assert max(counts.values()) <= 3
        seen |= set(batch)
    assert seen == set(range(len(labels)))


@given(seed=st.integers(0, 10**6), n=st.integers(1, 60), batch_size=st.integers(2, 9), per_group=st.integers(1, 2))
def test_groups(seed, n, batch_size, per_group):
    groups = np.random.default_rng(seed).integers(0, 8, n)
    sampler = samplers.GroupBatches(groups, batch_size=batch_size, per_group=per_group, seed=seed)
    batches = list(sampler)
    assert sorted(row for batch in batches for row in batch) == list(range(n))
    for batch in batches:
        assert len(batch) <= batch_size
        assert max(Counter(groups[batch].tolist()).values()) <= per_group


@given(seed=st.integers(0, 10**6), n=st.integers(1, 90), batch_size=st.integers(1, 20), strata=st.integers(2, 7))
def test_strata(seed, n, batch_size, strata):
    targets = np.random.default_rng(seed).normal(size=n).round(1)
    batches = list(samplers.StratumBatches(targets, batch_size=batch_size, strata=strata, seed=seed))
    assert sorted(row for batch in batches for row in batch) == list(range(n))
    sizes = [len(batch) for batch in batches]
    assert max(sizes) <= batch_size
    assert max(sizes) - min(sizes) <= 1
    place = np.empty(n, int)
    for k, rows in enumerate(np.array_split(targets.argsort(kind="stable"), strata)):
        place[rows] = k
    for k in range(strata):
        share = (place == k).sum() / len(batches)
        for batch in batches:
            assert abs((place[batch] == k).sum() - share) < 2


def test_strata_are_flatter_than_chance():
    targets = np.random.default_rng(0).normal(size=4000)
    means = [targets[batch].mean() for batch in samplers.StratumBatches(targets, batch_size=40, strata=10)]
    assert np.std(means) < 0.5 / np.sqrt(40)


@given(seed=st.integers(0, 10**6), n=st.integers(1, 70), size=st.integers(1, 9), batch_size=st.integers(1, 12))
def test_clusters(seed, n, size, batch_size):
    x = np.random.default_rng(seed).normal(size=(n, 3)).round(1)
    found = samplers.balanced_clusters(x, size, np.random.default_rng(seed))
    sizes = [len(rows) for rows in found]
    assert sorted(np.concatenate(found).tolist()) == list(range(n))
    assert max(sizes) <= size
    assert max(sizes) - min(sizes) <= 1
    batches = list(samplers.ClusterBatches(x, batch_size=batch_size, size=size, seed=seed))
    assert sorted(row for batch in batches for row in batch) == list(range(n))
    assert all(len(batch) == batch_size for batch in batches[:-1])


def test_equal_rows_are_still_balanced():
    found = samplers.balanced_clusters(np.ones((13, 2)), 4, np.random.default_rng(0))
    assert sorted(len(rows) for rows in found) == [3, 3, 3, 4]
    assert samplers.balanced_clusters(np.zeros((3, 2)), 2, np.random.default_rng(0))


def test_batches_of_near_rows_and_a_curriculum():
    random = np.random.default_rng(0)
    x = np.concatenate([random.normal(size=(64, 8)) * 0.1 + center for center in np.eye(8) * 5])
    sampler = samplers.ClusterBatches(x, batch_size=16, size={0: 1, 1: 16})

    def spread():
        return np.mean([np.var(x[batch], axis=0).sum() for batch in sampler])

    plain, near = spread(), spread()
    assert near < plain / 10
    sampler.refresh(random.normal(size=x.shape))
    assert np.mean([np.var(x[batch], axis=0).sum() for batch in sampler]) > plain / 2


@pytest.mark.parametrize("case", ["", "_ties"])
def test_splits_of_the_authors(case):
    z = np.load(GOLDEN)
    x = z["x" + case] / np.linalg.norm(z["x" + case], axis=1, keepdims=True)
    left, right = split_in_two(x, lambda m: tuple(z[f"split{case}__initial_pair"]))
    assert set(left) == set(z[f"split{case}__left"])  # the order within a half is of no meaning
    assert set(right) == set(z[f"split{case}__right"])


def test_clusters_of_the_authors():
    z = np.load(GOLDEN)
    draws = iter([pair for pair in z["balance4__all_initial_draws"].tolist() if pair[0] != pair[1]])
    found = samplers.balanced_clusters(z["x"], 5, lambda m: next(draws))
    mapping = np.empty(17, int)
    for number, rows in enumerate(found):
        mapping[rows] = number
    np.testing.assert_array_equal(mapping, z["balance4__mapping"])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: samplers.ClassBatches([0, 1], classes=3),
            r"^classes: expected at most 2, as many as there are, got 3",
        ),
        (lambda: samplers.ClassBatches([]), r"^labels: expected a list of at least one label, got shape \(0,\)"),
        (lambda: samplers.ClassBatches([0, 1], classes=2, per_class=1), r"^per_class: expected .* at least 2"),
        (lambda: samplers.HierarchicalBatches([0, 0], [1, 2]), r"^parents: expected one for class 0, got 1 and 2"),
        (lambda: samplers.HierarchicalBatches([0, 0], [1]), r"^parents: expected 2, one for each row, got 1"),
        (
            lambda: samplers.HierarchicalBatches([0], [1], parents_per_batch=2),
            r"^parents_per_batch: expected at most 1",
        ),
        (lambda: samplers.GroupBatches([0], batch_size=2, per_group=3), r"^per_group: expected at most 2"),
        (lambda: samplers.StratumBatches([0.0, np.inf]), r"^targets: expected finite numbers, got inf in row 1"),
        (lambda: samplers.ClusterBatches([[0.0], [np.inf]]), r"^embeddings: expected finite numbers, .* in row 1"),
        (lambda: samplers.ClusterBatches([0.0]), r"^embeddings: expected a matrix"),
        (
            lambda: samplers.ClusterBatches([[0.0]], size={1: 3}),
            r"^size: expected a size for epoch 0, got epochs \[1\]",
        ),
        (lambda: samplers.ClusterBatches([[0.0]], size=0), r"^size: expected a whole number of at least 1"),
    ],
)
def test_bad_input_gets_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
