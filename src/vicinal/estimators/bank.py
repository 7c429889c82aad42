"""The bank: labelled rows with identity, which a neighbor model predicts from."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vicinal.core import nearest
from vicinal.index import NeighborBank

Ids = np.ndarray[Any, Any]

_SHOWN = 10_000
"""Ids among which the nearest to one that is not there is looked for."""


def as_ids(name: str, values: Iterable[Any], rows: int) -> Ids:
    """Ids or groups of ``rows`` rows as int64, or as strings if any is not a whole number.

    Raises:
        ValueError: if one is missing or their number is wrong.
    """
    if isinstance(values, range):
        values = np.arange(values.start, values.stop, values.step)
    whole = isinstance(values, np.ndarray) and values.dtype.kind in "iu" and values.ndim == 1
    series = pd.Series(values if whole else list(values), dtype=None if whole else object)
    if len(series) != rows:
        raise ValueError(f"{name}: expected {rows}, one a row, got {len(series)}")
    if whole:
        return series.to_numpy(dtype=np.int64)
    if series.isna().any():
        raise ValueError(f"{name}: expected one for every row, got none in row {int(series.isna().argmax())}")
    if all(isinstance(value, int | np.integer) and not isinstance(value, bool) for value in series):
        return series.astype("int64").to_numpy()
    return series.astype(str).to_numpy(dtype=object)


def check_unique(ids: Ids) -> None:
    """Raise ValueError naming an id that stands twice."""
    repeated = pd.Series(ids).duplicated()
    if repeated.any():
        first = ids[int(repeated.argmax())].item() if ids.dtype == np.int64 else ids[int(repeated.argmax())]
        count = int((pd.Series(ids) == first).sum())
        raise ValueError(f"ids: expected each id once, got {first!r} {count} times")


class Bank:
    """Rows that can be attended to, in the words of the estimators, over a :class:`vicinal.index.NeighborBank`.

    Adding and removing changes it. Removing moves the last rows into the holes, so positions change, ids do not.

    Args:
        ids: ``[N]`` int64 or str, each once.
        vectors: embeddings ``[N, d]``; kept in float32.
        labels: ``[N]``: numbers, or positions of classes; kept in float64.
        rows: the table's columns of these rows, for explanations.
        groups: ``[N]`` int64 or str, or None.

    Attributes:
        store: what holds the rows.
    """

    def __init__(
        self, ids: Ids, vectors: Tensor, labels: Tensor, rows: pd.DataFrame, groups: Ids | None = None
    ) -> None:
        self.store = NeighborBank(vectors.shape[1])
        self.add(ids, vectors, labels, rows, groups)

    @classmethod
    def over(cls, store: NeighborBank) -> Self:
        """The bank whose rows ``store`` holds."""
        made = cls.__new__(cls)
        made.store = store
        return made

    @classmethod
    def load(cls, folder: Path, *, verify: bool) -> Self:
        """See :meth:`vicinal.index.NeighborBank.load`."""
        return cls.over(NeighborBank.load(folder, verify=verify))

    def __len__(self) -> int:
        return len(self.store)

    @property
    def ids(self) -> Ids:
        """``[N]`` int64 or str, each once."""
        return self.store.ids

    @property
    def vectors(self) -> Tensor:
        """Embeddings ``[N, d]``, float32; read only."""
        return self.store.vectors

    @property
    def labels(self) -> Tensor:
        """``[N]`` float64: numbers, or positions of classes; read only."""
        labels = self.store.labels
        return torch.zeros(0, dtype=torch.float64) if labels is None else labels

    @property
    def rows(self) -> pd.DataFrame:
        """A copy of the table's columns of these rows."""
        rows = self.store.rows
        return pd.DataFrame() if rows is None else rows

    @property
    def groups(self) -> Ids | None:
        """``[N]`` int64 or str, or None."""
        return self.store.groups

    def keys_of(self, ids: Ids | None) -> Tensor | None:
        """Numbers that stand for ``ids`` inside this bank: positions, and -1 for None and ids that it has not."""
        if ids is None:
            return None
        found = torch.full((len(ids),), -1)
        if np.asarray(ids).dtype != object:
            return self.store.positions(ids) if len(self) else found
        known = np.flatnonzero([value is not None for value in ids])
        if len(self) and len(known):
            found[torch.from_numpy(known)] = self.store.positions([ids[i] for i in known])
        return found

    def codes_of(self, groups: Ids | None) -> Tensor | None:
        """Numbers that stand for ``groups`` inside this bank, and others or -1 for groups that it has not."""
        if groups is None or self.store.group_codes is None:
            return None
        return self.store.codes_of_groups(groups)

    def identity(self, ids: Ids | None, groups: Ids | None) -> dict[str, Tensor | None]:
        """Keyword arguments that tell a head which bank rows the queries with these ids and groups may not see."""
        query_ids, query_groups = self.keys_of(ids), self.codes_of(groups)
        return {
            "query_ids": query_ids,
            "bank_ids": None if query_ids is None else torch.arange(len(self)),
            "query_groups": query_groups,
            "bank_groups": None if query_groups is None else self.store.group_codes,
        }

    def missing(self, ids: Sequence[Any]) -> list[Any]:
        """Those of ``ids`` that the bank has not."""
        found = self.keys_of(np.array([*ids, None], dtype=object))
        return [] if found is None else [ids[i] for i in (found[:-1] < 0).nonzero()[:, 0].tolist()]

    def take(self, positions: Ids) -> Self:
        """A bank of its own of the rows at ``positions``, in that order."""
        at = torch.from_numpy(np.asarray(positions, dtype=np.int64))
        store, made = self.store, NeighborBank(self.store.dim, storage=self.store.storage, exact=self.store.exact)
        groups = store.groups
        made.add(
            store.ids_of_keys(store.keys[at]),
            store.vectors_at(at),
            store.labels_at(at),
            groups=None if groups is None else groups[positions],
            rows=store.rows_at(at),
        )
        return self.over(made)

    def add(self, ids: Ids, vectors: Tensor, labels: Tensor, rows: pd.DataFrame, groups: Ids | None = None) -> Tensor:
        """Put rows in, all or none.

        Returns:
            their keys ``[n]``, which stand for them in an index.

        Raises:
            ValueError: if an id is in the bank already, or only one of the two has groups.
        """
        before = len(self)
        if len(ids) and before:
            self.store.reserve(before + len(ids))
        self.store.add(ids, vectors, labels.double(), groups=groups, rows=rows)
        return self.store.keys[before:].clone()

    def remove(self, ids: Iterable[Any]) -> Tensor:
        """Take out the rows of these ids; ids that the bank has not are passed over.

        Returns:
            the keys ``[n]`` that stood for them.
        """
        listed = list(dict.fromkeys(ids))
        lost = set(self.missing(listed))
        gone = [value for value in listed if value not in lost]
        keys = self.store.keys[self.store.positions(gone)].clone() if gone else torch.zeros(0, dtype=torch.int64)
        self.store.remove(gone)
        return keys


def check_known(bank: Bank, others: Bank, ids: Sequence[Any]) -> None:
    """Raise ValueError if one of ``ids`` is in neither bank, with the nearest that is."""
    lost = [value for value in bank.missing(ids) if value in set(others.missing(ids))]
    if lost:
        hint = nearest(str(lost[0]), map(str, bank.ids[:_SHOWN].tolist()))
        raise ValueError(f"ids: expected ids of rows that the model was given, got {lost[0]!r}{hint}")
