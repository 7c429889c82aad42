"""Plain functions with a scale, a shift and an amplitude: the curves that have a name."""

import math
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from vicinal.core import register
from vicinal.links.curve import Curve
from vicinal.links.numerics import (
    Divergence,
    Real,
    Setting,
    WithDerivative,
    check_setting,
    number,
    read,
    replace_close,
    slope_times,
    widen,
)
from vicinal.links.ranges import Landmark, Range, turning_range


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
    turns: ClassVar[tuple[float, ...] | None] = None
    """Where the plain function or its slope turns: between them both are monotone. None: it is not known.

    Of a curve of the table that does not say, it is 0."""
    scaling_only: ClassVar[bool] = False
    _settings: ClassVar[tuple[str, ...]] = ()
    """Names of those beside scale, shift and amplitude, for ``repr``."""

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
    def landmarks(self) -> tuple[Landmark, ...]:
        """Where it turns, or its shift."""
        scale, shift = number(self.scale), number(self.shift)
        return tuple((turn / scale + shift, 1 / scale) for turn in self.turns or (0.0,))

    @property
    def ranges_are_bounds(self) -> bool:
        """Whether it is known where it turns."""
        return self.turns is not None

    def value_range(self, low: Tensor, high: Tensor) -> Range:
        """Of the values at the ends of a cell and at the turns in it."""
        if self.turns is None:
            return super().value_range(low, high)
        return turning_range(self, low, high, [score for score, _ in self.landmarks])

    def slope_range(self, low: Tensor, high: Tensor) -> Range:
        """Of the slopes at the ends of a cell and at the turns in it."""
        if self.turns is None:
            return super().slope_range(low, high)
        return turning_range(self.slope, low, high, [score for score, _ in self.landmarks])

    @property
    def center(self) -> float | None:
        """The shift, for an odd curve."""
        return number(self.shift) if self.is_odd else None

    def _inner(self, z: Tensor) -> Tensor:
        wide, scale, shift = widen(z), read(self.scale), read(self.shift)
        moved = wide if isinstance(shift, float) and shift == 0 else wide - shift
        x = moved if isinstance(scale, float) and scale == 1 else scale * moved
        return x if x is wide or self.interval == (-math.inf, math.inf) else self._clamped(x, wide)

    def _clamped(self, x: Tensor, z: Tensor) -> Tensor:
        """``x`` between the ends of the interval where ``z`` is between those of the domain: rounding may undo it."""
        low, high = (torch.tensor(end, dtype=x.dtype, device=x.device) for end in self.interval)
        left, right = self.domain
        clamped = x.detach().clamp(torch.nextafter(low, high), torch.nextafter(high, low))
        clamped = torch.where(z > left, torch.where(z < right, clamped, high), low)
        inside = (z >= left) & (z <= right)
        return torch.where(inside & (clamped != x), x + (clamped - x.detach()), x)

    def _outer(self, factor: Real, value: Tensor, dtype: torch.dtype) -> Tensor:
        result = value if isinstance(factor, float) and factor == 1 else factor * value
        return result.to(dtype)

    def forward(self, z: Tensor) -> Tensor:
        """Value amplitude * f(x), of the shape of ``z``."""
        return self._outer(read(self.amplitude), self._value(self._inner(z)), z.dtype)

    def primitive(self, z: Tensor) -> Tensor:
        """Primitive amplitude * F(x) / scale, of the shape of ``z``."""
        x = self._inner(z)
        primitive = self._primitive(x.detach())
        if torch.is_grad_enabled() and x.requires_grad:
            primitive = WithDerivative.apply(x, primitive, self._value)  # type: ignore[no-untyped-call]
        return self._outer(read(self.amplitude) / read(self.scale), primitive, z.dtype)

    def slope(self, z: Tensor) -> Tensor:
        """Slope amplitude * scale * f'(x), of the shape of ``z``."""
        return self._outer(read(self.amplitude) * read(self.scale), self._slope(self._inner(z)), z.dtype)

    def slope_times(self, z: Tensor, step: Tensor) -> Tensor:
        """Slope times ``step``: 0 for a step of 0 also where the slope is infinite."""
        product = self._slope_times(self._inner(z), widen(step))
        return self._outer(read(self.amplitude) * read(self.scale), product, z.dtype)

    def inverse(self, value: Tensor) -> Tensor:
        """The score z with h(z) = ``value``, of its shape; NaN where no score has it."""
        if not self.is_invertible:
            raise ValueError(f"inverse: expected a curve that rises strictly, got {self!r}")
        x = self._inverse(widen(value) / read(self.amplitude))
        return (x / read(self.scale) + read(self.shift)).to(value.dtype)

    def _divergence(self, a: Tensor, b: Tensor) -> Tensor:
        scale = read(self.scale)
        value = partial(self._regular_divergence, (scale * (a - b)).detach())
        plain: Tensor = Divergence.apply(  # type: ignore[no-untyped-call]
            self._inner(a), self._inner(b), value, self._plain_rise, self._slope_times
        )
        return read(self.amplitude) / scale * plain

    def _regular_divergence(self, delta: Tensor, xa: Tensor, xb: Tensor) -> Tensor:
        """The plain divergence, 0 for equal scores also where its formula has 0 times infinity."""
        value = self._plain_divergence(delta, xa, xb)
        if not bool(value.sum().isnan()):  # one pass, and seldom another
            return value
        low, high = self.interval
        return value.masked_fill((delta == 0) & (xb >= low) & (xb <= high), 0.0)

    def _plain_rise(self, xa: Tensor, xb: Tensor) -> Tensor:
        rise = self._value(xa) - self._value(xb)
        return rise.masked_fill((xa == xb) & rise.isnan(), 0.0) if bool(rise.sum().isnan()) else rise

    def _plain_divergence(self, delta: Tensor, xa: Tensor, xb: Tensor) -> Tensor:
        far = (self._primitive(xa) - self._primitive(xb) - delta * self._value(xb)).clamp(min=0)
        return replace_close(far, self._slope, delta, xb, self.near * self._reach(xb), near=self.near)

    @abstractmethod
    def _value(self, x: Tensor) -> Tensor:
        """Value of the base curve."""

    @abstractmethod
    def _primitive(self, x: Tensor) -> Tensor:
        """Primitive of the base curve."""

    @abstractmethod
    def _slope(self, x: Tensor) -> Tensor:
        """Slope of the base curve."""

    def _slope_times(self, x: Tensor, step: Tensor) -> Tensor:
        """Slope of the base curve times ``step``, 0 for a step of 0."""
        return slope_times(self._slope, x, step, self.interval)

    def _inverse(self, p: Tensor) -> Tensor:
        """Inverse of the base curve; curves that are not invertible have none, and are not asked."""
        raise TypeError(f"inverse: expected a curve that defines its inverse, got {self!r}")

    def _reach(self, x: Tensor) -> Real:
        """Distance from ``x`` to where the slope stops being smooth, in the plane of complex numbers."""
        return 1.0

    def extra_repr(self) -> str:
        """Settings that are not the defaults, for ``repr``."""
        shown = [f"{name}={getattr(self, name)}" for name in self._settings]
        for name, default in (("scale", 1.0), ("shift", 0.0), ("amplitude", 1.0)):
            if (plain := number(getattr(self, name))) != default:
                shown.append(f"{name}={plain:g}")
        return ", ".join(shown)


