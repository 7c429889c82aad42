"""Imputation of missing numbers in a table, so that random batches of its rows look alike."""

import itertools

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vicinal.core.checks import check_between, check_integer
from vicinal.core.seeding import seeded
from vicinal.transport import wasserstein


class _Coupling(nn.Module):
    """One half of the columns, scaled and shifted by a network of the other half; the scales multiply to 1."""

    def __init__(self, width: int, first: slice, hidden: int) -> None:
        super().__init__()
        self.moved = list(range(width))[first]
        self.read = [column for column in range(width) if column not in self.moved]
        self.network = nn.Sequential(
            nn.Linear(len(self.read), hidden), nn.SELU(), nn.Linear(hidden, 2 * len(self.moved))
        )
        nn.init.zeros_(self.network[-1].weight)  # type: ignore[arg-type]
        nn.init.zeros_(self.network[-1].bias)  # type: ignore[arg-type]

    def forward(self, rows: Tensor) -> Tensor:
        """``[b, d]``, by a map that is invertible and keeps volumes."""
        scale, shift = self.network(rows[:, self.read]).chunk(2, dim=1)
        scale = (scale - scale.mean(dim=1, keepdim=True)).tanh()
        changed = rows[:, self.moved] * (scale - scale.mean(dim=1, keepdim=True)).exp() + shift
        return rows.index_copy(1, torch.tensor(self.moved, device=rows.device), changed)


def impute_by_matching(
    table: NDArray[np.float64],
    *,
    couplings: int = 4,
    batch_size: int = 128,
    steps: int = 1000,
    learning_rate: float = 1e-2,
    transform_rate: float = 1e-3,
    seed: int = 0,
) -> NDArray[np.float64]:
    r"""Imputes missing numbers so that batches of rows are distributed alike (transformed distribution matching).

    Missing entries $\theta$ start at column means, with a little noise, and follow the gradient of $W_1(f(X_B),
    f(X_{B'}))$ over random batches, exact transport under Euclidean distances (:func:`vicinal.transport.wasserstein`).
    f is made of couplings that are trained along; they are invertible and keep volumes, so f cannot pull all rows
    together. Columns are standardized first.

    All rows of one table are imputed together; rows that come later cannot be imputed one by one.

    Args:
        table: ``[n, d]``, NaN where a number is missing; at least one number in each column, and n >= 4.
        couplings: their number in f; 0: no transformation. With one column there is none.
        batch_size: most rows of a batch; it is lowered to n / 2 if that is less, and to a power of two.
        steps: >= 1.
        learning_rate: of the entries, > 0.
        transform_rate: of f, > 0.
        seed: of batches, noise and f.

    Returns:
        ``[n, d]``: the given numbers, unchanged, and the missing ones, imputed.

    Raises:
        ValueError: for a column without numbers, or infinite numbers.

    Paper: Transformed Distribution Matching for Missing Value Imputation, arXiv:2302.10363.

    >>> x = np.random.default_rng(0).normal(size=(40, 1)) * [1, 2]
    >>> x[3, 1] = np.nan
    >>> bool(abs(impute_by_matching(x, steps=100)[3, 1] - 2 * x[3, 0]) < abs(np.nanmean(x[:, 1]) - 2 * x[3, 0]))
    True
    """
    values = np.array(table, dtype=np.float64)
    if values.ndim != 2 or len(values) < 4:
        raise ValueError(f"table: expected [n, d] with n of at least 4, got {values.shape}")
    missing = np.isnan(values)
    if np.isinf(values).any() or missing.all(axis=0).any():
        raise ValueError("table: expected finite numbers, at least one in each column, got others")
    check_between("learning_rate", learning_rate, 0, np.inf)
    check_between("transform_rate", transform_rate, 0, np.inf)
    check_integer("couplings", couplings, 0)
    check_integer("steps", steps)
    size = 1 << (min(check_integer("batch_size", batch_size, 2), len(values) // 2).bit_length() - 1)
    if not missing.any():
        return values
    mean, deviation = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
    deviation[deviation == 0] = 1.0
    rows = torch.from_numpy(np.where(missing, 0.0, (values - mean) / deviation))
    generator = torch.Generator().manual_seed(seed)
    places = torch.from_numpy(missing)
    entries = (0.1 * torch.randn(int(missing.sum()), generator=generator, dtype=torch.float64)).requires_grad_()
    width = values.shape[1]  # couplings move the first and the second half of the columns in turn
    halves = itertools.cycle([slice(width // 2, None), slice(None, width // 2)])
    with seeded(seed):
        moves = [_Coupling(width, next(halves), 2 * width) for _ in range(couplings if width > 1 else 0)]
    transform = nn.Sequential(*moves).double()
    groups = [{"params": [entries], "lr": learning_rate}]
    groups += [{"params": list(transform.parameters()), "lr": transform_rate}] if len(transform) else []
    optimizer = torch.optim.RMSprop(groups)
    for _ in range(steps):
        full = rows.masked_scatter(places, entries)
        batches = torch.randperm(len(rows), generator=generator)[: 2 * size].view(2, size)
        optimizer.zero_grad()
        wasserstein(transform(full[batches[0]]), transform(full[batches[1]])).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    full = rows.masked_scatter(places, entries.detach()).numpy() * deviation + mean
    return np.where(missing, full, values)
