"""Simplex maps over rows that are never held whole, from sums that are added up block by block."""

import math
from collections.abc import Callable, Iterator
from typing import Literal

import torch
from torch import Tensor

Simplex = Literal["softmax", "sparsemax", "entmax15"]
Visit = Callable[[], Iterator[tuple[slice | Tensor, Tensor]]]
"""Gives (queries, their masked scores relative to the best, ``[r, B]``) for all blocks of all queries."""

_LOG2E = 1 / math.log(2)

PASSES = 60
"""Most passes for a threshold; Newton's method needs about ten."""

_MANY = 0.125
"""If more than this share of a block's scores may have weight, none are kept: other blocks probably have as many."""

_NARROW = 1 << 20
"""Entries of a matrix of candidates that may be empty, beyond as many as are filled."""


def exp_(values: Tensor) -> Tensor:
    """Exponential of values <= 0, in place; torch's exp2 is several times faster than its exp."""
    return values.mul_(_LOG2E).exp2_()


def simplex_weights(simplex: Simplex, scores: Tensor, threshold: Tensor | None) -> Tensor:
    """Weights, for "softmax" before division by their sum; overwrites ``scores [r, B]``, relative to the best.

    >>> simplex_weights("sparsemax", torch.tensor([[0.0, -0.5, -2.0]]), torch.tensor([[-0.75]]))
    tensor([[0.7500, 0.2500, 0.0000]])
    """
    if threshold is None:
        return exp_(scores)
    if simplex == "sparsemax":
        return scores.sub_(threshold).clamp_(min=0)
    return scores.mul_(0.5).sub_(threshold).clamp_(min=0).square_()


def response(simplex: Simplex, weights: Tensor) -> Tensor:
    r"""How each weight responds to the scores: $r_j$ in $dp_j = r_j (ds_j - \sum_k r_k ds_k / \sum_k r_k)$."""
    if simplex == "softmax":
        return weights
    if simplex == "entmax15":
        return weights.sqrt()
    return (weights > 8 * torch.finfo(weights.dtype).eps).to(weights.dtype)  # a score on the threshold has weight 0


def lowest_threshold(rows: int, like: Tensor) -> Tensor:
    """``[b, 1]``, a lower bound on the threshold of any row whose best score is 0."""
    return like.new_full((rows, 1), -1.0)


def raise_threshold(simplex: Simplex, threshold: Tensor, visit: Visit) -> bool:
    """One Newton step of :func:`find_threshold`, which updates ``threshold``; whether it was the last."""
    total, number = torch.zeros_like(threshold), torch.zeros_like(threshold)
    for part, scores in visit():
        above = (scores if simplex == "sparsemax" else scores.mul_(0.5)).sub_(threshold[part]).clamp_(min=0)
        if simplex == "sparsemax":
            total[part] += above.sum(dim=1, keepdim=True)
            number[part] += above.sign_().sum(dim=1, keepdim=True)
        else:
            number[part] += above.sum(dim=1, keepdim=True)
            total[part] += above.square_().sum(dim=1, keepdim=True)
    if simplex == "entmax15":
        total = total.sqrt()
        number /= total
    rise = (total - 1) / number
    threshold += rise
    return bool((rise <= 4 * torch.finfo(threshold.dtype).eps).all())


def find_threshold(
    simplex: Simplex,
    visit: Visit,
    rows: int,
    like: Tensor,
    start: Tensor | None = None,
) -> Tensor:
    r"""Threshold ``[b, 1]`` of sparsemax, $\sum_j (s_j - \tau)_+ = 1$, or entmax15, $\|(s/2 - \tau)_+\|_2 = 1$.

    Both left sides are convex in the threshold, so Newton's method from a lower bound, where they are at least 1, rises
    to the root without passing it; each step is one pass over the bank.

    Args:
        simplex: "sparsemax" or "entmax15".
        visit: gives the scores of all blocks.
        rows: number of queries.
        like: a tensor of the dtype and device to compute in.
        start: ``[b, 1]``, a lower bound, which the threshold overwrites; None: -1.

    >>> scores = torch.tensor([[0.0, -0.5, -2.0]])
    >>> find_threshold("sparsemax", lambda: iter([(slice(None), scores.clone())]), 1, scores)
    tensor([[-0.7500]])
    """
    threshold = lowest_threshold(rows, like) if start is None else start
    for _ in range(PASSES):
        if raise_threshold(simplex, threshold, visit):
            break
    return threshold


