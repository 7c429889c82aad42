"""Labels that are partly out of order: which label belongs to which row, by a model of the labels."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy  # loads its parts when they are used
from numpy.typing import ArrayLike, NDArray

from vicinal.core import check_choice
from vicinal.core.checks import check_between, check_integer

Floats = NDArray[np.float64]
Family = Literal["normal", "poisson", "logistic"]


@dataclass(frozen=True)
class MatchedLabels:
    """The result of :func:`match_labels`.

    Attributes:
        order: int64 ``[n]``: ``labels[order]`` are the labels of the rows.
        coefficients: B, ``[d, q]``.
        objective: its value after each round, which never falls.
    """

    order: NDArray[np.int64]
    coefficients: Floats
    objective: Floats


def match_labels(
    rows: ArrayLike,
    labels: ArrayLike,
    *,
    family: Family = "normal",
    groups: ArrayLike | None = None,
    ridge: float = 1e-6,
    rounds: int = 100,
) -> MatchedLabels:
    r"""Match labels to the rows that they belong to, if some were exchanged (regression with permuted labels).

    $\max_{\pi, B} \sum_i \langle y_{\pi(i)}, x_i B \rangle - \psi(x_i B) - \frac \rho 2 |B|^2$, with $\psi(u) = u^2 /
    2$, $e^u$ or $\ln(1 + e^u)$. It alternates between the generalized linear model of the matched pairs and the linear
    assignment of labels to rows under the scores $X B Y^\top$. It starts from the model of the labels in their given
    order, so most must be in place; several labels a row (q large) tell rows apart. Reconstructed from memory of the
    paper.

    Args:
        rows: X, ``[n, d]``, of rank d; add a column of ones for an intercept.
        labels: Y, ``[n]`` or ``[n, q]``: any numbers, numbers >= 0 ("poisson"), or 0 and 1 ("logistic").
        family: "normal", "poisson" or "logistic".
        groups: ``[n]``: labels were exchanged only within groups; None: among all rows.
        ridge: $\rho \ge 0$.
        rounds: at most.

    Raises:
        ValueError: for other shapes, labels that the family does not allow, or X of a lower rank.

    Paper: Regression with Label Permutation in Generalized Linear Model.

    >>> match_labels([[1.0], [2.0], [4.0], [5.0]], [1.0, 2.0, 5.0, 4.0]).order.tolist()
    [0, 1, 3, 2]
    """
    x, y = np.asarray(rows, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    y = y[:, None] if y.ndim == 1 else y
    check_choice("family", family, ("normal", "poisson", "logistic"))
    check_between("ridge", ridge, 0, np.inf, closed=True), check_integer("rounds", rounds)
    _check(x, y, family)
    parts = _parts(len(x), groups)
    order, objective = np.arange(len(x)), [-np.inf]
    coefficients = np.zeros((x.shape[1], y.shape[1]))
    for _ in range(rounds):
        coefficients = np.stack(
            [_fitted(x, y[order, k], coefficients[:, k], family, ridge) for k in range(y.shape[1])], axis=1
        )
        scores = x @ coefficients @ y.T  # [row, label]
        for part in parts:
            order[part] = part[scipy.optimize.linear_sum_assignment(scores[np.ix_(part, part)], maximize=True)[1]]
        value = sum(_objective(x, y[order, k], coefficients[:, k], family, ridge) for k in range(y.shape[1]))
        objective.append(max(value, objective[-1]))
        if value <= objective[-2] + 1e-12 * (1 + abs(value)):
            break
    return MatchedLabels(order, coefficients, np.array(objective[1:]))


def _check(x: Floats, y: Floats, family: str) -> None:
    if x.ndim != 2 or y.ndim != 2 or len(x) != len(y) or not len(x):
        raise ValueError(f"labels: expected [n] or [n, q] for rows [n, d], n >= 1, got {y.shape} and {x.shape}")
    if not (np.isfinite(x).all() and np.isfinite(y).all()) or np.linalg.matrix_rank(x) < x.shape[1]:
        raise ValueError("rows: expected finite numbers whose columns do not depend on one another, got others")
    fits = {"normal": True, "poisson": bool((y >= 0).all()), "logistic": bool(np.isin(y, (0, 1)).all())}
    if not fits[family]:
        raise ValueError(f"labels: expected {'counts' if family == 'poisson' else '0 and 1'}, got others")


def _parts(count: int, groups: ArrayLike | None = None) -> list[NDArray[np.int64]]:
    if groups is None:
        return [np.arange(count)]
    of_row = np.asarray(groups)
    if of_row.shape != (count,):
        raise ValueError(f"groups: expected [{count}], got {of_row.shape}")
    return [np.flatnonzero(of_row == group) for group in np.unique(of_row)]


def _potential(u: Floats, family: str) -> tuple[Floats, Floats, Floats]:
    """Psi of a natural parameter and its first two derivatives, which are the mean and variance of a label."""
    if family == "normal":
        return u**2 / 2, u, np.ones_like(u)
    if family == "poisson":
        e = np.exp(np.minimum(u, 700.0))
        return e, e, e
    mean = np.exp(-np.logaddexp(0, -u))
    return np.logaddexp(0, u), mean, mean * (1 - mean)


def _objective(x: Floats, y: Floats, b: Floats, family: str, ridge: float) -> float:
    u = x @ b
    return float((y * u - _potential(u, family)[0]).sum() - ridge / 2 * b @ b)


def _fitted(x: Floats, y: Floats, b: Floats, family: str, ridge: float) -> Floats:
    """The coefficients of highest penalized likelihood, from ``b``: Newton steps, halved until it does not fall."""
    value = _objective(x, y, b, family, ridge)
    for _ in range(100):
        _, mean, curve = _potential(x @ b, family)
        slope = x.T @ (y - mean) - ridge * b
        step: Any = np.linalg.lstsq((x.T * curve) @ x + ridge * np.eye(len(b)), slope, rcond=None)[0]
        for _ in range(40):
            new = _objective(x, y, b + step, family, ridge)
            if new >= value:
                break
            step = step / 2
        else:  # no step along this slope helps: only rounding is left
            return b
        b, gain, value = b + step, new - value, new
        if gain <= 1e-13 * (1 + abs(value)):
            break
    return b
