"""Tables of interactions as vectors of rows and columns: alternating least squares."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from vicinal.blockwise.blocks import policy
from vicinal.core import register
from vicinal.core.checks import check_between, check_integer


class Factors(NamedTuple):
    """``rows [m, rank]``, ``columns [n, rank]``: their products are the scores; the ``objective`` after each sweep."""

    rows: Tensor
    columns: Tensor
    objective: list[float]


@register(
    "factorization",
    "als",
    "random",
    family="alternating least squares",
    paper="Hu et al. 2008; arXiv:2302.11068",
    verified="implicit 0.7.3 (stored values); numpy in float64",
)
def als(
    interactions: Any,
    rank: int,
    *,
    confidence: float | None = None,
    ridge: float = 0.01,
    sweeps: int = 15,
    inexact: float | None = None,
    start: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Factors:
    r"""Vectors of rows and columns by alternating least squares, of given values or of implicit feedback.

    Given values (``confidence=None``), over the stored entries M, explicit zeros included: $\min_{U, V} \sum_{ij \in M}
    (M_{ij} - u_i \cdot v_j)^2 + \lambda (\|U\|^2 + \|V\|^2)$.

    Implicit feedback with ``confidence`` $\alpha$, over all entries: $\sum_{ij} c_{ij} (1[r_{ij} > 0] - u_i \cdot
    v_j)^2$ and the same ridge, with $c_{ij} = \alpha r_{ij}$ where $r_{ij} > 0$, else 1.

    In turn U and V are set to the exact solution for the other, so the objective never rises. A row with fewer entries
    than the rank needs only a system as large as its number of entries.

    Args:
        interactions: a sparse matrix of scipy ``[m, n]``, finite; >= 0 for implicit feedback.
        rank: width of the vectors, at most min(m, n).
        confidence: $\alpha > 0$; None: the entries are values to be completed.
        ridge: $\lambda \ge 0$; 0 only if each row and column has at least ``rank`` entries and no system is singular.
        sweeps: how often rows and then columns are solved for.
        inexact: use conjugate gradients, started from the last sweep, to a residual of this share of the right-hand
            side; rows that do not reach it in ``4 * rank`` steps are solved exactly. None: exact.
        start: initial columns, ``[n, rank]``; None: a few steps of subspace iteration, or, for implicit feedback, small
            random numbers, which ranked hidden clicks better.
        generator: of the random start.

    Returns:
        In float64 if the interactions are, else in float32. A row or column without entries gets the zero vector.

    Raises:
        ValueError: for bad values, or a singular system at ridge 0, naming the row.

    >>> ratings = sparse.csr_array(np.outer([1.0, 2.0, 3.0], [1.0, 1.0, 2.0]))
    >>> factors = als(ratings, 1, ridge=1e-6)
    >>> (factors.rows @ factors.columns.T).round(decimals=3)[2]
    tensor([3., 3., 6.], dtype=torch.float64)
    """
    table = _table(interactions, confidence)
    check_integer("rank", rank, 1, min(table.shape))
    check_between("ridge", ridge, 0, math.inf, closed=True)
    check_integer("sweeps", sweeps)
    if inexact is not None:
        check_between("inexact", inexact, 0, 1)
    sides = [_Side(name, each.tocsr(), confidence) for name, each in (("row", table), ("column", table.T))]
    columns = _start(table, rank, generator, confidence) if start is None else _checked_start(start, table, rank)
    rows, objective = columns.new_zeros(table.shape[0], rank), []
    for _ in range(sweeps):
        rows = sides[0].solved(columns, rows, ridge, inexact)
        columns = sides[1].solved(rows, columns, ridge, inexact)
        objective.append(sides[0].objective(rows, columns, ridge))
    return Factors(rows, columns, objective)


def fold_in(interactions: Any, columns: Tensor, *, confidence: float, ridge: float = 0.01) -> Tensor:
    r"""Vectors of rows for columns that stay as they are: of implicit feedback, the exact half step of :func:`als`.

    Args:
        interactions: a sparse matrix of scipy ``[m, n]``, finite and >= 0; rows may be empty.
        columns: V ``[n, k]``.
        confidence: $\alpha$, see :func:`als`.
        ridge: $\lambda > 0$.

    Returns:
        ``[m, k]`` in the dtype of ``columns``; 0 for an empty row.

    >>> fold_in(sparse.csr_array([[0.0, 2.0]]), torch.tensor([[1.0], [1.0]]), confidence=1.0, ridge=1.0)
    tensor([[0.5000]])
    """
    check_between("ridge", ridge, 0, math.inf)
    table = sparse.csr_array(interactions).astype(columns.numpy().dtype)
    if table.shape[1] != len(columns):
        raise ValueError(f"interactions: expected {len(columns)} columns as there are vectors, got {table.shape[1]}")
    if table.nnz == 0:
        return columns.new_zeros(table.shape[0], columns.shape[1])
    side = _Side("row", _table(table, confidence), confidence)
    return side.solved(columns, columns.new_zeros(table.shape[0], columns.shape[1]), ridge, None)


def fold_in_shares(
    values: Tensor, clicked: Tensor, columns: Tensor, targets: Tensor, *, confidence: float, ridge: float = 0.01
) -> Tensor:
    r"""What each entry adds to a score: $c_j\, t^\top (V^\top V + V_S^\top (C - I) V_S + \lambda I)^{-1} v_j$.

    The vector of :func:`fold_in` is that matrix times a sum over the entries, so each score is the sum of its shares.

    Args:
        values: r > 0 ``[s]``, the entries of the row.
        clicked: their columns ``[s]``, whole numbers.
        columns: V ``[n, k]``.
        targets: t ``[q, k]``, vectors of what is scored.
        confidence: $\alpha$; c is $\alpha r$.
        ridge: $\lambda > 0$.

    Returns:
        ``[q, s]``.

    Paper: Hu et al. 2008, section 5.

    >>> columns = torch.tensor([[1.0], [1.0]])
    >>> fold_in_shares(torch.tensor([2.0]), torch.tensor([1]), columns, columns, confidence=1.0, ridge=1.0)
    tensor([[0.5000],
            [0.5000]])
    """
    near, counted = columns[clicked], confidence * values
    system = columns.T @ columns + near.T @ ((counted - 1)[:, None] * near)
    system = system + ridge * torch.eye(columns.shape[1], dtype=columns.dtype)
    return targets @ torch.linalg.solve(system, near.T * counted)


def _table(interactions: Any, confidence: float | None) -> Any:
    """The checked interactions as a sparse matrix; without stored zeros where they mean nothing."""
    if not sparse.issparse(interactions) or interactions.ndim != 2:
        raise TypeError(
            f"interactions: expected a sparse matrix of scipy [m, n], got {type(interactions).__name__}; "
            "scipy.sparse.csr_array makes one"
        )
    table = sparse.csr_array(interactions)
    table = table.astype(np.float64 if table.dtype == np.float64 else np.float32)
    if not np.all(np.isfinite(table.data)):
        raise ValueError("interactions: expected finite numbers, got nan or inf")
    if confidence is not None:
        check_between("confidence", confidence, 0, math.inf)
        if np.any(table.data < 0):
            raise ValueError("interactions: expected numbers of at least 0 with confidence=, got one below")
        table.eliminate_zeros()
    if table.nnz == 0:
        raise ValueError("interactions: expected at least one entry, got none")
    table.sum_duplicates()
    return table


def _checked_start(start: Tensor, table: Any, rank: int) -> Tensor:
    if start.shape != (table.shape[1], rank) or not bool(start.isfinite().all()):
        raise ValueError(f"start: expected finite numbers {(table.shape[1], rank)}, got {tuple(start.shape)} or nan")
    return start.to(torch.float64 if table.dtype == np.float64 else torch.float32)


def _start(table: Any, rank: int, generator: torch.Generator | None, confidence: float | None) -> Tensor:
    """For values to complete near the right singular vectors of largest value."""
    basis = torch.randn(table.shape[1], rank, generator=generator).numpy().astype(table.dtype)
    if confidence is not None:
        return torch.from_numpy(0.01 * basis)
    for _ in range(4):
        basis = np.linalg.qr(table.T @ (table @ basis))[0]
    return torch.from_numpy(basis)


class _Side:
    """The entries of the rows, or of the columns, of a table."""

    def __init__(self, name: str, table: Any, confidence: float | None) -> None:
        self.name, self.implicit = name, confidence is not None
        self.counts = np.diff(table.indptr)
        self.starts, self.places = table.indptr[:-1], torch.from_numpy(table.indices.astype(np.int64))
        values = torch.from_numpy(table.data)
        self.targets = values if confidence is None else confidence * values  # t, weight times target
        self.diagonal = torch.ones_like(values) if confidence is None else confidence * values - 1  # D

    def blocks(self, rank: int) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Rows with about as many entries: which, their columns ``[b, L]``, D and t (0 beyond the entries of a row)."""
        order = np.argsort(self.counts, kind="stable")
        stop, most = len(order), policy().memory_entries
        while stop > 0 and (length := int(self.counts[order[stop - 1]])) > 0:
            room = max(1, most // (length * rank + min(length, rank) ** 2))
            low = np.searchsorted(self.counts[order[:stop]], length - length // 4)
            begin = max(stop - room, int(low))
            rows = order[begin:stop]
            spread = np.arange(length)
            there = torch.from_numpy(spread < self.counts[rows, None])
            at = torch.from_numpy(self.starts[rows, None] + np.minimum(spread, self.counts[rows, None] - 1))
            yield (
                torch.from_numpy(rows),
                self.places[at],
                torch.where(there, self.diagonal[at], 0),
                torch.where(there, self.targets[at], 0),
            )
            stop = begin

    def solved(self, others: Tensor, last: Tensor, ridge: float, inexact: float | None) -> Tensor:
        """The vectors of this side for those of the other."""
        rank = others.shape[1]
        if ridge == 0 and not self.implicit and self.counts.min() < rank:
            row = int(self.counts.argmin())
            raise ValueError(
                f"ridge: expected a number above 0, got 0: {self.name} {row} has {self.counts[row]} entries, "
                f"fewer than the rank {rank}"
            )
        shared = ridge * torch.eye(rank, dtype=others.dtype) + (others.T @ others if self.implicit else 0)
        systems = _Systems(self.name, others, shared)
        vectors = torch.zeros_like(last)
        for rows, *entries in self.blocks(rank):
            if inexact is None:
                vectors[rows] = systems.solved(rows, *entries)
                continue
            near, done = systems.approached(last[rows], inexact, *entries)
            if not bool(done.all()):
                near[~done] = systems.solved(rows[~done], *(each[~done] for each in entries))
            vectors[rows] = near
        return vectors

    def objective(self, rows: Tensor, columns: Tensor, ridge: float) -> float:
        """What is minimized, with these as rows."""
        total = ridge * float(rows.square().sum() + columns.square().sum())
        if self.implicit:
            total += float(((rows.T @ rows) * (columns.T @ columns)).sum())
        for which, places, diagonal, targets in self.blocks(rows.shape[1]):
            scores = (columns[places] @ rows[which][..., None])[..., 0]
            if self.implicit:
                total += float((targets * (1 - 2 * scores) + diagonal * scores.square()).sum())
            else:
                total += float((diagonal * (targets - scores).square()).sum())
        return total


class _Systems:
    r"""$(A + V_i^\top D_i V_i) u_i = V_i^\top t_i$ for some rows i, by their columns ``[b, L]``, D and t."""

    def __init__(self, name: str, others: Tensor, shared: Tensor) -> None:
        self.name, self.others, self.shared = name, others, shared
        root, info = torch.linalg.cholesky_ex(shared)
        self.root = None if int(info) else root  # a singular A, at ridge 0
        if self.root is not None:
            self.whitened = torch.linalg.solve_triangular(root, others.T, upper=False).T.contiguous()

    def solved(self, rows: Tensor, places: Tensor, diagonal: Tensor, targets: Tensor) -> Tensor:
        r"""Exactly: $Z^\top (I + D Z Z^\top)^{-1} t$, Z whitened by A, where entries are fewer than the rank."""
        if self.root is not None and places.shape[1] < self.others.shape[1]:
            near = self.whitened[places]  # [b, L, k]
            inner = torch.eye(places.shape[1], dtype=near.dtype) + diagonal[..., None] * (near @ near.mT)
            solution = (torch.linalg.solve(inner, targets)[:, None] @ near)[:, 0]
            colored: Tensor = torch.linalg.solve_triangular(self.root.T, solution.T, upper=True)
            return colored.T
        near = self.others[places]
        system, info = torch.linalg.cholesky_ex(self.shared + near.mT @ (diagonal[..., None] * near))
        if bool(info.any()):
            row = int(rows[int(info.argmax())])
            raise ValueError(
                f"ridge: expected a larger number: the system of {self.name} {row} is singular, got too little"
            )
        return torch.cholesky_solve((targets[:, None] @ near).mT, system)[..., 0]

    def approached(
        self, start: Tensor, share: float, places: Tensor, diagonal: Tensor, targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        """By conjugate gradients from ``start [b, k]``; and which rows reached the residual."""
        near = self.others[places]

        def product(u: Tensor) -> Tensor:
            inner = diagonal * (near @ u[..., None])[..., 0]
            return u @ self.shared + (inner[:, None] @ near)[:, 0]

        right = (targets[:, None] @ near)[:, 0]
        solution, rest = start.clone(), right - product(start)
        way, size = rest.clone(), rest.square().sum(-1)
        least = (share * right.norm(dim=-1)).square()
        for _ in range(4 * start.shape[1]):
            on = size > least
            if not bool(on.any()):
                break
            moved = product(way)
            length = torch.where(on, size / (way * moved).sum(-1), 0.0)[:, None]
            solution, rest = solution + length * way, rest - length * moved
            new = rest.square().sum(-1)
            way, size = rest + torch.where(on, new / size, 0.0)[:, None] * way, torch.where(on, new, size)
        return solution, (right - product(solution)).square().sum(-1) <= least
