"""What a curve is, and new curves from old: sum, positive multiple, mirror image, cap."""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from vicinal.core import check_choice
from vicinal.links.numerics import Real, Setting, check_setting, clip, invert, number, read, slope_times, widen
from vicinal.links.ranges import Landmark, Range, sampled_range

Tails = Literal["linear", "flat"]
Region = Literal["high-norms", "low-norms", "high-scores", "low-scores", "uniform", "designed"]


class Curve(nn.Module):
    r"""A function $h(z)$ of one score, applied to each element, with its primitive $H$ and slope $h'$.

    A curve that never falls is a *link* and gives a convex matching loss. Curves can be added (``a + b``), multiplied
    by a positive factor (``0.2 * a``), mirrored by :meth:`flip` and limited by :meth:`cap`; the result is a curve
    again.

    Attributes:
        is_monotone: True where the curve never falls on its domain.
        is_bounded: True where its values lie in a fixed interval.
        is_invertible: True where it rises strictly and has an inverse.
        is_odd: True where h(c + d) = -h(c - d) around a score c, the :attr:`center`.
        region: where it is steepest, so where its matching loss is most sensitive.
        note: a sentence about how it was made (:func:`vicinal.links.design` fills it), or "".
    """

    is_monotone: bool = True
    is_bounded: bool = False
    is_invertible: bool = True
    is_odd: bool = False
    region: Region = "designed"
    note: str = ""

    if TYPE_CHECKING:

        def __call__(self, z: Tensor) -> Tensor:
            """Value h(z)."""

    @property
    def domain(self) -> tuple[float, float]:
        """Lowest and highest score that the curve is defined on; the ends count only as :attr:`closed` says."""
        return -math.inf, math.inf

    @property
    def closed(self) -> tuple[bool, bool]:
        """Whether each finite end of the domain has a finite value of the curve."""
        return True, True

    @property
    def center(self) -> float | None:
        """The score around which the curve is odd; None where there is none."""
        return 0.0 if self.is_odd else None

    @property
    def landmarks(self) -> tuple[Landmark, ...]:
        """Scores around which the curve has its structure, each with the width of it."""
        return ()

    @property
    def ranges_are_bounds(self) -> bool:
        """Whether :meth:`value_range` and :meth:`slope_range` hold for all scores of a cell, not just for samples."""
        return False

    def value_range(self, low: Tensor, high: Tensor) -> Range:
        """The least and the largest value in each cell from ``low [n]`` to ``high [n]``."""
        return (self(low), self(high)) if self.is_monotone else sampled_range(self, low, high)

    def slope_range(self, low: Tensor, high: Tensor) -> Range:
        """The least and the largest slope in each cell from ``low [n]`` to ``high [n]``."""
        return sampled_range(self.slope, low, high)

    @abstractmethod
    def forward(self, z: Tensor) -> Tensor:
        """Value h(z), of the shape of ``z``."""

    @abstractmethod
    def primitive(self, z: Tensor) -> Tensor:
        """Primitive H(z) with H' = h, of the shape of ``z``."""

    @abstractmethod
    def slope(self, z: Tensor) -> Tensor:
        """Slope h'(z), of the shape of ``z``; at a kink one of the two slopes, at a jump 0."""

    def inverse(self, value: Tensor) -> Tensor:
        """The score z with h(z) = ``value``, of its shape; NaN where no score has it."""
        if not (self.is_monotone and self.is_invertible):
            raise ValueError(f"inverse: expected a curve that rises strictly, got {self!r}")
        return invert(self, self.slope, self.domain, value)

    def divergence(self, prediction: Tensor, target: Tensor) -> Tensor:
        """H(prediction) - H(target) - (prediction - target) h(target), elementwise, without cancellation.

        0 for equal scores also where the curve or its slope is infinite.
        """
        a, b = widen(prediction), widen(target)
        return self._divergence(a, b).to(prediction.dtype)

    def _divergence(self, a: Tensor, b: Tensor) -> Tensor:
        return (self.primitive(a) - self.primitive(b) - (a - b) * self(b)).clamp(min=0)

    def rise(self, a: Tensor, b: Tensor) -> Tensor:
        """h(a) - h(b): 0 for equal scores also at a pole, infinite where both values overflow."""
        of_a, of_b = self(a), self(b)
        rise: Tensor = of_a - of_b
        if self.is_bounded or not bool(rise.sum().isnan()):  # one pass, and seldom another
            return rise
        lost = rise.isnan() & of_a.isinf()
        return torch.where(lost, torch.where(a == b, 0.0, torch.copysign(of_a.detach().abs(), a - b)), rise)

    def slope_times(self, z: Tensor, step: Tensor) -> Tensor:
        """h'(z) step: 0 for a step of 0 also where the slope is infinite."""
        return slope_times(self.slope, z, step, self.domain)

    def pair(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """``(divergence(a, b), h(a) - h(b))`` at once; curves that can share work between the two do."""
        return self.divergence(a, b), self.rise(a, b)

    def both(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """``(h(z), H(z))`` at once; curves that can share work between the two do."""
        return self(z), self.primitive(z)

    def tunable(self) -> list[Tensor]:
        """Every tensor that the curve depends on and that requires grad, parameter or not."""
        tensors: dict[int, Tensor] = {id(p): p for p in self.parameters() if p.requires_grad}
        for module in self.modules():
            for value in vars(module).values():
                if isinstance(value, Tensor) and value.requires_grad:
                    tensors[id(value)] = value
        return list(tensors.values())

    def flip(self) -> "Flip":
        """The curve -h(-z): one that is sensitive at high scores becomes sensitive at low ones."""
        return Flip(self)

    def cap(self, low: Real | None = None, high: Real | None = None, *, tails: Tails = "linear") -> "Cap":
        """The curve inside ``[low, high]``; outside it goes on straight, or flat with ``tails="flat"``."""
        return Cap(self, low, high, tails=tails)

    def __add__(self, other: "Curve") -> "Sum":
        if not isinstance(other, Curve):
            return NotImplemented
        return Sum(self, other)

    def __mul__(self, factor: Real) -> "Multiple":
        if not isinstance(factor, int | float | Tensor):
            return NotImplemented
        return Multiple(self, factor)

    __rmul__ = __mul__


class Sum(Curve):
    """The sum of curves on the domain that they share; its loss is the sum of their losses.

    Args:
        curves: two or more.

    Raises:
        ValueError: if they share no domain.

    >>> from vicinal.links import Sigmoid, Sinh
    >>> Sinh(0.5) + 0.2 * Sigmoid()
    Sum(Sinh(scale=0.5) + 0.2 * Sigmoid())
    """

    def __init__(self, *curves: Curve) -> None:
        super().__init__()
        parts: list[Curve] = []
        for curve in curves:
            if not isinstance(curve, Curve):
                raise TypeError(f"curves: expected curves of vicinal.links, got {type(curve).__name__}")
            parts.extend(curve.curves if type(curve) is Sum else (curve,))
        self.parts = nn.ModuleList(parts)
        self.is_monotone = all(curve.is_monotone for curve in parts)
        self.is_bounded = all(curve.is_bounded for curve in parts)
        self.is_invertible = self.is_monotone and any(curve.is_invertible for curve in parts)
        self.is_odd = self.center is not None
        low, high = self.domain
        if not low < high:
            raise ValueError(f"curves: expected domains that overlap, got {[curve.domain for curve in parts]}")

    @property
    def curves(self) -> tuple[Curve, ...]:
        """The curves that are summed."""
        return tuple(part for part in self.parts if isinstance(part, Curve))

    @property
    def domain(self) -> tuple[float, float]:
        """What all domains share."""
        return max(c.domain[0] for c in self.curves), min(c.domain[1] for c in self.curves)

    @property
    def closed(self) -> tuple[bool, bool]:
        """Closed where every curve whose domain ends there is."""
        low, high = self.domain
        return (
            all(c.closed[0] for c in self.curves if c.domain[0] == low),
            all(c.closed[1] for c in self.curves if c.domain[1] == high),
        )

    @property
    def center(self) -> float | None:
        """The center that all share."""
        centers = {c.center for c in self.curves}
        return centers.pop() if len(centers) == 1 else None

    @property
    def landmarks(self) -> tuple[Landmark, ...]:
        """Those of all."""
        return tuple(landmark for curve in self.curves for landmark in curve.landmarks)

    @property
    def ranges_are_bounds(self) -> bool:
        """Where those of all are."""
        return all(curve.ranges_are_bounds for curve in self.curves)

    def value_range(self, low: Tensor, high: Tensor) -> Range:
        """From the sum of the least values to that of the largest."""
        return _added([curve.value_range(low, high) for curve in self.curves])

    def slope_range(self, low: Tensor, high: Tensor) -> Range:
        """From the sum of the least slopes to that of the largest."""
        return _added([curve.slope_range(low, high) for curve in self.curves])

    def forward(self, z: Tensor) -> Tensor:
        """Sum of the values."""
        return torch.stack([curve(z) for curve in self.curves]).sum(0)

    def primitive(self, z: Tensor) -> Tensor:
        """Sum of the primitives."""
        return torch.stack([curve.primitive(z) for curve in self.curves]).sum(0)

    def slope(self, z: Tensor) -> Tensor:
        """Sum of the slopes."""
        return torch.stack([curve.slope(z) for curve in self.curves]).sum(0)

    def slope_times(self, z: Tensor, step: Tensor) -> Tensor:
        """Sum of the slopes, times the step."""
        return torch.stack([curve.slope_times(z, step) for curve in self.curves]).sum(0)

    def _divergence(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.stack([curve.divergence(a, b) for curve in self.curves]).sum(0)

    def __repr__(self) -> str:
        return f"Sum({' + '.join(map(repr, self.curves))})"


def _added(ranges: list[Range]) -> Range:
    """The sum of ranges, with room for the rounding of large terms that cancel."""
    low, high = (torch.stack(ends) for ends in zip(*ranges, strict=True))
    room = 1e-15 * torch.maximum(low.abs(), high.abs()).sum(0)
    return low.sum(0) - room, high.sum(0) + room


class _Turned(Curve):
    """A positive multiple of a curve, or its mirror image -h(-z): ``sign`` 1 or -1 on both axes."""

    sign = 1.0

    def __init__(self, curve: Curve, factor: Setting = 1.0) -> None:
        super().__init__()
        self.curve = curve
        self.factor = check_setting("factor", factor, positive=True)
        self.is_monotone, self.is_bounded = curve.is_monotone, curve.is_bounded
        self.is_invertible, self.is_odd, self.region = curve.is_invertible, curve.is_odd, curve.region

    def _inner(self, z: Tensor) -> Tensor:
        return z if self.sign > 0 else 0.0 - z  # a score of 0 as 0, not as -0, where slopes have the other sign

    def _ends(self, ends: tuple[Any, Any]) -> tuple[Any, Any]:
        """What belongs to a low and a high end, of the curve or here."""
        return ends if self.sign > 0 else ends[::-1]

    @property
    def domain(self) -> tuple[float, float]:
        """The curve's."""
        low, high = self._ends(self.curve.domain)
        return self.sign * low + 0.0, self.sign * high + 0.0

    @property
    def closed(self) -> tuple[bool, bool]:
        """As the curve's."""
        return self._ends(self.curve.closed)

    @property
    def center(self) -> float | None:
        """The curve's."""
        center = self.curve.center
        return None if center is None else self.sign * center + 0.0

    @property
    def landmarks(self) -> tuple[Landmark, ...]:
        """The curve's."""
        return tuple((self.sign * center + 0.0, width) for center, width in self.curve.landmarks)

    @property
    def ranges_are_bounds(self) -> bool:
        """As the curve's."""
        return self.curve.ranges_are_bounds

    def value_range(self, low: Tensor, high: Tensor) -> Range:
        """Factor times the curve's."""
        least, most = self._ends(self.curve.value_range(*self._cell(low, high)))
        factor = self.sign * read(self.factor)
        return factor * least, factor * most

    def slope_range(self, low: Tensor, high: Tensor) -> Range:
        """Factor times the curve's."""
        least, most = self.curve.slope_range(*self._cell(low, high))
        return read(self.factor) * least, read(self.factor) * most

    def _cell(self, low: Tensor, high: Tensor) -> Range:
        return self._ends((self._inner(low), self._inner(high)))

    def forward(self, z: Tensor) -> Tensor:
        """Factor times the value."""
        return self.sign * read(self.factor) * self.curve(self._inner(z))

    def primitive(self, z: Tensor) -> Tensor:
        """Factor times the primitive."""
        return read(self.factor) * self.curve.primitive(self._inner(z))

    def slope(self, z: Tensor) -> Tensor:
        """Factor times the slope."""
        return read(self.factor) * self.curve.slope(self._inner(z))

    def slope_times(self, z: Tensor, step: Tensor) -> Tensor:
        """Factor times slope times step."""
        return read(self.factor) * self.curve.slope_times(self._inner(z), step)

    def inverse(self, value: Tensor) -> Tensor:
        """The score with this value."""
        return self.sign * self.curve.inverse(self.sign * value / read(self.factor))

    def _divergence(self, a: Tensor, b: Tensor) -> Tensor:
        return read(self.factor) * self.curve.divergence(self._inner(a), self._inner(b))


class Multiple(_Turned):
    """A positive multiple of a curve.

    Args:
        curve: what is multiplied.
        factor: > 0; may be learned.
    """

    def __init__(self, curve: Curve, factor: Setting) -> None:
        super().__init__(curve, factor)

    def __repr__(self) -> str:
        return f"{number(self.factor):g} * {self.curve!r}"


class Flip(_Turned):
    """The mirror image -h(-z) of a curve: rises where it rose, seen from the other side.

    Args:
        curve: what is mirrored.

    >>> from vicinal.links import Exp
    >>> Exp().flip()(torch.tensor(0.0))  # the same as AntiExp
    tensor(-1.)
    """

    sign = -1.0

    def __init__(self, curve: Curve) -> None:
        super().__init__(curve)
        turned = {"high-scores": "low-scores", "low-scores": "high-scores"}
        self.region = turned.get(curve.region, curve.region)  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{self.curve!r}.flip()"


class Cap(Curve):
    """A curve inside ``[low, high]``; outside it goes on with the slope of the end, or flat.

    Args:
        curve: what is capped; its value (and slope, for linear tails) must be finite at the ends.
        low: where the lower tail begins; None for no lower tail.
        high: where the upper tail begins; None for no upper tail.
        tails: "linear" or "flat".

    >>> from vicinal.links import Exp
    >>> Exp().cap(None, 0.0)(torch.tensor([-1.0, 2.0]))  # e^-1 and 1 + 2
    tensor([0.3679, 3.0000])
    """

    def __init__(
        self, curve: Curve, low: Setting | None = None, high: Setting | None = None, *, tails: Tails = "linear"
    ) -> None:
        super().__init__()
        if low is None and high is None:
            raise ValueError("low: expected low or high to be a score, got None for both; leave the curve as it is")
        self.curve = curve
        self.low = -math.inf if low is None else check_setting("low", low)
        self.high = math.inf if high is None else check_setting("high", high)
        self.tails = check_choice("tails", tails, ("linear", "flat"))
        self._check_ends()
        self.is_monotone, self.region = curve.is_monotone, curve.region
        both = math.isfinite(number(self.low)) and math.isfinite(number(self.high))
        self.is_bounded = curve.is_bounded if tails == "linear" else both or curve.is_bounded
        if tails == "linear" and curve.is_bounded:
            self.is_bounded = False
        self.is_invertible = curve.is_invertible and tails == "linear"
        self.is_odd = self.center is not None

    def _check_ends(self) -> None:
        low, high = number(self.low), number(self.high)
        if not low < high:
            raise ValueError(f"high: expected a score above low ({low:g}), got {high:g}")
        for name, end in (("low", low), ("high", high)):
            if math.isinf(end):
                continue
            at = torch.tensor(end, dtype=torch.float64)
            with torch.no_grad():
                finite = bool(self.curve(at).isfinite() & (self.curve.slope(at).isfinite() | (self.tails == "flat")))
            if not finite:
                raise ValueError(
                    f"{name}: expected a score where the curve and its slope are finite, inside {self.curve.domain}, "
                    f"got {end:g}"
                )

    @property
    def domain(self) -> tuple[float, float]:
        """The curve's domain, infinite on each side that has a tail."""
        low, high = self.curve.domain
        return -math.inf if number(self.low) > -math.inf else low, math.inf if number(self.high) < math.inf else high

    @property
    def closed(self) -> tuple[bool, bool]:
        """As the curve's, where it has no tail."""
        return self.curve.closed

    @property
    def center(self) -> float | None:
        """The curve's, where it lies halfway between the ends."""
        center = self.curve.center
        halfway = center is not None and number(self.low) + number(self.high) == 2 * center
        return center if halfway else None

    @property
    def landmarks(self) -> tuple[Landmark, ...]:
        """The curve's, and the ends."""
        ends = [end for end in (number(self.low), number(self.high)) if math.isfinite(end)]
        return (*self.curve.landmarks, *((end, 1.0) for end in ends))

    @property
    def ranges_are_bounds(self) -> bool:
        """As the curve's."""
        return self.curve.ranges_are_bounds

    def value_range(self, low: Tensor, high: Tensor) -> Range:
        """Of the curve inside, and of the values at the ends of a cell."""
        least, most = self._inside_range(self.curve.value_range, low, high)
        ends = torch.stack([self(low), self(high)])
        return torch.minimum(least, ends.amin(0)), torch.maximum(most, ends.amax(0))

    def slope_range(self, low: Tensor, high: Tensor) -> Range:
        """Of the curve inside, and of the tails that a cell meets."""
        least, most = self._inside_range(self.curve.slope_range, low, high)
        for _, beyond in (self._split(low), self._split(high)):
            tail = self._tail_slope(beyond)
            least = torch.where(beyond != 0, torch.minimum(least, tail), least)
            most = torch.where(beyond != 0, torch.maximum(most, tail), most)
        return least, most

    def _inside_range(self, bounds: Callable[[Tensor, Tensor], Range], low: Tensor, high: Tensor) -> Range:
        """Of the part of each cell that has no tail; from inf to -inf where there is none."""
        (left, below), (right, above) = self._split(low), self._split(high)
        outside = (left == right) & (below != 0) & (above != 0)
        least, most = bounds(left, right)
        return torch.where(outside, torch.inf, least), torch.where(outside, -torch.inf, most)

    def _split(self, z: Tensor) -> tuple[Tensor, Tensor]:
        inside = clip(z, read(self.low), read(self.high))
        return inside, z - inside

    def _tail_slope(self, beyond: Tensor) -> Tensor:
        """Slope of the tail that a score is on, which is how far it is ``beyond`` an end; 0 on none."""
        slope = torch.zeros_like(beyond)
        if self.tails == "flat":
            return slope
        for end, on in ((self.low, beyond < 0), (self.high, beyond > 0)):
            if math.isfinite(number(end)):
                at = torch.as_tensor(read(end), dtype=beyond.dtype, device=beyond.device)
                slope = torch.where(on, self.curve.slope(at), slope)
        return slope

    def forward(self, z: Tensor) -> Tensor:
        """Value h(c) + h'(c) (z - c), where c is ``z`` held inside."""
        inside, beyond = self._split(z)
        value: Tensor = self.curve(inside)
        return value + self._tail_slope(beyond) * beyond

    def primitive(self, z: Tensor) -> Tensor:
        """Primitive H(c) + h(c) (z - c) + h'(c) (z - c)^2 / 2."""
        inside, beyond = self._split(z)
        return self.curve.primitive(inside) + (self.curve(inside) + self._tail_slope(beyond) * beyond / 2) * beyond

    def slope(self, z: Tensor) -> Tensor:
        """The curve's slope at c; 0 outside for flat tails."""
        inside, beyond = self._split(z)
        return torch.where(beyond == 0, self.curve.slope(inside), self._tail_slope(beyond))

    def _divergence(self, a: Tensor, b: Tensor) -> Tensor:
        (in_a, out_a), (in_b, out_b) = self._split(a), self._split(b)
        rise = self.curve.rise(in_a, in_b)
        flat = self.curve.divergence(in_a, in_b) + torch.where(out_a == 0, 0.0, rise * out_a)
        if self.tails == "flat":
            return flat
        slope_a, slope_b = self._tail_slope(out_a), self._tail_slope(out_b)
        together = out_a.sign() * out_b.sign() > 0
        apart = flat + slope_a * out_a**2 / 2 + slope_b * out_b**2 / 2 - slope_b * out_b * (a - in_b)
        return torch.where(together, slope_b * (a - b) ** 2 / 2, apart)

    def extra_repr(self) -> str:
        """Ends and tails, for ``repr``."""
        return f"low={number(self.low):g}, high={number(self.high):g}, tails={self.tails!r}"
