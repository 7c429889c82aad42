"""Boosted folds: how small leaves may be."""

import contextlib
from types import SimpleNamespace

import lightgbm
import numpy as np
import pytest
import torch

from vicinal.core.progress import ending_in
from vicinal.training import trees
from vicinal.training.trees import boosted_folds


def table(noise):
    """100 rows of 20 levels whose labels differ from level to level, and five folds."""
    rng = np.random.default_rng(0)
    levels = np.repeat(np.arange(20.0), 5)
    labels = levels**2 + noise * rng.normal(size=100)
    return torch.from_numpy(levels[:, None]), torch.from_numpy(labels), torch.arange(100) % 5


def test_leaves_are_small_where_labels_are_quiet():
    """Four rows of a level are left in: leaves of 5 rows mix two levels, of 3 rows they need not."""
    columns, labels, folds = table(0.01)
    texts, error = boosted_folds(columns, labels, folds)
    counts = [int(n) for line in texts[0][0].splitlines() if line.startswith("leaf_count=") for n in line[11:].split()]
    assert min(counts) < 5
    assert error < 0.01 * float(labels.var())


def test_leaves_are_large_where_labels_are_noise():
    columns, labels, folds = table(500.0)
    texts, _ = boosted_folds(columns, labels, folds)
    counts = [int(n) for line in texts[0][0].splitlines() if line.startswith("leaf_count=") for n in line[11:].split()]
    assert not counts or min(counts) >= 5