def formula(function: Callable[..., Tensor]) -> Any:
    """A function of plain scores alone as a formula of a :class:`Shaped` curve, whose settings it needs not."""
    return staticmethod(function)


def enlist(name: str, *more: str, family: str, sigmoid: str, classes: str) -> Callable[[type[Any]], type[Any]]:
    """Register a curve class under ``name`` with its family and the facts that its attributes declare, and ``more``.

    ``sigmoid`` and ``classes`` are its regions as a scaling: of a composite sigmoid by :func:`vicinal.links.region`, of
    several classes by :func:`vicinal.links.class_region`. Losses of a curve that is odd around 0 are symmetric there.
    """

    def add(curve: type[Any]) -> type[Any]:
        curve.turns = curve.turns or (0.0,)
        facts = [
            fact
            for fact, holds in (
                ("monotone", curve.is_monotone),
                ("bounded", curve.is_bounded),
                ("invertible", curve.is_invertible),
                ("odd", curve.is_odd),
                ("symmetric-loss", curve.is_odd and curve.interval[0] < 0),
                ("composite-symmetric-loss", curve.is_odd and curve.interval[0] < 0),
            )
            if holds
        ]
        facts += [*more, curve.region, f"sigmoid-{sigmoid}", f"classes-{classes}"]
        known = {"paper": "Selective Matching Losses, table H.1", "verified": "mpmath, 40 digits"}
        return register("curve" if curve.scaling_only else "link", name, *facts, family=family, **known)(curve)

    return add
