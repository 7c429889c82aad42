"""Curves that are not links but may scale the scores of a composite loss (where condition G.2 holds)."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from vicinal.core import check_between
from vicinal.links.high_norms import signed_safe_power
from vicinal.links.numerics import exp_divergence
from vicinal.links.settings import Setting
from vicinal.links.shaped import Shaped, enlist, replace_close


@enlist("cosh")
class Cosh(Shaped):
    r"""$f(x)=\cosh x$, $F=\sinh x$: a scaling that weighs both ends; valid for gamma up to about $1/\sqrt2$."""

    is_monotone = False
    is_invertible = False
    scaling_only = True
    region = "high-norms"
    turns = (0.0,)

    def _value(self, x: Tensor) -> Tensor:
        return torch.cosh(x)

    def _primitive(self, x: Tensor) -> Tensor:
        return torch.sinh(x)

    def _slope(self, x: Tensor) -> Tensor:
        return torch.sinh(x)

    def _plain_divergence(self, delta: Tensor, xa: Tensor, xb: Tensor) -> Tensor:
        return (exp_divergence(delta, xa, xb) - exp_divergence(-delta, -xa, -xb)) / 2


@enlist("abs_power")
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
    turns = (0.0,)

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

    def _extra(self) -> Iterator[tuple[str, object]]:
        yield "d", self.d
        yield "c", self.c


@enlist("constant")
class Constant(Shaped):
    r"""$f(x)=1$, $F=x$: as a scaling it gives the plain softmax and sigmoid losses; no link."""

    is_bounded = True
    is_invertible = False
    scaling_only = True
    region = "uniform"
    turns = (0.0,)

    def _value(self, x: Tensor) -> Tensor:
        return torch.ones_like(x)

    def _primitive(self, x: Tensor) -> Tensor:
        return x.clone()

    def _slope(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)

    def _plain_divergence(self, delta: Tensor, xa: Tensor, xb: Tensor) -> Tensor:
        return torch.zeros_like(delta)
