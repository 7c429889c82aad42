"""Exact pruning: blocks of the bank that cannot matter to a query are not scored for it.

Each run of rows lies in a ball about its mean, which bounds every cost of its rows. Bounds are tight only if
near rows stand together in the bank; :func:`vicinal.heads.arrange` gives an order in which they do.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from vicinal.heads.costs import Block, Costs, Rows
from vicinal.similarity import Cosine, Dot, NegativeL1, NegativeL2, NegativeSquaredL2

_BOUNDS = 1 << 22
"""Most bounds that are held; there are two for each query and block."""

_RUN = 128
"""Most rows of a block that share a ball."""

_JUMPS = 4
"""Longest steps from row to row of a block at which a new ball begins: one cluster may end and another start there."""

_WORTH = 0.7
"""Pruning is not tried if runs of rows are wider than this share of the bank, or queries must visit this share."""


@dataclass
class Visits:
    """How much of the scoring was done.

    Attributes:
        scored: pairs of a query and a block that were scored, over all passes.
        possible: pairs that there were.
    """

    scored: int = 0
    possible: int = 0

    @property
    def skipped(self) -> float:
        """Share of the pairs that was skipped, from 0 to 1."""
        return 1 - self.scored / self.possible if self.possible else 0.0


class Pruner:
    """Bounds ``low`` and ``high``, ``[b, blocks]``, of the costs between each query and the rows of each block."""

    def __init__(self, costs: Costs, low: Tensor, high: Tensor, visits: Visits) -> None:
        self.costs, self.low, self.high, self.visits = costs, low, high, visits

    def visit(self, needed: Callable[[int], Tensor]) -> Iterator[tuple[Block, Rows]]:
        """Blocks with the queries that need them: ``needed(block number)``, a boolean ``[b]``, asked block by block."""
        for number in range(self.low.shape[1]):
            rows = needed(number).nonzero()[:, 0]
            self.visits.scored += len(rows)
            if len(rows) == 0:
                continue
            block = self.costs.block(number * self.costs.chunk)
            tiles = [slice(i, min(i + self.costs.tile, len(rows))) for i in range(0, len(rows), self.costs.tile)]
            for part in tiles:
                yield block, part if len(rows) == len(self.low) else rows[part]

    def best(self, *, far: bool) -> Tensor:
        """Boolean ``[b, blocks]``: for each query the block that is surely near, and the one that is surely far."""
        chosen = torch.zeros_like(self.low, dtype=torch.bool)
        chosen.scatter_(1, self.high.argmin(dim=1, keepdim=True), value=True)
        if far:
            chosen.scatter_(1, self.low.argmax(dim=1, keepdim=True), value=True)
        return chosen


def make_pruner(costs: Costs, visits: Visits) -> Pruner | None:
    """Bounds for ``costs``, or None if there are none for its similarity, too many, or too loose to be of use."""
    blocks = -(-len(costs.bank) // costs.chunk)
    kind = type(costs.similarity)
    if blocks < 4 or blocks * len(costs.queries) > _BOUNDS or kind not in _BALLS or _scattered(costs):
        return None
    low, high = _BALLS[kind](costs)
    if float((low <= high.amin(dim=1, keepdim=True)).float().mean()) > _WORTH:
        return None
    costs.local = costs.factors is not None and costs.factors.cancels
    return Pruner(costs, low, high, visits)


def _scattered(costs: Costs) -> bool:
    """Whether runs of rows, here and there in the bank, are as wide as the bank: then no bound can be of use."""
    starts = range(0, len(costs.bank), costs.chunk)
    some = [costs.bank[start : start + _RUN].to(costs.dtype) for start in starts[:: max(1, len(starts) // 8)]]
    within = torch.stack([run.var(dim=0, correction=0).sum() for run in some]).median()
    return float(within) > _WORTH**2 * float(torch.cat(some).var(dim=0, correction=0).sum())


def _bounds_like(costs: Costs) -> Tensor:
    return costs.queries.new_zeros(len(costs.queries), -(-len(costs.bank) // costs.chunk))


def _balls(costs: Costs, p: float, *, features: bool) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Number of each block, with centers ``[m, e]`` and radii ``[m]`` of its runs of rows, in the norm ``p``."""
    for number, block in enumerate(costs.blocks()):
        rows = block.features if features else block.rows - costs.center
        jumps = torch.linalg.vector_norm(rows[1:] - rows[:-1], ord=p, dim=1)
        starts = torch.zeros(len(rows), dtype=torch.int64, device=rows.device)
        starts[_RUN::_RUN] = 1
        starts[jumps.topk(min(_JUMPS, len(jumps))).indices + 1] = 1
        run = starts.cumsum(0)  # [B], the number of each row's run
        count = int(run[-1]) + 1
        sizes = torch.bincount(run, minlength=count)[:, None]
        centers = rows.new_zeros(count, rows.shape[1]).index_add_(0, run, rows) / sizes
        away = torch.linalg.vector_norm(rows - centers[run], ord=p, dim=1)
        yield number, centers, away.new_zeros(count).scatter_reduce_(0, run, away, "amax")


def _of_distances(costs: Costs) -> tuple[Tensor, Tensor]:
    queries = costs.queries - costs.center
    low, high = _bounds_like(costs), _bounds_like(costs)
    p = 1.0 if type(costs.similarity) is NegativeL1 else 2.0
    size = torch.linalg.vector_norm(queries, ord=p, dim=1)[:, None]
    eps = torch.finfo(costs.dtype).eps
    for number, centers, radii in _balls(costs, p, features=False):
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
    return (low.square(), high.square()) if type(costs.similarity) is NegativeSquaredL2 else (low, high)


def _of_products(costs: Costs) -> tuple[Tensor, Tensor]:
    low, high = _bounds_like(costs), _bounds_like(costs)
    lengths = torch.linalg.vector_norm(costs.features, dim=1)[:, None]
    eps = torch.finfo(costs.dtype).eps
    for number, centers, radii in _balls(costs, 2.0, features=True):
        to_center = costs.features @ centers.T
        reach = lengths * (radii + 64 * eps * (torch.linalg.vector_norm(centers, dim=1) + radii))
        low[:, number], high[:, number] = (to_center - reach).amin(dim=1), (to_center + reach).amax(dim=1)
    return low, high


_BALLS: dict[type, Callable[[Costs], tuple[Tensor, Tensor]]] = {
    NegativeL1: _of_distances,
    NegativeL2: _of_distances,
    NegativeSquaredL2: _of_distances,
    Cosine: _of_products,
    Dot: _of_products,
}
