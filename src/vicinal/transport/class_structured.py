"""Plans that follow classes: rows or columns fused by a sum of norms, or few classes a column by a group lasso."""

import math

import scipy  # loads its parts when they are used
import torch
from scipy import sparse
from torch import Tensor

from vicinal.core.checks import check_between, check_integer, check_tensor, warn_caller
from vicinal.transport.sinkhorn import check_masses, check_plan_scores, sinkhorn


def same_class(labels: Tensor) -> Tensor:
    """1 for each pair of rows of one class, 0 else and for a row with itself, ``[m, m]`` in float64.

    >>> same_class(torch.tensor([4, 7, 4])).tolist()
    [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    """
    alike = labels[:, None] == labels
    return alike.double().fill_diagonal_(0.0)


def fused_transport(
    scores: Tensor,
    row_kernel: Tensor | None = None,
    column_kernel: Tensor | None = None,
    row_mass: Tensor | None = None,
    column_mass: Tensor | None = None,
    *,
    strength: float = 1.0,
    steps: int = 20_000,
    tolerance: float = 1e-9,
) -> Tensor:
    r"""The plan of most score whose rows and columns are drawn together (sum of norms).

    $\max_T \langle T, S \rangle - \lambda \left( \sum_{i < i'} k_{ii'} |T_i - T_{i'}| + \sum_{j < j'} \kappa_{jj'}
    |T^j - T^{j'}| \right)$ with $T 1 = a$, $T^\top 1 = b$, $T \ge 0$. Rows whose difference is 0 are fused, so that the
    plan is constant over blocks. Convex; solved by ADMM, whose step for the norms is a soft threshold of each
    difference and whose step for the plan is diagonal in the eigenvectors of the two graphs. Memory grows with the
    number of pairs with nonzero weight times the width of the plan.

    Args:
        scores: S, ``[m, n]``, finite; costs go in with a minus.
        row_kernel: k, symmetric ``[m, m]``, >= 0, as :func:`same_class` gives it; None: rows are not fused.
        column_kernel: $\kappa$, ``[n, n]``, likewise.
        row_mass: a, ``[m]``, >= 0; None: 1/m each.
        column_mass: b, ``[n]``, >= 0, of the same sum; None: 1/n each.
        strength: $\lambda \ge 0$; 0 is transport without a penalty, by a linear program.
        steps: most iterations.
        tolerance: stop when no constraint is violated by more than this share of the largest mass.

    Returns:
        T, ``[m, n]``, without gradient; sums are exact to the tolerance, or a warning says by how much they are off.

    Paper: Recovery Bounds on Class-Based Optimal Transport: A Sum-of-Norms Regularization Framework.

    >>> scores, kernel = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.ones(2, 2) - torch.eye(2)
    >>> fused_transport(scores, kernel, strength=10.0).round(decimals=4)
    tensor([[0.2500, 0.2500],
            [0.2500, 0.2500]])
    """
    check_between("strength", strength, 0, math.inf, closed=True)
    check_integer("steps", steps)
    s = check_plan_scores(scores).detach()
    if s.ndim != 2:
        raise ValueError(f"scores: expected [m, n], got {tuple(scores.shape)}")
    a, b = (mass.detach().double() for mass in check_masses(s, row_mass, column_mass))
    b = b * (a.sum() / b.sum())
    sides = _Side("row_kernel", row_kernel, len(a), a.device), _Side("column_kernel", column_kernel, len(b), a.device)
    if strength == 0:
        return _unpenalized(s, a, b)
    plan = _fused(s.double(), a, b, sides, strength, steps, tolerance)
    return plan.clamp(min=0).to(s.dtype)


