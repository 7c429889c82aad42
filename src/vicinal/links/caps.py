"""Caps: a curve inside a range of scores that goes on straight, or flat, outside it."""

import math
from typing import Literal

import torch
from torch import Tensor

from vicinal.core import check_choice
from vicinal.links.base import Curve
from vicinal.links.numerics import Real
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

    def _split(self, z: Tensor) -> tuple[Tensor, Tensor]:
        inside = clip(z, read(self.low), read(self.high))
        return inside, z - inside

    def _tail_slope(self, inside: Tensor) -> Tensor:
        return self.curve.slope(inside) if self.tails == "linear" else torch.zeros_like(inside)

    def forward(self, z: Tensor) -> Tensor:
        """Value h(c) + h'(c) (z - c), where c is ``z`` held inside."""
        inside, beyond = self._split(z)
        value: Tensor = self.curve(inside)
        return value if self.tails == "flat" else value + self.curve.slope(inside) * beyond

    def primitive(self, z: Tensor) -> Tensor:
        """Primitive H(c) + h(c) (z - c) + h'(c) (z - c)^2 / 2."""
        inside, beyond = self._split(z)
        flat = self.curve.primitive(inside) + self.curve(inside) * beyond
        return flat if self.tails == "flat" else flat + self.curve.slope(inside) * beyond * beyond / 2

    def slope(self, z: Tensor) -> Tensor:
        """The curve's slope at c; 0 outside for flat tails."""
        inside, beyond = self._split(z)
        slope = self.curve.slope(inside)
        return slope if self.tails == "linear" else torch.where(beyond == 0, slope, 0.0)

    def _divergence(self, a: Tensor, b: Tensor) -> Tensor:
        (in_a, out_a), (in_b, out_b) = self._split(a), self._split(b)
        inner = self.curve._divergence(in_a, in_b)
        rise = (self.curve(in_a) - self.curve(in_b)) * out_a
        if self.tails == "flat":
            return inner + rise
        slope_a, slope_b = self._tail_slope(in_a), self._tail_slope(in_b)
        together = (out_a * out_b > 0) & (in_a == in_b)
        apart = inner + rise + slope_a * out_a**2 / 2 + slope_b * out_b**2 / 2 - slope_b * out_b * (a - in_b)
        return torch.where(together, slope_b * (a - b) ** 2 / 2, apart)

    def extra_repr(self) -> str:
        """Ends and tails, for ``repr``."""
        return f"low={number(self.low):g}, high={number(self.high):g}, tails={self.tails!r}"
