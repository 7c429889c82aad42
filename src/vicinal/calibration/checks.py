"""Checks of the arrays that calibration takes: finite numbers, probabilities, classes."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vicinal.core.checks import check_integer

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def check_vector(name: str, values: ArrayLike, *, size: int | None = None) -> Floats:
    """``values`` as float64 ``[n]``; raises ValueError naming the first entry that is not finite."""
    vector = np.asarray(values, dtype=np.float64)
    if vector.ndim != 1:
        raise ValueError(f"{name}: expected a vector [n], got shape {vector.shape}")
    if size is not None and len(vector) != size:
        raise ValueError(f"{name}: expected {size} entries, got {len(vector)}")
    return _finite(name, vector)


def check_matrix(name: str, values: ArrayLike, *, rows: int | None = None, columns: int | None = None) -> Floats:
    """``values`` as float64 ``[n, d]``; raises ValueError on another shape or an entry that is not finite."""
    matrix = np.asarray(values, dtype=np.float64)
    if matrix.ndim != 2:
        raise ValueError(f"{name}: expected a matrix [rows, columns], got shape {matrix.shape}")
    if rows is not None and len(matrix) != rows:
        raise ValueError(f"{name}: expected {rows} rows, got {len(matrix)}")
    if columns is not None and matrix.shape[1] != columns:
        raise ValueError(f"{name}: expected {columns} columns, got {matrix.shape[1]}")
    return _finite(name, matrix)


def check_probabilities(name: str, values: ArrayLike, *, columns: int | None = None) -> Floats:
    """``values`` as float64 ``[n, C]`` with rows that are >= 0 and sum to 1 (within 1e-4)."""
    matrix = check_matrix(name, values, columns=columns)
    if (matrix < 0).any() or (np.abs(matrix.sum(1) - 1) > 1e-4).any():
        raise ValueError(f"{name}: expected rows of probabilities that sum to 1; apply a softmax to logits first")
    return matrix


def check_classes(name: str, values: ArrayLike, number: int, *, size: int | None = None) -> Integers:
    """``values`` as int64 ``[n]`` of class numbers 0 .. ``number`` - 1."""
    check_integer("number of classes", number, 2)
    raw = np.asarray(values)
    if raw.ndim != 1 or not np.issubdtype(raw.dtype, np.integer):
        raise ValueError(f"{name}: expected a vector of class numbers, got {raw.dtype} of shape {raw.shape}")
    if size is not None and len(raw) != size:
        raise ValueError(f"{name}: expected {size} entries, got {len(raw)}")
    classes = raw.astype(np.int64)
    if len(classes) and (classes.min() < 0 or classes.max() >= number):
        raise ValueError(f"{name}: expected class numbers from 0 to {number - 1}, got {classes.min()}..{classes.max()}")
    return classes


def _finite(name: str, values: Floats) -> Floats:
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        place = tuple(int(index) for index in bad[0])
        raise ValueError(f"{name}: expected finite numbers, got {values[place]} at {list(place)}")
    return values
