"""One evaluation of the head over a bank, a block at a time, and its gradient by scoring each block again."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from vicinal.heads.costs import Block, Costs, Product, Rows
from vicinal.heads.extremes import Extreme, Range, scan
from vicinal.heads.hidden import Hidden
from vicinal.heads.maps import Simplex, exp_, find_threshold, slope, weigh
from vicinal.heads.nearest import check_reached, nearest
from vicinal.heads.pruning import Pruner
from vicinal.heads.relative import Leads, Relative
from vicinal.masks import SoftStep, TopK
from vicinal.masks.steps import step_rows


class Sums(NamedTuple):
    """Of the weights of each row: their sum ``[b, 1]``, that of weight times label ``[b, T]``, both in float64."""

    total: Tensor
    labels: Tensor

    @classmethod
    def zeros(cls, like: Tensor, rows: int, targets: int) -> "Sums":
        """Sums of nothing."""
        empty = torch.zeros(rows, 1 + targets, dtype=torch.float64, device=like.device)
        return cls(empty[:, :1], empty[:, 1:])

    def add(self, rows: Rows, weights: Tensor, labels: Tensor) -> None:
        """Add the ``weights [r, B]`` of the queries ``rows`` to rows with ``labels [B, T]``."""
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


class Attention:
    """Row statistics and prediction of one batch of queries.

    Args:
        costs: of the queries against the bank.
        hidden: what is not admissible.
        mask: SoftStep, TopK or None.
        simplex: "softmax", "sparsemax" or "entmax15".
        tracked: keep what the gradient needs.
    """

    def __init__(
        self, costs: Costs, hidden: Hidden, mask: SoftStep | TopK | None, simplex: Simplex, *, tracked: bool
    ) -> None:
        self.costs, self.hidden, self.mask, self.simplex, self.tracked = costs, hidden, mask, simplex, tracked
        self.range: Range | None = None
        self.relative: Relative | None = None
        self.threshold: Tensor | None = None
        self.pruner: Pruner | None = None

    def predict(self, labels: Tensor, numbers: Tensor | None) -> Tensor:
        """Weighted mean of ``labels [N, T]``, ``[b, T]`` in float64; ``numbers [b, 4]`` are those of a SoftStep."""
        if self.mask is None and self.simplex == "softmax":
            return self._online(labels)
        if isinstance(self.mask, TopK) and not self.tracked and (prediction := self._kept(labels)) is not None:
            return prediction
        self.relative = self._first_pass(numbers)
        if self.simplex != "softmax":
            self.threshold = find_threshold(self.simplex, self._scores, len(self.costs.queries), self.costs.queries)
        self.sums = Sums.zeros(self.costs.queries, len(self.costs.queries), labels.shape[1])
        self.slopes = Sums.zeros(self.costs.queries, len(self.costs.queries), labels.shape[1])
        for block, rows in self._within_reach():
            entries = self.hidden.within(block.start, block.stop)
            part = labels[block.start : block.stop]
            weights = self.weigh(self.relative.leads(self.costs, self.costs.product(rows, block), rows, entries))
            if self.tracked and self.threshold is not None:
                self.slopes.add(rows, slope(self.simplex, weights), part)
            self.sums.add(rows, weights, part)
        return self.sums.mean()

    def _within_reach(self) -> Iterator[tuple[Block, Rows]]:
        """Blocks with the queries for which they may hold a weight above 0."""
        if self.pruner is None or self.relative is None:
            return self.costs.everything()
        needed = self.pruner.low <= self.relative.reach(self.simplex)[:, None]
        self.pruner.visits.possible += needed.numel()
        return self.pruner.visit(lambda number: needed[:, number])

    def _kept(self, labels: Tensor) -> Tensor | None:
        """Top-k in one pass, from the rows that were found; None if more rows than those tie with the k-th."""
        k = self.mask.k if isinstance(self.mask, TopK) else 0
        found = nearest(self.costs, self.hidden, k + 1, self.pruner)
        check_reached(found.values[:, 0])
        if found.values.shape[1] > k:
            beyond = found.values[:, k]
            if bool(((beyond == found.values[:, k - 1]) & beyond.isfinite()).any()):
                self.pruner = None
                return None
        values, positions = found.values[:, :k], found.positions[:, :k]
        near = self.costs.finish_rows(values[:, :1])
        self.relative = Relative(near, near, limit=values[:, -1:])
        rows = slice(0, len(values))
        if self.simplex != "softmax":
            self.threshold = find_threshold(
                self.simplex, lambda: iter([(rows, self._scores_of(values))]), len(values), values
            )
        weights = self.weigh(self._leads_of(values)).masked_fill_(values == torch.inf, 0.0)
        total = weights.sum(dim=1, keepdim=True)
        self.sums = Sums(total.double(), (weights[:, None].to(labels.dtype) @ labels[positions])[:, 0].double())
        return self.sums.mean()

    def weigh(self, found: Leads) -> Tensor:
        """Weights ``[r, B]`` of a block, for "softmax" not yet divided by their sum; over its leads."""
        if self.relative is None:
            raise ValueError("attention: expected one that has predicted, got one that has not")
        if self.threshold is None:
            return self.relative.masses(found, self.costs.scratch)
        return weigh(self.simplex, self.relative.scores(found, self.costs.scratch), self.threshold[found.rows])

    def weights_of(self, values: Tensor) -> Tensor:
        """Weights ``[b, k]`` of bank rows with these products, after :meth:`predict`; 0 for infinite ones."""
        if self.relative is None:
            raise ValueError("attention: expected one that has predicted, got one that has not")
        weights = self.weigh(self._leads_of(values)).masked_fill_(values == torch.inf, 0.0)
        return weights if self.threshold is not None else weights / self.sums.total.to(weights.dtype)

    def _leads_of(self, values: Tensor) -> Leads:
        """The way to the weights for products ``[b, k]`` of single bank rows."""
        if self.relative is None:
            raise ValueError("attention: expected one that has predicted, got one that has not")
        none = values.new_zeros(0, dtype=torch.int64)
        product = Product(torch.where(values == torch.inf, values[:, :1], values), values[:, 0], (none, none))
        return self.relative.leads(self.costs, product, slice(0, len(values)), None)

    def _scores_of(self, values: Tensor) -> Tensor:
        """Relative scores ``[b, k]`` of bank rows with these products."""
        if self.relative is None:
            raise ValueError("attention: expected one that has predicted, got one that has not")
        scores = self.relative.scores(self._leads_of(values), self.costs.scratch)
        return scores.masked_fill_(values == torch.inf, -torch.inf)

    def _online(self, labels: Tensor) -> Tensor:
        """Softmax without a mask: one pass, rescaled whenever a nearer row is met."""
        best = self.costs.queries.new_full((len(self.costs.queries), 1), torch.inf)
        self.sums = Sums.zeros(best, len(best), labels.shape[1])
        for block in self.costs.blocks():
            entries = self.hidden.within(block.start, block.stop)
            part = labels[block.start : block.stop]
            for rows in self.costs.tiles():
                product = self.costs.product(rows, block)
                lowest = product.lowest
                if entries is not None:
                    lowest = entries.fill(product.values, rows, torch.inf).amin(dim=1)
                before = best[rows]
                now = torch.minimum(before, self.costs.finish_rows(lowest)[:, None])
                scale = torch.where(now < before, exp_(now - before), 1.0)
                self.sums.total[rows] *= scale
                self.sums.labels[rows] *= scale
                best[rows] = now
                now = torch.where(now < torch.inf, now, 0.0)  # nothing admissible so far: all weights are 0
                lead = self.costs.finish(product)
                torch.sub(now, lead, out=lead)
                if entries is not None:
                    entries.fill(lead, rows, -torch.inf)
                self.sums.add(rows, exp_(lead), part)
        check_reached(best[:, 0])
        self.relative = Relative(best, best)
        return self.sums.mean()

    def _first_pass(self, numbers: Tensor | None) -> Relative:
        if isinstance(self.mask, TopK):
            values = nearest(self.costs, self.hidden, self.mask.k).values
            check_reached(values[:, 0])
            near = self.costs.finish_rows(values[:, :1])
            return Relative(near, near, limit=values[:, -1:])
        step = isinstance(self.mask, SoftStep)
        count_hidden = isinstance(self.mask, SoftStep) and self.mask.extent == "all" and bool(self.hidden.keys)
        self.range = scan(
            self.costs,
            self.hidden,
            far=step,
            count_hidden=count_hidden,
            tracked=step and self.tracked,
            pruner=self.pruner,
        )
        check_reached(self.range.near.value)
        near, first = self.column(self.range.near), self.column(self.range.first)
        if not isinstance(self.mask, SoftStep) or self.range.far is None or numbers is None:
            return Relative(near, first)
        return Relative(near, first, step_rows(self.mask, numbers, near, first, self.column(self.range.far)))

    def column(self, extreme: Extreme) -> Tensor:
        """Costs ``[b, 1]`` of an extreme."""
        return self.costs.finish_rows(extreme.value)[:, None]

    def _scores(self) -> Iterator[tuple[slice, Tensor]]:
        """Relative scores of all blocks."""
        if self.relative is None:
            return
        for block in self.costs.blocks():
            entries = self.hidden.within(block.start, block.stop)
            for rows in self.costs.tiles():
                found = self.relative.leads(self.costs, self.costs.product(rows, block), rows, entries)
                yield rows, self.relative.scores(found, self.costs.scratch)
