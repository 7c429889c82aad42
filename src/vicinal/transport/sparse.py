"""Plans with at most k entries a column."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy  # loads its parts when they are used
import torch
from torch import Tensor

from vicinal.blockwise.thresholds import ranked_threshold
from vicinal.core.checks import check_between, check_integer
from vicinal.transport.sinkhorn import check_masses, check_plan_scores

Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]


class SparsePlan(NamedTuple):
    """``plan [m, n]``, and ``row_error [m]``: its row sums minus the masses that were asked for."""

    plan: Tensor
    row_error: Tensor


def sparse_transport(
    scores: Tensor,
    k: int,
    row_mass: Tensor | None = None,
    column_mass: Tensor | None = None,
    *,
    strength: float = 1.0,
    steps: int = 1000,
    tolerance: float = 1e-12,
) -> SparsePlan:
    r"""The plan of most score with at most k entries in each column, by its semi-dual.

    $\max_T \langle T, S \rangle - \frac \gamma 2 \|T\|^2$ with $T 1 = a$, $T^\top 1 = b$, $\|T_j\|_0 \le k$. Column j
    is $b_j$ times the projection of $(\alpha + S_j) / (\gamma b_j)$ to the simplex with its k largest entries, and
    $\alpha$ minimizes the convex $\sum_j f_j(\alpha) - \alpha \cdot a$ by L-BFGS. Column sums, signs and the number of
    entries are exact; row sums only if the problem has no duality gap, which a small k can open: ``row_error`` tells
    how large it is. With k >= m this is transport with a quadratic penalty, without a gap.

    The gradient is implicit, for the entries that are not 0.

    Args:
        scores: S, ``[m, n]``, finite; costs go in with a minus.
        k: at least 1; ties are broken by index, the highest first.
        row_mass: a, ``[m]``, >= 0; None: 1/m each.
        column_mass: b, ``[n]``, above 0, of the same sum; None: 1/n each.
        strength: $\gamma > 0$.
        steps: most steps of L-BFGS.
        tolerance: of L-BFGS.

    Raises:
        ValueError: for scores or masses that do not fit together.

    Paper: arXiv:2209.15466.

    >>> sparse_transport(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), 1).plan
    tensor([[0.5000, 0.0000],
            [0.0000, 0.5000]])
    """
    check_integer("k", k)
    check_between("strength", strength, 0, math.inf)
    check_integer("steps", steps)
    wide = check_plan_scores(scores)
    if wide.ndim != 2:
        raise ValueError(f"scores: expected [m, n], got {tuple(scores.shape)}")
    rows, columns = check_masses(wide, row_mass, column_mass)
    if not bool((columns > 0).all()):
        raise ValueError("column_mass: expected numbers above 0, got 0")
    plan: Tensor = _SparsePlan.apply(wide, rows, columns, k, strength, steps, tolerance)  # type: ignore[no-untyped-call]
    return SparsePlan(plan, plan.detach().sum(dim=1) - rows.detach())


def _columns(alpha: Tensor, scores: Tensor, mass: Tensor, k: int, strength: float) -> Tensor:
    """The best columns ``[m, n]`` for the multipliers of the rows."""
    targets = ((alpha[:, None] + scores) / (strength * mass)).T  # [n, m]
    ranked, behind = targets.flip(-1).sort(dim=-1, descending=True, stable=True)
    places = targets.shape[1] - 1 - behind[:, :k]
    some = ranked[:, :k]
    weights = (some - ranked_threshold(some)).relu()
    return (torch.zeros_like(targets).scatter(-1, places, weights) * mass[:, None]).T


def minimum_with_kinks(objective: Objective, size: int, steps: int, tolerance: float) -> np.ndarray:
    """Where a convex objective is least: by L-BFGS, begun anew where it stopped as long as that helps.

    With a small k the objective has kinks, at which L-BFGS stops early; what it remembers of the slope is then wrong.
    """
    place, least = np.zeros(size), math.inf
    while steps > 0:
        options = {"maxiter": steps}
        end = scipy.optimize.minimize(objective, place, method="L-BFGS-B", jac=True, tol=tolerance, options=options)
        if not end.fun < least - tolerance * max(1.0, abs(end.fun)):
            break
        place, least, steps = end.x, end.fun, steps - max(1, end.nit)
    return place


class _SparsePlan(torch.autograd.Function):
    """The plan; its gradient keeps the places of its entries and the sums of rows and columns."""

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, rows: Tensor, columns: Tensor, k: int, strength: float, steps: int, tolerance: float
    ) -> Tensor:
        s, a, b = (each.detach().double().cpu() for each in (scores, rows, columns))
        mass = a.numpy()

        def objective(alpha: np.ndarray) -> tuple[float, np.ndarray]:
            plan = _columns(torch.from_numpy(alpha), s, b, k, strength).numpy()
            gains = np.sum((alpha[:, None] + s.numpy()) * plan, axis=0) - 0.5 * strength * np.sum(plan**2, axis=0)
            return -(np.dot(alpha, mass) - np.sum(gains)), -(mass - plan.sum(axis=1))

        plan = _columns(
            torch.from_numpy(minimum_with_kinks(objective, len(mass), steps, tolerance)), s, b, k, strength
        ).to(scores)
        ctx.save_for_backward(plan)
        ctx.strength = strength
        return plan

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None, None]:
        (plan,) = ctx.saved_tensors
        there = (plan > 0).to(plan.dtype)  # [m, n]
        number = there.sum(dim=0)
        means = (there * grad).sum(dim=0) / number
        inner = there * (grad - means)  # in each column without what would change its sum
        laplacian = torch.diag(there.sum(dim=1)) - (there / number) @ there.T
        shift = torch.linalg.pinv(laplacian, hermitian=True) @ inner.sum(dim=1)
        shifts = (there * shift[:, None]).sum(dim=0) / number
        slope = (inner - there * (shift[:, None] - shifts)) / ctx.strength
        return slope, shift, means - shifts, None, None, None, None
