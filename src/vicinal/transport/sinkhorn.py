r"""Entropic transport by Sinkhorn's iterations, for everybody: stable at any temperature, with an implicit gradient.

The iterations scale rows and columns of a kernel in turn. A few steps at a time are products of the kernel with two
vectors; if these leave a safe range, the same steps are repeated on logarithms.
"""

import math
from typing import Any

import torch
from torch import Tensor

from vicinal.core.checks import check_between, check_integer, check_tensor

_STRIDE = 10
"""Steps between two looks at the error."""


def sinkhorn(
    scores: Tensor,
    row_mass: Tensor | None = None,
    column_mass: Tensor | None = None,
    *,
    temperature: float = 1.0,
    steps: int = 1000,
    tolerance: float | None = None,
) -> Tensor:
    r"""The plan of most score and entropy between two masses.

    $P = \arg\max_P \langle P, S \rangle - \tau \sum P \log P$ with $P 1 = a$, $P^\top 1 = b$, $P \ge 0$: the matrix
    $e^{(S + f + g)/\tau}$, whose columns and rows are scaled in turn. Rows are scaled last, so their sums are exact;
    column sums have the error that remains when the iterations stop.

    The gradient is that of the plan at convergence, from one linear system, with memory that does not grow with the
    steps; after few steps it is an approximation. Rows and columns of mass 0 get plan 0 and gradient 0, so sets of
    unequal size share a batch.

    Args:
        scores: S, ``[..., m, n]``, finite; higher = more alike. Costs go in with a minus.
        row_mass: a, ``[..., m]``, >= 0; None: 1/m each.
        column_mass: b, ``[..., n]``, >= 0, of the same sum; None: 1/n each.
        temperature: $\tau > 0$.
        steps: most iterations, each over columns and then rows.
        tolerance: stop when no column is off by more than this share of the largest mass; 0: take all steps. None:
            1e-9, or 4e-6 in float32.

    Returns:
        P, ``[..., m, n]``; float32, or float64 if the scores are.

    Raises:
        ValueError: for scores or masses that are not finite, negative masses, or sums that differ by more than 1e-6.

    Papers: arXiv:1306.0895; the gradient is that of arXiv:2212.12042.

    >>> sinkhorn(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), temperature=0.1)
    tensor([[2.2699e-05, 4.9998e-01],
            [4.9998e-01, 2.2699e-05]])
    """
    check_between("temperature", temperature, 0, math.inf)
    check_integer("steps", steps)
    wide = check_plan_scores(scores)
    rows, columns = check_masses(wide, row_mass, column_mass)
    if tolerance is None:
        tolerance = max(1e-9, 32 * torch.finfo(wide.dtype).eps)
    with torch.autocast(scores.device.type, enabled=False):
        plan: Tensor = _Plan.apply(wide, rows, columns, temperature, steps, tolerance)  # type: ignore[no-untyped-call]
    return plan


def check_plan_scores(scores: Tensor, name: str = "scores") -> Tensor:
    """``scores [..., m, n]`` in at least float32, if they are finite and there is one at least."""
    check_tensor(name, scores)
    if scores.ndim < 2 or not scores.shape[-1] or not scores.shape[-2]:
        raise ValueError(f"{name}: expected [..., m, n] with m and n of at least 1, got {tuple(scores.shape)}")
    if not scores.is_floating_point():
        raise TypeError(f"{name}: expected a floating dtype, got {scores.dtype}")
    if not bool(scores.isfinite().all()):
        raise ValueError(f"{name}: expected finite numbers, got nan or inf")
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def check_masses(scores: Tensor, row_mass: Tensor | None, column_mass: Tensor | None) -> tuple[Tensor, Tensor]:
    """Masses ``[..., m]`` and ``[..., n]`` of checked ``scores [..., m, n]``: uniform ones for None.

    Raises:
        ValueError: for another shape, negative or infinite numbers, or sums that are 0 or differ.
    """
    masses = _checked_mass("row_mass", scores, -2, row_mass), _checked_mass("column_mass", scores, -1, column_mass)
    one, other = (mass.detach().double().sum(-1) for mass in masses)
    if not bool(((one - other).abs() <= 1e-6 * one).all() & (one > 0).all()):
        raise ValueError("column_mass: expected the sum of row_mass, which is above 0, got another")
    return masses


def _checked_mass(name: str, scores: Tensor, axis: int, mass: Tensor | None = None) -> Tensor:
    count = scores.shape[axis]
    shape = (*scores.shape[:-2], count)
    if mass is None:
        return scores.new_full(shape, 1 / count)
    if check_tensor(name, mass).shape[-1:] != (count,) or mass.ndim > len(shape):
        raise ValueError(f"{name}: expected {shape} as the scores say, got {tuple(mass.shape)}")
    if not bool((mass >= 0).all() & (mass < torch.inf).all()):
        raise ValueError(f"{name}: expected finite numbers of at least 0, got {mass.min():g} to {mass.max():g}")
    return mass.to(scores.dtype).expand(shape)


