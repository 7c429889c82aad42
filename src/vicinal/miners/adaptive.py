"""The miner whose margin around the related score of a query follows how far its hard pairs are from it."""

import torch
from torch import Tensor

from vicinal.core import check_between, check_choice, check_integer, register
from vicinal.miners.pairs import _references
from vicinal.miners.selection import by_rows, kept_weight, measured
from vicinal.ranks import split_pairs


@register(
    "miner",
    "adaptive_margin",
    "permutation-invariant",
    "row-separable",
    family="single pairs",
    paper="arXiv:2506.07438",
    verified="numpy in float64",
)
@torch.no_grad()
@by_rows
def adaptive_margin(
    scores: Tensor,
    relation: Tensor,
    weight: Tensor | None = None,
    *,
    factor: float = 0.1,
    k: int = 10,
    low: float = 0.0,
    high: float = 0.2,
    reference: str = "min",
) -> Tensor:
    r"""Leaves out unrelated pairs within a margin of the related score that is made for each query.

    With the reference $\rho$ (the lowest or the mean score of the query's related pairs) and the mean $\mu$ of its
    ``k`` highest unrelated scores, the margin is $m = \mathrm{clamp}(m_0 (\rho - \mu), m_{lo}, m_{hi})$, and an
    unrelated pair is left out if $s + m > \rho$. A query whose hard pairs are far below its related ones can afford a
    wide margin; where they are near, a wide one would leave nothing to learn from. Related pairs are always kept; a
    query without related pairs keeps all. ``low = high`` is the fixed margin of :func:`topk_hard`.

    The report says that its margins are adaptive and not how; the rule above is our reading. Its soft labels need no
    function: ``supcon`` with ``relation=(teacher_scores / T).softmax(-1)`` has the gradient of the divergence between
    the teacher's softmax and the student's.

    Args:
        scores: ``[b, N]``, higher = more alike.
        relation: ``[b, N]``, above 0 = related.
        weight: ``[b, N]`` or None; pairs of weight 0 are not looked at.
        factor: $m_0 \ge 0$, share of the gap.
        k: how many unrelated scores make the mean, >= 1; fewer if there are fewer.
        low: $m_{lo} \ge 0$.
        high: $m_{hi}$, at least ``low``.
        reference: "min" (safe) or "mean".

    Returns:
        ``[b, N]``: ``weight`` where a pair was kept, else 0.

    >>> adaptive_margin(torch.tensor([[0.8, 0.85, 0.78, 0.6, 0.1]]), torch.tensor([[1, 0, 0, 0, 0]]), k=4)
    tensor([[1., 0., 0., 1., 1.]])
    """
    check_choice("reference", reference, ("min", "mean"))
    check_between("factor", factor, 0, float("inf"), closed=True)
    check_between("low", low, 0, float("inf"), closed=True)
    if check_between("high", high, 0, float("inf"), closed=True) < low:
        raise ValueError(f"high: expected at least low = {low:g}, got {high!r}")
    related, unrelated = split_pairs(scores, relation, weight)
    s = measured(scores)
    target = _references(s, related, reference)  # [b, 1], inf where nothing is related
    hardest = torch.where(unrelated, s, -torch.inf).topk(min(check_integer("k", k), s.shape[1]), dim=1).values
    there = hardest > -torch.inf
    mean = torch.where(there, hardest, 0.0).sum(dim=1, keepdim=True) / there.sum(dim=1, keepdim=True).clamp(min=1)
    gap = torch.where(target.isfinite(), target - mean, 0.0)
    margin = (factor * gap).clamp(low, high)
    return kept_weight(scores, weight, related | (unrelated & ~(s + margin > target)))
