"""Masked scores of a block, relative to the best of each row, and the weights that they get."""

from typing import NamedTuple

import torch
from torch import Tensor

from vicinal.heads.costs import Costs, Product, Rows
from vicinal.heads.hidden import HiddenEntries
from vicinal.heads.maps import Simplex, exp_
from vicinal.masks.scratch import Scratch
from vicinal.masks.steps import Step, reach
from vicinal.masks.weighing import Weigher, weigher
from vicinal.similarity.resolution import Resolution

TELLING = 1e-2
"""Resolution of scores from which on those that cannot be told from the best count as equal to it.

A weight is off by this share of itself at most where they do not.
"""


def tied(zone: Tensor) -> Tensor:
    """By how much a score may be below the best and count as equal to it, from the resolution ``[b, 1]``."""
    return torch.where(zone > TELLING, zone, 0.0)


def settled(scores: Tensor, resolution: Resolution, allowed: Tensor | None) -> Tensor:
    """Scores ``[b, N]`` with those that cannot be told from the best admissible one lowered to be equal.

    The gradient is that of the scores as they are.
    """
    if scores.numel() == 0:
        return scores
    counted = scores.detach() if allowed is None else scores.detach().masked_fill(~allowed, -torch.inf)
    best = counted.amax(dim=1, keepdim=True)
    return scores - (counted - best + tied(resolution.of(best))).clamp(min=0.0)


class Relative:
    """What is known of each row after the first pass: enough to turn any block of costs into masked scores.

    Args:
        near: ``[b, 1]``, lowest cost of an admissible row.
        first: ``[b, 1]``, lowest cost of a counted row.
        ties: ``[b, 1]``, by how much a cost may be above ``near`` and count as equal to it.
        step: row part of a SoftStep, or None.
        limit: ``[b, 1]``, highest product (see :class:`vicinal.heads.costs.Product`) that is kept, or None.
    """

    def __init__(
        self, near: Tensor, first: Tensor, ties: Tensor, step: Step | None = None, limit: Tensor | None = None
    ) -> None:
        self.first, self.step, self.limit = first, step, limit
        self.highest: Tensor | None = first - near - ties if bool((ties > 0).any()) else None  # lead of the best rows
        self.shift: Tensor | None = None
        self.short: Weigher | None = None
        lead = first - near
        shift = -lead if self.highest is None else -self.highest
        if step is not None:
            shift = shift - step.rows.log((lead / step.width).clamp(min=-1.0), Scratch())
        self.shift = shift if bool((shift != 0).any()) else None
        if step is not None and self.highest is None:
            self.short = weigher(step, self.shift)

    def reach(self, simplex: Simplex) -> Tensor:
        """Cost ``[b]`` beyond which the weight of a bank row is exactly 0."""
        limit = torch.full_like(self.first, torch.inf) if self.step is None else reach(self.step, self.first)
        if simplex != "softmax":
            best = self.first if self.shift is None else self.first + self.shift  # minus the best masked score
            limit = torch.minimum(limit, best + (1.0 if simplex == "sparsemax" else 2.0))
        return (limit + 1e-5 * limit.abs())[:, 0]

    def leads(self, costs: Costs, product: Product, rows: Rows, entries: HiddenEntries | None) -> "Leads":
        """The block's leads, over the product's values; slot 1 of scratch is used.

        Args:
            costs: where the product is from.
            product: of ``rows`` with a block.
            rows: which queries.
            entries: hidden entries of the block.
        """
        cut = None if self.limit is None else product.values > self.limit[rows]
        finished = costs.finish(product)
        return Leads(torch.sub(self.first[rows], finished, out=finished), cut, entries, rows)

    def drops(self, found: "Leads", scratch: Scratch) -> tuple[Step, Tensor]:
        """The step of these rows, and unit scores minus 1 ``[r, B]``; in slot 2."""
        if self.step is None:
            raise ValueError("step: expected a SoftStep, got none")
        step = self.step.at(found.rows)
        drop = torch.div(found.lead, step.width, out=scratch.like(found.lead, 2)).clamp_(min=-1.0)
        if found.entries is not None:
            found.entries.fill(drop, found.rows, 0.0)
        return step, drop

    def scores(self, found: "Leads", scratch: Scratch) -> Tensor:
        """Masked scores ``[r, B]`` minus the best of their row: <= 0, -inf where not admissible; over the leads."""
        scores = found.lead
        logs = None
        if self.step is not None:
            step, drop = self.drops(found, scratch)
            logs = step.rows.log(drop, scratch)
        if self.highest is not None:
            torch.minimum(scores, self.highest[found.rows], out=scores)
        if logs is not None:
            scores += logs
        if self.shift is not None:
            scores += self.shift[found.rows]
        return found.hide(scores, -torch.inf)

    def masses(self, found: "Leads", scratch: Scratch) -> Tensor:
        """Exponentials of :meth:`scores`, by a shorter way where there is one; the leads are written over."""
        if self.short is None:
            return exp_(self.scores(found, scratch))
        return found.hide(self.short.at(found.rows).masses(found.lead, scratch), 0.0)


class Leads(NamedTuple):
    """A block on its way from costs to weights: lowest counted cost of each row minus cost, and what is hidden."""

    lead: Tensor
    cut: Tensor | None
    entries: HiddenEntries | None
    rows: Rows

    def hide(self, values: Tensor, value: float) -> Tensor:
        """Write ``value`` wherever a row may not be attended to."""
        if self.cut is not None:
            values.masked_fill_(self.cut, value)
        return values if self.entries is None else self.entries.fill(values, self.rows, value)
