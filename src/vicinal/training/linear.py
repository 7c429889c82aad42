"""Linear models of numbers or classes by folds: each row has one that has not seen its label."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vicinal.core.progress import report, time_left
from vicinal.training.rows import spread

PENALTIES = tuple(float(10**power) for power in np.arange(-3, 4.5, 0.5))
"""Penalties of squared slopes that are tried for numbers."""

STRENGTHS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)
"""Variances of slopes that are tried for classes."""

CHOSEN_ON = 4096
"""Rows that the variance is chosen on, at most."""

_STEPS = 300


class LinearFolds(NamedTuple):
    r"""$a_t + \beta_t^\top x$ of each fold, fitted without its rows; log-odds of classes, of two classes 0 and one.

    Attributes:
        slopes: $\beta$ ``[F, T, p]``.
        starts: a ``[F, T]``.
    """

    slopes: Tensor
    starts: Tensor

    def predicted(self, columns: Tensor, folds: Tensor) -> Tensor:
        """``[n, T]`` of rows ``[n, p]``, each by the fold ``[n]`` that left it out."""
        said = torch.empty(len(columns), self.starts.shape[1], dtype=torch.float64)
        for fold, (slopes, starts) in enumerate(zip(self.slopes, self.starts, strict=True)):
            at = folds == fold
            said[at] = starts + columns[at].double() @ slopes.T
        return said


def ridge_folds(columns: Tensor, labels: Tensor, folds: Tensor, *, weights: Tensor | None = None) -> LinearFolds:
    r"""Ridge regression, $\min \sum_i m_i (y_i - a - \beta^\top x_i)^2 + \lambda \|\beta\|^2$, once for each fold.

    The penalty $\lambda$ of each target is that of ``PENALTIES`` with the least error of the rows left out.

    Args:
        columns: ``[n, p]``, without gaps.
        labels: ``[n, T]``.
        folds: ``[n]``, from 0 on.
        weights: how many rows each counts as, m ``[n]``; None: one.

    >>> x = torch.linspace(-1, 1, 80, dtype=torch.float64)[:, None]
    >>> fitted = ridge_folds(x, 3 * x + 1, torch.arange(80) % 2)
    >>> fitted.slopes.flatten().round(decimals=2)
    tensor([3., 3.], dtype=torch.float64)
    """
    rows, labels = columns.double(), labels.double()
    mass = torch.ones(len(rows), dtype=torch.float64) if weights is None else weights.double()
    count, penalties = int(folds.max()) + 1, torch.tensor(PENALTIES, dtype=torch.float64)
    errors = torch.zeros(len(penalties), labels.shape[1], dtype=torch.float64)
    each: list[tuple[Tensor, Tensor]] = []
    for fold in range(count):
        at = folds != fold
        some, share = rows[at], (mass[at] / mass[at].sum())[:, None]
        center, mean = (share * some).sum(dim=0), (share * labels[at]).sum(dim=0)
        root = mass[at].sqrt()[:, None]
        scaled, sides = (some - center) * root, (labels[at] - mean) * root
        wide = scaled.shape[1] > len(scaled)  # (S'S + l)^-1 S'y = S'(SS' + l)^-1 y: the smaller matrix is solved
        values, vectors = torch.linalg.eigh(scaled @ scaled.T if wide else scaled.T @ scaled)
        turned = vectors.T @ (sides if wide else scaled.T @ sides)  # [p or n, T]
        slopes = vectors @ (turned / (values.clamp(min=0)[:, None] + penalties[:, None, None]))
        slopes = scaled.T @ slopes if wide else slopes  # [penalties, p, T]
        starts = mean - torch.einsum("p,lpt->lt", center, slopes)
        said = starts[:, None] + rows[~at] @ slopes
        errors += ((said - labels[~at]).square() * mass[~at][:, None]).sum(dim=1)
        each.append((slopes, starts))
    best, targets = errors.argmin(dim=0), torch.arange(labels.shape[1])
    chosen = [(slopes[best, :, targets], starts[best, targets]) for slopes, starts in each]
    return LinearFolds(*(torch.stack(parts) for parts in zip(*chosen, strict=True)))


def logistic_folds(columns: Tensor, labels: Tensor, folds: Tensor, *, weights: Tensor | None = None) -> LinearFolds:
    r"""Multinomial logistic regression with $\|\beta\|^2 / 2\sigma^2$ added to its log-loss, once for each fold.

    The variance $\sigma^2$ is that of ``STRENGTHS`` with the least log-loss of the rows left out.

    Args:
        columns: ``[n, p]``, without gaps.
        labels: one-hot ``[n, K]``.
        folds: ``[n]``, from 0 on; the rows outside each have at least two classes.
        weights: how many rows each counts as ``[n]``; None: one.

    >>> x = torch.linspace(-1, 1, 80, dtype=torch.float64)[:, None]
    >>> labels = torch.nn.functional.one_hot((x[:, 0] > 0.2).long(), 2)
    >>> fitted = logistic_folds(x, labels, torch.arange(80) % 2)
    >>> fitted.slopes.shape, bool((fitted.slopes[:, 1] > 0).all())
    (torch.Size([2, 2, 1]), True)
    """
    rows, codes = columns.double().numpy(), labels.argmax(dim=1)
    mass = torch.ones(len(rows), dtype=torch.float64) if weights is None else weights.double()

    def fitted(some: Tensor, strength: float, models: Sequence[Any]) -> LinearFolds:
        each = []
        for fold, model in enumerate(models):
            at = some[folds[some] != fold].numpy()
            known = rows[at], codes.numpy()[at], labels.shape[1], mass.numpy()[at]
            each.append(_slopes(model.set_params(C=strength), *known))
        return LinearFolds(*(torch.from_numpy(np.stack(parts)) for parts in zip(*each, strict=True)))

    some, count = spread(len(rows), CHOSEN_ON), int(folds.max()) + 1
    tried, best = list[float](), LinearFolds(labels, labels)
    models, strength = _logistic_models(count), STRENGTHS[0]
    for number, one in enumerate(STRENGTHS, start=1):
        report("slopes", number, len(STRENGTHS), "variances of slopes (or fewer)")
        lines = fitted(some, one, models)
        said = lines.predicted(columns[some], folds[some])
        losses = torch.nn.functional.cross_entropy(said, codes[some], reduction="none")
        tried.append(float((losses * mass[some]).sum() / mass[some].sum()))
        if tried[-1] == min(tried):
            best, strength = lines, one
        if tried[-1] > 1.1 * min(tried) or time_left() <= 0:
            break  # the next would be worse, and take longer
    return best if len(some) == len(rows) else fitted(torch.arange(len(rows)), strength, _logistic_models(count))


def _logistic_models(count: int) -> list[Any]:
    """One for each fold; larger variances of slopes start at the slopes of smaller ones."""
    from sklearn.linear_model import LogisticRegression  # slow to import, and only training needs it

    return [LogisticRegression(max_iter=_STEPS, warm_start=True) for _ in range(count)]


def _slopes(model: Any, rows: np.ndarray, codes: np.ndarray, classes: int, mass: Any) -> tuple[Any, Any]:
    """Slopes ``[K, p]`` and log-odds ``[K]`` at the center; a class without rows is as rare as half a row."""
    from sklearn.exceptions import ConvergenceWarning  # slow to import, and only training needs it

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # slopes that are nearly there do as well
        model.fit(rows, codes, sample_weight=mass)
    slopes, starts = np.zeros((classes, rows.shape[1])), np.full(classes, -np.log(2.0 * len(rows)))
    there = model.classes_.astype(int)
    if len(there) == 2:
        slopes[there[1]], starts[there[1]], starts[there[0]] = model.coef_[0], model.intercept_[0], 0.0
    else:
        slopes[there], starts[there] = model.coef_, model.intercept_
    return slopes, starts
