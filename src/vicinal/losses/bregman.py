"""The autograd functions behind every matching loss: the gradient is h(prediction) - h(target), exactly."""

from typing import Any

import torch
from torch import Tensor

from vicinal.links.numerics import widen
from vicinal.losses.checks import reduce, spread_weight
from vicinal.losses.potentials import Elementwise, Factor, Potential


class _Bregman(torch.autograd.Function):
    """Divergence with its exact gradients; differentiated again, it goes through the link's own operations."""

    @staticmethod
    def forward(ctx: Any, potential: Potential, a: Tensor, b: Tensor, valid: Tensor | None, *tunable: Tensor) -> Tensor:
        values, difference = potential.pair(a, b, valid)
        ctx.potential, ctx.valid, ctx.tunable = potential, valid, tunable
        ctx.save_for_backward(a, b, difference if ctx.needs_input_grad[1] else None)
        return values

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        potential: Potential = ctx.potential
        a, b, difference = ctx.saved_tensors
        valid, again = ctx.valid, torch.is_grad_enabled()
        spread = potential.spread(grads[0])
        grad_a = grad_b = None
        if ctx.needs_input_grad[1]:
            grad_a = _times(spread, potential.rise(a, b, valid) if again else difference)
        if ctx.needs_input_grad[2]:
            grad_b = _times(spread, potential.curvature_times(b, b - a, valid))
        own = _own_gradients(ctx, a, b, valid, grads[0])
        return None, grad_a, grad_b, None, *own


class _BregmanSum(torch.autograd.Function):
    """Sum of factor * divergence; what the gradient needs is made along with the value, block by block."""

    @staticmethod
    def forward(ctx: Any, potential: Potential, a: Tensor, b: Tensor, factor: Factor, *tunable: Tensor) -> Tensor:
        total, difference = potential.pair_sum(a, b, factor)
        ctx.potential, ctx.factor, ctx.tunable = potential, factor, tunable
        ctx.save_for_backward(a, b, difference if ctx.needs_input_grad[1] else None)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        potential: Potential = ctx.potential
        a, b, difference = ctx.saved_tensors
        gradient, factor, again = grads[0], ctx.factor, torch.is_grad_enabled()
        spread = gradient * (potential.spread(factor) if isinstance(factor, Tensor) else factor)
        grad_a = grad_b = None
        if ctx.needs_input_grad[1]:
            if again:
                grad_a = _times(spread, potential.rise(a, b, None))
            elif gradient.device.type == "cpu" and gradient.item() == 1:
                grad_a = difference  # saves a pass over the scores
            else:
                grad_a = gradient * difference
        if ctx.needs_input_grad[2]:
            grad_b = _times(spread, potential.curvature_times(b, b - a, None))
        own = _own_gradients(ctx, a, b, None, gradient * factor)
        return None, grad_a, grad_b, None, *own


def _times(factor: Factor, values: Tensor) -> Tensor:
    """Their product; 0 where the factor is 0, whatever the value: such a loss does not count."""
    product = factor * values
    return torch.where(factor == 0, 0.0, product) if isinstance(factor, Tensor) else product


def _own_gradients(ctx: Any, a: Tensor, b: Tensor, valid: Tensor | None, gradient: Tensor) -> tuple[Any, ...]:
    """Gradients of the potential's own parameters, through the differentiable divergence."""
    if not any(ctx.needs_input_grad[4:]):
        return (None,) * len(ctx.tunable)
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        left, right = (a, b) if again else (a.detach(), b.detach())
        total = (ctx.potential.divergence(left, right, valid) * gradient).sum()
        own: tuple[Any, ...] = torch.autograd.grad(total, ctx.tunable, create_graph=again, allow_unused=True)
    return own


def bregman(potential: Potential, prediction: Tensor, target: Tensor, valid: Tensor | None = None) -> Tensor:
    """The divergence of ``potential`` between two tensors of scores of one shape.

    Args:
        potential: elementwise or over rows.
        prediction: ``[...]`` or ``[..., K]``; its gradient is h(prediction) - h(target), to all digits of the link.
        target: the same shape; gets a gradient if it requires one.
        valid: boolean, False leaves a class out; None: all count.

    Returns:
        The shape of the scores for an elementwise potential, else ``[...]``. Differentiable twice.
    """
    value: Tensor = _Bregman.apply(  # type: ignore[no-untyped-call]
        potential, prediction, target, valid, *potential.tunable()
    )
    return value


def reduced_bregman(
    potential: Potential,
    prediction: Tensor,
    target: Tensor,
    *,
    weight: Tensor | None = None,
    valid: Tensor | None = None,
    active: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """:func:`bregman`, then :func:`vicinal.losses.checks.reduce`: in one pass over the scores where that can be.

    Args:
        potential: elementwise or over rows.
        prediction: see :func:`bregman`.
        target: see :func:`bregman`.
        weight: see :func:`vicinal.losses.checks.reduce`.
        valid: see :func:`bregman`.
        active: which losses count.
        reduction: "mean", "sum", "none" or "mean_nonzero".
    """
    learned_weight = weight is not None and weight.requires_grad
    if valid is not None or active is not None or reduction not in ("mean", "sum") or learned_weight:
        return reduce(bregman(potential, prediction, target, valid), weight, active, reduction)
    shape = prediction.shape if isinstance(potential, Elementwise) else prediction.shape[:-1]
    factor = _factor(weight, shape, prediction, reduction)
    value: Tensor = _BregmanSum.apply(  # type: ignore[no-untyped-call]
        potential, prediction, target, factor, *potential.tunable()
    )
    return value


def _factor(weight: Tensor | None, shape: torch.Size, scores: Tensor, reduction: str) -> Factor:
    """What each loss is multiplied by before all are summed."""
    if weight is None:
        return 1.0 / max(shape.numel(), 1) if reduction == "mean" else 1.0
    spread = spread_weight(weight, shape).to(widen(scores).dtype)
    if reduction == "sum":
        return spread
    total = spread.sum()
    return spread / torch.where(total > 0, total, 1.0)
