"""``vicinal explore``: browse the bank of a model, find suspicious labels, and correct them."""

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from vicinal.core import check_choice, short
from vicinal.core.arrays import Array
from vicinal.core.checks import unwarned
from vicinal.core.identity import IdentityWarning, canonical_ids
from vicinal.data.writing import csv_texts
from vicinal.estimators.banked import CELLS, BankedEstimator
from vicinal.estimators.explanation import Explanation
from vicinal.estimators.inputs import EmbeddedRows
from vicinal.estimators.model_folder import ModelFolder
from vicinal.estimators.search import Hit, rows_of, search_rows, vectors_of
from vicinal.evaluation.audit import class_suspicion, suspicion
from vicinal.report.figures import principal_plane
from vicinal.training.rows import spread
from vicinal.workflows.explore_rows import TableRows, embedded_row, page_cells, sound_address
from vicinal.workflows.measuring import untrained_features
from vicinal.workflows.search import read_row
from vicinal.workflows.suspects import doubts, expected_labels, left_out, scaled

_DOUBTED = 4096
"""Most rows whose labels are checked, spread evenly over the bank: each is predicted from all others."""

_LEAST, _PAIRS = 256, 1 << 25
"""In a large bank, at least so many rows, and beyond that at most so many pairs with all others, to limit the time."""

_HITS, _LISTED = 12, 50
_FARTHEST = 1000
"""Nearest rows that are searched for one of another label."""

LOOKS = (
    "version",
    "map",
    "columns",
    "filter",
    "rows",
    "suspects",
    "row",
    "sound",
    "search",
    "nearest_other",
    "compare",
)
"""Methods of an explorer that a page of any model asks."""

CHANGES = ("relabel", "forget", "add", "add_query", "undo")
"""Methods of an explorer that change its model."""

_VALUES = 100
"""Values of a category that are offered, at most."""