class _Plan(torch.autograd.Function):
    """The plan, and the gradient that the two conditions on its sums give at convergence."""

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, rows: Tensor, columns: Tensor, temperature: float, steps: int, tolerance: float
    ) -> Tensor:
        plan = _iterated(scores / temperature, rows, columns, steps, tolerance)
        ctx.save_for_backward(plan)
        ctx.temperature = temperature
        return plan

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        (plan,) = ctx.saved_tensors
        slope = grad * plan / ctx.temperature
        u, v = _multipliers(plan, slope.sum(-1), slope.sum(-2))
        slope = slope - plan * (u[..., :, None] + v[..., None, :])
        return slope, ctx.temperature * u, ctx.temperature * v, None, None, None


def _iterated(logits: Tensor, rows: Tensor, columns: Tensor, steps: int, tolerance: float) -> Tensor:
    """The plan after the steps, or fewer; ``logits`` are the scores over the temperature."""
    log_rows, log_columns = rows.log(), columns.log()

    def log_steps(f: Tensor, count: int) -> tuple[Tensor, Tensor]:
        g = log_columns
        for _ in range(count):
            g = log_columns - (logits + f[..., :, None]).logsumexp(-2)
            f = log_rows - (logits + g[..., None, :]).logsumexp(-1)
        return f, g

    f, g = log_steps(torch.where(rows > 0, 0.0, -torch.inf), 1)
    taken, safe = 1, 0.2 * math.log(torch.finfo(logits.dtype).max)
    plan = (logits + f[..., :, None] + g[..., None, :]).exp()
    allowed = tolerance * columns.amax(-1)
    while taken < steps and not bool(((plan.sum(-2) - columns).abs().amax(-1) <= allowed).all()):
        count = min(_STRIDE, steps - taken)
        du, dv = _scaled(plan, rows, columns, count)
        if bool((du.abs() < safe).all() & (dv.abs() < safe).all()):
            f, g = f + du, g + dv
        else:
            f, g = log_steps(f, count)
        taken += count
        plan = (logits + f[..., :, None] + g[..., None, :]).exp()
    sums = plan.sum(-1)  # off by the rounding of large logits
    return plan * torch.where(sums > 0, rows / sums, 0.0)[..., None]


def _scaled(plan: Tensor, rows: Tensor, columns: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Logarithms of what ``count`` steps multiply rows and columns of the plan by."""
    u, v, across = torch.ones_like(rows)[..., None], columns, plan.mT
    for _ in range(count):
        v = torch.where(columns > 0, columns / (across @ u)[..., 0], 1.0)[..., None]
        u = torch.where(rows > 0, rows / (plan @ v)[..., 0], 1.0)[..., None]
    return u[..., 0].log(), v[..., 0].log()


def _multipliers(plan: Tensor, r: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Solve a u + P v = r, P' u + b v = c for a, b the sums of P, with v = 0 for the last column that has mass.

    One side is eliminated. What is left is the Laplacian of a graph; where the plan falls into parts it is singular,
    but what the solution then has too much of cancels in u + v wherever the plan is not 0.
    """
    rows, columns = plan.sum(-1), plan.sum(-2)
    count = columns.shape[-1]
    last = torch.where(columns > 0, torch.arange(count, device=plan.device), -1).amax(-1, keepdim=True)
    free = (columns > 0) & (torch.arange(count, device=plan.device) != last)
    plan, c = torch.where(free[..., None, :], plan, 0.0), torch.where(free, c, 0.0)
    a, b = torch.where(rows > 0, rows, 1.0), torch.where(columns > 0, columns, 1.0)
    r = torch.where(rows > 0, r, 0.0)
    if rows.shape[-1] < count:
        u = _eliminated(plan.mT, b, a, c, r)
        return u, (c - (plan.mT @ u[..., None])[..., 0]) / b
    v = _eliminated(plan, a, b, r, c)
    return (r - (plan @ v[..., None])[..., 0]) / a, v


def _eliminated(plan: Tensor, a: Tensor, b: Tensor, r: Tensor, c: Tensor) -> Tensor:
    """Solve (b - P' a^-1 P) v = c - P' a^-1 r for v, with b larger by a few last digits."""
    scaled = plan / a[..., :, None]
    system = torch.diag_embed(b * (1 + 8 * torch.finfo(b.dtype).eps)) - plan.mT @ scaled
    return torch.linalg.solve(system, c - (scaled.mT @ r[..., None])[..., 0])
