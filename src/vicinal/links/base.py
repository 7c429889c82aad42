"""What a curve is: value, primitive, slope, inverse, domain, and the Bregman divergence of its primitive."""

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from vicinal.links.inverse import numeric_inverse
from vicinal.links.numerics import Real, slope_times, widen
from vicinal.links.ranges import Landmark, Range, sampled_range

if TYPE_CHECKING:
    from vicinal.links.algebra import Flip, Multiple, Sum
    from vicinal.links.caps import Cap, Tails

Region = Literal["high-norms", "low-norms", "high-scores", "low-scores", "uniform", "designed"]


class Curve(nn.Module):
    r"""A function $h(z)$ of one score, applied to each element, with its primitive $H$ and slope $h'$.

    A curve that never falls is a *link* and gives a convex matching loss. Curves add (``a + b``), take a positive
    factor (``0.2 * a``), are turned round by :meth:`flip` and limited by :meth:`cap`; each result is again a curve.

    Attributes:
        is_monotone: True where the curve never falls on its domain.
        is_bounded: True where its values lie in a fixed interval.
        is_invertible: True where it rises strictly and has an inverse.
        is_odd: True where h(c + d) = -h(c - d) around a score c, the :attr:`center`.
        region: where it is steepest, thus where a matching loss of it is most sensitive.
        note: a sentence about how it came to be (:func:`vicinal.links.design` fills it), or "".
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
        """Whether :meth:`value_range` and :meth:`slope_range` hold for all scores of a cell, not only for some."""
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
        return numeric_inverse(self, value)

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
        found: dict[int, Tensor] = {id(p): p for p in self.parameters() if p.requires_grad}
        for module in self.modules():
            for value in vars(module).values():
                if isinstance(value, Tensor) and value.requires_grad:
                    found[id(value)] = value
        return list(found.values())

    def flip(self) -> "Flip":
        """The curve -h(-z): what was sensitive at high scores becomes so at low ones."""
        from vicinal.links.algebra import Flip

        return Flip(self)

    def cap(self, low: Real | None = None, high: Real | None = None, *, tails: "Tails" = "linear") -> "Cap":
        """The curve inside ``[low, high]``; outside it goes on straight, or flat with ``tails="flat"``."""
        from vicinal.links.caps import Cap

        return Cap(self, low, high, tails=tails)

    def __add__(self, other: "Curve") -> "Sum":
        from vicinal.links.algebra import Sum

        if not isinstance(other, Curve):
            return NotImplemented
        return Sum(self, other)

    def __mul__(self, factor: Real) -> "Multiple":
        from vicinal.links.algebra import Multiple

        if not isinstance(factor, int | float | Tensor):
            return NotImplemented
        return Multiple(self, factor)

    __rmul__ = __mul__
