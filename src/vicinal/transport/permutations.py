"""Soft permutations of items to places, and the assignment that is taken at prediction."""

import scipy  # loads its parts when they are used
import torch
from torch import Tensor

from vicinal.transport.sinkhorn import check_plan_scores, sinkhorn


def soft_permutation(scores: Tensor, *, temperature: float = 1.0, steps: int = 20) -> Tensor:
    r"""A soft permutation of l items (rows) to l places (columns): the Sinkhorn layer of DeepPermNet.

    $P = \lim$ of $e^{M/\tau}$ with its rows and columns scaled to sum 1 in turn.

    Columns sum to 1, and so do rows as the number of steps grows. Adding a number to a row or a column of the scores
    changes nothing; as the temperature goes to 0 it becomes the :func:`assignment`, where that is unique. Items ``x [l,
    d]`` are reordered by ``P.mT @ x``. The gradient is implicit: see :func:`sinkhorn`.

    Args:
        scores: M, ``[..., l, l]``, of item i at place j.
        temperature: $\tau > 0$.
        steps: how often rows and columns are scaled, >= 1.

    Raises:
        ValueError: for scores that are not square or not finite.

    Paper: DeepPermNet, arXiv:1704.02729.

    >>> soft_permutation(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    tensor([[0.2689, 0.7311],
            [0.7311, 0.2689]])
    """
    check_square(scores)
    unit = torch.ones_like(scores[..., 0, :], dtype=torch.promote_types(scores.dtype, torch.float32))
    return sinkhorn(scores.mT, unit, unit, temperature=temperature, steps=steps, tolerance=0.0).mT


def check_square(scores: Tensor) -> None:
    """Check that ``scores`` are ``[..., l, l]`` with l >= 1 and finite."""
    check_plan_scores(scores)
    if scores.shape[-1] != scores.shape[-2]:
        raise ValueError(f"scores: expected as many places as items, [..., l, l], got {tuple(scores.shape)}")


def assignment(scores: Tensor) -> Tensor:
    """The place of each item, no place twice, of the largest sum of scores (scipy's linear assignment).

    Args:
        scores: ``[..., m, n]`` with m <= n: a soft permutation, or any scores.

    Returns:
        int64 ``[..., m]``, a column for each row; if several assignments are best, any one of them.

    >>> assignment(torch.tensor([[0.6, 0.4], [0.9, 0.1]]))
    tensor([1, 0])
    """
    wide = check_plan_scores(scores).detach()
    if scores.shape[-2] > scores.shape[-1]:
        raise ValueError(f"scores: expected at least as many columns as rows, got {tuple(scores.shape)}")
    each = wide.flatten(0, -3).cpu().double().numpy() if scores.ndim > 2 else wide[None].cpu().double().numpy()
    columns = [torch.from_numpy(scipy.optimize.linear_sum_assignment(matrix, maximize=True)[1]) for matrix in each]
    places = torch.stack(columns) if columns else torch.zeros(0, scores.shape[-2])
    return places.to(scores.device, torch.int64).reshape(scores.shape[:-1])
