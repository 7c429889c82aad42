"""Clusters that do not contradict themselves: components of links, cut where more speaks against a cluster than for."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from vicinal.data.nearest_metric import nearest_metric
from vicinal.estimators.linking import log_odds
from vicinal.linkage.columns import Floats, Ids

LARGEST = 200
"""Rows of a component that is cut, at most."""

AGAINST = 3.0
"""Log odds against a cluster that a pair counts with, at most, as pairs of three rows are no independent evidence. On
five tuning sets the B-cubed F1 of 2 to 5 is within .0005 of each other."""


def drawn_wedges(pairs: Ids, count: int) -> tuple[Ids, float]:
    """The ends ``[count, 2]`` of wedges, two links of one row each, drawn with equal chances; and how many there are.

    Copies of one thing are copies of each other, so the ends are a pair, too; rows that are merely alike need not be.

    Args:
        pairs: links ``[m, 2]``, each once.
        count: how many are drawn; none if there are none.

    >>> drawn_wedges(np.array([[0, 1], [1, 2], [3, 4]]), 2)
    (array([[0, 2],
           [0, 2]]), 1.0)
    """
    ends = np.concatenate([pairs, pairs[:, ::-1]])
    ends = ends[np.lexsort((ends[:, 1], ends[:, 0]))]
    degree = np.bincount(ends[:, 0])
    wedges = degree * (degree - 1) / 2
    if not wedges.any():
        return np.zeros((0, 2), dtype=np.int64), 0.0
    draw = np.random.default_rng(0)
    center = draw.choice(len(degree), count, p=wedges / wedges.sum())
    first = draw.integers(degree[center])
    second = (first + 1 + draw.integers(degree[center] - 1)) % degree[center]
    start = (np.cumsum(degree) - degree)[center]
    return np.sort(np.stack([ends[start + first, 1], ends[start + second, 1]], axis=1), axis=1), float(wedges.sum())


def consistent_clusters(gains: Floats) -> Ids:
    r"""The clusters of one component with the highest total gain, as far as local search finds them: ``[n]``.

    Correlation clustering: the sum over the pairs inside clusters of $g_{ij}$, log odds that the rows are one thing.
    Starts are the whole component, what greedy merging makes of single rows, and the rows within 1/2 of each pivot in
    the metric nearest to $1 / (1 + e^{g_{ij}})$ (:func:`vicinal.data.nearest_metric.nearest_metric`, whose triangle
    inequalities are those of consistent clusters); from each, rows are moved as long as that gains.

    Args:
        gains: symmetric ``[n, n]``; the diagonal does not count.

    >>> consistent_clusters(np.array([[0, 3, -9], [3, 0, 2], [-9, 2, 0.0]])).tolist()
    [0, 0, 1]
    """
    gains = np.where(np.eye(len(gains), dtype=bool), 0.0, gains)
    starts = [np.zeros(len(gains), dtype=np.int64), _merged(gains), _around_pivots(gains)]
    ends = [_moved(gains, start) for start in starts]
    best = max(ends, key=lambda names: round(total_gain(gains, names), 9))
    return np.unique(best, return_inverse=True)[1].ravel()


def cut(clusters: Ids, pairs: Ids, gains: Floats) -> tuple[Ids, int, Ids]:
    """Which part of its component each row is in, ``[rows]``, where components contradict themselves; else 0.

    Args:
        clusters: the component of each row.
        pairs: all pairs ``[n, 2]`` within components of three rows and more, of large ones some.
        gains: log odds that the pairs are one thing, less those of the threshold, ``[n]``.

    Returns:
        The parts, how many components were cut, and which contradict themselves and have too many rows for it.
    """
    parts, sizes = np.zeros(len(clusters), dtype=np.int64), np.bincount(clusters)
    of = clusters[pairs[:, 0]]
    doubtful = np.unique(of[gains < 0])
    small = doubtful[sizes[doubtful] <= LARGEST]
    order = np.argsort(of, kind="stable")
    starts = np.searchsorted(of[order], small, "left")
    ends, count = np.searchsorted(of[order], small, "right"), 0
    for start, end in zip(starts, ends, strict=True):
        inside = order[start:end]
        rows, place = np.unique(pairs[inside], return_inverse=True)
        one, other = place.reshape(-1, 2).T
        between = np.zeros((len(rows), len(rows)))
        between[one, other] = between[other, one] = gains[inside]
        parts[rows] = consistent_clusters(between)
        count += int(parts[rows].any())
    return parts, count, np.setdiff1d(doubtful, small)


def with_new(clusters: Mapping[Any, int], ids: Sequence[Any], links: pd.DataFrame) -> dict[Any, int]:
    """The clusters of new rows, in their order: of those they are linked to, that with most log odds; else a new one.

    Args:
        clusters: of the rows before, by id.
        ids: of the new rows.
        links: their ``left`` and ``right`` id and ``probability``.

    >>> links = pd.DataFrame({"left": [5, 5, 5], "right": [1, 2, 3], "probability": [0.8, 0.7, 0.9]})
    >>> with_new({1: 0, 2: 0, 3: 1}, [5, 6], links)
    {5: 0, 6: 2}
    """
    near: dict[Any, list[tuple[Any, float]]] = {name: [] for name in ids}
    for one, other, gain in zip(links["left"], links["right"], log_odds(links["probability"].to_numpy()), strict=True):
        for name, end in ((one, other), (other, one)):
            if name in near:
                near[name].append((end, float(gain)))
    new: dict[Any, int] = {}
    last = max(clusters.values())
    for name, ends in near.items():
        gains: dict[int, float] = {}
        for end, gain in ends:
            cluster = new.get(end, clusters.get(end))
            if cluster is not None:
                gains[cluster] = gains.get(cluster, 0.0) + gain
        last += not gains
        new[name] = max(gains, key=gains.__getitem__) if gains else last
    return new


def total_gain(gains: Floats, names: Ids) -> float:
    """Sum of the gains of the pairs that are in one cluster."""
    return float(np.triu(gains * (names[:, None] == names), 1).sum())


def _merged(gains: Floats) -> Ids:
    """Single rows, of which those two clusters become one that gain most, as long as any do."""
    names, between = np.arange(len(gains)), gains.copy()
    while True:
        one, other = np.unravel_index(np.argmax(between), between.shape)
        if between[one, other] <= 0:
            return names
        names[names == other] = one
        between[one] += between[other]
        between[:, one] = between[one]
        between[one, one] = 0.0
        between[other] = between[:, other] = -np.inf


def _around_pivots(gains: Floats) -> Ids:
    """Of the rows that are left, in turn the one with most others within 1/2, and these."""
    distances = 1 / (1 + np.exp(np.clip(gains, -30, 30)))
    np.fill_diagonal(distances, 0.0)
    near = nearest_metric(distances, tolerance=1e-3) < 0.5
    names, left = np.full(len(gains), -1), np.ones(len(gains), dtype=bool)
    while left.any():
        pivot = int(np.argmax(np.where(left, (near & left).sum(axis=1), -1)))
        names[near[pivot] & left] = pivot
        left &= ~near[pivot]
        left[pivot] = False
    return names


def _moved(gains: Floats, names: Ids) -> Ids:
    """Clusters after moves of single rows, each the one that gains most, until none gains."""
    count = len(gains)
    members = np.zeros((count + 1, count))  # one more, which is empty
    members[np.unique(names, return_inverse=True)[1].ravel(), np.arange(count)] = 1.0
    for _ in range(count * count):
        gain = members @ gains  # [clusters, rows]
        here = members.argmax(axis=0)
        change = gain - gain[here, np.arange(count)]
        cluster, row = np.unravel_index(np.argmax(change), change.shape)
        if change[cluster, row] <= 1e-9:
            break
        members[:, row] = 0.0
        members[cluster, row] = 1.0
    return np.asarray(members.argmax(axis=0))
