"""Curves between knots: lines between points, pieces, staircases."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from vicinal.core import as_tensor, check_choice
from vicinal.core.checks import check_number
from vicinal.links.curve import Cap, Curve, Tails
from vicinal.links.numerics import Real, clip, number, ramp_divergence
from vicinal.links.ranges import Landmark, Range


class Interpolated(Curve):
    """Straight lines between the points (knot, value); what :class:`Piecewise` makes of as many values as knots.

    Args:
        knots: ``[m]`` rising scores; may require grad.
        values: ``[m]`` values that never fall; may require grad.
        tails: "flat" outside the knots, or "linear" to go on with the first and last slope.
    """

    is_invertible = False

    def __init__(self, knots: Tensor, values: Tensor, *, tails: Tails = "flat") -> None:
        super().__init__()
        self.knots, self.values = knots, values
        self.tails = check_choice("tails", tails, ("linear", "flat"))
        check_rising("knots", knots.detach().tolist(), strictly=True)
        check_rising("values", values.detach().tolist(), strictly=False)
        rising = bool((values.detach().diff() > 0).all())
        self.is_invertible, self.is_bounded = tails == "linear" and rising, tails == "flat"

    def _ramps(self, z: Tensor) -> list[tuple[Tensor, Tensor, Real, Real]]:
        """For each line: its slope, its first knot, and where it is in force."""
        knots, values = self.knots.to(z.dtype).to(z.device), self.values.to(z.dtype).to(z.device)
        slopes, last = values.diff() / knots.diff(), len(knots) - 2
        free = self.tails == "linear"
        return [
            (
                slopes[k],
                knots[k],
                -math.inf if free and k == 0 else knots[k],
                math.inf if free and k == last else knots[k + 1],
            )
            for k in range(last + 1)
        ]

    def forward(self, z: Tensor) -> Tensor:
        """Value on the lines."""
        start = self.values[0].to(z.dtype).to(z.device)
        return start + torch.stack([s * (clip(z, low, high) - k) for s, k, low, high in self._ramps(z)]).sum(0)

    def primitive(self, z: Tensor) -> Tensor:
        """Primitive, a quadratic on each line."""
        total = self.values[0].to(z.dtype).to(z.device) * z
        for slope, knot, low, high in self._ramps(z):
            inside = clip(z, low, high)
            total = total + slope * ((inside - knot) ** 2 / 2 + (z - inside) * (inside - knot))
        return total

    def slope(self, z: Tensor) -> Tensor:
        """Slope of the line that ``z`` lies on; a knot belongs to the line on its left."""
        ramps = self._ramps(z)
        return torch.stack([torch.where((z > low) & (z <= high), s, 0.0) for s, _, low, high in ramps]).sum(0)

    @property
    def landmarks(self) -> tuple[Landmark, ...]:
        """The knots."""
        return tuple((knot, 1.0) for knot in self.knots.detach().tolist())

    @property
    def ranges_are_bounds(self) -> bool:
        """The lines are known."""
        return True

    def slope_range(self, low: Tensor, high: Tensor) -> Range:
        """Of the lines that a cell meets, and 0 where it meets a flat tail."""
        ramps = self._ramps(low)
        first, last = ramps[0][2], ramps[-1][3]
        flat = (low <= first) | (high >= last)
        least, most = torch.where(flat, 0.0, torch.inf), torch.where(flat, 0.0, -torch.inf)
        for slope, _, start, end in ramps:
            met = (low <= end) & (high >= start)
            least = torch.where(met, torch.minimum(least, slope), least)
            most = torch.where(met, torch.maximum(most, slope), most)
        return least.to(low.dtype), most.to(low.dtype)

    def _divergence(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.stack([s * ramp_divergence(a - b, a, b, low, high) for s, _, low, high in self._ramps(a)]).sum(0)

    def extra_repr(self) -> str:
        """Points and tails, for ``repr``."""
        return f"knots={self.knots.tolist()}, values={self.values.tolist()}, tails={self.tails!r}"


class Joined(Curve):
    """Pieces with a knot between each two; what :class:`Piecewise` makes of one piece more than knots.

    Args:
        knots: ``m`` rising scores.
        pieces: ``m + 1`` numbers (flat) or links, continuous and rising where they meet unless ``jumps``.
        jumps: let the curve jump upwards at a knot.
    """

    is_invertible = False

    def __init__(self, knots: Sequence[float], pieces: Sequence[float | Curve], *, jumps: bool = False) -> None:
        super().__init__()
        self.knots = [check_number("knots", knot) for knot in knots]
        check_rising("knots", self.knots, strictly=True)
        lows: list[float | None] = [None, *self.knots]
        highs: list[float | None] = [*self.knots, None]
        self.levels = [None if isinstance(p, Curve) else check_number("values", p) for p in pieces]
        self.parts = nn.ModuleList(
            p.cap(low, high, tails="flat") if isinstance(p, Curve) else nn.Identity()
            for p, low, high in zip(pieces, lows, highs, strict=True)
        )
        self._check_joints(jumps=jumps)
        self.is_monotone = all(c.curve.is_monotone for c in self._caps() if isinstance(c.curve, Curve))
        if not self.is_monotone:
            raise ValueError("values: expected links that never fall, got a curve that does; use monotone links")
        outer = [p for p in (pieces[0], pieces[-1]) if isinstance(p, Curve)]
        self.is_bounded = all(p.is_bounded for p in outer)
        self.is_invertible = all(c.curve.is_invertible for c in self._caps()) and len(self._caps()) == len(pieces)

    def _caps(self) -> list[Cap]:
        return [part for part in self.parts if isinstance(part, Cap)]

    def _end(self, piece: int, at: float) -> float:
        level, part = self.levels[piece], self.parts[piece]
        if level is not None:
            return level
        with torch.no_grad():
            return float(part(torch.tensor(at, dtype=torch.float64)))

    def _check_joints(self, *, jumps: bool) -> None:
        for k, knot in enumerate(self.knots):
            left, right = self._end(k, knot), self._end(k + 1, knot)
            gap, tolerance = right - left, 1e-6 * (1 + abs(left))
            if gap < -tolerance:
                raise ValueError(
                    f"values: expected pieces that never fall, got a drop from {left:g} to {right:g} at the "
                    f"knot {knot:g}; raise the piece on the right"
                )
            if gap > tolerance and not jumps:
                raise ValueError(
                    f"values: expected pieces that meet, got a jump from {left:g} to {right:g} at the knot "
                    f"{knot:g}; shift a piece, or use Staircase or jumps=True"
                )

    def _jumps(self) -> list[tuple[float, float]]:
        return [(knot, self._end(k + 1, knot) - self._end(k, knot)) for k, knot in enumerate(self.knots)]

    @property
    def domain(self) -> tuple[float, float]:
        """The lower end of the first piece, the higher end of the last."""
        first, last = self.parts[0], self.parts[-1]
        return (
            first.domain[0] if isinstance(first, Cap) else -math.inf,
            last.domain[1] if isinstance(last, Cap) else math.inf,
        )

    @property
    def closed(self) -> tuple[bool, bool]:
        """As the outer pieces are."""
        first, last = self.parts[0], self.parts[-1]
        return (
            first.closed[0] if isinstance(first, Cap) else True,
            last.closed[1] if isinstance(last, Cap) else True,
        )

    def _level(self) -> float:
        """What the sum of capped pieces and jumps lacks to the first piece's level."""
        at = self.knots[0]
        extra = sum(self._end(k, self.knots[max(k - 1, 0)]) for k, level in enumerate(self.levels) if level is None)
        return self._end(0, at) - extra

    def forward(self, z: Tensor) -> Tensor:
        """Value of the piece that ``z`` lies on."""
        jumps = [jump * (z > knot).to(z.dtype) for knot, jump in self._jumps()]
        return sum([*(cap(z) for cap in self._caps()), *jumps], torch.full_like(z, self._level()))

    def primitive(self, z: Tensor) -> Tensor:
        """Primitive, continuous over the knots."""
        jumps = [jump * (z - knot).clamp(min=0) for knot, jump in self._jumps()]
        return sum([*(cap.primitive(z) for cap in self._caps()), *jumps], self._level() * z)

    def slope(self, z: Tensor) -> Tensor:
        """Slope of the piece that ``z`` lies on."""
        total = torch.zeros_like(z)
        for cap in self._caps():
            inside = (z > number(cap.low)) & (z <= number(cap.high))
            total = total + torch.where(inside, cap.slope(z), 0.0)
        return total

    @property
    def landmarks(self) -> tuple[Landmark, ...]:
        """The knots, and those of the pieces."""
        pieces = [landmark for cap in self._caps() for landmark in cap.landmarks]
        return (*((knot, 1.0) for knot in self.knots), *pieces)

    @property
    def ranges_are_bounds(self) -> bool:
        """Where those of all pieces are."""
        return all(cap.ranges_are_bounds for cap in self._caps())

    def slope_range(self, low: Tensor, high: Tensor) -> Range:
        """Of the pieces that a cell meets."""
        least, most = torch.full_like(low, torch.inf), torch.full_like(low, -torch.inf)
        for part, start, end in zip(self.parts, [-math.inf, *self.knots], [*self.knots, math.inf], strict=True):
            met = (low <= end) & (high >= start)
            lowest, highest = torch.zeros_like(low), torch.zeros_like(low)
            if isinstance(part, Cap):
                lowest, highest = part.curve.slope_range(low.clamp(start, end), high.clamp(start, end))
            least = torch.where(met, torch.minimum(least, lowest), least)
            most = torch.where(met, torch.maximum(most, highest), most)
        return least, most

    def _divergence(self, a: Tensor, b: Tensor) -> Tensor:
        sides = [(a - knot, (a > knot).to(a.dtype) - (b > knot).to(a.dtype), jump) for knot, jump in self._jumps()]
        jumps = [jump * gap * side for gap, side, jump in sides]
        return sum([*(cap.divergence(a, b) for cap in self._caps()), *jumps], torch.zeros_like(a + b))

    def extra_repr(self) -> str:
        """Knots and flat levels, for ``repr``."""
        return f"knots={self.knots}, levels={self.levels}"


