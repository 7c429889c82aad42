r"""SoftStep in two parts: what is one number a row, and what is left to do for each entry.

Entries come as ``drop = unit - 1`` in [-1, 0], which is 0 at the nearest row: a block of the bank can be masked alone
once the row numbers are known, and nothing is lost to rounding where the unit score is near 1.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from vicinal.masks.scratch import Scratch
from vicinal.masks.softstep import SoftStep
from vicinal.masks.unit import unit_width

_LEAST = 1e-30


class S1Rows(NamedTuple):
    """Row numbers ``[b, 1]`` of S1: where it leaves 0, how far it rises, its t; and its eps and floor."""

    low: Tensor
    width: Tensor
    t: Tensor
    eps: float
    floor: float

    def _sides(self, drop: Tensor, scratch: Scratch) -> tuple[Tensor, Tensor]:
        if self.floor > 0:  # low may be the top itself, where a tiny eps must survive rounding
            rise = torch.add(drop, 1, out=scratch.like(drop, 3)).sub_(self.low).add_(self.eps)
        else:
            rise = torch.add(drop, (1 - self.low) + self.eps, out=scratch.like(drop, 3))
        fall = torch.sub(self.width, rise, out=scratch.like(drop, 4)).clamp_(min=0)
        return rise.clamp_(min=0), fall

    def log(self, drop: Tensor, scratch: Scratch) -> Tensor:
        """Log of S1; -inf where it is 0; slots 3 and 4 of ``scratch`` are used."""
        rise, fall = self._sides(drop, scratch)
        rejected, passed = rise == 0, fall == 0
        log_u = rise.clamp_(min=_LEAST).log_().div_(self.t)
        log_v = fall.clamp_(min=_LEAST).log_().div_(self.t)
        if self.floor > 0:
            log_u.clamp_(min=math.log(self.floor))
            log_v.clamp_(min=math.log(self.floor))
        return logsigmoid(log_u - log_v).masked_fill_(passed, 0.0).masked_fill_(rejected, -torch.inf)

    def pull(self, drop: Tensor, gradient: Tensor, scratch: Scratch) -> tuple[Tensor, list[Tensor]]:
        """Gradients of ``drop`` and of (low, width, t) from the gradient of :meth:`log`, 0 wherever the log is -inf."""
        rise, fall = self._sides(drop, scratch)
        rising = torch.sign(fall, out=scratch.like(drop, 5)).mul_(gradient)  # nothing to pull where S1 is 1
        rise.clamp_(min=_LEAST)
        if self.floor > 0:
            return self._pull_floored(rise, fall.clamp_(min=_LEAST), rising)
        against = torch.div(fall, rise, out=scratch.like(drop, 6)).sub_(1).log1p_().clamp_(min=-100)  # ln v/u times t
        slope = torch.div(against, self.t, out=scratch.like(drop, 7)).sigmoid_().mul_(rising).div_(self.t)
        of_t = against.mul_(slope).sum(dim=1, keepdim=True) / self.t
        of_fall = torch.div(slope, fall.clamp_(min=_LEAST), out=fall)
        of_width = -of_fall.sum(dim=1, keepdim=True)
        of_drop = slope.div_(rise).add_(of_fall)
        return of_drop, [-of_drop.sum(dim=1, keepdim=True), of_width, of_t]

    def _pull_floored(self, rise: Tensor, fall: Tensor, rising: Tensor) -> tuple[Tensor, list[Tensor]]:
        """:meth:`pull` with a floor, below which neither side moves."""
        log_rise, log_fall, least = rise.log(), fall.log(), math.log(self.floor) * self.t
        slope = ((torch.maximum(log_fall, least) - torch.maximum(log_rise, least)) / self.t).sigmoid_().div_(self.t)
        up, down = rising * slope * (log_rise >= least), rising * slope * (log_fall >= least)
        of_t = (log_fall * down - log_rise * up).sum(dim=1, keepdim=True) / self.t
        of_fall = down / fall
        of_drop = up.div_(rise).add_(of_fall)
        return of_drop, [-of_drop.sum(dim=1, keepdim=True), -of_fall.sum(dim=1, keepdim=True), of_t]


class S2Rows(NamedTuple):
    """Row numbers ``[b, 1]`` of S2: b and t / (1 - t)."""

    b: Tensor
    odds: Tensor

    def log(self, drop: Tensor, scratch: Scratch) -> Tensor:
        """Log of S2; -inf at unit score 0; in slot 4 of ``scratch``, 3 is used too."""
        ceiling = self.b - 1
        below = torch.minimum(drop, ceiling, out=scratch.like(drop, 3))
        result = torch.log1p(below, out=scratch.like(drop, 4)).sub_(ceiling.log1p())
        return result.mul_(torch.sub(ceiling, below, out=below)).mul_(self.odds)

    def pull(self, drop: Tensor, gradient: Tensor, scratch: Scratch) -> tuple[Tensor, list[Tensor]]:
        """Gradients of ``drop`` and of (b, odds) from the gradient of :meth:`log`, 0 wherever the log is -inf."""
        ceiling = self.b - 1
        below = torch.minimum(drop, ceiling, out=scratch.like(drop, 3))
        log_ratio = torch.log1p(below, out=scratch.like(drop, 4))
        log_ratio.sub_(ceiling.log1p()).clamp_(min=-200)  # ln x - ln b
        x = torch.add(below, 1, out=scratch.like(drop, 5)).clamp_(min=_LEAST)
        rest = torch.sub(ceiling, below, out=below)  # b - x
        part = torch.mul(gradient, log_ratio, out=scratch.like(drop, 6))
        of_logs = part.sum(dim=1, keepdim=True)
        of_odds = part.mul_(rest).sum(dim=1, keepdim=True)
        of_rest = torch.mul(gradient, rest, out=part).sum(dim=1, keepdim=True)
        of_b = self.odds * (of_logs - of_rest / self.b)
        of_drop = rest.div_(x).sub_(log_ratio).mul_(gradient).mul_(self.odds)
        return of_drop, [of_b, of_odds]


StepRows = S1Rows | S2Rows


def reach(step: "Step", first: Tensor) -> Tensor:
    """Cost ``[b, 1]`` beyond which a bank row is rejected; infinite for S2 and for rows that are left alone."""
    if not isinstance(step.rows, S1Rows):
        return torch.full_like(first, torch.inf)
    return first + step.width * (1 + 2 * step.rows.eps - step.rows.low)


class Step(NamedTuple):
    """All row numbers of a SoftStep: ``drop = (first - cost) / width``, kept in [-1, 0], then ``rows``.

    ``width [b, 1]`` is infinite for a row that is flat or that must be left alone.
    """

    width: Tensor
    rows: StepRows

    def at(self, rows: slice | Tensor) -> "Step":
        """The numbers of some rows."""
        if isinstance(self.rows, S2Rows):
            return Step(self.width[rows], S2Rows(self.rows.b[rows], self.rows.odds[rows]))
        low, width, t, eps, floor = self.rows
        return Step(self.width[rows], S1Rows(low[rows], width[rows], t[rows], eps, floor))


def step_rows(mask: SoftStep, numbers: Tensor, near: Tensor, first: Tensor, far: Tensor, zone: Tensor) -> Step:
    """The row part of ``mask``, differentiable.

    Args:
        mask: gives family, extent and eps.
        numbers: ``[b, 4]``, a0, b0, t and t / (1 - t) as :meth:`SoftStep.shape` has them.
        near: ``[b, 1]``, lowest cost (negated score) of an admissible row.
        first: ``[b, 1]``, lowest cost of a counted row.
        far: ``[b, 1]``, highest cost of a counted row.
        zone: ``[b, 1]``, by how much costs must differ to be told apart.
    """
    width = unit_width(far - first, zone, inset=mask.inset)
    top = ((first - near) / width + 1).clamp(0.0, 1.0)  # highest admissible unit score
    a0, b0, t, odds = (numbers[:, i : i + 1] for i in range(4))
    if mask.family == "s2":
        return Step(torch.where(top > 0, width, torch.inf), S2Rows(b0, odds))
    low = torch.minimum(a0, top)
    return Step(width, S1Rows(low, b0 * ((1 - low) + mask.eps), t, mask.eps, mask.floor))
