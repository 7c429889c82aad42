"""Ids and groups that are texts, and the numbers that stand for them inside a bank."""

from collections.abc import Iterable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class Names:
    """Texts in canonical form and the numbers that stand for them; a number is never given twice.

    Args:
        names: texts to begin with.
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
