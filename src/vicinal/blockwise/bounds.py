"""Exact pruning: blocks of the bank that cannot matter to a query are not scored for it.

Each run of rows lies in a ball around its mean, which bounds the costs of all its rows. Bounds are tight only if
similar rows are adjacent in the bank, for example if it was filled group by group; otherwise they are not used.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from vicinal.blockwise.blocks import count, policy, row_slices
from vicinal.blockwise.scores import Block, BlockScores, Rows

_JUMPS = 4
"""How many of the largest jumps between successive rows of a block start a new ball, as a cluster may end there."""

_WORTH = 0.7
"""There is no pruning if runs of rows are wider than this share of the bank, or queries must visit more than that."""


class Pruner:
    """Bounds ``low`` and ``high``, ``[b, blocks]``, of the costs between each query and the rows of each block."""

    def __init__(self, scores: BlockScores, low: Tensor, high: Tensor) -> None:
        self.scores, self.low, self.high = scores, low, high

    def visit(self, needed: Callable[[int], Tensor]) -> Iterator[tuple[Block, Rows]]:
        """Blocks with the queries that need them, by ``needed(block number)``, a boolean ``[b]``."""
        for number in range(self.low.shape[1]):
            rows = needed(number).nonzero()[:, 0]
            count(scored=len(rows))
            if len(rows) == 0:
                continue
            block = self.scores.block(number * self.scores.chunk)
            for part in row_slices(len(rows), self.scores.tile):
                yield block, part if len(rows) == len(self.low) else rows[part]

    def best(self, *, far: bool) -> Tensor:
        """Boolean ``[b, blocks]``: each query's block of least ``high`` and, if ``far``, that of greatest ``low``."""
        chosen = torch.zeros_like(self.low, dtype=torch.bool)
        chosen.scatter_(1, self.high.argmin(dim=1, keepdim=True), value=True)
        if far:
            chosen.scatter_(1, self.low.argmax(dim=1, keepdim=True), value=True)
        return chosen


def make_pruner(scores: BlockScores) -> Pruner | None:
    """Bounds for ``scores``, or None if there are none for its similarity, too many, or too loose to be of use."""
    blocks = -(-len(scores.bank) // scores.chunk)
    bound, most = scores.kernel.bound, policy().memory_entries
    if blocks < 4 or blocks * len(scores.queries) > most or bound is None or _scattered(scores):
        return None
    low, high = _of_products(scores) if bound == "product" else _of_distances(scores, bound)
    if float((low <= high.amin(dim=1, keepdim=True)).float().mean()) > _WORTH:
        return None
    scores.centers_blocks = scores.factors is not None and scores.factors.cancels
    return Pruner(scores, low, high)


def _scattered(scores: BlockScores) -> bool:
    """Whether some runs of rows, sampled over the bank, are about as wide as the bank: then bounds cannot help."""
    starts = range(0, len(scores.bank), scores.chunk)
    run_rows = policy().ball_rows
    some = [scores.bank[start : start + run_rows].to(scores.dtype) for start in starts[:: max(1, len(starts) // 8)]]
    within = torch.stack([run.var(dim=0, correction=0).sum() for run in some]).median()
    return float(within) > _WORTH**2 * float(torch.cat(some).var(dim=0, correction=0).sum())


def _bounds_like(scores: BlockScores) -> Tensor:
    return scores.queries.new_zeros(len(scores.queries), -(-len(scores.bank) // scores.chunk))


def _balls(scores: BlockScores, p: float, *, features: bool) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Number of each block, with centers ``[m, e]`` and radii ``[m]`` of its runs of rows, in the norm ``p``."""
    for number, block in enumerate(scores.blocks()):
        rows = block.features if features else block.rows - scores.center
        jumps = torch.linalg.vector_norm(rows[1:] - rows[:-1], ord=p, dim=1)
        starts = torch.zeros(len(rows), dtype=torch.int64, device=rows.device)
        starts[policy().ball_rows :: policy().ball_rows] = 1
        starts[jumps.topk(min(_JUMPS, len(jumps))).indices + 1] = 1
        run = starts.cumsum(0)  # [B], the number of each row's run
        count = int(run[-1]) + 1
        sizes = torch.bincount(run, minlength=count)[:, None]
        centers = rows.new_zeros(count, rows.shape[1]).index_add_(0, run, rows) / sizes
        away = torch.linalg.vector_norm(rows - centers[run], ord=p, dim=1)
        yield number, centers, away.new_zeros(count).scatter_reduce_(0, run, away, "amax")


def _of_distances(scores: BlockScores, bound: str) -> tuple[Tensor, Tensor]:
    queries = scores.queries - scores.center
    low, high = _bounds_like(scores), _bounds_like(scores)
    p = 1.0 if bound == "l1" else 2.0
    size = torch.linalg.vector_norm(queries, ord=p, dim=1)[:, None]
    eps = torch.finfo(scores.dtype).eps
    for number, centers, radii in _balls(scores, p, features=False):
        reach = torch.linalg.vector_norm(centers, ord=p, dim=1)
        slack = 64 * eps * (size + reach + radii)
        if p == 1.0:
            nearest = farthest = torch.cdist(queries, centers, p=p)
        else:
            squared = size.square() + reach.square() - 2 * queries @ centers.T
            rounding = 16 * eps * (size.square() + reach.square())
            nearest, farthest = (squared - rounding).clamp(min=0).sqrt(), (squared + rounding).clamp(min=0).sqrt()
        low[:, number] = (nearest - radii - slack).amin(dim=1).clamp(min=0)
        high[:, number] = (farthest + radii + slack).amax(dim=1)
    return (low.square(), high.square()) if bound == "squared_l2" else (low, high)


def _of_products(scores: BlockScores) -> tuple[Tensor, Tensor]:
    low, high = _bounds_like(scores), _bounds_like(scores)
    lengths = torch.linalg.vector_norm(scores.features, dim=1)[:, None]
    eps = torch.finfo(scores.dtype).eps
    for number, centers, radii in _balls(scores, 2.0, features=True):
        to_center = scores.features @ centers.T
        reach = lengths * (radii + 64 * eps * (torch.linalg.vector_norm(centers, dim=1) + radii))
        low[:, number], high[:, number] = (to_center - reach).amin(dim=1), (to_center + reach).amax(dim=1)
    return low, high
