"""New classes beside known ones: values of the paper's code, and the properties of k-means."""

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans

from vicinal.blockwise.blocks import block_policy
from vicinal.clustering import (
    cluster_accuracy,
    hidden_class_score,
    known_class_kmeans,
    known_class_spectral,
    spectral_vectors,
)

GOLDEN = {
    name: torch.from_numpy(np.asarray(value))
    for name, value in np.load("tests/golden/retrieval/ncd_clustering.npz").items()
}
ROWS, KNOWN = GOLDEN["x_unlabelled"], GOLDEN["known_centroids"]
EACH = torch.arange(2)


def blobs(classes=6, rows=30, spread=0.3, seed=0):
    random = np.random.default_rng(seed)
    centers = random.normal(size=(classes, 4)) * 4
    labels = np.arange(classes).repeat(rows)
    return torch.from_numpy(centers[labels] + spread * random.normal(size=(len(labels), 4))), torch.from_numpy(labels)


@pytest.mark.parametrize(("case", "together"), [("unlab_only", False), ("unlab_and_known", True)])
def test_clusters_beside_known_classes_are_those_of_the_papers_code(case, together):
    """Its inertia adds distances where ours adds their squares, which is what the steps never raise."""
    ours = known_class_kmeans(ROWS, KNOWN, EACH, 3, together=together, start=GOLDEN["new_centroids_init"])
    torch.testing.assert_close(ours.centroids, GOLDEN[f"{case}__centroids"])
    lengths = (ROWS - ours.centroids[ours.labels]).norm(dim=1)
    assert float(lengths.sum()) == pytest.approx(float(GOLDEN[f"{case}__inertia"]))
    of_known = (KNOWN - ours.centroids[:2]).square().sum() if together else 0.0
    assert ours.inertia == pytest.approx(float(lengths.square().sum() + of_known))
    assert torch.equal(ours.labels - 2 * together, GOLDEN["unlab_only__labels"])


def test_the_inertia_of_all_rows_never_rises_where_known_classes_move(generator):
    rows, labels = blobs(spread=1.5)
    known, start = labels < 3, rows[labels >= 3][:3]
    together = {"together": True, "start": start}
    ends = [known_class_kmeans(rows[~known], rows[known], labels[known], 3, steps=n, **together) for n in range(1, 6)]
    inertias = [one.inertia for one in ends]
    assert inertias == sorted(inertias, reverse=True)
    assert inertias[0] > inertias[-1]
    of_rows = (rows[~known] - ends[-1].centroids[ends[-1].labels]).square().sum()
    of_known = (rows[known] - ends[-1].centroids[labels[known]]).square().sum()
    assert inertias[-1] == pytest.approx(float(of_rows + of_known))


def test_spectral_vectors_are_those_of_the_papers_laplacian():
    found = spectral_vectors(ROWS, 17, least_affinity=float(GOLDEN["min_dist"]))
    assert found.width == pytest.approx(float(GOLDEN["sigma"]))
    torch.testing.assert_close(found.values, GOLDEN["laplacian_eigenvalues"][1:], atol=1e-12, rtol=1e-9)
    torch.testing.assert_close(GOLDEN["laplacian"] @ found.vectors, found.vectors * found.values, atol=1e-10, rtol=0)
    assert float(found.values.max()) <= 2
    affinity = torch.exp(-(GOLDEN["pairwise_distance"] ** 2) / (2 * found.width**2)).fill_diagonal_(0)
    torch.testing.assert_close(affinity, GOLDEN["affinity"])


def test_without_known_classes_it_is_k_means_whatever_the_blocks(generator):
    rows, labels = blobs()
    none = rows[:0], labels[:0]
    expected = KMeans(6, n_init=10, random_state=0).fit(rows.numpy())
    for size in (16, 1 << 22):
        with block_policy(memory_entries=size):
            ours = known_class_kmeans(rows, *none, 6, generator=generator)
        assert ours.inertia == pytest.approx(expected.inertia_)
        assert cluster_accuracy(ours.labels, labels) == 1
    firsts = rows[::40][:4]
    inertias = [known_class_kmeans(rows, *none, 4, start=firsts, steps=steps).inertia for steps in range(1, 6)]
    assert inertias == sorted(inertias, reverse=True)


def test_new_centroids_begin_away_from_known_classes(generator):
    """Rows of known classes among those to be grouped keep a single draw away; a power of 0 does not."""
    rows, labels = blobs(4, 200, 0.1)
    known = labels < 3
    firsts = {}
    for power in (0.0, 2.0):
        draws = [
            known_class_kmeans(
                rows, rows[known], labels[known], 1, power=power, starts=1, steps=1, together=True, generator=generator
            )
            for _ in range(30)
        ]
        firsts[power] = np.mean([float((draw.centroids[3] - rows[~known].mean(0)).norm()) < 1 for draw in draws])
    assert firsts[2.0] > 0.95
    assert firsts[0.0] < 0.6


