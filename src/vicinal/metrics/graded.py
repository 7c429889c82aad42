"""Normalized discounted cumulative gain, for relations that are grades."""

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from vicinal.core import check_choice, check_integer, register
from vicinal.ranks import Ties, check_relation, rank_order
from vicinal.ranks.hard import sortable, wide

Gain = Literal["linear", "exponential"]


def _discounts(scores: Tensor, order: Tensor, counted: Tensor, k: int | None, *, average: bool) -> Tensor:
    """Discount of each place ``[b, N]``; if ``average``, its mean over the places that columns of one score share."""
    width = order.shape[1]
    places = torch.arange(1, width + 1, device=order.device, dtype=wide(order.device))
    discount = torch.where(places <= (k or width), 1 / (places + 1).log2(), 0.0).expand(order.shape)
    if not average or width == 0:
        return discount
    ordered = torch.where(counted, sortable(scores), -torch.inf).gather(1, order)
    inside = counted.gather(1, order)
    new = (ordered[:, 1:] != ordered[:, :-1]) | (inside[:, 1:] != inside[:, :-1])
    group = torch.cat([new.new_zeros(len(new), 1), new], dim=1).cumsum(dim=1)  # [b, N]
    total = torch.zeros_like(discount).scatter_add_(1, group, discount)
    size = torch.zeros_like(discount).scatter_add_(1, group, torch.ones_like(discount))
    return (total / size.clamp(min=1)).gather(1, group)


@register(
    "metric",
    "ndcg",
    "bounded",
    "permutation-invariant",
    "score-shift-invariant",
    "score-scale-invariant",
    paper="Jarvelin and Kekalainen 2002",
    verified="numpy in float64; scikit-learn; ir_measures and ranx (stored values)",
)
def ndcg(
    scores: Tensor,
    relation: Tensor,
    weight: Tensor | None = None,
    *,
    k: int | None = None,
    gain: Gain = "linear",
    ties: Ties | Literal["average"] = "worst",
    empty: float = math.nan,
) -> Tensor:
    r"""Discounted gain of the first ``k`` ranks over the largest that any order could have.

    $\mathrm{DCG}_i = \sum_{r \le k} g_{i(r)} / \log_2(r + 1)$, where $g$ is the grade of the column at rank $r$, or
    $2^{\text{grade}} - 1$ for the gain "exponential".

    Args:
        scores: ``[b, N]``, higher = more alike.
        relation: ``[b, N]``, grades >= 0; grades below 0 count as 0.
        weight: ``[b, N]`` or None; columns of weight 0 are taken out.
        k: ranks that count, >= 1, or None for all.
        gain: "linear" or "exponential".
        ties: order of equal scores, see :func:`vicinal.ranks.rank_order`; or "average": the expected value over all
            orders of columns with equal scores, which is what scikit-learn gives.
        empty: value of a query with no grade above 0.

    Returns:
        ``[b]`` in [0, 1], NaN (or ``empty``) for a query with no grade above 0.

    >>> ndcg(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[1, 2, 0]]))
    tensor([0.8597], dtype=torch.float64)
    """
    check_relation(scores, relation, weight)
    check_choice("gain", gain, get_args(Gain))
    check_choice("ties", ties, (*get_args(Ties), "average"))
    k = None if k is None else check_integer("k", k)
    counted = torch.ones_like(relation, dtype=torch.bool) if weight is None else weight > 0
    grade = torch.where(counted, relation.to(wide(scores.device)).clamp(min=0), 0.0)
    value = grade if gain == "linear" else torch.exp2(grade) - 1
    order = rank_order(scores, relation, weight, ties="worst" if ties == "average" else ties)
    discount = _discounts(scores, order, counted, k, average=ties == "average")
    reached = (value.gather(1, order) * discount).sum(dim=1)
    plain = _discounts(scores, order, counted, k, average=False)
    ideal = (value.sort(dim=1, descending=True).values * plain).sum(dim=1)
    return torch.where(ideal > 0, reached / torch.where(ideal > 0, ideal, 1.0), empty)
