"""Which bank rows a query may attend to: identity decides, never position or equality of vectors."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypedDict
from weakref import WeakSet

import torch
from torch import Tensor, nn

from vicinal.core.identity import warn_of_identity

_WARNED: WeakSet[nn.Module] = WeakSet()
"""Heads that have warned that queries are their own bank."""


def _check_pair(name: str, of_queries: Tensor | None, of_bank: Tensor | None, shape: tuple[int, int]) -> None:
    if (of_queries is None) != (of_bank is None):
        missing = f"bank_{name}" if of_bank is None else f"query_{name}"
        raise ValueError(f"{missing}: expected {name} for both queries and bank or for neither, got only one of them")
    for side, values, rows in (("query", of_queries, shape[0]), ("bank", of_bank, shape[1])):
        if values is None:
            continue
        if not isinstance(values, Tensor):
            raise TypeError(f"{side}_{name}: expected a tensor, got {type(values).__name__}")
        if values.shape != (rows,):
            raise ValueError(f"{side}_{name}: expected shape ({rows},), got {tuple(values.shape)}")
        if values.is_floating_point():
            raise TypeError(f"{side}_{name}: expected integers, got {values.dtype}")


class IdentityArguments(TypedDict, total=False):
    """The fields of :class:`Identity`, as heads take them by name: ``**identity``."""

    query_ids: Tensor | None
    bank_ids: Tensor | None
    query_groups: Tensor | None
    bank_groups: Tensor | None
    bank_weight: Tensor | None


class Identity(NamedTuple):
    """Who is who: ids and groups of queries and bank rows, each None if there are none; see :func:`admissible`.

    ``bank_weight [N]`` says how many equal rows each row of the bank counts as; None: one.
    """

    query_ids: Tensor | None = None
    bank_ids: Tensor | None = None
    query_groups: Tensor | None = None
    bank_groups: Tensor | None = None
    bank_weight: Tensor | None = None

    def allowed(self, queries: int, rows: int) -> Tensor | None:
        """Which bank rows each query may attend to ``[b, N]``: see :func:`admissible`."""
        return admissible((queries, rows), *self[:4])

    def by_name(self) -> dict[str, Tensor | None]:
        """Its fields, as heads take them."""
        return self._asdict()

    def keys(self, queries: int, rows: int) -> list[tuple[Tensor, Tensor]]:
        """The pairs (of queries, of bank) that there are, checked.

        Raises:
            TypeError: if one of them is not an integer tensor.
            ValueError: if only one side is given or a shape is wrong.
        """
        _check_pair("ids", self.query_ids, self.bank_ids, (queries, rows))
        _check_pair("groups", self.query_groups, self.bank_groups, (queries, rows))
        pairs = ((self.query_ids, self.bank_ids), (self.query_groups, self.bank_groups))
        return [(q, x) for q, x in pairs if q is not None and x is not None]


def own_bank(ids: Tensor, groups: Tensor | None, weight: Tensor | None) -> Identity:
    """Of rows ``[n]`` that are their own bank."""
    return Identity(ids, ids, groups, groups, weight)


def of_queries_in(part: slice | Tensor, identity: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an :class:`Identity` for the queries in a slice, or at places."""
    return {name: v if v is None or name.startswith("bank") else v[part] for name, v in identity.items()}


def admissible(
    shape: tuple[int, int],
    query_ids: Tensor | None = None,
    bank_ids: Tensor | None = None,
    query_groups: Tensor | None = None,
    bank_groups: Tensor | None = None,
) -> Tensor | None:
    """Where a query may attend to a bank row: not to its own id, and not to its own group.

    Args:
        shape: (b, N).
        query_ids: integers ``[b]``; a query never attends to a bank row with its own id.
        bank_ids: integers ``[N]``.
        query_groups: integers ``[b]``; nor to a bank row of its own group (same patient, same house).
        bank_groups: integers ``[N]``.

    Returns:
        boolean ``[b, N]``, or None if neither ids nor groups are given: then every row is admissible.

    Raises:
        TypeError: if one of them is not an integer tensor.
        ValueError: if only one side is given or a shape is wrong.

    >>> ids = torch.tensor([4, 7])
    >>> admissible((2, 2), ids, ids)
    tensor([[False,  True],
            [ True, False]])
    """
    allowed: Tensor | None = None
    for of_queries, of_bank in Identity(query_ids, bank_ids, query_groups, bank_groups).keys(*shape):
        apart = of_queries[:, None] != of_bank
        allowed = apart if allowed is None else allowed & apart
    return allowed


def check_bank_weight(weight: Tensor | None, rows: int) -> None:
    """Check that ``weight`` is floating ``[rows]``, or None; its values are checked where users give them."""
    if weight is None:
        return
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        raise TypeError(f"bank_weight: expected a floating tensor, got {getattr(weight, 'dtype', type(weight))}")
    if weight.shape != (rows,):
        raise ValueError(f"bank_weight: expected shape ({rows},), got {tuple(weight.shape)}")


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


def warn_of_own_bank(head: nn.Module, queries: Tensor, bank: Tensor, *identity: Tensor | None) -> None:
    """Warn, once a head, that queries are rows of their own bank and neither ids nor groups say so."""
    if torch.compiler.is_compiling() or head in _WARNED or any(values is not None for values in identity):
        return
    if shares_rows(queries, bank):
        _WARNED.update(head.modules())
        warn_of_identity(
            "query_ids: expected ids where queries are rows of their own bank, got none, so each is predicted from its "
            "own label; give query_ids= and bank_ids=, for a batch against itself torch.arange(len(bank)) as both"
        )


def shares_rows(queries: Tensor, bank: Tensor) -> bool:
    """Whether a row of ``queries [b, d]`` and one of ``bank [N, d]`` are the same memory: one tensor, or views of one.

    >>> rows = torch.randn(10, 3)
    >>> shares_rows(rows[2:4], rows), shares_rows(rows[:5], rows[5:]), shares_rows(rows[::2], rows[1::2])
    (True, False, False)
    """
    if queries is bank:
        return len(bank) > 0
    if queries.dtype != bank.dtype or (queries.shape[1] > 1 and queries.stride(1) != bank.stride(1)):
        return False
    if any(type(rows) not in (Tensor, nn.Parameter) or rows.is_meta for rows in (queries, bank)):
        return False  # without memory of their own, as those that torch traces with
    first, other = _row_starts(queries), _row_starts(bank)
    apart = not (len(first) and len(other)) or first[-1] < other[0] or other[-1] < first[0]
    return not apart and any(start in other for start in first)


def _row_starts(rows: Tensor) -> range:
    """Where in memory each of ``rows [n, d]`` begins; one place if they are all one."""
    step = rows.stride(0) * rows.element_size()
    count = min(len(rows), 1) if step == 0 else len(rows)
    return range(rows.data_ptr(), rows.data_ptr() + count * max(step, 1), max(step, 1))
