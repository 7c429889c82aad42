"""``vicinal explore``: the bank of a model as a person looks through it, doubts its labels, and corrects them."""

import copy
import csv
import io
import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from vicinal.core import short
from vicinal.core.identity import IdentityWarning, canonical_ids
from vicinal.data import tidy_features
from vicinal.estimators.attention import Explanation
from vicinal.estimators.banked import BankedEstimator
from vicinal.estimators.inputs import EmbeddedRows
from vicinal.estimators.model_folder import ModelFolder
from vicinal.estimators.out_of_fold import fold_positions, out_of_fold
from vicinal.estimators.search import Hit, query_table, search_rows, vectors_of
from vicinal.evaluation import class_suspicion, suspicion
from vicinal.report.figures import principal_plane
from vicinal.report.page import cells
from vicinal.training.rows import spread
from vicinal.workflows.search import read_row
from vicinal.workflows.showing import shown_cells

_DOUBTED = 4096
"""Rows whose labels are doubted, at most, spread evenly over the bank: each is predicted from all others."""

_LEAST, _PAIRS = 256, 1 << 25
"""Of a large bank at least so many rows, and fewer than make so many pairs with all others, so that nobody waits."""

_HITS = 12
_FARTHEST = 1000
"""Nearest rows among which one of another label is looked for."""

_PLAIN = ("text", "number", "category")
"""Kinds of columns whose cells the bank keeps whole, so that a row of other cells can be embedded."""


