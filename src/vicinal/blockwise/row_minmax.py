"""The range of each row: its lowest and its highest cost, which bank rows have them, and how many do."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from vicinal.blockwise.blocks import count, policy
from vicinal.blockwise.bounds import Pruner
from vicinal.blockwise.exclusion import ExcludedEntries, Exclusion
from vicinal.blockwise.scores import Block, BlockScores, Product, Rows


class RunningExtreme:
    """Running minimum (sign 1) or maximum (sign -1) of each row, over blocks.

    Attributes:
        value: ``[b]``, of products (see :class:`vicinal.blockwise.scores.Product`); infinite if nothing has counted.
        position: ``[b]``, first bank row that has it; only if ``tracked``.
        count: ``[b]``, how many bank rows have it; only if ``tracked``.
    """

    sign = 1

    def __init__(self, like: Tensor, *, tracked: bool) -> None:
        self.tracked = tracked
        self.value = like.new_full((len(like),), self.sign * torch.inf)
        self.position = torch.zeros(len(like), dtype=torch.int64, device=like.device)
        self.count = torch.zeros_like(self.position)
        self._noted: list[tuple[Tensor, Tensor, Tensor]] = []
        self._pending = 0
        self._settled = self.value.clone()

    def update(self, rows: Rows, values: Tensor, start: int, best: Tensor | None = None) -> None:
        """Add the ``values [r, B]`` of the queries ``rows``, for bank rows from ``start`` on; ``best [r]`` if known."""
        if best is None:
            best = values.amin(dim=1) if self.sign > 0 else values.amax(dim=1)
        if self.tracked:
            self._note(rows, values, start, best)
        self.value[rows] = (torch.minimum if self.sign > 0 else torch.maximum)(self.value[rows], best)
        if self._pending > policy().scan_entries:
            self.settle()

    def _note(self, rows: Rows, values: Tensor, start: int, best: Tensor) -> None:
        """Note the entries that may be the extreme: queries, bank rows and values ``[m]``."""
        before = self.value[rows]
        reached = (best <= before if self.sign > 0 else best >= before).nonzero()[:, 0]
        if len(reached) == 0:
            return
        which, columns = (values[reached] == best[reached, None]).nonzero(as_tuple=True)
        at = reached[which]
        self._noted.append((at + rows.start if isinstance(rows, slice) else rows[at], columns + start, best[at]))
        self._pending += len(at)

    def settle(self) -> None:
        """Bring positions and counts up to date; needed after the last block."""
        if not self._noted:
            return
        rows, columns, values = (torch.cat(parts) for parts in zip(*self._noted, strict=True))
        self._noted, self._pending = [], 0
        same = (values == self.value[rows]) & values.isfinite()
        rows, columns = rows[same], columns[same]
        self.count[self.value != self._settled] = 0
        self._settled = self.value.clone()
        first = self.position.scatter_reduce(0, rows, columns, "amin", include_self=False)
        self.position = torch.where(self.count > 0, self.position, first)
        self.count += torch.bincount(rows, minlength=len(self.count))


class RunningMin(RunningExtreme):
    """Running minimum; see :class:`RunningExtreme`."""


class RunningMax(RunningExtreme):
    """Running maximum; see :class:`RunningExtreme`."""

    sign = -1


class ScoreRange(NamedTuple):
    """Extremes of each row: the nearest admissible bank row, and the nearest and farthest that count for the range."""

    near: RunningMin
    first: RunningMin
    far: RunningMax | None


def scan_range(
    scores: BlockScores,
    exclusion: Exclusion,
    *,
    far: bool,
    count_excluded: bool,
    tracked: bool,
    pruner: Pruner | None = None,
) -> ScoreRange:
    """Find the range of each row in one pass over the blocks.

    Args:
        scores: of b queries.
        exclusion: the pairs that are not admissible.
        far: find the farthest too.
        count_excluded: the range is over all bank rows, not only over admissible ones.
        tracked: keep positions and counts.
        pruner: skips blocks that cannot hold an end of the range.
    """
    near = RunningMin(scores.queries, tracked=tracked)
    first = RunningMin(scores.queries, tracked=tracked) if count_excluded else near
    span = ScoreRange(near, first, RunningMax(scores.queries, tracked=tracked) if far else None)
    for block, rows in scores.everything() if pruner is None else _toward_ends(pruner, span):
        entries = exclusion.within(block.start, block.stop)
        _scan_block(scores.product(rows, block), rows, block, entries, span)
    for end in span:
        if end is not None:
            end.settle()
    return span


def _toward_ends(pruner: Pruner, span: ScoreRange) -> Iterator[tuple[Block, Rows]]:
    """First the most promising blocks of each query, then those that may still widen its range."""
    best = pruner.best(far=span.far is not None)
    count(scorable=best.numel())
    yield from pruner.visit(lambda number: best[:, number])

    def may_widen(number: int) -> Tensor:
        needed = pruner.low[:, number] <= pruner.scores.costs_of(span.near.value)
        if span.far is not None:
            needed |= pruner.high[:, number] >= pruner.scores.costs_of(span.far.value)
        return needed & ~best[:, number]

    yield from pruner.visit(may_widen)


def _scan_block(product: Product, rows: Rows, block: Block, entries: ExcludedEntries | None, span: ScoreRange) -> None:
    values, lowest = product.values, product.lowest
    if entries is None or span.first is not span.near:
        span.first.update(rows, values, block.start, lowest)
        if span.far is not None:
            span.far.update(rows, values, block.start)
    if entries is None:
        if span.first is not span.near:
            span.near.update(rows, values, block.start, lowest)
        return
    if span.first is span.near and span.far is not None:
        span.far.update(rows, entries.fill(values, rows, -torch.inf), block.start)
    span.near.update(rows, entries.fill(values, rows, torch.inf), block.start)
