"""The miner by the angle at the unrelated corner of a triplet."""

import math
from typing import get_args

import torch
from torch import Tensor

from vicinal.blockwise import opaque_op
from vicinal.core import check_between, check_choice, register
from vicinal.miners.sampled import Scale, squared_distance
from vicinal.miners.selection import kept_dtype, kept_weight, measured, row_blocks
from vicinal.ranks import check_relation, split_pairs


@register(
    "miner",
    "angular",
    "permutation-invariant",
    "square",
    family="triplets",
    paper="arXiv:1708.01682",
    verified="numpy in float64; pytorch-metric-learning (stored values)",
)
@torch.no_grad()
def angular(
    scores: Tensor, relation: Tensor, weight: Tensor | None = None, *, angle: float = 20.0, scale: Scale = "cosine"
) -> Tensor:
    r"""Pairs of triplets that are too open at the unrelated corner.

    With the center $c$ of a related pair $(a, p)$, the triplet counts if
    $\arctan\bigl(\|x_a - x_p\| / (2 \|x_n - c\|)\bigr) > \alpha$, where
    $\|x_n - c\|^2 = \tfrac12 \|x_n - x_a\|^2 + \tfrac12 \|x_n - x_p\|^2 - \tfrac14 \|x_a - x_p\|^2$.
    Both pairs of the query, $(a, p)$ and $(a, n)$, are kept. Time grows with related pairs times columns; memory does
    not.

    Args:
        scores: ``[b, b]`` of the rows of a batch against one another: the formula needs the distance from p to n.
        relation: ``[b, b]``, above 0 = related.
        weight: ``[b, b]`` or None; pairs of weight 0 are not looked at.
        angle: $\alpha$ in degrees, between 0 and 90.
        scale: what the scores are: "cosine", "l2" or "squared_l2" (negative distances).

    Returns:
        ``[b, b]``: ``weight`` where a pair was chosen, else 0.

    Raises:
        ValueError: if ``scores`` is not square.

    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6], [-1.0, 0.0]])
    >>> y = torch.tensor([0, 0, 1, 2])
    >>> angular(x @ x.T, y[:, None] == y, 1 - torch.eye(4), angle=45)[0]
    tensor([0., 1., 1., 0.])
    """
    bound = 4 * math.tan(math.radians(check_between("angle", angle, 0, 90))) ** 2
    check_choice("scale", scale, get_args(Scale))
    check_relation(scores, relation, weight)
    if scores.shape[0] != scores.shape[1]:
        raise ValueError(f"scores: expected a square matrix of one batch against itself, got {tuple(scores.shape)}")
    return _weights(scores, relation, weight, scale, bound)


@opaque_op(
    "angular", lambda scores, relation, weight, *_: scores.new_empty(scores.shape, dtype=kept_dtype(scores, weight))
)
def _weights(scores: Tensor, relation: Tensor, weight: Tensor | None, scale: str, bound: float) -> Tensor:
    """The weight of the pairs that were chosen, by blocks of rows."""
    made, given = torch.empty(scores.shape, dtype=kept_dtype(scores, weight), device=scores.device), measured(scores)
    for part in row_blocks(scores):
        cut = (scores[part], relation[part], None if weight is None else weight[part])
        made[part] = kept_weight(cut[0], cut[2], _open(given, part, *split_pairs(*cut), scale, bound))
    return made


def _open(scores: Tensor, part: slice, related: Tensor, unrelated: Tensor, scale: str, bound: float) -> Tensor:
    """Pairs of a block of rows that were chosen, from one related column of each row after the other.

    Comparisons give numbers, which is quicker than booleans.
    """
    most = int(related.sum(dim=1).max()) if related.numel() else 0
    if not most:
        return torch.zeros_like(related)
    rows = squared_distance(scores[part], scale)
    counts, columns = related.to(rows.dtype).topk(most, dim=1)
    base = rows.gather(1, columns)  # [r, P]
    most_open = torch.where(counts > 0, base, -torch.inf)
    rows = torch.where(unrelated, rows.div_(2), torch.inf)  # no angle is open at another column
    chosen, found = torch.zeros_like(rows), torch.zeros_like(base)
    near = torch.empty_like(rows)
    for nth in range(most):
        height = squared_distance(scores.index_select(0, columns[:, nth]), scale)
        torch.add(rows, height, alpha=0.5, out=near).sub_(base[:, nth, None] / 4).mul_(bound)
        torch.lt(near, most_open[:, nth, None], out=height)
        torch.maximum(chosen, height, out=chosen)
        found[:, nth] = height.amax(dim=1)
    return chosen.scatter_(1, columns, chosen.gather(1, columns).maximum(found)).bool()
