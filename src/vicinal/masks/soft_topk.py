"""A smooth stand-in for the choice of the k highest scores."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from vicinal.core.checks import check_between, check_integer, check_scores

_STEPS = {torch.float32: 2, torch.float64: 3}
"""Newton's steps before the last one, which needs no further sum; they reach the last digits in all trials."""


class _LogSoftTopK(torch.autograd.Function):
    """Exact gradient of the log values: the shift depends on the scores so that the sum stays k."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, counted: Tensor, count: Tensor, alpha: float) -> Tensor:
        logits = alpha * (scores + soft_topk_shift(scores, counted, count, alpha))
        partial = (count > 0) & (count < counted.sum(-1, keepdim=True))  # else all or none are chosen
        ctx.alpha = alpha
        ctx.save_for_backward(logits, counted & partial)
        chosen = logsigmoid(logits).masked_fill(~partial, 0.0)
        return chosen.masked_fill(~counted | (count <= 0), -torch.inf)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None, None, None]:
        logits, counted = ctx.saved_tensors
        direct = torch.where(counted, ctx.alpha * torch.sigmoid(-logits) * torch.where(counted, slopes[0], 0.0), 0.0)
        return direct - soft_topk_share(logits, counted) * direct.sum(-1, keepdim=True), None, None, None


def soft_topk_share(logits: Tensor, counted: Tensor) -> Tensor:
    """Share of each column in a change of the shift, v / sum(v) for v = m (1 - m), ``[b, N]``; 0 where none counts."""
    far = logits.abs().masked_fill_(~counted, torch.inf)
    nearest = far.amin(-1, keepdim=True).clamp(max=torch.finfo(far.dtype).max)
    share = (nearest - far).exp_()  # v = e^-|x| sigmoid(|x|)^2, of the largest of the row; it never vanishes for all
    share *= far.sigmoid_().square_()
    return share.div_(share.sum(-1, keepdim=True).clamp_(min=0.1))


def _highest(ranked: Tensor, count: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The ``count [b, 1]`` highest of each row and their columns, ``[b, K]``, and which of them there are."""
    width = ranked.shape[1]
    most = width if torch.compiler.is_compiling() else max(1, min(width, int(count.max()) + 1))
    values, columns = ranked.topk(most, dim=-1)
    return values, columns, (torch.arange(most, device=ranked.device) < count) & (values > -torch.inf)


def _middle(values: Tensor, count: Tensor) -> Tensor:
    """Of sorted ``values [b, K]``, half way between the last that is chosen and the next, ``[b, 1]``."""
    last = (count.long() - 1).clamp(0, values.shape[1] - 1)
    above, below = values.gather(-1, last), values.gather(-1, (last + 1).clamp(max=values.shape[1] - 1))
    return torch.where(below > -torch.inf, above / 2 + below / 2, 0.0)


def soft_topk_shift(scores: Tensor, counted: Tensor, count: Tensor, alpha: float) -> Tensor:
    """Shift t ``[b, 1]`` with sum of sigmoid(alpha (s + t)) = count over the columns that count.

    What the others have above 0, A, must be what the highest columns lack of 1, B. Near a hard choice both are tiny,
    and the difference of the sum and the count would be lost in rounding. log A - log B has a slope between alpha / 2
    and 2 alpha at any shift, so Newton's steps are few. A gap wider than 60 / alpha is narrowed to that on both sides
    alike, which scales A and B by one number, to the 13th digit.
    """
    ranked = scores.masked_fill(~counted, -torch.inf)
    values, columns, there = _highest(ranked, count)
    middle = _middle(values, count)
    rest = ranked.sub_(middle).mul_(alpha)  # logits, <= 0 when those of the highest are out
    rest.scatter_(-1, columns, torch.where(there, -torch.inf, alpha * (values - middle)))
    top = torch.where(there, alpha * (middle - values), -torch.inf)  # likewise, of what is lacking
    widest = torch.finfo(scores.dtype).max
    narrow = (torch.maximum(rest.amax(-1, keepdim=True), top.amax(-1, keepdim=True)).clamp(min=-widest) + 30).clamp(
        max=0
    )
    rest, top = rest.sub_(narrow), top - narrow

    def gap(shift: Tensor) -> tuple[Tensor, Tensor]:
        excess, slope = torch.zeros_like(shift), torch.full_like(shift, 2.0)
        for logits, sign in ((rest, 1), (top, -1)):
            lack = (logits + sign * shift).sigmoid_()
            total = lack.sum(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).tiny)
            slope = slope - torch.linalg.vecdot(lack, lack)[:, None] / total
            excess = excess + sign * total.log()
        return excess, slope.clamp(min=0.5)

    shift = torch.zeros_like(middle)
    excess, slope = gap(shift)
    low, high = shift - 2 * excess.clamp(min=0), shift - 2 * excess.clamp(max=0)
    for _ in range(_STEPS[scores.dtype]):
        shift = torch.minimum(torch.maximum(shift - excess / slope, low), high)
        excess, slope = gap(shift)
        low, high = torch.where(excess < 0, shift, low), torch.where(excess > 0, shift, high)
    return (shift - excess / slope) / alpha - middle


