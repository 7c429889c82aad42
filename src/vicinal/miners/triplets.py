"""Miners of the pairs of triplets: hard, semi-hard, within a margin, and by the angle at the unrelated corner."""

import functools
import math
from typing import Literal, get_args

import torch
from torch import Tensor

from vicinal.blockwise import opaque_op
from vicinal.core import check_choice, register
from vicinal.core.checks import check_between
from vicinal.miners.sampled import Scale, squared_distance
from vicinal.miners.selection import (
    ScoredPairs,
    highest,
    kept_like,
    kept_weight,
    lowest,
    measured,
    pair_miner,
    row_blocks,
    some,
)
from vicinal.ranks.pairs import check_relation, split_pairs

Kind = Literal["hard", "semihard", "violating", "easy"]
Choice = Literal["hard", "semihard", "easy", "all"]

_PML = "numpy in float64; pytorch-metric-learning (stored values)"


_pair_miner = functools.partial(pair_miner, family="triplets", verified=_PML)


@_pair_miner("hard", "permutation-invariant", "row-separable", "score-shift-invariant", paper="arXiv:1703.07737")
def hard(
    pairs: ScoredPairs,
    *,
    positive: Choice = "hard",
    negative: Choice = "hard",
) -> Tensor:
    r"""The one extreme related and the one extreme unrelated pair of each query ("batch hard").

    "hard" is the related pair of lowest score and the unrelated pair of highest score; "easy" the opposite. One of the
    two may be "semihard": the hardest related pair that scores above the chosen unrelated one, or the hardest unrelated
    pair that scores below the chosen related one; a query that has none is left out. "all" keeps a whole side. Pairs
    tied with the chosen one are kept too, so the order of the columns does not matter.

    Args:
        pairs: ``scores``, ``relation`` and ``weight``; see :func:`vicinal.miners.selection.pair_miner`.
        positive: choice of the related pair.
        negative: choice of the unrelated pair.

    Raises:
        ValueError: if both choices are "semihard", or "semihard" meets "all".

    >>> hard(torch.tensor([[0.9, 0.4, 0.6, 0.1]]), torch.tensor([[1, 1, 0, 0]]))
    tensor([[0., 1., 1., 0.]])
    """
    check_choice("positive", positive, get_args(Choice))
    check_choice("negative", negative, get_args(Choice))
    if "semihard" in (positive, negative) and (positive == negative or "all" in (positive, negative)):
        raise ValueError(
            f"negative: expected 'hard' or 'easy' beside one 'semihard', got {positive!r} and {negative!r}"
        )
    values, related, unrelated = pairs
    both = some(related) & some(unrelated)
    if positive != "semihard":
        first = _extreme(values, related, positive, low=True)
        limit = lowest(values, first)  # the score of the chosen related pair
        rest = unrelated & (values < limit) if negative == "semihard" else unrelated
        second = _extreme(values, rest, "hard" if negative == "semihard" else negative, low=False)
    else:
        second = _extreme(values, unrelated, negative, low=False)
        first = _extreme(values, related & (values > highest(values, second)), "hard", low=True)
    both = both & some(first) & some(second)
    return (first | second) & both


def _extreme(scores: Tensor, among: Tensor, choice: str, *, low: bool) -> Tensor:
    """The pairs ``among`` of lowest score, if ``low`` is what "hard" means here, or highest; all for "all"."""
    if choice == "all":
        return among
    if (choice == "hard") == low:
        return among & (scores == lowest(scores, among))
    return among & (scores == highest(scores, among))


@_pair_miner("semihard", "permutation-invariant", "row-separable", "score-shift-invariant", paper="arXiv:1503.03832")
def semihard(pairs: ScoredPairs, *, margin: float = 0.2) -> Tensor:
    r"""Pairs of the triplets that are in the right order but within the margin: $0 < s_{ap} - s_{an} \le m$.

    The same as :func:`triplet_margin` with ``kind="semihard"``.

    Args:
        pairs: ``scores``, ``relation`` and ``weight``; see :func:`vicinal.miners.selection.pair_miner`.
        margin: m >= 0, how far ahead a related pair should be, in units of score.

    >>> semihard(torch.tensor([[0.9, 0.4, 0.85, 0.1]]), torch.tensor([[1, 1, 0, 0]]))
    tensor([[1., 0., 1., 0.]])
    """
    return _semihard(*pairs, check_between("margin", margin, 0, float("inf"), closed=True))


@_pair_miner("triplet_margin", "permutation-invariant", "row-separable", "score-shift-invariant")
def triplet_margin(
    pairs: ScoredPairs,
    *,
    margin: float = 0.2,
    kind: Kind = "violating",
) -> Tensor:
    r"""Pairs that take part in at least one triplet whose gap $g = s_{ap} - s_{an}$ is of a kind.

    "violating": $g \le m$; "hard": $g \le 0$ (and $\le m$); "semihard": $0 < g \le m$; "easy": $g > m$.

    Args:
        pairs: ``scores``, ``relation`` and ``weight``; see :func:`vicinal.miners.selection.pair_miner`.
        margin: $m \ge 0$, in units of the scores.
        kind: which triplets.

    >>> triplet_margin(torch.tensor([[0.9, 0.4, 0.6, 0.1]]), torch.tensor([[1, 1, 0, 0]]), kind="hard")
    tensor([[0., 1., 1., 0.]])
    """
    m = check_between("margin", margin, 0, float("inf"), closed=True)
    check_choice("kind", kind, get_args(Kind))
    s, related, unrelated = pairs
    if kind == "easy":
        chosen = (related & (s - lowest(s, unrelated) > m)) | (unrelated & (highest(s, related) - s > m))
    elif kind == "semihard":
        chosen = _semihard(s, related, unrelated, m)
    else:
        m = 0.0 if kind == "hard" else m
        chosen = (related & (s - highest(s, unrelated) <= m)) | (unrelated & (lowest(s, related) - s <= m))
        chosen = chosen & some(related) & some(unrelated)
    return chosen


