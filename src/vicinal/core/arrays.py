"""The door by which arrays of numpy, and of whatever gives one, come to torch."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from vicinal.core.checks import check_tensor

Array = np.ndarray[Any, Any]


def as_tensor(name: str, values: Any, dtype: torch.dtype | None = None) -> Tensor:
    """``values`` as a tensor, of ``dtype`` if given: an array in place where torch can read it there, else a copy.

    Torch refuses rows in reverse, fields of records, numbers in the byte order of other machines or wider than 64 bits,
    and warns of memory that may not be written to: all are plain input.

    Raises:
        TypeError: for what is no array of numbers or truth values.
        ValueError: for a masked array in which something is masked.

    >>> as_tensor("vectors", np.arange(3.0)[::-1])
    tensor([2., 1., 0.], dtype=torch.float64)
    >>> as_tensor("vectors", ["a"])
    Traceback (most recent call last):
    TypeError: vectors: expected a tensor or an array of numbers, got list
    """
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError(f"{name}: expected no masked entries, got {int(np.ma.getmaskarray(values).sum())}")
    if not isinstance(values, Tensor) and hasattr(values, "__array__"):
        values = _shared(np.asarray(values))
    try:
        return check_tensor(name, torch.as_tensor(values, dtype=dtype))
    except (TypeError, ValueError, RuntimeError) as cannot:
        kind = f"an array of {values.dtype}" if isinstance(values, np.ndarray) else type(values).__name__
        raise TypeError(f"{name}: expected a tensor or an array of numbers, got {kind}") from cannot


def _shared(values: np.ndarray[Any, np.dtype[Any]]) -> np.ndarray[Any, np.dtype[Any]]:
    """``values`` as torch can share their memory."""
    dtype = np.dtype(np.float64) if values.dtype == np.longdouble else values.dtype.newbyteorder("=")
    size = max(1, dtype.itemsize)
    in_place = values.flags.writeable and values.flags.aligned and dtype == values.dtype
    if in_place and all(stride >= 0 and stride % size == 0 for stride in values.strides):
        return values
    return np.array(values, dtype=dtype, order="C")
