"""Numbers that do not cancel: Gauss-Legendre nodes, x ln x forms near 0, the Bregman divergence of close pairs."""

from collections.abc import Callable
from functools import lru_cache

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
    return delta * delta * total


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
    return torch.where(near, target * exp_excess(small), xa.exp() - target * (1 + delta))


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
