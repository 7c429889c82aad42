"""The miner by the angle at the unrelated corner of a triplet."""

import math
from typing import get_args

import torch
from torch import Tensor

from vicinal.core import check_between, check_choice, register
from vicinal.miners.sampled import Scale, squared_distance
from vicinal.miners.selection import kept_weight, measured
from vicinal.ranks import split_pairs

_HELD = 1 << 20
"""Triplets looked at at a time."""


@register(
    "miner",
    "angular",
    "permutation-invariant",
    "square",
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
    related, unrelated = split_pairs(scores, relation, weight)
    if scores.shape[0] != scores.shape[1]:
        raise ValueError(f"scores: expected a square matrix of one batch against itself, got {tuple(scores.shape)}")
    squared = squared_distance(measured(scores), scale)
    chosen = torch.zeros_like(related)
    step = max(1, _HELD // max(1, scores.shape[1]))
    for pairs in torch.split(related.nonzero(), step):
        a, p = pairs.unbind(1)
        base = squared[a, p][:, None]  # [t, 1]
        height = (squared[a] + squared[p]) / 2 - base / 4  # [t, b]
        open_ = unrelated[a] & (base > bound * height)
        chosen.view(-1)[(a * len(chosen) + p)[open_.any(dim=1)]] = True
        row, n = open_.nonzero(as_tuple=True)
        chosen[a[row], n] = True
    return kept_weight(scores, weight, chosen)
