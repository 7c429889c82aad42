"""Weights of rows given each other: a quadratic program on the simplex for each query, many solved together."""

import numpy as np
import torch
from scipy.linalg.lapack import dposv
from torch import Tensor

from vicinal.core.checks import check_integer

_PIVOTS = 30
"""Exchanges of whole sets of rows; what has not settled by then is solved by one row at a time."""

_PATIENCE = 4
"""Exchanges without fewer wrong rows than ever before, after which they may go in a circle."""

_STEPS = 20
"""Steps of one row for each row of the problem, at most; rounding could make them go on without end."""

_NOTHING = 1e-6
"""Variance of what is missing to a sum of 1: so small that it costs nothing, so large that it can be solved for."""

_DIGITS = 1e-12
"""Share of the largest entry of the matrix by which a weight or a multiplier may be on the wrong side."""


def kriging_weights(
    matrix: Tensor, vector: Tensor, allowed: Tensor | None = None, *, convex: bool = True
) -> tuple[Tensor, Tensor]:
    r"""$w = \arg\min_w \tfrac12 w^\top M w - w^\top c$ with $\sum_j w_j = 1$, and $w \ge 0$ if ``convex``.

    With the rows of positive weight $F$ known, $w_F = M_F^{-1} (c_F - \mu 1)$, where $\mu$ makes the sum 1: one
    Cholesky factor a query. $F$ is found by block principal pivoting: start with all rows, drop all negative weights
    and take in all rows whose multiplier $(M w - c + \mu 1)_j$ is negative, until neither is left; the few queries for
    which that goes in a circle are solved by the primal active-set method, which cannot.

    Stationarity, both signs and the sum hold to 1e-10 times the largest entry of M and c, in float64, which is used
    inside for any input. Weights are NaN where M is not positive definite in float64.

    Args:
        matrix: M ``[b, k, k]``, symmetric and positive definite.
        vector: c ``[b, k]``.
        allowed: ``[b, k]``, rows that may have weight, at least one for each query; None: all.
        convex: weights are not negative; else signed, which takes one solution.

    Returns:
        weights ``[b, k]`` that sum to 1, exactly 0 outside $F$, differentiable in M and c with $F$ held, which is
        their gradient wherever F does not change; and $F$ ``[b, k]``.

    References:
        Block principal pivoting: J. J. Júdice and F. M. Pires, Computers & Operations Research 21, 1994. With C = 0 and
        noise 1 (M the identity) the weights are sparsemax of c (arXiv:1602.02068).

    >>> near = torch.tensor([[0.9, 0.8, 0.1]])
    >>> kriging_weights(torch.eye(3)[None], near)[0]
    tensor([[0.5500, 0.4500, 0.0000]])
    >>> copies = torch.tensor([[[1.1, 1.0, 0.0], [1.0, 1.1, 0.0], [0.0, 0.0, 1.1]]])  # the first two rows are one
    >>> kriging_weights(copies, torch.tensor([[0.5, 0.5, 0.5]]))[0]
    tensor([[0.2558, 0.2558, 0.4884]])
    """
    batch, k = vector.shape
    check_integer("k", k)
    if matrix.shape != (batch, k, k):
        raise ValueError(f"matrix: expected {(batch, k, k)}, got {tuple(matrix.shape)}")
    with torch.autocast(vector.device.type, enabled=False):
        wide, right = matrix.double(), vector.double()
        active = torch.ones_like(right, dtype=torch.bool) if allowed is None else allowed
        if batch == 0:
            return vector, active
        if convex:
            active, weights = _positive_rows(wide.detach(), right.detach(), active)
        if not convex or _has_gradient(wide, right):
            weights = _weights_on(wide, right, active)[0]
    return weights.to(vector.dtype), active


