"""Rows that the page of ``vicinal explore`` shows besides the bank (typed, or of a table), and their cells."""

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vicinal.core import short
from vicinal.core.checks import ExtrapolationWarning, unwarned
from vicinal.core.identity import canonical_ids
from vicinal.data.duplicates import MEDIA
from vicinal.encoders.media import read_cell
from vicinal.estimators.banked import BankedEstimator
from vicinal.estimators.inputs import EmbeddedRows
from vicinal.estimators.search import query_table
from vicinal.report.page import cells, media_address
from vicinal.report.text import cell_text
from vicinal.training.rows import spread
from vicinal.workflows.predict import features_of, read_rows, who_of
from vicinal.workflows.search import read_row
from vicinal.workflows.showing import shown_cells

_SOUND = 24 << 20
"""Most bytes of a sound that is sent to the browser."""


class TableRows:
    """Rows of a table for the page: those that are not in the bank as queries, and images and sounds of all rows.

    Rows are identified by the column of ids that the model was fitted with. Without such a column all count as new.

    Args:
        root: folder that paths of images and sounds start from; None: that of the file.
        most: most new rows to take, spread evenly.

    Attributes:
        total: number of rows that are not in the bank.
        who: ``ids`` and ``groups`` of the taken rows, each if there is such a column.
        titles: names of the taken rows on the page.
        labels: their cells of the column that is predicted, as text; all "" without that column.
        added: position of each added row -> its id in the bank.
    """

    def __init__(
        self, model: BankedEstimator, source: Path, root: Path | None, most: int, log: Callable[[str], None]
    ) -> None:
        frame = read_rows(model, source, root, log).reset_index(drop=True)
        who = who_of(model, frame)
        names = canonical_ids("ids", who.get("ids", []))
        there = model.bank_.has(names) if "ids" in who else np.zeros(len(frame), dtype=bool)
        new = np.flatnonzero(~there)
        at = new[spread(len(new), most).numpy()]
        self.name, self.total, self.added = source.name, len(new), dict[int, Any]()
        self.who = {role: [values[place] for place in at] for role, values in who.items()}
        self.titles = [str(name) for name in self.who.get("ids", [f"row {place + 1}" for place in at])]
        target = model.notes_.get("target")
        self.labels = [cell_text(cell) for cell in frame[target].iloc[at]] if target in frame else [""] * len(at)
        self.frame = features_of(model, frame, log).iloc[at].reset_index(drop=True)
        self._media = frame[[name for name in frame.columns if model.kinds_.get(name) in MEDIA]]
        self._places = {str(name): place for place, name in enumerate(names.tolist())}
        self._embedded: tuple[BankedEstimator, EmbeddedRows] | None = None

    def media(self, name: Any) -> dict[str, Any]:
        """Images and sounds of the table's row with this id; none if there is no such row."""
        place = self._places.get(str(name))
        return {} if place is None else {str(name): self._media[name].iloc[place] for name in self._media}

    def left(self, model: BankedEstimator) -> list[int]:
        """Positions of the rows that are not in the bank yet."""
        every = range(len(self.frame))
        names = dict(enumerate(self.who["ids"])) if "ids" in self.who else self.added
        there = model.bank_.has(list(names.values())) if names else np.zeros(0, dtype=bool)
        gone = set(np.array(list(names), dtype=np.int64)[there].tolist())
        return [place for place in every if place not in gone]

    def embedded(self, model: BankedEstimator) -> EmbeddedRows:
        """The rows with their embeddings, which are computed again if the network has changed."""
        if self._embedded is None or self._embedded[0] is not model:
            rows = None if self._embedded is None else self._embedded[1]
            if rows is None or not self._is_embedded_by(model, rows):
                rows = (
                    self._rows(model, self.frame)
                    if len(self.frame)
                    else EmbeddedRows(self.frame, model.bank_.vectors[:0])
                )
            self._embedded = model, rows
        return self._embedded[1]

    def _rows(self, model: BankedEstimator, frame: pd.DataFrame) -> EmbeddedRows:
        """The first rows; those of a group of the bank by the fold that left it out."""
        groups = {role: names[: len(frame)] for role, names in self.who.items() if role == "groups"}
        with unwarned(ExtrapolationWarning):
            return model.query_rows(frame, **groups, look=False)

    def _is_embedded_by(self, model: BankedEstimator, rows: EmbeddedRows) -> bool:
        """Whether the network of ``model`` still gives the embedding of the first row; it may have been refitted."""
        if not len(rows.frame):
            return True
        first = self._rows(model, rows.frame.iloc[:1]).vectors
        return first.shape[1] == rows.vectors.shape[1] and bool(torch.allclose(first, rows.vectors[:1], 1e-4, 1e-4))

    def row(self, model: BankedEstimator, place: int) -> tuple[EmbeddedRows, Any, Any]:
        """One row with its embedding, and its id and group, each as a list of one or None."""
        rows = self.embedded(model)
        one = EmbeddedRows(rows.frame.iloc[[place]], rows.vectors[place : place + 1])
        who = {role: [names[place]] for role, names in self.who.items()}
        return one, who.get("ids"), who.get("groups")

    def predict(self, model: BankedEstimator) -> Tensor:
        """Predictions ``[n]`` or ``[n, K]`` of all rows."""
        groups = canonical_ids("groups", self.who["groups"]) if "groups" in self.who else None
        identity = model.bank_.identity(None, groups)
        return model.fitted_.in_label_units(
            model.fitted_.predict_embedded(self.embedded(model).vectors.double(), identity)
        ).double()


