"""Relations that are listed or graded, and the weight that leaves a row's own self out."""

import torch
from torch import Tensor

from vicinal.relation.checks import as_relation, check_blocks, check_whole


def other_rows(ids: Tensor, bank_ids: Tensor) -> Tensor:
    r"""The weight $w_{ij} = 1$ where the bank row is another thing than the query, 0 where it is the query itself.

    Identity decides, not position or equality of vectors: a copy of a row in a bank carries the id of that row.

    Args:
        ids: whole numbers ``[b]``.
        bank_ids: whole numbers ``[N]``.

    Returns:
        ``[b, N]``, 0 or 1.

    >>> other_rows(torch.tensor([4, 7]), torch.tensor([7, 4, 9]))
    tensor([[1., 0., 1.],
            [0., 1., 1.]])
    """
    check_blocks("ids", ids, bank_ids, (1,))
    check_whole("ids", ids)
    check_whole("bank_ids", bank_ids)
    return as_relation(ids[:, None] != bank_ids)


def from_pairs(
    pairs: Tensor, ids: Tensor, bank_ids: Tensor, *, grades: Tensor | None = None, symmetric: bool = True
) -> Tensor:
    r"""$r_{ij}$ = the grade of the pair of ids (i, j) where it is listed, else 0.

    Args:
        pairs: whole numbers ``[P, 2]``, the ids of what is related.
        ids: whole numbers ``[b]``.
        bank_ids: whole numbers ``[N]``.
        grades: ``[P]``, how related each pair is; None: 1 each. For a pair listed twice the highest grade counts.
        symmetric: a pair (i, j) also means that j is related to i.

    Returns:
        ``[b, N]``.

    >>> from_pairs(torch.tensor([[5, 9]]), torch.tensor([9, 5]), torch.tensor([5, 9, 1]))
    tensor([[1., 0., 0.],
            [0., 1., 0.]])
    """
    check_blocks("ids", ids, bank_ids, (1,))
    for name, value in (("pairs", pairs), ("ids", ids), ("bank_ids", bank_ids)):
        check_whole(name, value)
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise ValueError(f"pairs: expected [P, 2], two ids a pair, got shape {tuple(pairs.shape)}")
    if grades is None:
        grades = torch.ones(len(pairs), dtype=torch.get_default_dtype(), device=pairs.device)
    if grades.shape != (len(pairs),):
        raise ValueError(f"grades: expected one for each of the {len(pairs)} pairs, got shape {tuple(grades.shape)}")
    if symmetric:
        pairs, grades = torch.cat([pairs, pairs.flip(1)]), torch.cat([grades, grades])
    row, column = (ids[:, None] == pairs[:, 0]), (bank_ids[:, None] == pairs[:, 1])  # [b, P], [N, P]
    of_row, pair = row.nonzero(as_tuple=True)
    entry, of_column = column.T[pair].nonzero(as_tuple=True)
    place = of_row[entry] * len(bank_ids) + of_column
    flat = grades.new_zeros(len(ids) * len(bank_ids))
    return flat.scatter_reduce(0, place, grades[pair[entry]], "amax").view(len(ids), len(bank_ids))


def graded(labels: Tensor, bank_labels: Tensor, table: Tensor) -> Tensor:
    r"""$r_{ij} = T[y_i, y_j]$: how related classes are, from a table (a hierarchy, a confusion, grades of relevance).

    Args:
        labels: whole numbers ``[b]``, rows of the table.
        bank_labels: whole numbers ``[N]``, columns of the table.
        table: ``[C, D]``.

    Returns:
        ``[b, N]``.

    >>> graded(torch.tensor([0]), torch.tensor([0, 1]), torch.tensor([[1.0, 0.5], [0.5, 1.0]]))
    tensor([[1.0000, 0.5000]])
    """
    check_blocks("labels", labels, bank_labels, (1,))
    check_whole("labels", labels)
    check_whole("bank_labels", bank_labels)
    if table.ndim != 2:
        raise ValueError(f"table: expected [C, D], a grade for each pair of classes, got shape {tuple(table.shape)}")
    return table[labels[:, None].long(), bank_labels.long()]
