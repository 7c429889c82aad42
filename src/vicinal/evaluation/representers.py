"""Which training rows speak for a score: exact shares for linear heads with an L1 or a nuclear-norm penalty.

At an optimum the score of a row is a sum over training rows; each share is that row's part. Tsai et al., *Representer
Point Selection for Explaining Regularized High-dimensional Models*, ICML 2023 (arXiv:2305.20002).
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vicinal.calibration.checks import Floats, check_matrix, check_vector


def l1_representers(coefficients: ArrayLike, rows: ArrayLike, slopes: ArrayLike, queries: ArrayLike) -> Floats:
    r"""Share of each training row in the score of each query: $v_{it} = -\ell'_i \sum_j x_{ij} |\theta_j| x_{tj}$.

    Where theta minimizes $\sum_i \ell(y_i, x_i \cdot \theta) + \lambda |\theta|_1$: $\sum_i v_{it} = \lambda\, x_t
    \cdot \theta$. How far that identity fails shows how far the fit is from its optimum.

    Args:
        coefficients: ``[p]``, theta.
        rows: ``[n, p]``, training rows.
        slopes: ``[n]``, derivative of each row's loss by its score (logistic: sigmoid(score) - y).
        queries: ``[m, p]``.

    Returns:
        ``[n, m]``.

    >>> l1_representers([2.0, 0.0], [[1.0, 5.0]], [-0.5], [[3.0, 7.0]]).tolist()
    [[3.0]]
    """
    theta = np.abs(check_vector("coefficients", coefficients))
    train, test = (check_matrix(n, each, columns=len(theta)) for n, each in (("rows", rows), ("queries", queries)))
    slope = check_vector("slopes", slopes, size=len(train))
    return -slope[:, None] * ((train * theta) @ test.T)


def nuclear_representers(
    scores: ArrayLike | tuple[ArrayLike, ArrayLike],
    users: ArrayLike,
    items: ArrayLike,
    slopes: ArrayLike,
    *,
    pairs: ArrayLike | None = None,
    tolerance: float = 1e-10,
) -> tuple[Floats, Floats]:
    r"""Shares of observed pairs in a score of a matrix fitted under a nuclear-norm penalty.

    With $M = U S V^T$, $p_u$ row u of $U\sqrt S$, $q_i$ row i of $V\sqrt S$. On the item side a pair (u, i')
    contributes $-\ell'_{ui'}\, q_i \cdot q_{i'}$ to (u, i); on the user side a pair (u', i) contributes $-\ell'_{u'i}\,
    p_u \cdot p_{u'}$. At an optimum of $\sum \ell + \lambda |M|_*$ each side sums to $\lambda M_{ui}$; halve both for
    one explanation. For factors with ridges $\tfrac\lambda2 (|A|^2 + |B|^2)$ that is the optimum of both.

    Args:
        scores: ``[U, I]``, M; or its factors ``[U, k]`` and ``[I, k]``, whose product is never made.
        users: ``[n]``, row of each observed pair.
        items: ``[n]``, column of each observed pair.
        slopes: ``[n]``, derivative of each pair's loss by its score (squares: score - y).
        pairs: ``[p, 2]``, rows and columns of the scores to explain; None: all, which takes U I n numbers a side.
        tolerance: singular values below this share of the largest count as 0.

    Returns:
        Item side and user side, each ``[p, n]``, or ``[U, I, n]`` of all (0 where the pair is of another user, or
        item).

    >>> factors = [[1.0], [2.0]], [[1.0], [1.0]]
    >>> of_item, of_user = nuclear_representers(factors, [0, 1], [1, 0], [-1, -3], pairs=[[0, 0]])
    >>> of_item.round(6).tolist(), of_user.round(6).tolist()
    ([[1.581139, 0.0]], [[0.0, 3.794733]])
    """
    people, things = _roots(scores, tolerance)
    slope = check_vector("slopes", slopes)
    row = _places("users", users, len(people), len(slope))
    column = _places("items", items, len(things), len(slope))
    if pairs is None:
        every = np.indices((len(people), len(things))).reshape(2, -1).T
    else:
        every = np.asarray(pairs)
        if every.ndim != 2 or every.shape[1] != 2:
            raise ValueError(f"pairs: expected rows and columns [p, 2], got shape {every.shape}")
    user = _places("pairs", every[:, 0], len(people), len(every))
    item = _places("pairs", every[:, 1], len(things), len(every))
    of_item = -slope * (things[item] @ things[column].T) * (user[:, None] == row)  # [p, n]
    of_user = -slope * (people[user] @ people[row].T) * (item[:, None] == column)
    if pairs is None:
        shape = len(people), len(things), len(slope)
        return of_item.reshape(shape), of_user.reshape(shape)
    return of_item, of_user


def _roots(scores: ArrayLike | tuple[ArrayLike, ArrayLike], tolerance: float) -> tuple[Floats, Floats]:
    r"""$U\sqrt S$ and $V\sqrt S$ of the matrix, or of the product of two factors."""
    if isinstance(scores, tuple):
        of_rows, of_columns = (np.linalg.qr(check_matrix("scores", each)) for each in scores)
        if of_rows.R.shape[1] != of_columns.R.shape[1]:
            raise ValueError(
                f"scores: expected factors of one width, got {of_rows.R.shape[1]} and {of_columns.R.shape[1]}"
            )
        left, size, right = np.linalg.svd(of_rows.R @ of_columns.R.T, full_matrices=False)
        left, right = of_rows.Q @ left, (of_columns.Q @ right.T).T
    else:
        left, size, right = np.linalg.svd(check_matrix("scores", scores), full_matrices=False)
    large = size > tolerance * max(float(size[0]), 0.0)
    if not large.any():
        raise ValueError("scores: expected a matrix of rank at least 1, got zeros; there is nothing to explain")
    return left[:, large] * np.sqrt(size[large]), right[large].T * np.sqrt(size[large])


def _places(name: str, values: ArrayLike, limit: int, size: int) -> NDArray[np.int64]:
    array = np.asarray(values, dtype=np.int64)
    if array.shape != (size,):
        raise ValueError(f"{name}: expected {size} entries as the slopes, got shape {array.shape}")
    if len(array) and (array.min() < 0 or array.max() >= limit):
        raise ValueError(f"{name}: expected numbers from 0 to {limit - 1}, got {array.min()}..{array.max()}")
    return array
