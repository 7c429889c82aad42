"""The miner that leaves out unrelated pairs of unusual score, by Tukey's fences."""

import math
import numbers
from collections.abc import Callable

import torch
from torch import Tensor

from vicinal.blockwise import opaque_op
from vicinal.core import register
from vicinal.miners.selection import kept_dtype, kept_weight, measured, row_blocks
from vicinal.ranks import Pairs
from vicinal.ranks.pairs import check_relation, split_pairs

Among = Callable[[slice], Tensor]


def check_reach(reach: object) -> float:
    """Return ``reach`` if it is a number of at least 0, or infinite."""
    if isinstance(reach, bool) or not isinstance(reach, numbers.Real):
        raise TypeError(f"reach: expected a number, got {reach!r}")
    length = float(reach)
    if not length >= 0:
        raise ValueError(f"reach: expected a number of at least 0 (inf keeps all), got {reach!r}")
    return length


def fences(values: Tensor, among: Tensor, reach: float) -> tuple[Tensor, Tensor]:
    """The lowest and the highest that a usual value may be, of ``values`` (any shape) those ``among``.

    The quartiles are the sorted values at the places ``int(n / 4)`` and ``int(3 n / 4)`` of n, counted from 0, so
    values that all come twice (both triangles of a symmetric matrix) give the same fences as once.
    """
    return _ends(_quartiles(values, among), reach)


def _ends(quartiles: Tensor, reach: float) -> tuple[Tensor, Tensor]:
    first, third = quartiles.unbind()
    spread = reach * (third - first)
    return first - spread, third + spread


def within_fences(values: Tensor, among: Tensor, reach: float) -> Tensor:
    """Where ``values`` lie within the fences of those ``among``; boolean, of their shape."""
    if math.isinf(reach) or values.numel() == 0:
        return among
    low, high = fences(values, among, reach)
    return among & (values >= low) & (values <= high)


@opaque_op("quartiles", lambda values, among: values.new_empty(2))
def _quartiles(values: Tensor, among: Tensor) -> Tensor:
    """The values at the two places; 0 if there are none."""
    if values.ndim != 2:
        values, among = values.reshape(1, -1), among.reshape(1, -1)
    return _quartiles_of(values.detach(), lambda part: among[part])


def _quartiles_of(values: Tensor, among: Among) -> Tensor:
    """Likewise, of ``values [b, N]`` and a function that gives the rows of a slice of ``among``.

    A sorted sample tells about where they are; of all values only those between two of the sample are then looked at.
    If the sample is a bad one, all are.
    """
    step = math.isqrt(values.numel()) // 16 | 1  # odd, so that columns take turns
    total, sample = 0, []
    for part in row_blocks(values):
        counted = among(part)
        total += int(counted.count_nonzero())
        sample.append(values[part].reshape(-1)[::step][counted.reshape(-1)[::step]])
    few = torch.cat([*sample, values.new_empty(0)]).sort().values
    places = [total // 4, 3 * total // 4]
    if not total:
        return values.new_zeros(2)
    if step == 1:
        return few[places]
    samples = []
    limits = [_about(few, place / total) for place in places]
    for place, (below, between) in zip(places, _between(values, among, limits), strict=True):
        if not below <= place < below + len(between):
            below, between = 0, torch.cat([values[part][among(part)] for part in row_blocks(values)])
        samples.append(between.kthvalue(place - below + 1).values)
    return torch.stack(samples)


def _about(few: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Two of a sorted sample between which a place is likely to be, or -inf, inf."""
    near, width = share * len(few), 3 * math.sqrt(len(few)) / 2 + 1
    low = few[int(near - width)] if near - width >= 0 else few.new_tensor(-torch.inf)
    return low, few[int(near + width)] if near + width < len(few) else few.new_tensor(torch.inf)


def _between(values: Tensor, among: Among, limits: list[tuple[Tensor, Tensor]]) -> list[tuple[int, Tensor]]:
    """For each two limits how many values are below, and those that are between."""
    below, between = [0] * len(limits), [[values.new_empty(0)] for _ in limits]
    for part in row_blocks(values):
        block, counted = values[part], among(part)
        for nth, (low, high) in enumerate(limits):
            lower = (block < low).logical_and_(counted)
            below[nth] += int(lower.count_nonzero())
            inside = (block <= high).logical_and_(counted).logical_xor_(lower).reshape(-1).nonzero()[:, 0]
            between[nth].append(block.reshape(-1).index_select(0, inside))
    return [(number, torch.cat(values_between)) for number, values_between in zip(below, between, strict=True)]


@register(
    "miner",
    "iqr_filter",
    "permutation-invariant",
    family="single pairs",
    paper="arXiv:2203.11593",
    verified="values of the paper's code",
)
@torch.no_grad()
def iqr_filter(scores: Tensor, relation: Tensor, weight: Tensor | None = None, *, reach: float = 1.5) -> Tensor:
    r"""Unrelated pairs of usual score: $q_1 - r (q_3 - q_1) \le s_{an} \le q_3 + r (q_3 - q_1)$.

    The quartiles are those of the scores of all unrelated pairs of the matrix. Pairs above the fences are probably
    mislabelled, and those below teach nothing. Related pairs are always kept.

    Args:
        scores: ``[b, N]``, higher = more alike.
        relation: ``[b, N]``, above 0 = related.
        weight: ``[b, N]`` or None; pairs of weight 0 are ignored.
        reach: r >= 0, from the quartiles to the fences, in interquartile ranges; 0 keeps the middle half, inf all.

    Returns:
        ``[b, N]``: ``weight`` where a pair was kept, else 0.

    >>> iqr_filter(torch.tensor([[0.9, 0.1, 0.2, 0.2, 0.3, 0.9]]), torch.tensor([[1, 0, 0, 0, 0, 0]]))
    tensor([[1., 1., 1., 1., 1., 0.]])
    """
    length = check_reach(reach)
    check_relation(scores, relation, weight)
    return _weights(scores, relation, weight, length)


@opaque_op(
    "iqr_filter", lambda scores, relation, weight, _: scores.new_empty(scores.shape, dtype=kept_dtype(scores, weight))
)
def _weights(scores: Tensor, relation: Tensor, weight: Tensor | None, reach: float) -> Tensor:
    """The weight of the pairs that were kept, by blocks of rows."""
    weights, values = (
        torch.empty(scores.shape, dtype=kept_dtype(scores, weight), device=scores.device),
        measured(scores),
    )

    def sides(part: slice) -> Pairs:
        return split_pairs(scores[part], relation[part], None if weight is None else weight[part])

    ends = None if math.isinf(reach) else _ends(_quartiles_of(values, lambda part: sides(part).unrelated), reach)
    for part in row_blocks(scores):
        related, counted = sides(part)
        if ends is not None:
            counted = counted.logical_and_((values[part] >= ends[0]).logical_and_(values[part] <= ends[1]))
        weights[part] = kept_weight(
            scores[part], None if weight is None else weight[part], counted.logical_or_(related)
        )
    return weights
