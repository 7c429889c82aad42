"""What a curve is: value, primitive, slope, inverse, domain, and the Bregman divergence of its primitive."""

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Literal

from torch import Tensor, nn

from vicinal.links.inverse import numeric_inverse
from vicinal.links.numerics import Real, widen

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
        """H(prediction) - H(target) - (prediction - target) h(target), elementwise, without cancellation."""
        a, b = widen(prediction), widen(target)
        return self._divergence(a, b).to(prediction.dtype)

    def _divergence(self, a: Tensor, b: Tensor) -> Tensor:
        return (self.primitive(a) - self.primitive(b) - (a - b) * self(b)).clamp(min=0)

    def pair(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """``(divergence(a, b), h(a) - h(b))`` at once; curves that can share work between the two do."""
        return self.divergence(a, b), self(a) - self(b)

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
