"""Composite links: a scaling of the scores inside a sigmoid, or inside a softmax over several classes."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vicinal.core import as_tensor
from vicinal.core.checks import check_between
from vicinal.links.curve import Curve
from vicinal.links.numerics import exp_excess, score_inside, sigmoid_divergence, widen
from vicinal.links.ranges import Landmark


class CompositeSigmoid(Curve):
    r"""$H=\gamma\ln(1+e^{Q/\gamma})$, $h=q\,\sigma(Q/\gamma)$ for a scaling q with primitive Q.

    Args:
        scaling: q; a monotone one always gives a link, others may (:func:`vicinal.losses.check_scaling` tells).
        gamma: > 0, the temperature.

    >>> from vicinal.links import Constant, Sigmoid
    >>> z = torch.tensor([-1.0, 2.0])
    >>> torch.equal(CompositeSigmoid(Constant())(z), Sigmoid()(z))
    True
    """

    def __init__(self, scaling: Curve, gamma: float = 1.0) -> None:
        super().__init__()
        self.scaling = scaling
        self.gamma = check_between("gamma", gamma, 0, math.inf)
        self.is_monotone, self.is_invertible = scaling.is_monotone, scaling.is_monotone

    @property
    def domain(self) -> tuple[float, float]:
        """The scaling's."""
        return self.scaling.domain

    @property
    def closed(self) -> tuple[bool, bool]:
        """As the scaling's."""
        return self.scaling.closed

    @property
    def landmarks(self) -> tuple[Landmark, ...]:
        """The scaling's."""
        return self.scaling.landmarks

    def _logit(self, z: Tensor) -> Tensor:
        return self.scaling.primitive(z) / self.gamma

    def forward(self, z: Tensor) -> Tensor:
        """Value q sigma(Q / gamma)."""
        return self.scaling(z) * torch.sigmoid(self._logit(z))

    def primitive(self, z: Tensor) -> Tensor:
        """Primitive gamma ln(1 + e^(Q / gamma))."""
        return -self.gamma * nn.functional.logsigmoid(-self._logit(z))

    def slope(self, z: Tensor) -> Tensor:
        """Slope p (q' + (1 - p) q^2 / gamma)."""
        logit, q = self._logit(z), self.scaling(z)
        return torch.sigmoid(logit) * (self.scaling.slope(z) + torch.sigmoid(-logit) * q * q / self.gamma)

    def _divergence(self, a: Tensor, b: Tensor) -> Tensor:
        inner = self.scaling.divergence(a, b)
        logit_a, logit_b = self._logit(a), self._logit(b)
        step = (inner + (a - b) * self.scaling(b)) / self.gamma  # logit_a - logit_b without cancellation
        return self.gamma * sigmoid_divergence(step, logit_a, logit_b) + torch.sigmoid(logit_b) * inner

    def extra_repr(self) -> str:
        """Temperature, for ``repr``."""
        return f"gamma={self.gamma:g}"


def check_class_bias(class_bias: Sequence[float] | Tensor, scaling: Curve) -> Tensor:
    """``class_bias [K]`` in float64.

    Raises:
        ValueError: unless it is a row of finite numbers, and the scaling is monotone.
    """
    biases = as_tensor("class_bias", class_bias, torch.float64).detach().clone()
    if biases.ndim != 1 or not len(biases) or not bool(biases.isfinite().all()):
        raise ValueError(f"class_bias: expected finite numbers [K], one a class, got shape {list(biases.shape)}")
    if not scaling.is_monotone:
        raise ValueError(f"class_bias: expected a monotone scaling beside it, got {scaling!r}, which falls somewhere")
    return biases


class _Side(NamedTuple):
    """A block of scores under the softmax: the link q p ``[n, K]``, ln of the mass ``[n, 1]``."""

    link: Tensor
    log_mass: Tensor


