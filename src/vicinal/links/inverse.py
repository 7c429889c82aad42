"""The inverse of any rising curve, by bisection and one Newton step that carries the gradient."""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vicinal.links.numerics import widen

if TYPE_CHECKING:
    from vicinal.links.base import Curve


def numeric_inverse(curve: "Curve", value: Tensor) -> Tensor:
    """The score z with curve(z) = ``value``, to the rounding of the dtype; NaN where no score has it.

    Raises:
        ValueError: if the curve does not rise strictly.
    """
    if not (curve.is_monotone and curve.is_invertible):
        raise ValueError(f"inverse: expected a curve that rises strictly, got {curve!r}")
    wide = widen(value)
    with torch.no_grad():
        start = _bisect(curve, wide.detach())
        slope = curve.slope(start)
        usable = slope.isfinite() & (slope > 0)
    step = (curve(start) - wide) / torch.where(usable, slope, 1.0)
    return torch.where(usable, start - step, start).to(value.dtype)


def _bisect(curve: "Curve", value: Tensor) -> Tensor:
    low, high = _bracket(curve, value)
    for _ in range(80 if value.dtype == torch.float64 else 50):
        middle = low + (high - low) / 2
        below = curve(middle) < value
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    found = low + (high - low) / 2
    scale = 1e-3 * (1 + value.abs())
    return torch.where((curve(found) - value).abs() <= scale, found, torch.nan)


def _bracket(curve: "Curve", value: Tensor) -> tuple[Tensor, Tensor]:
    """Scores below and above the one sought: the ends of the domain, or powers of 2 away from a point inside it."""
    left, right = curve.domain
    inside = min(max(0.0, left), right) if math.isinf(left) or math.isinf(right) else (left + right) / 2
    low, high = torch.full_like(value, inside), torch.full_like(value, inside)
    low = torch.full_like(value, left) if math.isfinite(left) else low
    high = torch.full_like(value, right) if math.isfinite(right) else high
    for power in range(120):
        if math.isinf(left):
            low = torch.where(curve(low) > value, inside - 2.0 ** (power - 4), low)
        if math.isinf(right):
            high = torch.where(curve(high) < value, inside + 2.0 ** (power - 4), high)
    return low, high