@opaque_op("semihard", lambda scores, related, unrelated, margin: torch.empty_like(related))
def _semihard(scores: Tensor, related: Tensor, unrelated: Tensor, margin: float) -> Tensor:
    """Pairs with a partner on the other side: the unrelated one lower, by at most ``margin``."""
    chosen = torch.zeros_like(related)
    most = int(related.sum(dim=1).max()) if related.numel() else 0
    if not most:
        return chosen
    for part in row_blocks(scores):
        chosen[part] = _partners(scores[part], related[part], unrelated[part], margin, most)
    return chosen


def _partners(scores: Tensor, related: Tensor, unrelated: Tensor, margin: float, most: int) -> Tensor:
    """By the related scores of each row, one after the other; comparisons give numbers, which is quicker."""
    others = torch.where(unrelated, scores, torch.nan)  # a comparison with nan fails
    limits, columns = torch.where(related, scores, -torch.inf).topk(most, dim=1)  # [b, P]
    chosen, exists = torch.zeros_like(scores), torch.zeros_like(limits)
    gap, near = torch.empty_like(scores), torch.empty_like(scores)
    for nth in range(most):
        torch.sub(limits[:, nth, None], others, out=gap)
        torch.le(gap, margin, out=near)
        near.mul_(gap.gt_(0))
        torch.maximum(chosen, near, out=chosen)
        exists[:, nth] = near.amax(dim=1)
    return chosen.scatter_(1, columns, chosen.gather(1, columns).maximum(exists)).bool()


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

    With the center $c$ of a related pair $(a, p)$, the triplet counts if $\arctan\bigl(\|x_a - x_p\| / (2 \|x_n -
    c\|)\bigr) > \alpha$, where $\|x_n - c\|^2 = \tfrac12 \|x_n - x_a\|^2 + \tfrac12 \|x_n - x_p\|^2 - \tfrac14 \|x_a -
    x_p\|^2$. Both pairs of the query, $(a, p)$ and $(a, n)$, are kept. Time grows with the number of related pairs
    times columns; memory does not.

    Args:
        scores: ``[b, b]`` of the rows of a batch against one another: the formula needs the distance from p to n.
        relation: ``[b, b]``, above 0 = related.
        weight: ``[b, b]`` or None; pairs of weight 0 are ignored.
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


@opaque_op("angular", kept_like)
def _weights(scores: Tensor, relation: Tensor, weight: Tensor | None, scale: str, bound: float) -> Tensor:
    """The weight of the pairs that were chosen, by blocks of rows."""
    weights, values = kept_like(scores, relation, weight), measured(scores)
    for part in row_blocks(scores):
        cut = (scores[part], relation[part], None if weight is None else weight[part])
        weights[part] = kept_weight(cut[0], cut[2], _open(values, part, *split_pairs(*cut), scale, bound))
    return weights


def _open(scores: Tensor, part: slice, related: Tensor, unrelated: Tensor, scale: str, bound: float) -> Tensor:
    r"""Pairs of a block of rows whose angle at a third row is open: with an unrelated n for a related pair (a, p).

    $c \cdot |x_n - (x_a + x_p) / 2|^2 < |x_a - x_p|^2$, where the square on the left, from n to the middle of the pair,
    is $(d_{an}^2 + d_{pn}^2) / 2 - d_{ap}^2 / 4$ and c is ``bound``. One related column of each row goes after the
    other, so that no block of all triplets is held; comparisons give numbers, which is quicker than booleans.
    """
    most = int(related.sum(dim=1).max()) if related.numel() else 0
    if not most:
        return torch.zeros_like(related)
    rows = squared_distance(scores[part], scale)
    counts, columns = related.to(rows.dtype).topk(most, dim=1)
    base = rows.gather(1, columns)  # [r, P]
    most_open = torch.where(counts > 0, base, -torch.inf)
    rows = torch.where(unrelated, rows.div_(2), torch.inf)  # no angle is open at another column
    chosen, exists = torch.zeros_like(rows), torch.zeros_like(base)
    near = torch.empty_like(rows)
    for nth in range(most):
        height = squared_distance(scores.index_select(0, columns[:, nth]), scale)
        torch.add(rows, height, alpha=0.5, out=near).sub_(base[:, nth, None] / 4).mul_(bound)
        torch.lt(near, most_open[:, nth, None], out=height)
        torch.maximum(chosen, height, out=chosen)
        exists[:, nth] = height.amax(dim=1)
    return chosen.scatter_(1, columns, chosen.gather(1, columns).maximum(exists)).bool()
