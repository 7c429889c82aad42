"""Numbers that do not cancel: Gauss-Legendre nodes, x ln x forms near 0, the Bregman divergence of close pairs."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

Real = float | Tensor


def widen(z: Tensor) -> Tensor:
    """``z`` in float32 where it is float16 or bfloat16, else itself: curves are computed no narrower."""
    return z.float() if z.dtype in (torch.float16, torch.bfloat16) else z


@lru_cache
def gauss_nodes(order: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Nodes and weights of Gauss-Legendre quadrature on [0, 1], exact for polynomials of degree 2 order - 1.

    >>> gauss_nodes(1)
    ((0.5,), (1.0,))
    """
    nodes, weights = np.polynomial.legendre.leggauss(order)
    return tuple((0.5 * (nodes + 1)).tolist()), tuple((0.5 * weights).tolist())


def close_divergence(slope: Callable[[Tensor], Tensor], delta: Tensor, target: Tensor, order: int) -> Tensor:
    r"""$\delta^2\int_0^1 (1-u)\,h'(s+u\delta)\,du = H(s+\delta)-H(s)-\delta h(s)$, with no difference in it.

    Args:
        slope: h'.
        delta: prediction - target.
        target: s, of the shape of ``delta``.
        order: number of nodes; enough where h' is smooth over a few times ``delta``.

    Returns:
        The divergence, never below 0 for a slope >= 0.

    >>> close_divergence(torch.ones_like, torch.tensor([2.0]), torch.tensor([5.0]), 3)
    tensor([2.])
    """
    total = torch.zeros_like(delta)
    for node, weight in zip(*gauss_nodes(order), strict=True):
        total = total + (weight * (1 - node)) * slope(target + node * delta)
    return delta * (delta * total)  # a square would underflow first


def exp_excess(x: Tensor) -> Tensor:
    """``e^x - 1 - x`` >= 0 with full relative accuracy also near 0.

    >>> exp_excess(torch.tensor([1e-4], dtype=torch.float64))
    tensor([5.0002e-09], dtype=torch.float64)
    """
    near = x.abs() < 0.5
    small = torch.where(near, x, 0.0)
    series = torch.zeros_like(small)
    for k in range(17 if x.dtype == torch.float64 else 9, 1, -1):
        series = (series + 1.0) * (small / k)  # ends as x/2 + x^2/6 + x^3/24 + ...
    far = torch.where(near, 1.0, x)
    return torch.where(near, series * small, torch.expm1(far) - far)


def exp_divergence(delta: Tensor, xa: Tensor, xb: Tensor) -> Tensor:
    """``e^xa - e^xb - delta e^xb`` >= 0 for delta = xa - xb; neither cancels for a small delta nor overflows early."""
    near = delta < 1
    small, target = torch.where(near, delta, 0.0), xb.exp()
    far = torch.where(target.isinf(), torch.inf, xa.exp() - target * (1 + delta))
    return torch.where(near, target * exp_excess(small), far)


def log1p_excess(u: Tensor) -> Tensor:
    """``(1 + u) ln(1 + u) - u`` >= 0 for u >= -1 with full relative accuracy also near 0 (1 at u = -1).

    >>> log1p_excess(torch.tensor([1e-4, -1.0], dtype=torch.float64))
    tensor([4.9998e-09, 1.0000e+00], dtype=torch.float64)
    """
    near = u.abs() < 0.05
    small = torch.where(near, u, 0.0)
    series = torch.zeros_like(small)
    for k in range(14 if u.dtype == torch.float64 else 7, 1, -1):
        series = 1.0 / (k * (k - 1)) - small * series
    far = torch.where(near, 1.0, u)
    return torch.where(near, small * small * series, torch.special.xlog1py(1 + far, far) - far)


