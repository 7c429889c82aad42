"""The journal of a model folder: a line for each change of the bank since the folder was written, and past relabels.

``changes.jsonl`` holds JSON records, one a line, each written and synced before it is acknowledged. ``config.json``
says up to which number changes are in the files of the folder; loading applies the rest. When the folder is written
anew, added rows move into its files; relabels and forgets stay as history, a relabel until its row is forgotten.
"""

import base64
import getpass
import json
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import pandas as pd
import torch
from pydantic import Field, JsonValue, PositiveInt, ValidationError
from torch import Tensor

from vicinal.core import files
from vicinal.core.folders import CHANGES, kept_modes, open_mode
from vicinal.core.untrusted import Saved, open_regular
from vicinal.estimators.adaptation import Adaptation

_START = b'{"crc32":"'
_REST = len(_START) + 8 + 2
"""Where the rest of a record begins, behind its checksum."""


class Change(Saved):
    """One record.

    Attributes:
        sequence: number of the change, one above that of the change before.
        time: when, in UTC.
        who: user or token.
        what: "add", "relabel", "forget" or "adapt".
        ids: of the rows.
        labels: of added rows, and the new ones of relabelled rows, as users give them.
        before: the old labels of relabelled rows.
        groups: of added rows, if the bank has groups.
        weights: of added rows, as users give them; None: that of a mean row of the fit.
        new_classes: whether added rows may be of classes that the model did not know.
        vectors: embeddings of added rows, float32 ``[n, d]``, little-endian, in base64: nothing is embedded again.
        rows: cells of added rows by column, as explanations show them: a sound by its path, an image as
            a thumbnail, ``{"base64": ...}``.
        adaptation: of "adapt" to which rows; None: it is taken back.
        table: which table of a matcher rows were added to.
        links: of rows that were added to a matcher, by column: they are there if and only if the rows are.
    """

    sequence: PositiveInt
    time: Annotated[str, Field(max_length=40)]
    who: Annotated[str, Field(max_length=200)]
    what: Literal["add", "relabel", "forget", "adapt"]
    ids: list[int | str]
    labels: list[JsonValue] | None = None
    before: list[JsonValue] | None = None
    groups: list[int | str] | None = None
    weights: list[Annotated[float, Field(gt=0, allow_inf_nan=False)]] | None = None
    new_classes: bool = False
    vectors: str | None = None
    rows: dict[str, list[JsonValue]] | None = None
    adaptation: Adaptation | None = None
    table: Literal["left", "right"] | None = None
    links: dict[str, list[JsonValue]] | None = None

    def line(self) -> bytes:
        """The record as a line: its checksum, the CRC-32 of all that follows it, stands first."""
        rest = json.dumps(self.model_dump(exclude_defaults=True), ensure_ascii=False, allow_nan=False)
        content = rest.encode()[1:]
        return _START + b"%08x" % zlib.crc32(content) + b'",' + content + b"\n"

    @classmethod
    def read(cls, line: bytes) -> Self:
        """The record in a line without its end; raises ValueError if it is damaged."""
        content = line[_REST:]
        if line[:_REST] != _START + b"%08x" % zlib.crc32(content) + b'",':
            raise ValueError("another checksum")
        return cls.model_validate_json(b"{" + content)

    def without(self, ids: Sequence[Any]) -> "Change | None":
        """The record without rows of these ids, None if none is left; a forget stays, as it holds ids only."""
        gone = set(map(str, ids))
        at = [place for place, name in enumerate(self.ids) if self.what == "forget" or str(name) not in gone]
        if len(at) == len(self.ids):
            return self
        parts = {name: getattr(self, name) for name in ("ids", "labels", "before")}
        left = {name: None if values is None else [values[place] for place in at] for name, values in parts.items()}
        return self.model_copy(update=left) if at else None


@dataclass(frozen=True)
class Changes:
    """What a model knows of the changes of its folder.

    Attributes:
        sequence: number of the last change that is in the bank.
        pending: rows whose change is in the journal only.
        history: relabels and forgets, oldest first.
    """

    sequence: int = 0
    pending: int = 0
    history: tuple[Change, ...] = ()

    def with_change(self, change: Change) -> "Changes":
        """These and one more."""
        history = self.history if change.what == "add" else (*self.history, change)
        return Changes(change.sequence, self.pending + len(change.ids), history)

    def without(self, ids: Sequence[Any]) -> "Changes":
        """These without the labels of rows that are forgotten."""
        left = (change.without(ids) for change in self.history)
        return replace(self, history=tuple(change for change in left if change is not None))

    def relabels(self, name: Any) -> list[tuple[Change, JsonValue, JsonValue]]:
        """The relabels of the row ``name``, each with its old and its new label, oldest first."""
        of_row = []
        for change in self.history:
            if change.what == "relabel" and change.before is not None and change.labels is not None:
                for one, old, new in zip(change.ids, change.before, change.labels, strict=True):
                    if str(one) == str(name):
                        of_row.append((change, old, new))
        return of_row


