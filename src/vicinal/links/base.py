"""What a curve is: value, primitive, slope, inverse, domain, and the Bregman divergence of its primitive."""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from vicinal.core import check_between, check_number, register
from vicinal.links.inverse import numeric_inverse
from vicinal.links.numerics import Real, close_divergence, widen

if TYPE_CHECKING:
    from vicinal.links.algebra import Flip, Multiple, Sum
    from vicinal.links.pieces import Cap, Tails

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
        from vicinal.links.pieces import Cap

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


class Positive(nn.Module):
    """A learned number that stays above 0: the parameter is its logarithm.

    Args:
        start: its first value, > 0.

    >>> Positive(2.0)()
    tensor(2., grad_fn=<ExpBackward0>)
    """

    def __init__(self, start: float = 1.0) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor(math.log(check_between("start", start, 0, math.inf))))

    def forward(self) -> Tensor:
        """The number, a scalar tensor."""
        return self.log.exp()


Setting = float | Tensor | Positive


def read(setting: Setting) -> Real:
    """The value of a setting: a number, a tensor, or what a :class:`Positive` holds now."""
    return setting() if isinstance(setting, Positive) else setting


def number(setting: Setting) -> float:
    """The value of a setting as a Python number."""
    value = read(setting)
    return float(value.detach()) if isinstance(value, Tensor) else value


def check_setting(name: str, value: object, *, positive: bool = False) -> Any:
    """Return ``value`` if it is a finite number, a scalar tensor or a :class:`Positive`; > 0 where asked."""
    if isinstance(value, Positive):
        return value
    if isinstance(value, Tensor):
        if value.numel() != 1 or not value.is_floating_point():
            raise ValueError(f"{name}: expected one floating number, got {value.dtype} of shape {tuple(value.shape)}")
        plain = float(value.detach())
    else:
        plain = check_number(name, value)
    if positive:
        check_between(name, plain, 0, math.inf)
    check_number(name, plain)
    return value if isinstance(value, Tensor) else plain


