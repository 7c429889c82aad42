"""The saved form of a bank: a folder of JSON, safetensors and parquet, with checksums, read by mapping."""

import hashlib
import io
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vicinal.core.arrays import Array
from vicinal.core.folders import MARKERS, SUMS, check_sums, read_sums
from vicinal.core.untrusted import (
    LARGEST_SETTINGS,
    check_inside,
    machine_memory,
    open_regular,
    read_frame,
    read_parquet,
    read_settings,
)
from vicinal.index.bank_schema import SavedBank, check_columns, check_names, in_float32
from vicinal.index.tensor_file import Column, map_tensors, write_tensors

if TYPE_CHECKING:
    import pandas as pd

VERSION = 1
"""Version of the folder's layout; a folder of a later version is refused."""

CONFIG, ROWS, NAMES, CELLS = MARKERS["bank"], "bank.safetensors", "names.parquet", "rows.parquet"


@dataclass(frozen=True)
class BankContents:
    """What is saved of a bank, apart from its table of rows.

    Attributes:
        settings: of ``bank.json``.
        columns: those that are numbers, by name.
        names: those that are strings, "id" and "group".
    """

    settings: SavedBank
    columns: dict[str, Array]
    names: dict[str, list[str]]


def write_bank(
    stage: Path,
    settings: SavedBank,
    columns: Mapping[str, Column],
    names: Mapping[str, list[str]],
    cells: "pd.DataFrame | None",
) -> None:
    """Write the files of a bank into an empty folder.

    ``bank.json`` (settings, versioned), ``bank.safetensors`` (keys, vectors, labels and groups that are numbers),
    ``names.parquet`` (ids and groups that are strings) and ``rows.parquet`` (the table), the last two where there are
    any. Rows are written a run at a time; nothing is held twice.
    """
    write_tensors(stage / ROWS, columns)
    if names:
        import pandas as pd

        pd.DataFrame(names).to_parquet(stage / NAMES, index=False)
    if cells is not None and settings.rows:
        cells.to_parquet(stage / CELLS, index=False)
    settings = settings.model_copy(update={"header": _header_sum(stage / ROWS)})
    (stage / CONFIG).write_text(settings.model_dump_json(indent=1) + "\n", encoding="utf-8")


def read_bank(folder: Path, *, verify: bool) -> tuple[BankContents, "SavedTable | None"]:
    """What a folder holds, its columns mapped; see :meth:`vicinal.index.NeighborBank.load`."""
    if not folder.is_dir():
        raise ValueError(f"bank: expected a bank folder, got {folder}, which is not there")
    check_inside(folder, SUMS, CONFIG, ROWS, NAMES, CELLS)
    check_sums(folder, (CONFIG,), "bank", LARGEST_SETTINGS)
    settings = read_settings(folder / CONFIG, SavedBank, "a bank", newest=VERSION)
    if not (folder / ROWS).is_file():
        raise ValueError(f"{ROWS}: expected this file in {folder}, got none; save the bank again")
    if verify:
        check_sums(folder, (ROWS,), "bank", (folder / ROWS).stat().st_size)  # it is never read whole
    columns = map_tensors(folder / ROWS)
    if _header_sum(folder / ROWS) != settings.header:
        raise ValueError(f"{ROWS}: expected the header that was written, got another; the file was torn or edited")
    check_columns(ROWS, settings, columns)
    contents = BankContents(settings, in_float32(columns), _read_names(folder, settings))
    has_table = settings.form is not None and settings.form.rows and settings.rows
    return contents, _saved_table(folder, settings, verify=verify) if has_table else None


def _read_names(folder: Path, config: SavedBank) -> dict[str, list[str]]:
    """The strings of a folder's parquet file, by column."""
    form = config.form
    if form is None or "strings" not in (form.ids, form.groups) or not config.rows:
        return {}
    check_sums(folder, (NAMES,), "bank")
    with open_regular(folder / NAMES) as file:
        table = read_parquet(file, NAMES)
    names = {name: table[name].to_pylist() for name in table.column_names}
    check_names(NAMES, config, names)
    return names


class SavedTable:
    """The table of a bank's rows, read and checked when it is first asked for.

    The file is mapped when the bank is opened, so that it is the one of that moment, whatever the folder holds later.

    Args:
        path: of the file.
        digest: its checksum.
        rows: how many it must have.
        columns: the names that they must have.
    """

    def __init__(self, path: Path, digest: str | None, rows: int, columns: list[str] | None) -> None:
        self.path, self.digest, self.rows, self.columns = path, digest, rows, columns
        self._content: mmap.mmap | bytes
        with path.open("rb") as file:
            self._content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_content": bytes(self._content)}

    def __call__(self) -> "pd.DataFrame":
        """The table.

        Raises:
            ValueError: if the file was edited after the bank was opened, or holds another table.
        """
        content = self._content
        cut = isinstance(content, mmap.mmap) and content.size() < len(content)  # to read on would end the process
        if cut or hashlib.sha256(content).hexdigest() != self.digest:
            raise ValueError(
                f"{CELLS}: expected the file that {self.path.parent} had when the bank was opened, got another; it was "
                "torn or edited, so open the bank again"
            )
        table = read_frame(io.BytesIO(content), CELLS)
        if len(table) != self.rows or list(table.columns) != self.columns:
            raise ValueError(f"{CELLS}: expected {self.rows} rows of {self.columns}, got other rows or columns")
        return table


def _saved_table(folder: Path, config: SavedBank, *, verify: bool) -> SavedTable:
    """The table in a folder."""
    if verify:
        check_sums(folder, (CELLS,), "bank")
    size = (folder / CELLS).stat().st_size if (folder / CELLS).is_file() else 0
    if not size:
        raise ValueError(f"{CELLS}: expected this file in {folder}, got none; save the bank again")
    if size > machine_memory():
        raise ValueError(f"{CELLS}: expected a table that fits in memory, got {size >> 30} GiB; it was edited")
    return SavedTable(folder / CELLS, read_sums(folder, "bank").get(CELLS), config.rows, config.columns)


def _header_sum(path: Path) -> str:
    """Checksum of the header of a safetensors file, which says what stands where."""
    with path.open("rb") as file:
        length = file.read(8)
        return hashlib.sha256(length + file.read(int.from_bytes(length, "little"))).hexdigest()
