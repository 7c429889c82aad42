"""How a bank keeps its rows: columns in parts, places of ids, names as numbers, and the table beside them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vicinal.core.arrays import Array
from vicinal.core.identity import spelled

if TYPE_CHECKING:
    import pandas as pd


class IdMap:
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

    @property
    def repeated(self) -> bool:
        """Whether an id was given twice."""
        return bool((self._ids[1:] == self._ids[:-1]).any())

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
        """Where ``ids [n]`` stand among the sorted ones, and whether they do."""
        if len(self) == 0:
            return np.zeros(len(ids), dtype=np.int64), np.zeros(len(ids), dtype=bool)
        slots = np.searchsorted(self._ids, ids)
        slots[slots == len(self)] = 0
        return slots, self._ids[slots] == ids


class Names:
    """Texts in canonical form and the numbers that stand for them; a number is never given twice.

    A text is found in any spelling, see :func:`vicinal.core.identity.spelled`, unless this very one is there, too.

    Args:
        names: texts to begin with.
        numbers: the numbers that stand for them; None: 0, 1, ...
        following: the next number to give.
    """

    def __init__(self, names: Iterable[str] = (), numbers: Iterable[int] | None = None, following: int = 0) -> None:
        listed = list(names)
        self._numbers = dict(zip(listed, range(len(listed)) if numbers is None else numbers, strict=True))
        self._names = {number: name for name, number in self._numbers.items()}
        self._spelled = {spelled(name): number for name, number in self._numbers.items() if not name.isascii()}
        self.following = max(following, 1 + max(self._names, default=-1))

    def numbers(self, names: Array, *, add: bool = False) -> Array:
        """The numbers ``[n]`` of ``names``: -1 for names that are new, or a new number with ``add``."""
        if add:
            for name in names.tolist():
                if self._number(name) < 0:
                    self._numbers[name], self._names[self.following] = self.following, name
                    if not name.isascii():
                        self._spelled[spelled(name)] = self.following
                    self.following += 1
        return np.array([self._number(name) for name in names.tolist()], dtype=np.int64)

    def _number(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None and (self._spelled or not name.isascii()):
            plain = spelled(name)
            number = self._spelled.get(plain, self._numbers.get(plain))
        return -1 if number is None else number

    def names(self, numbers: Array) -> Array:
        """The strings ``[n]`` that ``numbers`` stand for."""
        strings = np.empty(len(numbers), dtype=object)
        strings[:] = [self._names[number] for number in numbers.tolist()]
        return strings

    def forget(self, numbers: Array) -> None:
        """Let go of strings; their numbers are not given again."""
        for number in numbers.tolist():
            name = self._names.pop(number)
            del self._numbers[name]
            if not name.isascii():
                self._spelled.pop(spelled(name), None)


class TableStore:
    """Rows of tables under running numbers.

    Removed rows stay in memory until they are half of all, and are in no file that is written later.

    Args:
        columns: names of the columns; None: those of the first table.
        read: gives the first rows when they are first needed, or None.
        rows: how many these are.
    """

    def __init__(
        self, columns: list[Any] | None = None, read: "Callable[[], pd.DataFrame] | None" = None, rows: int = 0
    ) -> None:
        self.columns, self.rows, self._read = columns, rows, read
        self._frames: list[pd.DataFrame] = []

    def add(self, frame: "pd.DataFrame") -> Array:
        """Put rows in; gives their numbers ``[n]``."""
        self.columns = list(frame.columns)
        numbers = np.arange(self.rows, self.rows + len(frame))
        self._frames.append(frame.reset_index(drop=True))
        self.rows += len(frame)
        return numbers

    def take(self, numbers: Array) -> "pd.DataFrame":
        """The rows of these numbers, in this order."""
        return self._whole().iloc[numbers].reset_index(drop=True)

    def _whole(self) -> "pd.DataFrame":
        import pandas as pd

        if self._read is not None:
            self._frames.insert(0, self._read())
            self._read = None
        if not self._frames:
            return pd.DataFrame(columns=self.columns)
        if len(self._frames) > 1:
            self._frames = [pd.concat(self._frames, ignore_index=True)]
        return self._frames[0]


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

    def fill(self, name: str, value: float) -> None:
        """A new column, float64, with ``value`` in every row."""
        for part in self._parts:
            part.arrays[name] = np.full(part.capacity, value)

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
            column = np.empty((capacity, *first.shape[1:]), dtype=first.dtype)
            for start, piece in self.pieces(name):
                column[start : start + len(piece)] = piece
            moved[name] = column
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
        rows = np.empty((len(positions), *first.shape[1:]), dtype=first.dtype)
        for part, inside, local in self._split(positions):
            rows[inside] = part.arrays[name][local]
        return rows

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
        stays = np.ones(len(positions), dtype=bool)
        stays[positions[positions >= left] - left] = False
        movers = left + np.flatnonzero(stays)
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
        pieces = [values for _, values in self.pieces(name)]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

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
