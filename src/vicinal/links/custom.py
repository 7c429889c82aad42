"""Curves of any torch function: a link by quadrature, the scaling of a score transform."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from vicinal.core.checks import check_integer, check_number
from vicinal.links.curve import Curve
from vicinal.links.numerics import WithDerivative, gauss_nodes
from vicinal.links.ranges import Landmark


def _derivative(function: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    """Of an elementwise function, by autograd; itself differentiable where gradients are on."""
    create = torch.is_grad_enabled()
    with torch.enable_grad():
        at = z if create and z.requires_grad else z.detach().requires_grad_()
        value = function(at)
        if not value.requires_grad:
            return torch.zeros_like(z)
        derivative = torch.autograd.grad(value.sum(), at, create_graph=create, allow_unused=True)[0]
    return torch.zeros_like(z) if derivative is None else derivative


class FromCallable(Curve):
    """See :func:`from_callable`."""

    may_fall = False

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
        low, high = max(domain[0], min(-8.0, domain[1] - 16)), min(domain[1], max(8.0, domain[0] + 16))
        self.anchor = min(max(0.0, low), high)
        margin = 1e-3 * (high - low)
        self._grid = (low + margin, high - margin)
        self._check_values(torch.linspace(*self._grid, 2001, dtype=torch.float64))
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

    @property
    def closed(self) -> tuple[bool, bool]:
        """Whether the function is finite at each finite end of the domain."""
        with torch.no_grad():
            low, high = (
                bool(self.function(torch.tensor([end], dtype=torch.float64)).isfinite().all()) or math.isinf(end)
                for end in self._domain
            )
        return low, high

    @property
    def landmarks(self) -> tuple[Landmark, ...]:
        """Where the integral starts."""
        return ((self.anchor, 1.0),)

    def _check_values(self, grid: Tensor) -> None:
        """Whether values are finite, and rise: on the grid, and beyond it as far as there are values."""
        with torch.no_grad():
            values = self.function(grid)
        if values.shape != grid.shape or not bool(values.isfinite().all()):
            raise ValueError("function: expected a finite value for each score of the domain, elementwise")
        below, above = (self._beyond(grid[end], self._domain[end]) for end in (0, -1))
        grid = torch.cat([below.flip(0), grid, above])
        with torch.no_grad():
            values = self.function(grid)
        rise = values.diff()
        falls = rise < -1e-9 * (1 + torch.maximum(values[1:].abs(), values[:-1].abs()))
        self.is_monotone = not bool(falls.any())
        self.is_invertible = bool((rise > 0).all())
        if not self.is_monotone and not self.may_fall:
            distance = (grid[1:] - self.anchor).abs().where(falls, torch.inf)
            at = float(grid[1:][int(distance.argmin())])
            raise ValueError(f"function: expected a function that never falls, got a fall at {at:.4g}")

    def _beyond(self, start: Tensor, end: float) -> Tensor:
        """Scores from ``start`` towards ``end``, each a fifth farther from the anchor, while values are finite."""
        way = start - self.anchor
        scores = self.anchor + way * 1.2 ** torch.arange(1, 1500, dtype=torch.float64)
        scores = scores[(scores.abs() < 1e100) & ((scores < end) if way > 0 else (scores > end))]
        with torch.no_grad():
            finite = self.function(scores).isfinite()
        return scores[: int(finite.to(torch.uint8).cumprod(0).sum())]

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
        return WithDerivative.apply(  # type: ignore[no-untyped-call]
            z, self._integrate(z.detach(), self.panels), self.function
        )

    def slope(self, z: Tensor) -> Tensor:
        """Slope by autograd."""
        return _derivative(self.function, z)

    def _divergence(self, a: Tensor, b: Tensor) -> Tensor:
        delta, level = (a - b) / self.panels, self.function(b)
        total = torch.zeros_like(delta)
        for panel in range(self.panels):
            for node, weight in zip(*gauss_nodes(self.order), strict=True):
                total = total + weight * (self.function(b + (panel + node) * delta) - level)
        return (delta * total).clamp(min=0) if self.is_monotone else delta * total

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        name = "" if isinstance(self.function, nn.Module) else f"{getattr(self.function, '__name__', self.function)}, "
        return f"{name}domain={self._domain}, order={self.order}, panels={self.panels}, accuracy={self.accuracy:.1g}"


class FromTransform(FromCallable):
    """The scaling q = d ln f / dz of a score transform f, whose primitive is ln f exactly; it may fall."""

    may_fall = True

    def __init__(self, transform: Callable[[Tensor], Tensor], domain: tuple[float, float]) -> None:
        self.transform = transform
        super().__init__(self._log_slope, domain, order=16, panels=4, tolerance=1e-5)

    def _log_slope(self, z: Tensor) -> Tensor:
        return _derivative(self.primitive, z)

    def _check_values(self, grid: Tensor) -> None:
        with torch.no_grad():
            values = self.transform(grid)
        if values.shape != grid.shape or not bool((values.isfinite() & (values > 0)).all()):
            raise ValueError("function: expected a finite value above 0 for each score of the domain, elementwise")
        super()._check_values(grid)

    def primitive(self, z: Tensor) -> Tensor:
        """Primitive ln f(z)."""
        return self.transform(z).log()


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
    Gauss-Legendre quadrature, which is estimated on [-8, 8] (or the part of the domain nearest to it) and kept as
    ``accuracy``. It is checked never to fall at 2000 scores there and at some farther away.

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
