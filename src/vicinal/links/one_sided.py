"""Links that are steep on one side only: losses sensitive to high scores, or to low ones."""

import math

import torch
from torch import Tensor

from vicinal.core.checks import check_between
from vicinal.links.curve import Region
from vicinal.links.numerics import Setting, entropy_divergence, exp_divergence, log1p_excess, signed_safe_power
from vicinal.links.shaped import Shaped, enlist, formula


@enlist("exp", "ranks-top", "monotone-probabilities", family="one-sided", sigmoid="high-scores", classes="high-scores")
class Exp(Shaped):
    r"""$f(x)=e^x$: every further unit of score matters e times as much as the one before.

    >>> Exp().divergence(torch.tensor(0.0), torch.tensor(2.0)), Exp().divergence(torch.tensor(2.0), torch.tensor(0.0))
    (tensor(8.3891), tensor(4.3891))
    """

    region = "high-scores"

    _value = _primitive = _slope = formula(torch.exp)
    _inverse = formula(torch.log)
    _plain_divergence = formula(exp_divergence)

    def both(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """``(h(z), H(z))`` from one exponential."""
        if self.tunable() or z.dtype in (torch.float16, torch.bfloat16):
            return super().both(z)
        value = torch.exp(self._inner(z))
        scale, amplitude = self.scale, self.amplitude
        return self._outer(amplitude, value, z.dtype), self._outer(amplitude / scale, value, z.dtype)


@enlist("anti_exp", "ranks-bottom", family="one-sided", sigmoid="low-scores", classes="low-scores")
class AntiExp(Shaped):
    r"""$f(x)=-e^{-x}$, $F=e^{-x}$: the mirror image of :class:`Exp`, sensitive at low scores."""

    region = "low-scores"

    _value = formula(lambda x: -torch.exp(-x))
    _primitive = _slope = formula(lambda x: torch.exp(-x))
    _inverse = formula(lambda p: -(-p).log())
    _plain_divergence = formula(lambda delta, xa, xb: exp_divergence(-delta, -xa, -xb))


@enlist("neg_log1m", family="one-sided", sigmoid="high-scores", classes="high-scores")
class NegLog1m(Shaped):
    r"""$f(x)=-\ln(1-x)$ for x < 1, $F=(1-x)\ln(1-x)+x$: scores with a ceiling, steeper the nearer to it."""

    region = "high-scores"
    interval = (-math.inf, 1.0)
    interval_closed = (True, False)

    _value = formula(lambda x: -torch.log1p(-x))
    _primitive = formula(lambda x: log1p_excess(-x))
    _slope = formula(lambda x: 1 / (1 - x))
    _inverse = formula(lambda p: -torch.expm1(-p))
    _plain_divergence = formula(lambda delta, xa, xb: entropy_divergence(-delta, 1 - xa, 1 - xb))


@enlist(
    "power", "ranks-top", "monotone-probabilities", family="one-sided", sigmoid="high-scores", classes="high-scores"
)
class Power(Shaped):
    r"""$f(x)=x^d$ for x >= 0: sensitive at high scores for d > 1, at low ones for d < 1.

    Args:
        d: > 0.
        scale: see :class:`Shaped`.
        shift: see :class:`Shaped`.
        amplitude: see :class:`Shaped`.
    """

    region: Region = "high-scores"
    _settings = ("d",)
    interval = (0.0, math.inf)
    near = 0.5

    def __init__(self, d: float = 2.0, scale: Setting = 1.0, shift: Setting = 0.0, amplitude: Setting = 1.0) -> None:
        super().__init__(scale, shift, amplitude)
        self.d = check_between("d", d, 0, math.inf)
        self.region = "high-scores" if self.d > 1 else "uniform" if self.d == 1 else "low-scores"

    def _value(self, x: Tensor) -> Tensor:
        return signed_safe_power(x.clamp(min=0), self.d)

    def _primitive(self, x: Tensor) -> Tensor:
        return x.clamp(min=0) ** (self.d + 1) / (self.d + 1)

    def _slope(self, x: Tensor) -> Tensor:
        return self.d * x.clamp(min=0).abs() ** (self.d - 1)  # of -0 too, whose power of -1/2 is -inf

    def _inverse(self, p: Tensor) -> Tensor:
        return torch.where(p >= 0, p.clamp(min=0) ** (1 / self.d), torch.nan)

    _reach = formula(lambda x: x)


@enlist("log", family="one-sided", sigmoid="low-scores", classes="low-scores")
class Log(Shaped):
    r"""$f(x)=\ln x$ for x > 0, $F=x\ln x-x$: ratios count, so the lowest scores matter most.

    Its matching loss is the generalized KL divergence from prediction to target.
    """

    region = "low-scores"
    interval = (0.0, math.inf)
    interval_closed = (False, True)

    _value = formula(torch.log)
    _primitive = formula(lambda x: torch.xlogy(x, x) - x)
    _slope = formula(lambda x: 1 / x)

    def _slope_times(self, x: Tensor, step: Tensor) -> Tensor:
        return torch.where(step == 0, 0.0, step / x)  # 1 / x overflows for subnormal scores

    _inverse = formula(torch.exp)
    _plain_divergence = formula(entropy_divergence)
