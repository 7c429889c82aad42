"""How much of each prediction to take: weights that are chosen on rows held out."""

import itertools

import numpy as np
from numpy.typing import ArrayLike, NDArray

MOST = 12
"""Predictions that may be blended: all their combinations are looked at."""


def blend_weights(predictions: ArrayLike, truth: ArrayLike) -> NDArray[np.float64]:
    r"""$\arg\min_{w \ge 0,\, \sum w = 1} \sum_i (\sum_k w_k p_{ik} - y_i)^2$ (stacking, Breiman 1996).

    Weights cannot be negative and sum to 1, so a blend of predictions within the range of the labels stays in it, and
    few rows are enough to find them. Exact: with weights that sum to 1 the error is $w^\top E w$ for the products $E$
    of the errors; the best point of every face of the simplex is found, and the best admissible of these is taken.

    Args:
        predictions: ``[n, k]``, of rows that none of the k methods was trained on; k from 1 to 12.
        truth: ``[n]``.

    Returns:
        ``[k]``, >= 0, sum 1.

    Raises:
        ValueError: for shapes that do not agree, no rows, more than 12 columns, or numbers that are not finite.

    >>> blend_weights([[0.0, 1.0], [2.0, 1.0], [0.0, 1.0]], [0.5, 1.5, 0.5]).round(3).tolist()
    [0.5, 0.5]
    """
    guesses, target = np.asarray(predictions, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    if guesses.ndim != 2 or not guesses.size or guesses.shape[1] > MOST or target.shape != guesses.shape[:1]:
        raise ValueError(
            f"predictions: expected [n, k] with k from 1 to {MOST} beside truth [n], got shapes {guesses.shape} and "
            f"{target.shape}"
        )
    if not (np.isfinite(guesses).all() and np.isfinite(target).all()):
        raise ValueError("predictions: expected finite numbers, got NaN or infinity")
    errors = guesses - target[:, None]
    largest = np.abs(errors).max() or 1.0
    products = (errors / largest).T @ (errors / largest) / len(target)  # [k, k]
    count = guesses.shape[1]
    best, weights = np.inf, np.zeros(count)
    for size in range(1, count + 1):
        for face in map(list, itertools.combinations(range(count), size)):
            part = products[np.ix_(face, face)]
            share = _flattest(part)
            error = float(share @ part @ share)
            if (share >= 0).all() and error < best:
                best, weights = error, np.zeros(count)
                weights[face] = share
    return weights


def _flattest(products: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights of sum 1, of any sign, with the least $w^T E w$; equal ones where that is not decided."""
    size = len(products)
    ridge = 1e-12 * (np.trace(products) / size or 1.0)
    solved = np.linalg.solve(products + ridge * np.eye(size), np.ones(size))
    return np.asarray(solved / solved.sum())
