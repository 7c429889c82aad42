"""Sums over the columns above a threshold, for many thresholds of a row at once, by sorting the row."""

import torch
from torch import Tensor


def above(scores: Tensor, weight: Tensor, thresholds: Tensor, *, equal: bool = False) -> tuple[Tensor, Tensor]:
    r"""For each threshold t of a row: $\sum_{s_j > t} w_j$ and $\sum_{s_j > t} w_j s_j$.

    Args:
        scores: ``[b, N]``.
        weight: ``[b, N]``, >= 0.
        thresholds: ``[b, M]``; they pass no gradient, and neither need they: a column at the threshold adds nothing
            to a hinge.
        equal: whether columns at the threshold count.

    Returns:
        two times ``[b, M]``, in time of N log N a row and memory of a few such matrices.

    >>> above(torch.tensor([[1.0, 3.0, 2.0]]), torch.ones(1, 3), torch.tensor([[1.0, 2.5]]))
    (tensor([[2., 1.]]), tensor([[5., 3.]]))
    """
    falling, order = scores.detach().sort(dim=-1, descending=True)
    place = torch.searchsorted(-falling, -thresholds.detach(), right=equal)  # how many columns lie above
    sorted_weight = weight.gather(1, order)
    mass = _prefix(sorted_weight)
    total = _prefix(sorted_weight * scores.gather(1, order))
    return mass.gather(1, place), total.gather(1, place)


def _prefix(values: Tensor) -> Tensor:
    """Sums of the first 0, 1, ..., N values of each row, ``[b, N + 1]``."""
    return torch.nn.functional.pad(values.cumsum(-1), (1, 0))
