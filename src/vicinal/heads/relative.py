"""Masked scores of a block, relative to the best of each row, and the weights that they get."""

from typing import NamedTuple

import torch
from torch import Tensor

from vicinal.heads.costs import Costs, Product, Rows
from vicinal.heads.hidden import HiddenEntries
from vicinal.heads.maps import Simplex, exp_
from vicinal.masks.scratch import Scratch
from vicinal.masks.steps import S1Rows, Step, reach


class Relative:
    """What is known of each row after the first pass: enough to turn any block of costs into masked scores.

    Args:
        near: ``[b, 1]``, lowest cost of an admissible row.
        first: ``[b, 1]``, lowest cost of a counted row.
        step: row part of a SoftStep, or None.
        limit: ``[b, 1]``, highest product (see :class:`vicinal.heads.costs.Product`) that is kept, or None.
    """

    def __init__(self, near: Tensor, first: Tensor, step: Step | None = None, limit: Tensor | None = None) -> None:
        self.first, self.step, self.limit = first, step, limit
        self.shift: Tensor | None = None
        if step is not None:
            lead = first - near
            shift = -(lead + step.rows.log((lead / step.width).clamp(min=-1.0), Scratch()))
            self.shift = shift if bool((shift != 0).any()) else None

    def reach(self, simplex: Simplex) -> Tensor:
        """Cost ``[b]`` beyond which the weight of a bank row is exactly 0."""
        limit = torch.full_like(self.first, torch.inf) if self.step is None else reach(self.step, self.first)
        if simplex != "softmax":
            best = self.first if self.shift is None else self.first + self.shift  # minus the best masked score
            limit = torch.minimum(limit, best + (1.0 if simplex == "sparsemax" else 2.0))
        return (limit + 1e-5 * limit.abs())[:, 0]

    def leads(
        self, costs: Costs, product: Product, rows: Rows, entries: HiddenEntries | None, slot: int = 0
    ) -> "Leads":
        """The block's costs against the first of each row; slots 1 and 2 of scratch are used.

        Args:
            costs: where the product is from; finished here, over its values.
            product: of ``rows`` with a block.
            rows: which queries.
            entries: hidden entries of the block.
            slot: of scratch, for the leads: 0 writes them over the costs.
        """
        cut = None if self.limit is None else product.values > self.limit[rows]
        finished = costs.finish(product)
        lead = torch.sub(self.first[rows], finished, out=finished if slot == 0 else costs.scratch.like(finished, slot))
        if self.step is None:
            return Leads(finished, lead, None, None, cut, entries, rows)
        step = self.step.at(rows)
        drop = torch.div(lead, step.width, out=costs.scratch.like(lead, 2)).clamp_(min=-1.0)
        if entries is not None:
            entries.fill(drop, rows, 0.0)
        return Leads(finished, lead, drop, step, cut, entries, rows)

    def scores(self, found: "Leads", scratch: Scratch) -> Tensor:
        """Masked scores ``[r, B]`` minus the best of their row: <= 0, -inf where not admissible; over the leads."""
        scores = found.lead
        if found.step is not None and found.drop is not None:
            scores += found.step.rows.log(found.drop, scratch)
            if self.shift is not None:
                scores += self.shift[found.rows]
        return found.hide(scores, -torch.inf)

    def masses(self, found: "Leads", scratch: Scratch) -> Tensor:
        """Exponentials of :meth:`scores`, by a shorter way where there is one; over the leads."""
        if found.step is None or found.drop is None or self.shift is not None:
            return exp_(self.scores(found, scratch))
        if not isinstance(found.step.rows, S1Rows) or found.step.rows.floor > 0:
            return exp_(self.scores(found, scratch))
        mass = exp_(found.lead).mul_(found.step.rows.mass(found.drop, scratch))
        return found.hide(mass, 0.0)


class Leads(NamedTuple):
    """A block on its way from costs to weights: costs, first cost minus cost, unit score minus 1 if there is a step."""

    costs: Tensor
    lead: Tensor
    drop: Tensor | None
    step: Step | None
    cut: Tensor | None
    entries: HiddenEntries | None
    rows: Rows

    def hide(self, values: Tensor, value: float) -> Tensor:
        """Write ``value`` wherever a row may not be attended to."""
        if self.cut is not None:
            values.masked_fill_(self.cut, value)
        return values if self.entries is None else self.entries.fill(values, self.rows, value)
