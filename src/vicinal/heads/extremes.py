"""Row statistics of costs: lowest and highest of each row, where they stand, and the k lowest."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from vicinal.heads.candidates import Ends
from vicinal.heads.costs import Block, Costs, Product, Rows
from vicinal.heads.gradients import CostGradients
from vicinal.heads.hidden import Hidden, HiddenEntries
from vicinal.heads.pruning import Pruner

_HELD = 1 << 16
"""Entries that are held before positions and counts are brought up to them."""


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
        self._noted: list[tuple[Tensor, Tensor, Tensor]] = []
        self._held = 0
        self._settled = self.value.clone()

    def update(self, rows: Rows, values: Tensor, start: int, best: Tensor | None = None) -> None:
        """Take in ``values [r, B]`` of the queries ``rows``; ``best [r]`` if it is known already."""
        if best is None:
            best = values.amin(dim=1) if self.sign > 0 else values.amax(dim=1)
        if self.tracked:
            self._note(rows, values, start, best)
        self.value[rows] = (torch.minimum if self.sign > 0 else torch.maximum)(self.value[rows], best)
        if self._held > _HELD:
            self.settle()

    def _note(self, rows: Rows, values: Tensor, start: int, best: Tensor) -> None:
        """Hold on to the entries that may be the extreme: queries, bank rows and values ``[m]``."""
        before = self.value[rows]
        reached = (best <= before if self.sign > 0 else best >= before).nonzero()[:, 0]
        if len(reached) == 0:
            return
        which, columns = (values[reached] == best[reached, None]).nonzero(as_tuple=True)
        at = reached[which]
        self._noted.append((at + rows.start if isinstance(rows, slice) else rows[at], columns + start, best[at]))
        self._held += len(at)

    def settle(self) -> None:
        """Bring positions and counts up to the values; needed after the last block."""
        if not self._noted:
            return
        rows, columns, values = (torch.cat(parts) for parts in zip(*self._noted, strict=True))
        self._noted, self._held = [], 0
        same = (values == self.value[rows]) & values.isfinite()
        rows, columns = rows[same], columns[same]
        self.count[self.value != self._settled] = 0
        self._settled = self.value.clone()
        first = self.position.scatter_reduce(0, rows, columns, "amin", include_self=False)
        self.position = torch.where(self.count > 0, self.position, first)
        self.count += torch.bincount(rows, minlength=len(self.count))


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
    for extreme in found:
        if extreme is not None:
            extreme.settle()
    return found


def coarse_range(found: Ends, costs: Costs, *, tracked: bool) -> Range:
    """The same range from ends that were found in bfloat16 first and computed from differences."""
    near, far = (Extreme(costs.queries, sign, tracked=tracked) for sign in (1, -1))
    for end, value, position, count in zip((near, far), *found, strict=True):
        end.value, end.position, end.count = value, position, count
    return Range(near, near, far)


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
                gradients.costs.finish(product)
                back(same * share[rows, None])
        gradients.close()
