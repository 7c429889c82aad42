"""How many threads work: of torch one or all, of numpy and other code that lets further ones run, piece by piece."""

import functools
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

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


class _OfThread(threading.local):
    """How many threads of torch this thread had before :func:`one_thread`; None: it is not inside."""

    before: int | None = None


class _Shared:
    """What belongs to the process: which thread limits BLAS, and torch's number while some are inside."""

    def __init__(self) -> None:
        self.inside, self.before = 0, 1
        self.renew()

    def renew(self) -> None:
        """A forked process has no thread that could give a lock back."""
        self.lock, self.limiting = threading.Lock(), threading.Lock()

    def enter(self) -> None:
        with self.lock:
            now = torch.get_num_threads()
            self.before = self.before if self.inside else now
            self.inside += 1
            # a new thread begins with the number that another has set
            _of_thread.before = now if now > 1 else self.before
            torch.set_num_threads(1)

    def leave(self) -> None:
        with self.lock:
            torch.set_num_threads(_of_thread.before or 1)
            self.inside, _of_thread.before = self.inside - 1, None


_of_thread, _shared = _OfThread(), _Shared()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_shared.renew)


@functools.cache
def _blas() -> Any:
    """The BLAS of numpy and of scipy, which is loaded by now."""
    import scipy.linalg.lapack  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


@contextmanager
def _one_of_blas() -> Iterator[None]:
    """One thread of BLAS, whose number is that of the process: the thread that limits it sets it back."""
    if not (limiting := _shared.limiting).acquire(blocking=False):
        yield
        return
    try:
        with _blas().limit(limits=1):
            yield
    finally:
        limiting.release()


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread of torch and of BLAS, for steps too small to share: parts would spend the time waiting for another.

    A fit of 1,000 rows by default, on two cores that others used, too, took three to ten times the processor time.

    >>> before = torch.get_num_threads()
    >>> with one_thread():
    ...     torch.get_num_threads()
    1
    >>> torch.get_num_threads() == before
    True
    """
    if _of_thread.before is not None:
        yield
        return
    _shared.enter()
    try:
        with _one_of_blas():
            yield
    finally:
        _shared.leave()


@contextmanager
def all_threads() -> Iterator[None]:
    """Inside :func:`one_thread` as many of torch as outside it: for networks of texts or images, and large products.

    >>> before = torch.get_num_threads()
    >>> with one_thread(), all_threads():
    ...     torch.get_num_threads() == before
    True
    """
    if _of_thread.before is None:
        yield
        return
    _shared.leave()
    try:
        yield
    finally:
        _shared.enter()


def pieces(rows: int, size: int) -> list[slice]:
    """Ranges of so many rows, the last of the rest.

    >>> pieces(5, 3)
    [slice(0, 3, None), slice(3, 5, None)]
    """
    return [slice(start, min(rows, start + size)) for start in range(0, rows, size)]
