"""Where a model errs and what its data hide: slices, coverage, labels that do not fit what all other rows say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.linear_model import Ridge
from sklearn.model_selection import GroupKFold, KFold, cross_val_predict

from vicinal.calibration import clopper_pearson
from vicinal.core.checks import check_between, check_integer, plain
from vicinal.core.identity import IdsLike, canonical_ids
from vicinal.evaluation.scores import relative_weights

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
        low, high: 95 % interval of ``error`` by the normal approximation; of a share Clopper and Pearson's.
    """

    column: str
    value: str
    rows: int
    error: float
    ratio: float
    low: float
    high: float

    @property
    def stands_out(self) -> bool:
        """Whether the error is 1.5 times that of all rows, of 10 rows or more, and all of its interval is above that.

        >>> one_wrong_of_twenty = Slice("plan", "team", 20, 0.05, 3.2, 0.0013, 0.2487)
        >>> one_wrong_of_twenty.stands_out, Slice("plan", "pro", 20, 0.5, 3.2, 0.27, 0.73).stands_out
        (False, True)
        """
        return self.ratio > 1.5 and self.rows >= 10 and self.low * self.ratio > self.error


def error_slices(errors: ArrayLike, columns: Mapping[str, Sequence[Any]], *, least: int = 5) -> list[Slice]:
    """Mean error of the rows of each of the 20 most frequent values of each column, worst first.

    Args:
        errors: ``[n]``, squared error, 0/1 error, or any other that is averaged.
        columns: values ``[n]`` by column name; missing values make a slice of their own.
        least: smaller slices are left out, as their mean says little.

    >>> [s.value for s in error_slices([0.0, 0.0, 1.0, 1.0], {"town": ["a", "a", "b", "b"]}, least=2)]
    ['b', 'a']
    """
    values = np.asarray(errors, dtype=np.float64)
    check_integer("least", least)
    overall, slices = float(values.mean()), []
    for name, cells in columns.items():
        if len(cells) != len(values):
            raise ValueError(f"columns: expected {len(values)} values in {name!r}, got {len(cells)}")
        names = np.array(["missing" if _is_missing(cell) else str(cell) for cell in cells], dtype=object)
        kinds, place, counts = np.unique(names, return_inverse=True, return_counts=True)
        for kind in np.argsort(-counts, kind="stable")[:20]:
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
            slices.append(_slice(name, f"{plain(edges[part])} to {plain(edges[part + 1])}", inside, overall))
    return slices


@dataclass(frozen=True)
class Period:
    """The rows of a span of time.

    Attributes:
        start, end: times of its first and last row.
        rows: how many.
        error: mean error.
        ratio: that over the mean error of all rows.
        low, high: 95 % interval of ``error`` by the normal approximation; of a share Clopper and Pearson's.
        covered: share of the rows inside their intervals or sets; None if there are none.
    """

    start: Any
    end: Any
    rows: int
    error: float
    ratio: float
    low: float
    high: float
    covered: float | None


