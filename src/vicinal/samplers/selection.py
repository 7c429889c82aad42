"""Rows to train on or to label, chosen once: hard or easy ones by prototypes, or rows that cover all others."""

import heapq
import math
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vicinal.core import check_choice
from vicinal.core.checks import check_between, check_integer
from vicinal.samplers.base import Rows, without_gaps
from vicinal.samplers.clusters import checked_embeddings, unit_rows

Floats = NDArray[np.float64]


def label_bands(labels: ArrayLike, bands: int = 10) -> Rows:
    """Band 0 .. ``bands`` - 1 of each number ``[n]`` by quantiles (deciles), so that numbers can serve as classes.

    >>> label_bands([5.0, 1.0, 9.0, 7.0], 2).tolist()
    [0, 0, 1, 1]
    """
    values = without_gaps("labels", labels).astype(np.float64)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise ValueError(f"labels: expected finite numbers [n], got shape {values.shape}")
    levels = np.arange(1, check_integer("bands", bands)) / bands
    edges = np.quantile(values, levels) if len(values) else np.empty(0)
    return np.asarray(np.searchsorted(edges, values, side="right"), dtype=np.int64)


def prototype_distances(
    embeddings: Any,
    prototypes: int = 1,
    *,
    groups: ArrayLike | None = None,
    kind: Literal["cosine", "euclidean"] = "cosine",
    seed: int = 0,
) -> Floats:
    r"""Distance of each row to its prototype, within its group: small = typical (easy), large = unusual (hard).

    Prototypes are k-means centers. Without groups this is the self-supervised difficulty of Sorscher et al., *Beyond
    Neural Scaling Laws*, NeurIPS 2022 (arXiv:2206.14486); with groups, such as classes or :func:`label_bands` of
    numbers, difficulty is measured within each.

    Args:
        embeddings: ``[n, d]``, finite.
        prototypes: k-means centers of each group (all rows of a smaller group); without groups at most n.
        groups: ``[n]`` classes or bands; None: all rows are one group.
        kind: "cosine": rows are scaled to length 1 and the distance is 1 - cosine with the center's direction;
            "euclidean".
        seed: of k-means.

    Returns:
        ``[n]``, >= 0.

    >>> prototype_distances([[0.0], [2.0], [4.0]], kind="euclidean").tolist()
    [2.0, 0.0, 2.0]
    """
    rows = checked_embeddings(embeddings)
    check_choice("kind", kind, ("cosine", "euclidean"))
    check_integer("prototypes", prototypes), check_integer("seed", seed, 0)
    if groups is None and prototypes > len(rows):
        raise ValueError(f"prototypes: expected at most the {len(rows)} rows, got {prototypes}")
    group = _groups(len(rows), groups)
    points = unit_rows(rows) if kind == "cosine" else rows
    distances = np.empty(len(rows))
    for name in np.unique(group):
        mine = np.flatnonzero(group == name)
        distances[mine] = _to_centers(points[mine], min(prototypes, len(mine)), kind, seed)
    return distances


def _to_centers(points: Floats, number: int, kind: str, seed: int) -> Floats:
    if number == len(points):
        return np.zeros(len(points))
    if number == 1:
        centers, cluster = points.mean(0, keepdims=True), np.zeros(len(points), dtype=np.int64)
    else:
        from sklearn.cluster import KMeans  # slow to import

        model = KMeans(number, n_init=1, random_state=seed).fit(points)
        centers, cluster = model.cluster_centers_, model.labels_
    if kind == "cosine":
        return np.asarray(np.maximum(1 - (points * unit_rows(centers)[cluster]).sum(1), 0), dtype=np.float64)
    return np.asarray(np.linalg.norm(points - centers[cluster], axis=1), dtype=np.float64)


def _groups(rows: int, groups: ArrayLike | None = None) -> Rows:
    if groups is None:
        return np.zeros(rows, dtype=np.int64)
    names = without_gaps("groups", groups)
    if names.shape != (rows,):
        raise ValueError(f"groups: expected one for each of {rows} rows, got shape {names.shape}")
    return np.asarray(np.unique(names, return_inverse=True)[1], dtype=np.int64)


