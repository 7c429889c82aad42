"""Terms of a loss, weighed and summed for each row, then reduced."""

from typing import NamedTuple, get_args

import torch
from torch import Tensor

from vicinal.core import Reduction, check_choice


class Part(NamedTuple):
    """Terms of a loss, summed for each row; most losses have one part, a few add two.

    Attributes:
        total: ``[b]``, the weighted sum of the terms of each row.
        number: ``[b]``, the sum of their weights.
        nonzero: ``[b]``, the sum of the weights of those that are not 0.
    """

    total: Tensor
    number: Tensor
    nonzero: Tensor


def row_products(one: Tensor, other: Tensor) -> Tensor:
    """Inner products of the rows, ``[b]``."""
    products: Tensor = torch.linalg.vecdot(one, other)
    return products


def some(weight: Tensor) -> Tensor:
    """Boolean ``[b]``: rows with a weight above 0."""
    if weight.shape[-1] == 0:
        return weight.sum(-1) > 0
    return weight.amax(-1) > 0


def pair_terms(terms: Tensor, weight: Tensor, *, count: bool = True) -> Part:
    """The part of ``terms [b, K]`` that count with ``weight [b, K]``; without ``count``, nonzero is not to be read."""
    number = weight.sum(-1)
    nonzero = row_products((terms.detach() != 0).to(weight.dtype), weight) if count else number
    return Part(row_products(terms, weight), number, nonzero)


def row_terms(values: Tensor, active: Tensor) -> Part:
    """The part of one term for each row, ``values [b]``, where ``active [b]``."""
    values = torch.where(active, values, 0.0)
    return Part(values, active.to(values.dtype), (values != 0).to(values.dtype))


def reduce_parts(parts: tuple[Part, ...], reduction: str = "mean") -> Tensor:
    """The sum of all parts, each reduced.

    Args:
        parts: at least one.
        reduction: "mean" over the terms of the part, weighted; "sum"; "none", the sum of the terms of each row,
            ``[b]``; "mean_nonzero", the mean over the terms that are not 0. The mean over no terms is 0.

    >>> part = pair_terms(torch.tensor([[0.0, 2.0], [4.0, 9.0]]), torch.tensor([[1.0, 1.0], [1.0, 0.0]]))
    >>> [reduce_parts((part,), way).tolist() for way in ("mean", "sum", "none", "mean_nonzero")]
    [2.0, 6.0, [2.0, 4.0], 3.0]
    """
    check_choice("reduction", reduction, get_args(Reduction))
    reduced = []
    for part in parts:
        if reduction == "none":
            reduced.append(part.total)
        elif reduction == "sum":
            reduced.append(part.total.sum())
        else:
            count = (part.number if reduction == "mean" else part.nonzero).sum()
            reduced.append(part.total.sum() / torch.where(count > 0, count, 1.0))
    return torch.stack(reduced).sum(0)
