r"""SoftStep a block at a time: the numbers of each row, and the computation for each entry.

Entries are given as *gaps*. A score gap is the lowest cost of a row minus the cost of an entry; a unit gap is that over
the width of the row's range, ``unit - 1`` in [-1, 0]. Both are 0 at the nearest row, so a block of the bank can be
masked alone once the row numbers are known, and no digits are lost where the unit score is near 1.

There are two ways. Rows of a step (:class:`S1Rows`, :class:`S2Rows`) give logarithms for any simplex map;
:class:`S1Weights` go straight from gaps to weights under softmax, before division by the row sum, in few passes over
memory. On a CPU torch's exp2, log1p, sigmoid and reciprocal are fast, while exp, log, powers
and addcmul of columns take several times longer, so the formulas use the former.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from vicinal.blockwise.blocks import Buffers

_LOG2E = 1 / math.log(2)

_LEAST = 1e-30

FADE = 32.0
"""A row's range is used as it is if it is wider than about this many resolutions."""


class StepForm(NamedTuple):
    """The settings of a :class:`vicinal.masks.SoftStep` that change the formula.

    Attributes:
        family: "s1" or "s2".
        extent: the bank rows that the range of a row is taken over, "admissible" or "all".
        eps: > 0.
    """

    family: str
    extent: str
    eps: float

    @property
    def inset(self) -> bool:
        """Whether rows that cannot be told from the farthest are rejected too: S2 is too steep to reject only one."""
        return self.family == "s2"

    @property
    def floor(self) -> float:
        """Lower bound on u and v of S1."""
        return self.eps if self.extent == "all" else 0.0


def unit_width(width: Tensor, zone: Tensor, *, inset: bool = False) -> Tensor:
    r"""What gaps to the highest score are divided by, from the width ``[b, 1]`` of each row's range.

    It is the width $w$ itself if that is more than about 32 times the resolution $r$ (``zone``), else
    $(32 r)^2 / (w - r)$, which goes to infinity for a row that is flat to within its resolution. With ``inset`` the
    range ends one resolution above the lowest score.
    """
    zone = zone.detach()
    left = width - zone
    flat = left.detach() <= 0
    safe = torch.where(flat, 1.0, left)
    return torch.where(flat, torch.inf, torch.maximum(safe if inset else width, (FADE * zone) * (FADE * zone / safe)))


class S1Rows(NamedTuple):
    """Row numbers ``[b, 1]`` of S1: where it leaves 0, how far it rises, its t; and its eps and floor."""

    low: Tensor
    width: Tensor
    t: Tensor
    eps: float
    floor: float

    def _sides(self, gap: Tensor, buffers: Buffers) -> tuple[Tensor, Tensor]:
        if self.floor > 0:  # low may be the top itself, where a tiny eps must survive rounding
            rise = torch.add(gap, 1, out=buffers.like("first side", gap)).sub_(self.low).add_(self.eps)
        else:
            rise = torch.add(gap, (1 - self.low) + self.eps, out=buffers.like("first side", gap))
        fall = torch.sub(self.width, rise, out=buffers.like("second side", gap)).clamp_(min=0)
        return rise.clamp_(min=0), fall

    def log(self, gap: Tensor, buffers: Buffers) -> Tensor:
        """Log of S1; -inf where it is 0."""
        rise, fall = self._sides(gap, buffers)
        rejected, passed = rise == 0, fall == 0
        log_u = rise.clamp_(min=_LEAST).log_().div_(self.t)
        log_v = fall.clamp_(min=_LEAST).log_().div_(self.t)
        if self.floor > 0:
            log_u.clamp_(min=math.log(self.floor))
            log_v.clamp_(min=math.log(self.floor))
        return logsigmoid(log_u - log_v).masked_fill_(passed, 0.0).masked_fill_(rejected, -torch.inf)


