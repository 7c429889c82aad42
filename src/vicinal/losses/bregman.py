"""Convex potentials over scores and the autograd functions of their divergence, with gradient h(a) - h(b) exactly."""

from collections.abc import Iterator
from itertools import repeat
from typing import Any, Protocol

import torch
from torch import Tensor

from vicinal.links import CompositeSoftmax, ConvexPotential, Curve
from vicinal.links.numerics import widen
from vicinal.losses.contract import reduce, spread_weight

Factor = float | Tensor


class Potential(Protocol):
    """A convex H over scores with the link h, its gradient."""

    def pair(self, a: Tensor, b: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
        """The divergence and h(a) - h(b); no gradient is asked of it."""

    def pair_sum(self, a: Tensor, b: Tensor, factor: Factor) -> tuple[Tensor, Tensor]:
        """The sum of factor * divergence and factor * (h(a) - h(b)); no gradient is asked of it."""

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


def weigh(values: Tensor, rise: Tensor, out: Tensor, factor: Factor, row_factor: Factor | None = None) -> Tensor:
    """Writes factor * rise into ``out`` and returns the sum of factor * values in float64; 0 times infinity is 0."""
    if isinstance(factor, float) and factor == 1:
        if out is not rise:
            out.copy_(rise)
        return values.sum(dtype=torch.float64)
    factors = factor if row_factor is None else row_factor
    torch.mul(rise, factors, out=out)
    if isinstance(factor, Tensor) and isinstance(factors, Tensor):
        out.masked_fill_(factors == 0, 0.0)
        return (values * factor).masked_fill_(factor == 0, 0.0).sum(dtype=torch.float64)
    return factor * values.sum(dtype=torch.float64)


def sum_up(totals: list[Tensor], like: Tensor) -> Tensor:
    """The sum of block totals in the dtype of the scores."""
    return torch.stack(totals).sum().to(like.dtype) if totals else like.new_zeros(())


def factors(factor: Factor, size: int) -> Iterator[Factor]:
    """The factor of each block."""
    return iter(torch.split(factor.reshape(-1), size)) if isinstance(factor, Tensor) else repeat(factor)


class Elementwise:
    """The potential of a curve applied to each score apart."""

    def __init__(self, curve: Curve) -> None:
        self.curve = curve

    def pair(self, a: Tensor, b: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
        """The divergence and h(a) - h(b), elementwise."""
        return self.curve.pair(a, b)

    def pair_sum(self, a: Tensor, b: Tensor, factor: Factor) -> tuple[Tensor, Tensor]:
        """Block by block, so that no temporary is as large as the scores."""
        difference = torch.empty_like(a, memory_format=torch.contiguous_format)
        size = block_size(a)
        blocks = zip(*(torch.split(t.reshape(-1), size) for t in (a, b, difference)), strict=True)
        totals = []
        for (left, right, rise), part in zip(blocks, factors(factor, size), strict=False):
            values, step = self.curve.pair(left, right)
            totals.append(weigh(values, step, rise, part))
        return sum_up(totals, a), difference

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
        flat = [t.reshape(-1, a.shape[-1]) for t in (a, b, difference)]
        return self.softmax.block(flat[0], flat[1], flat[2]).view(a.shape[:-1]), difference

    def pair_sum(self, a: Tensor, b: Tensor, factor: Factor) -> tuple[Tensor, Tensor]:
        """By blocks of rows, so that no temporary is as large as the scores."""
        if a.dtype in (torch.float16, torch.bfloat16):
            return weighed_pair(self, a, b, factor)
        difference = torch.empty_like(a, memory_format=torch.contiguous_format)
        size = max(1, block_size(a) // a.shape[-1])
        blocks = zip(*(torch.split(t.reshape(-1, a.shape[-1]), size) for t in (a, b, difference)), strict=True)
        totals = []
        for (left, right, rise), part in zip(blocks, factors(factor, size), strict=False):
            values = self.softmax.block(left, right, rise)
            totals.append(weigh(values, rise, rise, part, part[:, None] if isinstance(part, Tensor) else part))
        return sum_up(totals, a), difference

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

    def pair_sum(self, a: Tensor, b: Tensor, factor: Factor) -> tuple[Tensor, Tensor]:
        """The weighted sum and its gradient."""
        return weighed_pair(self, a, b, factor)

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


def weighed_pair(potential: Potential, a: Tensor, b: Tensor, factor: Factor) -> tuple[Tensor, Tensor]:
    """:meth:`Potential.pair_sum` from :meth:`Potential.pair`, all at once."""
    values, difference = potential.pair(a, b, None)
    scaled = torch.empty_like(difference)
    rows = potential.spread(factor) if isinstance(factor, Tensor) else factor
    return sum_up([weigh(values, difference, scaled, factor, rows)], a), scaled


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
        of_parameters = _own_gradients(ctx, a, b, None, gradient * factor)
        return None, grad_a, grad_b, None, *of_parameters


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
    """:func:`bregman`, then :func:`vicinal.losses.contract.reduce`: in one pass over the scores where that can be.

    Args:
        potential: elementwise or over rows.
        prediction: see :func:`bregman`.
        target: see :func:`bregman`.
        weight: see :func:`vicinal.losses.contract.reduce`.
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
