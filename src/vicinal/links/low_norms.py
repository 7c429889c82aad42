"""Curves that are steepest at 0 (or at ``shift``), smooth or of straight pieces: losses sensitive to small scores."""

import functools
import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from vicinal.core.checks import check_between
from vicinal.links.numerics import Setting, log1p_excess, ramp_divergence, read, sigmoid_divergence, sine_deficit, widen
from vicinal.links.shaped import Shaped, enlist, formula

_low_norms = functools.partial(enlist, family="low norms", sigmoid="low-norms")


@_low_norms("identity", sigmoid="high-norms", classes="high-norms")
class Identity(Shaped):
    r"""$f(x)=x$: equally steep everywhere; its matching loss is half the squared error.

    >>> Identity().divergence(torch.tensor(3.0), torch.tensor(1.0))
    tensor(2.)
    """

    is_odd = True
    region = "uniform"

    _value = formula(torch.clone)
    _primitive = formula(lambda x: x * x / 2)
    _slope = formula(torch.ones_like)
    _inverse = formula(lambda p: p)
    _plain_divergence = formula(lambda delta, xa, xb: delta * delta / 2)


@_low_norms("constant", "ranks-top", "monotone-probabilities", "composite-symmetric-loss", classes="uniform")
class Constant(Shaped):
    r"""$f(x)=1$, $F=x$: as a scaling it gives the plain softmax and sigmoid losses; no link.

    Args:
        amplitude: > 0, its value; a constant has no scale.
        shift: the score where its primitive is 0.

    >>> Constant(1.5)(torch.tensor([0.0, 7.0]))
    tensor([1.5000, 1.5000])
    """

    is_bounded = True
    is_invertible = False
    scaling_only = True
    region = "uniform"

    def __init__(self, amplitude: Setting = 1.0, shift: Setting = 0.0) -> None:
        super().__init__(1.0, shift, amplitude)

    _value = formula(torch.ones_like)
    _primitive = formula(torch.clone)
    _slope = formula(torch.zeros_like)
    _plain_divergence = formula(lambda delta, xa, xb: torch.zeros_like(delta))