class _Side:
    """The pairs of one side that are drawn together, and the eigenvectors of their graph, the constant one first."""

    def __init__(self, name: str, kernel: Tensor | None, count: int, device: torch.device) -> None:
        kernel = torch.zeros(count, count, device=device) if kernel is None else check_tensor(name, kernel).detach()
        if kernel.shape != (count, count):
            raise ValueError(f"{name}: expected {(count, count)}, got {tuple(kernel.shape)}")
        if not bool((kernel >= 0).all() & (kernel == kernel.T).all() & kernel.isfinite().all()):
            raise ValueError(f"{name}: expected a symmetric matrix of numbers of at least 0, got another")
        self.one, self.other = torch.triu(kernel, 1).nonzero(as_tuple=True)
        self.weight = kernel[self.one, self.other].double()[:, None]
        links = (kernel > 0).double().fill_diagonal_(0.0)
        laplacian = torch.diag(links.sum(dim=1)) - links
        low = torch.full_like(laplacian, -1 / count)  # puts the constant vector below all others
        self.values, self.vectors = torch.linalg.eigh(laplacian + low)
        self.values[0] = 0.0

    def differences(self, rows: Tensor) -> Tensor:
        """Of the pairs, ``[pairs, width]``."""
        return rows[self.one] - rows[self.other]

    def gathered(self, differences: Tensor, rows: Tensor) -> Tensor:
        """The transpose of :meth:`differences`."""
        total = torch.zeros_like(rows)
        total.index_add_(0, self.one, differences)
        total.index_add_(0, self.other, differences, alpha=-1)
        return total


def _shrunk(differences: Tensor, least: Tensor) -> Tensor:
    """Each row shorter by ``least``, or 0."""
    length: Tensor = torch.linalg.vector_norm(differences, dim=1, keepdim=True)
    return differences * (1 - least / length.clamp(min=1e-300)).clamp(min=0)


