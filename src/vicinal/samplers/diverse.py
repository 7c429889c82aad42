"""Diverse anchors: rows picked one after another so that they are unlike those picked before."""

from typing import Any

import numpy as np

from vicinal.core import check_between, check_integer
from vicinal.samplers.base import Rows
from vicinal.samplers.clusters import checked_embeddings


def diverse_anchors(
    embeddings: Any,
    k: int,
    *,
    exclude: float = 0.2,
    include: float = 1.0,
    random: np.random.Generator | None = None,
) -> Rows:
    r"""Picks k rows of a pool, each out of those that are little like the rows picked already.

    Row 0 is first. Then, with v rows left, sorted by their highest cosine with a picked row, lowest first, the next is
    drawn from places $\lfloor v(1 - i) \rfloor$ to $\lfloor v(1 - e) \rfloor - 1$, at least one of them: the share e
    that is most like the picked ones is never used, and the next (i - e) are drawn from.

    This is no ``BatchSampler``: it says which rows of a pool are to be anchors, once, and not which rows meet in a
    batch. Shuffle the pool before, mine anew when embeddings have changed, and give the picked rows to a sampler. The
    paper's generator of images is not here.

    Args:
        embeddings: ``[n, d]``, finite; compared by cosine.
        k: rows to pick, 1 to n.
        exclude: e, share of the most similar rows that is never used, 0 to 1.
        include: i >= e, up to which share they are drawn.
        random: source of random numbers; None: always the most similar row of the window, as the authors' program
            does without its shuffle.

    Returns:
        numbers of k different rows, in the order of picking. Duplicates are different rows.

    Raises:
        ValueError: for k > n, shares out of order, or embeddings that are no matrix of finite numbers.

    >>> x = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]
    >>> diverse_anchors(x, 2, exclude=0.5).tolist()
    [0, 2]
    """
    rows = checked_embeddings(embeddings)
    if check_integer("k", k) > len(rows):
        raise ValueError(f"k: expected at most the {len(rows)} rows, got {k}")
    low = check_between("exclude", exclude, 0, 1, closed=True)
    high = check_between("include", include, low, 1, closed=True)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = rows / np.where(length > 0, length, 1)
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