class S2Rows(NamedTuple):
    """Row numbers ``[b, 1]`` of S2: b and t / (1 - t)."""

    b: Tensor
    odds: Tensor

    def log(self, gap: Tensor, buffers: Buffers) -> Tensor:
        """Log of S2; -inf at unit score 0."""
        ceiling = self.b - 1
        below = torch.minimum(gap, ceiling, out=buffers.like("first side", gap))
        result = torch.log1p(below, out=buffers.like("second side", gap)).sub_(ceiling.log1p())
        return result.mul_(torch.sub(ceiling, below, out=below)).mul_(self.odds)


StepRows = S1Rows | S2Rows


class Step(NamedTuple):
    """All row numbers of a SoftStep: ``gap = (first - cost) / width``, clamped to [-1, 0], then ``rows``.

    ``width [b, 1]`` is infinite for a row that is flat or must be left unmasked.
    """

    width: Tensor
    rows: StepRows

    def at(self, rows: slice | Tensor) -> "Step":
        """The numbers of some rows."""
        if isinstance(self.rows, S2Rows):
            return Step(self.width[rows], S2Rows(self.rows.b[rows], self.rows.odds[rows]))
        low, width, t, eps, floor = self.rows
        return Step(self.width[rows], S1Rows(low[rows], width[rows], t[rows], eps, floor))


def step_rows(form: StepForm, numbers: Tensor, near: Tensor, first: Tensor, far: Tensor, zone: Tensor) -> Step:
    """The row numbers of a SoftStep.

    Args:
        form: its settings.
        numbers: ``[b, 4]``, a0, b0, t and t / (1 - t) of :meth:`vicinal.masks.SoftStep.step_parameters`.
        near: ``[b, 1]``, lowest cost (negated score) of an admissible bank row.
        first: ``[b, 1]``, lowest cost of a bank row that counts for the range.
        far: ``[b, 1]``, highest cost of a bank row that counts for the range.
        zone: ``[b, 1]``, how much costs must differ to be told apart.
    """
    width = unit_width(far - first, zone, inset=form.inset)
    top = ((first - near) / width + 1).clamp(0.0, 1.0)  # highest admissible unit score
    a0, b0, t, odds = (numbers[:, i : i + 1] for i in range(4))
    # the best row that may be seen must pass, though its unit score may be 0 where the range is that of all rows: S2
    # then gets a width that makes every unit score 1, and S1 begins at that row at the latest
    if form.family == "s2":
        return Step(torch.where(top > 0, width, torch.inf), S2Rows(b0, odds))
    low = torch.minimum(a0, top)
    return Step(width, S1Rows(low, b0 * ((1 - low) + form.eps), t, form.eps, form.floor))


class S1Weights(NamedTuple):
    r"""S1 by $r = (x - a) / (b - a)$, which is ``gap * scale + offset`` clamped: $S_1 = \sigma(-\ln(1/r - 1) / t)$.

    Attributes:
        scale: ``[b, 1]``, 1 / (width (b - a)).
        offset: ``[b, 1]``, r of the nearest row.
        power: ``[b, 1]``, 1 / t.
    """

    scale: Tensor
    offset: Tensor
    power: Tensor

    def at(self, rows: slice | Tensor) -> "S1Weights":
        """The numbers of some rows."""
        return S1Weights(*(value[rows] for value in self))

    def weights(self, gap: Tensor, buffers: Buffers) -> Tensor:
        """Weights from gaps ``[r, B]``, which are overwritten."""
        place = torch.mul(gap, self.scale, out=buffers.like("unit gaps", gap)).add_(self.offset).clamp_(0, 1)
        mass = place.reciprocal_().sub_(2).log1p_().mul_(-self.power).sigmoid_()
        return mass.mul_(gap.mul_(_LOG2E).exp2_())


def step_weights(step: Step, shift: Tensor | None) -> S1Weights | None:
    """The short formula for the weights of a step of S1, a third of the time; None if there is none.

    Args:
        step: of all queries.
        shift: ``[b, 1]``, added to all masked scores; or None.
    """
    rows = step.rows
    if isinstance(rows, S2Rows) or shift is not None or rows.floor > 0:
        return None
    offset = ((1 - rows.low) + rows.eps) / rows.width
    return S1Weights(1 / (step.width * rows.width), offset, 1 / rows.t)
