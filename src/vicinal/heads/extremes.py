"""Row statistics of costs: lowest and highest of each row, where they stand, and the k lowest."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from vicinal.heads.costs import Block, Costs, Product, Rows
from vicinal.heads.gradients import CostGradients
from vicinal.heads.hidden import Hidden, HiddenEntries
from vicinal.heads.pruning import Pruner


class Extreme:
    """Running minimum (sign 1) or maximum (sign -1) of each row, over blocks.

    Attributes:
        value: ``[b]``, of products (see :class:`vicinal.heads.costs.Product`); infinite while nothing counted.
        position: ``[b]``, first bank row that has it; kept only if ``tracked``.
        count: ``[b]``, how many bank rows have it; likewise.
    """

    def __init__(self, like: Tensor, sign: int, *, tracked: bool) -> None:
        self.sign, self.tracked = sign, tracked
        self.value = like.new_full((len(like),), sign * torch.inf)
        self.position = torch.zeros(len(like), dtype=torch.int64, device=like.device)
        self.count = torch.zeros_like(self.position)

    def update(self, rows: Rows, values: Tensor, start: int, best: Tensor | None = None) -> None:
        """Take in ``values [r, B]`` of the queries ``rows``; ``best [r]`` if it is known already."""
        if best is None:
            best = values.amin(dim=1) if self.sign > 0 else values.amax(dim=1)
        if self.tracked:
            self._track(rows, values, start, best)
        self.value[rows] = (torch.minimum if self.sign > 0 else torch.maximum)(self.value[rows], best)

    def _track(self, rows: Rows, values: Tensor, start: int, best: Tensor) -> None:
        before = self.value[rows]
        better = (best < before if self.sign > 0 else best > before).nonzero()[:, 0]
        equal = ((best == before) & best.isfinite()).nonzero()[:, 0]
        position, count = self.position[rows], self.count[rows]
        if len(better):
            same = values[better] == best[better, None]
            position[better] = start + same.int().argmax(dim=1)
            count[better] = same.sum(dim=1)
        if len(equal):
            count[equal] += (values[equal] == best[equal, None]).sum(dim=1)
        self.position[rows], self.count[rows] = position, count


class Range(NamedTuple):
    """Costs ``[b]`` of each row: of the nearest admissible bank row, and of the nearest and farthest counted one."""

    near: Extreme
    first: Extreme
    far: Extreme | None


def scan(
    costs: Costs, hidden: Hidden, *, far: bool, count_hidden: bool, tracked: bool, pruner: Pruner | None = None
) -> Range:
    """Pass over the blocks for the range of each row.

    Args:
        costs: of b queries.
        hidden: what is not admissible.
        far: find the farthest too.
        count_hidden: nearest and farthest are over all bank rows, not over admissible ones.
        tracked: keep positions and counts.
        pruner: skip blocks in which neither end of the range can lie.
    """
    near = Extreme(costs.queries, 1, tracked=tracked)
    first = Extreme(costs.queries, 1, tracked=tracked) if count_hidden else near
    farthest = Extreme(costs.queries, -1, tracked=tracked) if far else None
    found = Range(near, first, farthest)
    for block, rows in costs.everything() if pruner is None else _toward_ends(pruner, found):
        entries = hidden.within(block.start, block.stop)
        _scan_block(costs.product(rows, block), rows, block, entries, found)
    return found


def _toward_ends(pruner: Pruner, found: Range) -> Iterator[tuple[Block, Rows]]:
    """First the most promising blocks of each query, then those that may still widen the range that is ``found``."""
    best = pruner.best(far=found.far is not None)
    pruner.visits.possible += best.numel()
    yield from pruner.visit(lambda number: best[:, number])

    def may_widen(number: int) -> Tensor:
        wanted = pruner.low[:, number] <= pruner.costs.finish_rows(found.near.value)
        if found.far is not None:
            wanted |= pruner.high[:, number] >= pruner.costs.finish_rows(found.far.value)
        return wanted & ~best[:, number]

    yield from pruner.visit(may_widen)


def _scan_block(product: Product, rows: Rows, block: Block, entries: HiddenEntries | None, found: Range) -> None:
    values, lowest = product.values, product.lowest
    if entries is None or found.first is not found.near:
        found.first.update(rows, values, block.start, lowest)
        if found.far is not None:
            found.far.update(rows, values, block.start)
    if entries is None:
        if found.first is not found.near:
            found.near.update(rows, values, block.start, lowest)
        return
    if found.first is found.near and found.far is not None:
        found.far.update(rows, entries.fill(values, rows, -torch.inf), block.start)
    found.near.update(rows, entries.fill(values, rows, torch.inf), block.start)


def spread(gradients: CostGradients, hidden: Hidden | None, extreme: Extreme, gradient: Tensor) -> None:
    """Hand the gradient ``[b]`` of a row statistic to the bank rows that have it, in equal shares.

    Args:
        gradients: where to.
        hidden: entries that did not count, or None if all did.
        extreme: the statistic, tracked.
        gradient: of the cost that ``extreme`` holds.
    """
    single = ((gradient != 0) & (extreme.count == 1)).nonzero()[:, 0]
    gradients.add_pairs(single, extreme.position[single], gradient[single])
    share = torch.where(extreme.count > 1, gradient / extreme.count.clamp(min=1), 0.0)
    tiles = [rows for rows in gradients.costs.tiles() if bool((share[rows] != 0).any())]
    if not tiles:
        return
    for block in gradients.costs.blocks():
        entries = None if hidden is None else hidden.within(block.start, block.stop)
        gradients.open(block)
        for rows in tiles:
            product, back = gradients.tracked(rows)
            same = product.values == extreme.value[rows, None]
            if entries is not None:
                same = entries.fill(same, rows, 0.0)
            if bool(same.any()):
                back(gradients.costs.finish(product), same * share[rows, None])
        gradients.close()
