"""Unit scores: each row of scores brought to [0, 1], which is what masks read."""

from typing import NamedTuple

import torch
from torch import Tensor


class RowRange(NamedTuple):
    """Lowest and highest score of each row, ``[b, 1]`` each, over the rows of the bank that were asked for."""

    low: Tensor
    high: Tensor


def row_range(scores: Tensor, counted: Tensor | None = None) -> RowRange:
    """Range of each row of ``scores [b, N]`` over the columns where ``counted`` is True (None: all).

    A row in which nothing counts gets the range 0 to 0.
    """
    if counted is None:
        return RowRange(scores.amin(dim=-1, keepdim=True), scores.amax(dim=-1, keepdim=True))
    low = torch.where(counted, scores, torch.inf).amin(dim=-1, keepdim=True)
    high = torch.where(counted, scores, -torch.inf).amax(dim=-1, keepdim=True)
    some = counted.any(dim=-1, keepdim=True)
    return RowRange(torch.where(some, low, 0.0), torch.where(some, high, 0.0))


def unit_scores(scores: Tensor, span: RowRange) -> Tensor:
    r"""$n_{ij} = 1 - (\max_j s_{ij} - s_{ij}) / (\max_j s_{ij} - \min_j s_{ij})$, kept in [0, 1].

    A row whose range is within the rounding of its scores is flat: all of it is 1, so that a step mask cannot hide
    the whole row. Gradients flow through the range too.

    >>> unit_scores(torch.tensor([[-2.0, -1.0, 0.0]]), RowRange(torch.tensor([[-2.0]]), torch.tensor([[0.0]])))
    tensor([[0.0000, 0.5000, 1.0000]])
    """
    low, high = span
    width = high - low  # [b, 1]
    rounding = 4 * torch.finfo(scores.dtype).eps * torch.maximum(low.abs(), high.abs())
    flat = width.detach() <= rounding.detach().clamp(min=torch.finfo(scores.dtype).tiny)
    unit = 1 - (high - scores) / torch.where(flat, 1.0, width)
    return torch.where(flat, 1.0, unit.clamp(0.0, 1.0))
