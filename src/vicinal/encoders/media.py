"""Cells that hold a file: a path, bytes, or both in a dictionary as Hugging Face stores them."""

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from vicinal.core import short
from vicinal.core.checks import short_text
from vicinal.core.untrusted import open_regular
from vicinal.encoders.base import refuse

Content = TypeVar("Content")

LARGEST_FILE = 256 * 2**20
"""Bytes of the largest file that is read."""


def read_cell(cell: object, *, column: str, row: object, what: str, root: Path | None) -> bytes:
    """The bytes that a cell holds or points to.

    Args:
        cell: a path, bytes, or a dictionary with "bytes" or "path".
        column: named in errors.
        row: label of the row, named in errors.
        what: what is expected: "an image".
        root: folder that paths start from and must stay in, after resolving links. None: the current folder, any path.

    Raises:
        ValueError: for a missing cell, a path that leaves ``root``, a missing, empty or huge file.
    """
    if isinstance(cell, Mapping):
        cell = cell["bytes"] if cell.get("bytes") is not None else cell.get("path")
    if isinstance(cell, bytes | bytearray | memoryview):
        if not len(cell):
            raise refuse(column, row, what, "no bytes")
        return bytes(cell)
    if isinstance(cell, Path):
        cell = str(cell)
    if cell is None or cell is pd.NA or (isinstance(cell, float) and cell != cell) or cell == "":
        raise refuse(column, row, what, "a missing value", "drop the row, or leave the column out")
    if not isinstance(cell, str):
        raise refuse(column, row, f"{what} (a path or bytes)", short(cell))
    return _read_file(cell, column, row, what, root)


def _read_file(name: str, column: str, row: object, what: str, root: Path | None) -> bytes:
    try:
        path = (Path(name) if root is None else Path(root) / name).resolve()
        inside = root is None or path.is_relative_to(Path(root).resolve())
        there = inside and path.exists()
        size = 0
        if there:
            with open_regular(path) as file:
                size = os.fstat(file.fileno()).st_size
                if 0 < size <= LARGEST_FILE:
                    return file.read()
    except (OSError, ValueError, RuntimeError) as error:  # a pipe, a null byte, a ring of links, no permission
        raise refuse(column, row, what, f"{short(name)}, which cannot be read: {short_text(error, 120)}") from None
    if not inside:
        advice = "give the folder that holds all files as root (--root on the command line), or copy the file into it"
        raise refuse(column, row, f"a path inside {short(str(root), 120)}", short(name, 120), advice)
    if not there:
        advice = "it is a web address: download it first" if "://" in name else f"no file at {short(str(path), 160)}"
        advice += "; --root names the folder of the files, --drop leaves the column out" * ("://" not in name)
        raise refuse(column, row, what, short(name, 120), advice)
    got = f"{short(name, 120)}, {'an empty file' if not size else f'a file of {size / 2**20:.0f} MiB'}"
    raise refuse(column, row, f"{what} of at most {LARGEST_FILE // 2**20} MiB" if size else what, got)


def map_rows(make: Callable[[object, Any], Content], rows: Iterable[tuple[object, Any]]) -> list[Content]:
    """``make(label, cell)`` for all rows, in order, by a few threads; the first error in row order is raised."""
    with ThreadPoolExecutor(max_workers=4) as pool:
        return list(pool.map(lambda row: make(*row), rows))
