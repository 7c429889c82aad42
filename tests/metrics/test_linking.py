"""Measures of links."""

import numpy as np
import pytest
from sklearn.metrics import precision_recall_fscore_support

from references.linking import bcubed
from vicinal.metrics import candidate_recall, cluster_quality, link_quality


def test_pairs_are_measured_as_scikit_learn_measures_classes():
    random = np.random.default_rng(0)
    links, related = random.integers(0, 2, (2, 200))
    expected = precision_recall_fscore_support(related, links, average="binary")[:3]
    assert link_quality(links, related) == pytest.approx(expected)


def test_nothing_linked_has_no_precision():
    quality = link_quality([0, 0], [1, 0])
    assert np.isnan(quality.precision)
    assert quality[1:] == (0.0, 0.0)
    assert all(np.isnan(link_quality([0], [0])))


def test_clusters_are_measured_by_row():
    random = np.random.default_rng(0)
    for _ in range(5):
        clusters, truth = random.integers(0, 8, (2, 40))
        assert cluster_quality(clusters, truth) == pytest.approx(bcubed(clusters, truth))
    assert cluster_quality(truth + 5, truth) == (1.0, 1.0, 1.0)


def test_recall_counts_true_pairs_that_are_no_candidates():
    assert candidate_recall([0, 9, 10, -1], [1, 10, 11]) == {1: 0.25, 10: 0.5, 11: 0.75}
    assert np.isnan(candidate_recall(np.zeros(0, dtype=int), [1])[1])


def test_wrong_arguments_are_told():
    with pytest.raises(ValueError, match=r"^links: "):
        link_quality([1], [1, 0])
    with pytest.raises(ValueError, match=r"^ranks: "):
        candidate_recall([0.5], [1])
    with pytest.raises(ValueError, match=r"^clusters: "):
        cluster_quality([], [])
