"""Inverse transport: the costs that make an observed plan the best one."""

import math

import numpy as np
import scipy  # loads its parts when they are used
import torch
from torch import Tensor

from vicinal.core.checks import check_between, check_integer, check_matrices
from vicinal.transport.sinkhorn import check_masses, check_plan_scores, sinkhorn


def inverse_transport_loss(
    matrix: Tensor, plan: Tensor, rows: Tensor, columns: Tensor, *, temperature: float = 1.0
) -> Tensor:
    r"""By how much an observed plan is worse than the best one under costs $C_{ij} = u_i^\top A v_j$.

    $L(A) = \langle C, \hat P \rangle + \epsilon \sum \hat P \log \hat P - \min_\pi \left( \langle C, \pi \rangle +
    \epsilon \sum \pi \log \pi \right)$ over plans of the same masses. Convex in A, 0 at costs that made the plan, with
    the gradient $\sum_{ij} (\hat P_{ij} - \pi_{ij}) u_i v_j^\top$.

    Args:
        matrix: A, ``[p, q]``; as a similarity, $-A / \epsilon$.
        plan: observed, ``[m, n]``, >= 0, mass in each row and column.
        rows: features u, ``[m, p]``.
        columns: features v, ``[n, q]``.
        temperature: $\epsilon > 0$.

    Paper: arXiv:2310.05461.

    >>> plan = sinkhorn(torch.zeros(2, 2, dtype=torch.float64))
    >>> inverse_transport_loss(torch.zeros(2, 2).double(), plan, torch.eye(2).double(), torch.eye(2).double())
    tensor(0., dtype=torch.float64)
    """
    check_between("temperature", temperature, 0, math.inf)
    plan, rows, columns = _checked(plan, rows, columns)
    if matrix.shape != (rows.shape[1], columns.shape[1]):
        raise ValueError(f"matrix: expected {(rows.shape[1], columns.shape[1])}, got {tuple(matrix.shape)}")
    costs = rows @ matrix.to(rows.dtype) @ columns.T
    best = sinkhorn(
        -costs.detach(),
        plan.sum(1),
        plan.sum(0),
        temperature=temperature,
        steps=5000,
        tolerance=4 * torch.finfo(plan.dtype).eps,
    )
    entropies = torch.special.xlogy(plan, plan).sum() - torch.special.xlogy(best, best).sum()
    return (costs * (plan - best)).sum() + temperature * entropies


def inverse_transport(
    plan: Tensor,
    rows: Tensor,
    columns: Tensor,
    *,
    strength: float = 0.0,
    temperature: float = 1.0,
    steps: int = 2000,
    tolerance: float = 1e-8,
) -> Tensor:
    r"""The sparse cost matrix of an observed plan, $\arg\min_A L(A) + \lambda \|A\|_1$.

    Solved by L-BFGS with bounds, for $A = A^+ - A^-$ with both parts >= 0. Costs are determined only up to a constant
    per row and per column, so features are centered, which removes such parts from A.

    Args:
        plan: observed, ``[m, n]``, >= 0, mass in each row and column.
        rows: features u, ``[m, p]``.
        columns: features v, ``[n, q]``.
        strength: $\lambda \ge 0$; A is 0 once it reaches the largest absolute entry of the gradient at A = 0.
        temperature: $\epsilon > 0$.
        steps: most iterations.
        tolerance: stop when no entry of the projected gradient is larger.

    Returns:
        A, ``[p, q]``.

    Raises:
        ValueError: for a plan with a negative entry, or a row or column without mass.

    Paper: arXiv:2310.05461.

    >>> rows, columns = torch.eye(3).double(), torch.eye(3).double()
    >>> inverse_transport(sinkhorn(torch.eye(3).double()), rows, columns, strength=0.01).diagonal() < 0
    tensor([True, True, True])
    """
    check_between("strength", strength, 0, math.inf, closed=True)
    check_integer("steps", steps)
    plan, rows, columns = _checked(plan, rows, columns)
    rows, columns = rows - rows.mean(dim=0), columns - columns.mean(dim=0)
    size, shape = rows.shape[1] * columns.shape[1], (rows.shape[1], columns.shape[1])

    def objective(parts: np.ndarray) -> tuple[float, np.ndarray]:
        matrix = torch.from_numpy(parts[:size] - parts[size:]).reshape(shape).to(rows).requires_grad_()
        value = inverse_transport_loss(matrix, plan, rows, columns, temperature=temperature)
        grad = torch.autograd.grad(value, matrix)[0].double().cpu().numpy().ravel()
        return value.item() + strength * parts.sum(), np.concatenate([grad, -grad]) + strength

    options = {"maxiter": steps, "maxfun": 2 * steps, "ftol": 0.0, "gtol": tolerance}
    start, bounds = np.zeros(2 * size), [(0.0, None)] * (2 * size)
    end = scipy.optimize.minimize(objective, start, method="L-BFGS-B", jac=True, bounds=bounds, options=options)
    return torch.from_numpy(end.x[:size] - end.x[size:]).reshape(shape).to(rows)


def _checked(plan: Tensor, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Plan and features in one dtype of at least float32."""
    wide = check_plan_scores(plan, "plan")
    if wide.ndim != 2 or not bool((wide >= 0).all() & (wide.sum(0) > 0).all() & (wide.sum(1) > 0).all()):
        raise ValueError("plan: expected numbers [m, n] of at least 0, with mass in each row and column, got others")
    check_matrices(rows, rows)
    check_matrices(columns, columns)
    if (len(rows), len(columns)) != wide.shape:
        count = f"{len(wide)} rows and {wide.shape[1]} columns of features"
        raise ValueError(f"rows: expected {count}, got {len(rows)} and {len(columns)}")
    check_masses(wide, wide.sum(1), wide.sum(0))
    dtype = torch.promote_types(torch.promote_types(rows.dtype, columns.dtype), wide.dtype)
    return wide.to(dtype), rows.to(dtype), columns.to(dtype)
