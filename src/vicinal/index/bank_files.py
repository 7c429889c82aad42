"""The saved form of a bank: a folder of JSON, safetensors and parquet, with checksums, read by mapping."""

import hashlib
import io
import mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

import vicinal
from vicinal.core.folders import MARKERS, SUMS, check_sums, read_sums, read_whole, staged_folder
from vicinal.core.identity import as_texts, canonical_ids
from vicinal.core.untrusted import (
    LARGEST_SETTINGS,
    check_inside,
    machine_memory,
    open_regular,
    read_frame,
    read_parquet,
    read_settings,
)
from vicinal.index.bank_schema import SavedBank, SavedForm, check_columns, check_names, check_values
from vicinal.index.columns import Columns
from vicinal.index.forms import Form
from vicinal.index.identity import Array
from vicinal.index.names import Names
from vicinal.index.payload import Payload
from vicinal.index.tensor_file import Column, map_tensors, write_tensors

if TYPE_CHECKING:
    import pandas as pd

    from vicinal.index.bank import NeighborBank

VERSION = 1
"""Version of the folder's layout; a folder of a later version is refused."""

CONFIG, ROWS, NAMES, CELLS = MARKERS["bank"], "bank.safetensors", "names.parquet", "rows.parquet"
_STORED = ("keys", "groups", "vectors", "codes", "scale", "residual", "labels")
_RUN = 1 << 16
"""Rows that are written at a time."""

Kept = TypeVar("Kept", bound="NeighborBank")


def save_bank(bank: "NeighborBank", folder: Path) -> None:
    """Write a bank as a folder of its own; see :func:`write_bank`."""
    with staged_folder(folder, "bank") as stage:
        write_bank(bank, stage)


def write_bank(bank: "NeighborBank", stage: Path, cells: "pd.DataFrame | None" = None) -> None:
    """Write the files of a bank into an empty folder, with ``cells``, if given, in the place of its table of rows.

    ``bank.json`` (settings, versioned), ``bank.safetensors`` (keys, vectors, codes, labels and groups that are
    numbers), ``names.parquet`` (ids and groups that are strings) and ``rows.parquet`` (the table), the last two where
    there are any. Rows are written a run at a time; nothing is held twice.
    """
    write_tensors(stage / ROWS, stored_columns(bank))
    names = names_of(bank)
    if names:
        import pandas as pd

        pd.DataFrame(names).to_parquet(stage / NAMES, index=False)
    if cells is None and len(bank):
        cells = bank.rows
    if cells is not None and len(bank):
        cells.to_parquet(stage / CELLS, index=False)
    config = config_of(bank, _header_sum(stage / ROWS))
    (stage / CONFIG).write_text(config.model_dump_json(indent=1) + "\n", encoding="utf-8")


def config_of(bank: "NeighborBank", header: str) -> SavedBank:
    """The settings of a bank; ``header`` is the checksum of the header of its file."""
    form = bank._form
    return SavedBank(
        version=VERSION,
        vicinal=vicinal.__version__,
        dim=bank.dim,
        storage=bank.storage,  # type: ignore[arg-type]
        exact=bank.exact,
        rows=len(bank),
        form=None if form is None else SavedForm.model_validate(form._asdict()),
        following=0 if bank._id_names is None else bank._id_names.following,
        columns=None if bank._payload is None or bank._payload.columns is None else bank._payload.columns,
        header=header,
    )


def load_bank(kind: type[Kept], folder: Path, *, verify: bool) -> Kept:
    """See :meth:`vicinal.index.NeighborBank.load`."""
    return read_whole(folder, lambda place: _load_bank(kind, place, verify=verify))


def _load_bank(kind: type[Kept], folder: Path, *, verify: bool) -> Kept:
    if not folder.is_dir():
        raise ValueError(f"bank: expected a bank folder, got {folder}, which is not there")
    check_inside(folder, SUMS, CONFIG, ROWS, NAMES, CELLS)
    check_sums(folder, (CONFIG,), "bank", LARGEST_SETTINGS)
    config = read_settings(folder / CONFIG, SavedBank, "a bank", newest=VERSION)
    if not (folder / ROWS).is_file():
        raise ValueError(f"{ROWS}: expected this file in {folder}, got none; save the bank again")
    if verify:
        check_sums(folder, (ROWS,), "bank", (folder / ROWS).stat().st_size)  # it is never read whole
    tensors = map_tensors(folder / ROWS)
    if _header_sum(folder / ROWS) != config.header:
        raise ValueError(f"{ROWS}: expected the header that was written, got another; the file was torn or edited")
    check_columns(ROWS, config, tensors)
    bank = kind(config.dim, storage=config.storage, exact=config.exact)
    if config.form is None:
        return bank
    bank._form = Form(**config.form.model_dump())
    take_names(bank, config, tensors, _read_names(folder, config))
    if config.form.rows:
        tensors["cells"] = np.arange(config.rows)
        read = _saved_table(folder, config, verify=verify) if config.rows else None
        bank._payload = Payload(config.columns, read, config.rows)
    bank._columns = Columns(tensors)
    bank.distrust(ROWS)
    if verify:
        bank.check()
    return bank


def stored_columns(bank: "NeighborBank") -> dict[str, Column]:
    """The columns that are numbers, in runs."""
    columns: dict[str, Column] = {}
    names = bank._columns.names
    for name in (name for name in _STORED if name in names):
        if name == "groups" and bank._group_names is not None:
            continue
        first = next(run for _, run in bank._columns.pieces(name, 1))
        runs = (run for _, run in bank._columns.pieces(name, _RUN))
        columns[name] = Column(first.dtype, (len(bank), *first.shape[1:]), runs)
    return columns


def names_of(bank: "NeighborBank") -> dict[str, Array]:
    """The columns that are strings."""
    if not len(bank):
        return {}
    made = {} if bank._id_names is None else {"id": bank.ids}
    if bank._group_names is not None and bank.groups is not None:
        made["group"] = bank.groups
    return made


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


def take_names(bank: "NeighborBank", config: SavedBank, tensors: dict[str, Array], names: dict[str, list[str]]) -> None:
    """Give a bank its strings, and ``tensors`` the numbers of its groups."""
    form = config.form
    if form is not None and form.ids == "strings":
        ids = as_texts(canonical_ids(f"{NAMES}: id", names.get("id", []), distinct=True)).tolist()
        keys = tensors["keys"] if config.rows else np.zeros(0, dtype=np.int64)
        check_values(ROWS, "keys", keys)
        if len(np.unique(keys)) < len(keys):
            raise ValueError(f"{ROWS}: expected each key once, got one twice; the file was edited")
        bank._id_names = Names(ids, keys.tolist(), config.following)
    if form is not None and form.groups == "strings":
        bank._group_names = Names()
        if config.rows:
            tensors["groups"] = bank._group_names.numbers(
                as_texts(canonical_ids(f"{NAMES}: group", names["group"])), add=True
            )


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
