"""Memory that is free given back to the system, where a lot of it was in use."""

import contextlib
import ctypes
import gc
import sys
from collections.abc import Iterator

_THRESHOLD, _LARGE, _LARGEST = -3, 1 << 18, 1 << 25
"""What the allocator of Linux calls the bytes from which on a block is mapped by itself; some; the most it comes to."""


def give_back() -> None:
    """Collect circles, such as a trainer with its weights, gradients and moments, and return the pages of what is free.

    The allocator of Linux keeps these: after a step of three texts 700 MB of 1.4 GB.

    >>> import weakref
    >>> circle = type("Circle", (), {})()
    >>> circle.itself, seen = circle, weakref.ref(circle)
    >>> del circle
    >>> give_back()
    >>> seen() is None
    True
    """
    gc.collect()
    _tell("malloc_trim", 0)


@contextlib.contextmanager
def large_blocks_apart() -> Iterator[None]:
    """Give each block of 256 KiB or more back as it is freed, for a tenth to a fifth more time.

    By itself the allocator of Linux soon keeps larger ones, too, in pieces that the next ones do not fit in: a fit that
    tuned three texts took 1 GB more.

    >>> with large_blocks_apart():
    ...     len(bytes(1 << 21))
    2097152
    """
    _tell("mallopt", _THRESHOLD, _LARGE)
    try:
        yield
    finally:
        _tell("mallopt", _THRESHOLD, _LARGEST)


def _tell(name: str, *values: int) -> None:
    """Call a function of the allocator of Linux, where there is one of that name."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # of other C libraries
            getattr(ctypes.CDLL(None), name)(*values)
