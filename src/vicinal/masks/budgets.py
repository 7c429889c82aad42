"""Masks of activations with one budget for a whole batch: mutual choice and feature choice of sparse autoencoders."""

import math

import torch
from torch import Tensor, nn

from vicinal.core.checks import check_between, check_integer, check_tensor


def _checked(activations: Tensor) -> Tensor:
    if check_tensor("activations", activations).ndim != 2 or not activations.is_floating_point():
        raise ValueError(f"activations: expected floating numbers [b, F], got {tuple(activations.shape)}")
    return activations.detach()


def mutual_choice(activations: Tensor, budget: int) -> Tensor:
    """The ``budget`` largest activations of a whole batch: rows that need more features get more.

    Args:
        activations: ``[b, F]``, >= 0; zeros are never chosen.
        budget: number of activations to keep in all, b times the mean per row; >= 0.

    Returns:
        boolean ``[b, F]``; among equal activations the first, by row and then by column. Multiply activations by it,
        and the gradient reaches the chosen ones only.

    >>> mutual_choice(torch.tensor([[3.0, 2.0], [1.0, 0.0]]), 2).tolist()
    [[True, True], [False, False]]
    """
    values = _checked(activations).flatten()
    chosen = values.argsort(descending=True, stable=True)[: check_integer("budget", budget, 0)]
    mask = torch.zeros_like(values, dtype=torch.bool).index_fill(0, chosen, value=True)
    return (mask & (values > 0)).view(activations.shape)


def feature_choice(activations: Tensor, budgets: Tensor) -> Tensor:
    """The largest activations of each feature, as many as its budget says: no feature is dead, and none floods.

    Args:
        activations: ``[b, F]``, >= 0; zeros are never chosen.
        budgets: whole numbers ``[F]``, 0 to b, such as :func:`zipf_budgets`.

    Returns:
        boolean ``[b, F]``; among equal activations those of the first rows.

    >>> feature_choice(torch.tensor([[3.0, 2.0], [1.0, 0.5]]), torch.tensor([1, 2])).tolist()
    [[True, True], [False, True]]
    """
    values = _checked(activations)
    if budgets.shape != values.shape[1:] or budgets.is_floating_point():
        raise ValueError(f"budgets: expected whole numbers [{values.shape[1]}], got {tuple(budgets.shape)}")
    if bool((budgets < 0).any()) or bool((budgets > len(values)).any()):
        raise ValueError(f"budgets: expected numbers from 0 to {len(values)} rows, got {budgets.tolist()[:5]}")
    rank = values.argsort(dim=0, descending=True, stable=True).argsort(dim=0)
    return (rank < budgets) & (values > 0)


def zipf_budgets(density: Tensor, total: int, *, rows: int, power: float = 1.0, shift: float = 2.0) -> Tensor:
    r"""Budgets of features by how often they were active, like the frequencies of words.

    $m_f \propto 1/(\mathrm{rank}_f + \beta)^a$, rounded so that they sum to a total.

    Args:
        density: ``[F]``, how often each feature was active; the most active has rank 0.
        total: the sum of the budgets, at most F times ``rows``.
        rows: size of the batch; no budget is larger.
        power: a >= 0; 0 gives all features the same.
        shift: $\beta > 0$.

    Returns:
        whole numbers ``[F]`` that sum to ``total``.

    >>> zipf_budgets(torch.tensor([0.1, 0.7, 0.2]), 6, rows=4)
    tensor([1, 3, 2])
    """
    check_integer("rows", rows), check_between("power", power, 0, math.inf, closed=True)
    check_between("shift", shift, 0, math.inf), check_integer("total", total, 0, len(density) * rows)
    by_rank = density.argsort(descending=True, stable=True)
    rank = by_rank.argsort()
    share = (rank.double() + shift) ** -power
    budgets = torch.zeros_like(rank)
    while (missing := total - int(budgets.sum())) > 0:  # what one feature cannot take goes to the others
        room = budgets < rows
        quota = torch.where(room, share, 0.0)
        quota = missing * quota / quota.sum()
        more = torch.minimum(quota.floor().long(), rows - budgets)
        if not bool(more.any()):
            more = torch.zeros_like(budgets).index_fill(0, by_rank[room[by_rank]][:missing], 1)
        budgets = budgets + more
    return budgets


class MutualChoice(nn.Module):
    """:func:`mutual_choice` in training; afterwards a threshold, so that rows no longer depend on one another.

    The threshold is a moving average of the smallest activation that was chosen. Reconstructed from memory of *Mutual
    Choice and Feature Choice*, arXiv:2411.02124; details may differ.

    Args:
        k: mean number of features of a row, >= 1.
        rate: of the moving average, in (0, 1].

    Attributes:
        threshold: a buffer, so checkpoints keep it; NaN before the first batch.

    >>> choose = MutualChoice(1)
    >>> choose(torch.tensor([[3.0, 2.0], [1.0, 0.0]]))
    tensor([[3., 2.],
            [0., 0.]])
    >>> choose.eval()(torch.tensor([[1.5, 2.5]]))
    tensor([[0.0000, 2.5000]])
    """

    def __init__(self, k: int, *, rate: float = 0.01) -> None:
        super().__init__()
        self.k, self.rate = check_integer("k", k), check_between("rate", rate, 0, 1 + 1e-12)
        self.threshold: Tensor = nn.Buffer(torch.tensor(math.nan))

    def forward(self, activations: Tensor) -> Tensor:
        """The chosen ones of ``activations [b, F]``, >= 0, and 0 for the rest."""
        if not self.training:
            if bool(self.threshold.isnan()):
                raise ValueError("activations: expected a batch in training first, which sets the threshold")
            return activations * (activations >= self.threshold)
        if self.k > activations.shape[-1]:
            raise ValueError(f"k: expected at most {activations.shape[-1]} features, got {self.k}")
        mask = mutual_choice(activations, self.k * len(activations))
        if bool(mask.any()):
            least = activations.detach()[mask].min().to(self.threshold.dtype)
            first = self.threshold.isnan()
            self.threshold.copy_(torch.where(first, least, torch.lerp(self.threshold, least, self.rate)))
        return activations * mask
