"""Simplex maps over a row that is never held whole: by sums that are added up block after block."""

import math
from collections.abc import Callable, Iterator
from typing import Literal

import torch
from torch import Tensor

Simplex = Literal["softmax", "sparsemax", "entmax15"]
Visit = Callable[[], Iterator[tuple[slice, Tensor]]]
"""Gives (queries, their masked scores relative to the best, ``[r, B]``) for all blocks of all queries."""

_LOG2E = 1 / math.log(2)

_PASSES = 60
"""Most passes for a threshold; Newton's method takes about ten."""


def exp_(values: Tensor) -> Tensor:
    """Exponential of values <= 0, over them; torch's exp2 is several times faster than its exp."""
    return values.mul_(_LOG2E).exp2_()


def simplex_weights(simplex: Simplex, scores: Tensor, threshold: Tensor | None) -> Tensor:
    """Weights, for "softmax" not yet divided by their sum; writes over ``scores [r, B]``, which are relative.

    >>> simplex_weights("sparsemax", torch.tensor([[0.0, -0.5, -2.0]]), torch.tensor([[-0.75]]))
    tensor([[0.7500, 0.2500, 0.0000]])
    """
    if threshold is None:
        return exp_(scores)
    if simplex == "sparsemax":
        return scores.sub_(threshold).clamp_(min=0)
    return scores.mul_(0.5).sub_(threshold).clamp_(min=0).square_()


def response(simplex: Simplex, weights: Tensor) -> Tensor:
    r"""How each weight answers to the scores: $r_j$ in $dp_j = r_j (ds_j - \sum_k r_k ds_k / \sum_k r_k)$."""
    if simplex == "softmax":
        return weights
    if simplex == "entmax15":
        return weights.sqrt()
    return (weights > 8 * torch.finfo(weights.dtype).eps).to(weights.dtype)  # a score on the threshold has weight 0


def find_threshold(
    simplex: Simplex,
    visit: Visit,
    rows: int,
    like: Tensor,
    counts: Tensor | None = None,
) -> Tensor:
    r"""Threshold ``[b, 1]`` of sparsemax, $\sum_j (s_j - \tau)_+ = 1$, or entmax15, $\|(s/2 - \tau)_+\|_2 = 1$.

    Both sides are convex in the threshold, so Newton's method from the left, where the sum is at least 1, rises to the
    root without passing it; each step is one pass over the bank.

    Args:
        simplex: "sparsemax" or "entmax15".
        visit: gives the scores of all blocks.
        rows: number of queries.
        like: a tensor of the dtype and device that is computed in.
        counts: how often each score of a visit of one block occurs; None: once.

    >>> scores = torch.tensor([[0.0, -0.5, -2.0]])
    >>> find_threshold("sparsemax", lambda: iter([(slice(None), scores.clone())]), 1, scores)
    tensor([[-0.7500]])
    """

    def add_up(values: Tensor) -> Tensor:
        return (values if counts is None else values * counts).sum(dim=1, keepdim=True)

    threshold = like.new_full((rows, 1), -1.0)
    for _ in range(_PASSES):
        total, number = torch.zeros_like(threshold), torch.zeros_like(threshold)
        for part, scores in visit():
            above = (scores if simplex == "sparsemax" else scores.mul_(0.5)).sub_(threshold[part]).clamp_(min=0)
            if simplex == "sparsemax":
                total[part] += add_up(above)
                number[part] += add_up(above.sign_())
            else:
                number[part] += add_up(above)
                total[part] += add_up(above.square_())
        if simplex == "entmax15":
            total = total.sqrt()
            number /= total
        rise = (total - 1) / number
        threshold += rise
        if bool((rise <= 4 * torch.finfo(like.dtype).eps).all()):
            break
    return threshold


def ranked_threshold(ranked: Tensor) -> Tensor:
    r"""Threshold of sparsemax, $\sum_j (s_j - \tau)_+ = 1$, of scores that are sorted and at hand.

    Args:
        ranked: ``[..., k]``, falling, the first finite.

    Returns:
        ``[..., 1]``, with its gradient.

    >>> ranked_threshold(torch.tensor([[0.0, -0.5, -2.0]]))
    tensor([[-0.7500]])
    """
    excess = ranked.cumsum(-1) - 1
    count = torch.arange(1, ranked.shape[-1] + 1, device=ranked.device)
    number = (ranked * count > excess).sum(-1, keepdim=True)
    return excess.gather(-1, number - 1) / number
