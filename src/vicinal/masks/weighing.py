r"""Weights under SoftStep and softmax straight from leads, and the way back, in few passes over memory.

A *lead* is the lowest cost of a row minus the cost of an entry. Weights come before their division by the sum of the
row. Of torch's functions exp2, log1p, sigmoid and reciprocal are fast on CPU, while exp, log, powers and addcmul of
columns take several times longer, so the formulas are written in the former.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from vicinal.masks.scratch import Scratch
from vicinal.masks.steps import S1Rows, S2Rows, Step

_LOG2E = 1 / math.log(2)

_LEAST = 1e-30


class StepGradients(NamedTuple):
    """Gradients ``[b, 1]`` of the lowest counted cost, of the width of the range, and of the numbers of the step."""

    first: Tensor
    width: Tensor
    numbers: list[Tensor]


class S2Weigher(NamedTuple):
    r"""S2 by $z = x/b - 1$ in [-1, 0], which is ``lead * scale + offset`` clamped: $\ln S_2 = -c z \ln(1 + z)$.

    Attributes:
        scale: ``[b, 1]``, 1 / (b width).
        offset: ``[b, 1]``, 1 / b - 1.
        power: ``[b, 1]``, -c = -b t / (1 - t), in powers of 2.
        ratio: ``[b, 1]``, t / (1 - t) / width.
        shift: ``[b, 1]``, added to all masked scores, in powers of 2; or None.
    """

    scale: Tensor
    offset: Tensor
    power: Tensor
    ratio: Tensor
    shift: Tensor | None

    def at(self, rows: slice | Tensor) -> "S2Weigher":
        """The numbers of some rows."""
        shift = None if self.shift is None else self.shift[rows]
        return S2Weigher(self.scale[rows], self.offset[rows], self.power[rows], self.ratio[rows], shift)

    def masses(self, lead: Tensor, scratch: Scratch) -> Tensor:
        """Weights from leads ``[r, B]``; slots 2 and 3 of ``scratch`` are used."""
        rest = torch.mul(lead, self.scale, out=scratch.like(lead, 2)).add_(self.offset).clamp_(-1, 0)
        return self._exponential(torch.log1p(rest, out=scratch.like(lead, 3)).mul_(rest), lead)

    def _exponential(self, logs: Tensor, lead: Tensor) -> Tensor:
        logs.mul_(self.power).add_(lead, alpha=_LOG2E)
        return (logs if self.shift is None else logs.add_(self.shift)).exp2_()

    def open(self, lead: Tensor, scratch: Scratch) -> tuple[Tensor, list[Tensor]]:
        """Weights from leads, and what :meth:`pull` needs; slots 2 to 4 are used."""
        rest = torch.mul(lead, self.scale, out=scratch.like(lead, 2)).add_(self.offset).clamp_(-1, 0)
        logs = torch.log1p(rest, out=scratch.like(lead, 3))
        weights = self._exponential(torch.mul(logs, rest, out=scratch.like(lead, 4)), lead)
        return weights, [rest, logs.clamp_(min=-200)]

    def pull(self, gradient: Tensor, kept: list[Tensor], scratch: Scratch) -> tuple[Tensor, list[Tensor]]:
        """Gradient of leads, and sums ``[r]``, from that of the log weights; slot 5 is used."""
        rest, logs = kept
        part = torch.mul(gradient, logs, out=scratch.like(gradient, 5))
        vecdot = torch.linalg.vecdot
        sums = [part.sum(dim=1) + vecdot(gradient, rest), vecdot(part, rest), gradient.sum(dim=1)]
        slope = rest.add_(1).clamp_(min=_LEAST).reciprocal_().sub_(logs).mul_(self.ratio).add_(1 - self.ratio)
        found = slope.mul_(gradient)
        return found, [*sums, found.sum(dim=1)]

    def finish(self, sums: Tensor, step: Step) -> StepGradients:
        """Row gradients from the ``sums [b, 4]`` over all blocks."""
        first, second, before, after = sums.unbind(dim=1)
        if not isinstance(step.rows, S2Rows):
            raise TypeError(f"step: expected one of S2, got {type(step.rows).__name__}")
        b, odds, inverse = step.rows.b[:, 0], step.rows.odds[:, 0], 1 / step.width[:, 0]
        of_first = torch.where(inverse > 0, after - before, 0.0)
        of_width = b * odds * (first + second) * inverse + of_first
        return StepGradients(of_first[:, None], of_width[:, None], [(odds * first)[:, None], (-b * second)[:, None]])


class S1Weigher(NamedTuple):
    r"""S1 by $r = (x - a) / (b - a)$, which is ``lead * scale + offset`` clamped: $S_1 = \sigma(-\ln(1/r - 1) / t)$.

    Attributes:
        scale: ``[b, 1]``, 1 / (width (b - a)).
        offset: ``[b, 1]``, r of the nearest row.
        power: ``[b, 1]``, 1 / t.
    """

    scale: Tensor
    offset: Tensor
    power: Tensor

    def at(self, rows: slice | Tensor) -> "S1Weigher":
        """The numbers of some rows."""
        return S1Weigher(*(value[rows] for value in self))

    def masses(self, lead: Tensor, scratch: Scratch) -> Tensor:
        """Weights from leads ``[r, B]``, which are written over; slot 2 of ``scratch`` is used."""
        place = torch.mul(lead, self.scale, out=scratch.like(lead, 2)).add_(self.offset).clamp_(0, 1)
        mass = place.reciprocal_().sub_(2).log1p_().mul_(-self.power).sigmoid_()
        return mass.mul_(lead.mul_(_LOG2E).exp2_())

    def open(self, lead: Tensor, scratch: Scratch) -> tuple[Tensor, list[Tensor]]:
        """Weights from leads, which are written over, and what :meth:`pull` needs; slots 2 to 6 are used."""
        place = torch.mul(lead, self.scale, out=scratch.like(lead, 2)).add_(self.offset).clamp_(0, 1)
        inverse = torch.reciprocal(place, out=scratch.like(lead, 3))
        against = torch.sub(inverse, 2, out=scratch.like(lead, 4)).log1p_().mul_(self.power).clamp_(-1e4, 1e4)
        missing = torch.sigmoid(against, out=scratch.like(lead, 5))  # 1 - S1
        of_t = torch.mul(against, missing, out=scratch.like(lead, 6))
        weights = against.neg_().sigmoid_().mul_(lead.mul_(_LOG2E).exp2_())
        return weights, [place, inverse, missing, of_t]

    def pull(self, gradient: Tensor, kept: list[Tensor], scratch: Scratch) -> tuple[Tensor, list[Tensor]]:
        """Gradient of leads, and sums ``[r]``, from that of the log weights."""
        place, inverse, missing, of_t = kept
        sum_of_t = torch.linalg.vecdot(gradient, of_t)
        rest = torch.sub(inverse, 1, out=of_t).clamp_(min=_LEAST)
        inverse.clamp_(max=1e18)  # 1 / (r (1 - r)) = inverse / rest * inverse
        slope = torch.div(inverse, rest, out=rest).mul_(inverse).mul_(missing).mul_(gradient)
        sums = [slope.sum(dim=1), torch.linalg.vecdot(slope, place), sum_of_t]
        return slope.mul_(self.scale * self.power).add_(gradient), sums

    def finish(self, sums: Tensor, step: Step) -> StepGradients:
        """Row gradients from the ``sums [b, 3]`` over all blocks."""
        if not isinstance(step.rows, S1Rows):
            raise TypeError(f"step: expected one of S1, got {type(step.rows).__name__}")
        power, inverse = self.power[:, 0], 1 / step.width[:, 0]
        slope, placed, of_t = sums[:, 0] * power, sums[:, 1] * power, sums[:, 2] * power
        width = step.rows.width[:, 0]
        of_range = (self.offset[:, 0] * slope - placed) * inverse
        numbers = [-slope / width, -placed / width, of_t]
        return StepGradients((slope * self.scale[:, 0])[:, None], of_range[:, None], [n[:, None] for n in numbers])


Weigher = S1Weigher | S2Weigher


def weigher(step: Step, shift: Tensor | None) -> Weigher | None:
    """The short way for a step, or None if there is none.

    Args:
        step: of all rows.
        shift: ``[b, 1]``, added to all masked scores; or None.
    """
    rows = step.rows
    if isinstance(rows, S2Rows):
        inverse = 1 / rows.b
        powers = None if shift is None else _LOG2E * shift
        power = -_LOG2E * rows.odds * rows.b
        return S2Weigher(inverse / step.width, inverse - 1, power, rows.odds / step.width, powers)
    if shift is not None or rows.floor > 0:
        return None
    offset = ((1 - rows.low) + rows.eps) / rows.width
    return S1Weigher(1 / (step.width * rows.width), offset, 1 / rows.t)
