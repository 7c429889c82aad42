"""Logarithms of weighted sums of exponentials, one for each row."""

from typing import Any

import torch
from torch import Tensor

_OUT = 1e30
"""Subtracted from a logit that does not count, so that its exponential is 0 beside any that does."""


def hidden(weight: Tensor, *, masks: bool) -> Tensor:
    """What to add to logits: the log of the weight, and a hugely negative number where it is 0."""
    bias = (weight - 1 if masks else weight.sign().sub_(1)).mul_(_OUT)  # a comparison would take longer
    if not masks:
        bias += weight.clamp(min=1e-30).log_()  # of 0 it would be slow
    return bias


def log_sum(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log-sum-exp of rows ``[b]``, their softmax, and which rows are all :func:`hidden`: their sum is -inf."""
    share = logits.softmax(-1)
    total = logits.amax(-1) - share.amax(-1).log()
    nothing = total < -_OUT / 2
    return total.masked_fill(nothing, -torch.inf), share, nothing


class _LogSumExp(torch.autograd.Function):
    """Keeps one matrix, the softmax, for the backward pass."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, weight: Tensor | None, masks: bool) -> Tensor:  # noqa: FBT001
        total, share, nothing = log_sum(logits if weight is None else hidden(weight, masks=masks).add_(logits))
        ctx.save_for_backward(share, nothing)
        return total

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None, None]:
        share, nothing = ctx.saved_tensors
        return share * slopes[0].masked_fill(nothing, 0.0)[..., None], None, None


def log_sum_exp(logits: Tensor, weight: Tensor | None, *, masks: bool = False) -> Tensor:
    r"""$\log \sum_j w_j e^{x_j}$ over the last dimension; -inf, with gradient 0, where all weights are 0.

    ``weight`` None means 1; with ``masks`` weights must be 0 or 1. Logits must be finite, even where the weight is 0.
    """
    if logits.shape[-1] == 0:
        return logits.sum(-1) - torch.inf
    return _LogSumExp.apply(logits, weight, masks)  # type: ignore[no-untyped-call]


def softplus(x: Tensor) -> Tensor:
    """log(1 + e^x), accurate to the last digit even in float64."""
    return torch.nn.functional.softplus(x, threshold=40.0)
