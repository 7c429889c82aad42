"""Sums of scores that are made a block of rows at a time, so that no matrix of all scores is ever held.

A block of rows stays in the caches of a processor between the many steps of a formula, so blocks are also faster.
:func:`sum_at_once` takes the gradient of a block together with its value, which costs no second computation;
:func:`recomputed` keeps nothing and computes a block again in the backward pass.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Values = Callable[..., tuple[Tensor, ...]]
"""Of scores ``[r, N]``, the slice of the rows, and further tensors: what is kept of a block."""

Score = Callable[[Tensor, Tensor], Tensor]

BLOCK = 1 << 18
"""Scores of a block on a CPU: a matrix of them and what is made of it stay in the caches of a core."""

WIDE_BLOCK = 1 << 24
"""The same on an accelerator, which has to be kept busy; about 4096 x 4096."""


TWICE = 8
"""So many times larger may a matrix be that is not cut where each block would have to be computed several times."""


def block_rows(rows: int, columns: int, device: torch.device, *, twice: bool = False) -> int:
    """Rows of a block: all of them if the matrix is no larger than a block (``twice``: than 8), at least 32.

    >>> block_rows(256, 256, torch.device("cpu")), block_rows(4096, 4096, torch.device("cpu"))
    (256, 64)
    """
    held = BLOCK if device.type == "cpu" else WIDE_BLOCK
    if rows * columns <= held * (TWICE if twice else 1):
        return max(1, rows)
    return min(rows, max(32, held // columns))


def parts(rows: int, size: int) -> list[slice]:
    """Slices of ``size`` rows; an empty one for no rows."""
    return [slice(start, min(rows, start + size)) for start in range(0, max(rows, 1), size)]


def inner_products(queries: Tensor, columns: Tensor) -> Tensor:
    """Scores of vectors that are scaled already; their gradient is two matrix products that are done in place."""
    return queries @ columns.T


class _Sides:
    """Queries and columns without their history, and their slopes while blocks are gone through."""

    def __init__(self, tensors: tuple[Tensor, ...], wanted: tuple[bool, ...]) -> None:
        self.queries, self.columns = tensors[0].detach(), tensors[1].detach()
        self.wanted = wanted  # of the queries, the columns, each of the extras
        self.extras = [each.detach().requires_grad_(want) for each, want in zip(tensors[2:], wanted[2:], strict=True)]
        self.slopes = [torch.zeros_like(each) if want else None for each, want in zip(tensors, wanted, strict=True)]

    def values(self, score: Score, values: Values, part: slice) -> tuple[tuple[Tensor, ...], list[Tensor]]:
        """What is kept of a block, and the leaves it was made of."""
        queries, columns = self.queries[part], self.columns
        with torch.set_grad_enabled(any(self.wanted)):
            if score is inner_products:
                scores = queries @ columns.T
                leaves = [scores.requires_grad_(any(self.wanted[:2]))]
            else:
                leaves = [queries.detach().requires_grad_(self.wanted[0]), columns.requires_grad_(self.wanted[1])]
                scores = score(*leaves)
            return values(scores, part, *self.extras), leaves + self.extras

    def back(self, outer: list[tuple[Tensor, Tensor]], leaves: list[Tensor], part: slice) -> None:
        """Add to the slopes, given those of values."""
        used, outer = [leaf for leaf in leaves if leaf.requires_grad], [each for each in outer if each[0].requires_grad]
        if not used or not outer:
            return
        made = iter(
            torch.autograd.grad([each for each, _ in outer], used, [slope for _, slope in outer], allow_unused=True)
        )
        slopes = [next(made) if leaf.requires_grad else None for leaf in leaves]
        if len(slopes) == len(self.slopes):
            places = [part, *[slice(None)] * (len(slopes) - 1)]
            for total, slope, place in zip(self.slopes, slopes, places, strict=True):
                if total is not None and slope is not None:
                    total[place] += slope
            return
        self._add_products(slopes[0], part)
        for total, slope in zip(self.slopes[2:], slopes[1:], strict=True):
            if total is not None and slope is not None:
                total += slope

    def _add_products(self, slope: Tensor | None, part: slice) -> None:
        of_queries, of_columns = self.slopes[:2]
        if slope is not None and of_queries is not None:
            torch.mm(slope, self.columns, out=of_queries[part])
        if slope is not None and of_columns is not None:
            of_columns.addmm_(slope.T, self.queries[part])


class _SumAtOnce(torch.autograd.Function):
    """The sum of the first value over a sum of the second, with the gradient of the first taken on the way."""

    @staticmethod
    def forward(ctx: Any, score: Score, values: Values, size: int, mean: bool, *tensors: Tensor) -> Tensor:  # noqa: FBT001
        sides = _Sides(tensors, ctx.needs_input_grad[4:])
        total = count = tensors[0].new_zeros(())
        for part in parts(len(tensors[0]), size):
            (value, number), leaves = sides.values(score, values, part)
            sides.back([(value, torch.ones_like(value))], leaves, part)
            total, count = total + value.detach().sum(), count + number.detach().sum()
        scale = 1 / torch.where(count > 0, count, 1.0) if mean else torch.ones_like(total)
        ctx.save_for_backward(*(each if each is None else each.mul_(scale) for each in sides.slopes))
        return total * scale

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        made = [each if each is None else each * slopes[0] for each in ctx.saved_tensors]
        return (None, None, None, None, *made)


class _Recomputed(torch.autograd.Function):
    """Values of all blocks, joined; the backward pass computes each block again."""

    @staticmethod
    def forward(ctx: Any, score: Score, values: Values, size: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        sides = _Sides(tensors, (False,) * len(tensors))
        made = [sides.values(score, values, part)[0] for part in parts(len(tensors[0]), size)]
        ctx.score, ctx.values, ctx.size = score, values, size
        ctx.lengths = [[len(each) for each in block] for block in made]
        ctx.save_for_backward(*tensors)
        joined = tuple(torch.cat(each) for each in zip(*made, strict=True))
        ctx.mark_non_differentiable(*(each for each in joined if not each.is_floating_point()))
        return joined

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        sides = _Sides(ctx.saved_tensors, ctx.needs_input_grad[3:])
        starts = [0] * len(slopes)
        for part, lengths in zip(parts(len(sides.queries), ctx.size), ctx.lengths, strict=True):
            kept, leaves = sides.values(ctx.score, ctx.values, part)
            outer = [
                (each, slope[start : start + length])
                for each, slope, start, length in zip(kept, slopes, starts, lengths, strict=True)
            ]
            starts = [start + length for start, length in zip(starts, lengths, strict=True)]
            sides.back(outer, leaves, part)
        return (None, None, None, *sides.slopes)


def _known(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Without history where no gradient is taken, so that none is made."""
    return tensors if torch.is_grad_enabled() else tuple(each.detach() for each in tensors)