def embedded_row(model: BankedEstimator, row: str, files: Mapping[str, str]) -> EmbeddedRows:
    """A typed row (a JSON object, or nothing) with uploaded files (in base64, by column), embedded.

    Raises:
        ValueError: for a file in a column of another kind, or a row that the model cannot read.
    """
    cell_of = read_row(row) if row.strip() else {}
    for name, kind in model.kinds_.items():
        if kind in MEDIA and name in cell_of:
            raise ValueError(f"row: expected the file of the column {short(name)} to be chosen, got a cell")
    for name, content in files.items():
        if model.kinds_.get(name) not in MEDIA:
            raise ValueError(f"files: expected a column of images or sounds, got {short(name)}")
        try:
            cell_of[name] = {"bytes": base64.b64decode(content, validate=True)}
        except (binascii.Error, ValueError) as wrong:
            raise ValueError("files: expected base64, got other text") from wrong
    frame = pd.DataFrame({name: pd.Series([cell]) for name, cell in cell_of.items()})
    return EmbeddedRows(*model.embedded_rows(query_table(model, frame)[0]))


def page_cells(model: BankedEstimator, row: Mapping[str, Any]) -> list[dict[str, str]]:
    """A row for the page: an image as a data URI, a sound by its name, all else as text.

    A path is opened only inside the folder that the user named, never because a bank contains it.
    """
    kinds, plain = dict(model.kinds_), dict(row)
    sounds = {name: plain.pop(name) for name in row if kinds.get(name) == "audio"}
    for name, cell in plain.items():
        if kinds.get(name) == "image" and model.root is None and not _content(cell):
            del kinds[name]
            plain[name] = f"{cell} (name its folder by --root to see it)" if isinstance(cell, str) else cell
    shown = shown_cells(plain, kinds, None if model.root is None else Path(model.root))
    return [*(_sound(name, cell, model) for name, cell in sounds.items()), *(asdict(v) for v in cells(shown, 400))]


def _sound(name: str, cell: Any, model: BankedEstimator) -> dict[str, str]:
    path = cell.get("path") if isinstance(cell, dict) else cell if isinstance(cell, str) else None
    playable = _content(cell) or (bool(path) and model.root is not None)
    why = "name its folder by --root to play it" if path else "the bank keeps no sound; give its table to play it"
    title = Path(path).name if path else name
    return {"column": name, "kind": "sound" if playable else "text", "text": title if playable else f"{title} ({why})"}


def _content(cell: Any) -> bool:
    content = cell.get("bytes") if isinstance(cell, dict) else cell
    return isinstance(content, bytes | bytearray)


def sound_address(model: BankedEstimator, row: Mapping[str, Any], column: str, name: Any) -> str:
    """The data URI of a sound, for a player.

    Raises:
        ValueError: if it cannot be read, is not in a format that browsers play, or is over 24 MiB.
    """
    cell = row.get(column)
    if model.kinds_.get(column) != "audio" or not (_content(cell) or model.root is not None):
        raise ValueError(f"sound: expected a column of sounds whose folder is known, got {short(column)}; say --root")
    root = None if model.root is None else Path(model.root)
    content = read_cell(cell, column=column, row=name, what="a sound", root=root)
    address = media_address(content) if len(content) <= _SOUND else ""
    if not address.startswith("data:audio/"):
        raise ValueError(f"sound: expected wav, flac, ogg or mp3 of at most {_SOUND >> 20} MiB, got another file")
    return address
