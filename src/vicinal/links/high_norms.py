"""Curves that grow steeper away from 0 (or from ``shift``) on both sides: losses sensitive to large scores."""

import math

import torch
from torch import Tensor

from vicinal.core.checks import check_between
from vicinal.links.curve import Region
from vicinal.links.numerics import (
    Setting,
    entropy_divergence,
    exp_divergence,
    replace_close,
    signed_safe_power,
    sine_deficit,
)
from vicinal.links.shaped import Shaped, enlist, formula


@enlist("sinh", family="high norms", sigmoid="high-norms", classes="high-norms")
class Sinh(Shaped):
    r"""$f(x)=\sinh x$, $F=\cosh x$: sensitive at both ends, without bound.

    Shifted far to the left it is sensitive at high scores only, far to the right at low ones.
    """

    is_odd = True
    region = "high-norms"

    _value = formula(torch.sinh)
    _primitive = _slope = formula(torch.cosh)

    def _inverse(self, p: Tensor) -> Tensor:
        size = p.abs()
        return torch.sign(p) * torch.log1p(size + size * size / (1 + (1 + size * size).sqrt()))

    def _plain_divergence(self, delta: Tensor, xa: Tensor, xb: Tensor) -> Tensor:
        return (exp_divergence(delta, xa, xb) + exp_divergence(-delta, -xa, -xb)) / 2

    def both(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """``(h(z), H(z))`` from one exponential less."""
        if self.tunable() or z.dtype in (torch.float16, torch.bfloat16):
            return super().both(z)
        value = torch.sinh(self._inner(z))
        primitive = torch.hypot(value, torch.ones((), dtype=z.dtype, device=z.device))
        scale, amplitude = self.scale, self.amplitude
        return self._outer(amplitude, value, z.dtype), self._outer(amplitude / scale, primitive, z.dtype)


@enlist("signed_power", family="high norms", sigmoid="high-norms", classes="high-norms")
class SignedPower(Shaped):
    r"""$f(x)=\operatorname{sign}(x)|x|^d$: sensitive at high norms for d > 1, at low norms for d < 1.

    Args:
        d: > 0.
        scale: see :class:`Shaped`.
        shift: see :class:`Shaped`.
        amplitude: see :class:`Shaped`.
    """

    is_odd = True
    region: Region = "high-norms"
    _settings = ("d",)
    near = 0.5

    def __init__(self, d: float = 2.0, scale: Setting = 1.0, shift: Setting = 0.0, amplitude: Setting = 1.0) -> None:
        super().__init__(scale, shift, amplitude)
        self.d = check_between("d", d, 0, math.inf)
        self.region = "high-norms" if self.d > 1 else "uniform" if self.d == 1 else "low-norms"

    def _value(self, x: Tensor) -> Tensor:
        return torch.sign(x) * signed_safe_power(x, self.d)

    def _primitive(self, x: Tensor) -> Tensor:
        return x.abs() ** (self.d + 1) / (self.d + 1)

    def _slope(self, x: Tensor) -> Tensor:
        return self.d * x.abs() ** (self.d - 1)

    def _inverse(self, p: Tensor) -> Tensor:
        return torch.sign(p) * p.abs() ** (1 / self.d)

    _reach = formula(torch.abs)


@enlist("logit", family="high norms", sigmoid="high-norms", classes="high-norms")
class Logit(Shaped):
    r"""$f(x)=\ln\frac{x}{1-x}$ on (0, 1): scores are probabilities, and those near 0 or 1 matter most.

    Its matching loss is the KL divergence between Bernoulli distributions, from prediction to target.
    """

    region = "high-norms"
    turns = (0.5,)
    interval = (0.0, 1.0)
    interval_closed = (False, False)

    _value = formula(lambda x: x.log() - torch.log1p(-x))

    def _primitive(self, x: Tensor) -> Tensor:
        return torch.xlogy(x, x) + torch.special.xlog1py(1 - x, -x)

    def _slope(self, x: Tensor) -> Tensor:
        return 1 / (x * (1 - x))

    def _slope_times(self, x: Tensor, step: Tensor) -> Tensor:
        return torch.where(step == 0, 0.0, step / x / (1 - x))  # 1 / x overflows for subnormal scores

    _inverse = formula(torch.sigmoid)

    def _plain_divergence(self, delta: Tensor, xa: Tensor, xb: Tensor) -> Tensor:
        return entropy_divergence(delta, xa, xb) + entropy_divergence(-delta, 1 - xa, 1 - xb)


@enlist("arcsin", family="high norms", sigmoid="high-norms", classes="high-norms")
class Arcsin(Shaped):
    r"""$f(x)=\arcsin x$ on [-1, 1], $F=x\arcsin x+\sqrt{1-x^2}$."""

    is_bounded = True
    is_odd = True
    region = "high-norms"
    interval = (-1.0, 1.0)

    _value = formula(torch.asin)
    _primitive = formula(lambda x: x * torch.asin(x) + _cosine(1 - x, 1 + x))

    def _slope(self, x: Tensor) -> Tensor:
        return ((1 - x) * (1 + x)).rsqrt()

    _inverse = formula(lambda p: torch.where(p.abs() <= math.pi / 2, p.sin(), torch.nan))

    def _plain_divergence(self, delta: Tensor, xa: Tensor, xb: Tensor) -> Tensor:
        """With the angles A, B of a = sin A and b = sin B: a (D - sin D) + cos A (1 - cos D), D = A - B."""
        cos_a = _cosine(1 - xb - delta, 1 + xb + delta)  # of neighbors at an end xa itself is rounded to xb
        half = torch.atan2(delta, cos_a + _cosine(1 - xb, 1 + xb))  # tan(D/2) = (sin A - sin B) / (cos A + cos B)
        return xa * sine_deficit(2 * half) + 2 * cos_a * half.sin() ** 2


def _cosine(below: Tensor, above: Tensor) -> Tensor:
    """Of the angle whose sine is ``below`` 1, and ``above`` -1, by so much."""
    return (below * above).clamp(min=0).sqrt()


@enlist("arctanh", family="high norms", sigmoid="high-norms", classes="high-norms")
class Arctanh(Shaped):
    r"""$f(x)=\operatorname{artanh}x$ on (-1, 1), $F=x\operatorname{artanh}x+\tfrac12\ln(1-x^2)$."""

    is_odd = True
    region = "high-norms"
    interval = (-1.0, 1.0)
    interval_closed = (False, False)

    _value = formula(lambda x: (torch.log1p(x) - torch.log1p(-x)) / 2)

    def _primitive(self, x: Tensor) -> Tensor:
        return (torch.special.xlog1py(1 + x, x) + torch.special.xlog1py(1 - x, -x)) / 2

    def _slope(self, x: Tensor) -> Tensor:
        return 1 / ((1 - x) * (1 + x))

    _inverse = formula(torch.tanh)

    def _plain_divergence(self, delta: Tensor, xa: Tensor, xb: Tensor) -> Tensor:
        return (entropy_divergence(delta, 1 + xa, 1 + xb) + entropy_divergence(-delta, 1 - xa, 1 - xb)) / 2


@enlist("tan", family="high norms", sigmoid="high-norms", classes="high-norms")
class Tan(Shaped):
    r"""$f(x)=\tan x$ on $(-\pi/2,\pi/2)$, $F=-\ln\cos x$."""

    is_odd = True
    region = "high-norms"
    interval = (-math.pi / 2, math.pi / 2)
    interval_closed = (False, False)
    near = 0.5

    _value = formula(torch.tan)

    def _primitive(self, x: Tensor) -> Tensor:
        near = x.abs() < 0.8
        small = torch.log1p(-(torch.where(near, x, 0.0).sin() ** 2)) / 2
        return -torch.where(near, small, torch.cos(x).log())

    _slope = formula(lambda x: torch.reciprocal(torch.cos(x) ** 2))

    def _plain_divergence(self, delta: Tensor, xa: Tensor, xb: Tensor) -> Tensor:
        far = (-(torch.cos(xa) / torch.cos(xb)).log() - delta * torch.tan(xb)).clamp(min=0)
        return replace_close(far, self._slope, delta, xb, self.near * (math.pi / 2 - xb.abs()), near=self.near)

    _inverse = formula(torch.atan)


@enlist("cosh", "monotone-probabilities", family="high norms", sigmoid="high-scores", classes="high-scores")
class Cosh(Shaped):
    r"""$f(x)=\cosh x$, $F=\sinh x$: a scaling that weighs both ends; valid for gamma up to 1."""

    is_monotone = False
    is_invertible = False
    scaling_only = True
    region = "high-norms"

    _value = formula(torch.cosh)
    _primitive = _slope = formula(torch.sinh)

    def _plain_divergence(self, delta: Tensor, xa: Tensor, xb: Tensor) -> Tensor:
        return (exp_divergence(delta, xa, xb) - exp_divergence(-delta, -xa, -xb)) / 2


@enlist("abs_power", "monotone-probabilities", family="high norms", sigmoid="high-scores", classes="high-scores")
class AbsPower(Shaped):
    r"""$f(x)=|x|^d+c$, $F=\operatorname{sign}(x)\frac{|x|^{d+1}}{d+1}+cx$: a scaling that weighs both ends.

    Args:
        d: >= 1.
        c: >= 0; large enough for condition G.2, which :class:`vicinal.losses.CompositeSoftmaxMatchingLoss` checks.
        scale: see :class:`Shaped`.
        shift: see :class:`Shaped`.
        amplitude: see :class:`Shaped`.
    """

    is_monotone = False
    is_invertible = False
    scaling_only = True
    region = "high-norms"
    _settings = ("d", "c")

    def __init__(
        self,
        d: float = 2.0,
        c: float = 2.0,
        scale: Setting = 1.0,
        shift: Setting = 0.0,
        amplitude: Setting = 1.0,
    ) -> None:
        super().__init__(scale, shift, amplitude)
        self.d = check_between("d", d, 1, math.inf, closed=True)
        self.c = check_between("c", c, 0, math.inf, closed=True)

    def _value(self, x: Tensor) -> Tensor:
        return signed_safe_power(x, self.d) + self.c

    def _primitive(self, x: Tensor) -> Tensor:
        return torch.sign(x) * signed_safe_power(x, self.d + 1) / (self.d + 1) + self.c * x

    def _slope(self, x: Tensor) -> Tensor:
        return self.d * torch.sign(x) * signed_safe_power(x, self.d - 1)

    def _plain_divergence(self, delta: Tensor, xa: Tensor, xb: Tensor) -> Tensor:
        far = self._primitive(xa) - self._primitive(xb) - delta * self._value(xb)
        return replace_close(far, self._slope, delta, xb, 0.5 * xb.abs(), near=0.5)
