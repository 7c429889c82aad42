"""Losses of ranked lists: the likelihood of the order that grades ask for, and the gain of smooth ranks."""

import math
from typing import get_args

import torch
from torch import Tensor, nn

from vicinal.core import check_choice, register
from vicinal.core.checks import check_between
from vicinal.losses.contract import check_reduction, check_scores_like, check_valid, reduce
from vicinal.ranks.plackett_luce import order_log_prob
from vicinal.ranks.sorting import Swap, soft_sort


class ListLoss(nn.Module):
    """A loss of each list of scores ``[b, N]`` with grades, reduced over lists; a list of one grade does not count."""

    of_lists = True

    def __init__(self, reduction: str) -> None:
        super().__init__()
        self.reduction = check_reduction(reduction)

    def forward(
        self, prediction: Tensor, target: Tensor, weight: Tensor | None = None, valid: Tensor | None = None
    ) -> Tensor:
        """The loss of lists.

        Args:
            prediction: scores ``[b, N]``, higher = better.
            target: grades ``[b, N]``.
            weight: >= 0, one for each list ``[b]``.
            valid: boolean ``[b, N]``, which items are there; None: all.
        """
        target = check_scores_like(prediction, target, classes=True)
        if prediction.ndim != 2:
            raise ValueError(f"prediction: expected lists [b, N], got shape {tuple(prediction.shape)}")
        check_valid(valid, prediction)
        valid = torch.ones_like(prediction, dtype=torch.bool) if valid is None else valid
        spoiled = (valid & (prediction.isnan() | target.isnan())).any(dim=1)
        prediction, target = (torch.where(valid & ~one.isnan(), one, 0.0) for one in (prediction, target))
        low = target.masked_fill(~valid, math.inf).amin(dim=1)
        apart = target.masked_fill(~valid, -math.inf).amax(dim=1) > low
        values = self.values(prediction, target, valid).masked_fill(spoiled, math.nan)
        return reduce(values, weight, apart | spoiled, self.reduction)

    def values(self, prediction: Tensor, target: Tensor, valid: Tensor) -> Tensor:
        """The loss of each list ``[b]``; what is not valid is 0."""
        raise NotImplementedError


@register(
    "loss",
    "plackett_luce",
    "multi-class",
    family="lists",
    paper="arXiv:2505.23751",
    verified="the distribution by its product in numpy, over all orders",
)
class PlackettLuceLoss(ListLoss):
    r"""How unlikely the order of the grades is if items are drawn one by one, by $e^{s}$ of those that are left.

    $-\frac 1 K \max_\pi \sum_{k \le K} \left( s_{\pi_k} - \log \sum_{j \ge k} e^{s_{\pi_j}} \right)$ over the orders
    $\pi$ of falling grades; K items are above the lowest grade of the list, whose order is left open. The likeliest of
    these orders has equal grades by falling score. See :func:`vicinal.ranks.order_log_prob`.

    Args:
        reduction: over lists, "mean", "sum", "none" or "mean_nonzero".

    >>> PlackettLuceLoss()(torch.zeros(1, 3), torch.tensor([[0.0, 1.0, 0.0]]))  # log 3
    tensor(1.0986)
    """

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__(reduction)

    def values(self, prediction: Tensor, target: Tensor, valid: Tensor) -> Tensor:
        """The mean over the K items of each list ``[b]``."""
        falling = prediction.detach().masked_fill(~valid, -math.inf).argsort(dim=1, descending=True)

        def order(first: Tensor) -> Tensor:
            return falling.gather(1, first.gather(1, falling).argsort(dim=1, descending=True, stable=True))

        low = target.masked_fill(~valid, math.inf).amin(dim=1, keepdim=True)
        lowest = valid & (target == low)
        whole = order_log_prob(prediction, order(target.masked_fill(~valid, -math.inf)), valid)
        rest = order_log_prob(prediction, order(lowest.to(target.dtype)), lowest)
        return (rest - whole) / (valid & ~lowest).sum(dim=1).clamp(min=1)


@register(
    "loss",
    "soft_ranks",
    "multi-class",
    family="lists",
    paper="arXiv:2310.07174",
    verified="numpy: nDCG by its definition where swaps are exact",
)
class SoftRankLoss(ListLoss):
    r"""1 - nDCG of a list, with the places that a sorting network with smooth gradients gives its items.

    $1 - \frac{\sum_i g_i \sum_r P_{ir} / \log_2(r + 1)}{\max_\pi \sum_r g_{\pi_r} / \log_2(r + 1)}$, $g = 2^{y} - 1$ of
    grades y less the lowest of the list; P says how much of item i stands at place r
    (:func:`vicinal.ranks.soft_sort`). Takes $N^2$ numbers a list.

    Args:
        steepness: > 0, of swaps: how far apart scores are clearly in order.
        swap: the form of a smooth swap, see :func:`vicinal.ranks.soft_sort`.
        reduction: over lists, "mean", "sum", "none" or "mean_nonzero".

    >>> SoftRankLoss()(torch.tensor([[2.0, 1.0, 3.0]]), torch.tensor([[1.0, 0.0, 2.0]]))
    tensor(0.)
    """

    def __init__(self, steepness: float = 10.0, swap: Swap = "cauchy", *, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.steepness = check_between("steepness", steepness, 0, math.inf)
        self.swap: Swap = check_choice("swap", swap, get_args(Swap))  # type: ignore[assignment]

    def values(self, prediction: Tensor, target: Tensor, valid: Tensor) -> Tensor:
        """1 - nDCG of each list ``[b]``."""
        least = prediction.masked_fill(~valid, math.inf).amin(dim=1, keepdim=True).detach()
        scores = torch.where(valid, prediction, torch.where(least.isfinite(), least, 0.0) - 1)  # behind all others
        sorted_ = soft_sort(scores, network="bitonic", swap=self.swap, steepness=self.steepness)
        places = torch.arange(
            scores.shape[1], 0, -1, device=scores.device, dtype=sorted_.values.dtype
        )  # of rising ones
        discount = 1 / (places + 1).log2()
        low = target.masked_fill(~valid, math.inf).amin(dim=1, keepdim=True)
        gain = torch.where(valid, torch.exp2(torch.where(valid, target - low, 0.0)) - 1, 0.0).to(discount.dtype)
        reached = torch.einsum("bi,bir,r->b", gain, sorted_.permutation, discount)
        best = gain.sort(dim=1).values @ discount
        return 1 - reached / torch.where(best > 0, best, 1.0)