def weights_with_slack(
    matrix: Tensor, vector: Tensor, allowed: Tensor | None = None, *, convex: bool = True
) -> tuple[Tensor, Tensor]:
    r"""The same with $\sum_j w_j \le 1$: what is missing to 1 is the weight of nothing.

    Nothing is one more row, which is like no other: its entries of M and c are 0, but for 1e-6 on the diagonal.

    >>> weights_with_slack(torch.eye(2)[None], torch.tensor([[0.6, 0.1]]))[0]
    tensor([[0.6000, 0.1000]])
    """
    matrix, vector = torch.nn.functional.pad(matrix, (0, 1, 0, 1)), torch.nn.functional.pad(vector, (0, 1))
    matrix[:, -1, -1] = _NOTHING
    if allowed is not None:
        allowed = torch.cat([allowed, allowed.new_ones(len(allowed), 1)], dim=1)
    weights, active = kriging_weights(matrix, vector, allowed, convex=convex)
    return weights[:, :-1], active[:, :-1]


def _weights_on(matrix: Tensor, vector: Tensor, active: Tensor) -> tuple[Tensor, Tensor]:
    """Weights ``[b, k]`` that sum to 1 over the rows ``active [b, k]``, 0 elsewhere, and the multiplier mu ``[b]``."""
    if bool(active.all()):
        return _weights_of_all(matrix, vector, torch.ones_like(vector))
    size = int(active.sum(dim=1).amax())
    rows = active.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :size]  # [b, m], active ones first
    inside = active.gather(1, rows).to(matrix.dtype)
    some = matrix.gather(1, rows[:, :, None].expand(-1, -1, matrix.shape[2]))
    some = some.gather(2, rows[:, None, :].expand(-1, size, -1))
    some = some * inside[:, :, None] * inside[:, None, :] + torch.diag_embed(1 - inside)
    weights, multiplier = _weights_of_all(some, vector.gather(1, rows) * inside, inside)
    return torch.zeros_like(vector).scatter(1, rows, weights), multiplier


