"""Named losses over the same core, one for each common use: ranking, distillation, dwell time, preferences."""

import torch
from torch import Tensor, nn

from vicinal.core import register
from vicinal.core.checks import check_between
from vicinal.links import Curve, Exp, Sinh, SmeLUGrad
from vicinal.losses.bregman import bregman
from vicinal.losses.contract import check_domain, check_reduction, check_scores_like, check_valid, reduce
from vicinal.losses.matching import CompositeSoftmaxMatchingLoss, DecomposedMatchingLoss, MatchingLoss
from vicinal.losses.validity import PAPER, check_link

VERIFIED = "the plain matching loss"


@register("loss", "pointwise", "multi-class", "convex", family="presets of matching", paper=PAPER, verified=VERIFIED)
class PointwiseRankingLoss(DecomposedMatchingLoss):
    """Each item of a list against its own target score; when the score itself is read, not only the order.

    Called with scores and targets ``[b, N]`` and ``valid [b, N]`` for padded lists; the mean is over the items of a
    list, then over lists.

    Args:
        link: where errors matter; default: high scores, every unit e times as much as the one below, up to a score of 5
            and straight from there, so that one score of 20 does not rule a list.
        reduction: over lists.

    >>> PointwiseRankingLoss()(torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, 1.0]]))
    tensor(0.5000)
    """

    of_lists = True

    def __init__(self, link: Curve | None = None, *, reduction: str = "mean") -> None:
        super().__init__(Exp().cap(None, 5.0) if link is None else link, reduction=reduction)

    def forward(
        self, prediction: Tensor, target: Tensor, weight: Tensor | None = None, valid: Tensor | None = None
    ) -> Tensor:
        """The loss of lists ``[b, N]``; weight ``[b]``, valid ``[b, N]`` boolean."""
        target = check_scores_like(prediction, target, classes=True)
        values = MatchingLoss.forward(self, prediction, target, None, valid)  # [b, N]
        if valid is None:
            return reduce(values.mean(-1), weight, None, self.reduce_rows_by)
        count = valid.sum(-1).clamp(min=1)
        return reduce(values.sum(-1) / count, weight, valid.any(-1), self.reduce_rows_by)


@register("loss", "pairwise", "multi-class", "convex", family="presets of matching", paper=PAPER, verified=VERIFIED)
class PairwiseRankingLoss(nn.Module):
    """The matching loss on score differences within a list; when only differences count, not the level.

    The link is odd, so it does not matter which item of a pair is named first. A link of high norms (sinh) is
    sensitive to pairs far apart, one of low norms (tanh) to near ties.

    Args:
        link: odd around 0; default Sinh capped at a difference of 5.
        reduction: over lists; the pairs of a list are averaged.

    Raises:
        ValueError: for a link that is not odd around 0.

    >>> PairwiseRankingLoss()(torch.tensor([[3.0, 2.0]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.)
    """

    of_lists = True

    def __init__(self, link: Curve | None = None, *, reduction: str = "mean") -> None:
        super().__init__()
        self.link = check_odd(Sinh().cap(-5.0, 5.0) if link is None else link)
        self.reduction = check_reduction(reduction)

    def forward(
        self, prediction: Tensor, target: Tensor, weight: Tensor | None = None, valid: Tensor | None = None
    ) -> Tensor:
        """The loss of lists ``[b, N]``; weight ``[b]``, valid ``[b, N]`` boolean. Takes N^2 / 2 numbers a list."""
        target = check_scores_like(prediction, target, classes=True)
        check_valid(valid, prediction)
        first, second = torch.triu_indices(prediction.shape[-1], prediction.shape[-1], 1, device=prediction.device)
        if valid is not None:
            prediction, target = torch.where(valid, prediction, 0.0), torch.where(valid, target, 0.0)
        differences = [scores[..., first] - scores[..., second] for scores in (prediction, target)]
        for name, scores in zip(("prediction", "target"), differences, strict=True):
            check_domain(name, scores, self.link.domain, self.link.closed)
        values = bregman(self.link, *differences)  # [b, pairs]
        both = torch.ones_like(values, dtype=torch.bool) if valid is None else valid[..., first] & valid[..., second]
        count = both.sum(-1)
        per_list = torch.where(both, values, 0.0).sum(-1) / count.clamp(min=1)
        return reduce(per_list, weight, count > 0, self.reduction)


def check_odd(link: Curve) -> Curve:
    """Return ``link`` if it is monotone and odd around 0.

    Raises:
        ValueError: if it is not, with links that are.
    """
    check_link(link)
    if link.center != 0:
        raise ValueError(
            f"link: expected one that is odd around 0, so that the order of a pair does not matter, got {link!r}; "
            "use Identity, Tanh, Arctan, Arcsinh, SignedPower or Sinh with shift 0, or link + link.flip()"
        )
    return link


