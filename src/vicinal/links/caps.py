"""Caps: a curve inside a range of scores that goes on straight, or flat, outside it."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from vicinal.core import check_choice
from vicinal.links.base import Curve
from vicinal.links.numerics import Real
from vicinal.links.ranges import Landmark, Range
from vicinal.links.settings import Setting, check_setting, number, read

Tails = Literal["linear", "flat"]


def clip(z: Tensor, low: Real, high: Real) -> Tensor:
    """``z`` held inside ``[low, high]``, whose ends may be tensors that require grad."""
    if not isinstance(low, Tensor) and not isinstance(high, Tensor):
        return z.clamp(low, high)
    bounds = [torch.as_tensor(end, dtype=z.dtype, device=z.device) for end in (low, high)]
    return torch.minimum(torch.maximum(z, bounds[0]), bounds[1])


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
        """The curve's domain, without end on each side that has a tail."""
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
        flat = self.curve._divergence(in_a, in_b) + torch.where(out_a == 0, 0.0, rise * out_a)
        if self.tails == "flat":
            return flat
        slope_a, slope_b = self._tail_slope(out_a), self._tail_slope(out_b)
        together = out_a.sign() * out_b.sign() > 0
        apart = flat + slope_a * out_a**2 / 2 + slope_b * out_b**2 / 2 - slope_b * out_b * (a - in_b)
        return torch.where(together, slope_b * (a - b) ** 2 / 2, apart)

    def extra_repr(self) -> str:
        """Ends and tails, for ``repr``."""
        return f"low={number(self.low):g}, high={number(self.high):g}, tails={self.tails!r}"