def _weights_of_all(matrix: Tensor, vector: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
    """The same over the rows where ``inside [b, m]`` is 1, between which and the others the matrix is 0."""
    of_vector, of_ones = _solved(matrix, torch.stack([vector, inside], dim=-1)).unbind(-1)
    multiplier = (of_vector.sum(dim=1) - 1) / of_ones.sum(dim=1)
    return (of_vector - multiplier[:, None] * of_ones) * inside, multiplier


def _has_gradient(*values: Tensor) -> bool:
    return torch.is_grad_enabled() and any(each.requires_grad for each in values)


def _solved(matrix: Tensor, sides: Tensor) -> Tensor:
    """``matrix [b, m, m]`` divided into ``sides [b, m, 2]``; NaN where the matrix is not positive definite.

    Without a gradient LAPACK solves each in place, in a third of the time that a clean triangle takes.
    """
    if _has_gradient(matrix, sides) or matrix.device.type != "cpu":
        factor, failed = torch.linalg.cholesky_ex(matrix)
        return torch.cholesky_solve(sides, torch.where((failed > 0)[:, None, None], torch.nan, factor))
    result = sides.detach().mT.contiguous()  # [b, 2, m]
    for one, right in zip(matrix.detach().clone().numpy(), result.numpy(), strict=True):
        failed = dposv(one.T, right.T, overwrite_a=1, overwrite_b=1)[2]
        if failed:
            right[:] = np.nan
    return result.mT


def _multipliers(matrix: Tensor, vector: Tensor, weights: Tensor, multiplier: Tensor) -> Tensor:
    """What each row would add to the objective ``[b, k]`` if it were given a little weight."""
    return (matrix @ weights[:, :, None])[:, :, 0] - vector + multiplier[:, None]


def _tolerance(matrix: Tensor, vector: Tensor) -> Tensor:
    """``[b, 1]``, of multipliers; weights are of the order of 1."""
    largest = torch.maximum(matrix.diagonal(dim1=1, dim2=2).amax(dim=1), vector.abs().amax(dim=1))
    return (_DIGITS * largest)[:, None]


def _positive_rows(matrix: Tensor, vector: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor]:
    """The rows of positive weight ``[b, k]``, by exchanges of all wrong rows at once, and their weights."""
    result, solved, active = allowed.clone(), torch.zeros_like(vector), allowed.clone()
    queries = torch.arange(len(vector), device=vector.device)  # those that have not settled
    fewest = torch.full_like(queries, vector.shape[1] + 1)
    patience = torch.full_like(queries, _PATIENCE)
    again = torch.zeros_like(queries, dtype=torch.bool)  # where the weights are not of the rows
    part, right, limit = matrix, vector, _tolerance(matrix, vector)
    for _ in range(_PIVOTS):
        weights, multiplier = _weights_on(part, right, active)
        slope = _multipliers(part, right, weights, multiplier)
        wrong = torch.where(active, weights < -_DIGITS, slope < -limit) & allowed[queries]
        count = wrong.sum(dim=1)
        positive = active & ~(weights <= 0)  # NaN stays, to be seen
        result[queries], solved[queries], again[queries] = positive, weights, (positive != active).any(dim=1)
        better = count < fewest
        fewest = torch.where(better, count, fewest)
        patience = torch.where(better, _PATIENCE, patience - 1)
        active = active ^ wrong
        lone = ~active.any(dim=1)  # none left: begin with the nearest
        active[lone] |= _nearest(right, allowed[queries])[lone]
        going = (count > 0) & (patience > 0)
        circling = (count > 0) & (patience <= 0)
        if bool(circling.any()):
            places = queries[circling]
            again[places] = True
            result[places] = _one_row_at_a_time(matrix[places], vector[places], allowed[places])
        queries, active, fewest, patience = queries[going], active[going], fewest[going], patience[going]
        part, right, limit = part[going], right[going], limit[going]
        if len(queries) == 0:
            break
    if len(queries):
        result[queries], again[queries] = _one_row_at_a_time(part, right, allowed[queries]), True
    if bool(again.any()):
        solved[again] = _weights_on(matrix[again], vector[again], result[again])[0]
    return result, solved


def _nearest(vector: Tensor, allowed: Tensor) -> Tensor:
    """Only the row of the highest kernel value ``[b, k]``."""
    best = vector.masked_fill(~allowed, -torch.inf).argmax(dim=1, keepdim=True)
    return torch.zeros_like(allowed).scatter_(1, best, True)  # noqa: FBT003


def _one_row_at_a_time(matrix: Tensor, vector: Tensor, allowed: Tensor) -> Tensor:
    """The rows of positive weight ``[b, k]`` by the primal active-set method, whose objective falls in every step."""
    active = _nearest(vector, allowed)
    weights = active.to(vector.dtype)
    limit = _tolerance(matrix, vector)
    for _ in range(_STEPS * vector.shape[1]):
        goal, multiplier = _weights_on(matrix, vector, active)
        below = active & (goal < 0)
        # As far toward the goal as no weight falls below 0; what reaches 0 leaves.
        room = torch.where(below, weights / (weights - goal).clamp(min=torch.finfo(goal.dtype).tiny), torch.inf)
        step = room.amin(dim=1, keepdim=True)
        reached = step > 1
        weights = torch.where(reached, goal, torch.lerp(weights, goal, step.clamp(max=1)))
        leaving = below & (room <= step)
        slope = _multipliers(matrix, vector, goal, multiplier).masked_fill(active | ~allowed, torch.inf)
        lowest, entering = slope.min(dim=1, keepdim=True)
        enters = reached & (lowest < -limit)
        if not bool((enters | ~reached).any()):
            break
        active = active & ~leaving
        weights = weights * active
        active = active.scatter(1, entering, active.gather(1, entering) | enters)
    return active & ~(weights <= 0)
