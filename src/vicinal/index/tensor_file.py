"""Safetensors files written a piece at a time and read by mapping, so that neither needs the whole in memory."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vicinal.core.arrays import Array

_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I16": "<i2", "I8": "<i1"}
_LONGEST = 1 << 24
"""Bytes of the longest header that is read."""


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
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(_LONGEST, size - 8):
                raise ValueError("its header is longer than the file")
            header = json.loads(file.read(length))
        tensors = dict(_described(header))
        ends = max((end for _, _, _, end in tensors.values()), default=0)
        if 8 + length + ends != size:
            raise ValueError(f"{8 + length + ends} bytes by its header, {size} in fact")
    except (ValueError, KeyError, TypeError, AttributeError) as wrong:
        raise ValueError(
            f"{path.name}: expected a whole safetensors file, got one that was torn or edited ({wrong})"
        ) from wrong
    arrays: dict[str, Array] = {}
    for name, (dtype, shape, begin, _) in tensors.items():
        if math.prod(shape) == 0:
            arrays[name] = np.zeros(shape, dtype)
        else:
            arrays[name] = np.asarray(np.memmap(path, dtype, mode="c", offset=8 + length + begin, shape=shape))
    return arrays


def _described(header: dict[str, Any]) -> Iterator[tuple[str, tuple[str, tuple[int, ...], int, int]]]:
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        dtype, shape, (begin, end) = _DTYPES[entry["dtype"]], tuple(entry["shape"]), entry["data_offsets"]
        if end - begin != math.prod(shape) * np.dtype(dtype).itemsize or begin < 0:
            raise ValueError(f"{name!r} does not fill its place")
        yield name, (dtype, shape, begin, end)
