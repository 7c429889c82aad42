"""From probable pairs to links: each row in one at most, or clusters and what contradicts them."""

import numpy as np
import scipy.sparse

from vicinal.linkage.columns import Floats, Ids

_LEAST = 1e-9
"""Probabilities are at least this, and at most 1 less this, before their log odds are taken."""

_TOGETHER = 4096
"""Pairs that are assigned at a time, or more where they hang together."""


def log_odds(chances: Floats, least: float = _LEAST) -> Floats:
    """Log odds of probabilities from ``least`` to 1 less that."""
    clipped = np.clip(chances, least, 1 - least)
    return np.asarray(np.log(clipped / (1 - clipped)))


def assigned(left: Ids, right: Ids, gains: Floats, most: int = 1) -> Ids:
    """Which pairs an assignment of the highest total gain takes, bool ``[n]``: a right row is in one at most.

    Args:
        left: whole numbers ``[n]``.
        right: likewise.
        gains: > 0, ``[n]``; a pair stands once.
        most: pairs that a left row is in, at most.

    >>> assigned(np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([3.0, 2.0, 2.0])).tolist()
    [False, True, True]
    >>> assigned(np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([3.0, 2.0, 2.0]), 2).tolist()
    [True, True, False]
    """
    left, right = _numbered(left), _numbered(right)
    taken: Ids = (np.bincount(left)[left] == 1) & (np.bincount(right)[right] == 1)  # nothing competes with them
    some = np.flatnonzero(~taken)
    clusters = connected(np.stack([left, right + len(left)], axis=1), 2 * len(left))[left[some]]
    clusters = _numbered(clusters)  # what no pair joins is assigned by itself
    sizes = np.bincount(clusters)
    order, batches = np.argsort(clusters, kind="stable"), ((np.cumsum(sizes) - sizes) // _TOGETHER)[clusters]
    for part in np.split(some[order], np.flatnonzero(np.diff(batches[order])) + 1) if len(some) else ():
        taken[part] = _assigned(_numbered(left[part]), _numbered(right[part]), gains[part], most)
    return taken


def _numbered(values: Ids) -> Ids:
    return np.unique(values, return_inverse=True)[1].ravel()


def _assigned(rows: Ids, columns: Ids, gains: Floats, most: int) -> Ids:
    """See :func:`assigned`; its time grows with the square of the rows, each of which stands ``most`` times."""
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    seats = np.arange(most)
    every, to = (rows[:, None] * most + seats).ravel(), np.repeat(columns, most)
    count, width = most * (int(rows.max()) + 1), int(columns.max()) + 1
    worst = float(gains.max()) + 1  # what it costs to stay alone, in a column of its own
    costs = np.concatenate([np.repeat(worst - gains, most), np.full(count, worst)])
    ends = np.concatenate([every, np.arange(count)]), np.concatenate([to, width + np.arange(count)])
    graph = scipy.sparse.csr_matrix((costs, ends), shape=(count, width + count))
    taken = min_weight_full_bipartite_matching(graph)[1]  # of each row, in order
    return np.asarray((taken.reshape(-1, most)[rows] == columns[:, None]).any(axis=1))


def connected(pairs: Ids, rows: int) -> Ids:
    """Clusters ``[rows]`` of whatever links ``[n, 2]`` join, numbered from 0, larger ones first.

    >>> connected(np.array([[1, 2], [2, 3]]), 5).tolist()
    [1, 0, 0, 0, 2]
    """
    from scipy.sparse.csgraph import connected_components

    graph = scipy.sparse.coo_matrix((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(rows, rows))
    return larger_first(connected_components(graph, directed=False)[1])


def larger_first(clusters: Ids) -> Ids:
    """The same clusters ``[n]`` numbered from 0, larger ones first.

    >>> larger_first(np.array([7, 2, 2])).tolist()
    [1, 0, 0]
    """
    clusters = _numbered(clusters)
    sizes = np.bincount(clusters)
    numbers = np.empty(len(sizes), dtype=np.int64)
    numbers[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    return numbers[clusters]


def pairs_within(
    clusters: Ids, most: int, random: np.random.Generator | None = None, fewest: int = 3
) -> tuple[Ids, int]:
    """Pairs ``[n, 2]`` of rows of one cluster of ``fewest`` rows or more, and how many pairs there are in all.

    All of them, but for clusters of more than ``most`` pairs: there as many are drawn, or those with the first row.

    >>> pairs, there = pairs_within(np.array([0, 1, 0, 0]), 10)
    >>> pairs.tolist(), there
    ([[0, 2], [0, 3], [2, 3]], 3)
    """
    sizes = np.bincount(clusters)
    order, starts = np.argsort(clusters, kind="stable"), np.cumsum(sizes) - sizes
    parts, there = [np.zeros((0, 2), dtype=np.int64)], 0
    for cluster in np.flatnonzero(sizes >= fewest):
        size = int(sizes[cluster])
        members, count = order[starts[cluster] : starts[cluster] + size], size * (size - 1) // 2
        if count <= most:
            pairs = np.stack(np.triu_indices(size, 1), axis=1)
        elif random is None:
            pairs = np.stack([np.zeros(size - 1, dtype=np.int64), np.arange(1, size)], axis=1)
        else:
            first = random.integers(0, size, most)
            pairs = np.stack([first, (first + random.integers(1, size, most)) % size], axis=1)
            pairs = np.unique(np.sort(pairs, axis=1), axis=0)
        parts.append(members[pairs])
        there += count
    return np.concatenate(parts), there


_BANDS = (0.02, 0.1, 0.3, 0.7, 0.95)
"""Of probabilities, from each of which some pairs are labelled."""


def pairs_to_label(chances: Floats, count: int) -> Ids:
    """Which pairs of probabilities ``[n]`` teach most: half of them nearest to one half, half evenly from bands.

    The most probable first.

    >>> pairs_to_label(np.array([0.99, 0.6, 0.45, 0.2, 0.05, 0.001]), 4).tolist()
    [1, 2, 3, 4]
    """
    near = np.argsort(np.abs(chances - 0.5), kind="stable")[: count // 2]
    rest = np.setdiff1d(np.arange(len(chances)), near)
    band = np.digitize(chances[rest], _BANDS)
    bands = [np.flatnonzero(band == each) for each in range(1, len(_BANDS) + 1)]
    bands = [rest[part][np.argsort(-chances[rest[part]], kind="stable")] for part in bands if len(part)]
    left_over, chosen = count - len(near), [near]
    for place, part in enumerate(sorted(bands, key=len)):  # what a small band lacks, larger ones give
        some = min(len(part), -(-left_over // (len(bands) - place)))
        chosen.append(part[np.unique(np.linspace(0, len(part) - 1, some).astype(np.int64))])
        left_over -= some
    every = np.concatenate(chosen)
    others = np.setdiff1d(np.arange(len(chances)), every)  # where bands have too few
    every = np.append(every, others[np.argsort(-chances[others], kind="stable")[: max(0, count - len(every))]])
    return every[np.argsort(-chances[every], kind="stable")]


BLOCK = 10_000
"""Pairs that two blocks of equal rows have, or one, up to which all of them are listed."""


def pairs_of_rows(at: Ids, left: Ids, right: Ids) -> tuple[Ids, Ids]:
    """Pairs of rows ``[n, 2]`` for pairs of things ``[m, 2]``, and which of these each stands for ``[n]``.

    All rows of the one with all of the other; of blocks of more than 10,000 pairs each row once, at least.

    Args:
        at: numbers of things.
        left: the thing of each left row.
        right: likewise.

    >>> pairs_of_rows(np.array([[0, 0], [1, 1]]), np.array([0, 1, 1]), np.array([1, 0]))[0].tolist()
    [[0, 1], [1, 0], [2, 0]]
    """
    orders = [np.argsort(thing, kind="stable") for thing in (left, right)]
    every = [np.bincount(thing) for thing in (left, right)]
    sizes = [each[at[:, side]] for side, each in enumerate(every)]
    starts = [(np.cumsum(each) - each)[at[:, side]] for side, each in enumerate(every)]
    whole = sizes[0] * sizes[1] <= BLOCK
    counts = np.where(whole, sizes[0] * sizes[1], np.maximum(*sizes))
    source = np.repeat(np.arange(len(at)), counts)
    place = np.arange(len(source)) - np.repeat(np.cumsum(counts) - counts, counts)
    one = np.where(whole[source], place // sizes[1][source], place % sizes[0][source])
    other = place % sizes[1][source]
    pairs = np.stack([orders[0][starts[0][source] + one], orders[1][starts[1][source] + other]], axis=1)
    return pairs, source
