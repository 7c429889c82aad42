"""Batches of rows that are close to each other, and anchors that are far apart."""

from collections.abc import Callable, Mapping
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from vicinal.core import register
from vicinal.core.checks import check_between, check_integer
from vicinal.samplers.base import BatchSampler, EpochOrder, Rows

_GAIN = 1e-4
"""2-means stop when the mean similarity to the means grows by less."""

Draw = Callable[[int], tuple[int, int]]


def unit_rows(rows: NDArray[Any]) -> NDArray[Any]:
    """Rows scaled to length 1; a row of zeros stays zero."""
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(length > 0, length, 1)


def split_in_two(rows: NDArray[np.floating[Any]], draw: Draw) -> tuple[Rows, Rows]:
    """Two halves of ``rows [m, d]`` (directions), by 2-means with equal sizes; the first has one more if m is odd.

    Rows are ranked by how much closer they are to the second mean than to the first and cut in the middle; the means
    are recomputed until the mean similarity of a row to its own mean grows by less than 1e-4.

    Args:
        rows: ``[m, d]``, rows of length 1, m >= 2.
        draw: gives the positions of two different rows to start from.

    >>> x = np.array([[1.0, 0.0], [0.0, 1.0], [0.9, 0.1], [0.1, 0.9]])
    >>> [half.tolist() for half in split_in_two(x, lambda m: (0, 1))]
    [[0, 2], [3, 1]]
    """
    means = rows[list(draw(len(rows)))]
    similar = rows @ means.T
    before, now = -np.inf, -2.0
    while now - before >= _GAIN:
        first, second = np.array_split(np.argsort(similar[:, 1] - similar[:, 0], kind="stable"), 2)
        means = unit_rows(np.stack([rows[first].mean(axis=0), rows[second].mean(axis=0)]))
        similar = rows @ means.T
        before, now = now, (similar[first, 0].sum() + similar[second, 1].sum()) / len(rows)
    return first, second


def checked_embeddings(embeddings: Any) -> NDArray[np.float64]:
    """``embeddings [n, d]`` as an array; a ValueError unless it is a matrix of finite numbers."""
    values = np.asarray(embeddings, dtype=np.float64)
    if values.ndim != 2 or len(values) == 0:
        raise ValueError(f"embeddings: expected a matrix [n, d] of at least one row, got shape {values.shape}")
    bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if len(bad):
        raise ValueError(f"embeddings: expected finite numbers, got NaN or inf in row {bad[0]}")
    return values


def balanced_clusters(embeddings: Any, size: int, random: np.random.Generator | Draw) -> list[Rows]:
    """Clusters of at most ``size`` rows, by splitting all of them in two repeatedly.

    Args:
        embeddings: ``[n, d]``, finite; compared by cosine.
        size: most rows of a cluster, >= 1. With size 1 every row is alone.
        random: source of random numbers, or a function that draws the two rows that a split of m rows starts from.

    Returns:
        rows of each cluster; every row is in one, and sizes differ by at most one.

    Raises:
        ValueError: for embeddings that are not a matrix or not finite.

    >>> x = np.array([[1.0, 0.0], [0.0, 1.0], [0.9, 0.1], [0.1, 0.9]])
    >>> sorted(sorted(cluster.tolist()) for cluster in balanced_clusters(x, 2, np.random.default_rng(0)))
    [[0, 2], [1, 3]]
    """
    unit, limit = unit_rows(checked_embeddings(embeddings)), check_integer("size", size)
    clusters: list[Rows] = [np.arange(len(unit))]
    if limit == 1:
        return np.split(clusters[0], len(unit))

    def draw(m: int) -> tuple[int, int]:
        pair = random.choice(m, 2, replace=False) if isinstance(random, np.random.Generator) else random(m)
        return int(pair[0]), int(pair[1])

    while max(map(len, clusters)) > limit:  # limit >= 2, and sizes differ by at most one: all can be split
        clusters = [rows[half] for rows in clusters for half in split_in_two(unit[rows], draw)]
    return clusters


