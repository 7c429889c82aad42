"""The k nearest bank rows of each query, a block at a time, without sorting the bank."""

from typing import NamedTuple

import torch
from torch import Tensor

from vicinal.blockwise.exclusion import Exclusion
from vicinal.blockwise.scores import BlockScores, Rows


class Nearest(NamedTuple):
    """Lowest products (see :class:`vicinal.blockwise.scores.Product`) ``[b, k]``, ascending, and their bank rows.

    If fewer than k rows are admissible, the remaining values are infinite.
    """

    values: Tensor
    positions: Tensor


class RunningTopK:
    """The k lowest values of each row and their columns, over blocks; starts with infinite values.

    >>> nearest = RunningTopK(torch.zeros(1, 1), 2)
    >>> for start, values in ((0, torch.tensor([[3.0, 1.0]])), (2, torch.tensor([[2.0, 5.0]]))):
    ...     nearest.update(slice(0, 1), values, start)
    >>> nearest.values, nearest.positions
    (tensor([[1., 2.]]), tensor([[1, 2]]))
    """

    def __init__(self, like: Tensor, k: int) -> None:
        self.values = like.new_full((len(like), k), torch.inf)  # [b, k], ascending
        self.positions = torch.zeros(self.values.shape, dtype=torch.int64, device=like.device)

    def update(self, rows: Rows, values: Tensor, start: int) -> None:
        """Add the ``values [r, B]`` of the queries ``rows``, for columns from ``start`` on."""
        k = self.values.shape[1]
        below = _below(values, self.values[rows, -1:], k)
        joined = torch.cat([self.values[rows], below.values], dim=1)
        lowest = joined.topk(k, dim=1, largest=False)
        self.values[rows] = lowest.values
        positions = torch.cat([self.positions[rows], below.positions + start], dim=1)
        self.positions[rows] = positions.gather(1, lowest.indices)


def topk(scores: BlockScores, exclusion: Exclusion, k: int) -> Nearest:
    """The ``k`` admissible bank rows of lowest cost, or all if there are fewer, in one pass over the bank."""
    nearest = RunningTopK(scores.queries, min(k, len(scores.bank)))
    for block, rows in scores.everything():
        product = scores.product(rows, block)
        if not bool((product.lowest < nearest.values[rows, -1]).any()):
            continue
        entries = exclusion.within(block.start, block.stop)
        values = product.values if entries is None else entries.fill(product.values, rows, torch.inf)
        nearest.update(rows, values, block.start)
    return Nearest(nearest.values, nearest.positions)


def _below(values: Tensor, limit: Tensor, k: int) -> Nearest:
    """Entries of ``values [r, B]`` below ``limit [r, 1]``, packed to the left, or at least the ``k`` lowest."""
    below = values < limit
    counts = below.sum(dim=1)
    most = int(counts.max())
    if most > k + values.shape[1] // 8:
        lowest = values.topk(min(k, values.shape[1]), dim=1, largest=False)
        return Nearest(lowest.values, lowest.indices)
    rows, columns = below.nonzero(as_tuple=True)
    slots = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows]
    packed = values.new_full((len(values), most), torch.inf)
    places = torch.zeros(packed.shape, dtype=torch.int64, device=values.device)
    packed[rows, slots] = values[rows, columns]
    places[rows, slots] = columns
    return Nearest(packed, places)
