"""Matching losses of all classes of a row at once, whose sensitivity depends on the rank of a class too."""

from collections.abc import Callable
from typing import Self

from torch import Tensor, nn

from vicinal.core import check_between, register
from vicinal.links import CompositeSoftmax, Constant, ConvexPotential, Curve
from vicinal.losses.bregman import reduced_bregman
from vicinal.losses.checks import check_domain, check_reduction, check_scores_like, check_valid
from vicinal.losses.matching import GOLDEN, PAPER
from vicinal.losses.potentials import Learned, Rows
from vicinal.losses.validity import Domain, Verdict, check_scaling, limits, scaling_of_transform


@register("loss", "composite_softmax", "multi-class", "convex", family="matching", paper=PAPER, verified=GOLDEN)
class CompositeSoftmaxMatchingLoss(nn.Module):
    r"""Matching loss of $h_k=q(z_k)\,p_k$, $p=\mathrm{softmax}(Q/\gamma)$: selective by score and by rank of the class.

    Args:
        scaling: the curve q, monotone or with condition (G.2).
        gamma: > 0, temperature.
        bias: mass of a class "none of these", >= 0.
        reduction: see :class:`MatchingLoss`; over rows.
        domain: scores that the loss will see; the condition is checked on it.

    Attributes:
        verdict: whether it is convex in all scores "jointly" (always so for a monotone scaling) or in "each", as far
            as :class:`Verdict` says.

    >>> import torch
    >>> from vicinal.links import Sinh
    >>> loss = CompositeSoftmaxMatchingLoss(Sinh())
    >>> loss(torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([[2.0, 1.0, -1.0]]))
    tensor(0.0668)
    """

    def __init__(
        self,
        scaling: Curve,
        gamma: float = 1.0,
        *,
        bias: float = 0.0,
        reduction: str = "mean",
        domain: Domain | None = None,
    ) -> None:
        super().__init__()
        self.verdict: Verdict = check_scaling(scaling, gamma, domain=domain, classes=True)
        self.link = CompositeSoftmax(scaling, gamma, bias)
        self.domain = domain
        self.reduction = check_reduction(reduction)

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
        scaling = scaling_of_transform(transform, gamma, domain=domain, classes=True)
        return cls(scaling, gamma, reduction=reduction, domain=domain)

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
        return reduced_bregman(
            Rows(self.link), prediction, target, weight=weight, valid=valid, active=active, reduction=self.reduction
        )


@register(
    "loss",
    "softmax",
    "multi-class",
    "convex",
    family="matching",
    paper=PAPER,
    verified="the composite loss of a constant scaling",
)
class SoftmaxMatchingLoss(CompositeSoftmaxMatchingLoss):
    r"""Matching loss of the plain softmax $h_k=p_k\propto e^{a(z_k-c)/\gamma}$: KL divergence of class probabilities.

    $H=\frac{\gamma}{a}\ln(\beta+\sum_k e^{a(z_k-c)/\gamma})$. With one class, bias 1 and gamma 1 it is the matching
    loss of ``Sigmoid(scale, shift)``. Without a bias a shift of all classes changes nothing.

    Args:
        scale: a > 0.
        shift: c, a number.
        gamma: > 0, temperature; only a / gamma and c matter for the probabilities.
        bias: beta >= 0, mass of a class "none of these".
        reduction: see :class:`MatchingLoss`; over rows.

    >>> import torch
    >>> SoftmaxMatchingLoss()(torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.1109)
    """

    def __init__(
        self,
        scale: float = 1.0,
        shift: float = 0.0,
        gamma: float = 1.0,
        bias: float = 0.0,
        *,
        reduction: str = "mean",
    ) -> None:
        check_between("gamma", gamma, 0, float("inf"))
        check_between("scale", scale, 0, float("inf"))
        super().__init__(Constant(shift=shift), gamma / scale, bias=bias, reduction=reduction)


@register(
    "loss",
    "potential",
    "multi-class",
    "convex",
    "learned",
    family="matching",
    paper="arXiv:2310.14344",
    verified="its released code",
)
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
        return reduced_bregman(Learned(self.potential), prediction, target, weight=weight, reduction=self.reduction)
