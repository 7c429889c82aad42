"""Intervals from the distribution of neighbor labels, made to cover by split conformal calibration."""

import torch
from torch import Tensor

from vicinal.calibration import conformal_quantile
from vicinal.core.checks import check_between, check_labels


def weighted_quantile(weights: Tensor, labels: Tensor, level: float) -> Tensor:
    r"""Smallest label $v$ with $\sum_{j: y_j \le v} p_{ij} \ge$ ``level`` $\sum_j p_{ij}$, for each row of weights.

    It is the prediction of least expected cost where one of ``level`` is paid for each unit that it is too low, and of
    1 - ``level`` for each that it is too high.

    Args:
        weights: ``[b, N]``, >= 0.
        labels: ``[N]``, or of each row its own ``[b, N]``; floating.
        level: from 0 to 1.

    Returns:
        ``[b]``, each a label.

    >>> weighted_quantile(torch.tensor([[0.2, 0.5, 0.3]]), torch.tensor([3.0, 1.0, 2.0]), 0.5)
    tensor([1.])
    """
    if labels.ndim == 1:
        check_labels(labels, weights.shape[1])
    check_between("level", level, 0, 1, closed=True)
    ordered, order = labels.sort(dim=-1)
    mass = (weights[:, order] if labels.ndim == 1 else weights.gather(1, order)).cumsum(dim=-1)  # [b, N]
    limit = level * mass[:, -1:] * (1 - 8 * torch.finfo(mass.dtype).eps)
    position = torch.searchsorted(mass.contiguous(), limit).clamp(max=labels.shape[-1] - 1)
    return ordered[position[:, 0]] if labels.ndim == 1 else ordered.gather(1, position)[:, 0]


def neighbor_range(weights: Tensor, labels: Tensor, coverage: float) -> tuple[Tensor, Tensor]:
    """The central range of each row's neighbor labels that holds ``coverage`` of its weight: two tensors ``[b]``."""
    tail = (1 - check_between("coverage", coverage, 0, 1)) / 2
    return weighted_quantile(weights, labels, tail), weighted_quantile(weights, labels, 1 - tail)


def conformal_margin(
    misses: Tensor, coverage: float, weights: Tensor | None = None, groups: Tensor | None = None
) -> float:
    r"""Margin that makes ranges cover: the $\lceil (n+1)\,\mathrm{coverage} \rceil$-th smallest of ``misses``.

    Args:
        misses: ``[n]``, for calibration rows max(low - y, y - high): how far the label lies outside its range
            (negative: inside). The rows must be exchangeable with those to be predicted.
        coverage: between 0 and 1; a new label lies in [low - margin, high + margin] at least that often.
        weights: ``[n]``, see :func:`vicinal.calibration.conformal_quantile`.
        groups: integers ``[n]``, see there.

    Raises:
        ValueError: if there are too few calibration rows for any finite margin.

    >>> conformal_margin(torch.arange(1.0, 20.0), 0.9)
    18.0
    """
    mass = None if weights is None else weights.detach().cpu().numpy()
    codes = None if groups is None else groups.cpu().numpy()
    return conformal_quantile(misses.detach().cpu().numpy(), coverage, weights=mass, groups=codes)