@register("loss", "listwise", "multi-class", "convex", family="presets of matching", paper=PAPER, verified=VERIFIED)
class ListwiseRankingLoss(CompositeSoftmaxMatchingLoss):
    """The composite softmax loss over the items of a list; when the top of the list matters most.

    Args:
        scaling: q; default Exp, sensitive to high scores among the competitors at the top, straight above a score of 5,
            so that one score of 20 does not rule a list: put scores on a scale on which 5 is high.
        gamma: > 0; smaller looks at fewer items at the top.
        reduction: over lists.

    >>> ListwiseRankingLoss()(torch.tensor([[2.0, 1.0]]), torch.tensor([[2.0, 1.0]]))
    tensor(0.)
    """

    of_lists = True

    def __init__(self, scaling: Curve | None = None, gamma: float = 1.0, *, reduction: str = "mean") -> None:
        super().__init__(Exp().cap(None, 5.0) if scaling is None else scaling, gamma, reduction=reduction)


@register("loss", "distillation", "multi-class", "convex", family="presets of matching", paper=PAPER, verified=VERIFIED)
class DistillationMatchingLoss(CompositeSoftmaxMatchingLoss):
    """A student's class scores against a teacher's, where the teacher's low scores are noise and are clipped.

    The scaling is the gradient of SmeLU (or a Step, that of ReLU), so all scores well below ``floor`` count as the
    same; above it the loss is that of a softmax. Called with the student's scores and the teacher's.

    Args:
        floor: the score below which the teacher is ignored.
        softness: half the width of the change; the SmeLU's c, in units of score.
        gamma: > 0, temperature.
        scaling: another curve instead, such as Exp() to stress the top classes.
        reduction: over rows.

    >>> loss = DistillationMatchingLoss(floor=0.0)
    >>> loss(torch.tensor([[3.0, -5.0]]), torch.tensor([[3.0, -9.0]]))
    tensor(0.)
    """

    def __init__(
        self,
        floor: float = 0.0,
        softness: float = 1.0,
        gamma: float = 1.0,
        *,
        scaling: Curve | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(SmeLUGrad(softness, shift=floor) if scaling is None else scaling, gamma, reduction=reduction)


@register("loss", "dwell_time", "elementwise", "convex", family="presets of matching", paper=PAPER, verified=VERIFIED)
class DwellTimeMatchingLoss(MatchingLoss):
    """For times spent, amounts or ratings where the high ones matter, with a cap so that outliers do not rule.

    The slope doubles with every ``doubling`` up the axis until ``cap``, and the link is straight beyond it.

    Args:
        doubling: > 0, how far up the axis an error becomes twice as costly.
        cap: the score above which all errors cost the same.
        low: the score below which all errors cost the same; None: no such limit.
        reduction: see :class:`MatchingLoss`.

    >>> loss = DwellTimeMatchingLoss(doubling=1.0, cap=3.0)
    >>> loss.link.slope(torch.tensor([0.0, 1.0, 3.0, 30.0]))
    tensor([1., 2., 8., 8.])
    """

    def __init__(
        self, doubling: float = 1.0, cap: float = 5.0, low: float | None = None, *, reduction: str = "mean"
    ) -> None:
        rate = 0.6931471805599453 / check_between("doubling", doubling, 0, float("inf"))
        super().__init__(Exp(rate, 0.0, 1 / rate).cap(low, cap), reduction=reduction)


@register("loss", "preference", "elementwise", "convex", family="presets of matching", paper=PAPER, verified=VERIFIED)
class PreferenceMatchingLoss(nn.Module):
    r"""Preference pairs for alignment: the implicit reward difference against a wanted one.

    The prediction is $\beta[(\ln\pi(w)-\ln\pi_0(w))-(\ln\pi(l)-\ln\pi_0(l))]$ for the chosen answer w and the rejected
    answer l; the target is how much better w is (a difference of rewards, or of ratings).

    Args:
        beta: > 0, the strength of the pull toward the reference model.
        link: odd around 0; default Sinh capped at 3: large differences count more, up to a point.
        reduction: see :class:`MatchingLoss`.

    >>> PreferenceMatchingLoss(beta=0.5)(torch.tensor([3.0]), torch.tensor([1.0]), torch.tensor([1.0]))
    tensor(0.)
    """

    needs = (
        "log ratios of chosen and of rejected answers, and wanted differences of rewards; rows of which one is "
        "preferred are queries of two, of grades 1 and 0, for the loss 'pairwise'"
    )
    """What it is called with in place of predictions and labels."""

    def __init__(self, beta: float = 0.1, link: Curve | None = None, *, reduction: str = "mean") -> None:
        super().__init__()
        self.beta = check_between("beta", beta, 0, float("inf"))
        self.link = check_odd(Sinh().cap(-3.0, 3.0) if link is None else link)
        self.reduction = check_reduction(reduction)

    def forward(self, chosen: Tensor, rejected: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """The loss.

        Args:
            chosen: ln pi(w) - ln pi_0(w), ``[b]``.
            rejected: ln pi(l) - ln pi_0(l), ``[b]``.
            target: the wanted difference of rewards, ``[b]``.
            weight: ``[b]``.
        """
        check_scores_like(chosen, rejected)
        difference = self.beta * (chosen - rejected)
        target = check_scores_like(difference, target)
        for name, scores in (("chosen", difference), ("target", target)):
            check_domain(name, scores, self.link.domain, self.link.closed)
        return reduce(bregman(self.link, difference, target), weight, None, self.reduction)
