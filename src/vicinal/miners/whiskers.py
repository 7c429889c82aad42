"""The miner that leaves out unrelated pairs of unusual score, by the whiskers of a box plot."""

import math
import numbers
from typing import cast

import torch
from torch import Tensor

from vicinal.core import register
from vicinal.miners.selection import kept_weight, measured, row_blocks
from vicinal.ranks import check_relation, split_pairs

_SAMPLE = 1 << 14
"""Values that are sorted to see about where the quartiles are."""


def check_reach(reach: object) -> float:
    """Return ``reach`` if it is a number of at least 0, or infinite."""
    if isinstance(reach, bool) or not isinstance(reach, numbers.Real):
        raise TypeError(f"reach: expected a number, got {reach!r}")
    length = float(reach)
    if not length >= 0:
        raise ValueError(f"reach: expected a number of at least 0 (inf keeps all), got {reach!r}")
    return length


def whisker_ends(values: Tensor, among: Tensor, reach: float) -> tuple[Tensor, Tensor]:
    """The lowest and the highest that a usual value may be, of ``values`` (any shape) those ``among``.

    The quartiles are the sorted values at the places ``int(n / 4)`` and ``int(3 n / 4)`` of n, counted from 0, so
    values that all come twice (both triangles of a symmetric matrix) give the same whiskers as once.
    """
    first, third = _quartiles(values, among)
    spread = reach * (third - first)
    return first - spread, third + spread


def within_whiskers(values: Tensor, among: Tensor, reach: float) -> Tensor:
    """Where ``values`` lie within the whiskers of those ``among``; boolean, of their shape."""
    if math.isinf(reach) or values.numel() == 0:
        return among
    low, high = whisker_ends(values, among, reach)
    return among & (values >= low) & (values <= high)


def _quartiles(values: Tensor, among: Tensor) -> tuple[Tensor, Tensor]:
    """The values at the two places; 0 if there are none."""
    if torch.compiler.is_compiling():  # shapes stay fixed
        ordered = torch.where(among, values, torch.inf).flatten().sort().values
        number = among.sum()
        places = torch.stack([part * number // 4 for part in (1, 3)]).clamp(max=len(ordered) - 1)
        first, third = ordered.index_select(0, places).unbind()
        return torch.where(number > 0, first, 0.0), torch.where(number > 0, third, 0.0)
    if values.ndim != 2:
        values, among = values.reshape(1, -1), among.reshape(1, -1)
    total = int(among.count_nonzero())
    if not total:
        return values.new_zeros(()), values.new_zeros(())
    step = max(1, values.numel() // _SAMPLE) | 1
    few = values.reshape(-1)[::step][among.reshape(-1)[::step]].sort().values
    first, third = (_placed(values, among, place, few, place / total) for place in (total // 4, 3 * total // 4))
    return first, third


def _placed(values: Tensor, among: Tensor, place: int, few: Tensor, share: float) -> Tensor:
    """The value at a place in the order of those ``among``.

    A sorted sample tells about where it is; of all values only those between two of the sample are then looked at. If
    the sample is a bad one, all are.
    """
    low, high = values.new_tensor(-torch.inf), values.new_tensor(torch.inf)
    if len(few) < values.numel():
        near, width = share * len(few), 3 * math.sqrt(len(few)) / 2 + 1
        low = few[int(near - width)] if near - width >= 0 else low
        high = few[int(near + width)] if near + width < len(few) else high
    below, between = 0, []
    for part in row_blocks(values):
        block = values[part]
        lower = block < low
        kept = (block <= high).logical_and_(among[part])
        below += int(lower.logical_and_(kept).count_nonzero())
        between.append(block[kept.logical_xor_(lower)])
    found = torch.cat(between)
    if not below <= place < below + len(found):
        below, found = 0, values[among]
    return found.kthvalue(place - below + 1).values


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
    check_relation(scores, relation, weight)
    given = measured(scores)
    if torch.compiler.is_compiling() or math.isinf(length) or not scores.numel():
        related, unrelated = split_pairs(scores, relation, weight)
        return kept_weight(scores, weight, related | within_whiskers(given, unrelated, length))
    cuts = [
        (part, (scores[part], relation[part], None if weight is None else weight[part])) for part in row_blocks(scores)
    ]
    unrelated = torch.empty(scores.shape, dtype=torch.bool, device=scores.device)
    for part, cut in cuts:
        unrelated[part] = split_pairs(*cut).unrelated
    low, high = whisker_ends(given, unrelated, length)
    made = None
    for part, cut in cuts:
        usual = (given[part] >= low).logical_and_(given[part] <= high)
        one = kept_weight(cut[0], cut[2], usual.logical_and_(unrelated[part]).logical_or_(split_pairs(*cut).related))
        made = one.new_empty(scores.shape) if made is None else made
        made[part] = one
    return cast(Tensor, made)
