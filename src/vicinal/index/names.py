"""Ids and groups that may be whole numbers or strings, as the numbers that stand for them inside a bank."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from torch import Tensor

Array = np.ndarray[Any, Any]


def as_names(name: str, values: Tensor | Iterable[Any], rows: int | None = None) -> Array:
    """Ids or groups as int64, or as strings if any is not a whole number.

    Raises:
        ValueError: if one is missing or their number is not ``rows``.

    >>> as_names("ids", ["a", 7])
    array(['a', '7'], dtype=object)
    """
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu" and values.ndim == 1:
        made = values.astype(np.int64)
    else:
        made = _listed(name, list(values))
    if rows is not None and len(made) != rows:
        raise ValueError(f"{name}: expected {rows}, one a row, got {len(made)}")
    return made


def _listed(name: str, values: list[Any]) -> Array:
    for row, value in enumerate(values):
        if value is None or value != value:  # NaN is the only value that differs from itself
            raise ValueError(f"{name}: expected one for every row, got none in row {row}")
    if all(isinstance(value, int | np.integer) and not isinstance(value, bool | np.bool_) for value in values):
        return np.array(values, dtype=np.int64)
    made = np.empty(len(values), dtype=object)
    made[:] = [str(value) for value in values]
    return made


class Names:
    """Strings and the numbers that stand for them; a number is never given twice.

    Args:
        names: strings to begin with.
        numbers: the numbers that stand for them; None: 0, 1, ...
        following: the next number to give.
    """

    def __init__(self, names: Iterable[str] = (), numbers: Iterable[int] | None = None, following: int = 0) -> None:
        listed = list(names)
        self._numbers = dict(zip(listed, range(len(listed)) if numbers is None else numbers, strict=True))
        self._names = {number: name for name, number in self._numbers.items()}
        self.following = max(following, 1 + max(self._names, default=-1))

    def numbers(self, names: Array, *, add: bool = False) -> Array:
        """The numbers ``[n]`` of ``names``: -1 for names that are new, or a new number with ``add``."""
        if add:
            for name in names.tolist():
                if name not in self._numbers:
                    self._numbers[name], self._names[self.following] = self.following, name
                    self.following += 1
        return np.array([self._numbers.get(name, -1) for name in names.tolist()], dtype=np.int64)

    def names(self, numbers: Array) -> Array:
        """The strings ``[n]`` that ``numbers`` stand for."""
        made = np.empty(len(numbers), dtype=object)
        made[:] = [self._names[number] for number in numbers.tolist()]
        return made

    def forget(self, numbers: Array) -> None:
        """Let go of strings; their numbers are not given again."""
        for number in numbers.tolist():
            del self._numbers[self._names.pop(number)]