def now() -> str:
    """The time in UTC, as records have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def user_name() -> str:
    """Of who runs this process."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a user without a name
        return "unknown"


def read_changes(folder: Path, start: int = 0) -> tuple[list[Change], int]:
    """The records of a folder from byte ``start`` on, and where the last whole one ends.

    A last line without an end was torn and is passed over, also one with gaps of zeros, as a power cut leaves them.

    Raises:
        ValueError: for a damaged line, with its number.
    """
    path = folder / CHANGES
    if not os.path.lexists(path):
        return [], 0
    with open_regular(path) as file:
        file.seek(start)
        content = file.read()
    end = content.rfind(b"\n") + 1
    last = content[content.rfind(b"\n", 0, max(0, end - 1)) + 1 : end]
    if b"\0" in last:
        end -= len(last)
    changes = []
    for line in content[:end].split(b"\n")[:-1]:
        try:
            changes.append(Change.read(line))
        except (ValueError, ValidationError) as wrong:
            number = path.read_bytes()[:start].count(b"\n") + len(changes) + 1
            raise ValueError(
                f"{CHANGES}: expected a whole record in line {number} of {path}, got a damaged one; it was edited, or "
                "the disk is failing"
            ) from wrong
    return changes, start + end


def append_change(folder: Path, change: Change, end: int) -> int:
    """Write a record behind byte ``end``, over what a torn one left, and wait for the disk; gives its end.

    Raises:
        ValueError: if whole records stand behind ``end``.
        OSError: if it cannot be written; the file is as it was then.
    """
    path, line = folder / CHANGES, change.line()
    fresh = not path.exists()
    if (0 if fresh else path.stat().st_size) < end or read_changes(folder, end)[0]:
        raise ValueError(f"{CHANGES}: expected to write behind the last record of {path}, got others there; try again")
    mode = open_mode(kept_modes(folder)) if fresh else 0o666  # it holds what the other files hold
    with open(path, "ab", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.truncate(end)
        try:
            file.write(line)
            file.flush()
            files.layer.sync(path)
        except BaseException:
            file.truncate(end)
            raise
    if fresh:
        files.layer.sync(folder)
    return end + len(line)


def write_changes(stage: Path, changes: Changes) -> None:
    """Write the history into a folder that is being made."""
    if changes.history:
        (stage / CHANGES).write_bytes(b"".join(change.line() for change in changes.history))


def vectors_as_text(vectors: Tensor) -> str:
    """Vectors ``[n, d]`` as a record has them."""
    return base64.b64encode(vectors.numpy().astype("<f4").tobytes()).decode()


def added_rows(change: Change, columns: Sequence[str], numbers: Sequence[str]) -> tuple[pd.DataFrame, Tensor]:
    """Cells and vectors ``[n, d]`` of the rows that a record adds.

    Args:
        change: the record.
        columns: names of the columns of the bank's table.
        numbers: those of them that are numbers.

    Raises:
        ValueError: if it holds other columns, or vectors of another size.
    """
    count, cells = len(change.ids), change.rows or {}
    content = base64.b64decode(change.vectors or "", validate=True)
    wrong = any(len(values) != count for values in cells.values()) or len(content) % (4 * max(1, count))
    if set(cells) != set(columns) or wrong:
        raise ValueError(
            f"{CHANGES}: expected rows with the columns of the model in change {change.sequence}, got others"
        )
    kinds = {name: np.float64 if name in numbers else object for name in columns}
    frame = pd.DataFrame({name: pd.Series(list(map(_cell, cells[name])), dtype=kinds[name]) for name in columns})
    vectors = np.frombuffer(content, dtype="<f4").reshape(count, -1).astype(np.float32)
    return frame, torch.from_numpy(vectors)


def _cell(cell: JsonValue) -> Any:
    """A cell of a record as the bank has it."""
    content = cell.get("base64") if isinstance(cell, dict) else None
    return base64.b64decode(content, validate=True) if isinstance(content, str) else cell
