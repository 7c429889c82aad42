"""Curves of any shape: lines between points, pieces between knots, staircases, any torch function."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from vicinal.core import check_choice, check_integer, check_number
from vicinal.links.curve import Cap, Curve, Tails
from vicinal.links.numerics import Real, WithDerivative, clip, gauss_nodes, number, ramp_divergence
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
        total = torch.full_like(z, self._level())
        for cap in self._caps():
            total = total + cap(z)
        for knot, jump in self._jumps():
            total = total + jump * (z > knot).to(z.dtype)
        return total

    def primitive(self, z: Tensor) -> Tensor:
        """Primitive, continuous over the knots."""
        total = self._level() * z
        for cap in self._caps():
            total = total + cap.primitive(z)
        for knot, jump in self._jumps():
            total = total + jump * (z - knot).clamp(min=0)
        return total

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
        total = torch.zeros_like(a + b)
        for cap in self._caps():
            total = total + cap.divergence(a, b)
        for knot, jump in self._jumps():
            total = total + jump * (a - knot) * ((a > knot).to(a.dtype) - (b > knot).to(a.dtype))
        return total

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
        return Interpolated(_tensor(knots), _tensor(values), tails=tails)
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


def _tensor(values: object) -> Tensor:
    return values if isinstance(values, Tensor) else torch.tensor(values, dtype=torch.float64)


def _derivative(function: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    """Of an elementwise function, by autograd; itself differentiable where gradients are on."""
    create = torch.is_grad_enabled()
    with torch.enable_grad():
        at = z if create and z.requires_grad else z.detach().requires_grad_()
        value = function(at)
        if not value.requires_grad:
            return torch.zeros_like(z)
        derivative = torch.autograd.grad(value.sum(), at, create_graph=create, allow_unused=True)[0]
    return torch.zeros_like(z) if derivative is None else derivative


class FromCallable(Curve):
    """See :func:`from_callable`."""

    may_fall = False

    def __init__(
        self,
        function: Callable[[Tensor], Tensor],
        domain: tuple[float, float],
        order: int,
        panels: int,
        tolerance: float,
    ) -> None:
        super().__init__()
        self.function = function
        self._domain = domain
        self.order, self.panels = check_integer("order", order), check_integer("panels", panels)
        low, high = max(domain[0], min(-8.0, domain[1] - 16)), min(domain[1], max(8.0, domain[0] + 16))
        self.anchor = min(max(0.0, low), high)
        margin = 1e-3 * (high - low)
        self._grid = (low + margin, high - margin)
        self._check_values(torch.linspace(*self._grid, 2001, dtype=torch.float64))
        self.accuracy = self._estimate_accuracy()
        if not self.accuracy <= tolerance:
            raise ValueError(
                f"order: expected quadrature to {tolerance:g}, got an error of {self.accuracy:.1g}; "
                "raise panels (for a kink) or tolerance"
            )

    @property
    def domain(self) -> tuple[float, float]:
        """As it was given."""
        return self._domain

    @property
    def closed(self) -> tuple[bool, bool]:
        """Whether the function is finite at each finite end of the domain."""
        with torch.no_grad():
            low, high = (
                bool(self.function(torch.tensor([end], dtype=torch.float64)).isfinite().all()) or math.isinf(end)
                for end in self._domain
            )
        return low, high

    @property
    def landmarks(self) -> tuple[Landmark, ...]:
        """Where the integral starts."""
        return ((self.anchor, 1.0),)

    def _check_values(self, grid: Tensor) -> None:
        """Whether values are finite, and rise: on the grid, and beyond it as far as there are values."""
        with torch.no_grad():
            values = self.function(grid)
        if values.shape != grid.shape or not bool(values.isfinite().all()):
            raise ValueError("function: expected a finite value for each score of the domain, elementwise")
        below, above = (self._beyond(grid[end], self._domain[end]) for end in (0, -1))
        grid = torch.cat([below.flip(0), grid, above])
        with torch.no_grad():
            values = self.function(grid)
        rise = values.diff()
        falls = rise < -1e-9 * (1 + torch.maximum(values[1:].abs(), values[:-1].abs()))
        self.is_monotone = not bool(falls.any())
        self.is_invertible = bool((rise > 0).all())
        if not self.is_monotone and not self.may_fall:
            distance = (grid[1:] - self.anchor).abs().where(falls, torch.inf)
            at = float(grid[1:][int(distance.argmin())])
            raise ValueError(f"function: expected a function that never falls, got a fall at {at:.4g}")

    def _beyond(self, start: Tensor, end: float) -> Tensor:
        """Scores from ``start`` towards ``end``, each a fifth farther from the anchor, while values are finite."""
        way = start - self.anchor
        scores = self.anchor + way * 1.2 ** torch.arange(1, 1500, dtype=torch.float64)
        scores = scores[(scores.abs() < 1e100) & ((scores < end) if way > 0 else (scores > end))]
        with torch.no_grad():
            finite = self.function(scores).isfinite()
        return scores[: int(finite.to(torch.uint8).cumprod(0).sum())]

    def _estimate_accuracy(self) -> float:
        grid = torch.linspace(*self._grid, 33, dtype=torch.float64)
        with torch.no_grad():
            coarse, fine = self._integrate(grid, self.panels), self._integrate(grid, 2 * self.panels + 1)
        return float(((coarse - fine).abs() / (1 + fine.abs())).max())

    def _integrate(self, z: Tensor, panels: int) -> Tensor:
        width = (z - self.anchor) / panels
        total = torch.zeros_like(z)
        for panel in range(panels):
            for node, weight in zip(*gauss_nodes(self.order), strict=True):
                total = total + weight * self.function(self.anchor + (panel + node) * width)
        return width * total

    def forward(self, z: Tensor) -> Tensor:
        """The function itself."""
        return self.function(z)

    def primitive(self, z: Tensor) -> Tensor:
        """Integral of the function from 0 (or the end of the domain nearest to 0) to ``z``."""
        value: Tensor = WithDerivative.apply(  # type: ignore[no-untyped-call]
            z, self._integrate(z.detach(), self.panels), self.function
        )
        return value

    def slope(self, z: Tensor) -> Tensor:
        """Slope by autograd."""
        return _derivative(self.function, z)

    def _divergence(self, a: Tensor, b: Tensor) -> Tensor:
        delta, level = (a - b) / self.panels, self.function(b)
        total = torch.zeros_like(delta)
        for panel in range(self.panels):
            for node, weight in zip(*gauss_nodes(self.order), strict=True):
                total = total + weight * (self.function(b + (panel + node) * delta) - level)
        return (delta * total).clamp(min=0) if self.is_monotone else delta * total

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        name = "" if isinstance(self.function, nn.Module) else f"{getattr(self.function, '__name__', self.function)}, "
        return f"{name}domain={self._domain}, order={self.order}, panels={self.panels}, accuracy={self.accuracy:.1g}"


class FromTransform(FromCallable):
    """The scaling q = d ln f / dz of a score transform f, whose primitive is ln f exactly; it may fall."""

    may_fall = True

    def __init__(self, transform: Callable[[Tensor], Tensor], domain: tuple[float, float]) -> None:
        self.transform = transform
        super().__init__(self._log_slope, domain, order=16, panels=4, tolerance=1e-5)

    def _log_slope(self, z: Tensor) -> Tensor:
        return _derivative(self.primitive, z)

    def _check_values(self, grid: Tensor) -> None:
        with torch.no_grad():
            values = self.transform(grid)
        if values.shape != grid.shape or not bool((values.isfinite() & (values > 0)).all()):
            raise ValueError("function: expected a finite value above 0 for each score of the domain, elementwise")
        super()._check_values(grid)

    def primitive(self, z: Tensor) -> Tensor:
        """Primitive ln f(z)."""
        return self.transform(z).log()


def from_callable(
    function: Callable[[Tensor], Tensor],
    domain: tuple[float, float] = (-math.inf, math.inf),
    *,
    order: int = 16,
    panels: int = 4,
    tolerance: float = 1e-6,
) -> FromCallable:
    """A link from any rising elementwise torch function, which may be a module with parameters.

    The gradient of its matching loss is h(prediction) - h(target) exactly; only the reported value has the error of
    Gauss-Legendre quadrature, which is estimated on [-8, 8] (or the part of the domain nearest to it) and kept as
    ``accuracy``. That it never falls is checked at 2000 scores there and at some farther away.

    Args:
        function: elementwise, differentiable by autograd, never falling.
        domain: lowest and highest score.
        order: nodes in each panel.
        panels: equal parts of the way from 0 to the score; more for functions with kinks.
        tolerance: largest error accepted, relative to 1 + |primitive|.

    Raises:
        ValueError: if the function falls somewhere, is not finite, or the error is above ``tolerance``.

    >>> link = from_callable(lambda z: z**3 + z)
    >>> link.primitive(torch.tensor([2.0]))  # 2^4 / 4 + 2^2 / 2
    tensor([6.0000])
    """
    if not callable(function):
        raise TypeError(f"function: expected a function of a tensor, got {type(function).__name__}")
    low, high = domain
    for end in domain:
        if math.isnan(end):
            check_number("domain", end)
    if not low < high:
        raise ValueError(f"domain: expected low < high, got {domain}")
    return FromCallable(function, (float(low), float(high)), order, panels, tolerance)
