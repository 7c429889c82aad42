"""Which bank rows a query may attend to: identity decides, never position or equality of vectors."""

import torch
from torch import Tensor


def _check_pair(name: str, of_queries: Tensor | None, of_bank: Tensor | None, shape: tuple[int, int]) -> None:
    if (of_queries is None) != (of_bank is None):
        missing = f"bank_{name}" if of_bank is None else f"query_{name}"
        raise ValueError(f"{missing}: expected {name} for both queries and bank or for neither, got only one of them")
    for side, given, rows in (("query", of_queries, shape[0]), ("bank", of_bank, shape[1])):
        if given is None:
            continue
        if not isinstance(given, Tensor):
            raise TypeError(f"{side}_{name}: expected a tensor, got {type(given).__name__}")
        if given.shape != (rows,):
            raise ValueError(f"{side}_{name}: expected shape ({rows},), got {tuple(given.shape)}")
        if given.is_floating_point():
            raise TypeError(f"{side}_{name}: expected integers, got {given.dtype}")


def check_keys(
    shape: tuple[int, int],
    query_ids: Tensor | None = None,
    bank_ids: Tensor | None = None,
    query_groups: Tensor | None = None,
    bank_groups: Tensor | None = None,
) -> list[tuple[Tensor, Tensor]]:
    """Check ids and groups as :func:`admissible` takes them, and give the pairs (of queries, of bank) that there are.

    Raises:
        TypeError: if one is no tensor of integers.
        ValueError: if only one side is given or a shape is wrong.
    """
    _check_pair("ids", query_ids, bank_ids, shape)
    _check_pair("groups", query_groups, bank_groups, shape)
    pairs = ((query_ids, bank_ids), (query_groups, bank_groups))
    return [(q, x) for q, x in pairs if q is not None and x is not None]


def admissible(
    shape: tuple[int, int],
    query_ids: Tensor | None = None,
    bank_ids: Tensor | None = None,
    query_groups: Tensor | None = None,
    bank_groups: Tensor | None = None,
) -> Tensor | None:
    """Where a query may attend to a bank row: neither its own id nor its own group.

    Args:
        shape: (b, N).
        query_ids: integers ``[b]``; a query attends to no bank row of its id.
        bank_ids: integers ``[N]``.
        query_groups: integers ``[b]``; nor to a bank row of its group (same patient, same house).
        bank_groups: integers ``[N]``.

    Returns:
        boolean ``[b, N]``, or None if neither ids nor groups are given: then every row is admissible.

    Raises:
        TypeError: if one is no tensor of integers.
        ValueError: if only one side is given or a shape is wrong.

    >>> ids = torch.tensor([4, 7])
    >>> admissible((2, 2), ids, ids)
    tensor([[False,  True],
            [ True, False]])
    """
    allowed: Tensor | None = None
    for of_queries, of_bank in check_keys(shape, query_ids, bank_ids, query_groups, bank_groups):
        apart = of_queries[:, None] != of_bank
        allowed = apart if allowed is None else allowed & apart
    return allowed


def check_some(allowed: Tensor | None, rows: int) -> None:
    """Check that each query has a bank row to attend to.

    Raises:
        ValueError: naming the first query that has none.
    """
    if allowed is None:
        if rows == 0:
            raise ValueError("bank: expected at least one row, got an empty bank")
        return
    lonely = ~allowed.any(dim=-1)
    if bool(lonely.any()):
        first = int(torch.nonzero(lonely)[0])
        raise ValueError(
            f"bank: expected a row of another id and group for every query, got none for query {first}; "
            "give it a larger bank, or leave that query out"
        )
