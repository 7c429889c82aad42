"""A curve from any torch function: primitive by quadrature, slope by autograd."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vicinal.core import check_integer, check_number
from vicinal.links.base import Curve
from vicinal.links.numerics import gauss_nodes


class _WithGradient(torch.autograd.Function):
    """Passes on a primitive that was computed apart; its derivative to the score is the curve, exactly."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, primitive: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.save_for_backward(z)
        ctx.function = function
        return primitive.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, Tensor, None]:
        (z,) = ctx.saved_tensors
        return grads[0] * ctx.function(z), grads[0], None


class FromCallable(Curve):
    """See :func:`from_callable`."""

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
        low, high = max(domain[0], -8.0), min(domain[1], 8.0)
        if not low < high:
            raise ValueError(f"domain: expected low < high that meets [-8, 8], got {domain}")
        self.anchor = min(max(0.0, low), high)
        margin = 1e-3 * (high - low)
        self._grid = (low + margin, high - margin)
        self._check_monotone()
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

    def _check_monotone(self) -> None:
        grid = torch.linspace(*self._grid, 2001, dtype=torch.float64)
        with torch.no_grad():
            values = self.function(grid)
        if values.shape != grid.shape or not bool(values.isfinite().all()):
            raise ValueError("function: expected a finite value for each score of the domain, elementwise")
        rise = values.diff()
        self.is_invertible = bool((rise > 0).all())
        if bool((rise < -1e-9 * (1 + values.abs().max())).any()):
            at = float(grid[int(rise.argmin())])
            raise ValueError(f"function: expected a function that never falls, got a fall at {at:.4g}")

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
        value: Tensor = _WithGradient.apply(  # type: ignore[no-untyped-call]
            z, self._integrate(z.detach(), self.panels), self.function
        )
        return value

    def slope(self, z: Tensor) -> Tensor:
        """Slope by autograd."""
        create = torch.is_grad_enabled()
        with torch.enable_grad():
            at = z if z.requires_grad else z.detach().requires_grad_()
            value = self.function(at)
            if not value.requires_grad:
                return torch.zeros_like(z)
            slope = torch.autograd.grad(value.sum(), at, create_graph=create, allow_unused=True)[0]
        return torch.zeros_like(z) if slope is None else slope

    def _divergence(self, a: Tensor, b: Tensor) -> Tensor:
        delta, level = (a - b) / self.panels, self.function(b)
        total = torch.zeros_like(delta)
        for panel in range(self.panels):
            for node, weight in zip(*gauss_nodes(self.order), strict=True):
                total = total + weight * (self.function(b + (panel + node) * delta) - level)
        return (delta * total).clamp(min=0)

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        name = "" if isinstance(self.function, nn.Module) else f"{getattr(self.function, '__name__', self.function)}, "
        return f"{name}domain={self._domain}, order={self.order}, panels={self.panels}, accuracy={self.accuracy:.1g}"


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
    Gauss-Legendre quadrature, which is estimated on [-8, 8] (or the domain) and kept as ``accuracy``.

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
