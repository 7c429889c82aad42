"""A linear separator of two classes by steps that grow with no rate: from logistic regression to the perceptron."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from vicinal.core import short
from vicinal.core.checks import check_between, check_integer, check_tensor


def step_weights(margins: Tensor) -> Tensor:
    r"""How much each row counts in a normalized step of logistic regression: $\sigma(-m_i) / \sum_j \sigma(-m_j)$.

    Args:
        margins: $m_i = y_i \langle a_i, w \rangle$, ``[n]``.

    Returns:
        ``[n]``, sums to 1, even if all rows are far on the right side.

    >>> step_weights(torch.tensor([0.0, 0.0]))
    tensor([0.5000, 0.5000])
    """
    return torch.nn.functional.logsigmoid(-margins).softmax(0)


@dataclass(frozen=True)
class Separator:
    """What :func:`separate` gives.

    Attributes:
        weights: ``[d]``; only their direction matters.
        converged: whether all rows are on the right side.
        steps: number of steps taken.
    """

    weights: Tensor
    converged: bool
    steps: int


def separate(rows: Tensor, labels: Tensor, *, rate: float = math.inf, steps: int = 10_000) -> Separator:
    r"""Weights whose sign tells two classes apart: $w \leftarrow w + \gamma \sum_i \omega_i y_i a_i$.

    $\omega$ are :func:`step_weights`, so a step is never longer than $\gamma \max \|a\|$ and never fades. In the limit
    of large $\gamma$ (with w in units of it) this is the batch perceptron, with equal $\omega$ for all rows on the
    wrong side. On rows of length at most R that a unit vector separates with a margin it takes at most
    $(R/\text{margin})^2$ steps. Tyurin, *From Logistic Regression to the Perceptron Algorithm*, arXiv:2412.08424. The
    step is derived from memory of the paper; details may differ.

    Args:
        rows: ``[n, d]``, floating; add a column of ones for an offset.
        labels: 1 and -1, ``[n]``.
        rate: $\gamma > 0$, infinity for the perceptron.
        steps: most steps to take; rows that no plane separates use them all.

    Raises:
        ValueError: for other labels, no rows, or rows that are not finite.

    >>> separate(torch.tensor([[2.0, 1.0], [-1.0, 1.0]]), torch.tensor([1, -1]))
    Separator(weights=tensor([1.5000, 0.0000]), converged=True, steps=1)
    """
    check_tensor("rows", rows), check_integer("steps", steps)
    if rows.ndim != 2 or not len(rows) or not rows.is_floating_point() or not bool(rows.isfinite().all()):
        raise ValueError(f"rows: expected finite numbers [n, d], n >= 1, got {rows.dtype} {tuple(rows.shape)}")
    if labels.shape != rows.shape[:1] or not bool((labels.abs() == 1).all()):
        raise ValueError(f"labels: expected 1 and -1 [{len(rows)}], got {short(labels.tolist())}")
    if rate != math.inf:
        check_between("rate", rate, 0, math.inf)
    signed = rows.detach().to(torch.promote_types(rows.dtype, torch.float32)) * labels[:, None]
    weights = signed.new_zeros(signed.shape[1])
    for step in range(steps + 1):
        margins = signed @ weights
        wrong = margins <= 0
        if not bool(wrong.any()) or step == steps:
            return Separator(weights, not bool(wrong.any()), step)
        if rate == math.inf:
            weights = weights + signed[wrong].mean(0)
        else:
            weights = weights + rate * (step_weights(margins) @ signed)
    raise RuntimeError("steps: expected a loop that returns")
