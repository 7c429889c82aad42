"""Convex potentials over scores and the autograd functions of their divergence, with gradient h(a) - h(b) exactly."""

from typing import Any, Protocol

import torch
from torch import Tensor

from vicinal.links import CompositeSoftmax, ConvexPotential, Curve


class Potential(Protocol):
    """A convex H over scores with the link h, its gradient."""

    def pair(self, a: Tensor, b: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
        """The divergence and h(a) - h(b); no gradient is asked of it."""

    def rise(self, a: Tensor, b: Tensor, valid: Tensor | None) -> Tensor:
        """h(a) - h(b), differentiable."""

    def curvature_times(self, z: Tensor, direction: Tensor, valid: Tensor | None) -> Tensor:
        """The Jacobian of h at ``z`` times ``direction``, differentiable; 0 where the direction is, also at a pole."""

    def divergence(self, a: Tensor, b: Tensor, valid: Tensor | None) -> Tensor:
        """The divergence, differentiable."""

    def spread(self, gradient: Tensor) -> Tensor:
        """A gradient of the divergence, shaped to multiply scores."""

    def tunable(self) -> list[Tensor]:
        """Tensors of the potential that require grad."""


def block_size(scores: Tensor) -> int:
    """Scores of a block: on a CPU as many as stay in the caches of its cores between the steps of a formula."""
    return torch.get_num_threads() << 16 if scores.device.type == "cpu" else 1 << 26


class Elementwise:
    """The potential of a curve applied to each score apart."""

    def __init__(self, curve: Curve) -> None:
        self.curve = curve

    def pair(self, a: Tensor, b: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
        """The divergence and h(a) - h(b), elementwise; of many scores a block at a time."""
        if a.numel() <= (size := block_size(a)):
            return self.curve.pair(a, b)
        blocks = zip(*(each.reshape(-1).split(size) for each in (a, b)), strict=True)
        values, difference = zip(*(self.curve.pair(*block) for block in blocks), strict=True)
        return torch.cat(values).view(a.shape), torch.cat(difference).view(a.shape)

    def rise(self, a: Tensor, b: Tensor, valid: Tensor | None) -> Tensor:
        """Of the curve."""
        return self.curve.rise(a, b)

    def curvature_times(self, z: Tensor, direction: Tensor, valid: Tensor | None) -> Tensor:
        """The slope times the direction."""
        return self.curve.slope_times(z, direction)

    def divergence(self, a: Tensor, b: Tensor, valid: Tensor | None) -> Tensor:
        """Elementwise."""
        return self.curve.divergence(a, b)

    def spread(self, gradient: Tensor) -> Tensor:
        """As it is."""
        return gradient

    def tunable(self) -> list[Tensor]:
        """Of the curve."""
        return self.curve.tunable()


class Rows:
    """The potential of a composite softmax over each row of class scores."""

    def __init__(self, softmax: CompositeSoftmax) -> None:
        self.softmax = softmax

    def pair(self, a: Tensor, b: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
        """The divergence of each row and h(a) - h(b)."""
        if valid is not None or a.dtype in (torch.float16, torch.bfloat16):
            return self.softmax.divergence(a, b, valid), self.softmax.rise(a, b, valid)
        difference = torch.empty_like(a, memory_format=torch.contiguous_format)
        size = max(1, block_size(a) // a.shape[-1])
        blocks = zip(*(each.reshape(-1, a.shape[-1]).split(size) for each in (a, b, difference)), strict=True)
        return torch.cat([self.softmax.block(*block) for block in blocks]).view(a.shape[:-1]), difference

    def rise(self, a: Tensor, b: Tensor, valid: Tensor | None) -> Tensor:
        """Of the link q p."""
        return self.softmax.rise(a, b, valid)

    def curvature_times(self, z: Tensor, direction: Tensor, valid: Tensor | None) -> Tensor:
        """The Jacobian of q p times the direction."""
        return self.softmax.curvature_times(z, direction, valid)

    def divergence(self, a: Tensor, b: Tensor, valid: Tensor | None) -> Tensor:
        """One value a row."""
        return self.softmax.divergence(a, b, valid)

    def spread(self, gradient: Tensor) -> Tensor:
        """One more dimension."""
        return gradient[..., None]

    def tunable(self) -> list[Tensor]:
        """Of the scaling."""
        return self.softmax.tunable()


class Learned:
    """The potential that an input-convex network holds."""

    def __init__(self, potential: ConvexPotential) -> None:
        self.potential = potential

    def pair(self, a: Tensor, b: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
        """The divergence and the difference of gradients."""
        return self.potential.divergence(a, b), self.rise(a, b, valid)

    def rise(self, a: Tensor, b: Tensor, valid: Tensor | None) -> Tensor:
        """Of the gradient of the network."""
        rise: Tensor = self.potential(a) - self.potential(b)
        return rise

    def curvature_times(self, z: Tensor, direction: Tensor, valid: Tensor | None) -> Tensor:
        """The Hessian of the network times the direction."""
        create = torch.is_grad_enabled()
        with torch.enable_grad():
            at = z if create and z.requires_grad else z.detach().requires_grad_()
            slope = (self.potential(at) * (direction if create else direction.detach())).sum()
            result: Tensor = torch.autograd.grad(slope, at, create_graph=create)[0]
        return result

    def divergence(self, a: Tensor, b: Tensor, valid: Tensor | None) -> Tensor:
        """One value a row."""
        return self.potential.divergence(a, b)

    def spread(self, gradient: Tensor) -> Tensor:
        """One more dimension."""
        return gradient[..., None]

    def tunable(self) -> list[Tensor]:
        """The network's parameters."""
        return self.potential.tunable()


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
        of_parameters = _own_gradients(ctx, a, b, valid, grads[0])
        return None, grad_a, grad_b, None, *of_parameters


def _times(factor: Tensor, values: Tensor) -> Tensor:
    """Their product; 0 where the factor is 0, whatever the value: such a loss does not count."""
    return (factor * values).masked_fill_(factor == 0, 0.0)


def _own_gradients(ctx: Any, a: Tensor, b: Tensor, valid: Tensor | None, gradient: Tensor) -> tuple[Any, ...]:
    """Gradients of the potential's own parameters, through the differentiable divergence."""
    if not any(ctx.needs_input_grad[4:]):
        return (None,) * len(ctx.tunable)
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        left, right = (a, b) if again else (a.detach(), b.detach())
        total = (ctx.potential.divergence(left, right, valid) * gradient).sum()
        of_parameters: tuple[Any, ...] = torch.autograd.grad(total, ctx.tunable, create_graph=again, allow_unused=True)
    return of_parameters


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