class Candidates:
    """The scores of a pass that a sparse simplex map may give weight, as a narrow matrix.

    Args:
        simplex: "sparsemax" or "entmax15".
        threshold: ``[b, 1]``, a lower bound on that of each row.
        room: most entries to keep.

    >>> scores = torch.full((2, 20), -9.0)
    >>> scores[0, 3], scores[1, 1], scores[1, 5] = 0.0, 0.0, -0.5
    >>> candidates = Candidates("sparsemax", torch.full((2, 1), -1.0), room=8)
    >>> candidates.take(slice(0, 2), 0, scores)
    >>> candidates.matrix()
    (tensor([[ 0.0000,    -inf],
            [ 0.0000, -0.5000]]), tensor([[3, 0],
            [1, 5]]))
    """

    def __init__(self, simplex: Simplex, threshold: Tensor, room: int) -> None:
        self.least = threshold.clone() if simplex == "sparsemax" else 2 * threshold
        self.room = room
        self._every = torch.arange(len(threshold), device=threshold.device)
        self._filled = torch.zeros_like(self._every)
        self._parts: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []  # positions, scores, queries, how many of each

    def take(self, rows: slice | Tensor, start: int, scores: Tensor) -> None:
        """Keep the ``scores [r, B]`` that may have weight, of the queries ``rows`` and bank rows from ``start`` on."""
        if self.room < 0:
            return
        above = (scores > self.least[rows]).flatten()
        taken = int(above.count_nonzero())
        self.room = -1 if taken > _MANY * len(above) else self.room - taken
        if self.room >= 0:
            at = above.nonzero()[:, 0]
            line = at // scores.shape[1]
            count = line.bincount(minlength=len(scores))
            position = at - line * scores.shape[1] + start
            self._parts.append((position, scores.flatten().index_select(0, at), self._every[rows], count))
            self._filled[rows] += count

    def matrix(self) -> tuple[Tensor, Tensor] | None:
        """Scores and positions ``[b, m]`` in the order of the bank, padded with -inf and 0; None if too many."""
        if self.room < 0:
            return None
        width, taken = int(self._filled.amax()), int(self._filled.sum())
        if len(self.least) * width > 2 * taken + _NARROW:
            return None
        scores = self.least.new_full((len(self.least), width), -torch.inf)
        positions = torch.zeros(scores.shape, dtype=torch.int64, device=scores.device)
        first = self._every * width  # where the next of a row goes
        for position, score, rows, count in self._parts:
            begins = first[rows] - count.cumsum(0) + count
            flat = begins.repeat_interleave(count).add_(torch.arange(len(score), device=score.device))
            scores.view(-1).scatter_(0, flat, score)
            positions.view(-1).scatter_(0, flat, position)
            first[rows] += count
        return scores, positions


def ranked_threshold(ranked: Tensor) -> Tensor:
    r"""Threshold of sparsemax, $\sum_j (s_j - \tau)_+ = 1$, of sorted scores.

    Args:
        ranked: ``[..., k]``, descending, the first finite.

    Returns:
        ``[..., 1]``, with its gradient.

    >>> ranked_threshold(torch.tensor([[0.0, -0.5, -2.0]]))
    tensor([[-0.7500]])
    """
    excess = ranked.cumsum(-1) - 1
    count = torch.arange(1, ranked.shape[-1] + 1, device=ranked.device)
    number = (ranked * count > excess).sum(-1, keepdim=True)
    return excess.gather(-1, number - 1) / number
