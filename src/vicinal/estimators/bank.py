"""The bank: labelled rows with identity, which a neighbor model predicts from."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vicinal.core import nearest

Ids = np.ndarray[Any, Any]


def as_ids(name: str, values: Iterable[Any], rows: int) -> Ids:
    """Ids or groups of ``rows`` rows as int64, or as strings if any is not a whole number.

    Raises:
        ValueError: if one is missing or their number is wrong.
    """
    series = pd.Series(list(values), dtype=object)
    if len(series) != rows:
        raise ValueError(f"{name}: expected {rows}, one a row, got {len(series)}")
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


@dataclass
class Bank:
    """Rows that can be attended to; adding and removing gives a new bank and leaves this one as it is.

    Attributes:
        ids: ``[N]`` int64 or str, each once.
        vectors: embeddings ``[N, d]``, float32.
        labels: ``[N]`` float64: numbers, or positions of classes.
        rows: the table's columns of these rows, for explanations.
        groups: ``[N]`` int64 or str, or None.
    """

    ids: Ids
    vectors: Tensor
    labels: Tensor
    rows: pd.DataFrame
    groups: Ids | None = None

    def __post_init__(self) -> None:
        check_unique(self.ids)
        self._positions = {value: position for position, value in enumerate(self.ids.tolist())}
        names = [] if self.groups is None else list(dict.fromkeys(self.groups.tolist()))
        self._codes = {value: code for code, value in enumerate(names)}

    def __len__(self) -> int:
        return len(self.ids)

    def keys_of(self, ids: Ids | None) -> Tensor | None:
        """Numbers that stand for ``ids`` inside this bank: positions, and -1 for ids that it has not."""
        if ids is None:
            return None
        return torch.tensor([self._positions.get(value, -1) for value in ids.tolist()], dtype=torch.int64)

    def codes_of(self, groups: Ids | None) -> Tensor | None:
        """Numbers that stand for ``groups`` inside this bank, and -1 for groups that it has not."""
        if groups is None or self.groups is None:
            return None
        return torch.tensor([self._codes.get(value, -1) for value in groups.tolist()], dtype=torch.int64)

    def identity(self, ids: Ids | None, groups: Ids | None) -> dict[str, Tensor | None]:
        """Keyword arguments that tell a head which bank rows the queries with these ids and groups may not see."""
        query_ids, query_groups = self.keys_of(ids), self.codes_of(groups)
        return {
            "query_ids": query_ids,
            "bank_ids": None if query_ids is None else torch.arange(len(self)),
            "query_groups": query_groups,
            "bank_groups": None if query_groups is None else self.codes_of(self.groups),
        }

    def missing(self, ids: Sequence[Any]) -> list[Any]:
        """Those of ``ids`` that the bank has not."""
        return [value for value in ids if value not in self._positions]

    def take(self, positions: Ids) -> Self:
        """The bank of the rows at ``positions``, in that order."""
        kept = torch.from_numpy(np.asarray(positions, dtype=np.int64))
        return type(self)(
            ids=self.ids[positions],
            vectors=self.vectors[kept],
            labels=self.labels[kept],
            rows=self.rows.iloc[positions],
            groups=None if self.groups is None else self.groups[positions],
        )

    def without(self, ids: Iterable[Any]) -> Self:
        """The bank without the rows of these ids; ids that it has not are passed over."""
        gone = {self._positions[value] for value in ids if value in self._positions}
        return self.take(np.array([i for i in range(len(self)) if i not in gone], dtype=np.int64))

    def extended(self, other: Self) -> Self:
        """This bank with the rows of ``other`` behind its own.

        Raises:
            ValueError: if an id is in both, or only one of the two has groups.
        """
        taken = [value for value in other.ids.tolist() if value in self._positions]
        if taken:
            raise ValueError(f"ids: expected ids that the bank has not yet, got {taken[0]!r}, which it has")
        if (self.groups is None) != (other.groups is None):
            raise ValueError(
                f"groups: expected {'none, as the model was fitted without' if self.groups is None else 'one a row'}, "
                f"got {'none' if other.groups is None else 'some'}"
            )
        return type(self)(
            ids=_joined(self.ids, other.ids),
            vectors=torch.cat([self.vectors, other.vectors]),
            labels=torch.cat([self.labels, other.labels]),
            rows=pd.concat([self.rows, other.rows], ignore_index=True),
            groups=None if self.groups is None or other.groups is None else _joined(self.groups, other.groups),
        )


def check_known(bank: Bank, others: Bank, ids: Sequence[Any]) -> None:
    """Raise ValueError if one of ``ids`` is in neither bank, with the nearest that is."""
    lost = [value for value in bank.missing(ids) if value in set(others.missing(ids))]
    if lost:
        hint = nearest(str(lost[0]), map(str, bank.ids.tolist()))
        raise ValueError(f"ids: expected ids of rows that the model was given, got {lost[0]!r}{hint}")


def _joined(ours: Ids, theirs: Ids) -> Ids:
    if ours.dtype != theirs.dtype:
        kind = "whole numbers" if ours.dtype == np.int64 else "strings"
        raise ValueError(f"ids: expected {kind} as the bank has them, got {theirs[0]!r}")
    return np.concatenate([ours, theirs])
