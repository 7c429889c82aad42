"""Errors of numbers that are no links of a score: pseudo-Huber, the best of several guesses, images by structure."""

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from vicinal.core import check_choice, register
from vicinal.core.checks import check_between
from vicinal.losses.contract import check_reduction, check_scores_like, reduce
from vicinal.similarity import ms_ssim


@register(
    "loss",
    "pseudo_huber",
    "elementwise",
    "convex",
    family="errors",
    paper="arXiv:2310.14189",
    verified="values of public code, value and gradient in float64",
)
class PseudoHuberLoss(nn.Module):
    r"""Squared error near 0 and a distance far away, smooth throughout: $\sqrt{\|\hat y - y\|^2 + c^2} - c$.

    The slope is always below 1, so outliers pull no harder than others. Its gradient as a link, whose matching loss
    depends on where a score lies and not only on the error, is :class:`vicinal.links.PseudoHuberGrad`.

    Args:
        c: > 0, where it turns from a square to a distance; None: the paper's $0.00054 \sqrt d$ for rows of width d (1
            for single numbers), which suits data of standard deviation 1/2 and is close to the plain distance.
        per_element: take it of each number; else of the distance between rows ``[..., d]``.
        reduction: "mean", "sum", "none" or "mean_nonzero".

    >>> PseudoHuberLoss(4.0)(torch.tensor([3.0]), torch.tensor([0.0]))
    tensor(1.)
    """

    def __init__(self, c: float | None = None, *, per_element: bool = True, reduction: str = "mean") -> None:
        super().__init__()
        self.c = c if c is None else check_between("c", c, 0, math.inf)
        self.per_element, self.reduction = per_element, check_reduction(reduction)

    def forward(self, prediction: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """The loss of ``prediction`` and ``target`` of one shape; weight of the shape of the values, or one a row."""
        target = check_scores_like(prediction, target)
        width = prediction.shape[-1] if prediction.ndim > 1 else 1
        c = 0.00054 * math.sqrt(width) if self.c is None else self.c
        gap = (prediction - target).to(torch.promote_types(prediction.dtype, torch.float32))
        if not self.per_element:
            if gap.ndim < 2:
                raise ValueError(f"prediction: expected rows [..., d] for per_element=False, got {tuple(gap.shape)}")
            gap = torch.linalg.vector_norm(gap, dim=-1)
        root = torch.hypot(gap, gap.new_tensor(c))
        return reduce(gap * (gap / (root + c)), weight, None, self.reduction)


Steps = Literal["mean", "last"]


def guess_errors(guesses: Tensor, target: Tensor, *, at: Steps = "mean") -> Tensor:
    r"""$e_{ak} = \overline{\|\hat y_{akt} - y_{at}\|}$, the error of each of K guesses about each thing a.

    Args:
        guesses: ``[A, K, T, D]``.
        target: ``[A, T, D]``.
        at: the mean over the T steps, or the "last" alone.

    Returns:
        ``[A, K]``. Its minimum over k, averaged over a, is minADE ("mean") or minFDE ("last"); its mean over a,
        minimized over k, is the joint version.

    >>> guess_errors(torch.tensor([[[[3.0, 4.0]], [[0.0, 1.0]]]]), torch.zeros(1, 1, 2))
    tensor([[5., 1.]])
    """
    if guesses.ndim != 4 or not all(guesses.shape[1:3]) or guesses.shape[:1] + guesses.shape[2:] != target.shape:
        raise ValueError(
            f"guesses: expected [A, K, T, D] for a target [A, T, D], got {tuple(guesses.shape)} and "
            f"{tuple(target.shape)}"
        )
    wide = torch.promote_types(guesses.dtype, torch.float32)
    distance: Tensor = torch.linalg.vector_norm(guesses.to(wide) - target.to(wide)[:, None], dim=-1)  # [A, K, T]
    return distance[..., -1] if check_choice("at", at, get_args(Steps)) == "last" else distance.mean(-1)


@register(
    "loss",
    "best_of_k",
    "number-labels",
    family="errors",
    paper="arXiv:2305.06292",
    verified="values of the paper's code in float64; the weight of the two parts from memory",
)
def best_of_k(
    guesses: Tensor, target: Tensor, valid: Tensor | None = None, *, joint: float = 1.0, at: Steps = "mean"
) -> Tensor:
    r"""The best of K guesses about each thing, and the best of K guesses about all things together.

    $\overline{\min_k e_{ak}} + \lambda \min_k \overline{e_{ak}}$ with means over things a and :func:`guess_errors` e.

    The gradient reaches the best guesses only (the first of equal ones). So a model keeps several answers apart where a
    mean would blur them, and the second part favors answers that fit one another.

    Args:
        guesses: ``[A, K, T, D]``: K guesses for A things, such as the rows of a group, at T steps, of D numbers.
        target: ``[A, T, D]``.
        valid: boolean ``[A]``, which things exist; None: all.
        joint: $\lambda \ge 0$.
        at: as in :func:`guess_errors`.

    >>> best_of_k(torch.tensor([[[[0.0]], [[4.0]]], [[[4.0]], [[1.0]]]]), torch.zeros(2, 1, 1))
    tensor(2.5000)
    """
    check_between("joint", joint, 0, math.inf, closed=True)
    errors = guess_errors(guesses, target, at=at)
    if valid is not None:
        if valid.shape != target.shape[:1] or valid.dtype != torch.bool:
            raise ValueError(f"valid: expected booleans [{len(target)}], got {valid.dtype} {tuple(valid.shape)}")
        errors = errors[valid]
    if not len(errors):
        return errors.sum()
    each = errors.gather(1, errors.argmin(1, keepdim=True)).mean()
    together = errors.mean(0)
    return each + joint * together[together.argmin()]


@register(
    "loss",
    "ms_ssim",
    "number-labels",
    family="errors",
    paper="Wang et al., Asilomar 2003; arXiv:1511.06409",
    verified="pytorch-msssim 1.0.0, value and gradient",
)
def ms_ssim_loss(images: Tensor, others: Tensor, *, data_range: float = 1.0, reduction: str = "mean") -> Tensor:
    r"""What images lack in structure at five scales.

    $1 - \mathrm{MS\text{-}SSIM}$, see :func:`vicinal.similarity.ms_ssim`.

    Args:
        images: ``[n, C, H, W]``, sides of at least 161.
        others: likewise.
        data_range: > 0, the highest minus the lowest possible value.
        reduction: over images.

    >>> ms_ssim_loss(torch.ones(1, 1, 161, 161), torch.ones(1, 1, 161, 161))
    tensor(0.)
    """
    return reduce(1 - ms_ssim(images, others, data_range=data_range), None, None, check_reduction(reduction))
