"""Unit scores: each row of scores brought to [0, 1], which is what masks read."""

from typing import NamedTuple

import torch
from torch import Tensor

from vicinal.blockwise.resolution import UNKNOWN, Resolution
from vicinal.blockwise.softstep import unit_width


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


def unit_scores(scores: Tensor, span: RowRange, resolution: Resolution | None = None, *, inset: bool = False) -> Tensor:
    r"""$n_{ij} = 1 - (\max_j s_{ij} - s_{ij}) / (\max_j s_{ij} - \min_j s_{ij})$, kept in [0, 1].

    A row that is flat to within its resolution is 1 throughout, so that a step mask cannot hide the whole row, and a
    row that is nearly flat is nearly 1 (see :func:`vicinal.blockwise.softstep.unit_width`). Gradients flow through the
    range too.

    Args:
        scores: ``[b, N]``.
        span: the range of each row.
        resolution: of the scores; None: eight units in the last place of the largest.
        inset: give scores within the resolution of the lowest the unit score 0 too. For masks that are steep there:
            otherwise rounding would decide which of several equal rows they reject.

    >>> unit_scores(torch.tensor([[-2.0, -1.0, 0.0]]), RowRange(torch.tensor([[-2.0]]), torch.tensor([[0.0]])))
    tensor([[0.0000, 0.5000, 1.0000]])
    """
    low, high = span
    width = unit_width(high - low, told_apart(scores, resolution).of(low, high), inset=inset)
    flat = width == torch.inf
    unit = 1 - ((high - scores) / torch.where(flat, 1.0, width)).clamp(0.0, 1.0)
    return torch.where(flat, 1.0, unit)


def told_apart(scores: Tensor, resolution: Resolution | None) -> Resolution:
    """The ``resolution``, or one for ``scores`` of which nothing else is known."""
    return Resolution(0.0, 0.0, UNKNOWN, torch.finfo(scores.dtype).eps) if resolution is None else resolution