def entropy_divergence(delta: Tensor, xa: Tensor, xb: Tensor) -> Tensor:
    r"""$x_a\ln\frac{x_a}{x_b}-\delta\ge0$ for $\delta=x_a-x_b$ and scores >= 0: the divergence of $x\ln x-x$.

    >>> entropy_divergence(torch.tensor([1.0, 1.0, -1.0]), torch.tensor([1.0, 3.0, 0.0]), torch.tensor([0.0, 2.0, 1.0]))
    tensor([   inf, 0.2164, 1.0000])
    """
    share = (delta / xb).clamp(min=-1.0)
    far = share > 1e8
    near = xb * log1p_excess(torch.where(far, 0.0, share))
    return torch.where(far, xa * (xa.log() - xb.log()) - delta, near)


def sine_deficit(x: Tensor) -> Tensor:
    """``x - sin x`` with full relative accuracy also near 0.

    >>> sine_deficit(torch.tensor([1e-3], dtype=torch.float64))
    tensor([1.6667e-10], dtype=torch.float64)
    """
    near = x.abs() < 1
    small = torch.where(near, x, 0.0)
    square, series = small * small, torch.zeros_like(small)
    for k in range(21 if x.dtype == torch.float64 else 13, 3, -2):
        series = (1.0 - series) * square / (k * (k - 1))  # ends as x^2/20 - x^4/840 + ...
    return torch.where(near, (1.0 - series) * small * square / 6, x - x.sin())


def score_inside(domain: tuple[float, float], share: float = 0.5) -> float:
    """A score inside a domain, to stand where any score will do; another for another ``share`` of the way through it.

    >>> score_inside((0.0, 1.0)), score_inside((2.0, math.inf)), score_inside((-math.inf, math.inf))
    (0.5, 3.0, 0.0)
    """
    low, high = domain
    if math.isinf(low) and math.isinf(high):
        return 2 * share - 1
    low = max(low, min(high, 1.0) - 2) if math.isinf(low) else low
    return low + share * ((high if math.isfinite(high) else max(low, -1.0) + 2) - low)


def slope_times(slope: Callable[[Tensor], Tensor], z: Tensor, step: Tensor, domain: tuple[float, float]) -> Tensor:
    """``slope(z) * step``: 0 for a step of 0 also where the slope is infinite.

    >>> slope_times(torch.rsqrt, torch.tensor([0.0, 0.0, 4.0]), torch.tensor([0.0, -1.0, 3.0]), (0.0, math.inf))
    tensor([0.0000,   -inf, 1.5000])
    """
    steep = slope(z)
    still = (step == 0) & steep.isinf()
    if not bool(still.any()):
        return steep * step
    others = torch.tensor([score_inside(domain, share) for share in (0.5, 0.75)], dtype=z.dtype, device=z.device)
    with torch.no_grad():
        regular = others[int(slope(others).isfinite().to(torch.uint8).argmax())]
    return slope(torch.where(still, regular, z)) * step  # gradients of the slope at its pole would be NaN


class WithDerivative(torch.autograd.Function):
    """Passes on values of ``z`` that were computed apart; their derivative by it is ``derivative(z)``, exactly."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, values: Tensor, derivative: Callable[[Tensor], Tensor]) -> Tensor:
        """The values."""
        ctx.save_for_backward(z)
        ctx.derivative = derivative
        return values.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, Tensor, None]:
        """By ``z`` and by the values."""
        (z,) = ctx.saved_tensors
        return grads[0] * ctx.derivative(z), grads[0], None


class Divergence(torch.autograd.Function):
    """``value(a, b)`` of a Bregman divergence, whose derivatives are ``rise(a, b)`` and ``slope_times(b, b - a)``."""

    @staticmethod
    def forward(
        ctx: Any,
        a: Tensor,
        b: Tensor,
        value: Callable[[Tensor, Tensor], Tensor],
        rise: Callable[[Tensor, Tensor], Tensor],
        slope_times: Callable[[Tensor, Tensor], Tensor],
    ) -> Tensor:
        """The value."""
        ctx.save_for_backward(a, b)
        ctx.rise, ctx.slope_times = rise, slope_times
        return value(a, b)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, Tensor, None, None, None]:
        """By ``a`` and by ``b``."""
        a, b = ctx.saved_tensors
        return grads[0] * ctx.rise(a, b), grads[0] * ctx.slope_times(b, b - a), None, None, None