def check_rising(name: str, values: Sequence[float], *, strictly: bool) -> None:
    """Check that ``values`` are finite and rise (strictly, or never fall)."""
    for before, after in pairwise(values):
        if not (before < after if strictly else before <= after):
            word = "that rise" if strictly else "that never fall"
            raise ValueError(f"{name}: expected numbers {word}, got {before:g} before {after:g}; sort them")
    if not values or not all(math.isfinite(v) for v in values):
        raise ValueError(f"{name}: expected finite numbers, got {list(values)}")


def Piecewise(
    knots: Sequence[float] | Tensor,
    values: Sequence[float | Curve] | Tensor,
    *,
    tails: Tails = "flat",
    jumps: bool = False,
) -> Curve:
    """A curve from pieces.

    Args:
        knots: ``m`` rising scores.
        values: ``m`` numbers: straight lines between the points (knot, value); a tensor may require grad. Or
            ``m + 1`` pieces, below, between and above the knots: each a number (flat) or any link.
        tails: outside the knots, for lines: "flat" or "linear".
        jumps: for pieces: let the curve jump upwards at a knot.

    Raises:
        ValueError: for a piece that falls, or pieces that do not meet.

    >>> Piecewise([0.0, 1.0, 2.0], [0.0, 1.0, 5.0])(torch.tensor([-1.0, 0.5, 1.5, 9.0]))
    tensor([0.0000, 0.5000, 3.0000, 5.0000])
    >>> from vicinal.links import Exp, Identity
    >>> Piecewise([0.0], [Identity(shift=-1.0), Exp()])(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([0.0000, 1.0000, 2.7183])
    """
    if len(values) == len(knots):
        if any(isinstance(value, Curve) for value in values):
            raise ValueError("values: expected numbers for as many values as knots, got a curve; give one piece more")
        if len(knots) < 2:
            raise ValueError(f"knots: expected two or more for straight lines, got {len(knots)}")
        return Interpolated(_tensor("knots", knots), _tensor("values", values), tails=tails)
    if len(values) == len(knots) + 1:
        return Joined(list(knots), list(values), jumps=jumps)
    raise ValueError(f"values: expected {len(knots)} numbers or {len(knots) + 1} pieces, got {len(values)}")


def Staircase(knots: Sequence[float], values: Sequence[float]) -> Joined:
    """Flat levels with a jump upwards at each knot: only the step a score stands on matters.

    Args:
        knots: ``m`` rising scores.
        values: ``m + 1`` levels that never fall.

    >>> Staircase([0.0, 1.0], [0.0, 1.0, 3.0])(torch.tensor([-1.0, 0.5, 2.0]))
    tensor([0., 1., 3.])
    """
    check_rising("values", [check_number("values", value) for value in values], strictly=False)
    if len(values) != len(knots) + 1:
        raise ValueError(f"values: expected {len(knots) + 1} levels, got {len(values)}")
    return Joined(list(knots), list(values), jumps=True)


def _tensor(name: str, values: object) -> Tensor:
    return values if isinstance(values, Tensor) else as_tensor(name, values, torch.float64)
