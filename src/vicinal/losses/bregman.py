"""The divergence of a link's convex potential as an autograd function, with gradient h(a) - h(b) exactly."""

from typing import Any

import torch
from torch import Tensor

from vicinal.links import CompositeSoftmax, ConvexPotential, Curve

Link = Curve | CompositeSoftmax | ConvexPotential
"""A gradient h of a convex function: of each score apart, or of each row of scores."""


def _pair(link: Link, a: Tensor, b: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
    """The divergence and h(a) - h(b); no gradient is asked of it.

    On a CPU as many scores at a time as stay in the caches of its cores between the steps of a formula.
    """
    if valid is not None and isinstance(link, CompositeSoftmax):
        return link.divergence(a, b, valid), link.rise(a, b, valid)
    size = torch.get_num_threads() << 16
    width = 1 if isinstance(link, Curve) else a.shape[-1]
    if a.numel() <= size or a.device.type != "cpu":
        return link.pair(a, b)
    rows = (each.reshape(-1) if width == 1 else each.reshape(-1, width) for each in (a, b))
    blocks = zip(*(torch.split(each, max(1, size // width)) for each in rows), strict=True)
    values, difference = (torch.cat(each) for each in zip(*(link.pair(*block) for block in blocks), strict=True))
    return values.view(a.shape if isinstance(link, Curve) else a.shape[:-1]), difference.view(a.shape)


class _Bregman(torch.autograd.Function):
    """Divergence with its exact gradients; differentiated again, it goes through the link's own operations."""

    @staticmethod
    def forward(ctx: Any, link: Link, a: Tensor, b: Tensor, valid: Tensor | None, *tunable: Tensor) -> Tensor:
        values, difference = _pair(link, a, b, valid)
        ctx.link, ctx.tunable, ctx.others = link, tunable, () if valid is None else (valid,)
        ctx.save_for_backward(a, b, difference if ctx.needs_input_grad[1] else None)
        return values

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        a, b, difference = ctx.saved_tensors
        link, others, again = ctx.link, ctx.others, torch.is_grad_enabled()
        spread = grads[0] if isinstance(link, Curve) else grads[0][..., None]
        grad_a = grad_b = None
        if ctx.needs_input_grad[1]:
            grad_a = _times(spread, link.rise(a, b, *others) if again else difference)
        if ctx.needs_input_grad[2]:
            turn = link.slope_times if isinstance(link, Curve) else link.curvature_times
            grad_b = _times(spread, turn(b, b - a, *others))
        of_parameters: tuple[Any, ...] = (None,) * len(ctx.tunable)
        if any(ctx.needs_input_grad[4:]):  # through the differentiable divergence
            with torch.enable_grad():
                left, right = (a, b) if again else (a.detach(), b.detach())
                total = (link.divergence(left, right, *others) * grads[0]).sum()
                of_parameters = torch.autograd.grad(total, ctx.tunable, create_graph=again, allow_unused=True)
        return None, grad_a, grad_b, None, *of_parameters


def _times(factor: Tensor, values: Tensor) -> Tensor:
    """Their product; 0 where the factor is 0, whatever the value: such a loss does not count."""
    return (factor * values).masked_fill_(factor == 0, 0.0)


def bregman(potential: Link, prediction: Tensor, target: Tensor, valid: Tensor | None = None) -> Tensor:
    """The divergence of a convex potential between two tensors of scores of one shape.

    Args:
        potential: whose link is of each score, or of rows.
        prediction: ``[...]`` or ``[..., K]``; its gradient is h(prediction) - h(target), to all digits of the link.
        target: the same shape; gets a gradient if it requires one.
        valid: boolean, False leaves a class of a :class:`CompositeSoftmax` out; None: all count.

    Returns:
        The shape of the scores for a curve, else ``[...]``. Differentiable twice.
    """
    return _Bregman.apply(potential, prediction, target, valid, *potential.tunable())  # type: ignore[no-untyped-call]
