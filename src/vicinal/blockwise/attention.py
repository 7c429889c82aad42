"""Attention of queries to the rows of a bank, a block at a time: weighted means of labels, and the weights themselves.

A first pass finds the range of each row of costs, a second adds up weights and weighted labels. Sparse simplex maps
step toward their threshold, one pass a step, until few rows may still have weight; only those are used from then on.
Everything is relative to the best entry of a row: a *score gap* is the lowest cost of the row minus the cost of the
entry, so exponentials are at most 1.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from vicinal.blockwise.blocks import Buffers
from vicinal.blockwise.exclusion import ExcludedEntries, Exclusion, check_some_row
from vicinal.blockwise.nearest import lowest_rows
from vicinal.blockwise.resolution import Resolution
from vicinal.blockwise.row_minmax import scan_range
from vicinal.blockwise.scores import BlockScores, Product, Rows
from vicinal.blockwise.softstep import S1Weights, Step, StepForm, step_rows, step_weights
from vicinal.blockwise.thresholds import (
    PASSES,
    Candidates,
    Simplex,
    exp_,
    find_threshold,
    lowest_threshold,
    raise_threshold,
    simplex_weights,
)
from vicinal.blockwise.topk import topk

TELLING = 1e-2
"""If their resolution is coarser than this, scores that cannot be told from the best count as equal to it.