class Explorer:
    """The model in a folder, with the queries and changes of its page.

    Every change is in the journal of the folder when its method returns. Only the memory of this object can undo a
    ``forget``: no file holds a forgotten row. :meth:`version` and :meth:`map` take over changes made by others. Only
    one thread at a time may use it.

    Args:
        folder: of a model that predicts one number, or one class per row, from neighbors; or that folder opened.
        k: number of rows to list behind a prediction.
        table: file of a table whose rows that are not in the bank are shown, too.
        root: folder that paths of images and sounds start from; None: that of the table.
        most: most rows of the table to show, spread evenly over those that are not in the bank.
        log: gets what was ignored in the table.
        can: changes that its page offers; without "undo" no change, and so no forgotten row, is remembered.
        settings: see :class:`vicinal.estimators.ModelFolder`.
    """

    def __init__(
        self,
        folder: Path | ModelFolder,
        k: int = 8,
        *,
        table: Path | None = None,
        root: Path | None = None,
        most: int = 1000,
        log: Callable[[str], None] = lambda line: None,
        can: Sequence[str] = CHANGES,
        **settings: Any,
    ) -> None:
        self.folder = folder if isinstance(folder, ModelFolder) else ModelFolder(folder, **settings)
        self.k, self.name, self.can = k, self.folder.path.name, can
        if not hasattr(self.model, "predict") or self.model.multilabel_ or self.model.targets_ is not None:
            raise ValueError("model: expected one of numbers or of one class a row, got another; say vicinal search")
        self.model.check_neighbor_head("explore")
        if not hasattr(self.model, "feature_names_in_"):
            raise ValueError("model: expected one fitted on a table with names of columns, got one without")
        self.model.root = root
        self.table = None if table is None else TableRows(self.model, table, root, most, log)
        self.changes: list[dict[str, Any]] = []
        self._undo: list[tuple[dict[str, Any], Callable[[], object]]] = []
        self._said: tuple[Any, *tuple[Array, ...]] | None = None
        self._plane: tuple[object, Array] | None = None
        self._said_of_table: tuple[Any, list[Any]] | None = None
        self._frame: tuple[object, pd.DataFrame] | None = None

    @property
    def model(self) -> BankedEstimator:
        """The current model."""
        return self.folder.model

    # What is looked at.

    def version(self) -> dict[str, Any]:
        """The number of the last change, also by others, which tells a page that it is outdated."""
        while self.folder.refresh():  # until nothing is new
            pass
        return {"version": self.model.changes_.sequence, "rows": len(self.model.bank_), "undo": len(self._undo)}

    def map(self) -> dict[str, Any]:
        """All rows on their principal plane, with labels, the scores of the last :meth:`suspects`, and table rows."""
        version, bank, classes = self.version(), self.model.bank_, self.model.fitted_.codec.classes.tolist()
        points, doubt, left = self._points(), self._doubts(), [] if self.table is None else self.table.left(self.model)
        return {
            **version,
            "name": self.name,
            "can": list(self.can),
            "target": str(self.model.notes_.get("target") or "label"),
            "columns": {str(name): str(kind) for name, kind in self.model.kinds_.items()},
            "classes": list(map(str, classes)) or None,
            "ids": bank.ids.tolist(),
            "points": points[: len(bank)].ravel().tolist(),  # flat: 1e5 lists take a second
            "labels": bank.labels.tolist(),
            "checked": doubt["at"].tolist(),
            "doubt": np.round(doubt["score"], 5).tolist(),
            "error": np.round(doubt["error"], 5).tolist(),
            "chance": np.round(doubt["chance"], 5).tolist(),
            "scale": self.model.target_transform_.sentence,
            "id": self.model.notes_.get("id"),
            "table": None if self.table is None else {"name": self.table.name, "total": self.table.total},
            "queries": [
                {"place": place, "title": self.table.titles[place], "point": points[len(bank) + place].tolist()}
                for place in left
                if self.table is not None
            ],
        }

    def suspects(self, n: int = 50) -> list[dict[str, Any]]:
        """The rows whose labels are most probably wrong, the most probable first; none that the model predicts.

        "chance" is the probability that the label is wrong (see :func:`vicinal.evaluation.wrong_labels`), 0 for all if
        there is no clear sign of wrong labels. For a number, the score is its distance to the prediction over the root
        mean square of these distances, on the scale that numbers are learned on (with logarithms, ratios count); for a
        class see :func:`vicinal.evaluation.audit.class_suspicion`. Where members are folds, each row is predicted by
        members that never saw it; else by the whole model without the row, but the encoder has seen its label. The
        chance goes by :func:`vicinal.workflows.suspects.expected_labels`, as in `evaluate`; the features before
        training of images, sounds, vectors and sets, which the bank does not keep whole, are embeddings.
        """
        doubt, bank = self._doubts(fresh=True), self.model.bank_
        best = np.argsort(-doubt["ratio"], kind="stable")[:n]
        best = best[doubt["score"][best] > 0]
        names = bank.ids[doubt["at"][best]].tolist()
        columns = (doubt[name][best].tolist() for name in ("said", "score", "chance"))
        return [
            {"id": name, "label": label, "said": one, "score": score, "chance": chance, "cells": self._cells(name)}
            for name, label, one, score, chance in zip(names, self.model.labels_of(names), *columns, strict=True)
        ]

    def columns(self) -> dict[str, list[str]]:
        """The columns that :meth:`filter` takes, with the values of categories, the most frequent first."""
        frame, kinds = self._plain_cells(), self.model.kinds_
        values = {name: frame[name].dropna().astype(str) for name in frame.columns if kinds[name] == "category"}
        choices = {name: cells.value_counts().index[:_VALUES].tolist() for name, cells in values.items()}
        return {name: choices.get(name, []) for name in frame.columns}

    def filter(self, columns: dict[str, dict[str, float | str]]) -> list[int]:
        """Positions of rows by their cells: by column, numbers "from" and "to", what one "is", or words it "has"."""
        frame = self._plain_cells()
        meets = np.ones(len(frame), dtype=bool)
        for name, how in columns.items():
            check_choice("columns", name, frame.columns.tolist())
            for kind, value in how.items():
                meets &= _met(frame[name], check_choice("columns", kind, ("from", "to", "is", "has")), value)
        return np.flatnonzero(meets).tolist()

    def rows(self, names: list[str]) -> list[list[dict[str, str]]]:
        """The cells of up to 50 bank rows."""
        return [self._cells(name) for name in names[:_LISTED]]

    def row(self, name: str, without: Sequence[str] = ()) -> dict[str, Any]:
        """A bank row: its cells, its prediction without itself, the rows behind that, and the two most similar rows.

        The prediction is also made ``without`` the rows of these ids.
        """
        rows, known = rows_of(self.model, [name])
        near = search_rows(self.model, rows.vectors, 2, known["ids"])[0]
        return {
            "id": known["ids"].tolist()[0],
            "label": self.model.labels_of(known["ids"])[0],
            "cells": self._cells(name),
            **self._explained(rows, known["ids"], known["groups"], without),
            "near": [self._hit(hit) for hit in near],
        }

    def queries(self, start: str = "0") -> list[dict[str, Any]]:
        """Up to 50 rows of the table that are not in the bank, from the position ``start`` on, with predictions."""
        table = self._table()
        if self._said_of_table is None or self._said_of_table[0] is not self.model.bank_.state:
            self._said_of_table = (self.model.bank_.state, self._named(table.predict(self.model).numpy()))
        left, said = table.left(self.model), self._said_of_table[1]
        return [
            {"said": said[place], **self._table_row(place)}
            for place in [place for place in left if place >= _whole("start", start)][:_LISTED]
        ]

    def query(self, place: str, without: Sequence[str] = ()) -> dict[str, Any]:
        """The row at a ``place`` of the table, as :meth:`row` of the bank."""
        at = self._place(place)
        rows, ids, groups = self._table().row(self.model, at)
        near = search_rows(self.model, rows.vectors.double(), 2, ids, groups)[0]
        return {
            **self._table_row(at),
            **self._explained(rows, ids, groups, without),
            "near": [self._hit(hit) for hit in near],
        }

    def sound(self, column: str, name: str = "", place: str = "") -> dict[str, str]:
        """The data of a sound, of the bank row ``name`` or of the table row at ``place``."""
        row = self._row_of(name) if not place else self._table().frame.iloc[self._place(place)].to_dict()
        return {"source": sound_address(self.model, row, column, name or place)}

    def search(self, query: str, without: Sequence[str] = (), files: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Rows most similar to a text, or to a row given as a JSON object, which is also predicted.

        Args:
            query: a text, a JSON object, nothing if there are files, or the id of a bank row, which is returned.
            without: ids of rows to leave out of the prediction.
            files: images and sounds of the row in base64, by column.
        """
        if not files and not query.lstrip().startswith("{"):
            known = canonical_ids("ids", [query])
            if bool(self.model.bank_.has(known).all()):
                return {"id": known.tolist()[0], "hits": []}
            return {"hits": [self._hit(hit) for hit in self.model.search([query], _HITS)[0]]}
        rows = embedded_row(self.model, query, files or {})
        hits = search_rows(self.model, rows.vectors.double(), _HITS)[0]
        return {"hits": [self._hit(hit) for hit in hits], **self._explained(rows, None, None, without)}

    def nearest_other(self, name: str) -> dict[str, Any]:
        """The nearest row of another class; for numbers, of a label at least one standard deviation away.

        The standard deviation of all labels is on the scale that numbers are learned on.
        """
        vectors, known = vectors_of(self.model, [name])
        label = self.model.labels_of(known)[0]
        hits = search_rows(self.model, vectors, _FARTHEST, known)[0]
        if hasattr(self.model, "classes_"):
            other = (hit for hit in hits if hit.label != label)
        else:
            scale = self.model.target_transform_
            values = scaled(scale, np.array([label, *(hit.label for hit in hits)]))
            far = np.abs(values[1:] - values[0]) >= scaled(scale, self.model.bank_.labels.numpy()).std()
            other = (hit for hit, is_far in zip(hits, far.tolist(), strict=True) if is_far)
        nearest = next(other, None)
        return {"other": None if nearest is None else self._hit(nearest)}

    def compare(self, a: str, b: str) -> dict[str, Any]:
        """Two rows column by column, and how much higher their score were with the second row's cell in that column.

        ``adds`` holds these gains by column; it is None if the model reads images, sounds, vectors or sets, which the
        bank does not keep whole.
        """
        model, bank = self.model, self.model.bank_
        at = bank.store.positions(vectors_of(model, [a, b])[1])
        columns = [str(name) for name in model.feature_names_in_]
        frame = bank.store.rows_at(at)[columns].reset_index(drop=True)
        shares: dict[str, float] | None = None
        similarity, vectors = model.fitted_similarity(), bank.store.vectors_at(at).double()
        with torch.no_grad():
            if set(model.kinds_.values()) <= set(CELLS):
                mixed = pd.concat([frame.iloc[[0]]] * len(columns), ignore_index=True)
                for place, name in enumerate(columns):
                    mixed[name] = [frame[name][int(line == place)] for line in range(len(columns))]
                # all as new rows: those of the bank may be embedded by the fold that left them out
                vectors = model.embedded_rows(pd.concat([frame, mixed], ignore_index=True))[1].double()
            score = float(similarity(vectors[:1], vectors[1:2])[0, 0])
            if len(vectors) > 2:
                nearer = similarity(vectors[2:], vectors[1:2])[:, 0]
                shares = dict(zip(columns, (nearer - score).tolist(), strict=True))
        labels = model.labels_of([a, b])
        return {
            "ids": [a, b],
            "labels": labels,
            "score": score,
            "cells": [self._cells(a), self._cells(b)],
            "adds": shares,
        }

    # What is changed.

    def relabel(self, name: str, label: str) -> dict[str, Any]:
        """Change the label of a bank row."""
        known, new = canonical_ids("ids", [name]), self._label(label)
        before = self.folder.relabel(known, [new])[0]
        if before == new:
            raise ValueError(f"label: expected another than row {short(name)} has, got {short(label)}: nothing changed")
        return self._done("relabel", name, before, label, lambda: self.folder.relabel(known, [before]))

    def forget(self, name: str) -> dict[str, Any]:
        """Remove a row from the bank, and from every file of the folder."""
        rows, known = rows_of(self.model, [name])
        before, back = self.model.labels_of(known["ids"]), copy.deepcopy(rows)
        self.folder.forget(known["ids"])
        return self._done("forget", name, before[0], None, lambda: self.folder.add(back, before, **known))

    def add(self, row: str, label: str, files: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Add a row to the bank, with the id in its column of ids, or the next number.

        Args:
            row: a JSON object, or nothing if there are files.
            label: of the row.
            files: see :meth:`search`.
        """
        if self.model.bank_.store.group_codes is not None:
            raise ValueError("row: expected a model without groups, got one with; say vicinal add")
        column = self.model.notes_.get("id")
        ids = None if column is None else [(read_row(row) if row.strip() else {}).get(column)]
        if ids in ([None], [""]):
            raise ValueError(f"row: expected its id in the column {short(column)}, got none")
        return self._added(embedded_row(self.model, row, files or {}), label, ids)

    def add_query(self, place: str, label: str) -> dict[str, Any]:
        """Add a table row to the bank, with its id in the table, or the next number."""
        at = self._place(place)
        rows, ids, groups = self._table().row(self.model, at)
        added = self._added(rows, label, ids, groups)
        self._table().added[at] = added["id"]
        return added

    def _added(self, rows: EmbeddedRows, label: str, ids: Any, groups: Any = None) -> dict[str, Any]:
        name = self.folder.add(rows, [self._label(label)], ids=ids, groups=groups).tolist()[0]
        return self._done("add", name, None, label, lambda: self.folder.forget([name]))

    def undo(self) -> dict[str, Any]:
        """Undo the last change of this page, by another change."""
        if not self._undo:
            raise ValueError("undo: expected a change of this page, got none")
        change, back = self._undo[-1]
        back()
        self._undo.pop()
        what = f"undo {change['what']}"
        self.changes.append({"what": what, "id": change["id"], "before": change["after"], "after": change["before"]})
        return {**self.version(), "id": change["id"]}

    def changed(self) -> dict[str, Any]:
        """All changes of this page as CSV, oldest first."""
        table = pd.DataFrame(self.changes, columns=["what", "id", "before", "after"], dtype=object)
        return {"csv": "".join(csv_texts(lambda: [table]))}

    def _done(self, what: str, name: Any, before: Any, after: Any, back: Callable[[], object]) -> dict[str, Any]:
        if "undo" in self.can:
            self.changes.append({"what": what, "id": name, "before": before, "after": after})
            self._undo.append((self.changes[-1], back))
        return {**self.version(), "id": name}

    def _label(self, text: str) -> Any:
        names = {str(name): name for name in self.model.fitted_.codec.classes.tolist()}
        if names:
            if text not in names:
                raise ValueError(f"label: expected one of the classes of the model, got {short(text)}")
            return names[text]
        try:
            return float(text)
        except ValueError as wrong:
            raise ValueError(f"label: expected a number, got {short(text)}") from wrong

    def _points(self) -> Array:
        """Rows of the bank, then of the table, on their principal plane; computed again when the bank's rows change."""
        model = self.model
        if self._plane is None or self._plane[0] is not model.bank_.state:
            vectors = model.bank_.vectors
            if self.table is not None:
                vectors = torch.cat([vectors, self.table.embedded(model).vectors])
            places = principal_plane(vectors.numpy())[0]
            low, high = places.min(axis=0), places.max(axis=0)  # one scale an axis: the second may vary far less
            middle, reach = (low + high) / 2, np.where(high > low, high - low, 2.0) / 2
            self._plane = model.bank_.state, np.round((places - middle) / reach, 5)
        return self._plane[1]

    def _table(self) -> TableRows:
        if self.table is None:
            raise ValueError("table: expected one beside the model, got none; say vicinal explore MODEL TABLE")
        return self.table

    def _place(self, place: str) -> int:
        """The position of a table row that is not in the bank."""
        at = _whole("place", place)
        if at not in self._table().left(self.model):
            raise ValueError("place: expected that of a row that is not in the bank, got another; load the page again")
        return at

    def _explained(self, rows: EmbeddedRows, ids: Any, groups: Any, without: Sequence[str]) -> dict[str, Any]:
        model = self._without(without) if without else self.model
        with unwarned(IdentityWarning):
            one: Explanation = model.explain(rows, self.k, ids=ids, groups=groups)[0]
        return {
            "prediction": one.prediction,
            "chance": one.probability,
            "behind": [
                {
                    "id": n.id,
                    "label": n.label,
                    **n.adjusting(),
                    "weight": n.weight,
                    "adds": n.contribution,
                    "cells": self._cells(n.id),
                }
                for n in one.neighbors
            ],
            "trend": None if one.trend is None else one.trend.record(),
            "others": {"rows": one.other_count, "weight": one.other_weight, "adds": one.other_contribution},
        }

    def _without(self, names: Sequence[str]) -> BankedEstimator:
        """The model with a bank without these rows."""
        if self.model.fitted_.near is not None:
            raise ValueError("without: expected a model that reads its whole bank, got one with an index")
        bank, model = self.model.bank_, copy.copy(self.model)
        left = np.setdiff1d(np.arange(len(bank)), bank.store.positions(canonical_ids("ids", list(names))).numpy())
        if not len(left):
            raise ValueError("without: expected to leave at least one row, got all of them")
        model.bank_ = bank.take(left)
        return model

    def _hit(self, hit: Hit) -> dict[str, Any]:
        return {"id": hit.id, "label": hit.label, "score": hit.score, "cells": self._cells(hit.id)}

    def _plain_cells(self) -> pd.DataFrame:
        """The columns of texts, numbers and categories of all bank rows."""
        model, bank = self.model, self.model.bank_
        if self._frame is None or self._frame[0] is not bank.state:
            frame = bank.store.rows_at(torch.arange(len(bank)))
            self._frame = bank.state, frame[[name for name in frame.columns if model.kinds_.get(name) in CELLS]]
        return self._frame[1]

    def _row_of(self, name: Any) -> dict[str, Any]:
        """The bank row, with images and sounds of the table if it has them."""
        store = self.model.bank_.store
        frame = store.rows_at(store.positions(canonical_ids("ids", [name])))
        row = {str(column): frame[column].iloc[0] for column in frame}
        return row if self.table is None else row | self.table.media(name)

    def _cells(self, name: Any) -> list[dict[str, str]]:
        return page_cells(self.model, self._row_of(name))

    def _table_row(self, place: int) -> dict[str, Any]:
        table = self._table()
        cells = page_cells(self.model, table.frame.iloc[place].to_dict())
        return {"place": place, "title": table.titles[place], "label": table.labels[place], "cells": cells}

    def _named(self, said: Array) -> list[Any]:
        """Predictions as numbers, or as names of the most probable classes."""
        classes = self.model.fitted_.codec.classes
        return [str(classes[place]) for place in said.argmax(1)] if len(classes) else list(said.tolist())

    def _doubts(self, *, fresh: bool = False) -> dict[str, Array]:
        """Positions ``at``, predictions ``said``, ``error``, ``score``, ``ratio`` and ``chance`` by the current labels.

        If it is to be ``fresh``, a changed bank is predicted again; else the last predictions serve, if there are any.
        """
        model, bank = self.model, self.model.bank_
        if fresh and (self._said is None or self._said[0] is not bank.state):
            self._said = (bank.state, *self._left_out())
        none = np.zeros((0, 1))
        names, said, expected = (bank.ids[:0], none, none) if self._said is None else self._said[1:]
        at = bank.store.positions(names).numpy()
        at, said, expected = at[at >= 0], said[at >= 0], expected[at >= 0]
        labels, classes = bank.labels[torch.from_numpy(at)].numpy(), model.fitted_.codec.classes
        if not len(at):
            return {"at": at, "said": at} | dict.fromkeys(("error", "score", "ratio", "chance"), labels)
        wrong = doubts(model, labels.astype(np.int64) if len(classes) else labels, expected)
        doubt = {"at": at, "ratio": wrong.ratio, "chance": wrong.chance}
        if not len(classes):
            truth, guess = (scaled(model.target_transform_, numbers) for numbers in (labels, said))
            score = suspicion(truth, guess, float(np.sqrt(((truth - guess) ** 2).mean())) or 1.0)
            return {"said": said, "error": np.abs(labels - said), "score": score, **doubt}
        places = labels.astype(np.int64)
        error, named = 1 - said[np.arange(len(at)), places], np.asarray(self._named(said), dtype=object)
        return {"said": named, "error": error, "score": class_suspicion(places, said), **doubt}

    def _left_out(self) -> tuple[Array, Array, Array]:
        """Ids of the rows whose labels are checked, predictions without themselves, and what is expected of them."""
        model, bank = self.model, self.model.bank_
        most = max(_LEAST, min(_DOUBTED, _PAIRS // len(bank)))
        at = spread(len(bank), most) if model.folds_ is None else model.fitted_.fold_positions(most)
        said, labels = left_out(model, at), bank.labels[at].numpy()

        def features() -> Any:
            if set(model.kinds_.values()) <= set(CELLS):
                return untrained_features(model, bank.store.rows_at(at))
            return bank.store.vectors_at(at).double().numpy()

        groups = bank.clusters[at.numpy()] if bank.grouped else None
        labels = labels.astype(np.int64) if len(model.fitted_.codec.classes) else labels
        return bank.ids[at.numpy()], said, expected_labels(model, labels, said, features, groups)


def _met(cells: "pd.Series[Any]", kind: str, value: float | str) -> Array:
    """Which cells meet one condition; a gap meets none."""
    if kind in ("from", "to"):
        if isinstance(value, str):
            raise ValueError(f"columns: expected a number, got {short(value)}")
        numbers = pd.to_numeric(cells, errors="coerce").to_numpy(dtype=np.float64)
        return np.asarray(numbers >= value if kind == "from" else numbers <= value)
    texts, words = cells.astype(str), str(value)
    met = texts == words if kind == "is" else texts.str.contains(words, case=False, regex=False)
    return np.asarray(met & cells.notna())


def _whole(name: str, text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{name}: expected a whole number, got {short(text)}")
    return int(text)