def keep_rows(
    difficulty: ArrayLike,
    share: float,
    *,
    keep: Literal["hard", "easy", "middle"] = "hard",
    groups: ArrayLike | None = None,
    balance: float = 0.5,
    each_group: bool = False,
) -> Rows:
    r"""The hardest, easiest or middle rows: keep hard ones if rows are many, easy ones if few (arXiv:2206.14486).

    Args:
        difficulty: ``[n]``, for example :func:`prototype_distances`, or losses.
        share: of the rows to keep, in (0, 1]; round(share n) of them, at least one.
        keep: "hard", "easy", or "middle", the rows around the median, which suits perplexities (arXiv:2405.20541). Ties
            are broken so that the hard share s and the easy share 1 - s are a partition.
        groups: ``[n]`` classes or bands, each of which keeps some rows.
        balance: each group keeps at least floor(balance * share * its rows), from 0 to 1.
        each_group: select in each group separately, the share of its rows, without ``balance``.

    Returns:
        numbers of the rows kept, ascending.

    >>> keep_rows([0.3, 0.1, 0.2, 0.9], 0.5).tolist(), keep_rows([0.3, 0.1, 0.2, 0.9], 0.5, keep="easy").tolist()
    ([0, 3], [1, 2])
    """
    values = np.asarray(difficulty, dtype=np.float64)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise ValueError(f"difficulty: expected finite numbers [n], n >= 1, got shape {values.shape}")
    if check_between("share", share, 0, 1, closed=True) == 0:
        raise ValueError("share: expected a share above 0, got 0")
    check_choice("keep", keep, ("hard", "easy", "middle")), check_between("balance", balance, 0, 1, closed=True)
    if each_group:
        parts = [
            np.flatnonzero(_groups(len(values), groups) == name) for name in np.unique(_groups(len(values), groups))
        ]
        return np.sort(np.concatenate([part[keep_rows(values[part], share, keep=keep)] for part in parts]))
    order = np.argsort(values, kind="stable")
    order = order[::-1] if keep == "hard" else order
    if keep == "middle":
        order = order[np.argsort(np.abs(np.arange(len(order)) - (len(order) - 1) / 2), kind="stable")]
    group = _groups(len(values), groups)[order]
    number = max(math.floor(share * len(values) + 0.5), 1)
    chosen = np.zeros(len(values), dtype=bool)
    if groups is not None:
        for name in np.unique(group):
            mine = np.flatnonzero(group == name)
            chosen[mine[: math.floor(balance * share * len(mine) + 1e-9)]] = True
    chosen[np.flatnonzero(~chosen)[: max(number - int(chosen.sum()), 0)]] = True
    return np.sort(order[chosen])


class Selection(NamedTuple):
    """Rows in the order of picking.

    Attributes:
        rows: their numbers ``[k]``.
        values: ``[k]``, for the rows picked up to each: the radius that covers all rows (:func:`k_center_order`), or
            the mean similarity of all rows to their nearest picked row (:func:`facility_location_order`).
    """

    rows: Rows
    values: Floats


def k_center_order(embeddings: Any, k: int, *, chosen: ArrayLike | None = None) -> Selection:
    """Greedy k-center: always the row farthest from those picked, so that k rows cover all within a small radius.

    The radius is at most twice the smallest possible one (Gonzalez 1985); as a core set for labelling: Sener and
    Savarese 2018 (arXiv:1708.00489).

    Args:
        embeddings: ``[n, d]``, finite; Euclidean distances.
        k: rows to pick, 1 to n (minus those ``chosen``).
        chosen: numbers of rows picked earlier; None: the first pick is the row nearest to the mean.

    >>> k_center_order([[0.0], [1.0], [5.0], [6.0]], 3)
    Selection(rows=array([1, 3, 0]), values=array([5., 1., 1.]))
    """
    rows = checked_embeddings(embeddings)
    present = np.unique(np.asarray([] if chosen is None else chosen, dtype=np.int64))
    if len(present) and not (present[0] >= 0 and present[-1] < len(rows)):
        raise ValueError(f"chosen: expected rows from 0 to {len(rows) - 1}, got {present[0]}..{present[-1]}")
    if check_integer("k", k) > len(rows) - len(present):
        raise ValueError(f"k: expected at most the {len(rows) - len(present)} rows left, got {k}")
    away = np.full(len(rows), np.inf)
    for row in present:
        away = np.minimum(away, np.linalg.norm(rows - rows[row], axis=1))
    free = np.ones(len(rows), dtype=bool)
    free[present] = False
    picked, radii = [], []
    for _ in range(k):
        if np.isinf(away[0]):
            row = int(np.linalg.norm(rows - rows.mean(0), axis=1).argmin())
        else:
            row = int(np.where(free, away, -1.0).argmax())
        free[row] = False
        away = np.minimum(away, np.linalg.norm(rows - rows[row], axis=1))
        picked.append(row)
        radii.append(float(away.max()))
    return Selection(np.array(picked, dtype=np.int64), np.array(radii))


def facility_location_order(embeddings: Any, k: int) -> Selection:
    r"""Greedy facility location: rows that raise $\frac{1}{n}\sum_i \max_{j \in S} \frac{1 + \cos(z_i, z_j)}{2}$ most.

    The sum is at least 1 - 1/e of that of the best k rows (Nemhauser et al. 1978). Gains are evaluated lazily (Minoux
    1978), a column of similarities at a time, so no ``[n, n]`` matrix is held. Unlike k-center it does not favor
    outliers.

    Args:
        embeddings: ``[n, d]``, finite; compared by cosine.
        k: rows to pick, 1 to n.

    >>> facility_location_order([[1.0, 0.0], [1.0, 0.1], [1.0, 0.2], [0.0, 1.0]], 2).rows.tolist()
    [2, 3]
    """
    units = unit_rows(checked_embeddings(embeddings))
    if check_integer("k", k) > len(units):
        raise ValueError(f"k: expected at most the {len(units)} rows, got {k}")
    total, best = units.sum(0), np.zeros(len(units))
    queue = [(-float(gain), row) for row, gain in enumerate((len(units) + units @ total) / 2)]
    heapq.heapify(queue)
    picked: list[int] = []
    values: list[float] = []
    for _ in range(k):
        while True:
            row = queue[0][1]
            column = (1 + units @ units[row]) / 2
            gain = float(np.maximum(column - best, 0).sum())
            heapq.heapreplace(queue, (-gain, row))
            if queue[0][1] == row:
                break
        heapq.heappop(queue)
        best = np.maximum(best, column)
        picked.append(row)
        values.append(float(best.mean()))
    return Selection(np.array(picked, dtype=np.int64), np.array(values))