class Explorer:
    """The model in a folder, as its page asks for it; changes go through :class:`vicinal.estimators.ModelFolder`.

    Every change is in the journal of the folder when its method returns. What undoes a ``forget`` is in the memory of
    this object only: no file holds a forgotten row. What others change is
    taken over by :meth:`version` and :meth:`map`. One thread at a time may use it.

    Args:
        folder: of a model that predicts a number, or one class a row, by its neighbors.
        k: rows to list behind a prediction.
        settings: see :class:`vicinal.estimators.ModelFolder`.
    """

    def __init__(self, folder: Path, k: int = 8, **settings: Any) -> None:
        self.folder, self.k, self.name = ModelFolder(folder, **settings), k, folder.name
        if not hasattr(self.model, "predict") or self.model.multilabel_:
            raise ValueError("model: expected one of numbers or of one class a row, got another; say vicinal search")
        self.model.check_neighbor_head("explore")
        if not hasattr(self.model, "feature_names_in_"):
            raise ValueError("model: expected one fitted on a table with names of columns, got one without")
        self.changes: list[dict[str, Any]] = []
        self._undo: list[tuple[dict[str, Any], Callable[[], object]]] = []
        self._said: tuple[Any, np.ndarray[Any, Any], np.ndarray[Any, Any]] | None = None

    @property
    def model(self) -> BankedEstimator:
        """The model as it is now."""
        return self.folder.model

    # What is looked at.

    def version(self) -> dict[str, Any]:
        """The number of the last change, also by others, by which a page knows that it is old."""
        while self.folder.refresh():  # until nothing is new
            pass
        return {"version": self.model.changes_.sequence, "rows": len(self.model.bank_), "undo": len(self._undo)}

    def map(self) -> dict[str, Any]:
        """Places of all rows on the principal plane of the bank, labels, and doubts as of :meth:`suspects`."""
        version, bank, classes = self.version(), self.model.bank_, getattr(self.model, "classes_", None)
        places = principal_plane(bank.vectors.numpy())[0]
        size = float(np.abs(places).max()) or 1.0
        doubt = self._doubts()
        return {
            **version,
            "name": self.name,
            "target": str(self.model.notes_.get("target") or "label"),
            "columns": {str(name): str(kind) for name, kind in self.model.kinds_.items()},
            "classes": None if classes is None else [str(name) for name in classes.tolist()],
            "ids": bank.ids.tolist(),
            "points": np.round(places / size, 5).tolist(),
            "labels": bank.labels.tolist(),
            "doubt": _sparse(doubt["at"], doubt["score"], len(bank)),
            "error": _sparse(doubt["at"], doubt["error"], len(bank)),
            "doubted": len(doubt["at"]),
        }

    def suspects(self, n: int = 50) -> list[dict[str, Any]]:
        """The rows whose labels fit least what the model says of them without themselves, most doubtful first.

        The score of a number is the distance to its prediction over the deviation of all such distances; of a class
        see :func:`vicinal.evaluation.class_suspicion`. Where members are folds each row is predicted by those that
        never saw it; else by all of the model from all rows but itself, and the encoder has seen its label.
        """
        doubt, bank = self._doubts(fresh=True), self.model.bank_
        best = np.argsort(-doubt["score"], kind="stable")[:n]
        names = bank.ids[doubt["at"][best]].tolist()
        said, scores = doubt["said"][best].tolist(), doubt["score"][best].tolist()
        return [
            {"id": name, "label": label, "said": one, "score": score, "cells": self._cells(name)}
            for name, label, one, score in zip(names, self.model.labels_of(names), said, scores, strict=True)
        ]

    def row(self, name: str, without: Sequence[str] = ()) -> dict[str, Any]:
        """A row of the bank: its cells, what is predicted without itself, and the rows behind that.

        Args:
            name: its id.
            without: ids of rows that the prediction is made without, too.
        """
        vectors, known = vectors_of(self.model, [name])
        rows = EmbeddedRows(self.model.bank_.store.rows_at(self.model.bank_.store.positions(known)), vectors)
        near = search_rows(self.model, vectors, 2, known)[0]
        return {
            "id": known.tolist()[0],
            "label": self.model.labels_of(known)[0],
            "cells": self._cells(name),
            **self._explained(rows, known, without),
            "near": [self._hit(hit) for hit in near],
        }

    def search(self, query: str, without: Sequence[str] = ()) -> dict[str, Any]:
        """Rows most like a text, or like a row as a JSON object, of which the prediction is given, too."""
        if not query.lstrip().startswith("{"):
            known = canonical_ids("ids", [query])
            if bool(self.model.bank_.has(known).all()):
                return {"id": known.tolist()[0], "hits": []}
            return {"hits": [self._hit(hit) for hit in self.model.search([query], _HITS)[0]]}
        rows = EmbeddedRows(*self.model.embedded_rows(self._typed(query)))
        hits = search_rows(self.model, rows.vectors, _HITS)[0]
        return {"hits": [self._hit(hit) for hit in hits], **self._explained(rows, None, without)}

    def nearest_other(self, name: str) -> dict[str, Any]:
        """The nearest row of another class, or of a number that is a deviation of all labels away."""
        vectors, known = vectors_of(self.model, [name])
        label = self.model.labels_of(known)[0]
        apart = 0.0 if hasattr(self.model, "classes_") else float(self.model.bank_.labels.std())
        for hit in search_rows(self.model, vectors, _FARTHEST, known)[0]:
            if (hit.label != label) if not apart else (abs(hit.label - label) >= apart):
                return {"other": self._hit(hit)}
        return {"other": None}

    def compare(self, a: str, b: str) -> dict[str, Any]:
        """Two rows column by column, and by how much the first were nearer to the second with its cell of each column.

        The shares are of the model's similarity; None where a column of the model is of images, sounds, vectors or
        sets, which the bank does not keep whole.
        """
        model, bank = self.model, self.model.bank_
        at = bank.store.positions(vectors_of(model, [a, b])[1])
        columns = [str(name) for name in model.feature_names_in_]
        frame = bank.store.rows_at(at)[columns].reset_index(drop=True)
        shares: dict[str, float] | None = None
        similarity, vectors = model.fitted_similarity(), bank.store.vectors_at(at).double()
        with torch.no_grad():
            score = float(similarity(vectors[:1], vectors[1:])[0, 0])
            if set(model.kinds_.values()) <= set(_PLAIN):
                mixed = pd.concat([frame.iloc[[0]]] * len(columns), ignore_index=True)
                for place, name in enumerate(columns):
                    mixed[name] = [frame[name][int(line == place)] for line in range(len(columns))]
                nearer = similarity(model.embedded_rows(mixed)[1].double(), vectors[1:])[:, 0]
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
        """Give a row another label."""
        known = canonical_ids("ids", [name])
        before = self.folder.relabel(known, [self._label(label)])[0]
        return self._done("relabel", name, before, label, lambda: self.folder.relabel(known, [before]))

    def forget(self, name: str) -> dict[str, Any]:
        """Remove a row from the bank, and from every file of the folder."""
        vectors, known = vectors_of(self.model, [name])
        bank = self.model.bank_
        at = bank.store.positions(known)
        rows, before = EmbeddedRows(bank.store.rows_at(at), vectors), self.model.labels_of(known)
        groups = None if bank.groups is None else bank.groups[at.numpy()]
        self.folder.forget(known)
        back = copy.deepcopy(rows)
        return self._done(
            "forget", name, before[0], None, lambda: self.folder.add(back, before, ids=known, groups=groups)
        )

    def add(self, row: str, label: str) -> dict[str, Any]:
        """Put a row, a JSON object, into the bank; it gets the next number, or the id that is in its column of ids."""
        if self.model.bank_.store.group_codes is not None:
            raise ValueError("row: expected a model without groups, got one with; say vicinal add")
        column, cell_of = self.model.notes_.get("id"), read_row(row)
        ids = None if column is None else [cell_of.get(column)]
        if ids == [None]:
            raise ValueError(f"row: expected its id in the column {short(column)}, got none")
        name = self.folder.add(self._typed(row), [self._label(label)], ids=ids).tolist()[0]
        return self._done("add", name, None, label, lambda: self.folder.forget([name]))

    def undo(self) -> dict[str, Any]:
        """Take the last change of this page back, by another one."""
        if not self._undo:
            raise ValueError("undo: expected a change of this page, got none")
        change, back = self._undo[-1]
        back()
        self._undo.pop()
        what = f"undo {change['what']}"
        self.changes.append({"what": what, "id": change["id"], "before": change["after"], "after": change["before"]})
        return {**self.version(), "id": change["id"]}

    def changed(self) -> dict[str, Any]:
        """All changes of this page as csv, oldest first."""
        text = io.StringIO()
        lines = csv.DictWriter(text, ("what", "id", "before", "after"))
        lines.writeheader()
        lines.writerows([{name: _as_text(cell) for name, cell in one.items()} for one in self.changes])
        return {"csv": text.getvalue()}

    def _done(self, what: str, name: Any, before: Any, after: Any, back: Callable[[], object]) -> dict[str, Any]:
        self.changes.append({"what": what, "id": name, "before": before, "after": after})
        self._undo.append((self.changes[-1], back))
        return {**self.version(), "id": name}

    def _label(self, text: str) -> Any:
        classes = getattr(self.model, "classes_", None)
        if classes is not None:
            names = {str(name): name for name in classes.tolist()}
            if text not in names:
                raise ValueError(f"label: expected one of the classes of the model, got {short(text)}")
            return names[text]
        try:
            return float(text)
        except ValueError as wrong:
            raise ValueError(f"label: expected a number, got {short(text)}") from wrong

    def _typed(self, row: str) -> Any:
        frame = pd.DataFrame([read_row(row)])
        numbers = [name for name, kind in self.model.kinds_.items() if kind == "number" and name in frame.columns]
        return query_table(self.model, tidy_features(frame, numbers))[0]

    def _explained(self, rows: EmbeddedRows, ids: Any, without: Sequence[str]) -> dict[str, Any]:
        model = self._without(without) if without else self.model
        groups = self.model.bank_.groups
        if groups is not None:
            groups = None if ids is None else groups[self.model.bank_.store.positions(ids).numpy()]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IdentityWarning)
            one: Explanation = model.explain(rows, self.k, ids=ids, groups=groups)[0]
        return {
            "prediction": one.prediction,
            "chance": one.total if hasattr(model, "classes_") else None,
            "behind": [
                {"id": n.id, "label": n.label, "weight": n.weight, "adds": n.contribution, "cells": self._cells(n.id)}
                for n in one.neighbors
            ],
            "others": {"rows": one.other_count, "weight": one.other_weight, "adds": one.other_contribution},
        }

    def _without(self, names: Sequence[str]) -> BankedEstimator:
        """The model over a bank without these rows."""
        if self.model.near_bank() is not None:
            raise ValueError("without: expected a model that reads its whole bank, got one with an index")
        bank, model = self.model.bank_, copy.copy(self.model)
        left = np.setdiff1d(np.arange(len(bank)), bank.store.positions(canonical_ids("ids", list(names))).numpy())
        if not len(left):
            raise ValueError("without: expected to leave at least one row, got all of them")
        model.bank_ = bank.take(left)
        return model

    def _hit(self, hit: Hit) -> dict[str, Any]:
        return {"id": hit.id, "label": hit.label, "score": hit.score, "cells": self._cells(hit.id)}

    def _cells(self, name: Any) -> list[dict[str, str]]:
        """A row as the page shows it: texts, and images and sounds as data addresses."""
        store = self.model.bank_.store
        row = store.rows_at(store.positions(canonical_ids("ids", [name]))).iloc[0].to_dict()
        root = None if self.model.root is None else Path(self.model.root)
        shown = shown_cells({str(column): cell for column, cell in row.items()}, dict(self.model.kinds_), root)
        return [asdict(view) for view in cells(shown, 400)]

    def _doubts(self, *, fresh: bool = False) -> dict[str, np.ndarray[Any, Any]]:
        """Positions ``at``, predictions ``said``, ``error`` and ``score`` by the labels as they are now.

        Args:
            fresh: predict again if the bank has changed; else the last predictions count, if there are any.
        """
        model, bank = self.model, self.model.bank_
        if fresh and (self._said is None or self._said[0] is not bank.state):
            self._said = (bank.state, *self._left_out())
        names, said = (bank.ids[:0], np.zeros((0, 1))) if self._said is None else self._said[1:]
        at = bank.store.positions(names).numpy()
        at, said = at[at >= 0], said[at >= 0]
        labels, classes = bank.labels[torch.from_numpy(at)].numpy(), getattr(model, "classes_", None)
        if not len(at):
            return {"at": at, "said": at, "error": labels, "score": labels}
        if classes is None:
            error = np.abs(labels - said)
            return {
                "at": at,
                "said": said,
                "error": error,
                "score": suspicion(labels, said, float(np.sqrt((error**2).mean())) or 1.0),
            }
        places = labels.astype(np.int64)
        error, named = 1 - said[np.arange(len(at)), places], np.asarray(classes, dtype=object)[said.argmax(1)]
        return {"at": at, "said": named, "error": error, "score": class_suspicion(places, said)}

    @torch.no_grad()
    def _left_out(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Ids of rows whose labels are doubted, and what is predicted for each without itself."""
        model, bank = self.model, self.model.bank_
        most = max(_LEAST, min(_DOUBTED, _PAIRS // len(bank)))
        if model.folds_ is not None:
            at = fold_positions(model, most)
            said = out_of_fold(model, at)
        else:
            at = spread(len(bank), most)
            groups = None if bank.groups is None else bank.groups[at.numpy()]
            identity = bank.identity(bank.ids[at.numpy()], groups)
            said = model.predict_embedded(bank.vectors[at].double(), identity)
        return bank.ids[at.numpy()], model.in_label_units(said).double().numpy()


def _sparse(at: np.ndarray[Any, Any], values: np.ndarray[Any, Any], rows: int) -> list[float | None]:
    """``values`` at the places ``at``, None elsewhere."""
    full: list[float | None] = [None] * rows
    for place, value in zip(at.tolist(), np.round(values, 5).tolist(), strict=True):
        full[place] = value
    return full


def _as_text(cell: Any) -> str:
    """A cell of the csv; one that a spreadsheet would run as a formula gets an apostrophe before it."""
    text = "" if cell is None else cell if isinstance(cell, str) else json.dumps(cell, default=str)
    return f"'{text}" if isinstance(cell, str) and text[:1] in ("=", "+", "-", "@") else text
