"""Safetensors files written a piece at a time and read by mapping, so that neither needs the whole in memory."""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from vicinal.core.arrays import Array

_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I16": "<i2", "I8": "<i1"}


class Column(NamedTuple):
    """A tensor to be written: its dtype, its shape and its rows in runs."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    runs: Iterable[Array]


def write_tensors(path: Path, columns: Mapping[str, Column]) -> int:
    """Write a safetensors file. Gives its size in bytes."""
    names = {np.dtype(code): name for name, code in _DTYPES.items()}
    header: dict[str, Any] = {}
    offset = 0
    for name, column in columns.items():
        size = math.prod(column.shape) * column.dtype.itemsize
        header[name] = {
            "dtype": names[column.dtype],
            "shape": list(column.shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % 64)  # rows begin where a cache line does
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for column in columns.values():
            for run in column.runs:
                np.ascontiguousarray(run).tofile(file)
    return 8 + len(text) + offset


def map_tensors(path: Path) -> dict[str, Array]:
    """The tensors of a safetensors file, mapped copy-on-write: changes stay in memory.

    Raises:
        ValueError: if the file is not whole, or its header does not say what the file holds.
    """
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name).numpy() for name in file.keys()}  # noqa: SIM118 it is no dictionary
    except (SafetensorError, OSError, TypeError) as wrong:  # the last of numbers that numpy has not
        raise ValueError(
            f"{path.name}: expected a whole safetensors file, got one that was torn or edited ({wrong!s:.100})"
        ) from wrong
