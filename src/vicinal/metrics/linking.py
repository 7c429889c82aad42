"""How good links between rows are: pairs against true pairs, clusters against true clusters."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from vicinal.core.checks import check_integer


class LinkQuality(NamedTuple):
    """Precision, recall and F1 of pairs or of clusters; NaN where nothing was linked, or nothing belongs together."""

    precision: float
    recall: float
    f1: float


def _quality(right: float, linked: float, true: float) -> LinkQuality:
    def share(of: float) -> float:
        return right / of if of else float("nan")

    return LinkQuality(share(linked), share(true), 2 * right / (linked + true) if linked + true else float("nan"))


def link_quality(links: ArrayLike, related: ArrayLike) -> LinkQuality:
    """Precision, recall and F1 of 0/1 decisions ``[n]`` about pairs.

    >>> link_quality([1, 1, 0, 0], [1, 0, 1, 0])
    LinkQuality(precision=0.5, recall=0.5, f1=0.5)
    """
    said, truth = np.asarray(links, dtype=bool), np.asarray(related, dtype=bool)
    if said.ndim != 1 or said.shape != truth.shape:
        raise ValueError(f"links: expected a decision on each of {truth.shape} pairs, got {said.shape}")
    return _quality(int((said & truth).sum()), int(said.sum()), int(truth.sum()))


def candidate_recall(ranks: ArrayLike, ks: Sequence[int]) -> dict[int, float]:
    """Share of the true pairs among the first k candidates of their row, for several k.

    Args:
        ranks: ``[n]``, rank of each true pair among the candidates of its row, from 0; -1 if it is not among them.
        ks: each >= 1.

    >>> candidate_recall([0, 3, -1, 1], [1, 5])
    {1: 0.25, 5: 0.75}
    """
    places = np.asarray(ranks)
    if places.ndim != 1 or places.dtype.kind != "i":
        raise ValueError(f"ranks: expected whole numbers [n], got {places.dtype} {places.shape}")
    count = max(1, len(places)) if len(places) else float("nan")
    return {k: float(((places >= 0) & (places < check_integer("k", k))).sum() / count) for k in ks}


def cluster_quality(clusters: ArrayLike, truth: ArrayLike) -> LinkQuality:
    r"""B-cubed precision, recall and F1 of clusters: over rows, the mean share of a row's cluster that is its own.

    $P = \frac1n \sum_i |C_i \cap T_i| / |C_i|$, $R = \frac1n \sum_i |C_i \cap T_i| / |T_i|$, F1 their harmonic mean
    (Bagga and Baldwin, ACL 1998). Counting pairs instead would let a cluster of 100 rows weigh as much as 4,950
    clusters of two.

    Args:
        clusters: a name for each row, ``[n]``, n >= 1.
        truth: likewise.

    >>> cluster_quality(["a", "a", "b"], [0, 0, 0])
    LinkQuality(precision=1.0, recall=0.5555555555555555, f1=0.7142857142857143)
    """
    ours, theirs = (np.unique(np.asarray(names), return_inverse=True)[1].ravel() for names in (clusters, truth))
    if len(ours) != len(theirs) or len(ours) == 0:
        raise ValueError(f"clusters: expected a cluster for each of {len(theirs)} rows, at least one, got {len(ours)}")
    _, both = np.unique(ours * (int(theirs.max()) + 1) + theirs, return_inverse=True)
    shared = np.bincount(both)[both]
    precision, recall = (
        float((shared / np.bincount(ours)[ours]).mean()),
        float((shared / np.bincount(theirs)[theirs]).mean()),
    )
    return LinkQuality(precision, recall, 2 * precision * recall / (precision + recall))
