"""Sums over the columns above a threshold, for many thresholds of a row at once, by sorting the row."""

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

_LOW = 0x7FFFFFFF


def sort_rows(values: Tensor) -> tuple[Tensor, Tensor]:
    """Values of each row from the lowest on, and where they stood; equal ones in the order of their columns.

    On a CPU, float32 is sorted as whole numbers that carry their place, by numpy: an order of magnitude quicker.

    >>> sort_rows(torch.tensor([[0.5, -1.0, 0.25]]))
    (tensor([[-1.0000,  0.2500,  0.5000]]), tensor([[1, 2, 0]]))
    """
    values = values.detach()
    if values.dtype != torch.float32 or values.device.type != "cpu":
        found = values.sort(dim=-1, stable=True)
        return found.values, found.indices
    bits = values.contiguous().numpy().view(numpy.int32)
    rising = numpy.right_shift(bits, 31)
    rising &= _LOW
    rising ^= bits  # negative floats fall as their bits rise
    keys = rising.astype(numpy.int64)
    keys <<= 32
    keys |= numpy.arange(values.shape[-1])
    keys.sort(axis=-1)
    keys &= 0xFFFFFFFF
    order = torch.from_numpy(keys)
    return values.gather(-1, order), order


def mean_ranks(rising: Tensor) -> Tensor:
    """Ranks of the values of each row, which rise, from 1 on; equal ones have the mean of theirs.

    >>> mean_ranks(torch.tensor([[0.5, 0.5, 2.0]]))
    tensor([[1.5000, 1.5000, 3.0000]])
    """
    columns = rising.shape[-1]
    rank = torch.arange(1, columns + 1, dtype=rising.dtype, device=rising.device).expand_as(rising)
    if rising.device.type == "cpu":
        ordered = rising.numpy()
        return _by_ties(ordered[:, 1:] == ordered[:, :-1], rank)
    change = rising[:, 1:] != rising[:, :-1]
    if bool(change.all()):
        return rank
    edge = change.new_ones(len(change), 1)
    first = torch.where(torch.cat([edge, change], dim=1), rank, 0.0).cummax(dim=-1).values
    last = torch.where(torch.cat([change, edge], dim=1), rank, torch.inf).flip(-1).cummin(dim=-1).values.flip(-1)
    return (first + last) / 2


def _by_ties(equal: NDArray[numpy.bool_], rank: Tensor) -> Tensor:
    """As :func:`mean_ranks`, from where neighbors are equal: ``rank`` changed only there, which are few places."""
    found = numpy.flatnonzero(equal)
    if not len(found):
        return rank
    row, place = numpy.divmod(found, equal.shape[1])
    tied = row * rank.shape[1] + place  # equal to the next one
    starts = numpy.diff(tied, prepend=-2) != 1
    run = starts.cumsum() - 1
    low, high = place[starts], place[numpy.append(starts[1:], True)] + 1
    mean = torch.from_numpy((low + high) / 2 + 1)[torch.from_numpy(run)].to(rank.dtype)
    made, where = rank.clone(), torch.from_numpy(tied)
    made.view(-1)[where] = mean
    made.view(-1)[where + 1] = mean
    return made


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
    rising, order = sort_rows(-scores)
    place = torch.searchsorted(rising, -thresholds.detach(), right=equal)  # how many columns lie above
    sorted_weight = weight.gather(1, order)
    mass = _prefix(sorted_weight)
    total = _prefix(sorted_weight * scores.gather(1, order))
    return mass.gather(1, place), total.gather(1, place)


def _prefix(values: Tensor) -> Tensor:
    """Sums of the first 0, 1, ..., N values of each row, ``[b, N + 1]``."""
    return torch.nn.functional.pad(values.cumsum(-1), (1, 0))
