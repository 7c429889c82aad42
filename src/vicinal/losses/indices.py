"""Pairs by tuples of row numbers, as pytorch-metric-learning has them, and as weights and relations ``[b, N]``.

Theirs are ``(anchor, positive, anchor, negative)`` or ``(anchor, positive, negative)``.
"""

import torch
from torch import Tensor

Indices = tuple[Tensor, ...]


def weight_of_indices(indices: Indices, rows: int, columns: int) -> Tensor:
    """The weight ``[rows, columns]`` that is 1 for each pair that ``indices`` name.

    Args:
        indices: four tensors (anchors, positives, anchors, negatives), or three (anchors, positives, negatives).
        rows: b.
        columns: N.

    >>> weight_of_indices((torch.tensor([0]), torch.tensor([1]), torch.tensor([2])), 3, 3)
    tensor([[0., 1., 1.],
            [0., 0., 0.],
            [0., 0., 0.]])
    """
    if len(indices) not in (3, 4):
        raise ValueError(f"indices_tuple: expected three or four tensors, got {len(indices)}")
    first, positive, *rest = indices
    second, negative = (first, rest[0]) if len(rest) == 1 else rest
    weight = torch.zeros(rows, columns, device=first.device)
    weight[first.long(), positive.long()] = 1
    weight[second.long(), negative.long()] = 1
    return weight


def indices_of_weight(weight: Tensor, relation: Tensor) -> Indices:
    """The pairs of weight above 0 as (anchors, positives, anchors, negatives).

    >>> [i.tolist() for i in indices_of_weight(torch.tensor([[0.0, 1, 1]]), torch.tensor([[1.0, 1, 0]]))]
    [[0], [1], [0], [2]]
    """
    kept, related = weight > 0, relation > 0
    return (*torch.where(kept & related), *torch.where(kept & ~related))


def class_codes(relation: Tensor) -> tuple[Tensor, Tensor]:
    """Class numbers of rows ``[b]`` and of columns ``[N]`` that have this relation.

    Raises:
        ValueError: if the relation is not that of classes: some row is related to parts of two.

    >>> [codes.tolist() for codes in class_codes(torch.tensor([[1.0, 0, 1], [0, 1, 0]]))]
    [[0, 1], [0, 1, 0]]
    """
    related = relation > 0
    rows, columns = related.shape
    place = torch.arange(columns, device=relation.device)
    of_rows = torch.where(related, place, columns).amin(-1) if columns else place.new_zeros(rows)
    lonely = ~related.any(-1)
    of_rows = torch.where(lonely, columns + torch.arange(rows, device=relation.device), of_rows)
    first = torch.where(related, of_rows[:, None], columns + rows).amin(0) if rows else place
    of_columns = torch.where(related.any(0), first, columns + rows + place)
    if not torch.equal(of_rows[:, None] == of_columns, related) or bool(((relation != 0) & (relation != 1)).any()):
        raise ValueError("relation: expected 0 and 1 of classes, which pytorch-metric-learning compares, got another")
    return of_rows, of_columns
