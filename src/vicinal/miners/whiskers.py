"""The miner that leaves out unrelated pairs of unusual score, by the whiskers of a box plot."""

import math
import numbers

import torch
from torch import Tensor

from vicinal.core import register
from vicinal.miners.selection import kept_weight, measured
from vicinal.ranks import split_pairs


def check_reach(reach: object) -> float:
    """Return ``reach`` if it is a number of at least 0, or infinite."""
    if isinstance(reach, bool) or not isinstance(reach, numbers.Real):
        raise TypeError(f"reach: expected a number, got {reach!r}")
    length = float(reach)
    if not length >= 0:
        raise ValueError(f"reach: expected a number of at least 0 (inf keeps all), got {reach!r}")
    return length


def within_whiskers(values: Tensor, among: Tensor, reach: float) -> Tensor:
    """Where ``values`` lie within the whiskers of those ``among``; boolean, of their shape.

    The quartiles are the sorted values at the places ``int(n / 4)`` and ``int(3 n / 4)`` of n, counted from 0, so
    values that all come twice (both triangles of a symmetric matrix) give the same whiskers as once.
    """
    if math.isinf(reach) or values.numel() == 0:
        return among
    first, third = _quartiles(values, among)
    spread = reach * (third - first)
    return among & (values >= first - spread) & (values <= third + spread)


def _quartiles(values: Tensor, among: Tensor) -> tuple[Tensor, Tensor]:
    """The values at the two places; 0 if there are none."""
    if torch.compiler.is_compiling():  # shapes stay fixed
        ordered = torch.where(among, values, torch.inf).flatten().sort().values
        number = among.sum()
        first, third = (ordered[(part * number // 4).clamp(max=len(ordered) - 1)] for part in (1, 3))
        return torch.where(number > 0, first, 0.0), torch.where(number > 0, third, 0.0)
    some = values[among]
    if len(some) == 0:
        return values.new_zeros(()), values.new_zeros(())
    first, third = (some.kthvalue(part * len(some) // 4 + 1).values for part in (1, 3))
    return first, third


@register("miner", "whiskers", "permutation-invariant", paper="arXiv:2203.11593", verified="values of the paper's code")
@torch.no_grad()
def whiskers(scores: Tensor, relation: Tensor, weight: Tensor | None = None, *, reach: float = 1.5) -> Tensor:
    r"""Unrelated pairs of usual score: $q_1 - r (q_3 - q_1) \le s_{an} \le q_3 + r (q_3 - q_1)$.

    The quartiles are those of the scores of all unrelated pairs of the matrix. Pairs above the whiskers are likely
    mislabelled, those below teach nothing. Related pairs are kept.

    Args:
        scores: ``[b, N]``, higher = more alike.
        relation: ``[b, N]``, above 0 = related.
        weight: ``[b, N]`` or None; pairs of weight 0 are not looked at.
        reach: r >= 0, length of the whiskers in boxes; 0 keeps the middle half, inf all.

    Returns:
        ``[b, N]``: ``weight`` where a pair was kept, else 0.

    >>> whiskers(torch.tensor([[0.9, 0.1, 0.2, 0.2, 0.3, 0.9]]), torch.tensor([[1, 0, 0, 0, 0, 0]]))
    tensor([[1., 1., 1., 1., 1., 0.]])
    """
    length = check_reach(reach)
    related, unrelated = split_pairs(scores, relation, weight)
    return kept_weight(scores, weight, related | within_whiskers(measured(scores), unrelated, length))
