"""Is a difference more than chance: ranks, Friedman and Nemenyi, paired tests, intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.stats
from numpy.typing import ArrayLike, NDArray

from vicinal.core.checks import check_between, check_integer


@dataclass(frozen=True)
class Outcome:
    """A statistical test's result: its statistic and the probability of one as extreme under "no difference"."""

    name: str
    statistic: float
    p_value: float


def average_ranks(scores: ArrayLike, *, higher_is_better: bool = False) -> NDArray[np.float64]:
    """Mean rank of each method ``[k]`` over the blocks of ``scores [N, k]``; 1 is best, ties share.

    >>> average_ranks([[0.1, 0.3, 0.2], [0.1, 0.2, 0.2]]).tolist()
    [1.0, 2.75, 2.25]
    """
    matrix = _blocks(scores)
    ranks = scipy.stats.rankdata(-matrix if higher_is_better else matrix, axis=1)
    return np.asarray(ranks.mean(0), dtype=np.float64)


def friedman(scores: ArrayLike) -> Outcome:
    """Friedman's test that the methods (columns of ``scores [N, k]``, k > 2) rank alike over the blocks (rows)."""
    matrix = _blocks(scores)
    if matrix.shape[1] < 3:
        raise ValueError(f"scores: expected at least 3 methods for Friedman's test, got {matrix.shape[1]}")
    if (matrix == matrix[:, :1]).all():
        return Outcome("Friedman", 0.0, 1.0)  # all tied: scipy would divide by zero
    statistic, p_value = scipy.stats.friedmanchisquare(*matrix.T)
    return Outcome("Friedman", float(statistic), float(p_value))


def nemenyi(scores: ArrayLike) -> NDArray[np.float64]:
    """p-values ``[k, k]`` of Nemenyi's test on every pair of methods, to follow Friedman's; 1 on the diagonal."""
    ranks = average_ranks(scores)
    n, k = len(_blocks(scores)), len(ranks)
    apart = np.abs(ranks[:, None] - ranks) / math.sqrt(k * (k + 1) / (12 * n))  # in units of the studentized range
    p_values = scipy.stats.studentized_range.sf(apart, k, np.inf)
    return np.asarray(np.where(np.eye(k, dtype=bool), 1.0, p_values), dtype=np.float64)


def critical_difference(methods: int, blocks: int, *, alpha: float = 0.05) -> float:
    """Average ranks that differ by at least this much differ at level ``alpha`` by Nemenyi's test (Demsar 2006).

    ``q sqrt(k (k + 1) / 6 N)`` with q the upper quantile of the studentized range of k means, over sqrt 2.

    >>> round(critical_difference(4, 10), 3)  # 2.569 * sqrt(20 / 60)
    1.483
    """
    k, n = check_integer("methods", methods, 2), check_integer("blocks", blocks)
    check_between("alpha", alpha, 0, 1)
    q = float(scipy.stats.studentized_range.ppf(1 - alpha, k, np.inf)) / math.sqrt(2)
    return q * math.sqrt(k * (k + 1) / (6 * n))


def wilcoxon(first: ArrayLike, second: ArrayLike) -> Outcome:
    """Wilcoxon's signed-rank test of paired scores ``[n]`` (as over data sets), two-sided; all equal gives p = 1."""
    difference = _pairs(first, second)
    if not difference.any():
        return Outcome("Wilcoxon", 0.0, 1.0)
    result = scipy.stats.wilcoxon(difference)
    return Outcome("Wilcoxon", float(result.statistic), float(result.pvalue))


def paired_t(first: ArrayLike, second: ArrayLike, *, overlap: float = 0.0) -> Outcome:
    """Paired t-test, two-sided, of scores ``[n]`` of two methods on the same ``n`` splits.

    Splits drawn from one data set share training rows, so their scores are not independent, and the plain test finds
    differences too easily; Nadeau and Bengio (2003) replace ``1/n`` in the variance of the mean by ``1/n + test rows /
    training rows``.

    Args:
        first: scores of one method.
        second: scores of the other on the same splits.
        overlap: test rows / training rows; 0 gives the plain test of independent pairs.

    With one split, or differences that are equal on all splits and not 0, nothing is known of their spread: p is NaN.
    """
    difference = _pairs(first, second)
    n = len(difference)
    if n < 2:
        return Outcome("paired t", float("nan"), float("nan"))
    variance = float(difference.var(ddof=1)) * (1 / n + check_between("overlap", overlap, 0, math.inf, closed=True))
    mean = float(difference.mean())
    if variance == 0:
        return Outcome("paired t", math.copysign(math.inf, mean) if mean else 0.0, math.nan if mean else 1.0)
    t = mean / math.sqrt(variance)
    return Outcome("paired t", t, float(2 * scipy.stats.t.sf(abs(t), n - 1)))


def relative_change(scores: Sequence[float], reference: Sequence[float]) -> float:
    """Mean of ``scores`` over the mean of ``reference``, minus 1: -0.1 is a tenth less.

    >>> relative_change([0.9, 0.9], [1.0, 1.0])
    -0.09999999999999998
    """
    base = float(np.mean(reference))
    return float(np.mean(scores)) / base - 1 if base else float("nan")


def _blocks(scores: ArrayLike) -> NDArray[np.float64]:
    matrix = np.asarray(scores, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] < 1 or matrix.shape[1] < 2 or not np.isfinite(matrix).all():
        raise ValueError(
            f"scores: expected finite numbers [blocks, methods], at least 2 methods, got shape {matrix.shape}"
        )
    return matrix


def _pairs(first: ArrayLike, second: ArrayLike) -> NDArray[np.float64]:
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape or not len(a) or not (np.isfinite(a) & np.isfinite(b)).all():
        raise ValueError(f"second: expected finite scores of shape {a.shape} as the first, got {b.shape}")
    return a - b
