"""Weights of scores held in memory, by S2 and a simplex map, with a hand-written gradient.

Training spends most of its time here, and autograd would go through a dozen matrices. On a CPU, filling by a mask takes
several times as long as adding 0 or -inf, so the formulas add.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vicinal.blockwise.attention import tied
from vicinal.blockwise.blocks import Buffers, block_rows, row_slices
from vicinal.blockwise.resolution import Resolution
from vicinal.blockwise.softstep import S2Rows, unit_width
from vicinal.blockwise.thresholds import Simplex, find_threshold, response, simplex_weights


def mapped(simplex: Simplex, scores: Tensor) -> Tensor:
    """Weights of ``scores [b, N]``, which are overwritten; a row of only -inf gets weights 0.

    >>> mapped("entmax15", torch.tensor([[1.0, 1.0, -9.0]]))
    tensor([[0.5000, 0.5000, 0.0000]])
    """
    best = scores.amax(dim=-1, keepdim=True)
    closed = best == -torch.inf
    relative = scores.sub_(best.masked_fill_(closed, 0.0))
    if bool(closed.any()):
        relative.masked_fill_(closed, 0.0)
    if simplex == "softmax":
        weights = relative.softmax(dim=-1)
    else:
        memory = Buffers()

        def visit() -> Iterator[tuple[slice, Tensor]]:
            yield slice(None), memory.like("scores", relative).copy_(relative)

        weights = simplex_weights(simplex, relative, find_threshold(simplex, visit, len(relative), relative))
    return weights.masked_fill_(closed, 0.0) if bool(closed.any()) else weights


def scores_gradient(simplex: Simplex, weights: Tensor, gradient: Tensor) -> Tensor:
    """Gradient of the scores ``[..., N]`` from that of their ``weights``."""
    slope = response(simplex, weights)
    pull = gradient * slope
    total = slope.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(slope.dtype).tiny)
    return pull - slope * (pull.sum(dim=-1, keepdim=True) / total)


class _Step(NamedTuple):
    """Rows of scores under S2, evaluated: gaps to the best in [-1, 0], weights, and the range of each row."""

    gap: Tensor
    weights: Tensor
    high: Tensor
    low: Tensor
    zone: Tensor
    width: Tensor

    @classmethod
    def of(
        cls, simplex: Simplex, scores: Tensor, resolution: Resolution, barred: Tensor | None, b: Tensor, odds: Tensor
    ) -> "_Step":
        upper, lower = _sides(scores, barred)
        high, low = upper.amax(dim=-1, keepdim=True), lower.amin(dim=-1, keepdim=True)
        zone, equal = resolution.of(low, high), tied(resolution.of(high))
        width = unit_width(high - low, zone, inset=True)
        gap = torch.sub(scores, high).div_(width).clamp_(-1, 0)
        total = S2Rows(b, odds).log(gap, Buffers()).add_(upper)
        if bool((equal > 0).any()):  # scores this near to the best count as equal to it
            total.sub_((upper - high + equal).clamp_(min=0))
        return cls(gap, mapped(simplex, total), high, low, zone, width)


def _sides(scores: Tensor, barred: Tensor | None) -> tuple[Tensor, Tensor]:
    """Scores with those that are not admissible at -inf, and at inf."""
    return (scores, scores) if barred is None else (scores + barred, scores - barred)


class _Weights(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        formula: Callable[[Tensor, Tensor, Tensor], Tensor],
        simplex: Simplex,
        resolution: Resolution,
        barred: Tensor | None,
        scores: Tensor,
        b: Tensor,
        odds: Tensor,
    ) -> Tensor:
        step = _Step.of(simplex, scores, resolution, barred, b, odds)
        ctx.formula, ctx.simplex = formula, simplex
        ctx.save_for_backward(scores, b, odds, barred, *step)
        return step.weights

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        scores, b, odds, barred, gap, weights, high, low, zone, width = ctx.saved_tensors
        if torch.is_grad_enabled():
            sides = scores.view_as(scores), b.view_as(b), odds.view_as(odds)
            needed = ctx.needs_input_grad[4:]
            leaves = [side for side, want in zip(sides, needed, strict=True) if want]
            grads = iter(torch.autograd.grad(ctx.formula(*sides), leaves, gradients[0], create_graph=True))
            return None, None, None, None, *(next(grads) if want else None for want in needed)
        of_scores = scores_gradient(ctx.simplex, weights, gradients[0])
        of_gap, (of_b, of_odds) = S2Rows(b, odds).backward(gap, of_scores, Buffers())
        left = high - low - zone
        of_width = -torch.linalg.vecdot(of_gap, gap).unsqueeze(-1) / width
        of_width *= torch.where(width > left, -width / left.clamp(min=torch.finfo(left.dtype).tiny), 1.0)
        of_width.masked_fill_(width == torch.inf, 0.0)
        of_gap.div_(width)
        of_scores.add_(of_gap)
        upper, lower = _sides(scores, barred)
        of_high = of_width - of_gap.sum(dim=-1, keepdim=True)
        for side, end, of_end in ((upper, high, of_high), (lower, low, -of_width)):
            there = (side == end).to(of_scores.dtype)  # equal ones share what is pulled
            of_scores.addcmul_(there, of_end / there.sum(dim=-1, keepdim=True))
        return None, None, None, None, of_scores, of_b, of_odds


def s2_weights(
    formula: Callable[[Tensor, Tensor, Tensor], Tensor],
    simplex: Simplex,
    scores: Tensor,
    resolution: Resolution,
    allowed: Tensor | None,
    b: Tensor,
    odds: Tensor,
) -> Tensor:
    """Weights ``[b, N]`` of scores by S2 over the admissible rows, then ``simplex``.

    Args:
        formula: the same as a function of scores, b and odds, for second derivatives.
        simplex: "softmax", "sparsemax" or "entmax15".
        scores: ``[b, N]``, finite.
        resolution: of the scores.
        allowed: ``[b, N]``, which rows are admissible, at least one of each query; None: all.
        b: ``[b, 1]``, of the step.
        odds: ``[b, 1]``, t / (1 - t).
    """
    if torch.is_grad_enabled() and any(one.requires_grad for one in (scores, b, odds)):
        barred = None if allowed is None else allowed.to(scores.dtype).log_()
        weights: Tensor = _Weights.apply(formula, simplex, resolution, barred, scores, b, odds)  # type: ignore[no-untyped-call]
        return weights
    blocks = []
    for part in row_slices(len(scores), block_rows(len(scores), scores.shape[1], scores.device)):
        barred = None if allowed is None else allowed[part].to(scores.dtype).log_()
        blocks.append(_Step.of(simplex, scores[part], resolution.rows(part), barred, b[part], odds[part]).weights)
    return torch.cat(blocks)
