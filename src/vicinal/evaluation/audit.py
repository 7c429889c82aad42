"""Where a model errs and what its data hide: slices, coverage, labels that do not fit what all other rows say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.linear_model import Ridge
from sklearn.model_selection import GroupKFold, KFold

from vicinal.core import check_between, check_integer
from vicinal.core.identity import IdsLike, canonical_ids

Floats = NDArray[np.float64]
STRENGTHS = tuple(10.0 ** np.arange(-1, 6))


@dataclass(frozen=True)
class Slice:
    """The rows with one value of a column, or one tenth of the target.

    Attributes:
        column: name of the column, or of the target.
        value: the value, or the range.
        rows: how many.
        error: mean error of these rows.
        ratio: that over the mean error of all rows.
        low, high: 95 % interval of ``error`` by the normal approximation.
    """

    column: str
    value: str
    rows: int
    error: float
    ratio: float
    low: float
    high: float


def error_slices(
    errors: ArrayLike, columns: Mapping[str, Sequence[Any]], *, least: int = 5, most: int = 20
) -> list[Slice]:
    """Mean error of the rows of each value of each column, worst first.

    Args:
        errors: ``[n]``, squared error, 0/1 error, or any other that is averaged.
        columns: values ``[n]`` by column name; missing values make a slice of their own.
        least: smaller slices are left out, as their mean says little.
        most: the most frequent values of a column that are looked at.

    >>> [s.value for s in error_slices([0.0, 0.0, 1.0, 1.0], {"town": ["a", "a", "b", "b"]}, least=2)]
    ['b', 'a']
    """
    values = np.asarray(errors, dtype=np.float64)
    check_integer("least", least), check_integer("most", most)
    overall, slices = float(values.mean()), []
    for name, cells in columns.items():
        if len(cells) != len(values):
            raise ValueError(f"columns: expected {len(values)} values in {name!r}, got {len(cells)}")
        names = np.array(["missing" if _is_missing(cell) else str(cell) for cell in cells], dtype=object)
        kinds, place, counts = np.unique(names, return_inverse=True, return_counts=True)
        for kind in np.argsort(-counts, kind="stable")[:most]:
            if counts[kind] >= least and len(kinds) > 1:
                slices.append(_slice(name, str(kinds[kind]), values[place == kind], overall))
    return sorted(slices, key=lambda part: -part.error)


def target_slices(
    errors: ArrayLike, target: ArrayLike, *, name: str = "target", parts: int = 10, least: int = 2
) -> list[Slice]:
    """Mean error of each of ``parts`` equal parts of the rows by their target, from the lowest to the highest.

    >>> [s.rows for s in target_slices(np.ones(20), np.arange(20.0), parts=4)]
    [5, 5, 5, 5]
    """
    values, labels = np.asarray(errors, dtype=np.float64), np.asarray(target, dtype=np.float64)
    check_integer("parts", parts)
    edges = np.unique(np.quantile(labels, np.linspace(0, 1, parts + 1)))
    place = np.clip(np.searchsorted(edges, labels, side="right") - 1, 0, max(len(edges) - 2, 0))
    overall, slices = float(values.mean()), []
    for part in range(len(edges) - 1):
        inside = values[place == part]
        if len(inside) >= least:
            slices.append(_slice(name, f"{edges[part]:.4g} to {edges[part + 1]:.4g}", inside, overall))
    return slices


def _is_missing(cell: Any) -> bool:
    return cell is None or cell == "" or (isinstance(cell, float) and np.isnan(cell))


def _slice(column: str, value: str, errors: Floats, overall: float) -> Slice:
    mean = float(errors.mean())
    half = 1.96 * float(errors.std(ddof=1)) / np.sqrt(len(errors)) if len(errors) > 1 else float("nan")
    ratio = mean / overall if overall else 1.0
    low = max(mean - half, 0.0) if errors.min() >= 0 else mean - half
    return Slice(column, value, len(errors), mean, ratio, low, mean + half)


def coverage_curve(truth: ArrayLike, intervals: Mapping[float, ArrayLike], *, parts: int = 4) -> list[dict[str, Any]]:
    """Promised and seen coverage of intervals at several levels.

    Args:
        truth: ``[n]``.
        intervals: promised coverage -> ``[n, 2]`` of low and high.
        parts: the rows are also cut into this many by their truth: coverage may hold on average and fail in the tails.

    Returns:
        for each level, lowest first: ``coverage`` (promised), ``covered``, ``width`` (mean), and ``by_part``, the
        share covered in each part from the lowest truth to the highest.

    >>> coverage_curve([0.0, 1.0], {0.5: [[-1.0, 1.0], [2.0, 3.0]]}, parts=1)[0]["covered"]
    0.5
    """
    labels = np.asarray(truth, dtype=np.float64)
    order, levels = np.argsort(labels, kind="stable"), []
    for level in sorted(intervals):
        bounds = np.asarray(intervals[level], dtype=np.float64)
        if bounds.shape != (len(labels), 2):
            raise ValueError(f"intervals: expected shape {(len(labels), 2)}, got {bounds.shape}")
        inside = (labels >= bounds[:, 0]) & (labels <= bounds[:, 1])
        by_part = [float(inside[rows].mean()) for rows in np.array_split(order, parts) if len(rows)]
        levels.append(
            {
                "coverage": check_between("coverage", level, 0, 1),
                "covered": float(inside.mean()),
                "width": float((bounds[:, 1] - bounds[:, 0]).mean()),
                "by_part": by_part,
            }
        )
    return levels


def suspicion(labels: ArrayLike, expected: ArrayLike, spread: ArrayLike) -> Floats:
    r"""How little a row's label fits what is expected of it, ``[n]``: $|y - \hat y| / \mathrm{spread}$.

    Args:
        labels: ``[n]``, as they stand in the data.
        expected: ``[n]``, a prediction of each row that its own label has not shaped.
        spread: ``[n]``, or one number, above 0: how much labels differ from what is expected there anyway.

    >>> suspicion([1.0, 5.0], [1.5, 1.0], [1.0, 2.0]).tolist()
    [0.5, 2.0]
    """
    scale = np.asarray(spread, dtype=np.float64)
    if (scale <= 0).any():
        raise ValueError("spread: expected numbers above 0, got some that are not")
    miss = np.abs(np.asarray(labels, dtype=np.float64) - np.asarray(expected, dtype=np.float64))
    return np.asarray(miss / scale, dtype=np.float64)


def class_suspicion(places: ArrayLike, probabilities: ArrayLike) -> Floats:
    r"""How little a row's class fits what is expected of it, ``[n]``: $\max_k p_k - p_{\mathrm{label}}$, in [0, 1].

    Confident learning's margin (Northcutt et al. 2021, arXiv:1911.00068).

    >>> class_suspicion([0, 1], [[0.9, 0.1], [0.75, 0.25]]).tolist()
    [0.0, 0.5]
    """
    shares, columns = np.asarray(probabilities, dtype=np.float64), np.asarray(places, dtype=np.int64)
    return np.asarray(shares.max(1) - shares[np.arange(len(columns)), columns], dtype=np.float64)


def average_precision(scores: ArrayLike, relevant: ArrayLike) -> float:
    """Mean precision at the place of each relevant row when rows are sorted by falling score; ties in the worst order.

    By chance it is about the share of relevant rows.

    >>> average_precision([3.0, 2.0, 1.0], [True, False, True])
    0.8333333333333333
    """
    values, hits = np.asarray(scores, dtype=np.float64), np.asarray(relevant, dtype=bool)
    if not hits.any():
        return float("nan")
    order = np.lexsort((hits, -values))
    sorted_hits = hits[order]
    precision = np.cumsum(sorted_hits) / np.arange(1, len(hits) + 1)
    return float(precision[sorted_hits].mean())


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
    values = np.asarray(targets, dtype=np.float64)
    columns = values.reshape(len(values), -1)
    if features.shape[0] != len(values) or len(values) < 3:
        raise ValueError(f"features: expected {len(values)} rows (at least 3) as the targets, got {features.shape[0]}")
    if sparse.issparse(features) or groups is not None:
        predictions = _in_folds(features, columns, strengths, groups)
    else:
        predictions = _in_closed_form(np.asarray(features, dtype=np.float64), columns, strengths)
    return predictions.reshape(values.shape)


def _standardized(features: Floats) -> Floats:
    spread = features.std(0)
    return np.asarray((features - features.mean(0)) / np.where(spread > 0, spread, 1.0), dtype=np.float64)


def _in_closed_form(features: Floats, columns: Floats, strengths: Sequence[float]) -> Floats:
    left, size, _ = np.linalg.svd(_standardized(features), full_matrices=False)
    mean, best, predictions = columns.mean(0), np.inf, columns
    parts = left.T @ (columns - mean)
    for strength in strengths:
        shrunk = size**2 / (size**2 + strength)
        leverage = np.minimum((left**2) @ shrunk + 1 / len(columns), 1 - 1e-6)
        error = (columns - mean - left @ (shrunk[:, None] * parts)) / (1 - leverage)[:, None]
        if (loss := float((error**2).mean())) < best:
            best, predictions = loss, columns - error
    return predictions


def _in_folds(features: Any, columns: Floats, strengths: Sequence[float], groups: IdsLike | None) -> Floats:
    rows = features.tocsr() if sparse.issparse(features) else _standardized(np.asarray(features, dtype=np.float64))
    if groups is None:
        folds = list(KFold(min(10, len(columns)), shuffle=True, random_state=0).split(columns))
    else:
        named = np.unique(canonical_ids("groups", groups), return_inverse=True)[1]
        folds = list(GroupKFold(min(10, int(named.max()) + 1)).split(columns, groups=named))
    best, predictions = np.inf, columns
    for strength in strengths:
        of_folds = np.empty_like(columns)
        for inside, outside in folds:
            model = Ridge(alpha=strength, solver="auto").fit(rows[inside], columns[inside])
            of_folds[outside] = model.predict(rows[outside]).reshape(len(outside), -1)
        if (loss := float(((of_folds - columns) ** 2).mean())) < best:
            best, predictions = loss, of_folds
    return predictions