def test_rows_of_known_classes_stay_with_them_when_all_are_grouped_together(generator):
    rows, labels = blobs()
    known = (labels < 3) & (torch.arange(len(labels)) % 2 == 0)
    ours = known_class_kmeans(rows[~known], rows[known], labels[known], 3, together=True, generator=generator)
    truth = labels[~known]
    assert torch.equal(ours.labels[truth < 3], truth[truth < 3])
    assert set(ours.labels[truth >= 3].tolist()) == {3, 4, 5}


def test_a_cluster_without_rows_stays_where_it_is():
    far = torch.tensor([[0.0, 0.0, 3.0], [50.0, 50.0, 50.0]], dtype=torch.float64)
    ours = known_class_kmeans(ROWS, KNOWN, EACH, 2, start=far)
    assert torch.equal(ours.centroids[1], far[1])
    assert not (ours.labels == 1).any()


def test_spectral_clusters_have_any_shape(generator):
    angles = torch.linspace(0, 2 * torch.pi, 80, dtype=torch.float64)[:-1]
    ring = torch.stack([angles.cos(), angles.sin()], 1)
    rows = torch.cat([3 * ring, 0.1 * ring])
    labels = torch.arange(2).repeat_interleave(79)
    known, place = torch.tensor([[5.9, 0.0], [6.0, 0.0]], dtype=torch.float64), torch.tensor([5, 5])
    spectral = known_class_spectral(rows, known, place, 2, least_affinity=1e-4, generator=generator)
    plain = known_class_kmeans(rows, known, place, 2, generator=generator)
    assert cluster_accuracy(spectral.labels, labels) == 1
    assert cluster_accuracy(plain.labels, labels) < 0.9


def test_accuracy_is_that_of_the_best_match():
    labels, truth = torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([5, 5, 4, 4, 4, 3])
    assert cluster_accuracy(labels, truth) == pytest.approx(5 / 6)
    assert cluster_accuracy(truth, labels) == pytest.approx(5 / 6)
    assert cluster_accuracy(torch.zeros(6, dtype=torch.int64), truth) == 0.5
    with pytest.raises(ValueError, match=r"^labels: expected \[n\] as the truth"):
        cluster_accuracy(labels, truth[:2])


def test_hidden_classes_tell_a_good_setting_from_a_bad_one(generator):
    rows, labels = blobs(9, 20)
    scores = []
    for method in (lambda *given: known_class_kmeans(*given).labels, lambda rows, *_: torch.zeros(len(rows))):
        scores.append(hidden_class_score(method, rows, labels, generator=generator))
    assert scores[0] == 1
    assert scores[1] == pytest.approx(1 / 3)
    seen = []
    hidden_class_score(
        lambda x, known, y, k: seen.append((len(y.unique()), k)) or torch.zeros(len(x)), rows, labels, folds=4
    )
    assert sum(k for _, k in seen) == 9
    assert len(seen) == 4
    assert all(known + k == 9 for known, k in seen)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"clusters": 0}, "clusters: expected a whole number of at least 1"),
        ({"clusters": 19}, "clusters: expected at most 18, the number of different rows, got 19"),
        ({"rows": torch.ones(9, 3), "clusters": 2}, "clusters: expected at most 1, the number of different rows"),
        ({"rows": torch.full((4, 3), torch.nan)}, "rows: expected finite floating numbers"),
        ({"known": torch.ones(2, 5)}, "known: expected rows of 3 numbers"),
        ({"labels": torch.zeros(3)}, r"labels: expected whole numbers \[2\]"),
        ({"power": 0.5, "starts": 0}, "starts: expected a whole number"),
        ({"start": torch.zeros(2, 3)}, r"start: expected finite numbers \(3, 3\)"),
    ],
)
def test_bad_rows_and_settings_are_told(settings, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        known_class_kmeans(**{"rows": ROWS, "known": KNOWN, "labels": EACH, "clusters": 3, **settings})


def test_bad_spectra_and_folds_are_told():
    with pytest.raises(ValueError, match=r"^rows: expected at least two different rows, got 4 that are equal"):
        spectral_vectors(torch.ones(4, 2), 1)
    with pytest.raises(ValueError, match=r"^dim: expected a whole number of at most 17"):
        spectral_vectors(ROWS, 18)
    with pytest.raises(ValueError, match=r"^least_affinity: expected a number between 0 and 1"):
        spectral_vectors(ROWS, 2, least_affinity=1.0)
    with pytest.raises(ValueError, match=r"^labels: expected at least 6 classes, two a fold"):
        hidden_class_score(lambda *given: given[2], KNOWN, EACH)