def error_by_period(errors: ArrayLike, times: ArrayLike, *, covered: ArrayLike | None = None) -> list[Period]:
    """Mean error, and coverage, of at most 10 equal parts of about 20 rows or more by their time, the earliest first.

    Args:
        errors: ``[n]``.
        times: ``[n]``, numbers or datetime64; rows with the same time stay together.
        covered: ``[n]``, whether each row is inside its interval.

    >>> [(int(p.start), p.error) for p in error_by_period([1.0, 3.0] * 10 + [5.0, 7.0] * 10, np.arange(40))]
    [(0, 2.0), (20, 6.0)]
    """
    values, moments = np.asarray(errors, dtype=np.float64), np.asarray(times)
    parts = max(1, min(10, len(values) // 20))
    starts = np.unique(np.sort(moments)[np.arange(parts) * len(moments) // parts])
    place = np.searchsorted(starts, moments, side="right")
    overall, inside = float(values.mean()), None if covered is None else np.asarray(covered, dtype=np.float64)
    periods = []
    for part in np.unique(place):
        at = place == part
        one, share = _slice("", "", values[at], overall), None if inside is None else float(inside[at].mean())
        span = moments[at].min(), moments[at].max()
        periods.append(Period(*span, one.rows, one.error, one.ratio, one.low, one.high, share))
    return periods


@dataclass(frozen=True)
class Drift:
    """A change of a mean in time: ``before`` and ``after`` the time ``since``, and how often chance does as much."""

    since: Any
    before: float
    after: float
    p_value: float


def find_drift(values: ArrayLike, times: ArrayLike, *, level: float = 0.01, permutations: int = 999) -> Drift | None:
    r"""The time at which the mean of ``values [n]`` changes most, if it changes by more than chance.

    The statistic is the largest standardized difference of the two means over all cuts $k$ that leave at least a tenth
    of the rows on either side, $\max_k |S_k - \frac{k}{n} S_n| / \sqrt{k (n - k) / n}$ with $S_k$ the sum of the first
    $k$ values by time; its p-value is from random orders, as if the rows came in any order. Values that depend on their
    neighbors in time, as in a season, may look like a change.

    Args:
        values: errors, or 0 and 1.
        times: ``[n]``, numbers or datetime64.
        level: largest p-value that counts as a change.
        permutations: number of random orders.

    >>> change = find_drift([0.0] * 20 + [1.0] * 20, np.arange(40))
    >>> int(change.since), change.before, change.after, change.p_value
    (20, 0.0, 1.0, 0.001)
    """
    moments = np.asarray(times)
    order = np.argsort(moments, kind="stable")
    ordered = np.asarray(values, dtype=np.float64)[order]
    step = -(-len(ordered) // _BLOCKS)
    starts = np.arange(0, len(ordered), step)
    sums, sizes = np.add.reduceat(ordered, starts), np.diff(np.append(starts, len(ordered)))
    edge = max(1, len(starts) // 10)
    if len(starts) < 2 * edge + 1 or np.ptp(ordered) == 0:
        return None
    cut, most = _largest_change(sums, sizes, edge)
    draw = np.random.default_rng(0)
    orders = (draw.permutation(len(starts)) for _ in range(permutations))
    beaten = sum(_largest_change(sums[some], sizes[some], edge)[1] >= most * (1 - 1e-12) for some in orders)
    p_value = (1 + beaten) / (1 + permutations)
    if p_value > level:
        return None
    first = starts[cut]
    return Drift(moments[order][first], float(ordered[:first].mean()), float(ordered[first:].mean()), p_value)


_BLOCKS = 1000
"""Blocks of rows that follow one another, at most, between which a change is looked for."""


def _largest_change(sums: Floats, sizes: NDArray[np.int64], edge: int) -> tuple[int, float]:
    """The block before which the mean changes most, and by how much."""
    before, count = sums.cumsum()[:-1], sizes.cumsum()[:-1]
    total = int(sizes.sum())
    change = np.abs(before - count / total * sums.sum()) / np.sqrt(count * (total - count) / total)
    place = edge - 1 + int(np.argmax(change[edge - 1 : len(sums) - edge]))
    return place + 1, float(change[place])


def _is_missing(cell: Any) -> bool:
    return cell is None or cell == "" or (isinstance(cell, float) and np.isnan(cell))


def _slice(column: str, value: str, errors: Floats, overall: float) -> Slice:
    mean = float(errors.mean())
    half = 1.96 * float(errors.std(ddof=1)) / np.sqrt(len(errors)) if len(errors) > 1 else float("nan")
    ratio = mean / overall if overall else 1.0
    low, high = max(mean - half, 0.0) if errors.min() >= 0 else mean - half, mean + half
    if np.isin(errors, (0.0, 1.0)).all():  # a share: of 6 rows the normal approximation may end above 1, or be a point
        low, high = map(float, clopper_pearson(errors.sum(), len(errors), 0.05))
    return Slice(column, value, len(errors), mean, ratio, low, high)


def coverage_curve(
    truth: ArrayLike,
    intervals: Mapping[float, ArrayLike],
    *,
    parts: int = 4,
    weights: ArrayLike | None = None,
) -> list[dict[str, Any]]:
    """Promised and seen coverage of intervals at several levels.

    Args:
        truth: ``[n]``.
        intervals: promised coverage -> ``[n, 2]`` of low and high.
        parts: the rows are also cut into this many by their truth: coverage may hold on average and fail in the tails.
        weights: ``[n]``, of weighted shares and means; None: 1 each.

    Returns:
        for each level, lowest first: ``coverage`` (promised), ``covered``, ``width`` (mean), and ``by_part``, the
        share covered in each part from the lowest truth to the highest.

    >>> coverage_curve([0.0, 1.0], {0.5: [[-1.0, 1.0], [2.0, 3.0]]}, parts=1)[0]["covered"]
    0.5
    """
    labels = np.asarray(truth, dtype=np.float64)
    order, levels = np.argsort(labels, kind="stable"), []
    mass = relative_weights(len(labels), weights)
    for level in sorted(intervals):
        bounds = np.asarray(intervals[level], dtype=np.float64)
        if bounds.shape != (len(labels), 2):
            raise ValueError(f"intervals: expected shape {(len(labels), 2)}, got {bounds.shape}")
        inside = (labels >= bounds[:, 0]) & (labels <= bounds[:, 1])
        cut = [rows for rows in np.array_split(order, parts) if len(rows)]
        by_part = [float((mass * inside)[rows].sum() / mass[rows].sum()) for rows in cut]
        levels.append(
            {
                "coverage": check_between("coverage", level, 0, 1),
                "covered": float((mass * inside).mean()),
                "width": float((mass * (bounds[:, 1] - bounds[:, 0])).mean()),
                "by_part": by_part,
            }
        )
    return levels


def suspicion(labels: ArrayLike, expected: ArrayLike, spread: ArrayLike) -> Floats:
    r"""How little a row's label fits what is expected of it, ``[n]``: $|y - \hat y| / \mathrm{spread}$.

    Args:
        labels: ``[n]``, as given in the data.
        expected: ``[n]``, a prediction of each row that did not use its own label.
        spread: ``[n]``, or one number, above 0: how much labels there usually differ from what is expected.

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

    A random order gives about the share of relevant rows.

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
        groups: ``[n]``; no row is predicted from rows of its own group.

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
    if groups is not None:
        codes = np.unique(canonical_ids("groups", groups), return_inverse=True)[1]
        folds = GroupKFold(min(10, int(codes.max()) + 1)).split(columns, groups=codes)
    elif sparse.issparse(features):
        folds = KFold(min(10, len(columns)), shuffle=True, random_state=0).split(columns)
    else:
        return _in_closed_form(np.asarray(features, dtype=np.float64), columns, strengths).reshape(values.shape)
    return _in_folds(features, columns, strengths, list(folds)).reshape(values.shape)


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


def _in_folds(features: Any, columns: Floats, strengths: Sequence[float], folds: list[Any]) -> Floats:
    rows = features.tocsr() if sparse.issparse(features) else _standardized(np.asarray(features, dtype=np.float64))
    best, predictions = np.inf, columns
    for strength in strengths:
        of_folds = cross_val_predict(Ridge(alpha=strength), rows, columns, cv=folds).reshape(columns.shape)
        if (loss := float(((of_folds - columns) ** 2).mean())) < best:
            best, predictions = loss, of_folds
    return predictions