@register(
    "sampler",
    "clusters",
    "random",
    family="clusters",
    paper="arXiv:2207.04452",
    verified="splits of the authors' code (stored values); sizes and coverage",
)
class ClusterBatches(BatchSampler):
    """Batches of rows that are close to each other, so that the batch itself holds hard unrelated rows.

    Rows are cut into balanced clusters of at most ``size``; clusters are shuffled, concatenated and cut into batches.
    Size 1 is a plain shuffle: start with it, or with a small size, and let it grow. Give new embeddings to
    :meth:`refresh` every few epochs. Without ``drop_last`` every row comes once an epoch.

    Args:
        embeddings: ``[n, d]``, compared by cosine.
        batch_size: rows of a batch.
        size: most rows of a cluster, or a mapping from epochs to the size from then on (with epoch 0).
        drop_last: leave out the last batch if it is smaller.
        order: ``seed``, ``processes`` and ``process``, see :class:`vicinal.samplers.BatchSampler`.

    >>> x = np.array([[1.0, 0.0], [0.0, 1.0], [0.9, 0.1], [0.1, 0.9]])
    >>> sorted(sorted(batch) for batch in ClusterBatches(x, batch_size=2, size=2))
    [[0, 2], [1, 3]]
    """

    def __init__(
        self,
        embeddings: Any,
        *,
        batch_size: int = 32,
        size: int | Mapping[int, int] = 8,
        drop_last: bool = False,
        **order: Unpack[EpochOrder],
    ) -> None:
        super().__init__(**order)
        self.batch_size = check_integer("batch_size", batch_size)
        self.sizes = dict(size) if isinstance(size, Mapping) else {0: size}
        if 0 not in self.sizes:
            raise ValueError(f"size: expected a size for epoch 0, got epochs {sorted(self.sizes)}")
        for value in self.sizes.values():
            check_integer("size", value)
        self.drop_last = drop_last
        self.refresh(embeddings)

    def refresh(self, embeddings: Any) -> None:
        """Use new embeddings ``[n, d]`` of the rows."""
        self.embeddings = checked_embeddings(embeddings)

    def size(self) -> int:
        """Most rows of a cluster in the current epoch."""
        return self.sizes[max(epoch for epoch in self.sizes if epoch <= self.epoch)]

    def batches(self, random: np.random.Generator) -> list[list[int]]:
        """All batches of an epoch."""
        clusters = balanced_clusters(self.embeddings, self.size(), random)
        order = np.concatenate([random.permutation(clusters[k]) for k in random.permutation(len(clusters))])
        cut = [order[start : start + self.batch_size].tolist() for start in range(0, len(order), self.batch_size)]
        return cut[:-1] if self.drop_last and len(cut[-1]) < self.batch_size else cut


def diverse_anchors(
    embeddings: Any,
    k: int,
    *,
    exclude: float = 0.2,
    include: float = 1.0,
    random: np.random.Generator | None = None,
) -> Rows:
    r"""Picks k rows of a pool, each from those that are not very similar to the rows picked before.

    Row 0 is first. Then the v rows left are sorted by their highest cosine with a picked row, lowest first, and the
    next is drawn from places $\lfloor v(1 - i) \rfloor$ to $\lfloor v(1 - e) \rfloor - 1$, at least one of them: the
    share e most similar to the picked rows is left out, and the next (i - e) are drawn from.

    This is not a ``BatchSampler``: it picks the anchors of a pool once. Shuffle the pool first, pick again when
    embeddings have changed, and give the picked rows to a sampler. The paper's image generator is not implemented.

    Args:
        embeddings: ``[n, d]``, finite; compared by cosine.
        k: rows to pick, 1 to n.
        exclude: e, share of the most similar rows that is left out, 0 to 1.
        include: i, from e to 1; rows are drawn from the share i without the share e.
        random: source of random numbers; None: always the most similar row of the window, as the authors' code does
            without its shuffle.

    Returns:
        numbers of k different rows, in the order of picking. Duplicates are different rows.

    Raises:
        ValueError: for k > n, shares out of order, or embeddings that are not a matrix of finite numbers.

    >>> x = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]
    >>> diverse_anchors(x, 2, exclude=0.5).tolist()
    [0, 2]
    """
    rows = checked_embeddings(embeddings)
    if check_integer("k", k) > len(rows):
        raise ValueError(f"k: expected at most the {len(rows)} rows, got {k}")
    low = check_between("exclude", exclude, 0, 1, closed=True)
    high = check_between("include", include, low, 1, closed=True)
    unit = unit_rows(rows)
    left = np.arange(1, len(rows))
    nearest = unit[left] @ unit[0]  # the highest cosine with a picked row
    picked = [0]
    for _ in range(k - 1):
        order = np.argsort(nearest, kind="stable")
        v = len(left)
        end = max(1, min(v, int(v * (1 - low))))
        start = min(int(v * (1 - high)), end - 1)
        place = order[end - 1 if random is None else random.integers(start, end)]
        picked.append(int(left[place]))
        left, nearest = np.delete(left, place), np.delete(nearest, place)
        nearest = np.maximum(nearest, unit[left] @ unit[picked[-1]])
    return np.array(picked)
