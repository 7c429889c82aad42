"""Sums over scores, a block of rows at a time, so that the matrix of all scores is never held.

A block of rows stays in a processor's cache between the many steps of a formula, so blocks are also faster. Nothing of
a block is kept: it is computed again in the backward pass.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from vicinal.blockwise.blocks import row_slices

Values = Callable[..., tuple[Tensor, ...]]
"""``(scores [r, N], slice of the rows, *further tensors)``: what is kept of a block."""


Score = Callable[[Tensor, Tensor], Tensor]


def inner_products(queries: Tensor, columns: Tensor) -> Tensor:
    """Scores of vectors that are already normalized."""
    return queries @ columns.T


def recomputed(score: Score, values: Values, size: int, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Values of all blocks, joined along their first dimension.

    Args:
        score: :func:`inner_products`, or any similarity.
        values: of the rows of a block.
        size: rows of a block.
        tensors: queries ``[b, d]``, columns ``[N, d]``, and further arguments of ``values``.

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
