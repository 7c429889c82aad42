"""Sorted rows: ranks, sums above thresholds, and related columns packed to the left."""

from collections.abc import Callable

import numpy
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from vicinal.blockwise.blocks import policy, row_slices

_LOW = 0x7FFFFFFF


def sort_rows(values: Tensor) -> tuple[Tensor, Tensor]:
    """Values of each row in ascending order, and their columns; equal ones stay in column order, but for -0 and 0.

    On a CPU, numpy sorts float32 as integers that carry their column, which is an order of magnitude faster.

    >>> sort_rows(torch.tensor([[0.5, -1.0, 0.25]]))
    (tensor([[-1.0000,  0.2500,  0.5000]]), tensor([[1, 2, 0]]))
    """
    values = values.detach()
    if values.dtype != torch.float32 or values.device.type != "cpu" or torch.compiler.is_compiling():
        ordered = values.sort(dim=-1, stable=True)
        return ordered.values, ordered.indices
    bits = values.contiguous().numpy().view(numpy.int32)
    rising = numpy.right_shift(bits, 31)
    rising &= _LOW
    rising ^= bits  # negative floats fall as their bits rise
    keys = rising.astype(numpy.int64)
    keys <<= 32
    keys |= numpy.arange(values.shape[-1])
    keys.sort(axis=-1)
    keys &= 0xFFFFFFFF
    order = torch.from_numpy(keys)
    return values.gather(-1, order), order


def mean_ranks(rising: Tensor) -> Tensor:
    """Ranks, from 1, of the values of each row, which must ascend; equal ones get their mean rank.

    >>> mean_ranks(torch.tensor([[0.5, 0.5, 2.0]]))
    tensor([[1.5000, 1.5000, 3.0000]])
    """
    columns = rising.shape[-1]
    rank = torch.arange(1, columns + 1, dtype=rising.dtype, device=rising.device).expand_as(rising)
    change = rising[:, 1:] != rising[:, :-1]
    if not torch.compiler.is_compiling() and bool(change.all()):
        return rank
    edge = change.new_ones(len(change), 1)
    first = torch.where(torch.cat([edge, change], dim=1), rank, 0.0).cummax(dim=-1).values
    last = torch.where(torch.cat([change, edge], dim=1), rank, torch.inf).flip(-1).cummin(dim=-1).values.flip(-1)
    return (first + last) / 2


def most_positives(positive: Tensor) -> int:
    """The largest number of related columns of any row."""
    return int((positive > 0).sum(-1).max()) if positive.numel() else 0


def first_positives(positive: Tensor) -> tuple[Tensor, Tensor]:
    """Weights and columns ``[b, P]`` of the related columns of each row, packed to the left; weights 0 beyond them."""
    top = positive.topk(min(max(1, most_positives(positive)), positive.shape[1]), dim=-1)
    return top.values, top.indices


def each_positive(
    terms: Callable[..., tuple[Tensor, ...]],
    scores: Tensor,
    positive: Tensor,
    *of_rows: Tensor,
    gathered: tuple[Tensor, ...] = (),
    square: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Weights, terms and counts for the related columns of each row, packed to the left.

    Blocks of rows are computed again in the backward pass instead of being kept.

    Args:
        terms: called with ``s_p [c, P, 1]``, ``gathered`` at p likewise, ``scores [c, 1, N]``, each of ``of_rows
            [c, 1, N]`` and, if there is a ``square``, its rows of the related columns, ``[c, P, N]``; gives a term and
            a count, each ``[c, P]``.
        scores: ``[b, N]``.
        positive: ``[b, N]``, >= 0.
        of_rows: further matrices ``[b, N]``.
        gathered: likewise.
        square: scores ``[N, N]``, if rows and columns are the same things.

    Returns:
        weights ``[b, P]`` (0 beyond the last related column of a row), terms and counts ``[b, P]``.
    """
    if square is not None and scores.shape[0] != scores.shape[1]:
        raise ValueError(f"scores: expected as many rows as columns, the same things, got {tuple(scores.shape)}")
    weight, column = first_positives(positive)
    at_related = [matrix.gather(1, column) for matrix in (scores, *gathered)]

    def block(part: slice) -> tuple[Tensor, ...]:
        extra = [] if square is None else [square[column[part]]]
        rows = [matrix[part, None, :] for matrix in (scores, *of_rows)]
        return terms(*(each[part, :, None] for each in at_related), *rows, *extra)

    whole = torch.compiler.is_compiling()  # the number of blocks would depend on the data, and steps are fused there
    step = len(scores) if whole else max(1, policy().memory_entries // max(1, weight.shape[1] * scores.shape[1]))
    if step >= len(scores):
        results = [block(slice(None))]
    else:
        results = [checkpoint(block, part, use_reentrant=False) for part in row_slices(len(scores), step)]
    value, count = (torch.cat([blocks[which] for blocks in results]) for which in (0, 1))
    return weight, value, count
