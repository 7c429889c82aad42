"""Matching losses of single scores: convex losses whose sensitivity along the score axis is that of a link."""

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

from vicinal.core import register
from vicinal.links import CompositeSigmoid, Curve
from vicinal.links.numerics import score_inside
from vicinal.losses.bregman import reduced_bregman
from vicinal.losses.checks import check_domain, check_reduction, check_scores_like, check_valid, reduce
from vicinal.losses.potentials import Elementwise
from vicinal.losses.validity import Domain, check_link, check_scaling, limits, scaling_of_transform

PAPER = "Selective Matching Losses, arXiv:2506.04446"
GOLDEN = "mpmath, 40 digits"


@register("loss", "matching", "elementwise", "convex", family="matching", paper=PAPER, verified=GOLDEN)
class MatchingLoss(nn.Module):
    r"""$H(\hat s)-H(s)-(\hat s-s)\,h(s)$ for each score, where H is the primitive of the link h.

    It is convex in the prediction, 0 only where the prediction has the target's link value, and its gradient is
    h(prediction) - h(target) exactly. A small error d costs h'(target) d^2 / 2: choose a link that is steep where
    being right matters.

    Args:
        link: a monotone curve of :mod:`vicinal.links`.
        reduction: "mean", "sum", "none" or "mean_nonzero".
        domain: scores that the loss will see, if fewer than the link's own domain.

    Raises:
        TypeError: if ``link`` is not a curve.
        ValueError: if it falls somewhere on the domain.

    >>> from vicinal.links import Exp
    >>> prediction = torch.tensor([0.0, 2.0], requires_grad=True)
    >>> loss = MatchingLoss(Exp(), reduction="sum")(prediction, torch.tensor([2.0, 0.0]))
    >>> loss.backward()
    >>> loss.detach(), prediction.grad  # 8.39 for the first, which should be high and is low; 4.39 for the second
    (tensor(12.7781), tensor([-6.3891,  6.3891]))
    """

    def __init__(self, link: Curve, *, reduction: str = "mean", domain: Domain | None = None) -> None:
        super().__init__()
        self.link = check_link(link, domain)
        self.domain = domain
        self.reduction = check_reduction(reduction)

    def forward(
        self, prediction: Tensor, target: Tensor, weight: Tensor | None = None, valid: Tensor | None = None
    ) -> Tensor:
        """The loss.

        Args:
            prediction: scores of any shape.
            target: scores of the same shape.
            weight: >= 0, of that shape or one for each row.
            valid: boolean, of that shape; False leaves a score out.

        Raises:
            TypeError: for tensors that are not floating.
            ValueError: for shapes that differ, or a score outside the link's domain (named).
        """
        target = check_scores_like(prediction, target)
        check_valid(valid, prediction)
        domain, closed = limits(self.link, self.domain)
        for name, scores in (("prediction", prediction), ("target", target)):
            check_domain(name, scores, domain, closed, valid)
        if valid is not None:  # what is left out may be anything, also outside the domain
            inside = score_inside(domain)
            prediction, target = torch.where(valid, prediction, inside), torch.where(valid, target, inside)
        return reduced_bregman(
            Elementwise(self.link), prediction, target, weight=weight, active=valid, reduction=self.reduction
        )


@register("loss", "composite_sigmoid", "elementwise", "convex", family="matching", paper=PAPER, verified=GOLDEN)
class CompositeSigmoidMatchingLoss(MatchingLoss):
    r"""Matching loss of $h=q\,\sigma(Q/\gamma)$: selective, for two classes, whose score is that of one of them.

    Args:
        scaling: the curve q, monotone or with condition (G.2).
        gamma: > 0, temperature.
        reduction: see :class:`MatchingLoss`.
        domain: scores that the loss will see; the condition is checked on it.

    >>> from vicinal.links import Constant
    >>> CompositeSigmoidMatchingLoss(Constant())(torch.tensor([0.0]), torch.tensor([1.0]))
    tensor(0.1109)
    """

    def __init__(
        self, scaling: Curve, gamma: float = 1.0, *, reduction: str = "mean", domain: Domain | None = None
    ) -> None:
        check_scaling(scaling, gamma, domain=domain)
        link = CompositeSigmoid(scaling, gamma)
        link.is_monotone = True
        super().__init__(link, reduction=reduction, domain=domain)

    @classmethod
    def from_transform(
        cls,
        transform: str | Callable[[Tensor], Tensor],
        gamma: float = 1.0,
        *,
        reduction: str = "mean",
        domain: Domain | None = None,
    ) -> Self:
        """The loss of a score transform f = e^Q, by name or as a function: see :func:`scaling_of_transform`."""
        scaling = scaling_of_transform(transform, gamma, domain=domain, classes=False)
        return cls(scaling, gamma, reduction=reduction, domain=domain)


@register("loss", "decomposed", "multi-class", "convex", family="matching", paper=PAPER, verified=GOLDEN)
class DecomposedMatchingLoss(MatchingLoss):
    """The scalar matching loss summed over the classes of a row: the only way to sensitivity at low norms there.

    Args:
        link: a monotone curve.
        reduction: see :class:`MatchingLoss`; over rows.
        domain: scores that the loss will see.

    >>> from vicinal.links import Tanh
    >>> DecomposedMatchingLoss(Tanh())(torch.zeros(1, 3), torch.ones(1, 3))
    tensor(0.9834)
    """

    def __init__(self, link: Curve, *, reduction: str = "mean", domain: Domain | None = None) -> None:
        super().__init__(link, reduction="none", domain=domain)
        self.reduce_rows_by = check_reduction(reduction)

    def forward(
        self, prediction: Tensor, target: Tensor, weight: Tensor | None = None, valid: Tensor | None = None
    ) -> Tensor:
        """The loss of ``prediction`` and ``target`` ``[..., K]``; weight ``[...]``, valid ``[..., K]`` boolean."""
        check_scores_like(prediction, target, classes=True)
        values = super().forward(prediction, target, None, valid).sum(-1)
        return reduce(values, weight, None if valid is None else valid.any(-1), self.reduce_rows_by)
