"""Terms of a row, one of its related columns, and every other column, without a matrix of all triplets."""

from collections.abc import Callable

import numpy
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

_BLOCK = 1 << 22
"""Elements of [rows, related columns, N] that are held at a time."""


def most_positives(positive: Tensor) -> int:
    """How many related columns the row has that has most."""
    return int((positive > 0).sum(-1).max()) if positive.numel() else 0


def first_positives(positive: Tensor) -> tuple[Tensor, Tensor]:
    """Weights and columns ``[b, P]`` of the related columns of each row, packed to the left; weights 0 beyond them."""
    found = positive.topk(min(max(1, most_positives(positive)), positive.shape[1]), dim=-1)
    return found.values, found.indices


def related_columns(positive: Tensor) -> tuple[Tensor, Tensor]:
    """As :func:`first_positives`, without gradient and in any order; several times quicker on a CPU.

    >>> related_columns(torch.tensor([[0.0, 1.0, 0.5], [0.0, 0.0, 0.0]]))
    (tensor([[1.0000, 0.5000],
            [0.0000, 0.0000]]), tensor([[1, 2],
            [0, 0]]))
    """
    if positive.device.type != "cpu" or not positive.numel():
        return first_positives(positive.detach())
    values = positive.detach().numpy()
    place = numpy.flatnonzero(values > 0)
    row, found = numpy.divmod(place, values.shape[1])
    number = numpy.bincount(row, minlength=len(values))
    nth = numpy.arange(len(place)) - (number.cumsum() - number)[row]
    column = numpy.zeros((len(values), max(1, int(number.max()))), numpy.int64)
    weight = numpy.zeros(column.shape, values.dtype)
    column[row, nth], weight[row, nth] = found, values[row, found]
    return torch.from_numpy(weight), torch.from_numpy(column)


def each_positive(
    terms: Callable[..., tuple[Tensor, ...]],
    scores: Tensor,
    positive: Tensor,
    *of_rows: Tensor,
    square: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Weights, terms and counts for the related columns of each row, packed to the left.

    Args:
        terms: called with ``s_p [c, P, 1]``, ``scores [c, 1, N]``, each of ``of_rows [c, 1, N]`` and, of ``square``,
            the rows of the related columns, ``[c, P, N]``; gives a term and a count, each ``[c, P]``.
        scores: ``[b, N]``.
        positive: ``[b, N]``, >= 0.
        of_rows: further matrices ``[b, N]``.
        square: ``[N, N]`` scores, where rows and columns are the same things.

    Returns:
        weights ``[b, P]`` (0 beyond the last related column of a row), terms and counts ``[b, P]``. Blocks of rows
        are computed again in the backward pass instead of being kept.
    """
    if square is not None and scores.shape[0] != scores.shape[1]:
        raise ValueError(f"scores: expected as many rows as columns, the same things, got {tuple(scores.shape)}")
    weight, column = first_positives(positive)
    own = scores.gather(1, column)

    def block(part: slice) -> tuple[Tensor, ...]:
        extra = [] if square is None else [square[column[part]]]
        rows = [matrix[part, None, :] for matrix in (scores, *of_rows)]
        return terms(own[part, :, None], *rows, *extra)

    whole = torch.compiler.is_compiling()  # the number of blocks would depend on the data, and steps are fused there
    step = len(scores) if whole else max(1, _BLOCK // max(1, weight.shape[1] * scores.shape[1]))
    if step >= len(scores):
        made = [block(slice(None))]
    else:
        parts = [slice(start, start + step) for start in range(0, len(scores), step)]
        made = [checkpoint(block, part, use_reentrant=False) for part in parts]
    value, count = (torch.cat([blocks[which] for blocks in made]) for which in (0, 1))
    return weight, value, count
