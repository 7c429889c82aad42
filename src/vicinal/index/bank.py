"""The bank of a neighbor model at any size: rows with ids, groups, vectors, labels and cells."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from vicinal.core.arrays import Array
from vicinal.core.folders import read_whole, staged_folder
from vicinal.core.identity import as_texts, canonical_ids, shown
from vicinal.index.bank_files import NAMES, ROWS, VERSION, BankContents, read_bank, write_bank
from vicinal.index.bank_schema import (
    BankSchema,
    SavedBank,
    as_kind,
    check_columns,
    check_values,
    checked_folds,
    checked_groups,
    checked_labels,
    checked_rows,
    checked_weights,
    in_float32,
    schema_of,
)
from vicinal.index.bank_storage import Columns, Names, TableStore
from vicinal.index.base import check_vectors
from vicinal.index.rows import BankRows
from vicinal.index.tensor_file import Column
from vicinal.version import __version__

if TYPE_CHECKING:
    import pandas as pd

_STEP = 1 << 14
"""Rows that are gone and whose cells are kept at least."""

_RUN = 1 << 16
"""Rows that are written at a time."""

_STORED = ("keys", "groups", "vectors", "labels", "folds", "weights")
_SETTINGS = "told"
"""The tensor of a state that holds the settings and the names; files of today have it under this name."""


class NeighborBank(BankRows):
    """Labelled rows by id, which neighbors are searched among and predictions are made from.

    Adding never copies the rows that are there; removing moves the last rows into the gaps, so *positions* change while
    ids do not. Either costs a pass over the sorted ids (16 bytes a row) plus work on the rows in question. A loaded
    bank is mapped from its files, copy-on-write: only what is read is in memory, and changes stay in memory until the
    bank is saved.

    Ids are whole numbers of at least 0, or strings if the first ids given are; so are groups. Internally, and in an
    :class:`vicinal.index.Index`, a row is known by its *key*: its id, or for strings a number that is never reused.

    Args:
        dim: width of the vectors.

    >>> import torch
    >>> bank = NeighborBank(2)
    >>> bank.add(["a", "b", "c"], torch.tensor([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]), torch.tensor([1.0, 2.0, 3.0]))
    >>> bank.remove(["a"])
    >>> len(bank), bank.ids.tolist(), bank.labels
    (2, ['c', 'b'], tensor([3., 2.]))
    """

    def add(
        self,
        ids: Any,
        vectors: Tensor | Array,
        labels: Tensor | Array | None = None,
        *,
        groups: Any = None,
        rows: "pd.DataFrame | None" = None,
        folds: Any = None,
        weights: Any = None,
    ) -> None:
        """Put rows in; all of them or, after an error, none.

        Args:
            ids: ``[n]``, none of them in the bank.
            vectors: ``[n, d]``, finite; kept in float32.
            labels: ``[n]`` or ``[n, T]``, floating, without NaN; for all rows of the bank or for none, like the
                arguments below.
            groups: ``[n]``.
            rows: a table of n rows, kept with the vectors and returned by :attr:`rows`.
            folds: ``[n]``, the fold that each row was held out with in training, from 0, or -1 for none; None: no
                folds, or -1 if the bank has folds already.
            weights: ``[n]``, > 0, how many equal rows each counts as; None: one.

        Raises:
            TypeError: for vectors or labels that are not floating.
            ValueError: for an id that is given twice or in the bank already, a wrong shape, NaN or infinity.
        """
        names = canonical_ids("ids", ids, distinct=True)
        if self._form is not None:
            names = as_kind("ids", names, self._form.ids)
        cells = self._checked(len(names), labels, groups, rows, vectors=vectors)
        cells |= self._filled(len(names), folds, weights)
        self._check_new(names)
        if len(names) == 0:
            return
        form = schema_of(names, cells, rows)
        if self._form is not None:
            self._form.check_same(form)
        self._start(form)
        keys = names if self._id_names is None else self._id_names.numbers(names, add=True)
        columns = {"keys": keys} | self._stored(cells, rows)
        self.id_map().add(keys, np.arange(len(self), len(self) + len(names)))
        self._columns.append(columns)

    def remove(self, ids: Any) -> None:
        """Take rows out; the last rows take their places.

        Raises:
            ValueError: for an id that is given twice or is not in the bank; nothing is removed then.
        """
        places = self._known_positions(canonical_ids("ids", ids, distinct=True))
        if len(places) == 0:
            return
        gone = self._columns.take("keys", places)
        _, holes = self._columns.remove(places)
        self.id_map().drop(gone)
        # the last rows have moved into the holes, so their ids stand there now
        if len(holes):
            self.id_map().move(self._columns.take("keys", holes), holes)
        if self._id_names is not None:
            self._id_names.forget(gone)
        self._tidy()

    def update(
        self,
        ids: Any,
        vectors: Tensor | Array | None = None,
        labels: Tensor | Array | None = None,
        *,
        groups: Any = None,
        rows: "pd.DataFrame | None" = None,
    ) -> None:
        """Give rows that are there other vectors, labels, groups or cells, whichever are not None.

        Raises:
            ValueError: for an id that is given twice or is not in the bank, or as :meth:`add`; nothing is changed then.
        """
        names = canonical_ids("ids", ids, distinct=True)
        places = self._known_positions(names)
        for name, value in (("labels", labels), ("groups", groups), ("rows", rows)):
            if value is not None and len(places) and not self._has(name):
                raise ValueError(f"{name}: expected none, as the rows of the bank have none, got some")
        known = {} if vectors is None else {"vectors": vectors}
        cells = self._checked(len(names), labels, groups, rows, **known)
        if len(places):
            self._columns.put(places, self._stored(cells, rows))
            self._tidy()

    def reserve(self, rows: int) -> None:
        """Make room for ``rows`` rows in all, in one stretch of memory, so that :attr:`vectors` need no copy.

        Rows that lie elsewhere, such as those of a mapped file, are moved there. Unused room costs no memory.
        """
        self._columns.reserve(rows)

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: everything in memory, nothing mapped, and nothing of rows that were removed."""
        if self._table is not None:
            self._compact(self._table)
        return self.__dict__.copy()

    def _tidy(self) -> None:
        """Let go of cells of rows that are not there any more, when these are most."""
        if self._table is not None and self._table.rows > 2 * len(self) + _STEP and len(self):
            self._compact(self._table)

    def _compact(self, payload: TableStore) -> None:
        """Keep the cells of the rows that are there, and no others."""
        cells = payload.take(self._whole("cells"))
        self._table = TableStore(list(cells.columns))
        if len(self):
            self._columns.put(np.arange(len(self)), {"cells": self._table.add(cells)})

    # Keeping it.

    def save(self, folder: str | Path) -> None:
        """Write the bank as a folder, whole or not at all; it may be the folder that it was loaded from.

        Args:
            folder: new, empty, or of an earlier bank.
        """
        with staged_folder(Path(folder), "bank") as stage:
            self.write(stage)

    def write(self, stage: Path, cells: "pd.DataFrame | None" = None) -> None:
        """Write the files of the bank into an empty folder, with ``cells``, if given, in place of its table of rows."""
        if cells is None and len(self):
            cells = self.rows
        write_bank(stage, self._settings(), self._stored_columns(), self._names(), cells)

    @classmethod
    def load(cls, folder: str | Path, *, verify: bool = False) -> Self:
        """The bank saved in ``folder``, mapped: opening it reads the settings and the names, not the rows.

        The checksums of the settings and of all small files are always checked, and that the file of the rows is
        complete and has the header that was written. The table of rows is checked when it is first read.

        Args:
            folder: as :meth:`save` wrote it. It may be replaced while the bank is in use, but not changed in place.
            verify: also read all rows and check their checksum, at the speed of the disk.

        Raises:
            ValueError: naming the file that is missing, damaged, edited or of a newer version.
        """
        contents, table = read_whole(Path(folder), lambda place: read_bank(place, verify=verify))
        bank = cls(contents.settings.dim)
        bank.restore(contents, ROWS, table)
        if verify:
            bank.check()
        return bank

    def state_dict(self) -> dict[str, Tensor]:
        """The rows as tensors by name, with the settings and strings in one of bytes, but not the table of rows."""
        state = {name: torch.from_numpy(self._columns.whole(name)) for name in self._stored_columns()}
        settings = json.dumps(self._settings().model_dump() | self._names())
        return state | {_SETTINGS: torch.frombuffer(bytearray(settings.encode()), dtype=torch.uint8)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Become the bank that ``state`` was taken of, without its table of rows.

        Raises:
            ValueError: if it is not the state of a bank, or of one with another width.
        """
        try:
            saved = json.loads(bytes(state[_SETTINGS].tolist()))
            names = {name: saved.pop(name, []) for name in ("id", "group")}
            settings = SavedBank.model_validate_json(json.dumps(saved))
        except (KeyError, ValueError) as wrong:
            raise ValueError("state: expected the state of a bank, got other content") from wrong
        if settings.dim != self.dim:
            raise ValueError(f"state: expected dim={self.dim}, as this bank, got {settings.dim}")
        if settings.form is not None:
            settings = settings.model_copy(update={"form": settings.form.model_copy(update={"rows": False})})
        columns = {name: value.detach().cpu().numpy().copy() for name, value in state.items() if name != _SETTINGS}
        check_columns("state", settings, columns)
        self.restore(BankContents(settings, in_float32(columns), names), "state")

    def restore(self, contents: BankContents, source: str, table: "Callable[[], pd.DataFrame] | None" = None) -> None:
        """Become the bank that ``contents`` were taken of.

        Args:
            contents: settings, columns and names that fit together.
            source: its name in errors; values are checked when they are first used.
            table: returns the table of rows when it is first needed; None: there is none.

        Raises:
            ValueError: for ids or keys that are given twice.
        """
        form, count, columns = contents.settings.form, contents.settings.rows, dict(contents.columns)
        id_names = group_names = payload = None
        if form is not None and form.ids == "strings":
            ids = canonical_ids(f"{NAMES}: id", contents.names.get("id", []), distinct=True, exact=True)
            keys = columns["keys"] if count else np.zeros(0, dtype=np.int64)
            check_values(source, "keys", keys)
            if len(np.unique(keys)) < len(keys):
                raise ValueError(f"{source}: expected each key once, got one twice; the file was edited")
            id_names = Names(as_texts(ids).tolist(), keys.tolist(), contents.settings.following)
        if form is not None and form.groups == "strings":
            group_names = Names()
            if count:
                groups = as_texts(canonical_ids(f"{NAMES}: group", contents.names["group"], exact=True))
                columns["groups"] = group_names.numbers(groups, add=True)
        if form is not None and form.rows:
            columns["cells"] = np.arange(count)
            payload = TableStore(contents.settings.columns, table, count)
        self._form = form
        self._places, self._id_names, self._group_names, self._table = None, id_names, group_names, payload
        self._columns = Columns(columns)
        self.distrust(source)

    def _settings(self) -> SavedBank:
        """What ``bank.json`` holds, but for the checksum of the header."""
        return SavedBank(
            version=VERSION,
            vicinal=__version__,
            dim=self.dim,
            storage="float32",
            exact=True,
            rows=len(self),
            form=self._form,
            following=0 if self._id_names is None else self._id_names.following,
            columns=self.columns,
            header="",
        )

    def _stored_columns(self) -> dict[str, Column]:
        """The columns that are numbers, in runs."""
        columns: dict[str, Column] = {}
        names = self._columns.names
        for name in (name for name in _STORED if name in names):
            if name == "groups" and self._group_names is not None:
                continue
            first = next(run for _, run in self._columns.pieces(name, 1))
            runs = (run for _, run in self._columns.pieces(name, _RUN))
            columns[name] = Column(first.dtype, (len(self), *first.shape[1:]), runs)
        return columns

    def _names(self) -> dict[str, list[str]]:
        """The columns that are strings."""
        if not len(self):
            return {}
        names: dict[str, list[str]] = {} if self._id_names is None else {"id": self.ids.tolist()}
        if self._group_names is not None and self._has("groups"):
            names["group"] = np.asarray(self.groups).tolist()
        return names

    # Checking.

    def _checked(self, count: int, labels: Any, groups: Any = None, rows: Any = None, **more: Any) -> dict[str, Array]:
        """Those of vectors, labels and groups that are given, as columns; the rows of a table are looked at."""
        each = more.items()
        cells: dict[str, Array] = {name: check_vectors(name, of, self.dim, count).cpu().numpy() for name, of in each}
        if rows is not None:
            checked_rows(rows, count, self.columns)
        if labels is not None:
            cells["labels"] = checked_labels(labels, count, self._form)
        if groups is not None:
            cells["groups"] = checked_groups(groups, count, self._form)
        return cells

    def _filled(self, count: int, folds: Any = None, weights: Any = None) -> dict[str, Array]:
        """Folds and weights as columns: those that are given, or what stands for none if the bank has some."""
        form, cells = self._form, {}
        if folds is None and form is not None and form.folds:
            folds = np.full(count, -1)
        if folds is not None:
            cells["folds"] = checked_folds(folds, count)
        if weights is None and form is not None and form.weights:
            weights = np.ones(count)
        if weights is not None:
            cells["weights"] = checked_weights(weights, count)
        return cells

    def _known_positions(self, names: Array) -> Array:
        """Positions of ids that must be there."""
        places = self.id_map().of(self._known_keys(names))
        if (places < 0).any():
            raise ValueError(f"ids: expected ids that the bank has, got {shown(names[places < 0])}, which it has not")
        return places

    def _check_new(self, names: Array) -> None:
        if names.dtype == np.int64 and len(names) and names.min() < 0:
            raise ValueError(f"ids: expected whole numbers of at least 0, got {int(names.min())}")
        there = self.id_map().has(self._known_keys(names))
        if there.any():
            raise ValueError(f"ids: expected ids that the bank has not yet, got {shown(names[there])}, which it has")

    def _start(self, form: BankSchema) -> None:
        """Become a bank of this form, if it has none yet; one without weights gets a column of them."""
        if self._form is not None:
            if form.weights and not self._form.weights:
                self._form = self._form.model_copy(update={"weights": True})
                self._columns.fill("weights", 1.0)
            return
        self._form = form
        self._id_names = Names() if form.ids == "strings" else None
        self._group_names = Names() if form.groups == "strings" else None
        self._table = TableStore() if form.rows else None

    def _stored(self, cells: dict[str, Array], rows: "pd.DataFrame | None") -> dict[str, Array]:
        """Checked cells as columns, and the rows of a table as what stands for them."""
        if "groups" in cells and self._group_names is not None:
            cells["groups"] = self._group_names.numbers(cells["groups"], add=True)
        if rows is not None and self._table is not None:
            cells["cells"] = self._table.add(rows)
        return cells
