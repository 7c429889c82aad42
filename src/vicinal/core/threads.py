"""How many threads work: of torch one or all, of numpy and other code that lets further ones run, piece by piece."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread of torch, for steps too small to share: their parts would spend the time waiting for one another.

    With two threads on two cores kernels of 300 rows took four times as long, of 1,000 twice.

    >>> before = torch.get_num_threads()
    >>> with one_thread():
    ...     torch.get_num_threads()
    1
    >>> torch.get_num_threads() == before
    True
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def pieces(rows: int, size: int) -> list[slice]:
    """Ranges of so many rows, the last of the rest.

    >>> pieces(5, 3)
    [slice(0, 3, None), slice(3, 5, None)]
    """
    return [slice(start, min(rows, start + size)) for start in range(0, rows, size)]
