"""Groups of rows of no known class: known classes say which space and how many."""

import math

import numpy as np
import pytest
import torch

from vicinal.clustering import cluster_accuracy, discover_groups, known_class_kmeans, within_class_whitening


def spoken(classes=9, rows=24, seed=0, loud=8.0):
    """Rows of classes that are hidden behind who speaks: a large difference inside of every class."""
    random = np.random.default_rng(seed)
    labels = np.arange(classes).repeat(rows)
    what, who = random.normal(size=(classes, 6)), loud * random.normal(size=(4, 6))
    points = np.concatenate(
        [what[labels] + 0.2 * random.normal(size=(len(labels), 6)), who[np.arange(len(labels)) % 4]], 1
    )
    mixed = points @ np.linalg.qr(random.normal(size=(12, 12)))[0]
    return torch.from_numpy(mixed), torch.from_numpy(labels)


def test_whitening_makes_known_classes_round_and_equals_numpy():
    rows, labels = spoken()
    apart = rows.numpy() - np.stack([rows.numpy()[labels == each].mean(0) for each in range(9)])[labels]
    covariance = 0.9 * apart.T @ apart / len(rows) + 0.1 * np.trace(apart.T @ apart / len(rows)) / 12 * np.eye(12)
    values, vectors = np.linalg.eigh(covariance)
    expected = vectors / np.sqrt(values) @ vectors.T
    torch.testing.assert_close(within_class_whitening(rows, labels, 0.1), torch.from_numpy(expected))
    whitening = within_class_whitening(rows + 0.1 * torch.randn(rows.shape, generator=torch.Generator()), labels, 1e-9)
    assert torch.equal(within_class_whitening(rows[:3], torch.arange(3)), torch.eye(12, dtype=torch.float64))
    assert bool(whitening.isfinite().all())


def test_known_classes_tell_what_makes_new_ones_different(generator):
    rows, labels = spoken()
    known = labels < 6
    plain = known_class_kmeans(rows[~known], rows[known], labels[known], 3, generator=generator)
    assert cluster_accuracy(plain.labels, labels[~known]) < 0.7
    found = discover_groups(rows[~known], rows[known], labels[known], repeats=1, generator=generator)
    assert cluster_accuracy(found.labels, labels[~known]) == 1
    assert found.labels.bincount().tolist() == [24, 24, 24]
    assert found.score > 0.9
    assert found.setting[0][1] is not None  # a space in which known classes are round


def test_the_number_of_groups_is_found_or_given_and_the_largest_is_first(generator):
    rows, labels = spoken(loud=0.1)
    known, some = labels < 6, (labels == 6) | ((labels == 7) & (torch.arange(len(labels)) % 8 < 4))
    found = discover_groups(rows[some], rows[known], labels[known], repeats=1, generator=generator)
    assert found.labels.bincount().tolist() == [24, 12]
    given = discover_groups(rows[some], rows[known], labels[known], groups=4, repeats=1, generator=generator)
    counts = given.labels.bincount().tolist()
    assert len(counts) == 4
    assert counts == sorted(counts, reverse=True)
    assert discover_groups(
        rows[some][:1], rows[known], labels[known], repeats=1, generator=generator
    ).labels.tolist() == [0]


def test_the_nearest_row_to_its_centroid_is_the_most_typical(generator):
    rows, labels = spoken()
    known = labels < 6
    found = discover_groups(rows[~known], rows[known], labels[known], repeats=1, generator=generator)
    for group in range(3):
        typicality = found.typicality[found.labels == group]
        torch.testing.assert_close(typicality.sort().values, torch.arange(1, 25).double() / 24)


def test_with_fewer_than_four_known_classes_nothing_is_hidden(generator):
    rows, labels = spoken()
    for known in (labels < 3, labels < 0):
        found = discover_groups(rows[labels >= 6], rows[known], labels[known], repeats=1, generator=generator)
        assert math.isnan(found.score)
        assert len(found.labels) == 72


@pytest.mark.slow
def test_draws_follow_the_generator_and_large_tables_are_grouped_by_a_part(generator, monkeypatch):
    rows, labels = spoken()
    known = labels < 6
    given = rows[~known], rows[known], labels[known]
    once, again = (discover_groups(*given, generator=torch.Generator().manual_seed(1), repeats=1) for _ in range(2))
    assert torch.equal(once.labels, again.labels)
    monkeypatch.setattr("vicinal.clustering.discovery._ROWS", 40)
    monkeypatch.setattr("vicinal.clustering.discovery._KNOWN", 100)
    assert cluster_accuracy(discover_groups(*given, repeats=1, generator=generator).labels, labels[~known]) == 1


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"groups": 0}, "groups: expected"),
        ({"groups": 73}, "clusters: expected at most 72"),
        ({"most": 0}, "most: expected"),
        ({"repeats": 0}, "repeats: expected"),
    ],
)
def test_what_cannot_be_grouped_is_refused(settings, sentence):
    rows, labels = spoken()
    with pytest.raises(ValueError, match=sentence):
        discover_groups(rows[labels >= 6], rows[labels < 6], labels[labels < 6], **settings)
    with pytest.raises(ValueError, match=r"^known: expected finite numbers \[m, d\]"):
        within_class_whitening(torch.full((2, 2), torch.nan), torch.tensor([0, 0]))
    with pytest.raises(ValueError, match="rows: expected finite"):
        discover_groups(rows[:3] / 0, rows, labels)
