"""Sums over scores, a block of rows at a time, so that the matrix of all scores is never held.

A block of rows stays in a processor's cache between the many steps of a formula, so blocks are also faster.
:func:`sum_at_once` computes the gradient of a block together with its value, without a second computation;
:func:`recomputed` keeps nothing and computes a block again in the backward pass.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from vicinal.blockwise.blocks import row_slices

Values = Callable[..., tuple[Tensor, ...]]
"""``(scores [r, N], slice of the rows, *further tensors)``: what is kept of a block."""


Score = Callable[[Tensor, Tensor], Tensor]


def inner_products(queries: Tensor, columns: Tensor) -> Tensor:
    """Scores of vectors that are already normalized; the gradient is two matrix products, done in place."""
    return queries @ columns.T


class _Sides:
    """Detached queries and columns, and their slopes, which grow block by block."""

    def __init__(self, tensors: tuple[Tensor, ...], needed: tuple[bool, ...]) -> None:
        self.queries, self.columns = tensors[0].detach(), tensors[1].detach()
        self.needed = needed  # of the queries, the columns, each of the extras
        self.extras = [each.detach().requires_grad_(want) for each, want in zip(tensors[2:], needed[2:], strict=True)]
        self.slopes = [torch.zeros_like(each) if want else None for each, want in zip(tensors, needed, strict=True)]

    def values(self, score: Score, values: Values, part: slice) -> tuple[tuple[Tensor, ...], list[Tensor]]:
        """What is kept of a block, and the leaves it was made of."""
        queries, columns = self.queries[part], self.columns
        with torch.set_grad_enabled(any(self.needed)):
            if score is inner_products:
                scores = queries @ columns.T
                leaves = [scores.requires_grad_(any(self.needed[:2]))]
            else:
                leaves = [queries.detach().requires_grad_(self.needed[0]), columns.requires_grad_(self.needed[1])]
                scores = score(*leaves)
            return values(scores, part, *self.extras), leaves + self.extras

    def back(self, outer: list[tuple[Tensor, Tensor]], leaves: list[Tensor], part: slice) -> None:
        """Add to the slopes, given those of values."""
        used, outer = [leaf for leaf in leaves if leaf.requires_grad], [each for each in outer if each[0].requires_grad]
        if not used or not outer:
            return
        grads = iter(
            torch.autograd.grad([each for each, _ in outer], used, [slope for _, slope in outer], allow_unused=True)
        )
        slopes = [next(grads) if leaf.requires_grad else None for leaf in leaves]
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
        for part in row_slices(len(tensors[0]), size):
            (value, number), leaves = sides.values(score, values, part)
            sides.back([(value, torch.ones_like(value))], leaves, part)
            total, count = total + value.detach().sum(), count + number.detach().sum()
        scale = 1 / torch.where(count > 0, count, 1.0) if mean else torch.ones_like(total)
        ctx.save_for_backward(*(each if each is None else each.mul_(scale) for each in sides.slopes))
        return total * scale

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        grads = [each if each is None else each * slopes[0] for each in ctx.saved_tensors]
        return (None, None, None, None, *grads)


def sum_at_once(score: Score, values: Values, size: int, *tensors: Tensor, mean: bool) -> Tensor:
    """Sum over all blocks of the first of two values, for a mean divided by the sum of the second.

    The result can be differentiated once.

    Args:
        score: :func:`inner_products`, or any similarity without parameters of its own.
        values: gives two values ``[r]`` of the rows of a block; the second passes no gradient.
        size: rows of a block.
        tensors: queries ``[b, d]``, columns ``[N, d]``, and further arguments of ``values``, which may get gradients.
        mean: divide.

    >>> x = torch.eye(2, requires_grad=True)
    >>> mean = sum_at_once(inner_products, lambda s, part: (s.sum(-1), torch.ones(len(s))), 1, x, x, mean=True)
    >>> float(mean.detach())
    1.0
    """
    known = tensors if torch.is_grad_enabled() else tuple(each.detach() for each in tensors)
    result: Tensor = _SumAtOnce.apply(score, values, size, mean, *known)  # type: ignore[no-untyped-call]
    return result


def recomputed(score: Score, values: Values, size: int, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Values of all blocks, joined along their first dimension; see :func:`sum_at_once`.

    >>> x = torch.eye(2)
    >>> recomputed(inner_products, lambda s, part: (s.amax(-1), s.sum()[None]), 1, x, x)
    (tensor([1., 1.]), tensor([1., 1.]))
    """
    queries, columns, *extras = tensors

    def block(part: slice) -> tuple[Tensor, ...]:
        return values(score(queries[part], columns), part, *extras)

    blocks = [checkpoint(block, part, use_reentrant=False) for part in row_slices(len(queries), size)]
    return tuple(torch.cat(each) for each in zip(*blocks, strict=True))


def coded(labels: Tensor, bank_labels: Tensor) -> tuple[Tensor, Tensor]:
    """Labels as small whole numbers in a floating dtype, equal where the labels are.

    >>> coded(torch.tensor([900, 5]), torch.tensor([5, 7]))
    (tensor([2., 0.]), tensor([0., 1.]))
    """
    values, code = torch.unique(
        labels if labels is bank_labels else torch.cat([labels, bank_labels]), return_inverse=True
    )
    dtype = torch.float32 if len(values) < 1 << 24 else torch.float64
    code = code.to(dtype)
    return (code, code) if labels is bank_labels else (code[: len(labels)], code[len(labels) :])


def equal_codes(codes: Tensor, bank_codes: Tensor, dtype: torch.dtype) -> Tensor:
    """1 where codes are equal, else 0, ``[b, N]``; by arithmetic, several times faster than a comparison on a CPU.

    >>> equal_codes(torch.tensor([2.0, 0.0]), torch.tensor([0.0, 1.0]), torch.float32)
    tensor([[0., 0.],
            [1., 0.]])
    """
    return (1 - (codes[:, None] - bank_codes).abs_()).clamp_(min=0).to(dtype)


def others(rows: int, columns: int, start: int, like: Tensor) -> Tensor:
    """1, but 0 where row i meets itself, in column ``start + i``; ``[rows, columns]``.

    >>> others(2, 3, 1, torch.zeros(1))
    tensor([[1., 0., 1.],
            [1., 1., 0.]])
    """
    weight = like.new_ones(rows, columns)
    weight.diagonal(start).zero_()
    return weight
