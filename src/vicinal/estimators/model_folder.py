"""A model folder that changes while it is in use, by several processes at once: rows added, relabelled, forgotten."""

import base64
import contextlib
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pandas as pd
import torch

from vicinal.core import files
from vicinal.core.checks import ECHO, local_path, short_text
from vicinal.core.folders import CHANGES, staged_folder
from vicinal.core.identity import canonical_ids
from vicinal.estimators.bank_changes import check_predicts, next_ids
from vicinal.estimators.banked import BankedEstimator, load_model
from vicinal.estimators.inputs import Ids
from vicinal.estimators.journal import Change, append_change, now, read_changes, user_name, vectors_as_text
from vicinal.estimators.saving import CONFIG, OpenSettings, shown_cell, write_model
from vicinal.estimators.shift import Shift

PAGES = ("README.md", "report.html", "splits.json", "plan.json")
"""Files of a fit that a bank with other rows leaves true: they tell of the fit."""

_FEW = 1000
"""Rows in the journal, at least, before the folder is written anew."""


class ModelFolder:
    """The model in a folder, and its journal: how rows are added, relabelled and forgotten so that it lasts.

    A change is made in memory, written to the journal ``changes.jsonl`` and synced. Once a method returns, the change
    survives a kill and a power cut, and every :func:`load_model` and every refreshed ModelFolder sees it. Writers in
    different processes take turns. Only :meth:`forget`, :meth:`compact` and :meth:`train_on` write the folder's other
    files, so adding a few rows costs the same whatever the size of the bank.

    ``model`` is the model as of the last call; it may be another object after a call. ``model.changes_.history`` has
    the relabels and forgets so far. One thread at a time may use a ModelFolder.

    Args:
        folder: of the model.
        who: the name that the journal records; None: the user's.
        opening: how the model is opened, see :class:`vicinal.estimators.saving.OpenSettings`.

    >>> import tempfile
    >>> from vicinal.estimators import NeighborRegressor
    >>> x = np.linspace(0, 6, 60)[:, None]
    >>> with tempfile.TemporaryDirectory() as place:
    ...     NeighborRegressor(metric="kernel").fit(x, np.sin(x[:, 0])).save(f"{place}/m")
    ...     folder = ModelFolder(f"{place}/m", who="ann")
    ...     name = folder.add([[7.0]], [0.6])[0]
    ...     before = folder.relabel([name], [0.66])
    ...     change, old, new = load_model(f"{place}/m").changes_.relabels(name)[0]
    >>> change.who, old, new
    ('ann', 0.6, 0.66)
    """

    model: BankedEstimator

    def __init__(
        self,
        folder: str | Path,
        *,
        who: str | None = None,
        **opening: Unpack[OpenSettings],
    ) -> None:
        self.path = files.resolved(local_path("model", folder))
        self.who = user_name() if who is None else who
        self._opening = opening
        self._seen: tuple[Any, Any] | None = None
        self._end = 0
        self._open()

    def refresh(self) -> bool:
        """Take over what others have changed since; returns whether there was anything. It costs two file stats."""
        seen = self._look()
        if seen == self._seen:
            return False
        known = None if self._seen is None else self._seen[0]
        size = 0 if seen[1] is None else seen[1]
        if known != seen[0] or size < self._end:
            self._open()
            return True
        changes, self._end = read_changes(self.path, self._end)
        before = self.model.changes_.sequence
        for change in changes:
            if change.sequence > self.model.changes_.sequence:
                self.model.apply_change(change)
        self._seen = seen
        return self.model.changes_.sequence > before

    def add(
        self,
        X: Any,
        y: Any,
        *,
        sample_weight: Any = None,
        ids: Any = None,
        groups: Any = None,
        new_classes: bool = False,
        who: str | None = None,
    ) -> Ids:
        """Add labelled rows: see :meth:`NeighborRegressor.add`; gives their ids.

        Raises:
            ValueError: for rows that the model cannot take, or an id that is known; nothing is changed then.
            OSError: if the journal cannot be written; likewise.
        """
        embedded_by, (frame, vectors) = self.model, self.model.embedded_rows(X)
        with self._turn():
            if self.model is not embedded_by:  # another model may be there by now
                frame, vectors = self.model.embedded_rows(X)
            if sample_weight is not None:
                columns = frame, vectors, _plain(y), ids, groups
                sample_weight, (frame, vectors, y, ids, groups) = self.model.weighted_rows(sample_weight, *columns)
            kinds = self.model.kinds_
            ids = next_ids(self.model.fitted_, len(frame)) if ids is None else ids
            names = canonical_ids("ids", ids, len(frame), distinct=True)
            change = {
                "what": "add",
                "ids": names.tolist(),
                "labels": _plain(y),
                "groups": None if groups is None else canonical_ids("groups", groups, len(frame)).tolist(),
                "weights": None if sample_weight is None else sample_weight.tolist(),
                "vectors": vectors_as_text(vectors),
                "rows": {str(name): _cells(frame[name], kinds.get(str(name))) for name in frame.columns},
                "new_classes": new_classes,
            }
            self._write(change, who)
            return names

    def relabel(self, ids: Any, labels: Any, *, who: str | None = None) -> list[Any]:
        """Give rows other labels: see :meth:`NeighborRegressor.relabel`; gives the old ones.

        A label that a row has already is no change, and not in the journal.

        Raises:
            ValueError: for an id that no row has, or a label that the model cannot have; nothing is changed then.
            OSError: if the journal cannot be written; likewise.
        """
        names = canonical_ids("ids", ids, distinct=True)
        with self._turn():
            before, labels = self.model.labels_of(names), _plain(labels)
            rows = [*zip(names.tolist(), labels, before, strict=False)]
            if len(labels) == len(before):  # another number of labels is refused where they are read
                rows = [row for row in rows if row[1] != row[2]]
            change = {"ids": [row[0] for row in rows], "before": [row[2] for row in rows]}
            if rows:
                self._write({"what": "relabel", **change, "labels": [row[1] for row in rows]}, who)
            return before

    def forget(self, ids: Any, *, who: str | None = None) -> None:
        """Remove rows: see :meth:`NeighborRegressor.forget`. The folder is written anew, without its report and card.

        Afterwards no file in it holds cells or labels of these rows, not even labels they had earlier.

        Raises:
            ValueError: for an id that no row has, or if no row would be left; nothing is changed then.
            OSError: if the folder cannot be written; likewise.
        """
        gone = np.asarray(pd.unique(canonical_ids("ids", ids)))
        with self._turn():
            self.model.apply_change(self._change({"what": "forget", "ids": gone.tolist()}, who))
            self._rewrite(())

    def adapt(self, X: Any, y: Any = None, *, who: str | None = None) -> Shift:
        """Adapt to rows that differ from the fit, or take that back: see :meth:`NeighborRegressor.adapt`.

        Raises:
            ValueError: for rows that cannot be adapted to; nothing is changed then.
            OSError: if the journal cannot be written; likewise.
        """
        with self._turn():
            shift, adaptation = self.model.shift_of(X, y)
            if adaptation != self.model.fitted_.adaptation:
                self._write({"what": "adapt", "ids": [], "adaptation": adaptation}, who)
            return shift

    def compact(self) -> None:
        """Write the folder anew if there are changes in the journal that its files do not hold yet."""
        with self._turn():
            if self.model.changes_.pending:
                self._rewrite(PAGES)

    def train_on(self, added: Ids, epochs: int) -> None:
        """Train a few epochs more, and write the folder anew: see :meth:`NeighborRegressor.train_on`.

        Raises:
            ValueError: for a model that cannot be trained on; nothing is changed then.
            OSError: if the folder cannot be written; likewise.
        """
        with self._turn():
            try:
                self.model.train_on(added, epochs)
                self._rewrite(PAGES)
            except BaseException:
                self._open()
                raise

    @contextlib.contextmanager
    def replaced(self, without: Sequence[Any] = ()) -> Iterator[Path]:
        """An empty folder for another model, which takes the place of this one when the block ends without an error.

        Until then ``model`` is the old model, which forgets the rows ``without``, and writers wait.
        """
        with self._turn():
            if len(without):
                self.model.apply_change(self._change({"what": "forget", "ids": list(without)}, None))
            with staged_folder(self.path) as stage:
                yield stage
            self._open()

    @property
    def due(self) -> bool:
        """Whether the journal holds so many rows that the folder should be written anew."""
        return self.model.changes_.pending > max(_FEW, len(self.model.bank_) // 8)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """The lock of writers, with the model as it is now; after an error that of the folder."""
        with files.locked(self.path, "update"):
            self.refresh()
            before = self.model.changes_
            try:
                yield
            except BaseException:
                if self.model.changes_ is not before:  # it was done in memory and not on the disk
                    self._open()
                raise

    def _open(self) -> None:
        root = self.model.root if hasattr(self, "model") else None
        while True:
            place = self._look()[0]
            model = load_model(self.path, **self._opening)
            changes, end = read_changes(self.path)
            if place == self._look()[0]:
                break
        model.root = root
        for change in changes:  # that came while the model was read
            if change.sequence > model.changes_.sequence:
                model.apply_change(change)
        self.model, self._seen, self._end = model, (place, None), end

    def _look(self) -> tuple[Any, Any]:
        """What tells the folder from another of its name, and how long the journal is."""
        known: list[Any] = []
        for name in (CONFIG, CHANGES):
            try:
                status = (self.path / name).stat()
            except (FileNotFoundError, NotADirectoryError):
                known.append(None)
            else:
                known.append((status.st_ino, status.st_mtime_ns) if name == CONFIG else status.st_size)
        return known[0], known[1]

    def _change(self, change: Mapping[str, Any], who: str | None) -> Change:
        sequence = self.model.changes_.sequence + 1
        name = short_text(self.who if who is None else who, 200)
        return Change.model_construct(sequence=sequence, time=now(), who=name, **change)  # the model checks the values

    def _write(self, values: Mapping[str, Any], who: str | None) -> None:
        """Do a change, first in memory, where it may be refused, then in the journal."""
        change = self._change(values, who)
        self.model.apply_change(change)
        check_predicts(self.model.fitted_, change.ids)
        self._end = append_change(self.path, change, self._end)
        seen = self._look()
        if self._seen is None or seen[0] != self._seen[0]:
            raise ValueError(
                f"model: expected {short_text(self.path, ECHO)} to stay while it is changed, got another model there; "
                "try again"
            )
        self._seen = seen

    def _rewrite(self, pages: Sequence[str]) -> None:
        """The folder anew, with what the model is in memory."""
        with staged_folder(self.path) as stage:
            write_model(self.model, stage, self.model.notes_)
            for name in pages:
                page = self.path / name
                if page.is_file() and not page.is_symlink():  # a link may lead to what is nobody's business here
                    shutil.copy2(page, stage / name, follow_symlinks=False)
        self._open()  # so that the files that were replaced are let go


def _plain(values: Any) -> list[Any]:
    """Labels as JSON has them."""
    listed = values.tolist() if hasattr(values, "tolist") else list(values)
    return [
        _plain(one) if isinstance(one, list | tuple | set | frozenset | np.ndarray) else _scalar(one) for one in listed
    ]


def _scalar(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic | torch.Tensor) else value


def _cells(column: pd.Series, kind: str | None) -> list[Any]:
    """Cells as explanations show them, None for a gap."""
    cells: list[Any] = []
    for cell in column.tolist():
        plain = _scalar(cell)
        if isinstance(plain, bool | int | float):
            cells.append(None if isinstance(plain, float) and not math.isfinite(plain) else plain)
        else:
            shown = shown_cell(cell, kind)
            cells.append({"base64": base64.b64encode(shown).decode()} if isinstance(shown, bytes) else shown)
    return cells
