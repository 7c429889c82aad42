"""Matching losses: convex losses of scores whose sensitivity along the score axis is that of a link."""

import functools
from collections.abc import Callable, Sequence
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from vicinal.core import as_tensor, register
from vicinal.core.checks import check_between
from vicinal.links import CompositeSigmoid, CompositeSoftmax, Constant, ConvexPotential, Curve
from vicinal.links.numerics import score_inside
from vicinal.losses.bregman import bregman
from vicinal.losses.contract import check_domain, check_reduction, check_scores_like, check_valid, reduce
from vicinal.losses.validity import PAPER, Domain, Verdict, check_link, check_scaling, limits, scaling_of_transform

GOLDEN = "mpmath, 40 digits"


class _OfTransform:
    """A loss of a scaling that can also be made of the transform of scores that the scaling is the slope of."""

    of_classes: ClassVar[bool] = False

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
        scaling = scaling_of_transform(transform, gamma, domain=domain, classes=cls.of_classes)
        return cls(scaling, gamma, reduction=reduction, domain=domain)  # type: ignore[call-arg]


_loss = functools.partial(register, "loss", family="matching")


@_loss("matching", "elementwise", "convex", paper=PAPER, verified=GOLDEN)
class MatchingLoss(nn.Module):
    r"""$H(\hat s)-H(s)-(\hat s-s)\,h(s)$ for each score, where H is the primitive of the link h.

    It is convex in the prediction, 0 only where the link has the same value at prediction and target, and its gradient
    is exactly h(prediction) - h(target). A small error d costs h'(target) d^2 / 2: choose a link that is steep where
    being right matters.

    Args:
        link: a monotone curve of :mod:`vicinal.links`.
        reduction: "mean", "sum", "none" or "mean_nonzero".
        domain: the range of scores that the loss will see, if narrower than the link's own domain.

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
        return reduce(bregman(self.link, prediction, target), weight, valid, self.reduction)


@_loss("composite_sigmoid", "elementwise", "convex", paper=PAPER, verified=GOLDEN)
class CompositeSigmoidMatchingLoss(_OfTransform, MatchingLoss):
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


@_loss("decomposed", "multi-class", "convex", paper=PAPER, verified=GOLDEN)
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


@_loss("composite_softmax", "multi-class", "convex", paper=PAPER, verified=GOLDEN)
class CompositeSoftmaxMatchingLoss(_OfTransform, nn.Module):
    r"""Matching loss of $h_k=q(z_k)\,p_k$, $p=\mathrm{softmax}(Q/\gamma)$: selective by score and by rank of the class.

    Args:
        scaling: the curve q, monotone or with condition (G.2).
        gamma: > 0, temperature.
        bias: mass of a class "none of these", >= 0.
        class_bias: one number per class, ``[K]``, added to $Q/\gamma$, such as $\ln\rho_k/\gamma$ (E.7); for
            monotone scalings.
        reduction: see :class:`MatchingLoss`; over rows.
        domain: scores that the loss will see; the condition is checked on it.

    Attributes:
        verdict: a :class:`Verdict`: whether the loss is convex in all scores "jointly" (always so for a monotone
            scaling) or in "each" score only.

    >>> import torch
    >>> from vicinal.links import Sinh
    >>> loss = CompositeSoftmaxMatchingLoss(Sinh())
    >>> loss(torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([[2.0, 1.0, -1.0]]))
    tensor(0.0668)
    """

    of_classes = True

    def __init__(
        self,
        scaling: Curve,
        gamma: float = 1.0,
        *,
        bias: float = 0.0,
        class_bias: Sequence[float] | Tensor | None = None,
        reduction: str = "mean",
        domain: Domain | None = None,
    ) -> None:
        super().__init__()
        self.verdict: Verdict = check_scaling(scaling, gamma, domain=domain, classes=True)
        self.link = CompositeSoftmax(scaling, gamma, bias, class_bias)
        self.domain = domain
        self.reduction = check_reduction(reduction)

    def forward(
        self, prediction: Tensor, target: Tensor, weight: Tensor | None = None, valid: Tensor | None = None
    ) -> Tensor:
        """The loss.

        Args:
            prediction: scores ``[..., K]``.
            target: scores ``[..., K]``.
            weight: >= 0, one for each row, ``[...]``.
            valid: boolean ``[..., K]``; False leaves a class out (padded lists). A row without valid classes does
                not count.

        Raises:
            TypeError: for tensors that are not floating.
            ValueError: for shapes that differ, or a score outside the scaling's domain (named).
        """
        target = check_scores_like(prediction, target, classes=True)
        check_valid(valid, prediction)
        domain, closed = limits(self.link, self.domain)
        for name, scores in (("prediction", prediction), ("target", target)):
            check_domain(name, scores, domain, closed, valid)
        active = None if valid is None else valid.any(-1)
        return reduce(bregman(self.link, prediction, target, valid), weight, active, self.reduction)


@_loss("softmax", "multi-class", "convex", paper=PAPER, verified="the composite loss of a constant scaling")
class SoftmaxMatchingLoss(CompositeSoftmaxMatchingLoss):
    r"""Matching loss of the plain softmax $h_k=\alpha p_k$ (E.7 to E.9): $\gamma$ KL of class probabilities.

    $p_k\propto\rho_k^{1/\gamma}e^{\alpha(z_k-\beta)/\gamma}$ and
    $H=\gamma\ln(m+\sum_k\rho_k^{1/\gamma}e^{\alpha(z_k-\beta)/\gamma})$. Its gradient $\alpha(p_k(\hat s)-p_k(s))$ is
    that of cross-entropy: it tells regions of scores apart, and not scores inside of one. Without m, shifting the
    scores of all classes changes nothing, nor does $\beta$. With one class, m = 1 and $\gamma$ = 1 it is $\alpha$
    times the matching loss of ``Sigmoid(alpha, beta)``.

    Args:
        alpha: > 0, scale of the scores.
        beta: their shift, a number.
        gamma: > 0, temperature: a larger one is softer.
        bias: m >= 0, mass of a class "none of these".
        rho: $\rho_k$ > 0, one number per class ``[K]``, to favor some over others; None: 1 for all.
        reduction: see :class:`MatchingLoss`; over rows.

    >>> import torch
    >>> SoftmaxMatchingLoss()(torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.1109)
    """

    def __init__(
        self,
        alpha: float = 1.0,
        beta: float = 0.0,
        gamma: float = 1.0,
        bias: float = 0.0,
        *,
        rho: Sequence[float] | Tensor | None = None,
        reduction: str = "mean",
    ) -> None:
        scaling = Constant(check_between("alpha", alpha, 0, float("inf")), beta)
        super().__init__(scaling, gamma, bias=bias, class_bias=_log_shares(rho, gamma), reduction=reduction)


def _log_shares(rho: Sequence[float] | Tensor | None, gamma: float) -> Tensor | None:
    """The logarithm of rho over gamma, which is added to the logits."""
    if rho is None:
        return None
    shares = as_tensor("rho", rho, torch.float64)
    if shares.ndim != 1 or not bool(((shares > 0) & shares.isfinite()).all()):
        raise ValueError(f"rho: expected finite numbers above 0, one a class, got shape {list(shares.shape)}")
    return shares.log() / gamma


@_loss("potential", "multi-class", "convex", "learned", paper="arXiv:2310.14344", verified="its released code")
class PotentialMatchingLoss(nn.Module):
    """The Bregman divergence of a learned convex potential of several scores at once.

    Args:
        potential: an input-convex network; its parameters may be trained or fixed.
        reduction: see :class:`MatchingLoss`; over rows.

    >>> import torch
    >>> loss = PotentialMatchingLoss(ConvexPotential(3, strength=1.0))
    >>> loss(torch.ones(2, 3), torch.ones(2, 3)).item()
    0.0
    """

    def __init__(self, potential: ConvexPotential, *, reduction: str = "mean") -> None:
        super().__init__()
        if not isinstance(potential, ConvexPotential):
            raise TypeError(f"potential: expected a ConvexPotential, got {type(potential).__name__}")
        self.potential = potential
        self.reduction = check_reduction(reduction)

    def forward(self, prediction: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """The loss of ``prediction`` and ``target`` ``[..., d]``; weight ``[...]``."""
        target = check_scores_like(prediction, target, classes=True)
        return reduce(bregman(self.potential, prediction, target), weight, None, self.reduction)