def _unpenalized(scores: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The plan of most score, by a linear program."""
    m, n = scores.shape
    of_rows = sparse.kron(sparse.eye(m), sparse.csr_array([[1.0] * n]))
    of_columns = sparse.kron(sparse.csr_array([[1.0] * m]), sparse.eye(n))
    sums, masses = sparse.vstack([of_rows, of_columns]), torch.cat([a, b]).cpu().numpy()
    end = scipy.optimize.linprog(-scores.double().cpu().numpy().ravel(), A_eq=sums, b_eq=masses)
    return torch.from_numpy(end.x).reshape(m, n).to(scores)


def _largest(tensors: list[Tensor]) -> float:
    return max(float(each.abs().max()) for each in tensors if each.numel()) or 1e-300


def _largest_gap(ones: list[Tensor], others: list[Tensor]) -> float:
    return _largest([one - other for one, other in zip(ones, others, strict=True)])


def _fused(
    s: Tensor, a: Tensor, b: Tensor, sides: tuple[_Side, _Side], strength: float, steps: int, tolerance: float
) -> Tensor:
    """ADMM on the plan, its positive part and its differences."""
    rows, columns = sides
    u, v = rows.vectors, columns.vectors
    curvature = rows.values[:, None] + columns.values + 1
    # along the constant vector of the other side the plan has the sums that it must have
    first = a @ u / v[:, 0].sum(), b @ v / u[:, 0].sum()
    plan = a[:, None] * b / a.sum()
    rho = float(s.abs().max().clamp(min=1e-12) / plan.max())
    split = [plan, rows.differences(plan), columns.differences(plan.T)]
    dual = [torch.zeros_like(each) for each in split]
    scale = float(plan.max())
    for step in range(steps):
        near = [each - other for each, other in zip(split, dual, strict=True)]
        target = near[0] + rows.gathered(near[1], plan) + columns.gathered(near[2], plan.T).T + s / rho
        inner = (u.T @ target @ v) / curvature
        inner[:, 0], inner[0] = first
        plan = u @ inner @ v.T
        images = [plan, rows.differences(plan), columns.differences(plan.T)]
        mixed = [1.6 * each - 0.6 * other for each, other in zip(images, split, strict=True)]  # over-relaxed
        moved = [each + other for each, other in zip(mixed, dual, strict=True)]
        new = [
            moved[0].clamp(min=0),
            _shrunk(moved[1], strength * rows.weight / rho),
            _shrunk(moved[2], strength * columns.weight / rho),
        ]
        dual = [each - other for each, other in zip(moved, new, strict=True)]
        primal, change = _largest_gap(images, new), _largest_gap(split, new)
        split = new
        if max(primal, change) <= tolerance * scale:
            return split[0]
        if step % 50 == 49 and step < steps // 2:  # neither the conditions nor the multipliers lag behind
            factor = math.sqrt(max(primal, 1e-300) / max(change, 1e-300) * _largest(dual) / _largest(images))
            factor = min(max(factor, 0.2), 5.0)
            rho, dual = rho * factor, [each / factor for each in dual]
    warn_caller(f"fused_transport: expected to end within {steps} steps, got sums that may be off by {primal:.1g}")
    return split[0]


def group_lasso_transport(
    scores: Tensor,
    labels: Tensor,
    row_mass: Tensor | None = None,
    column_mass: Tensor | None = None,
    *,
    strength: float = 0.1,
    temperature: float = 0.1,
    steps: int = 200,
    tolerance: float = 1e-9,
) -> Tensor:
    r"""An entropic plan whose columns take their mass from few classes of rows (group lasso).

    $\max_T \langle T, S \rangle - \tau \sum T \log T - \eta \sum_j \sum_c |T_{c, j}|_2$ with $T_{c, j}$ the entries of
    column j in the rows of class c: solved by conditional gradient: a Sinkhorn plan for the scores minus the gradient
    of the norms, then a line search toward it.

    Args:
        scores: S, ``[m, n]``, finite.
        labels: class of each row, whole numbers ``[m]``.
        row_mass: a, ``[m]``; None: 1/m each.
        column_mass: b, ``[n]``; None: 1/n each.
        strength: $\eta \ge 0$.
        temperature: $\tau > 0$.
        steps: most iterations.
        tolerance: stop when the objective changes by no more than this share.

    Returns:
        T, ``[m, n]``, without gradient.

    Paper: Courty et al., Optimal transport for domain adaptation, 2016.

    >>> group_lasso_transport(torch.eye(2), torch.tensor([0, 1])).argmax(dim=0)
    tensor([0, 1])
    """
    check_between("strength", strength, 0, math.inf, closed=True)
    check_between("temperature", temperature, 0, math.inf)
    s = check_plan_scores(scores).detach().double()
    if s.ndim != 2 or labels.shape != s.shape[:1] or labels.is_floating_point():
        raise ValueError(f"labels: expected whole numbers [{s.shape[0]}], got {labels.dtype} {tuple(labels.shape)}")
    a, b = check_masses(s, row_mass, column_mass)
    classes = torch.nn.functional.one_hot(torch.unique(labels, return_inverse=True)[1]).double().T  # [C, m]

    def lengths(plan: Tensor) -> Tensor:
        return (classes @ plan.square()).sqrt()  # [C, n]

    def cost(plan: Tensor) -> float:
        entropy = torch.special.xlogy(plan, plan).sum()
        return float(strength * lengths(plan).sum() + temperature * entropy - (plan * s).sum())

    plan, last, near = a[:, None] * b / a.sum(), math.inf, {"xatol": 1e-12}
    for _ in range(steps):
        slope = plan / (classes.T @ lengths(plan)).clamp(min=1e-300)
        aim = sinkhorn(s - strength * slope, a, b, temperature=temperature, steps=5000, tolerance=1e-13)
        toward = aim - plan
        share = scipy.optimize.minimize_scalar(lambda t: cost(plan + t * toward), bounds=(0, 1), options=near).x  # noqa: B023
        plan = plan + share * toward
        value = cost(plan)
        if abs(last - value) <= tolerance * abs(value):
            break
        last = value
    return plan.to(torch.promote_types(scores.dtype, torch.float32))