def test_many_classes_of_few_rows_are_learned_by_more_than_one_tree(monkeypatch):
    """A leaf of one class would else step by the rate over the share of the class, here by 8, and nothing follow it."""
    monkeypatch.setattr(trees, "CLASS_LEAVES", (4, 4))
    monkeypatch.setattr(trees, "ROUNDS", 60)
    codes = torch.arange(400) % 40
    places = torch.stack([codes // 8, codes % 8], dim=1) + 0.2 * torch.randn(400, 2, generator=torch.manual_seed(0))
    texts, _ = boosted_folds(places, torch.nn.functional.one_hot(codes), torch.arange(400) // 40 % 5, classes=True)
    assert sum(line.startswith("Tree=") for line in texts[0][0].splitlines()) > 1


def test_no_tree_follows_the_first_when_the_time_is_over():
    columns, labels, folds = table(0.01)
    with ending_in(0):
        texts, _ = boosted_folds(columns, labels, folds)
    assert {sum(line.startswith("Tree=") for line in fold[0].splitlines()) for fold in texts} == {1}


@pytest.mark.parametrize("many", [trees.MANY, 300])
def test_trees_that_cannot_come_to_an_error_are_few(monkeypatch, many):
    """What no number of them will reach; what these miss, and more of them need not, stops none."""
    monkeypatch.setattr(trees, "MANY", many)
    columns, folds = torch.from_numpy(np.random.default_rng(0).uniform(-2, 2, (300, 2))), torch.arange(300) % 5
    labels = (2 * columns[:, 0]).sin() + columns[:, 0] * columns[:, 1]
    whole, least = boosted_folds(columns, labels, folds)
    few, error = boosted_folds(columns, labels, folds, reach=least / 100)
    assert {sum(line.startswith("Tree=") for line in fold[0].splitlines()) for fold in few} == {64}
    assert error > 2 * least
    assert boosted_folds(columns, labels, folds, reach=2 * least)[0] == whole


def test_leaves_of_trees_that_have_little_part_in_a_mean_are_not_chosen(monkeypatch):
    columns, folds = torch.from_numpy(np.random.default_rng(0).uniform(-2, 2, (300, 2))), torch.arange(300) % 5
    labels = (2 * columns[:, 0]).sin() + columns[:, 0] * columns[:, 1]
    least, tried, cv = boosted_folds(columns, labels, folds)[1], [], lightgbm.cv
    monkeypatch.setattr(lightgbm, "cv", lambda given, *more, **k: tried.append(given) or cv(given, *more, **k))
    for reach, several in ((1.3 * least, False), (1.5 * least, True)):
        tried.clear()
        boosted_folds(columns, labels, folds, reach=reach)
        assert [given["num_leaves"] for given in tried[:2]] == [8, 31]  # the first alone tell little of the others
        assert (len(tried) > 2) == several


def test_leaves_that_cannot_come_to_the_error_of_others_are_given_up(monkeypatch):
    """And 1,500 rows choose by all folds."""
    rng, ends, cv = np.random.default_rng(0), [], lightgbm.cv
    columns, folds = torch.from_numpy(rng.uniform(size=(1500, 4))), torch.arange(1500) % 5
    labels = 4 * columns.sum(dim=1) + torch.from_numpy(rng.normal(size=1500))  # large trees only follow noise
    monkeypatch.setattr(trees, "PATIENCE", 1000)
    monkeypatch.setattr(trees, "ROUNDS", 256)

    def told(settings, data, rounds, *, folds, **more):
        result = cv(settings, data, rounds, folds=folds, **more)
        ends.append((len(folds), result["cvbooster"].boosters[0].current_iteration()))
        return result

    monkeypatch.setattr(lightgbm, "cv", told)
    boosted_folds(columns, labels, folds)
    assert {count for count, _ in ends} == {5}
    assert ends[0][1] == 256 > ends[1][1]


@pytest.mark.parametrize(("least", "trees_of_31"), [(1.01, 64), (0.97, 200)])
def test_leaves_whose_trees_gain_less_each_time_are_given_up_where_they_will_not_do(monkeypatch, least, trees_of_31):
    counts = {}

    def cv(settings, *more, callbacks, **known):
        leaves = settings["num_leaves"]
        with contextlib.suppress(lightgbm.callback.EarlyStopException):
            for counts[leaves] in range(1, 201):
                error = 1.0 if leaves == 8 else least + 1 / counts[leaves]
                callbacks[-1](
                    SimpleNamespace(iteration=counts[leaves], evaluation_result_list=[("", "l2", error, False)])
                )
        return {"cvbooster": SimpleNamespace(boosters=[SimpleNamespace(model_to_string=lambda **known: "")])}

    monkeypatch.setattr(lightgbm, "cv", cv)
    boosted_folds(torch.rand(50, 1), torch.rand(50), torch.arange(50) % 5)
    assert (counts[8], counts[31]) == (200, trees_of_31)


def test_leaves_of_many_rows_are_chosen_on_two_folds_and_the_others_boosted_with_what_is_chosen(monkeypatch):
    """Folds that stop earlier go on with the others, so that all are what they are together."""
    rng, folds = np.random.default_rng(0), torch.arange(300) % 5
    columns = torch.from_numpy(rng.uniform(-2, 2, (300, 3)))
    noise = torch.from_numpy(rng.normal(0, 0.1, 300))
    labels = (3 * columns[:, 0]).sin() * torch.where(folds < 2, 0.5, 1.0) + noise  # two folds soon get worse
    monkeypatch.setattr(trees, "LEAVES", (8, 8))
    whole = boosted_folds(columns, labels, folds)
    monkeypatch.setattr(trees, "MANY", 300)
    parts = boosted_folds(columns, labels, folds)
    assert parts[0] == whole[0]
    np.testing.assert_allclose(parts[1], whole[1], rtol=1e-12)


def test_trees_of_few_classes_tell_near_levels_of_a_number_apart(monkeypatch):
    """Of 480 numbers eight in a row are of one class: 63 bins mix those at the ends of most rows."""
    codes = torch.from_numpy(np.random.default_rng(0).integers(0, 3, 60)).repeat_interleave(8)
    known = torch.arange(480.0)[:, None], torch.nn.functional.one_hot(codes), torch.arange(480) % 5
    _, error = boosted_folds(*known, classes=True)
    monkeypatch.setattr(trees, "_BLURRED", 2)
    assert error < 0.8 * boosted_folds(*known, classes=True)[1]
