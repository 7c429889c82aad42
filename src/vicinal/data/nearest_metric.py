"""Ratings of dissimilarity, as the nearest table of distances that satisfies every triangle inequality."""

import numpy as np
from numpy.typing import NDArray

from vicinal.core.checks import check_between, check_integer, warn_caller

Matrix = NDArray[np.float64]
_SWEEPS = 10
"""Projections on each triangle before triangles without a multiplier are forgotten and others sought."""


def nearest_metric(
    dissimilarities: Matrix,
    weight: Matrix | None = None,
    *,
    decrease_only: bool = False,
    tolerance: float = 1e-8,
    rounds: int = 10_000,
) -> Matrix:
    r"""The metric that is nearest to a table of dissimilarities (metric nearness, by project and forget).

    $\min_x \frac12 \sum_{i < j} w_{ij} (x_{ij} - d_{ij})^2$ with $x_{ij} \le x_{ik} + x_{kj}$ for all triples. Only
    violated triangles and those with a multiplier $z > 0$ are kept in a list, and x is projected on each in turn: with
    $v = x_{ik} + x_{kj} - x_{ij}$, $\delta = \min(z, v / (1/w_{ij} + 1/w_{ik} + 1/w_{kj}))$, x moves by
    $\pm \delta / w$, z falls by $\delta$; triangles whose z is 0 are forgotten.

    Args:
        dissimilarities: d, symmetric ``[n, n]``, >= 0, 0 on the diagonal.
        weight: w, symmetric ``[n, n]``, > 0 off the diagonal: how certain each entry is; None: 1 each.
        decrease_only: entries may only fall: the lengths of shortest paths, exact and fast, but farther from d.
        tolerance: stop when no triangle is violated, and no z changes, by more than this share of the largest d.
        rounds: at most; there is a warning if they were not enough.

    Returns:
        x, ``[n, n]``: all triangle inequalities hold, up to rounding. A metric is returned unchanged.

    Raises:
        ValueError: for a table that is not symmetric, not finite, negative, or not 0 on its diagonal.

    Paper: Project and Forget: Solving Large-Scale Metric Constrained Problems, arXiv:2005.03853.

    >>> nearest_metric(np.array([[0.0, 1, 4], [1, 0, 1], [4, 1, 0]])).round(3).tolist()
    [[0.0, 1.667, 3.333], [1.667, 0.0, 1.667], [3.333, 1.667, 0.0]]
    """
    d = _symmetric("dissimilarities", dissimilarities)
    if d.diagonal().any():
        raise ValueError("dissimilarities: expected 0 on the diagonal, got other numbers")
    check_between("tolerance", tolerance, 0, 1)
    check_integer("rounds", rounds)
    w = np.ones_like(d) if weight is None else _symmetric("weight", weight)
    if w.shape != d.shape or not (w[~np.eye(len(w), dtype=bool)] > 0).all():
        raise ValueError(f"weight: expected {d.shape} with numbers above 0 off the diagonal, got {w.shape} or others")
    largest = d.max(initial=0.0)
    if not decrease_only and _violated(d, 1e-15 * largest)[0].size:
        d = _projected(d, w, tolerance * largest, rounds)
    return _closed(d)


def _symmetric(name: str, values: Matrix) -> Matrix:
    table = np.array(values, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1]:
        raise ValueError(f"{name}: expected [n, n], got {table.shape}")
    if not (np.isfinite(table).all() and (table >= 0).all() and (table == table.T).all()):
        raise ValueError(f"{name}: expected a symmetric table of finite numbers of at least 0, got another")
    return table


def _closed(x: Matrix) -> Matrix:
    """Lengths of shortest paths: x itself if it is a metric, shorter where it is not."""
    shortest = x
    for middle in range(len(x)):
        shortest = np.minimum(shortest, shortest[:, middle, None] + shortest[middle])
    return shortest


def _violated(x: Matrix, allowed: float) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Pairs i < j that are longer than the way through another k, and the k of the shortest way."""
    triples = [np.empty((3, 0), np.int64)]
    for i in range(len(x)):
        ways = x[i, :, None] + x[:, i + 1 :]  # [k, j], of which k = i and k = j give x itself
        best = ways.argmin(axis=0)
        j = np.flatnonzero(x[i, i + 1 :] > ways[best, np.arange(len(best))] + allowed)
        triples.append(np.stack([np.full(len(j), i), j + i + 1, best[j]]))
    pairs, others, over = np.concatenate(triples, axis=1)
    return pairs, others, over


def _projected(d: Matrix, w: Matrix, allowed: float, rounds: int) -> Matrix:
    """Find triangles, project on them and forget them, until nothing moves."""
    count = len(d)
    x, inverse = d.ravel().copy(), 1 / np.where(w > 0, w, 1.0).ravel()
    edges, z = np.empty((0, 3), np.int64), np.empty(0)
    random = np.random.default_rng(0)
    for _ in range(rounds):
        i, j, k = _violated(x.reshape(count, count), allowed)
        low, high = np.minimum, np.maximum
        new = np.stack([i * count + j, low(i, k) * count + high(i, k), low(k, j) * count + high(k, j)], axis=1)
        edges, first = np.unique(np.concatenate([edges, new]), axis=0, return_index=True)
        z = np.concatenate([z, np.zeros(len(new))])[first]
        groups = _apart(edges, random)
        for _ in range(_SWEEPS):
            moved = max((_project(x, z, edges, group, inverse) for group in groups), default=0.0)
        square = x.reshape(count, count)
        x = (np.triu(square, 1) + np.triu(square, 1).T).ravel()
        if not i.size and moved <= allowed:
            return x.reshape(count, count)
        edges, z = edges[z > 0], z[z > 0]
    warn_caller(f"nearest_metric: {rounds} rounds were not enough; the metric may not be the nearest")
    return x.reshape(count, count)


def _project(x: Matrix, z: Matrix, edges: NDArray[np.int64], group: NDArray[np.int64], inverse: Matrix) -> float:
    """Project on triangles that share no edge; return the largest change of a multiplier."""
    long, first, second = edges[group].T
    slack = x[first] + x[second] - x[long]
    delta = np.minimum(z[group], slack / (inverse[long] + inverse[first] + inverse[second]))
    x[long] += delta * inverse[long]
    x[first] -= delta * inverse[first]
    x[second] -= delta * inverse[second]
    z[group] -= delta
    return float(np.abs(delta).max(initial=0.0))


def _apart(edges: NDArray[np.int64], random: np.random.Generator) -> list[NDArray[np.int64]]:
    """Groups of triangles that share no edge, so that each group can be projected on at once."""
    groups, rest = [], random.permutation(len(edges))
    while len(rest):
        first = np.zeros(3 * len(rest), bool)
        first[np.unique(edges[rest], return_index=True)[1]] = True
        alone = first.reshape(-1, 3).all(axis=1)
        groups.append(rest[alone])
        rest = rest[~alone]
    return groups
