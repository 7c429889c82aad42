"""The one autograd function behind every matching loss: the gradient is h(prediction) - h(target), exactly."""

from typing import Any, Protocol

import torch
from torch import Tensor

from vicinal.links import CompositeSoftmax, ConvexPotential, Curve

_ELEMENTS = 1 << 16  # a block that stays in the cache between the steps of a formula


class Potential(Protocol):
    """A convex H over scores, seen through what its matching loss needs."""

    def pair(self, a: Tensor, b: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
        """The divergence and h(a) - h(b); no gradient is asked of it."""

    def link(self, z: Tensor, valid: Tensor | None) -> Tensor:
        """h(z), differentiable."""

    def curvature_times(self, z: Tensor, direction: Tensor, valid: Tensor | None) -> Tensor:
        """The Jacobian of h at ``z`` times ``direction``, differentiable."""

    def divergence(self, a: Tensor, b: Tensor, valid: Tensor | None) -> Tensor:
        """The divergence, differentiable."""

    def spread(self, gradient: Tensor) -> Tensor:
        """A gradient of the divergence, shaped to multiply scores."""

    def tunable(self) -> list[Tensor]:
        """Tensors of the potential that require grad."""


class Elementwise:
    """The potential of a curve applied to each score apart."""

    def __init__(self, curve: Curve) -> None:
        self.curve = curve

    def pair(self, a: Tensor, b: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
        """Blockwise, so that no temporary is as large as the scores."""
        if a.numel() <= 2 * _ELEMENTS:
            return self.curve.pair(a, b)
        values, difference = (
            torch.empty_like(a, memory_format=torch.contiguous_format),
            torch.empty_like(a, memory_format=torch.contiguous_format),
        )
        flat = (a.reshape(-1), b.reshape(-1), values.view(-1), difference.view(-1))
        for left, right, value, rise in zip(*(torch.split(t, _ELEMENTS) for t in flat), strict=True):
            one, other = self.curve.pair(left, right)
            value.copy_(one)
            rise.copy_(other)
        return values, difference

    def link(self, z: Tensor, valid: Tensor | None) -> Tensor:
        """h(z)."""
        return self.curve(z)

    def curvature_times(self, z: Tensor, direction: Tensor, valid: Tensor | None) -> Tensor:
        """h'(z) times the direction."""
        return self.curve.slope(z) * direction

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
        """By blocks of rows where all classes are valid."""
        narrow = a.dtype in (torch.float16, torch.bfloat16)
        if valid is not None or narrow:
            rise = self.softmax(a, valid) - self.softmax(b, valid)
            return self.softmax.divergence(a, b, valid), rise
        classes = a.shape[-1]
        left, right = a.reshape(-1, classes), b.reshape(-1, classes)
        difference = torch.empty_like(left, memory_format=torch.contiguous_format)
        values = left.new_empty(len(left))
        rows = max(1, _ELEMENTS // max(classes, 1))
        for start in range(0, len(left), rows):
            part = slice(start, start + rows)
            values[part] = self.softmax.block(left[part], right[part], difference[part])
        return values.view(a.shape[:-1]), difference.view(a.shape)

    def link(self, z: Tensor, valid: Tensor | None) -> Tensor:
        """Q p."""
        result: Tensor = self.softmax(z, valid)
        return result

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
        with torch.no_grad():
            return self.potential.divergence(a, b), self.potential(a) - self.potential(b)

    def link(self, z: Tensor, valid: Tensor | None) -> Tensor:
        """The gradient of the network."""
        result: Tensor = self.potential(z)
        return result

    def curvature_times(self, z: Tensor, direction: Tensor, valid: Tensor | None) -> Tensor:
        """The Hessian of the network times the direction."""
        create = torch.is_grad_enabled()
        with torch.enable_grad():
            at = z if create and z.requires_grad else z.detach().requires_grad_()
            slope = (self.potential(at) * direction.detach() if not create else self.potential(at) * direction).sum()
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
            rise = potential.link(a, valid) - potential.link(b, valid) if again else difference
            grad_a = spread * rise
        if ctx.needs_input_grad[2]:
            grad_b = spread * potential.curvature_times(b, b - a, valid)
        own: tuple[Any, ...] = (None,) * len(ctx.tunable)
        if any(ctx.needs_input_grad[4:]):
            with torch.enable_grad():
                left, right = (a, b) if again else (a.detach(), b.detach())
                total = (potential.divergence(left, right, valid) * grads[0]).sum()
                own = torch.autograd.grad(total, ctx.tunable, create_graph=again, allow_unused=True)
        return None, grad_a, grad_b, None, *own


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