class CompositeSoftmax(nn.Module):
    r"""$H=\gamma\ln(m+\sum_k e^{Q(z_k)/\gamma+b_k})$ with the link $h_k=q(z_k)\,p_k$, p the shares of that sum.

    Args:
        scaling: q, the same curve for all classes.
        gamma: > 0, the temperature.
        bias: m >= 0, the mass of an extra class "none of these" with a fixed score. 0: no such class.
        class_bias: b ``[K]``, such as the log frequencies of the classes; None: 0 for all. The paper (E.7) writes
            $b_k=\ln\rho_k/\gamma$. It needs a monotone scaling, with which H is convex for any b.

    Scores are ``[..., K]``; a boolean ``valid [..., K]`` leaves classes out (False), whose scores may be anything.

    >>> from vicinal.links import Constant
    >>> CompositeSoftmax(Constant())(torch.zeros(1, 4))
    tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """

    class_bias: Tensor | None

    def __init__(
        self,
        scaling: Curve,
        gamma: float = 1.0,
        bias: float = 0.0,
        class_bias: Sequence[float] | Tensor | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(scaling, Curve):
            raise TypeError(f"scaling: expected a curve of vicinal.links, got {type(scaling).__name__}")
        self.scaling = scaling
        self.gamma = check_between("gamma", gamma, 0, math.inf)
        self.bias = check_between("bias", bias, 0, math.inf, closed=True)
        self.register_buffer("class_bias", None if class_bias is None else check_class_bias(class_bias, scaling))

    @property
    def domain(self) -> tuple[float, float]:
        """The scaling's."""
        return self.scaling.domain

    @property
    def closed(self) -> tuple[bool, bool]:
        """As the scaling's."""
        return self.scaling.closed

    def logits(self, z: Tensor) -> Tensor:
        """Q / gamma + b, ``[..., K]``: logarithms of the masses of the classes."""
        return self._biased(self.scaling.primitive(z) / self.gamma)

    def _biased(self, logits: Tensor) -> Tensor:
        if self.class_bias is None:
            return logits
        if logits.shape[-1] != len(self.class_bias):
            raise ValueError(
                f"class_bias: expected one number for each of {logits.shape[-1]} classes, got {len(self.class_bias)}"
            )
        return logits + self.class_bias.to(logits)

    def tunable(self) -> list[Tensor]:
        """The tensors of the scaling that require grad."""
        return self.scaling.tunable()

    def _logits(self, z: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
        if valid is None:
            return self.logits(z), z
        z = torch.where(valid, z, score_inside(self.domain))
        logits = self.logits(z)
        return torch.where(valid, logits, -torch.inf), z

    def probabilities(self, z: Tensor, valid: Tensor | None = None) -> Tensor:
        """p, ``[..., K]``; rows sum to 1 (with a bias, to less). A row without valid classes is 0."""
        logits, _ = self._logits(widen(z), valid)
        if valid is not None:
            some = valid.any(-1, keepdim=True)
            logits = torch.where(some, logits, 0.0)
        p = logits.softmax(-1)  # [..., K]
        if self.bias:
            p = p * torch.sigmoid(logits.logsumexp(-1, keepdim=True) - math.log(self.bias))
        return p if valid is None else torch.where(valid, p, 0.0)

    def forward(self, z: Tensor, valid: Tensor | None = None) -> Tensor:
        """The link q p, ``[..., K]``; 0 for classes left out."""
        p = self.probabilities(z, valid)
        wide = widen(z)
        inside = wide if valid is None else torch.where(valid, wide, score_inside(self.domain))
        return (p * self.scaling(inside)).to(z.dtype)

    def rise(self, a: Tensor, b: Tensor, valid: Tensor | None = None) -> Tensor:
        """The link at ``a`` minus the link at ``b``, ``[..., K]``."""
        return self(a, valid) - self(b, valid)

    def primitive(self, z: Tensor, valid: Tensor | None = None) -> Tensor:
        """H, ``[...]``; 0 for a row without valid classes."""
        logits, _ = self._logits(widen(z), valid)
        if self.bias:
            logits = torch.cat([logits, torch.full_like(logits[..., :1], math.log(self.bias))], dim=-1)
        if valid is not None:
            logits = torch.where(valid.any(-1, keepdim=True), logits, -math.log(logits.shape[-1]))
        return (self.gamma * logits.logsumexp(-1)).to(z.dtype)

    def pair(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """``(divergence(a, b), h(a) - h(b))`` at once."""
        if a.dtype in (torch.float16, torch.bfloat16):
            return self.divergence(a, b), self.rise(a, b)
        difference = torch.empty_like(a, memory_format=torch.contiguous_format)
        flat = [each.reshape(-1, a.shape[-1]) for each in (a, b, difference)]
        return self.block(flat[0], flat[1], flat[2]).view(a.shape[:-1]), difference

    def curvature_times(self, z: Tensor, direction: Tensor, valid: Tensor | None = None) -> Tensor:
        """The Jacobian of the link at ``z`` times ``direction [..., K]``, without forming it."""
        p = self.probabilities(z, valid)
        wide = widen(z)
        inside, step = wide, widen(direction)
        if valid is not None:  # what is left out may be anything
            inside, step = torch.where(valid, wide, score_inside(self.domain)), torch.where(valid, step, 0.0)
        q = self.scaling(inside)
        turned = q * step  # [..., K]
        spread = turned - (p * turned).sum(-1, keepdim=True)
        return (p * (self.scaling.slope_times(inside, step) + q * spread / self.gamma)).to(z.dtype)

    def divergence(self, prediction: Tensor, target: Tensor, valid: Tensor | None = None) -> Tensor:
        r"""$\gamma\,\mathrm{KL}(p_s\|p_{\hat s})+\sum_k p_{s,k}D_Q(\hat s_k,s_k)$, ``[...]``; no term cancels another.

        It equals H(prediction) - H(target) - (prediction - target) . h(target). If the scaling is not monotone, the
        second sum may be negative, since H is then not convex in all scores jointly.
        """
        a, b = widen(prediction), widen(target)
        if valid is not None:
            inside = score_inside(self.domain)
            a, b = torch.where(valid, a, inside), torch.where(valid, b, inside)
        p = self.probabilities(b, valid)
        inner = self.scaling.divergence(a, b)  # [..., K]
        step = (inner + (a - b) * self.scaling(b)) / self.gamma  # logits of a - logits of b
        mean = (p * step).sum(-1, keepdim=True)
        rest = (1 - p.sum(-1, keepdim=True)).clamp(min=0) if self.bias else torch.zeros_like(mean)
        moved = step - mean
        huge = moved.detach().amax(-1) > 30
        excess = (p * exp_excess(moved.clamp(max=30))).sum(-1) + (rest * exp_excess((-mean).clamp(max=30)))[..., 0]
        near = torch.log1p(excess)
        if bool(huge.any()) or bool((-mean > 30).any()):
            far = ((self.primitive(a, valid) - self.primitive(b, valid)) / self.gamma - mean[..., 0]).clamp(min=0)
            near = torch.where(huge | (-mean[..., 0] > 30), far, near)
        return (self.gamma * near + (p * inner).sum(-1)).to(prediction.dtype)

    def _side(self, z: Tensor) -> _Side:
        q, primitive = self.scaling.both(z)
        logits = self._biased(primitive / self.gamma if self.gamma != 1 else primitive)
        p = logits.softmax(-1)
        log_mass = logits.amax(-1, keepdim=True) - p.amax(-1, keepdim=True).log_()  # [n, 1]
        if self.bias:
            beyond = log_mass - math.log(self.bias)
            p, log_mass = p.mul_(torch.sigmoid(beyond)), log_mass - nn.functional.logsigmoid(beyond)
        return _Side(p.mul_(q), log_mass)

    def block(self, a: Tensor, b: Tensor, difference: Tensor) -> Tensor:
        """Divergence of a block of rows ``[n, K]``, all valid; h(a) - h(b) goes into ``difference [n, K]``."""
        left, right = self._side(a), self._side(b)
        torch.sub(left.link, right.link, out=difference)
        lift = torch.linalg.vecdot(a, right.link) - torch.linalg.vecdot(b, right.link)
        rise = self.gamma * (left.log_mass - right.log_mass)[:, 0]
        size = self.gamma * (left.log_mass.abs() + right.log_mass.abs())[:, 0] + lift.abs()
        values: Tensor = rise - lift
        limit = 1e-2 if a.dtype == torch.float32 else 1e-4
        unsure = ~(values > limit * size)
        if bool(unsure.any()):
            values[unsure] = self.divergence(a[unsure], b[unsure])
        return values

    def extra_repr(self) -> str:
        """Temperature and biases, for ``repr``."""
        several = "" if self.class_bias is None else f", class_bias={self.class_bias.tolist()}"
        return f"gamma={self.gamma:g}" + (f", bias={self.bias:g}" if self.bias else "") + several
