"""The saved form of a bank: a folder of JSON, safetensors and parquet, with checksums, read by mapping."""

import hashlib
import io
import json
import mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

import vicinal
from vicinal.core.folders import MARKERS, check_sums, read_sums, read_whole, staged_folder
from vicinal.core.identity import as_texts, canonical_ids
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

Settings = TypeVar("Settings", bound=BaseModel)
Kept = TypeVar("Kept", bound="NeighborBank")


class SavedForm(BaseModel):
    """What every row has alike, as ``bank.json`` holds it."""

    model_config = ConfigDict(extra="forbid")

    ids: Literal["whole numbers", "strings"]
    groups: Literal["whole numbers", "strings"] | None
    labels: tuple[Literal["float32", "float64"], int] | None
    rows: bool


class SavedBank(BaseModel):
    """What ``bank.json`` holds."""

    model_config = ConfigDict(extra="forbid")

    format: Literal["vicinal-bank"] = "vicinal-bank"
    version: int
    vicinal: str
    dim: int
    storage: Literal["float32", "float16", "int8"]
    exact: bool
    rows: int
    form: SavedForm | None
    following: int
    columns: list[str] | None
    header: str


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
    check_sums(folder, (CONFIG,), "bank")
    config = read_settings(folder / CONFIG, SavedBank, VERSION, "a bank")
    if not (folder / ROWS).is_file():
        raise ValueError(f"{ROWS}: expected this file in {folder}, got none; save the bank again")
    if verify:
        check_sums(folder, (ROWS,), "bank")
    tensors = map_tensors(folder / ROWS)
    if _header_sum(folder / ROWS) != config.header or any(len(v) != config.rows for v in tensors.values()):
        raise ValueError(f"{ROWS}: expected the header that was written, got another; the file was torn or edited")
    bank = kind(config.dim, storage=config.storage, exact=config.exact)
    if config.form is None:
        return bank
    bank._form = Form(**config.form.model_dump())
    take_names(bank, config, tensors, _read_names(folder, config))
    if config.form.rows:
        tensors["cells"] = np.arange(config.rows)
        read = _saved_table(folder, verify=verify) if config.rows else None
        bank._payload = Payload(config.columns, read, config.rows)
    bank._columns = Columns(tensors)
    return bank


def read_settings(path: Path, model: type[Settings], version: int, what: str) -> Settings:
    """The settings in a JSON file; raises ValueError naming the file if they are other or of a later version."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        found = raw["version"]
    except (json.JSONDecodeError, KeyError, TypeError) as wrong:
        raise ValueError(f"{path.name}: expected the settings of {what}, got other content") from wrong
    if not isinstance(found, int) or found > version:
        raise ValueError(f"{path.name}: expected format version {version} or older, got {found}; update vicinal")
    try:
        return model.model_validate(raw)
    except ValidationError as wrong:
        first = wrong.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{path.name}: expected valid settings, got {first['msg']} at {where!r}") from wrong


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
    import pyarrow.parquet as parquet

    check_sums(folder, (NAMES,), "bank")
    table = parquet.read_table(folder / NAMES)
    return {name: table[name].to_pylist() for name in table.column_names}


def take_names(bank: "NeighborBank", config: SavedBank, tensors: dict[str, Array], names: dict[str, list[str]]) -> None:
    """Give a bank its strings, and ``tensors`` the numbers of its groups."""
    form = config.form
    if form is not None and form.ids == "strings":
        ids = as_texts(canonical_ids(f"{NAMES}: id", names.get("id", []), distinct=True)).tolist()
        bank._id_names = Names(ids, tensors["keys"].tolist() if config.rows else (), config.following)
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
    """

    def __init__(self, path: Path, digest: str | None) -> None:
        self.path, self.digest = path, digest
        self._content: mmap.mmap | bytes
        with path.open("rb") as file:
            self._content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_content": bytes(self._content)}

    def __call__(self) -> "pd.DataFrame":
        """The table.

        Raises:
            ValueError: if the file was edited after the bank was opened.
        """
        import pandas as pd

        content = self._content
        cut = isinstance(content, mmap.mmap) and content.size() < len(content)  # to read on would end the process
        if cut or hashlib.sha256(content).hexdigest() != self.digest:
            raise ValueError(
                f"{CELLS}: expected the file that {self.path.parent} had when the bank was opened, got another; it was "
                "torn or edited, so open the bank again"
            )
        return pd.read_parquet(io.BytesIO(content))


def _saved_table(folder: Path, *, verify: bool) -> SavedTable:
    """The table in a folder."""
    if verify:
        check_sums(folder, (CELLS,), "bank")
    if not (folder / CELLS).is_file() or not (folder / CELLS).stat().st_size:
        raise ValueError(f"{CELLS}: expected this file in {folder}, got none; save the bank again")
    return SavedTable(folder / CELLS, read_sums(folder, "bank").get(CELLS))


def _header_sum(path: Path) -> str:
    """Checksum of the header of a safetensors file, which says what stands where."""
    with path.open("rb") as file:
        length = file.read(8)
        return hashlib.sha256(length + file.read(int.from_bytes(length, "little"))).hexdigest()