@_low_norms("sigmoid", "ranks-top", "monotone-probabilities", "symmetric-loss", classes="high-scores")
class Sigmoid(Shaped):
    r"""$f(x)=1/(1+e^{-x})$, $F=\ln(1+e^x)$: steepest at ``shift``; its matching loss is logistic regression's.

    >>> Sigmoid().primitive(torch.tensor(0.0))
    tensor(0.6931)
    """

    is_bounded = True
    region = "low-norms"

    _value = formula(torch.sigmoid)
    _primitive = formula(lambda x: -logsigmoid(-x))
    _slope = formula(lambda x: torch.sigmoid(x) * torch.sigmoid(-x))
    _inverse = formula(lambda p: p.log() - torch.log1p(-p))
    _plain_divergence = formula(sigmoid_divergence)

    def pair(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """``(divergence(a, b), h(a) - h(b))``, sharing what both need."""
        scale, amplitude = read(self.scale), read(self.amplitude)
        xa, xb = self._inner(a), self._inner(b)
        delta = widen(a) - widen(b)
        value = sigmoid_divergence(delta if scale == 1 else scale * delta, xa, xb)
        pa, pb, factor = torch.sigmoid(xa), torch.sigmoid(xb), amplitude / scale
        rise = pa - pb if amplitude == 1 else amplitude * pa - amplitude * pb
        return (value if factor == 1 else factor * value).to(a.dtype), rise.to(a.dtype)


@_low_norms("tanh", classes="high-norms")
class Tanh(Shaped):
    r"""$f(x)=\tanh x$, $F=\ln\cosh x$: an odd, bounded link, steepest at ``shift``."""

    is_bounded = True
    is_odd = True
    region = "low-norms"

    _value = formula(torch.tanh)

    def _primitive(self, x: Tensor) -> Tensor:
        near = x.abs() < 1
        small = torch.where(near, x, 0.0).sinh()
        large = x.abs() + torch.log1p(torch.exp(-2 * x.abs())) - math.log(2)
        return torch.where(near, torch.log1p(small * small) / 2, large)

    _slope = formula(lambda x: 4 * torch.sigmoid(2 * x) * torch.sigmoid(-2 * x))
    _inverse = formula(torch.atanh)
    _plain_divergence = formula(lambda delta, xa, xb: sigmoid_divergence(2 * delta, 2 * xa, 2 * xb))


@_low_norms("arctan", classes="high-norms")
class Arctan(Shaped):
    r"""$f(x)=\arctan x$, $F=x\arctan x-\tfrac12\ln(1+x^2)$: bounded, with tails heavier than tanh."""

    is_bounded = True
    is_odd = True
    region = "low-norms"
    near = 0.5

    _value = formula(torch.atan)
    _primitive = formula(lambda x: x * torch.atan(x) - torch.log1p(x * x) / 2)
    _slope = formula(lambda x: 1 / (1 + x * x))
    _inverse = formula(lambda p: torch.where(p.abs() < math.pi / 2, p.tan(), torch.nan))
    _reach = formula(lambda x: (1 + x * x).sqrt())


@_low_norms("arcsinh", sigmoid="uniform", classes="high-norms")
class Arcsinh(Shaped):
    r"""$f(x)=\operatorname{arsinh}x$, $F=x\operatorname{arsinh}x-\sqrt{1+x^2}+1$: like a logarithm on both sides."""

    is_odd = True
    region = "low-norms"
    near = 0.5

    def _value(self, x: Tensor) -> Tensor:
        size = x.abs()
        return torch.sign(x) * torch.log1p(size + size * size / (1 + (1 + size * size).sqrt()))

    def _primitive(self, x: Tensor) -> Tensor:
        return x * self._value(x) - x * x / (1 + (1 + x * x).sqrt())

    _slope = formula(lambda x: (1 + x * x).rsqrt())
    _inverse = formula(torch.sinh)
    _reach = formula(lambda x: (1 + x * x).sqrt())


@_low_norms("signed_log1p", sigmoid="uniform", classes="high-norms")
class SignedLog1p(Shaped):
    r"""$f(x)=\operatorname{sign}(x)\ln(1+|x|)$, steepest at 0.

    The paper's table H.1 lists it under high norms; its slope $1/(1+|x|)$ peaks at 0, so it is here.
    """

    is_odd = True
    region = "low-norms"
    near = 0.5

    _value = formula(lambda x: torch.where(x < 0, -torch.log1p(-x.clamp(max=0)), torch.log1p(x.clamp(min=0))))
    _primitive = formula(lambda x: log1p_excess(x.abs()))
    _slope = formula(lambda x: 1 / (1 + x.abs()))
    _inverse = formula(lambda p: torch.sign(p) * torch.expm1(p.abs()))
    _reach = formula(torch.abs)


@_low_norms("sin", sigmoid="uniform", classes="high-norms")
class Sin(Shaped):
    r"""$f(x)=\sin x$ on $[-\pi/2,\pi/2]$, $F=-\cos x$ (written $2\sin^2(x/2)$)."""

    is_bounded = True
    is_odd = True
    region = "low-norms"
    interval = (-math.pi / 2, math.pi / 2)

    _value = formula(torch.sin)
    _primitive = formula(lambda x: 2 * torch.sin(x / 2) ** 2)

    def _slope(self, x: Tensor) -> Tensor:
        return torch.cos(x).clamp(min=0)  # pi / 2 is rounded up in some types

    _inverse = formula(torch.asin)

    def _plain_divergence(self, delta: Tensor, xa: Tensor, xb: Tensor) -> Tensor:
        value = 2 * self._slope(xb) * (delta / 2).sin() ** 2 - torch.sin(xb) * sine_deficit(delta)
        return value.clamp(min=0)


@_low_norms("huber_grad", classes="high-norms")
class HuberGrad(Shaped):
    r"""$f(x)=\min(\max(x,-\delta),\delta)$, the gradient of Huber's function.

    Args:
        delta: > 0, where it turns flat.
        scale: see :class:`Shaped`.
        shift: see :class:`Shaped`.
        amplitude: see :class:`Shaped`.
    """

    is_bounded = True
    is_invertible = False
    is_odd = True
    region = "low-norms"
    _settings = ("delta",)

    def __init__(
        self, delta: float = 1.0, scale: Setting = 1.0, shift: Setting = 0.0, amplitude: Setting = 1.0
    ) -> None:
        super().__init__(scale, shift, amplitude)
        self.delta = check_between("delta", delta, 0, math.inf)

    def _value(self, x: Tensor) -> Tensor:
        return x.clamp(-self.delta, self.delta)

    def _primitive(self, x: Tensor) -> Tensor:
        inside = x.clamp(-self.delta, self.delta)
        return inside * (x - inside / 2)

    def _slope(self, x: Tensor) -> Tensor:
        return (x.abs() <= self.delta).to(x.dtype)

    def _plain_divergence(self, delta: Tensor, xa: Tensor, xb: Tensor) -> Tensor:
        return ramp_divergence(delta, xa, xb, -self.delta, self.delta)


@_low_norms("pseudo_huber_grad", classes="high-norms")
class PseudoHuberGrad(Shaped):
    r"""$f(x)=x/\sqrt{x^2+c^2}$, the gradient of the pseudo-Huber function $F=\sqrt{x^2+c^2}-c$, a smooth Huber.

    Args:
        c: > 0, where it turns flat.
        scale: see :class:`Shaped`.
        shift: see :class:`Shaped`.
        amplitude: see :class:`Shaped`.
    """

    is_bounded = True
    is_odd = True
    region = "low-norms"
    _settings = ("c",)

    def __init__(self, c: float = 1.0, scale: Setting = 1.0, shift: Setting = 0.0, amplitude: Setting = 1.0) -> None:
        super().__init__(scale, shift, amplitude)
        self.c = check_between("c", c, 0, math.inf)

    def _root(self, x: Tensor) -> Tensor:
        return torch.hypot(x, x.new_tensor(self.c))

    def _value(self, x: Tensor) -> Tensor:
        return x / self._root(x)

    def _primitive(self, x: Tensor) -> Tensor:
        return x * (x / (self._root(x) + self.c))

    def _slope(self, x: Tensor) -> Tensor:
        root = self._root(x)
        return (self.c / root) ** 2 / root

    def _inverse(self, p: Tensor) -> Tensor:
        return torch.where(p.abs() < 1, self.c * p / ((1 - p) * (1 + p)).sqrt(), torch.nan)

    def _plain_divergence(self, delta: Tensor, xa: Tensor, xb: Tensor) -> Tensor:
        root_a, root_b = self._root(xa), self._root(xb)
        (f_a, f_b), (low_a, low_b) = (xa / root_a, xb / root_b), (self.c / root_a, self.c / root_b)
        product = f_a * f_b
        opposite = ((low_a * f_b) ** 2 + (low_b * f_a) ** 2 + (low_a * low_b) ** 2) / (1 + product.abs())
        share = torch.where(product >= 0, 1 + product, opposite)  # of two signs, 1 + product would cancel
        return (delta * low_b) ** 2 / root_a / (share + low_a * low_b)


@_low_norms("smelu_grad", "monotone-probabilities", "symmetric-loss", classes="high-scores")
class SmeLUGrad(Shaped):
    r"""$f(x)=\min(\max(\tfrac{x+c}{2c},0),1)$, the gradient of SmeLU; as a scaling its primitive clips low scores.

    Args:
        c: > 0, half the width of the rise.
        scale: see :class:`Shaped`.
        shift: see :class:`Shaped`.
        amplitude: see :class:`Shaped`.
    """

    is_bounded = True
    is_invertible = False
    region = "low-norms"
    _settings = ("c",)

    def __init__(self, c: float = 1.0, scale: Setting = 1.0, shift: Setting = 0.0, amplitude: Setting = 1.0) -> None:
        super().__init__(scale, shift, amplitude)
        self.c = check_between("c", c, 0, math.inf)

    def _value(self, x: Tensor) -> Tensor:
        return ((x + self.c) / (2 * self.c)).clamp(0, 1)

    def _primitive(self, x: Tensor) -> Tensor:
        inside = x.clamp(-self.c, self.c)
        return (inside + self.c) ** 2 / (4 * self.c) + (x - self.c).clamp(min=0)

    def _slope(self, x: Tensor) -> Tensor:
        return (x.abs() <= self.c).to(x.dtype) / (2 * self.c)

    def _plain_divergence(self, delta: Tensor, xa: Tensor, xb: Tensor) -> Tensor:
        return ramp_divergence(delta, xa, xb, -self.c, self.c) / (2 * self.c)


@_low_norms("step", "monotone-probabilities", classes="high-scores")
class Step(Shaped):
    r"""$f(x)=1$ for $x>0$, else 0, with $F=\max(x,0)$: all that counts is the side of ``shift``."""

    is_bounded = True
    is_invertible = False
    region = "low-norms"

    _value = formula(lambda x: (x > 0).to(x.dtype))
    _primitive = formula(lambda x: x.clamp(min=0))
    _slope = formula(torch.zeros_like)

    def _plain_divergence(self, delta: Tensor, xa: Tensor, xb: Tensor) -> Tensor:
        rise: Tensor = self._value(xa) - self._value(xb)
        return xa * rise


@_low_norms("sign", classes="high-norms")
class Sign(Shaped):
    r"""$f(x)=\operatorname{sign}x$ with $F=|x|$."""

    is_bounded = True
    is_invertible = False
    is_odd = True
    region = "low-norms"

    _value = formula(torch.sign)
    _primitive = formula(torch.abs)
    _slope = formula(torch.zeros_like)
    _plain_divergence = formula(lambda delta, xa, xb: xa * (torch.sign(xa) - torch.sign(xb)))
