"""The log-mass of the unrelated pairs of a batch within Tukey's fences, a block of scores at a time."""

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from vicinal.blockwise.blocks import row_slices
from vicinal.blockwise.custom_ops import value_and_grad_op
from vicinal.blockwise.row_blocks import Score, coded, equal_codes, inner_products

_SIDE, _APART = 32, 128
"""The sample for the quartiles: scores of 32 rows with 32 others, once for every 128 rows of the batch."""

_WIDTH = 2.0
"""A quartile is sought this many roots of the sample's size to either side of its place in the sample."""


@dataclass(frozen=True)
class _Batch:
    """Scores of the unrelated pairs of rows, each pair once.

    Attributes:
        score: of rows with rows.
        rows: ``[b, d]``, without history.
        codes: ``[b]``, equal for related rows, or ``[b, C]``, numbers of at least 0 with a class in common.
        size: rows of a block.
    """

    score: Score
    rows: Tensor
    codes: Tensor
    size: int

    def related(self, one: Any, other: Any) -> Tensor:
        """1 or 0, of the rows at two slices or indices."""
        if self.codes.ndim == 1:
            return equal_codes(self.codes[one], self.codes[other], self.rows.dtype)
        return (self.codes[one] @ self.codes[other].T > 0).to(self.rows.dtype)

    def blocks(self, *, leaves: bool = False) -> Iterator[tuple[slice, Tensor, Tensor, list[Tensor]]]:
        """A slice of rows; their scores with all rows from it on; these, lowest where none counts; and the leaves."""
        for part in row_slices(len(self.rows), self.size):
            behind = slice(part.start, None)
            sides = [self.rows[part].detach(), self.rows[behind].detach()]
            with torch.set_grad_enabled(leaves and self.score is not inner_products):
                scores = self.score(*(side.requires_grad_(torch.is_grad_enabled()) for side in sides))
            counted = torch.add(scores.detach(), self.related(part, behind), alpha=_least(scores))
            square = counted[:, : len(counted)]
            square.masked_fill_(torch.ones_like(square, dtype=torch.bool).tril_(), _least(scores))
            yield part, scores, counted, sides

    def sample(self) -> Tensor:
        """Some of the scores that count, sorted."""
        b, samples = len(self.rows), []
        place = torch.arange(_SIDE, device=self.rows.device) * max(1, b // _SIDE)
        for turn in range(1 + b // _APART):
            one, other = (place + 3 * turn) % b, (place + 5 * turn + b // 2) % b
            scores = self.score(self.rows[one], self.rows[other])
            samples.append(scores[self.related(one, other) == 0])
        return torch.cat(samples).sort().values

    def mass(self, scale: float, reach: float, *, sloped: bool) -> tuple[Tensor, Tensor]:
        """Log of the sum of e^(scale * score) within the fences, and its slope by the rows."""
        finite = bool(self.rows.isfinite().all())
        ends = self.fences(reach) if finite and not math.isinf(reach) else None
        if not finite or (ends is not None and not bool(ends[0] <= ends[1])):  # nothing is known of such scores
            return self.rows.new_tensor(torch.nan), torch.full_like(self.rows, torch.nan)
        slope = torch.zeros_like(self.rows)
        top, total = -math.inf, self.rows.new_zeros(())
        for part, scores, share, sides in self.blocks(leaves=sloped):
            most = _keep_between(share, ends)
            if most > top:  # all that was summed before becomes smaller
                shrunk = math.exp(scale * (top - most))
                top, total, slope = most, total * shrunk, slope.mul_(shrunk)
            if math.isfinite(most):
                total = total + share.sub_(top).mul_(scale).exp_().sum()
                if sloped:
                    _add_slopes(slope, scores, share, sides, part)
        slope.mul_(scale / torch.where(total > 0, total, 1.0))
        return total.log() + (scale * top if math.isfinite(top) else 0.0), slope

    def fences(self, reach: float) -> tuple[Tensor, Tensor]:
        """The lowest and the highest score within ``reach`` interquartile ranges of the quartiles."""
        first, third = self.quartiles()
        spread = reach * (third - first)
        return first - spread, third + spread

    def quartiles(self) -> list[Tensor]:
        """The sorted scores at the places ``int(n / 4)`` and ``int(3 n / 4)``; 0 if there are none, NaN if infinite."""
        few = self.sample()
        if not self.number:
            return [few.new_zeros(())] * 2
        ends = [_about(few, share) for share in (0.25, 0.75)]
        for _ in range(1 + 2 * len(ends)):
            ranges = list(zip((self.number // 4, 3 * self.number // 4), *self._counted(ends), strict=True))
            if all(less <= place < less + len(values) for place, less, values in ranges):
                return [values.kthvalue(place - less + 1).values for place, less, values in ranges]
            for nth, (place, less, values) in enumerate(ranges):  # the sample was a bad one
                if place < less:
                    ends[nth] = _least(few) / 2, ends[nth][0]
                elif place >= less + len(values):
                    ends[nth] = ends[nth][1], -_least(few) / 2
        return [few.new_tensor(torch.nan)] * 2

    def _counted(self, ends: list[tuple[float, float]]) -> tuple[list[int], list[Tensor]]:
        """How many scores are below each of two pairs of ends, and those between them.

        On a CPU the arithmetic takes a fraction of the time of comparisons. Scores near either middle are found in one
        step, with a little slack for rounding.
        """
        middles, reach = [(low + high) / 2 for low, high in ends], max(high - low for low, high in ends) / 2
        center, apart = sum(middles) / 2, (middles[1] - middles[0]) / 2
        reach += 8 * torch.finfo(self.rows.dtype).eps * (reach + abs(apart) + abs(center))
        out, near = -self.number, []
        below = [0] * len(ends)
        for _, _, counted, _ in self.blocks():
            out += counted.numel()
            for nth, (low, _) in enumerate(ends):
                below[nth] -= int(counted.sub(low).sign_().clamp_(max=0).sum())
            inside = counted.sub(center).abs_().sub_(apart).abs_() <= reach
            near.append(counted.reshape(-1)[inside.reshape(-1)])
        inside_scores = torch.cat(near)
        return [each - out for each in below], [
            inside_scores[(inside_scores >= low) & (inside_scores <= high)] for low, high in ends
        ]

    @functools.cached_property
    def number(self) -> int:
        """How many pairs count."""
        b = len(self.rows)
        if self.codes.ndim == 1:
            classes = torch.unique(self.codes, return_counts=True)[1]
            return (b * b - int(classes.square().sum())) // 2
        return sum(int((counted > _least(counted)).count_nonzero()) for _, _, counted, _ in self.blocks())


def _least(like: Tensor) -> float:
    """Added to the score of a pair that does not count."""
    return -torch.finfo(like.dtype).max


def _about(few: Tensor, share: float) -> tuple[float, float]:
    """Two values of a sorted sample that probably enclose the quantile ``share`` of all scores."""
    near, width = share * len(few), _WIDTH * math.sqrt(len(few)) + 1
    low = float(few[int(near - width)]) if near - width >= 0 else _least(few) / 2
    return low, float(few[int(near + width)]) if near + width < len(few) else -_least(few) / 2


class _LogMass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, batch: "_Batch", scale: float, reach: float) -> Tensor:
        value, slope = batch.mass(scale, reach, sloped=ctx.needs_input_grad[0])
        ctx.save_for_backward(slope)
        return value

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None, None, None]:
        (slope,) = ctx.saved_tensors
        return slope * slopes[0], None, None, None


def _keep_between(scores: Tensor, ends: tuple[Tensor, Tensor] | None) -> float:
    """In place: -inf beyond the ends; the largest left. A threshold takes a tenth of the time of a comparison."""
    low, high = ends or (scores.new_tensor(_least(scores) / 2), scores.new_tensor(torch.inf))
    below = float(torch.nextafter(low, low - torch.inf))
    if float(scores.amax()) > high:
        above = float(torch.nextafter(-high, -high - torch.inf))
        torch.threshold_(scores.neg_(), above, torch.inf).neg_()
    return float(torch.threshold_(scores, below, -torch.inf).amax())


def _add_slopes(slopes: Tensor, scores: Tensor, share: Tensor, sides: list[Tensor], part: slice) -> None:
    """Add the slopes of a block of rows and of those behind it."""
    if scores.requires_grad:
        of_sides = torch.autograd.grad(scores, sides, share)
        slopes[part] += of_sides[0]
        slopes[part.start :] += of_sides[1]
        return
    slopes[part].addmm_(share, sides[1])
    slopes[part.start :].addmm_(share.T, sides[0])


def iqr_mass(score: Score, rows: Tensor, labels: Tensor, *, size: int, scale: float, reach: float) -> Tensor:
    r"""$\log \sum e^{\gamma s}$ over the unrelated pairs of rows with scores s within Tukey's fences; -inf if none.

    Args:
        score: of rows with rows; in a compiled graph always :func:`inner_products`.
        rows: ``[b, d]``, in float32 or wider.
        labels: classes ``[b]``, or ``[b, C]``, above 0 for each class of a row; rows with one in common are related.
        size: rows of a block.
        scale: $\gamma > 0$.
        reach: from the quartiles to the fences, in interquartile ranges; inf: all pairs.

    Returns:
        A scalar that can be differentiated once; NaN if a row is not finite.

    >>> iqr_mass(inner_products, torch.eye(3), torch.tensor([0, 1, 2]), size=1, scale=5.0, reach=1.5)
    tensor(1.0986)
    """
    if torch.compiler.is_compiling():
        return _mass_op(rows, labels, size, scale, reach)[0]  # of inner products alone
    batch = _Batch(score, rows.detach(), _codes(labels, rows), size)
    return cast(Tensor, _LogMass.apply(rows, batch, scale, reach))  # type: ignore[no-untyped-call]


def _codes(labels: Tensor, like: Tensor) -> Tensor:
    return coded(labels, labels)[0] if labels.ndim == 1 else labels.to(like.dtype)


def _mass(
    rows: Tensor,
    labels: Tensor,
    size: int,
    scale: float,
    reach: float,
    with_grad: bool,  # noqa: FBT001
) -> tuple[Tensor, Tensor]:
    return _Batch(inner_products, rows, _codes(labels, rows), size).mass(scale, reach, sloped=with_grad)


_mass_op = value_and_grad_op("iqr_mass", _mass, lambda rows, *_: (rows.new_empty(()), torch.empty_like(rows)))
