"""Ids of rows: their forms, and where the row of an id stands."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from torch import Tensor

Array = np.ndarray[Any, Any]


def whole_ids(name: str, ids: Tensor | Array | Iterable[int]) -> Array:
    """``ids`` as int64 ``[n]``, whole numbers of at least 0.

    >>> whole_ids("ids", range(3))
    array([0, 1, 2])
    """
    if isinstance(ids, Tensor):
        ids = ids.detach().cpu().numpy()
    elif not isinstance(ids, np.ndarray):
        listed = list(ids)
        ids = np.asarray(listed) if listed else np.zeros(0, dtype=np.int64)
    if ids.ndim != 1:
        raise ValueError(f"{name}: expected a list of ids [n], got shape {ids.shape}")
    if ids.dtype.kind not in "iu":
        raise TypeError(f"{name}: expected whole numbers, got {ids.dtype}")
    made = ids.astype(np.int64)
    if len(made) and made.min() < 0:
        raise ValueError(f"{name}: expected whole numbers of at least 0, got {int(made.min())}")
    return made


def check_distinct(ids: Array) -> Array:
    """``ids`` if each is there once.

    >>> check_distinct(np.array([4, 7, 4]))
    Traceback (most recent call last):
    ValueError: ids: expected each id once, got 4 twice or more
    """
    if len(ids) > 1:
        ranked = np.sort(ids)
        again = ranked[1:] == ranked[:-1]
        if again.any():
            raise ValueError(f"ids: expected each id once, got {shown(ranked[1:][again])} twice or more")
    return ids


def shown(ids: Array) -> str:
    """The first of ``ids`` as an error names it, and how many others there are."""
    first = ids[0].item() if isinstance(ids[0], np.generic) else ids[0]
    return f"{first!r}" if len(ids) == 1 else f"{first!r} and {len(ids) - 1} more"


class Places:
    """Where the row of each id stands: a sorted array, 16 bytes a row, searched by halving.

    A change costs one pass over the array (some 10 ms for a million rows), whatever number of ids it is about.

    Args:
        ids: ``[N]`` int64, each once; the row of ``ids[i]`` stands at ``i``.
    """

    def __init__(self, ids: Array) -> None:
        self._places = np.argsort(ids, kind="stable")
        self._ids = ids[self._places]

    def __len__(self) -> int:
        return len(self._ids)

    def of(self, ids: Array) -> Array:
        """Places ``[n]`` of the rows of ``ids``, -1 for ids that are not there."""
        slots, there = self._slots(ids)
        return np.where(there, self._places[slots], -1) if len(self) else np.full(len(ids), -1, dtype=np.int64)

    def has(self, ids: Array) -> Array:
        """Which of ``ids [n]`` are there."""
        return self._slots(ids)[1]

    def add(self, ids: Array, places: Array) -> None:
        """Ids that are not there yet, and where their rows stand."""
        order = np.argsort(ids, kind="stable")
        slots = np.searchsorted(self._ids, ids[order])
        self._ids = np.insert(self._ids, slots, ids[order])
        self._places = np.insert(self._places, slots, places[order])

    def drop(self, ids: Array) -> None:
        """Ids that are there."""
        slots, _ = self._slots(ids)
        self._ids, self._places = np.delete(self._ids, slots), np.delete(self._places, slots)

    def move(self, ids: Array, places: Array) -> None:
        """New places of ids that are there."""
        slots, _ = self._slots(ids)
        self._places[slots] = places

    def _slots(self, ids: Array) -> tuple[Array, Array]:
        if len(self) == 0:
            return np.zeros(len(ids), dtype=np.int64), np.zeros(len(ids), dtype=bool)
        slots = np.searchsorted(self._ids, ids)
        slots[slots == len(self)] = 0
        return slots, self._ids[slots] == ids
