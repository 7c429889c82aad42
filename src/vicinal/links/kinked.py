"""Links of straight pieces, flat far from 0: gradients of the Huber and SmeLU functions, step and sign."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from vicinal.core import check_between
from vicinal.links.numerics import Real
from vicinal.links.settings import Setting
from vicinal.links.shaped import Shaped, enlist


def ramp_divergence(delta: Tensor, a: Tensor, b: Tensor, low: Real, high: Real) -> Tensor:
    """Divergence of the link that is flat below ``low``, rises with slope 1 up to ``high`` and is flat above.

    ``delta`` is a - b, to more digits than the two may have left.
    """
    inside_a, inside_b = _clip(a, low, high), _clip(b, low, high)
    rise = torch.where((a == inside_a) & (b == inside_b), delta, inside_a - inside_b)
    return rise * (rise / 2 + (a - inside_a))


def _clip(z: Tensor, low: Real, high: Real) -> Tensor:
    low_tensor, high_tensor = torch.as_tensor(low, dtype=z.dtype), torch.as_tensor(high, dtype=z.dtype)
    return torch.minimum(torch.maximum(z, low_tensor.to(z.device)), high_tensor.to(z.device))


@enlist("huber_grad")
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
    turns = (0.0,)

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

    def _extra(self) -> Iterator[tuple[str, object]]:
        yield "delta", self.delta


@enlist("smelu_grad")
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
    turns = (0.0,)

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

    def _extra(self) -> Iterator[tuple[str, object]]:
        yield "c", self.c


@enlist("step")
class Step(Shaped):
    r"""$f(x)=1$ for $x>0$, else 0, with $F=\max(x,0)$: all that counts is the side of ``shift``."""

    is_bounded = True
    is_invertible = False
    region = "low-norms"
    turns = (0.0,)

    def _value(self, x: Tensor) -> Tensor:
        return (x > 0).to(x.dtype)

    def _primitive(self, x: Tensor) -> Tensor:
        return x.clamp(min=0)

    def _slope(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)

    def _plain_divergence(self, delta: Tensor, xa: Tensor, xb: Tensor) -> Tensor:
        return xa * (self._value(xa) - self._value(xb))


@enlist("sign")
class Sign(Shaped):
    r"""$f(x)=\operatorname{sign}x$ with $F=|x|$."""

    is_bounded = True
    is_invertible = False
    is_odd = True
    region = "low-norms"
    turns = (0.0,)

    def _value(self, x: Tensor) -> Tensor:
        return torch.sign(x)

    def _primitive(self, x: Tensor) -> Tensor:
        return x.abs()

    def _slope(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)

    def _plain_divergence(self, delta: Tensor, xa: Tensor, xb: Tensor) -> Tensor:
        return xa * (torch.sign(xa) - torch.sign(xb))
