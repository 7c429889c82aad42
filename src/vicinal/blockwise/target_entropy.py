"""Softmax cross-entropy of rows with one related column each, after a change to its score."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Change = Callable[[Tensor], Tensor]


class _TargetEntropy(torch.autograd.Function):
    """Minus the log-softmax of each row of :func:`scaled_at` at its column; keeps one matrix."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, column: Tensor, scale: float, change: Change | None) -> Tensor:
        logits, rise = _scaled(scores, column, scale, change)
        logs = logits.log_softmax(-1)
        ctx.save_for_backward(logs, column, rise)
        ctx.scale = scale
        return -logs.gather(1, column)[:, 0]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None, None, None]:
        logs, column, rise = ctx.saved_tensors
        outer = slopes[0][:, None] * ctx.scale
        slope = logs.exp().mul_(outer).scatter_add_(1, column, -outer)
        return _risen(slope, column, rise), None, None, None


def _scaled(scores: Tensor, column: Tensor, scale: float, change: Change | None) -> tuple[Tensor, Tensor | None]:
    """A new matrix, and the slope of the change at the column of each row."""
    if change is None:
        return scores * scale, None
    with torch.enable_grad():
        target = scores.detach().gather(1, column).requires_grad_()
        changed = change(target)
        (rise,) = torch.autograd.grad(changed.sum(), target)
    return (scores * scale).scatter_(1, column, changed.detach() * scale), rise


def _risen(slope: Tensor, column: Tensor, rise: Tensor | None) -> Tensor:
    """In place."""
    return slope if rise is None else slope.scatter_(1, column, slope.gather(1, column).mul_(rise))


class _Scaled(torch.autograd.Function):
    """Scores times a scale, after a change of the one at the column of each row; keeps one number a row."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, column: Tensor, scale: float, change: Change) -> Tensor:
        logits, rise = _scaled(scores, column, scale, change)
        ctx.save_for_backward(column, rise)
        ctx.scale = scale
        return logits

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None, None, None]:
        column, rise = ctx.saved_tensors
        return _risen(slopes[0] * ctx.scale, column, rise), None, None, None


def scaled_at(scores: Tensor, column: Tensor, scale: float, change: Change) -> Tensor:
    """``scale * scores``, with ``change`` first made to the score at ``column [b, 1]`` of each row; ``[b, N]``.

    >>> scaled_at(torch.tensor([[1.0, 2.0]]), torch.tensor([[1]]), 10.0, lambda own: own - 0.5)
    tensor([[10., 15.]])
    """
    if torch.compiler.is_compiling():
        there = _there(scores, column)
        target = torch.where(there, scores, 0.0).sum(-1, keepdim=True)
        return scale * torch.where(there, change(target), scores)
    result: Tensor = _Scaled.apply(scores, column, scale, change)  # type: ignore[no-untyped-call]
    return result


def _there(matrix: Tensor, column: Tensor) -> Tensor:
    """Boolean, of the shape of the matrix: a compiled graph makes no such matrix of it, and indexes nothing."""
    return torch.arange(matrix.shape[1], device=matrix.device) == column


def target_entropy(scores: Tensor, column: Tensor, scale: float = 1.0, change: Change | None = None) -> Tensor:
    """Minus the log-softmax of each row of ``scale * scores`` at its column, after a ``change`` there, ``[b]``.

    >>> target_entropy(torch.zeros(1, 3), torch.tensor([[0]]))
    tensor([1.0986])
    """
    if torch.compiler.is_compiling():
        logits = scores * scale if change is None else scaled_at(scores, column, scale, change)
        return logits.logsumexp(-1) - torch.where(_there(logits, column), logits, 0.0).sum(-1)
    value: Tensor = _TargetEntropy.apply(scores, column, scale, change)  # type: ignore[no-untyped-call]
    return value


_LEAST = 1e-30
"""Least softmax share whose logarithm has kept its digits."""


class _ClassEntropy(torch.autograd.Function):
    """Cross-entropy of each row, with its slopes, which are recomputed for a second derivative."""

    @staticmethod
    def forward(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        shares = torch.softmax(logits, -1)
        share = shares.gather(1, target[:, None])[:, 0]
        values, low = -share.log(), share < _LEAST
        if bool(low.any()):
            values[low] = torch.nn.functional.cross_entropy(logits[low], target[low], reduction="none")
        return values, shares

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        ctx.save_for_backward(*inputs)
        ctx.shares = output[1]
        ctx.mark_non_differentiable(ctx.shares)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None]:
        (logits, target), shares, ctx.shares = ctx.saved_tensors, ctx.shares, None
        if torch.is_grad_enabled():
            values = torch.nn.functional.cross_entropy(logits, target, reduction="none")
            return torch.autograd.grad(values, logits, slopes[0], create_graph=True)[0], None
        shares = torch.softmax(logits, -1) if shares is None else shares  # they become the gradient, once
        outer = slopes[0][:, None]
        return shares.mul_(outer).scatter_add_(1, target[:, None], -outer), None


def class_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Minus the log-softmax of each row at its class, ``[b]``; one matrix is kept, which becomes the gradient.

    Args:
        logits: ``[b, K]``.
        target: classes ``[b]``.

    >>> class_entropy(torch.zeros(1, 3), torch.tensor([0]))
    tensor([1.0986])
    """
    if torch.compiler.is_compiling() or not logits.numel():
        return torch.nn.functional.cross_entropy(logits, target, reduction="none")
    value: Tensor = _ClassEntropy.apply(logits, target)[0]  # type: ignore[no-untyped-call]
    return value
