"""Memory that is free given back to the system, where a lot of it was in use."""

import contextlib
import ctypes
import gc
import sys


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
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # of other C libraries
            ctypes.CDLL(None).malloc_trim(0)
