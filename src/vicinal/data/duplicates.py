"""Rows of identical content: finding them, and which of them a split separates."""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from vicinal.core import counted
from vicinal.core.identity import spelled
from vicinal.data.column_form import is_missing
from vicinal.data.splits import Split
from vicinal.data.table import Table
from vicinal.encoders.kinds import elements_of
from vicinal.encoders.media import read_cell

MEDIA = ("image", "audio")
_EXAMPLES = 3
"""Pairs of rows that a sentence shows."""


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


class Leak(NamedTuple):
    """Copies of rows on both sides of a split.

    Attributes:
        test: number of test rows with a copy among the training or validation rows.
        sentence: a summary for people; "" if the table has no copies.
    """

    test: int
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


def duplicates_across(split: Split, duplicates: Duplicates) -> Leak:
    """Find the ``duplicates`` that a ``split`` has on both sides, so that test rows were seen in training."""
    content, rows = duplicates.content, duplicates.rows
    seen = np.concatenate([split.train, split.validation])
    leaked = split.test[np.isin(content[split.test], content[seen])]
    pairs = [f"{rows[at]} = {rows[seen[np.argmax(content[seen] == content[at])]]}" for at in leaked[:_EXAMPLES]]
    return Leak(len(leaked), _sentence(duplicates, len(leaked), len(split.test), ", ".join(pairs)))


def table_fingerprint(table: Table) -> str:
    """A digest of the content of ``table`` (features, target, ids, groups; media by path), 16 hex digits."""
    digest = hashlib.sha256()
    parts: list[tuple[str, Any]] = [("", table.target), ("", table.ids), ("", table.groups)]
    parts += [(str(name), column) for name, column in table.frame.items()]
    for name, values in parts:
        digest.update(f"\x1e{name}\x1e".encode("utf-8", "surrogatepass"))
        digest.update(b"".join(_cell_bytes(cell) + b"\x1f" for cell in (() if values is None else values)))
    return digest.hexdigest()[:16]


def _sentence(duplicates: Duplicates, leaked: int, tested: int, shown: str) -> str:
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


def _media_bytes(cell: Any, root: Path | None, seen: dict[str, bytes]) -> bytes | None:
    """Digest of the file that an image or audio cell holds or names; of the name, if no encoder would read it."""
    if isinstance(cell, dict):
        cell = cell["bytes"] if cell.get("bytes") is not None else cell.get("path")
    if isinstance(cell, (bytes, bytearray)):
        return hashlib.sha256(cell).digest()
    if is_missing(cell):
        return None
    name = str(cell)
    if name not in seen:
        seen[name] = name.encode("utf-8", "surrogatepass")
        with suppress(ValueError):
            seen[name] = hashlib.sha256(read_cell(name, column="", row="", what="", root=root)).digest()
    return seen[name]