Otherwise a weight is off by at most this share of itself.
"""

_CANDIDATES = 1 << 20
"""Most rows, over all queries, to keep as those that may have weight under a sparse simplex map."""

_TIED = 4
"""How many rows beyond the k-th are examined, since they may tie with it."""


def tied(zone: Tensor) -> Tensor:
    """How far below the best a score may be and still count as equal to it, from the resolution ``[b, 1]``."""
    return torch.where(zone > TELLING, zone, 0.0)


def settled(scores: Tensor, resolution: Resolution, allowed: Tensor | None) -> Tensor:
    """Scores ``[b, N]``, with those that count as equal to the best admissible one lowered to the same value.

    The gradient is that of the original scores.
    """
    if scores.numel() == 0:
        return scores
    counted = scores.detach() if allowed is None else scores.detach().masked_fill(~allowed, -torch.inf)
    best = counted.amax(dim=1, keepdim=True)
    return scores - (counted - best + tied(resolution.of(best))).clamp(min=0.0)


class Sums(NamedTuple):
    """Sums over each row: of weights ``[b, 1]`` and of weight times label ``[b, T]``, both in float64."""

    total: Tensor
    labels: Tensor

    @classmethod
    def zeros(cls, like: Tensor, rows: int, targets: int) -> "Sums":
        """Sums of 0."""
        empty = torch.zeros(rows, 1 + targets, dtype=torch.float64, device=like.device)
        return cls(empty[:, :1], empty[:, 1:])

    def add(self, rows: Rows, weights: Tensor, labels: Tensor) -> None:
        """Add the ``weights [r, B]`` that the queries ``rows`` give to bank rows with ``labels [B, T]``."""
        self.total[rows] += weights.sum(dim=1, keepdim=True)
        weights = weights.to(labels.dtype)
        if labels.shape[1] <= 3:
            for target in range(labels.shape[1]):
                self.labels[rows, target] += weights @ labels[:, target]
        else:
            self.labels[rows] += (labels.T @ weights.T).T

    def mean(self) -> Tensor:
        """Weighted mean of the labels ``[b, T]``."""
        return self.labels / self.total


class ScoreGaps(NamedTuple):
    """A block on its way from costs to weights.

    Attributes:
        gap: ``[r, B]``, lowest counted cost of each row minus cost; results overwrite it.
        cut: ``[r, B]``, entries beyond the limit of the row, or None.
        entries: excluded entries of the block.
        rows: which queries.
    """

    gap: Tensor
    cut: Tensor | None
    entries: ExcludedEntries | None
    rows: Rows

    def exclude(self, values: Tensor, value: float) -> Tensor:
        """Write ``value`` wherever a row may not be attended to."""
        if self.cut is not None:
            values.masked_fill_(self.cut, value)
        return values if self.entries is None else self.entries.fill(values, self.rows, value)


class RowStats:
    """What is known about each row after the first pass: enough to turn any block of costs into weights.

    Args:
        near: ``[b, 1]``, lowest cost of an admissible bank row.
        first: ``[b, 1]``, lowest cost of a bank row that counts for the range.
        ties: ``[b, 1]``, how far above ``near`` a cost may be and still count as equal to it.
        step: row numbers of a SoftStep, or None.
        limit: ``[b, 1]``, highest product (see :class:`vicinal.blockwise.scores.Product`) that is kept, or None.
    """

    def __init__(
        self, near: Tensor, first: Tensor, ties: Tensor, step: Step | None = None, limit: Tensor | None = None
    ) -> None:
        self.first, self.step, self.limit = first, step, limit
        self.highest: Tensor | None = first - near - ties if bool((ties > 0).any()) else None  # gap of the best rows
        self.shift: Tensor | None = None
        self.short: S1Weights | None = None
        gap = first - near
        shift = -gap if self.highest is None else -self.highest
        if step is not None:
            shift = shift - step.rows.log((gap / step.width).clamp(min=-1.0), Buffers())
        self.shift = shift if bool((shift != 0).any()) else None
        if step is not None and self.highest is None:
            self.short = step_weights(step, self.shift)

    def score_gaps(
        self, scores: BlockScores, product: Product, rows: Rows, entries: ExcludedEntries | None
    ) -> ScoreGaps:
        """The block's gaps, which overwrite the product's values."""
        cut = None if self.limit is None else product.values > self.limit[rows]
        costs = scores.costs(product)
        return ScoreGaps(torch.sub(self.first[rows], costs, out=costs), cut, entries, rows)

    def masked_scores(self, gaps: ScoreGaps, buffers: Buffers) -> Tensor:
        """Masked scores ``[r, B]`` minus the best of their row, -inf where not admissible; overwrites the gaps."""
        scores, logs = gaps.gap, None
        if self.step is not None:
            step = self.step.at(gaps.rows)
            unit_gaps = torch.div(gaps.gap, step.width, out=buffers.like("unit gaps", gaps.gap)).clamp_(min=-1.0)
            if gaps.entries is not None:
                gaps.entries.fill(unit_gaps, gaps.rows, 0.0)
            logs = step.rows.log(unit_gaps, buffers)
        if self.highest is not None:
            torch.minimum(scores, self.highest[gaps.rows], out=scores)
        if logs is not None:
            scores += logs
        if self.shift is not None:
            scores += self.shift[gaps.rows]
        return gaps.exclude(scores, -torch.inf)

    def unnormalized_weights(self, gaps: ScoreGaps, buffers: Buffers) -> Tensor:
        """Exponentials of :meth:`masked_scores`, by a shorter formula if there is one; they overwrite the gaps."""
        if self.short is None:
            return exp_(self.masked_scores(gaps, buffers))
        return gaps.exclude(self.short.at(gaps.rows).weights(gaps.gap, buffers), 0.0)


@dataclass(frozen=True, eq=False)
class Attended:
    """One evaluation of an :class:`Attention`.

    Attributes:
        attention: what was evaluated.
        stats: of each row.
        sums: of weights and labels.
        threshold: ``[b, 1]`` of a sparse simplex map; None for softmax.
        nearest: weights and positions ``[b, k]`` of all rows that have weight, if known.
    """

    attention: "Attention"
    stats: RowStats
    sums: Sums
    threshold: Tensor | None = None
    nearest: tuple[Tensor, Tensor] | None = None

    def weigh(self, gaps: ScoreGaps) -> Tensor:
        """Weights ``[r, B]`` of a block, for softmax before division by their sum; overwrites gaps."""
        return self.attention.weigh(self.stats, self.threshold, gaps)

    def weights_of(self, values: Tensor) -> Tensor:
        """Weights ``[b, k]`` of bank rows with these products; 0 for infinite ones."""
        weights = self.weigh(self.attention.gaps_of(self.stats, values))
        weights.masked_fill_(values == torch.inf, 0.0)
        return weights if self.threshold is not None else weights / self.sums.total.to(weights.dtype)

    def blocks(self) -> Iterator[tuple[slice, Rows, Tensor]]:
        """All blocks of bank rows with their weights ``[r, B]``."""
        scores = self.attention.scores
        if self.nearest is not None:
            yield from self._blocks_of_nearest(*self.nearest)
            return
        for block, rows in scores.everything():
            entries = self.attention.exclusion.within(block.start, block.stop)
            weights = self.weigh(self.stats.score_gaps(scores, scores.product(rows, block), rows, entries))
            weights = weights if self.threshold is not None else weights / self.sums.total[rows]
            yield slice(block.start, block.stop), rows, weights

    def _blocks_of_nearest(self, weights: Tensor, positions: Tensor) -> Iterator[tuple[slice, Rows, Tensor]]:
        """Blocks with the known weights, since products of blocks round differently from distances of rows."""
        scores = self.attention.scores
        for start in range(0, len(scores.bank), scores.chunk):
            block = slice(start, min(start + scores.chunk, len(scores.bank)))
            for rows in scores.tiles():
                places = positions[rows] - start
                inside = (places >= 0) & (places < block.stop - start)
                values = weights.new_zeros(len(places), block.stop - start)
                yield block, rows, values.scatter_add_(1, places.where(inside, 0), weights[rows] * inside)


@dataclass(frozen=True, eq=False)
class Attention:
    """What one batch of queries attends to, and how.

    Attributes:
        scores: of the queries against the bank.
        exclusion: the pairs that are not admissible.
        simplex: "softmax", "sparsemax" or "entmax15".
        step: form of a SoftStep, or None.
        k: keep only the k nearest rows; None: all.
    """

    scores: BlockScores
    exclusion: Exclusion
    simplex: Simplex = "softmax"
    step: StepForm | None = None
    k: int | None = None

    def evaluate(self, labels: Tensor, numbers: Tensor | None) -> Attended:
        """Evaluate on ``labels [N, T]``; ``numbers [b, 4]`` are those of a SoftStep."""
        if self.k is not None:
            attended = self._of_nearest(self.k, labels)
            if attended is not None:
                return attended
        stats = self._row_stats(numbers)
        queries, targets = self.scores.queries, labels.shape[1]
        threshold = None
        if self.simplex != "softmax":
            threshold, candidates = self._few_candidates(stats)
            if candidates is not None:
                return self._of_candidates(stats, threshold, *candidates, labels)
        sums = Sums.zeros(queries, len(queries), targets)
        for block, rows in self.scores.everything():
            entries = self.exclusion.within(block.start, block.stop)
            part = labels[block.start : block.stop]
            product = self.scores.product(rows, block, lowest=False)
            weights = self.weigh(stats, threshold, stats.score_gaps(self.scores, product, rows, entries))
            sums.add(rows, weights, part)
        return Attended(self, stats, sums, threshold)

    def weigh(self, stats: RowStats, threshold: Tensor | None, gaps: ScoreGaps) -> Tensor:
        """See :meth:`Attended.weigh`."""
        if threshold is None:
            return stats.unnormalized_weights(gaps, self.scores.buffers)
        scores = stats.masked_scores(gaps, self.scores.buffers)
        return simplex_weights(self.simplex, scores, threshold[gaps.rows])

    def gaps_of(self, stats: RowStats, values: Tensor) -> ScoreGaps:
        """Gaps of single bank rows with products ``[b, k]``."""
        none = values.new_zeros(0, dtype=torch.int64)
        product = Product(torch.where(values == torch.inf, values[:, :1], values), values[:, 0], (none, none))
        return stats.score_gaps(self.scores, product, slice(0, len(values)), None)

    def _few_candidates(self, stats: RowStats) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
        """A lower bound on the threshold, and scores and positions of the rows that may have weight, once they are few.

        If they never are, the threshold itself, and None.
        """
        queries = self.scores.queries
        threshold = lowest_threshold(len(queries), queries)
        for _ in range(PASSES):
            room = min(_CANDIDATES, len(queries) * len(self.scores.bank) // 16)
            candidates = Candidates(self.simplex, threshold, room)
            last = raise_threshold(self.simplex, threshold, partial(self._masked_blocks, stats, candidates))
            few = candidates.matrix()
            if last or few is not None:
                break
        return threshold, few

    def _masked_blocks(self, stats: RowStats, candidates: Candidates) -> Iterator[tuple[Rows, Tensor]]:
        """Masked scores of all blocks."""
        for block, rows in self.scores.everything():
            entries = self.exclusion.within(block.start, block.stop)
            product = self.scores.product(rows, block, lowest=False)
            gaps = stats.score_gaps(self.scores, product, rows, entries)
            scores = stats.masked_scores(gaps, self.scores.buffers)
            candidates.take(rows, block.start, scores)
            yield rows, scores

    def _of_candidates(
        self,
        stats: RowStats,
        threshold: Tensor,
        scores: Tensor,
        positions: Tensor,
        labels: Tensor,
    ) -> Attended:
        """The evaluation of a sparse simplex map from the rows ``[b, m]`` that may have weight."""

        def visit() -> Iterator[tuple[slice, Tensor]]:
            yield slice(None), scores.clone()

        threshold = find_threshold(self.simplex, visit, len(scores), scores, start=threshold)
        weights = simplex_weights(self.simplex, scores, threshold)

        def sums(of_rows: Tensor) -> Sums:
            wide = of_rows.to(labels.dtype)
            each = [(wide * column[positions]).sum(dim=1) for column in labels.unbind(1)]
            total = of_rows.sum(dim=1, keepdim=True)
            return Sums(total.double(), torch.stack(each, dim=1).double() if each else total.new_zeros(len(total), 0))

        return Attended(self, stats, sums(weights), threshold, (weights, positions))

    def _of_nearest(self, k: int, labels: Tensor) -> Attended | None:
        """Top-k in one pass, from the nearest rows alone; None if more rows than those tie with the k-th."""
        values, positions = lowest_rows(self.scores, self.exclusion, k + _TIED)
        stats = self._stats_of_nearest(values[:, :k])
        limit, last = stats.limit, values[:, -1:]
        fewer = k + _TIED < len(self.scores.bank)
        if limit is not None and fewer and bool(((last <= limit) & last.isfinite()).any()):
            return None

        def visit() -> Iterator[tuple[slice, Tensor]]:
            scores = stats.masked_scores(self.gaps_of(stats, values), self.scores.buffers)
            yield slice(0, len(values)), scores.masked_fill_(values == torch.inf, -torch.inf)

        threshold = None if self.simplex == "softmax" else find_threshold(self.simplex, visit, len(values), values)
        weights = self.weigh(stats, threshold, self.gaps_of(stats, values))
        weights.masked_fill_(values == torch.inf, 0.0)
        total = weights.sum(dim=1, keepdim=True)
        sums = Sums(total.double(), (weights[:, None].to(labels.dtype) @ labels[positions])[:, 0].double())
        weights = weights if threshold is not None else weights / total
        return Attended(self, stats, sums, threshold, nearest=(weights, positions))

    def _stats_of_nearest(self, values: Tensor) -> RowStats:
        """What is known of each row under top-k, from the products ``[b, k]`` of its nearest rows.

        Rows that cannot be told from the k-th are kept too.
        """
        check_some_row(values[:, 0])
        near, last = self.scores.costs_of(values[:, :1]), self.scores.costs_of(values[:, -1:])
        resolution = self.scores.resolution()
        limit = last + resolution.of(near, last)
        limit = limit.square() if self.scores.rooted else limit
        return RowStats(near, near, tied(resolution.of(near)), limit=limit)

    def _row_stats(self, numbers: Tensor | None) -> RowStats:
        """The first pass."""
        if self.k is not None:
            return self._stats_of_nearest(topk(self.scores, self.exclusion, self.k).values)
        span = scan_range(
            self.scores,
            self.exclusion,
            far=self.step is not None,
            count_excluded=self.step is not None and self.step.extent == "all" and bool(self.exclusion.keys),
        )
        check_some_row(span.near)
        near, first = (self.scores.costs_of(end)[:, None] for end in (span.near, span.first))
        resolution = self.scores.resolution()
        ties = tied(resolution.of(near))
        if self.step is None or span.far is None or numbers is None:
            return RowStats(near, first, ties)
        far = self.scores.costs_of(span.far)[:, None]
        step = step_rows(self.step, numbers, near, first, far, resolution.of(first, far))
        return RowStats(near, first, ties, step)