def sum_at_once(score: Score, values: Values, size: int, *tensors: Tensor, mean: bool) -> Tensor:
    """Sum of the first of two values of all blocks, divided by that of the second for a mean.

    Args:
        score: :func:`inner_products`, or any similarity without parameters of its own.
        values: two values ``[r]`` of the rows of a block; the second passes no gradient.
        size: rows of a block.
        tensors: queries ``[b, d]``, columns ``[N, d]``, and what ``values`` takes beside, which may pass gradients.
        mean: divide.

    The result can be differentiated once.

    >>> x = torch.eye(2, requires_grad=True)
    >>> mean = sum_at_once(inner_products, lambda s, part: (s.sum(-1), torch.ones(len(s))), 1, x, x, mean=True)
    >>> float(mean.detach())
    1.0
    """
    result: Tensor = _SumAtOnce.apply(score, values, size, mean, *_known(tensors))  # type: ignore[no-untyped-call]
    return result


def recomputed(score: Score, values: Values, size: int, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Values of all blocks, joined along their first dimension; see :func:`sum_at_once`.

    >>> x = torch.eye(2)
    >>> recomputed(inner_products, lambda s, part: (s.amax(-1), s.sum()[None]), 1, x, x)
    (tensor([1., 1.]), tensor([1., 1.]))
    """
    result: tuple[Tensor, ...] = _Recomputed.apply(score, values, size, *_known(tensors))  # type: ignore[no-untyped-call]
    return result
