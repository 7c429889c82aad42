"""Work of numpy and of other code that lets further threads run meanwhile, piece by piece."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

S = TypeVar("S")
T = TypeVar("T")


_MANY = 50_000
"""Rows from which on threads save more time than they take."""


def in_threads(work: Callable[[S], T], pieces: Iterable[S], rows: int = _MANY) -> list[T]:
    """What ``work`` gives for each piece, in their order, by as many threads as torch has, or one for few ``rows``.

    >>> in_threads(abs, [-1, 2])
    [1, 2]
    """
    pieces = list(pieces)
    workers = min(torch.get_num_threads(), len(pieces))
    if workers < 2 or rows < _MANY:
        return [*map(work, pieces)]
    with ThreadPoolExecutor(workers) as threads:
        return [*threads.map(work, pieces)]


def pieces(rows: int, size: int) -> list[slice]:
    """Ranges of so many rows, the last of the rest.

    >>> pieces(5, 3)
    [slice(0, 3, None), slice(3, 5, None)]
    """
    return [slice(start, min(rows, start + size)) for start in range(0, rows, size)]
