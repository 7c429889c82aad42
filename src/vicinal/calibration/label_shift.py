"""Sets of classes that hold, with high probability, when the classes' frequencies have changed."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

from vicinal.calibration.checks import Floats, Integers, check_classes, check_probabilities
from vicinal.core import check_choice
from vicinal.core.checks import check_between, check_integer


def clopper_pearson(hits: ArrayLike, trials: ArrayLike, level: float) -> tuple[Floats, Floats]:
    r"""Two-sided Clopper-Pearson interval of a share: $[B^{-1}(\alpha/2; k, n-k+1), B^{-1}(1-\alpha/2; k+1, n-k)]$.

    Args:
        hits: k, from 0 to n, any shape.
        trials: n, at least 1, of a shape that broadcasts with ``hits``.
        level: alpha, the chance of missing the true share, between 0 and 1.

    >>> low, high = clopper_pearson(0, 20, 0.1)
    >>> float(low), round(float(high), 4)  # the upper end is 1 - 0.05^(1/20)
    (0.0, 0.1391)
    """
    check_between("level", level, 0, 1)
    k, n = _counts(hits, trials)
    low = np.where(k > 0, betaincinv(np.maximum(k, 1), n - k + 1, level / 2), 0.0)
    high = np.where(k < n, betaincinv(k + 1, np.maximum(n - k, 1), 1 - level / 2), 1.0)
    return low, high


def clopper_pearson_upper(hits: ArrayLike, trials: ArrayLike, level: float) -> Floats:
    r"""One-sided upper bound of a share: $B^{-1}(1-\alpha; k+1, n-k)$; 1 where k = n.

    >>> round(float(clopper_pearson_upper(0, 20, 0.05)), 4)
    0.1391
    """
    check_between("level", level, 0, 1)
    k, n = _counts(hits, trials)
    return np.where(k < n, betaincinv(k + 1, np.maximum(n - k, 1), 1 - level), 1.0)


def _counts(hits: ArrayLike, trials: ArrayLike) -> tuple[Floats, Floats]:
    k, n = np.asarray(hits, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    if (k < 0).any() or (k > n).any() or (n < 1).any():
        raise ValueError("hits: expected counts from 0 to trials, with at least 1 trial")
    return k, n


@dataclass(frozen=True)
class ClassWeights:
    """How much more frequent each class is in the target than in the source: bounds that hold together.

    Attributes:
        low: ``[C]``, >= 0.
        high: ``[C]``.
        raw_low: ``[C]``, ``low`` before it was cut off at 0.
    """

    low: Floats
    high: Floats
    raw_low: Floats


def class_weights(
    labels: ArrayLike,
    predicted: ArrayLike,
    target: ArrayLike,
    classes: int,
    level: float,
    *,
    arithmetic: str = "interval",
) -> ClassWeights:
    r"""Bounds of the class weights w in $\sum_j P(\mathrm{predicted}\ i, \mathrm{true}\ j)\, w_j = P_{target}(i)$.

    Every entry of the confusion matrix and of the target's predicted frequencies gets a Clopper-Pearson interval at
    ``level`` / (C (C + 1) + 1); Gaussian elimination in interval arithmetic gives the bounds, which hold together
    with probability 1 - ``level``. Si et al., *PAC Prediction Sets Under Label Shift*, ICLR 2024 (arXiv:2310.12964).

    Args:
        labels: ``[n]`` true classes of source rows.
        predicted: ``[n]`` predicted classes of source rows.
        target: ``[m]`` predicted classes of target rows.
        classes: C.
        level: chance that some bound fails, between 0 and 1.
        arithmetic: "interval", which always encloses the solution, or "endpoints", the formulas of the paper's public
            code, which multiply lower by lower and upper by upper ends whatever their signs: narrower, and not an
            enclosure where an eliminated entry may be negative.

    Raises:
        ValueError: if a pivot's interval holds 0: too few rows, or a classifier too weak, to tell.
    """
    check_between("level", level, 0, 1)
    truth = check_classes("labels", labels, classes)
    answers = check_classes("predicted", predicted, classes, size=len(truth))
    aims = check_classes("target", target, classes)
    counts = np.zeros((classes, classes))
    np.add.at(counts, (answers, truth), 1)
    each = level / (classes * (classes + 1) + 1)
    confusion = np.stack(clopper_pearson(counts, len(truth), each), axis=-1)
    goal = np.stack(clopper_pearson(np.bincount(aims, minlength=classes), len(aims), each), axis=-1)
    exact = check_choice("arithmetic", arithmetic, ("interval", "endpoints")) == "interval"
    bounds = _interval_solve(confusion, goal, exact=exact)
    return ClassWeights(np.maximum(bounds[:, 0], 0), bounds[:, 1], bounds[:, 0])


def point_class_weights(labels: ArrayLike, predicted: ArrayLike, target: ArrayLike, classes: int) -> Floats:
    r"""The class weights themselves, by least squares with a small ridge: $(C^\top C + I / \min(n, m))^{-1} C^\top q$.

    C is the joint confusion matrix of the source and q the target's predicted frequencies, as in :func:`class_weights`.
    There the bounds are guaranteed; this estimate only approaches the weights as the number of rows grows. Weights
    below 0 are set to 0.

    Args:
        labels: ``[n]`` true classes of source rows.
        predicted: ``[n]`` predicted classes of source rows, or their probabilities ``[n, C]``: shares of rows are then
            sums of probabilities, which is more informative where predictions are unsure.
        target: ``[m]`` predicted classes of target rows, or ``[m, C]``, as ``predicted``.
        classes: C.

    Returns:
        ``[C]``, >= 0.

    >>> point_class_weights([0, 1] * 500, [0, 1] * 500, [0] * 250 + [1] * 750, 2).round(1)
    array([0.5, 1.5])
    """
    truth = check_classes("labels", labels, classes)
    shares = _class_shares("predicted", predicted, classes)
    aims = _class_shares("target", target, classes)
    if len(shares) != len(truth) or np.ndim(predicted) != np.ndim(target):
        raise ValueError(f"predicted: expected {len(truth)} rows in the form of the target, got {np.shape(predicted)}")
    confusion = shares.T @ np.eye(classes)[truth] / len(truth)
    goal = aims.mean(axis=0)
    ridge = np.eye(classes) / min(len(truth), len(aims))
    return np.maximum(np.linalg.solve(confusion.T @ confusion + ridge, confusion.T @ goal), 0)


def likely_class_weights(predicted: ArrayLike, target: ArrayLike, *, prior: float = 0.02, steps: int = 1000) -> Floats:
    r"""The class weights under which the target's predictions are most likely, by expectation maximization.

    With q the mean of ``predicted``, shares $\pi$ maximize the mean of $\log \sum_k p_{ik}\, \pi_k / q_k$ over target
    rows plus $\alpha \sum_k q_k \log \pi_k$, which counts as rows without a shift. A step is $\pi_k \leftarrow
    (\mathrm{mean}_i\, t_{ik} + \alpha q_k) / (1 + \alpha)$ with $t_{ik} \propto p_{ik} \pi_k / q_k$, from $\pi = q$;
    weights are $\pi / q$. Saerens, Latinne and Decaestecker 2002, with a prior. Where classes are hard to tell apart it
    errs less than :func:`point_class_weights`, if the probabilities are calibrated.

    Args:
        predicted: ``[n, C]`` probabilities of source rows.
        target: ``[m, C]`` of target rows.
        prior: alpha, >= 0.
        steps: at most, >= 1; it ends when no share moves by 1e-9.

    Returns:
        ``[C]``, >= 0.

    >>> sure = np.eye(2)
    >>> likely_class_weights(sure[[0, 1]], sure[[0, 1, 1, 1]], prior=0.0).round(6)
    array([0.5, 1.5])
    """
    source = check_probabilities("predicted", predicted)
    goal = check_probabilities("target", target, columns=source.shape[1])
    check_integer("steps", steps), check_between("prior", prior, 0, np.inf, closed=True)
    before = np.maximum(source.mean(axis=0), 1e-12)
    shares: Floats = before / before.sum()
    for _ in range(steps):
        mass = goal * (shares / before)
        share = (mass / np.maximum(mass.sum(axis=1, keepdims=True), 1e-300)).mean(axis=0)
        former, shares = shares, (share + prior * before) / (1 + prior)
        if np.abs(shares - former).max() <= 1e-9:
            break
    return np.asarray(shares / before, dtype=np.float64)


def _class_shares(name: str, predicted: ArrayLike, classes: int) -> Floats:
    """Probabilities ``[n, C]``, of classes 1 for each."""
    if np.ndim(predicted) == 1:
        return np.asarray(np.eye(classes)[check_classes(name, predicted, classes)])
    shares = np.asarray(predicted, dtype=np.float64)
    if shares.ndim != 2 or shares.shape[1] != classes or not len(shares) or not np.allclose(shares.sum(axis=1), 1):
        raise ValueError(f"{name}: expected classes [n] or probabilities [n, {classes}], got {shares.shape} or others")
    return shares


def _product(a: Floats, b: Floats, *, exact: bool) -> Floats:
    if not exact:
        return np.asarray(a * b, dtype=np.float64)
    ends = np.stack([a[..., 0] * b[..., 0], a[..., 0] * b[..., 1], a[..., 1] * b[..., 0], a[..., 1] * b[..., 1]])
    return np.stack([ends.min(0), ends.max(0)], axis=-1)


def _quotient(a: Floats, b: Floats, *, exact: bool) -> Floats:
    if b[0] <= 0 <= b[1]:
        raise ValueError(
            "labels: expected enough rows to tell the class frequencies apart, but a pivot may be 0; "
            "calibrate on more rows, merge rare classes or allow a larger level"
        )
    return _product(a, 1 / b[::-1], exact=exact)


def _difference(a: Floats, b: Floats) -> Floats:
    return np.stack([a[..., 0] - b[..., 1], a[..., 1] - b[..., 0]], axis=-1)


def _interval_solve(matrix: Floats, right: Floats, *, exact: bool) -> Floats:
    """Bounds ``[C, 2]`` of the solution of ``matrix [C, C, 2] w = right [C, 2]`` by elimination without pivoting."""
    system, goal, size = matrix.copy(), right.copy(), len(right)
    for pivot in range(size):
        for row in range(pivot + 1, size):
            factor = _quotient(system[row, pivot], system[pivot, pivot], exact=exact)
            rest = slice(pivot + 1, size)
            system[row, rest] = _difference(system[row, rest], _product(factor, system[pivot, rest], exact=exact))
            goal[row] = _difference(goal[row], _product(factor, goal[pivot], exact=exact))
    solution = np.zeros((size, 2))
    for row in reversed(range(size)):
        left = goal[row]
        for column in range(row + 1, size):
            left = _difference(left, _product(system[row, column], solution[column], exact=exact))
        solution[row] = _quotient(left, system[row, row], exact=exact)
    return solution


class LabelShiftSets:
    """PAC prediction sets under label shift: error <= ``error`` on the target with probability 1 - ``level``.

    Calibration rows are accepted with a chance in proportion to the weight of their class, taken at its worst within
    the bounds of :func:`class_weights`. Of all thresholds whose Clopper-Pearson bound on the error of accepted rows is
    at most ``error``, the largest is used. The set of a row holds every class with probability >= the threshold.

    Args:
        error: largest share of target rows whose set misses the true class, between 0 and 1.
        level: chance that this guarantee fails, between 0 and 1; half goes to the weights, half to the threshold.
        seed: of the draws that accept rows.
    """

    def __init__(self, error: float = 0.1, level: float = 0.1, *, seed: int = 0) -> None:
        self.error, self.level = check_between("error", error, 0, 1), check_between("level", level, 0, 1)
        self.seed = check_integer("seed", seed, 0)
        self.threshold: float | None = None
        self.weights: ClassWeights | None = None

    def fit(self, probabilities: ArrayLike, labels: ArrayLike, target: ArrayLike) -> "LabelShiftSets":
        """Set the threshold from source rows ``[n, C]`` with classes ``[n]``, and from target rows ``[m, C]``."""
        shares = check_probabilities("probabilities", probabilities)
        number = shares.shape[1]
        truth = check_classes("labels", labels, number, size=len(shares))
        goal = check_probabilities("target", target, columns=number)
        self.weights = class_weights(truth, shares.argmax(1), goal.argmax(1), number, self.level / 2)
        self.threshold = self._threshold(shares[np.arange(len(shares)), truth], truth, self.weights)
        return self

    def _threshold(self, of_truth: Floats, truth: Integers, weights: ClassWeights) -> float:
        most = float(weights.high.max())
        draws = np.random.default_rng(self.seed).random(len(of_truth))
        if_missed, if_covered = draws <= weights.high[truth] / most, draws <= weights.low[truth] / most
        order = np.argsort(of_truth, kind="stable")
        values = of_truth[order]
        # for each candidate tau = values[i]: rows with of_truth < tau are missed; they come first in this order
        missed = np.concatenate([[0], np.cumsum(if_missed[order])])
        covered = if_covered.sum() - np.concatenate([[0], np.cumsum(if_covered[order])])
        first = np.searchsorted(values, values, side="left")
        wrong, trials = missed[first], missed[first] + covered[first]
        bound = np.where(trials > 0, clopper_pearson_upper(wrong, np.maximum(trials, 1), self.level / 2), 1.0)
        good = np.flatnonzero(bound <= self.error)
        return float(values[good[-1]]) if len(good) else 0.0

    def predict(self, probabilities: ArrayLike) -> NDArray[np.bool_]:
        """``[n, C]``, true for the classes of each row's set; all of them where no smaller set can be guaranteed."""
        if self.threshold is None:
            raise ValueError("predict: expected a fitted LabelShiftSets, got one without a threshold; call fit first")
        return check_probabilities("probabilities", probabilities) >= self.threshold
