"""The range of each row: its lowest and its highest cost."""

from typing import NamedTuple

import torch
from torch import Tensor

from vicinal.blockwise.exclusion import Exclusion
from vicinal.blockwise.scores import BlockScores


class ScoreRange(NamedTuple):
    """Extremes ``[b]`` of each row, of products (see :class:`vicinal.blockwise.scores.Product`).

    The nearest admissible bank row, and the nearest and farthest that count for the range; infinite if there is none.
    """

    near: Tensor
    first: Tensor
    far: Tensor | None


def scan_range(scores: BlockScores, exclusion: Exclusion, *, far: bool, count_excluded: bool) -> ScoreRange:
    """Find the range of each row in one pass over the blocks.

    Args:
        scores: of b queries.
        exclusion: the pairs that are not admissible.
        far: find the farthest too.
        count_excluded: the range is over all bank rows, not only over admissible ones.
    """
    near = scores.queries.new_full((len(scores.queries),), torch.inf)
    first = near.clone() if count_excluded else near
    most = torch.full_like(near, -torch.inf) if far else None
    for block, rows in scores.everything():
        entries = exclusion.within(block.start, block.stop)
        values, lowest, _ = scores.product(rows, block)
        if count_excluded:
            first[rows] = torch.minimum(first[rows], lowest)
        if most is not None and entries is not None and not count_excluded:
            values = entries.fill(values, rows, -torch.inf)
        if most is not None:
            most[rows] = torch.maximum(most[rows], values.amax(dim=1))
        if entries is not None:
            lowest = entries.fill(values, rows, torch.inf).amin(dim=1)
        near[rows] = torch.minimum(near[rows], lowest)
    return ScoreRange(near, first, most)
