"""Columns of equal length that grow and shrink without a copy of what is already there."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_SLACK = 1024
"""Rows for which room is made at least; room that is not used costs no memory."""


@dataclass
class _Part:
    """Rows in one stretch of memory, or of a mapped file: arrays of ``capacity`` rows, ``used`` of them taken."""

    arrays: dict[str, Array]
    capacity: int
    used: int = 0


class Columns:
    """Named columns of one length, held in parts.

    New rows go into the room of the last part, or into a new part with room for an eighth more than there are rows;
    nothing is moved. Rows are removed by moving the last ones into the holes, so positions change.

    Args:
        mapped: arrays of one length to begin with, as memory-mapped files give them; they are written to, so map them
            copy-on-write.
    """

    def __init__(self, mapped: Mapping[str, Array] | None = None) -> None:
        self._parts: list[_Part] = []
        self._reserved = 0
        if mapped:
            rows = len(next(iter(mapped.values())))
            if rows:
                self._parts.append(_Part(dict(mapped), rows, rows))

    def __len__(self) -> int:
        return sum(part.used for part in self._parts)

    def __getstate__(self) -> dict[str, Array]:
        """The rows that are there, for pickle and copy; what is left of others in memory is not among them."""
        return {name: self.whole(name).copy() for name in self.names}

    def __setstate__(self, state: dict[str, Array]) -> None:
        Columns.__init__(self, state)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns; none before there are rows."""
        return tuple(self._parts[0].arrays) if self._parts else ()

    def append(self, columns: Mapping[str, Array]) -> None:
        """Rows behind the last; every column has the same rows."""
        rows = len(next(iter(columns.values())))
        room = self._parts[-1].capacity - self._parts[-1].used if self._parts else 0
        if self._parts:
            self._fill(self._parts[-1], {name: values[:room] for name, values in columns.items()})
        if rows > room:
            rest = {name: values[room:] for name, values in columns.items()}
            capacity = max(rows - room + max(_SLACK, (len(self) + rows) // 8), self._reserved - len(self))
            arrays = {name: np.empty((capacity, *v.shape[1:]), dtype=v.dtype) for name, v in rest.items()}
            self._parts.append(_Part(arrays, capacity))
            self._fill(self._parts[-1], rest)

    def reserve(self, rows: int) -> None:
        """Room for ``rows`` rows in one part; if rows have to be moved there, for an eighth more, to do so seldom."""
        self._reserved = rows
        if not self._parts or (len(self._parts) == 1 and self._parts[0].capacity >= rows):
            return
        count = len(self)
        capacity = max(rows, count) + max(rows, count) // 8
        moved = {}
        for name in self.names:
            first = self._parts[0].arrays[name]
            made = np.empty((capacity, *first.shape[1:]), dtype=first.dtype)
            for start, piece in self.pieces(name):
                made[start : start + len(piece)] = piece
            moved[name] = made
            del first, piece
            for part in self._parts:
                del part.arrays[name]
        self._parts = [_Part(moved, capacity, count)]

    @staticmethod
    def _fill(part: _Part, columns: Mapping[str, Array]) -> None:
        rows = len(next(iter(columns.values())))
        for name, values in columns.items():
            part.arrays[name][part.used : part.used + rows] = values
        part.used += rows

    def take(self, name: str, positions: Array) -> Array:
        """A copy of the rows of one column at ``positions [n]``."""
        if len(self._parts) == 1:
            return self._parts[0].arrays[name][positions]
        first = self._parts[0].arrays[name]
        made = np.empty((len(positions), *first.shape[1:]), dtype=first.dtype)
        for part, inside, local in self._split(positions):
            made[inside] = part.arrays[name][local]
        return made

    def put(self, positions: Array, columns: Mapping[str, Array]) -> None:
        """Write rows of some columns at ``positions [n]``."""
        for part, inside, local in self._split(positions):
            for name, values in columns.items():
                part.arrays[name][local] = values[inside]

    def remove(self, positions: Array) -> tuple[Array, Array]:
        """Remove the rows at ``positions``, each once.

        Returns:
            where the rows stood that filled the holes, and where they stand now.
        """
        left = len(self) - len(positions)
        holes = np.sort(positions[positions < left])
        kept = np.ones(len(positions), dtype=bool)
        kept[positions[positions >= left] - left] = False
        movers = left + np.flatnonzero(kept)
        if len(holes):
            self.put(holes, {name: self.take(name, movers) for name in self._parts[0].arrays})
        surplus = len(positions)
        while surplus:
            part = self._parts[-1]
            cut = min(surplus, part.used)
            part.used -= cut
            surplus -= cut
            if part.used == 0:
                self._parts.pop()
        return movers, holes

    def pieces(self, name: str, size: int | None = None) -> Iterator[tuple[int, Array]]:
        """Runs of rows of one column, in order and without a copy, of at most ``size`` rows, with where they start."""
        start = 0
        for part in self._parts:
            step = max(1, size or part.used)
            for begin in range(0, part.used, step):
                yield start + begin, part.arrays[name][begin : min(begin + step, part.used)]
            start += part.used

    def whole(self, name: str) -> Array:
        """One column: the rows themselves if they are in one part, else a copy."""
        found = [values for _, values in self.pieces(name)]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def _split(self, positions: Array) -> Iterator[tuple[_Part, Array | slice, Array]]:
        if len(self._parts) == 1:
            yield self._parts[0], slice(None), positions
            return
        start = 0
        for part in self._parts:
            inside = np.flatnonzero((positions >= start) & (positions < start + part.used))
            if len(inside):
                yield part, inside, positions[inside] - start
            start += part.used
