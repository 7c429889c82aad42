"""Intervals from the distribution of neighbor labels, made to cover by split conformal calibration."""

import torch
from torch import Tensor

from vicinal.calibration import conformal_quantile
from vicinal.core import check_between, check_labels


def weighted_quantile(weights: Tensor, labels: Tensor, level: float) -> Tensor:
    r"""Smallest label $v$ with $\sum_{j: y_j \le v} p_{ij} \ge$ ``level``, for each row of weights.

    Args:
        weights: ``[b, N]``, >= 0, rows sum to 1.
        labels: ``[N]``, floating.
        level: from 0 to 1.

    Returns:
        ``[b]``, each a label of the bank.

    >>> weighted_quantile(torch.tensor([[0.2, 0.5, 0.3]]), torch.tensor([3.0, 1.0, 2.0]), 0.5)
    tensor([1.])
    """
    check_labels(labels, weights.shape[1])
    check_between("level", level, 0, 1, closed=True)
    ordered, order = labels.sort()
    mass = weights[:, order].cumsum(dim=-1)  # [b, N]
    wanted = torch.full_like(mass[:, :1], level) * (1 - 8 * torch.finfo(mass.dtype).eps)
    position = torch.searchsorted(mass.contiguous(), wanted).clamp(max=len(labels) - 1)
    return ordered[position[:, 0]]


def neighbor_range(weights: Tensor, labels: Tensor, coverage: float) -> tuple[Tensor, Tensor]:
    """The central range of each row's neighbor labels that holds ``coverage`` of its weight: two tensors ``[b]``."""
    tail = (1 - check_between("coverage", coverage, 0, 1)) / 2
    return weighted_quantile(weights, labels, tail), weighted_quantile(weights, labels, 1 - tail)


def conformal_margin(misses: Tensor, coverage: float) -> float:
    r"""Margin that makes ranges cover: the $\lceil (n+1)\,\mathrm{coverage} \rceil$-th smallest of ``misses``.

    Args:
        misses: ``[n]``, for calibration rows max(low - y, y - high): how far the label lies outside its range
            (negative: inside). The rows must be exchangeable with those to be predicted.
        coverage: between 0 and 1; a new label lies in [low - margin, high + margin] at least that often.

    Raises:
        ValueError: if there are too few calibration rows for any finite margin.

    >>> conformal_margin(torch.arange(1.0, 20.0), 0.9)
    18.0
    """
    return conformal_quantile(misses.detach().cpu().numpy(), coverage)
