"""From probable pairs to links: each row in one at most, or clusters and what contradicts them."""

from typing import Any

import numpy as np
import scipy.sparse

Ids = np.ndarray[Any, Any]
Floats = np.ndarray[Any, np.dtype[np.float64]]

_SURE = 1e-9

_TOGETHER = 4096
"""Pairs that are assigned at a time, or more where they hang together."""


def log_odds(chances: Floats) -> Floats:
    """Log odds of probabilities, at most those of 1e-9."""
    clipped = np.clip(chances, _SURE, 1 - _SURE)
    return np.asarray(np.log(clipped / (1 - clipped)))


def assigned(left: Ids, right: Ids, gains: Floats) -> Ids:
    """Which pairs an assignment of the highest total gain takes: each row is in one at most, bool ``[n]``.

    Args:
        left: whole numbers ``[n]``.
        right: likewise.
        gains: > 0, ``[n]``; a pair stands once.

    >>> assigned(np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([3.0, 2.0, 2.0])).tolist()
    [False, True, True]
    """
    if len(gains) == 0:
        return np.zeros(0, dtype=bool)
    clusters = connected(np.stack([_numbered(left), _numbered(right) + len(left)], axis=1), 2 * len(left))
    clusters = _numbered(clusters[_numbered(left)])  # what no pair joins is assigned by itself
    sizes = np.bincount(clusters)
    order, batches = np.argsort(clusters, kind="stable"), ((np.cumsum(sizes) - sizes) // _TOGETHER)[clusters]
    taken = np.zeros(len(gains), dtype=bool)
    for part in np.split(order, np.flatnonzero(np.diff(batches[order])) + 1):
        taken[part] = _assigned(_numbered(left[part]), _numbered(right[part]), gains[part])
    return taken


def _numbered(values: Ids) -> Ids:
    numbers: Ids = np.unique(values, return_inverse=True)[1].ravel()
    return numbers


def _assigned(rows: Ids, columns: Ids, gains: Floats) -> Ids:
    """See :func:`assigned`; its time grows with the square of the rows."""
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    count, width = int(rows.max()) + 1, int(columns.max()) + 1
    worst = float(gains.max()) + 1  # what it costs to stay alone, in a column of its own
    costs = np.concatenate([worst - gains, np.full(count, worst)])
    ends = np.concatenate([rows, np.arange(count)]), np.concatenate([columns, width + np.arange(count)])
    graph = scipy.sparse.csr_matrix((costs, ends), shape=(count, width + count))
    taken = min_weight_full_bipartite_matching(graph)[1]  # of each row, in order
    return np.asarray(taken[rows] == columns)


def connected(pairs: Ids, rows: int) -> Ids:
    """Clusters ``[rows]`` of whatever links ``[n, 2]`` join, numbered from 0, larger ones first.

    >>> connected(np.array([[1, 2], [2, 3]]), 5).tolist()
    [1, 0, 0, 0, 2]
    """
    from scipy.sparse.csgraph import connected_components

    graph = scipy.sparse.coo_matrix((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(rows, rows))
    clusters = connected_components(graph, directed=False)[1]
    sizes = np.bincount(clusters)
    numbers = np.empty(len(sizes), dtype=np.int64)
    numbers[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    numbered: Ids = numbers[clusters]
    return numbered


def pairs_within(clusters: Ids, largest: int) -> Ids:
    """All pairs ``[n, 2]`` of rows of one cluster of 3 to ``largest`` rows."""
    sizes = np.bincount(clusters)
    order, starts = np.argsort(clusters, kind="stable"), np.cumsum(sizes) - sizes
    parts = [np.zeros((0, 2), dtype=np.int64)]
    for cluster in np.flatnonzero((sizes > 2) & (sizes <= largest)):
        members = order[starts[cluster] : starts[cluster] + sizes[cluster]]
        parts.append(members[np.stack(np.triu_indices(len(members), 1), axis=1)])
    return np.concatenate(parts)
