"""New curves from old: sum, positive multiple, mirror image."""

import math

import torch
from torch import Tensor, nn

from vicinal.links.base import Curve
from vicinal.links.ranges import Landmark, Range
from vicinal.links.settings import Setting, check_setting, number, read


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
        return torch.stack([curve._divergence(a, b) for curve in self.curves]).sum(0)

    def __repr__(self) -> str:
        return f"Sum({' + '.join(map(repr, self.curves))})"


def _added(ranges: list[Range]) -> Range:
    """The sum of ranges, with room for the rounding of large terms that cancel."""
    low, high = (torch.stack(ends) for ends in zip(*ranges, strict=True))
    room = 1e-15 * torch.maximum(low.abs(), high.abs()).sum(0)
    return low.sum(0) - room, high.sum(0) + room


class Multiple(Curve):
    """A positive multiple of a curve.

    Args:
        curve: what is multiplied.
        factor: > 0; may be learned.
    """

    def __init__(self, curve: Curve, factor: Setting) -> None:
        super().__init__()
        self.curve = curve
        self.factor = check_setting("factor", factor, positive=True)
        self.is_monotone, self.is_bounded = curve.is_monotone, curve.is_bounded
        self.is_invertible, self.is_odd, self.region = curve.is_invertible, curve.is_odd, curve.region

    @property
    def domain(self) -> tuple[float, float]:
        """The domain of the curve."""
        return self.curve.domain

    @property
    def closed(self) -> tuple[bool, bool]:
        """As the curve's."""
        return self.curve.closed

    @property
    def center(self) -> float | None:
        """As the curve's."""
        return self.curve.center

    @property
    def landmarks(self) -> tuple[Landmark, ...]:
        """As the curve's."""
        return self.curve.landmarks

    @property
    def ranges_are_bounds(self) -> bool:
        """As the curve's."""
        return self.curve.ranges_are_bounds

    def value_range(self, low: Tensor, high: Tensor) -> Range:
        """Factor times the curve's."""
        least, most = self.curve.value_range(low, high)
        return read(self.factor) * least, read(self.factor) * most

    def slope_range(self, low: Tensor, high: Tensor) -> Range:
        """Factor times the curve's."""
        least, most = self.curve.slope_range(low, high)
        return read(self.factor) * least, read(self.factor) * most

    def forward(self, z: Tensor) -> Tensor:
        """Factor times the value."""
        return read(self.factor) * self.curve(z)

    def primitive(self, z: Tensor) -> Tensor:
        """Factor times the primitive."""
        return read(self.factor) * self.curve.primitive(z)

    def slope(self, z: Tensor) -> Tensor:
        """Factor times the slope."""
        return read(self.factor) * self.curve.slope(z)

    def slope_times(self, z: Tensor, step: Tensor) -> Tensor:
        """Factor times slope times step."""
        return read(self.factor) * self.curve.slope_times(z, step)

    def inverse(self, value: Tensor) -> Tensor:
        """The score with this value."""
        return self.curve.inverse(value / read(self.factor))

    def _divergence(self, a: Tensor, b: Tensor) -> Tensor:
        return read(self.factor) * self.curve._divergence(a, b)

    def __repr__(self) -> str:
        return f"{number(self.factor):g} * {self.curve!r}"


class Flip(Curve):
    """The mirror image -h(-z) of a curve: rises where it rose, seen from the other side.

    A score of 0 is given to the curve as 0, not as -0, at which slopes have another sign.

    Args:
        curve: what is mirrored.

    >>> from vicinal.links import Exp
    >>> Exp().flip()(torch.tensor(0.0))  # the same as AntiExp
    tensor(-1.)
    """

    def __init__(self, curve: Curve) -> None:
        super().__init__()
        self.curve = curve
        self.is_monotone, self.is_bounded = curve.is_monotone, curve.is_bounded
        self.is_invertible, self.is_odd = curve.is_invertible, curve.is_odd
        turned = {"high-scores": "low-scores", "low-scores": "high-scores"}
        self.region = turned.get(curve.region, curve.region)  # type: ignore[assignment]

    @property
    def domain(self) -> tuple[float, float]:
        """The mirrored domain."""
        low, high = self.curve.domain
        return -high if math.isfinite(high) else -math.inf, -low if math.isfinite(low) else math.inf

    @property
    def closed(self) -> tuple[bool, bool]:
        """As the curve's, the other way round."""
        low, high = self.curve.closed
        return high, low

    @property
    def center(self) -> float | None:
        """The curve's, mirrored."""
        center = self.curve.center
        return None if center is None else 0.0 - center

    @property
    def landmarks(self) -> tuple[Landmark, ...]:
        """The curve's, mirrored."""
        return tuple((0.0 - center, width) for center, width in self.curve.landmarks)

    @property
    def ranges_are_bounds(self) -> bool:
        """As the curve's."""
        return self.curve.ranges_are_bounds

    def value_range(self, low: Tensor, high: Tensor) -> Range:
        """The curve's over the mirrored cell, turned round."""
        least, most = self.curve.value_range(0.0 - high, 0.0 - low)
        return -most, -least

    def slope_range(self, low: Tensor, high: Tensor) -> Range:
        """The curve's over the mirrored cell."""
        return self.curve.slope_range(0.0 - high, 0.0 - low)

    def forward(self, z: Tensor) -> Tensor:
        """Value -h(-z)."""
        return -self.curve(0.0 - z)

    def primitive(self, z: Tensor) -> Tensor:
        """Primitive H(-z)."""
        return self.curve.primitive(0.0 - z)

    def slope(self, z: Tensor) -> Tensor:
        """Slope h'(-z)."""
        return self.curve.slope(0.0 - z)

    def slope_times(self, z: Tensor, step: Tensor) -> Tensor:
        """Slope h'(-z) times the step."""
        return self.curve.slope_times(0.0 - z, step)

    def inverse(self, value: Tensor) -> Tensor:
        """The score with this value."""
        return -self.curve.inverse(-value)

    def _divergence(self, a: Tensor, b: Tensor) -> Tensor:
        return self.curve._divergence(0.0 - a, 0.0 - b)

    def __repr__(self) -> str:
        return f"{self.curve!r}.flip()"
