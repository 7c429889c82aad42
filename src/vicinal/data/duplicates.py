"""Rows of identical content: finding them, and which of them a split separates."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from vicinal.core import counted
from vicinal.core.identity import spelled
from vicinal.core.untrusted import open_regular
from vicinal.data.column_form import is_missing
from vicinal.data.splits import Split
from vicinal.data.table import Table
from vicinal.encoders.kinds import elements_of
from vicinal.encoders.media import LARGEST_FILE

MEDIA = ("image", "audio")


@dataclass(frozen=True, eq=False)
class Duplicates:
    """Rows of identical features.

    Attributes:
        content: int64 ``[n]``: rows with the same number have the same content.
        groups: positions of the rows of each content that occurs more than once.
        conflicting: the number of these groups with more than one target.
        chance: how many would have more than one if targets were dealt to rows by chance.
        rows: row labels ``[n]``, for examples.
        grouped: whether the rows have groups already, or queries, beside which there are no others.
    """

    content: NDArray[np.int64]
    groups: list[NDArray[np.int64]]
    conflicting: int
    chance: float
    rows: NDArray[Any]
    grouped: bool = False

    @property
    def extra(self) -> int:
        """The number of rows that are a copy of an earlier one."""
        return sum(len(group) - 1 for group in self.groups)


@dataclass(frozen=True)
class Leak:
    """Copies of rows on both sides of a split.

    Attributes:
        test: number of test rows with a copy among the training or validation rows.
        validation: number of validation rows with a copy among the training rows.
        groups: number of groups of identical rows in the whole table.
        extra: number of rows of the table that are a copy of an earlier one.
        conflicting: number of groups of identical rows with more than one target.
        examples: a few pairs of row labels (test row, its copy).
        sentence: a summary for people; "" if the table has no copies.
    """

    test: int
    validation: int
    groups: int
    extra: int
    conflicting: int
    examples: list[tuple[Any, Any]]
    sentence: str


def find_duplicates(
    table: Table, kinds: Mapping[str, str] | None = None, *, columns: Sequence[str] | None = None
) -> Duplicates:
    """Find the rows of ``table`` whose features are the same.

    Texts are compared without regard to case and runs of white space, images and audio by the bytes of their files,
    numbers by value, sets by their elements in any order, with files by name; missing cells are equal to each other.

    Args:
        table: a prepared table.
        kinds: kind of each column ("text", "image", ...); a column without one is compared as it is.
        columns: compare only these; None: those in ``kinds``, or all.

    >>> frame = pd.DataFrame({"word": ["Good ", "bad", "good", *"abcdefghi"]})
    >>> from vicinal.data import prepare_table
    >>> table = prepare_table(frame.assign(y=range(12)), "y")
    >>> [group.tolist() for group in find_duplicates(table, {"word": "text"}).groups]
    [[0, 2]]
    """
    kinds = kinds or {}
    compared = list(columns if columns is not None else (kinds or table.frame.columns))
    codes = np.column_stack(
        [_codes(table.frame[name], kinds.get(name, ""), table.root) for name in compared]
    )  # [n, columns]
    content = np.unique(codes, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)  # [n]
    order = np.argsort(content, kind="stable")
    runs = np.split(order, np.flatnonzero(np.diff(content[order])) + 1)
    groups = sorted((run for run in runs if len(run) > 1), key=lambda run: int(run[0]))
    conflicting = sum(len(set(table.target[group].tolist())) > 1 for group in groups)
    shares = pd.Series(table.target.tolist()).value_counts(normalize=True).to_numpy()
    chance = sum(1 - float((shares ** len(group)).sum()) for group in groups)
    return Duplicates(content, groups, conflicting, chance, table.rows, table.grouped)


def duplicates_across(split: Split, duplicates: Duplicates, *, examples: int = 3) -> Leak:
    """Find the ``duplicates`` that a ``split`` has on both sides, so that test rows were seen in training."""
    content = duplicates.content
    seen = np.concatenate([split.train, split.validation])
    leaked = split.test[np.isin(content[split.test], content[seen])]
    validation = int(np.isin(content[split.validation], content[split.train]).sum())
    pairs = []
    for position in leaked[:examples]:
        copy = seen[np.argmax(content[seen] == content[position])]
        pairs.append((duplicates.rows[position], duplicates.rows[copy]))
    return Leak(
        test=len(leaked),
        validation=validation,
        groups=len(duplicates.groups),
        extra=duplicates.extra,
        conflicting=duplicates.conflicting,
        examples=pairs,
        sentence=_sentence(duplicates, len(leaked), len(split.test), pairs),
    )


def table_fingerprint(table: Table) -> str:
    """A digest of the content of ``table`` (features, target, ids, groups; media by path), 16 hex digits."""
    digest = hashlib.sha256()
    parts: list[tuple[str, Any]] = [("", table.target), ("", table.ids), ("", table.groups)]
    parts += [(str(name), column) for name, column in table.frame.items()]
    for name, values in parts:
        digest.update(f"\x1e{name}\x1e".encode("utf-8", "surrogatepass"))
        digest.update(b"".join(_cell_bytes(cell) + b"\x1f" for cell in (() if values is None else values)))
    return digest.hexdigest()[:16]


def _sentence(duplicates: Duplicates, leaked: int, tested: int, pairs: list[tuple[Any, Any]]) -> str:
    if not duplicates.groups:
        return ""
    one = duplicates.extra == 1
    differ = f"with different targets in {duplicates.conflicting} of {counted(len(duplicates.groups), 'group')}"
    if 4 * duplicates.conflicting >= 3 * duplicates.chance:  # equal cells say little of the target: no copies, then
        rows = f"{duplicates.extra} {'row has' if one else 'rows have'} the cells of another"
        return f"{rows}, {differ}: the columns do not tell them apart"
    copies = f"{duplicates.extra} {'row is' if one else 'rows are'} a copy of another"
    if duplicates.conflicting:
        copies += f" ({differ})"
    if not leaked:
        return f"{copies}; none of them is on both sides of the split"
    shown = ", ".join(f"{one} = {other}" for one, other in pairs)
    instead = "give copies one group, or leave them out"
    if not duplicates.grouped:
        instead = "say --group COLUMN with a column that is the same for copies, and they stay on one side"
    return (
        f"{copies}; {leaked} of {tested} test rows have a copy that was trained on (rows {shown}), so the test result "
        f"flatters: {instead}"
    )


def _codes(column: pd.Series, kind: str, root: Path | None) -> NDArray[np.int64]:
    """A number for each cell ``[n]``, the same for equal cells; -1 where it is missing."""
    if kind in MEDIA:
        seen: dict[str, bytes] = {}
        cells = pd.Series([_media_bytes(cell, root, seen) for cell in column], dtype=object)
    elif pd.api.types.is_numeric_dtype(column.dtype):
        cells = pd.Series(column.to_numpy(dtype=np.float64, na_value=np.nan))
    elif kind == "text":
        cells = pd.Series(
            [None if is_missing(cell) else spelled(str(cell), loose=True) for cell in column], dtype=object
        )
    elif kind == "set":
        sets = [sorted(_cell_bytes(one) for _, one in elements_of(cell, "", "")) for cell in column]
        cells = pd.Series([b"\x1f".join(elements) or None for elements in sets], dtype=object)
    else:
        cells = pd.Series([None if is_missing(cell) else _cell_bytes(cell) for cell in column], dtype=object)
    return pd.factorize(cells)[0].astype(np.int64)


def _cell_bytes(cell: Any) -> bytes:
    """The content of any cell; vectors by value."""
    if isinstance(cell, (bytes, bytearray)):
        return bytes(cell)
    if isinstance(cell, (list, tuple, np.ndarray)):
        try:
            array = np.asarray(cell)
        except ValueError:  # lists of different lengths
            return b"[" + b"\x1f".join(map(_cell_bytes, cell)) + b"]"
        return array.astype(np.float64).tobytes() if array.dtype.kind in "biuf" else repr(array.tolist()).encode()
    return str(cell).strip().encode("utf-8", "surrogatepass")


def _file_digest(name: str, root: Path | None) -> bytes | None:
    """Digest of a file that an encoder would read; None for one that it would refuse."""
    try:
        path = ((root or Path()) / name).resolve()
        if root is not None and not path.is_relative_to(root.resolve()):
            return None
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_size > LARGEST_FILE:
                return None
            return hashlib.file_digest(file, "sha256").digest()
    except (OSError, ValueError, RuntimeError):  # a null byte, a ring of links
        return None


def _media_bytes(cell: Any, root: Path | None, seen: dict[str, bytes]) -> bytes | None:
    """Digest of the file that an image or audio cell holds or names; of the name, if there is no such file."""
    if isinstance(cell, dict):
        cell = cell["bytes"] if cell.get("bytes") is not None else cell.get("path")
    if isinstance(cell, (bytes, bytearray)):
        return hashlib.sha256(cell).digest()
    if is_missing(cell):
        return None
    name = str(cell)
    if name not in seen:
        seen[name] = _file_digest(name, root) or name.encode("utf-8", "surrogatepass")
    return seen[name]
