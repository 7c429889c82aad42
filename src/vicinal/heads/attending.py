"""One evaluation of the head over a bank, a block at a time, and its gradient by scoring each block again."""

from collections.abc import Iterator

import torch
from torch import Tensor

from vicinal.heads.candidates import coarse_costs, coarse_ends, coarse_nearest
from vicinal.heads.combining import ALONE, Combine
from vicinal.heads.compiled import can_fuse, fused_sums
from vicinal.heads.costs import Block, Costs, Product, Rows
from vicinal.heads.extremes import Extreme, Range, coarse_range, scan
from vicinal.heads.hidden import Hidden, HiddenEntries
from vicinal.heads.maps import Simplex, exp_, find_threshold, slope, weigh
from vicinal.heads.nearest import Nearest, check_reached, nearest
from vicinal.heads.pruning import Pruner
from vicinal.heads.relative import Leads, Relative, tied
from vicinal.heads.sums import Sums as Sums
from vicinal.masks import SoftStep, TopK
from vicinal.masks.steps import step_rows

_NARROW = 1e-3
"""Least b - a of S1 for which a range may be off by a few roundings."""


_TIED = 4
"""Rows beyond the k-th that are looked for, as some may be tied with it."""


class Attention:
    """Row statistics and prediction of one batch of queries.

    Args:
        costs: of the queries against the bank.
        hidden: what is not admissible.
        mask: SoftStep, TopK or None.
        simplex: "softmax", "sparsemax" or "entmax15".
        tracked: keep what the gradient needs.
        combine: with other processes that hold other parts of the bank.
    """

    def __init__(
        self,
        costs: Costs,
        hidden: Hidden,
        mask: SoftStep | TopK | None,
        simplex: Simplex,
        *,
        tracked: bool,
        combine: Combine = ALONE,
    ) -> None:
        self.costs, self.hidden, self.mask, self.simplex, self.tracked = costs, hidden, mask, simplex, tracked
        self.combine = combine
        self.range: Range | None = None
        self.zone: Tensor | None = None
        self.relative: Relative | None = None
        self.threshold: Tensor | None = None
        self.pruner: Pruner | None = None
        self.compiled = False

    def predict(self, labels: Tensor, numbers: Tensor | None) -> Tensor:
        """Weighted mean of ``labels [N, T]``, ``[b, T]`` in float64; ``numbers [b, 4]`` are those of a SoftStep."""
        if self.mask is None and self.simplex == "softmax":
            prediction = self._online(labels)
            if prediction is not None:
                return prediction
        if isinstance(self.mask, TopK) and not self.tracked and self.combine.alone:
            prediction = self._kept(labels)
            if prediction is not None:
                return prediction
        self.relative = self._first_pass(numbers)
        if self.simplex != "softmax":
            queries = self.costs.queries
            self.threshold = find_threshold(self.simplex, self._scores, len(queries), queries, self.combine)
        self.sums = Sums.zeros(self.costs.queries, len(self.costs.queries), labels.shape[1])
        self.slopes = Sums.zeros(self.costs.queries, len(self.costs.queries), labels.shape[1])
        for block, rows in self._within_reach():
            entries = self.hidden.within(block.start, block.stop)
            part = labels[block.start : block.stop]
            product = self.costs.product(rows, block, lowest=False)
            if self._add_fused(product, rows, self.relative, part, entries):
                continue
            weights = self.weigh(self.relative.leads(self.costs, product, rows, entries))
            if self.tracked and self.threshold is not None:
                self.slopes.add(rows, slope(self.simplex, weights), part)
            self.sums.add(rows, weights, part)
        self.combine.sums(self.sums)
        if self.tracked and self.threshold is not None:
            self.combine.sums(self.slopes)
        return self.sums.mean()

    def _add_fused(
        self, product: Product, rows: Rows, at: Relative | Tensor, labels: Tensor, entries: HiddenEntries | None
    ) -> bool:
        """Add the sums of a block by compiled code where that was asked for and fits; whether it was done.

        Leads are measured from ``at``, a tensor ``[r, 1]`` if there is no mask.
        """
        if not self.compiled or entries is not None or product.pairs is not None or self.threshold is not None:
            return False
        first, short = (at, None) if isinstance(at, Tensor) else (at.first[rows], at.short)
        bare = isinstance(at, Tensor) or (
            at.limit is None and at.highest is None and (at.step is None or short is not None)
        )
        if not bare or not can_fuse(short, labels):
            return False
        short = None if short is None else short.at(rows)
        total, summed = fused_sums(product.values, first, labels[:, 0].to(first.dtype), short, rooted=self.costs.rooted)
        self.sums.total[rows, 0] += total
        self.sums.labels[rows, 0] += summed
        return True

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
        width = k + _TIED
        found = self._coarse_nearest(width) or nearest(self.costs, self.hidden, width, self.pruner)
        values, positions = found
        self.relative = self._of_nearest(values[:, :k])
        limit, last = self.relative.limit, values[:, -1:]
        if limit is not None and width < len(self.costs.bank) and bool(((last <= limit) & last.isfinite()).any()):
            self.pruner = None
            return None
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

    def _of_nearest(self, values: Tensor) -> Relative:
        """What is known of each row under top-k, from the products ``[b, k]`` of its nearest rows.

        Rows that cannot be told from the k-th are kept, too.
        """
        check_reached(values[:, 0])
        near, last = self.costs.finish_rows(values[:, :1]), self.costs.finish_rows(values[:, -1:])
        resolution = self.costs.resolution()
        limit = last + resolution.of(near, last)
        limit = limit.square() if self.costs.rooted else limit
        return Relative(near, near, tied(resolution.of(near)), limit=limit)

    def _online(self, labels: Tensor) -> Tensor | None:
        """Softmax without a mask: one pass, rescaled whenever a nearer row is met; None where rounding would tell."""
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
                if self._add_fused(product, rows, now, part, entries):
                    continue
                lead = self.costs.finish(product)
                torch.sub(now, lead, out=lead)
                if entries is not None:
                    entries.fill(lead, rows, -torch.inf)
                self.sums.add(rows, exp_(lead), part)
        best = self.combine.online(best, self.sums)
        check_reached(best[:, 0])
        ties = tied(self.costs.resolution().of(best))
        self.relative = Relative(best, best, ties)
        return None if bool((ties > 0).any()) else self.sums.mean()

    def _first_pass(self, numbers: Tensor | None) -> Relative:
        if isinstance(self.mask, TopK):
            found = nearest(self.costs, self.hidden, self.mask.k)
            return self._of_nearest(self.combine.nearest(found.values, self.mask.k))
        step = isinstance(self.mask, SoftStep)
        count_hidden = isinstance(self.mask, SoftStep) and self.mask.extent == "all" and bool(self.hidden.keys)
        self.range = self._coarse_range(numbers) if step else None
        self.range = self.range or scan(
            self.costs,
            self.hidden,
            far=step,
            count_hidden=count_hidden,
            tracked=step and self.tracked,
            pruner=self.pruner,
        )
        self.combine.range(self.range)
        check_reached(self.range.near.value)
        near, first = self.column(self.range.near), self.column(self.range.first)
        resolution = self.costs.resolution()
        ties = tied(resolution.of(near))
        if not isinstance(self.mask, SoftStep) or self.range.far is None or numbers is None:
            return Relative(near, first, ties)
        far = self.column(self.range.far)
        self.zone = resolution.of(first, far)
        return Relative(near, first, ties, step_rows(self.mask, numbers, near, first, far, self.zone))

    def _coarse_nearest(self, k: int) -> Nearest | None:
        """The k nearest rows by way of bfloat16, if that is possible."""
        coarse = None if self.pruner is not None else coarse_costs(self.costs, self.hidden, self.combine)
        found = None if coarse is None else coarse_nearest(coarse, min(k, len(self.costs.bank)))
        return None if found is None else Nearest(*found)

    def _coarse_range(self, numbers: Tensor | None) -> Range | None:
        """The range of each row; None where S1 is so narrow that rounding of the range would tell."""
        if self.pruner is not None or numbers is None or float((numbers[:, 1] * (1 - numbers[:, 0])).amin()) < _NARROW:
            return None
        coarse = coarse_costs(self.costs, self.hidden, self.combine)
        if coarse is None:
            return None
        found = coarse_ends(coarse)
        return None if found is None else coarse_range(found, self.costs, tracked=self.tracked)

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
                product = self.costs.product(rows, block, lowest=False)
                found = self.relative.leads(self.costs, product, rows, entries)
                yield rows, self.relative.scores(found, self.costs.scratch)
