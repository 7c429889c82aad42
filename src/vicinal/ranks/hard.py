"""Ranks of columns by their score, with one documented answer to ties."""

from typing import Literal, get_args

import torch
from torch import Tensor

from vicinal.core import check_choice
from vicinal.ranks.pairs import check_relation, split_pairs

Ties = Literal["worst", "best", "first", "last"]
"""Order of columns with equal scores: unrelated (lower grade) first, related first, lower index first, higher first."""


def wide(device: torch.device) -> torch.dtype:
    """Floating dtype in which ranks and means are kept: float64 where the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64


def sortable(scores: Tensor) -> Tensor:
    """``scores`` in float32 or float64 with NaN as the lowest score, so that it cannot win a place."""
    values = scores.detach()
    if values.dtype not in (torch.float32, torch.float64):
        values = values.float()
    return torch.where(values.isnan(), -torch.inf, values)


def rank_order(scores: Tensor, relation: Tensor, weight: Tensor | None = None, *, ties: Ties = "worst") -> Tensor:
    """Columns of each row from the highest score to the lowest.

    Args:
        scores: ``[b, N]``, higher = more alike. NaN ranks as the lowest score.
        relation: ``[b, N]``, grade of each column; only its order matters, and only among equal scores.
        weight: ``[b, N]`` or None; columns of weight 0 come last, whatever their score.
        ties: "worst" (lower grade first: the result is the least flattering one and does not depend on the order of
            the columns), "best" (higher grade first), "first" (lower column index first), "last".

    Returns:
        int64 ``[b, N]``.

    >>> rank_order(torch.tensor([[0.5, 0.9, 0.5]]), torch.tensor([[1, 0, 0]]))
    tensor([[1, 2, 0]])
    """
    check_relation(scores, relation, weight)
    check_choice("ties", ties, get_args(Ties))
    values = sortable(scores)
    if ties in ("worst", "best"):
        key = relation.to(values.dtype) if ties == "worst" else -relation.to(values.dtype)
    else:
        index = torch.arange(values.shape[1], device=values.device, dtype=values.dtype)
        key = (index if ties == "first" else -index).expand_as(values)
    if weight is not None:
        out = weight <= 0
        key, values = torch.where(out, torch.inf, key), torch.where(out, -torch.inf, values)
    before = key.sort(dim=1, stable=True).indices  # [b, N]
    order = values.gather(1, before).sort(dim=1, descending=True, stable=True).indices
    return before.gather(1, order)


def related_ranks(scores: Tensor, relation: Tensor, weight: Tensor | None = None, *, ties: Ties = "worst") -> Tensor:
    """Ranks, 1 = highest score, of the related columns of each row.

    Args:
        scores: ``[b, N]``, higher = more alike.
        relation: ``[b, N]``, above 0 = related.
        weight: ``[b, N]`` or None; columns of weight 0 are taken out before ranks are given.
        ties: see :func:`rank_order`.

    Returns:
        ``[b, R]`` rising in each row, padded with inf, where ``R`` is the largest number of related columns.

    >>> related_ranks(torch.tensor([[0.1, 0.9, 0.5], [0.3, 0.2, 0.1]]), torch.tensor([[1, 0, 1], [1, 0, 0]]))
    tensor([[2., 3.],
            [1., inf]], dtype=torch.float64)
    """
    related = split_pairs(scores, relation, weight).related
    hits = related.gather(1, rank_order(scores, relation, weight, ties=ties))  # [b, N]
    row, position = hits.nonzero(as_tuple=True)
    count = hits.sum(dim=1)  # [b]
    longest = int(count.max()) if len(count) else 0
    ranks = torch.full((len(count), longest), torch.inf, dtype=wide(scores.device), device=scores.device)
    nth = torch.arange(len(row), device=row.device) - (count.cumsum(0) - count)[row]
    ranks[row, nth] = (position + 1).to(ranks.dtype)
    return ranks
