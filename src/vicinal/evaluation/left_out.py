"""What ridge regression expects of each row from all the others: an opinion that no row's own label has shaped."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.linear_model import Ridge
from sklearn.model_selection import GroupKFold, KFold

from vicinal.core.identity import IdsLike, canonical_ids

Floats = NDArray[np.float64]
STRENGTHS = tuple(10.0 ** np.arange(-1, 6))


def left_out_predictions(
    features: Any, targets: ArrayLike, *, strengths: Sequence[float] = STRENGTHS, groups: IdsLike | None = None
) -> Floats:
    r"""Predictions of each row by a ridge regression on the other rows.

    Dense features are standardized, and every row is left out in closed form, $y_i - \frac{y_i - \hat y_i}{1 -
    H_{ii}}$, from one decomposition; sparse ones, or rows in groups, are predicted in ten folds. The penalty is the
    one with the smallest error of the left-out predictions.

    Args:
        features: ``[n, p]`` array or sparse matrix.
        targets: ``[n]`` or ``[n, T]`` (classes one-hot).
        strengths: penalties to choose from.
        groups: ``[n]``; no row is predicted from one of its group.

    Returns:
        of the shape of ``targets``.

    >>> x = np.arange(20.0)[:, None]
    >>> bool(np.abs(left_out_predictions(x, 3 * x[:, 0]) - 3 * x[:, 0]).max() < 0.5)
    True
    """
    wanted = np.asarray(targets, dtype=np.float64)
    columns = wanted.reshape(len(wanted), -1)
    if features.shape[0] != len(wanted) or len(wanted) < 3:
        raise ValueError(f"features: expected {len(wanted)} rows (at least 3) as the targets, got {features.shape[0]}")
    if sparse.issparse(features) or groups is not None:
        found = _in_folds(features, columns, strengths, groups)
    else:
        found = _in_closed_form(np.asarray(features, dtype=np.float64), columns, strengths)
    return found.reshape(wanted.shape)


def _standardized(features: Floats) -> Floats:
    spread = features.std(0)
    return np.asarray((features - features.mean(0)) / np.where(spread > 0, spread, 1.0), dtype=np.float64)


def _in_closed_form(features: Floats, columns: Floats, strengths: Sequence[float]) -> Floats:
    left, size, _ = np.linalg.svd(_standardized(features), full_matrices=False)
    mean, best, found = columns.mean(0), np.inf, columns
    parts = left.T @ (columns - mean)
    for strength in strengths:
        shrunk = size**2 / (size**2 + strength)
        leverage = np.minimum((left**2) @ shrunk + 1 / len(columns), 1 - 1e-6)
        error = (columns - mean - left @ (shrunk[:, None] * parts)) / (1 - leverage)[:, None]
        if (loss := float((error**2).mean())) < best:
            best, found = loss, columns - error
    return found


def _in_folds(features: Any, columns: Floats, strengths: Sequence[float], groups: IdsLike | None) -> Floats:
    rows = features.tocsr() if sparse.issparse(features) else _standardized(np.asarray(features, dtype=np.float64))
    if groups is None:
        folds = list(KFold(min(10, len(columns)), shuffle=True, random_state=0).split(columns))
    else:
        named = np.unique(canonical_ids("groups", groups), return_inverse=True)[1]
        folds = list(GroupKFold(min(10, int(named.max()) + 1)).split(columns, groups=named))
    best, found = np.inf, columns
    for strength in strengths:
        told = np.empty_like(columns)
        for inside, outside in folds:
            model = Ridge(alpha=strength, solver="auto").fit(rows[inside], columns[inside])
            told[outside] = model.predict(rows[outside]).reshape(len(outside), -1)
        if (loss := float(((told - columns) ** 2).mean())) < best:
            best, found = loss, told
    return found