class Shaped(Curve):
    r"""A curve $h(z) = \text{amplitude}\cdot f(x)$ with $x = \text{scale}\,(z - \text{shift})$ and a plain function f.

    Its primitive is amplitude * F(x) / scale, its slope amplitude * scale * f'(x).

    Args:
        scale: > 0; larger makes the region of sensitivity narrower.
        shift: the score where x = 0.
        amplitude: > 0; multiplies the curve, hence the loss.

    Each may be a number, a scalar tensor that requires grad, an ``nn.Parameter``, or a :class:`Positive`.
    """

    interval: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
    interval_closed: ClassVar[tuple[bool, bool]] = (True, True)
    near: ClassVar[float] = 0.125
    scaling_only: ClassVar[bool] = False

    def __init__(self, scale: Setting = 1.0, shift: Setting = 0.0, amplitude: Setting = 1.0) -> None:
        super().__init__()
        self.scale = check_setting("scale", scale, positive=True)
        self.shift = check_setting("shift", shift)
        self.amplitude = check_setting("amplitude", amplitude, positive=True)

    @property
    def domain(self) -> tuple[float, float]:
        """Lowest and highest score, from the plain function's interval by shift and scale."""
        scale, shift = number(self.scale), number(self.shift)
        return self.interval[0] / scale + shift, self.interval[1] / scale + shift

    @property
    def closed(self) -> tuple[bool, bool]:
        """Whether each finite end of the domain has a finite value of the curve."""
        return self.interval_closed

    @property
    def center(self) -> float | None:
        """The shift, for an odd curve."""
        return number(self.shift) if self.is_odd else None

    def _inner(self, z: Tensor) -> Tensor:
        wide, scale, shift = widen(z), read(self.scale), read(self.shift)
        moved = wide if isinstance(shift, float) and shift == 0 else wide - shift
        return moved if isinstance(scale, float) and scale == 1 else scale * moved

    def _outer(self, factor: Real, value: Tensor, dtype: torch.dtype) -> Tensor:
        result = value if isinstance(factor, float) and factor == 1 else factor * value
        return result.to(dtype)

    def forward(self, z: Tensor) -> Tensor:
        """Value amplitude * f(x), of the shape of ``z``."""
        return self._outer(read(self.amplitude), self._value(self._inner(z)), z.dtype)

    def primitive(self, z: Tensor) -> Tensor:
        """Primitive amplitude * F(x) / scale, of the shape of ``z``."""
        return self._outer(read(self.amplitude) / read(self.scale), self._primitive(self._inner(z)), z.dtype)

    def slope(self, z: Tensor) -> Tensor:
        """Slope amplitude * scale * f'(x), of the shape of ``z``."""
        return self._outer(read(self.amplitude) * read(self.scale), self._slope(self._inner(z)), z.dtype)

    def inverse(self, value: Tensor) -> Tensor:
        """The score z with h(z) = ``value``, of its shape; NaN where no score has it."""
        if not self.is_invertible:
            raise ValueError(f"inverse: expected a curve that rises strictly, got {self!r}")
        x = self._inverse(widen(value) / read(self.amplitude))
        return (x / read(self.scale) + read(self.shift)).to(value.dtype)

    def _divergence(self, a: Tensor, b: Tensor) -> Tensor:
        scale = read(self.scale)
        delta = scale * (a - b)
        plain = self._plain_divergence(delta, self._inner(a), self._inner(b))
        return read(self.amplitude) / scale * plain

    def _plain_divergence(self, delta: Tensor, xa: Tensor, xb: Tensor) -> Tensor:
        far = (self._primitive(xa) - self._primitive(xb) - delta * self._value(xb)).clamp(min=0)
        return replace_close(far, self._slope, delta, xb, self.near * self._reach(xb), near=self.near)

    def _value(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _primitive(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _slope(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _inverse(self, p: Tensor) -> Tensor:
        raise NotImplementedError

    def _reach(self, x: Tensor) -> Real:
        """Distance from ``x`` to where the slope stops being smooth, in the plane of complex numbers."""
        return 1.0

    def _extra(self) -> Iterator[tuple[str, object]]:
        """Settings beside scale, shift and amplitude, for ``repr``."""
        return iter(())

    def extra_repr(self) -> str:
        """Settings that are not the defaults, for ``repr``."""
        shown = [f"{name}={value}" for name, value in self._extra()]
        for name, default in (("scale", 1.0), ("shift", 0.0), ("amplitude", 1.0)):
            if (plain := number(getattr(self, name))) != default:
                shown.append(f"{name}={plain:g}")
        return ", ".join(shown)


def replace_close(
    far: Tensor, slope: Callable[[Tensor], Tensor], delta: Tensor, target: Tensor, limit: Real, *, near: float
) -> Tensor:
    """``far`` with the pairs of ``|delta| <= limit`` computed again by :func:`close_divergence`."""
    close = delta.abs() <= limit
    if not bool(close.any()):
        return far
    double = far.dtype == torch.float64
    order = (6 if double else 3) if near <= 0.125 else (10 if double else 6)
    return far.masked_scatter(close, close_divergence(slope, delta[close], target[close], order))


def enlist(name: str) -> Callable[[type[Any]], type[Any]]:
    """Register a curve class under ``name`` with the facts that its attributes declare."""

    def add(made: type[Any]) -> type[Any]:
        facts = [
            fact
            for fact, holds in (
                ("monotone", made.is_monotone),
                ("bounded", made.is_bounded),
                ("invertible", made.is_invertible),
                ("odd", made.is_odd),
            )
            if holds
        ]
        kind = "curve" if made.scaling_only else "link"
        paper = "Selective Matching Losses, table H.1"
        return register(kind, name, *facts, made.region, paper=paper, verified="mpmath, 40 digits")(made)

    return add
