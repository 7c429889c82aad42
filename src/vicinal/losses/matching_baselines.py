"""Relatives that are not selective matching losses, to compare with: weighted squares, composite cross-entropies."""

import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vicinal.core import check_choice, register
from vicinal.core.checks import check_between, check_number
from vicinal.links import CompositeSoftmax, Curve
from vicinal.links.numerics import score_inside
from vicinal.losses.contract import check_domain, check_reduction, check_scores_like, check_valid, reduce, spread_weight
from vicinal.losses.validity import PAPER, check_link, check_scaling

_loss = functools.partial(register, "loss", family="baselines of matching")


@_loss("reweighted_squares", "elementwise", "convex", paper=PAPER, verified="numpy in float64")
class ReweightedSquaredLoss(nn.Module):
    r"""$\tfrac12h'(s)(\hat s-s)^2$ (E.1): as sensitive as the matching loss close to the target, symmetric far from it.

    It does not care whether a wrong prediction lands in the sensitive region. Where the slope at the target is
    infinite, so is the loss of every prediction other than the target.

    Args:
        link: its slope is the weight.
        weigh_by: "observed": the slope at the target; "predicted": at the prediction, $\tfrac12h'(\hat s)(\hat s-s)^2$,
            whose gradient also has a term in h'': it is not convex, and a prediction can escape to where the link is
            flat; "both": by the product of the two, $\tfrac12h'(s)\,h'(\hat s)(\hat s-s)^2$, not convex either.
        reduction: see :class:`vicinal.losses.MatchingLoss`.

    >>> from vicinal.links import Identity
    >>> ReweightedSquaredLoss(Identity())(torch.tensor([3.0]), torch.tensor([1.0]))
    tensor(2.)
    """

    def __init__(self, link: Curve, *, weigh_by: str = "observed", reduction: str = "mean") -> None:
        super().__init__()
        self.link = check_link(link)
        self.weigh_by = check_choice("weigh_by", weigh_by, ("observed", "predicted", "both"))
        self.reduction = check_reduction(reduction)

    def forward(self, prediction: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """The loss of scores of one shape; weight of that shape or one for each row."""
        target = check_scores_like(prediction, target)
        for name, place in (("target", target), ("prediction", prediction)):
            if self.weigh_by != ("predicted" if name == "target" else "observed"):
                check_domain(name, place, self.link.domain, self.link.closed)
        if weight is not None:  # a pair that does not count may have an infinite loss
            inside = score_inside(self.link.domain)
            counts = spread_weight(weight, target.shape) != 0
            prediction, target = torch.where(counts, prediction, inside), torch.where(counts, target, inside)
        gap = prediction - target
        place = prediction if self.weigh_by == "predicted" else target
        values = self.link.slope_times(place, gap) * gap / 2  # 0 for a gap of 0 also where the slope is infinite
        if self.weigh_by == "both":
            values = self.link.slope_times(prediction, values)
        return reduce(values, weight, None, self.reduction)


@_loss("composite_sigmoid_ce", "elementwise", paper=PAPER, verified="numpy in float64")
class CompositeSigmoidCrossEntropy(nn.Module):
    r"""Cross-entropy of $\sigma(Q(\hat s)/\gamma+b)$ against $\sigma(Q(s)/\gamma+b)$ (E.3); not convex in general.

    Args:
        scaling: q, the derivative of Q.
        gamma: > 0, temperature.
        class_bias: b, the log-odds of the class where Q is 0; ln(rho) / gamma in the terms of E.7.
        reduction: see :class:`vicinal.losses.MatchingLoss`.

    >>> from vicinal.links import Constant
    >>> CompositeSigmoidCrossEntropy(Constant())(torch.tensor([0.0]), torch.tensor([5.0]))
    tensor(0.6931)
    """

    def __init__(self, scaling: Curve, gamma: float = 1.0, *, class_bias: float = 0.0, reduction: str = "mean") -> None:
        super().__init__()
        check_scaling(scaling, gamma)
        self.scaling, self.gamma = scaling, check_between("gamma", gamma, 0, math.inf)
        self.class_bias = check_number("class_bias", class_bias)
        self.reduction = check_reduction(reduction)

    def forward(self, prediction: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """The loss of scores of one shape; weight of that shape or one for each row."""
        target = check_scores_like(prediction, target)
        logits = self.scaling.primitive(prediction) / self.gamma + self.class_bias
        probability = torch.sigmoid(self.scaling.primitive(target) / self.gamma + self.class_bias)
        values = nn.functional.binary_cross_entropy_with_logits(logits, probability, reduction="none")
        return reduce(values, weight, None, self.reduction)


@_loss("composite_softmax_ce", "multi-class", paper=PAPER, verified="numpy in float64")
class CompositeSoftmaxCrossEntropy(nn.Module):
    r"""Cross-entropy of $\mathrm{softmax}(Q(\hat s)/\gamma)$ against $\mathrm{softmax}(Q(s)/\gamma)$ (E.5).

    It matches probabilities only, and cannot tell apart scores with the same probabilities. Not convex in general.

    Args:
        scaling: q, the derivative of Q.
        gamma: > 0, temperature.
        class_bias: one number per class, ``[K]``, added to $Q/\gamma$ of both predictions and targets; in E.7
            $\ln\rho_k/\gamma$.
        reduction: see :class:`vicinal.losses.MatchingLoss`; over rows.

    >>> from vicinal.links import Constant
    >>> CompositeSoftmaxCrossEntropy(Constant())(torch.zeros(1, 2), torch.zeros(1, 2))
    tensor(0.6931)
    """

    def __init__(
        self,
        scaling: Curve,
        gamma: float = 1.0,
        *,
        class_bias: Sequence[float] | Tensor | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        check_scaling(scaling, gamma, classes=True)
        self.link = CompositeSoftmax(scaling, gamma, class_bias=class_bias)
        self.reduction = check_reduction(reduction)

    def forward(
        self, prediction: Tensor, target: Tensor, weight: Tensor | None = None, valid: Tensor | None = None
    ) -> Tensor:
        """The loss of ``[..., K]`` scores; weight ``[...]``, valid ``[..., K]`` boolean."""
        target = check_scores_like(prediction, target, classes=True)
        check_valid(valid, prediction)
        filled = prediction if valid is None else torch.where(valid, prediction, 0.0)
        logits = self.link.logits(filled)
        if valid is not None:
            logits = torch.where(valid, logits, torch.finfo(logits.dtype).min / 4)
        values = -(self.link.probabilities(target, valid) * logits.log_softmax(-1)).sum(-1)
        return reduce(values, weight, None if valid is None else valid.any(-1), self.reduction)


@_loss("proximal_matching", "elementwise", paper="arXiv:2310.14344", verified="released code")
class ProximalMatchingLoss(nn.Module):
    r"""$1-e^{-|\hat s-s|^2/\sigma^2}$ over the last dimension: bounded, and for small sigma it seeks the mode.

    Args:
        sigma: > 0; halve it in stages, starting from a model trained on squared or absolute errors.
        reduction: over rows.

    >>> ProximalMatchingLoss(2.0)(torch.zeros(1, 4), torch.ones(1, 4))
    tensor(0.6321)
    """

    def __init__(self, sigma: float = 1.0, *, reduction: str = "mean") -> None:
        super().__init__()
        self.sigma = check_between("sigma", sigma, 0, math.inf)
        self.reduction = check_reduction(reduction)

    def forward(self, prediction: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """The loss of ``[..., d]`` scores; weight ``[...]``."""
        target = check_scores_like(prediction, target, classes=True)
        values = -torch.expm1(-((prediction - target) ** 2).sum(-1) / self.sigma**2)
        return reduce(values, weight, None, self.reduction)