def soft_topk_logs(scores: Tensor, counted: Tensor, count: Tensor, alpha: float) -> Tensor:
    """:func:`log_soft_topk` of checked input: finite scores ``[b, N]``, ``counted [b, N]``, ``count [b, 1]``.

    If as many columns are to be chosen as count, all of them are; if none, none is.
    """
    if scores.numel() == 0:
        return scores
    return _LogSoftTopK.apply(scores, counted, count.to(scores.dtype), alpha)  # type: ignore[no-untyped-call]


def log_soft_topk(scores: Tensor, k: int | Tensor, *, alpha: float = 2.0, weight: Tensor | None = None) -> Tensor:
    r"""$\log \sigma(\alpha (s_{ij} + t_i))$ with the shift $t_i$ for which the row's values sum to k.

    A smooth choice of the k highest scores: for $\alpha \to \infty$ it is 0 for them and $-\infty$ for the rest.
    Newton's method finds the shift, and its gradient is exact, so the gradient of a row sums to 0. It is not registered
    as a mask, since masks keep the nearest row whole, nor as a simplex map, since its rows sum to k.

    Args:
        scores: ``[b, N]``, higher = more alike; -inf leaves a column out.
        k: how many to choose, 0 < k < N, or one number per row ``[b]``; a row with at most k columns gets all.
        alpha: > 0, sharpness in units of 1 / score.
        weight: ``[b, N]``; 0 leaves a column out. None: all count.

    Returns:
        ``[b, N]``, <= 0; -inf where a column is left out.

    Raises:
        ValueError: for a number k that is not between 0 and N.

    >>> log_soft_topk(torch.zeros(1, 4), 2).exp()
    tensor([[0.5000, 0.5000, 0.5000, 0.5000]])
    """
    check_scores(scores, weight)
    check_between("alpha", alpha, 0, math.inf)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if isinstance(k, Tensor):
        if k.shape != (len(scores),) or k.is_floating_point():
            raise ValueError(
                f"k: expected a whole number or one for each of {len(scores)} rows, got {k.dtype} of shape "
                f"{tuple(k.shape)}"
            )
        count = k[:, None]
    else:
        if check_integer("k", k) >= scores.shape[1]:
            raise ValueError(f"k: expected less than the {scores.shape[1]} columns, got {k!r}")
        count = torch.full((len(scores), 1), k, device=scores.device)
    counted = scores > -torch.inf if weight is None else (weight > 0) & (scores > -torch.inf)
    return soft_topk_logs(torch.where(counted, scores, 0.0), counted, count, alpha)


def soft_topk(scores: Tensor, k: int | Tensor, *, alpha: float = 2.0, weight: Tensor | None = None) -> Tensor:
    r"""$\sigma(\alpha (s_{ij} + t_i))$, a smooth choice of k columns: values in [0, 1] that sum to k in each row.

    From "Dual-Encoders for Extreme Multi-Label Classification" (arXiv:2310.10636); see :func:`log_soft_topk` for the
    arguments. Divided by k its rows are weights that sum to 1, so ``lambda scores: soft_topk(scores, k) / k`` can serve
    as a simplex map.

    >>> soft_topk(torch.tensor([[3.0, 1.0, 2.0]]), 1, alpha=10.0).round(decimals=3)
    tensor([[0.9930, 0.0000, 0.0070]])
    """
    return log_soft_topk(scores, k, alpha=alpha, weight=weight).exp()
