"""Numerics of the curves: settings that may be learned, forms that do not cancel, divergences of close pairs."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from vicinal.core.checks import check_between, check_number

Real = float | Tensor


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


def replace_close(
    far: Tensor, slope: Callable[[Tensor], Tensor], delta: Tensor, target: Tensor, limit: Real, *, near: float
) -> Tensor:
    """``far`` with the pairs of ``|delta| <= limit`` computed again by :func:`close_divergence`.

    ``near`` is limit / reach, which sets how many nodes are enough; 0 for a limit much smaller still.
    """
    close = delta.abs() <= limit
    count = int(close.sum())
    if count == 0:
        return far
    double = far.dtype == torch.float64
    order = (3 if double else 2) if near == 0 else (6 if double else 3) if near <= 0.125 else (10 if double else 6)
    if 8 * count > far.numel():  # picking them out would take longer than computing all
        all_close = close_divergence(slope, torch.where(close, delta, 0.0), target, order)
        return torch.where(close, all_close, far)
    return far.masked_scatter(close, close_divergence(slope, delta[close], target[close], order))


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
    far = xa.exp() - target * (1 + delta)
    if bool(far.sum().isnan()):  # infinity minus infinity, or in the part that is not read
        far = far.masked_fill(target.isinf(), torch.inf)
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


def sigmoid_divergence(delta: Tensor, xa: Tensor, xb: Tensor) -> Tensor:
    r"""Divergence of ln(1 + e^x), the KL of two coins: $\ln(1+p(e^\delta-1))-p\delta$ with p the target's sigmoid.

    Turned so that the target is <= 0, where p loses nothing.
    """
    base, step = -xb.abs(), torch.where(xb > 0, -delta, delta)
    low = torch.sigmoid(base)
    far = torch.log1p(low * torch.expm1(step.clamp(max=30.0))) - step * low
    far = far.clamp(min=0)
    long = step > 30
    if bool(long.any()):
        far = torch.where(long, -logsigmoid(-(base + step)) + logsigmoid(-base) - step * low, far)
    return replace_close(far, _sigmoid_slope, step, base, 0.05, near=0.0)


def _sigmoid_slope(x: Tensor) -> Tensor:
    p = torch.sigmoid(x)  # x is at most a little above 0 here, so 1 - p loses nothing
    return p - p * p


def ramp_divergence(delta: Tensor, a: Tensor, b: Tensor, low: Real, high: Real) -> Tensor:
    """Divergence of the link that is flat below ``low``, rises with slope 1 up to ``high`` and is flat above.

    ``delta`` is a - b, to more digits than the two may have left.
    """
    inside_a, inside_b = clip(a, low, high), clip(b, low, high)
    rise = torch.where((a == inside_a) & (b == inside_b), delta, inside_a - inside_b)
    return rise * (rise / 2 + (a - inside_a))


def clip(z: Tensor, low: Real, high: Real) -> Tensor:
    """``z`` held inside ``[low, high]``, whose ends may be tensors that require grad."""
    if not isinstance(low, Tensor) and not isinstance(high, Tensor):
        return z.clamp(low, high)
    bounds = [torch.as_tensor(end, dtype=z.dtype, device=z.device) for end in (low, high)]
    return torch.minimum(torch.maximum(z, bounds[0]), bounds[1])


def signed_safe_power(x: Tensor, d: float) -> Tensor:
    """``|x|^d`` whose gradient at 0 is 0 instead of NaN for d < 1."""
    size = x.abs()
    zero = size == 0
    return torch.where(zero, 0.0, torch.where(zero, 1.0, size) ** d)


def invert(
    function: Callable[[Tensor], Tensor], slope: Callable[[Tensor], Tensor], domain: tuple[float, float], value: Tensor
) -> Tensor:
    """The score z with function(z) = ``value``, to the rounding of the dtype; NaN where no score has it.

    By bisection, and one Newton step that carries the gradient; ``function`` has to rise strictly on ``domain``.
    """
    wide = widen(value)
    with torch.no_grad():
        start = _bisect(function, domain, wide.detach())
        steep = slope(start)
        usable = steep.isfinite() & (steep > 0)
    step = (function(start) - wide) / torch.where(usable, steep, 1.0)
    return torch.where(usable, start - step, start).to(value.dtype)


def _bisect(function: Callable[[Tensor], Tensor], domain: tuple[float, float], value: Tensor) -> Tensor:
    """The score at which a rising function reaches ``value``; NaN where it stays below or above it."""
    low, high = _bracket(function, domain, value)
    # each half is a bit: more than a float has, as the bracket may be far wider than the score is from 0
    for _ in range(80 if value.dtype == torch.float64 else 50):
        middle = low + (high - low) / 2
        below = function(middle) < value
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    score = low + (high - low) / 2
    # halving ends somewhere even if no score has the value, at an end of the domain, say: then it is far from it
    scale = 1e-3 * (1 + value.abs())
    return torch.where((function(score) - value).abs() <= scale, score, torch.nan)


def _bracket(function: Callable[[Tensor], Tensor], domain: tuple[float, float], value: Tensor) -> tuple[Tensor, Tensor]:
    """Scores below and above the one sought: the ends of the domain, or powers of 2 away from a point inside it."""
    left, right = domain
    inside = min(max(0.0, left), right) if math.isinf(left) or math.isinf(right) else (left + right) / 2
    low, high = torch.full_like(value, inside), torch.full_like(value, inside)
    low = torch.full_like(value, left) if math.isfinite(left) else low
    high = torch.full_like(value, right) if math.isfinite(right) else high
    for power in range(120):
        if math.isinf(left):
            low = torch.where(function(low) > value, inside - 2.0 ** (power - 4), low)
        if math.isinf(right):
            high = torch.where(function(high) < value, inside + 2.0 ** (power - 4), high)
    return low, high


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
