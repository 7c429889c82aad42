"""A model folder behind HTTP: what each request does, on the one thread that uses the model."""

import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from vicinal.core import check_choice, short
from vicinal.core.identity import canonical_ids
from vicinal.data.table import read_weights
from vicinal.estimators import ModelFolder
from vicinal.estimators.banked import BankedEstimator
from vicinal.estimators.saving import shown_cell, task_of
from vicinal.serve.measures import Measures
from vicinal.serve.pages import answer_of
from vicinal.serve.requests import Add, Explain, Forget, Predict, Relabel, Search, read_body, table_of
from vicinal.serve.settings import ServeSettings
from vicinal.workflows.explore import LOOKS, Explorer
from vicinal.workflows.predict import Answers, AnswerSettings, answer_rows, features_of, made_rows, who_of
from vicinal.workflows.suspects import left_out

CHANGES = ("add", "relabel", "forget")
"""What needs the token for changes."""


class ServedModel:
    """One model of the server.

    Before each request, changes made by other processes are taken over, so that every request sees all changes that
    were acknowledged before it.

    Args:
        name: for addresses and counters.
        path: of the folder.
        settings: of the server.
        measures: counters to update.
    """

    def __init__(self, name: str, path: str, settings: ServeSettings, measures: Measures) -> None:
        self.name, self.most, self.measures = name, settings.most_rows, measures
        self.folder = ModelFolder(path, index=settings.index, encoders=settings.encoders, who="http")
        self._explorer: Explorer | None = None
        self._nowhere = tempfile.TemporaryDirectory(prefix="vicinal-no-files-")
        if not hasattr(self.folder.model, "feature_names_in_"):
            raise ValueError(f"model: expected one fitted on a table with names of columns, got {short(name)} without")
        self._current()

    def _current(self) -> BankedEstimator:
        self.folder.refresh()
        model = self.folder.model
        model.root = self._nowhere.name  # paths of requests lead nowhere: this folder is empty
        self.measures.rows.labels(self.name).set(len(model.bank_))
        return model

    def close(self) -> None:
        """Write the journal into the folder, and release the folder."""
        self.folder.compact()
        self._nowhere.cleanup()

    def columns(self) -> dict[str, list[str]]:
        """Names of the columns that requests have, by what they are for."""
        model = self.folder.model
        roles = {role: [str(model.notes_[role])] for role in ("id", "target") if model.notes_.get(role)}
        return {"columns": [str(name) for name in model.feature_names_in_]} | roles

    # What is asked.

    def predict(self, content: bytes) -> dict[str, Any]:
        """Predict rows: ``interval`` is a coverage, ``abstain`` the share of answers that may be wrong."""
        model, body = self._current(), read_body(Predict, content, self.most)
        answers = self._answers(model, body, 0)
        return {"predictions": [_prediction(one, model) for one in answers.records()]}

    def explain(self, content: bytes) -> dict[str, Any]:
        """Predict rows, each with the k bank rows of most weight."""
        model, body = self._current(), read_body(Explain, content, self.most)
        answers = self._answers(model, body, body.k)
        records = [_prediction(one, model) for one in answers.records()]
        for record, explanation in zip(records, answers.explanations, strict=True):
            for neighbor, one in zip(record["neighbors"], explanation.neighbors, strict=True):
                neighbor["row"] = _cells(one.row)
        return {"predictions": records}

    def search(self, content: bytes) -> dict[str, Any]:
        """Find the bank rows most similar to a text, or to each of several rows."""
        model, body = self._current(), read_body(Search, content, self.most)
        if body.query is not None and body.rows is None:
            hits = model.search([body.query] if isinstance(body.query, str) else body.query, body.k)
        elif body.rows is not None and body.query is None:
            frame = made_rows(model, table_of(model, body.rows, whole=False))
            hits = model.search(frame, body.k, ids=who_of(model, frame).get("ids"))
        else:
            raise ValueError("body: expected one of the keys query and rows, got both or neither")
        return {
            "hits": [
                [{"id": h.id, "score": h.score, "label": h.label, "row": _cells(h.row)} for h in some] for some in hits
            ]
        }

    # What changes the bank.

    def add(self, content: bytes) -> dict[str, Any]:
        """Add labelled rows to the bank; they are on disk when this returns."""
        model, body = self._current(), read_body(Add, content, self.most)
        frame = table_of(model, body.rows)
        labels = self._labels(model, frame)
        frame = made_rows(model, frame)
        roles = ["id", "group"] if model.bank_.grouped else ["id"]
        columns = {f"{role}s": model.notes_.get(role) or role for role in roles}
        who: dict[str, Any] = {name: frame[one].tolist() for name, one in columns.items() if one in frame.columns}
        if "ids" not in who and model.bank_.ids.dtype != np.int64:  # else the next numbers
            raise ValueError(f"rows: expected an id for each row in {short(columns['ids'])}, got none")
        features = features_of(model, frame, lambda line: None)
        fresh = "ids" not in who or not model.bank_.has(canonical_ids("ids", who["ids"])).any()
        before = model.predict(features) if fresh and hasattr(model, "predict") and "groups" not in who else None
        weight = model.notes_.get("weight")
        weights = read_weights(frame[weight]) if weight in frame.columns else None
        names = self.folder.add(features, labels, sample_weight=weights, **who)
        if before is not None:
            self._count_errors("add", np.asarray(before), labels)
        if self.folder.due:
            self.folder.compact()
        return {"added": len(names), "ids": names, "rows": len(self.folder.model.bank_)}

    def relabel(self, content: bytes) -> dict[str, Any]:
        """Change the labels of bank rows."""
        model, body = self._current(), read_body(Relabel, content, self.most)
        ids = body.ids
        if len(body.labels) != len(ids):
            raise ValueError(f"labels: expected {len(ids)}, one for each id, got {len(body.labels)}")
        labels = _known_classes(model, body.labels)
        names = canonical_ids("ids", ids, distinct=True)
        inside = hasattr(model, "predict") and bool(model.bank_.has(names).all())
        before = _left_out(model, names) if inside else None
        old = self.folder.relabel(ids, labels)
        if before is not None:
            self._count_errors("relabel", before, labels)
        return {"relabelled": sum(was != label for was, label in zip(old, labels, strict=True)), "before": old}

    def forget(self, content: bytes) -> dict[str, Any]:
        """Remove rows from the bank and from every file of the folder."""
        ids = read_body(Forget, content, self.most).ids
        self._current()
        self.folder.forget(ids)
        return {"forgotten": len(set(map(str, ids))), "rows": len(self.folder.model.bank_)}

    def explore(self, what: str, content: bytes) -> Any:
        """Answer a question of the page of the model; see :class:`vicinal.workflows.Explorer`."""
        self._current()
        if self._explorer is None:
            self._explorer = Explorer(self.folder, can=CHANGES)
        return answer_of(self._explorer, what, content, (*LOOKS, *CHANGES))

    def health(self) -> dict[str, Any]:
        """Task, number of rows, and number of the last change."""
        model = self._current()
        return {"task": task_of(model), "rows": len(model.bank_), "changes": model.changes_.sequence}

    def _answers(self, model: BankedEstimator, body: Predict, k: int) -> Answers:
        if not hasattr(model, "predict"):
            raise ValueError(f"model: expected one that predicts, got {short(self.name)}, which only searches")
        frame = made_rows(model, table_of(model, body.rows))
        settings: AnswerSettings = {"explain": k, "coverage": body.interval, "abstain": body.abstain, "aim": body.aim()}
        settings["include_own"] = True  # there is nobody who reads a log
        return answer_rows(model, frame, **settings)

    def _labels(self, model: BankedEstimator, frame: pd.DataFrame) -> list[Any]:
        if model.targets_ is not None:
            if lost := [name for name in model.targets_ if name not in frame.columns]:
                raise ValueError(f"rows: expected a label for each row in {short(lost[0])}, got none")
            return _known_classes(model, frame[model.targets_].to_numpy().tolist())
        name = next((n for n in (model.notes_.get("target"), "target") if n in frame.columns), None)
        if name is None:
            column = short(model.notes_.get("target") or "target")
            raise ValueError(f"rows: expected a label for each row in {column}, got none")
        return _known_classes(model, frame.pop(str(name)).tolist())

    def _count_errors(self, source: str, predicted: np.ndarray[Any, Any], labels: Sequence[Any]) -> None:
        """Count errors of predictions made before the labels arrived: distances of numbers, wrong classes."""
        if predicted.ndim == 1:
            numbers = predicted.dtype.kind == "f" and not hasattr(self.folder.model, "classes_")
            pairs = zip(predicted.tolist(), labels, strict=True)
            errors = [abs(one - float(label)) if numbers else float(one != label) for one, label in pairs]
            self.measures.errors.labels(self.name, source).inc(sum(errors))
            self.measures.labelled.labels(self.name, source).inc(len(errors))


def _left_out(model: BankedEstimator, names: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """Predictions of bank rows, each from all rows except itself and its group; None for several classes per row."""
    codec = model.fitted_.codec
    if codec.multilabel:
        return None
    said = left_out(model, model.bank_.store.positions(names))
    return said if codec.kind == "numbers" else codec.classes[said.argmax(axis=1)]


def _known_classes(model: BankedEstimator, labels: list[Any]) -> list[Any]:
    """Labels of a request, with classes as in the fit, so that "3" is the class 3."""
    count, named = len(model.targets_ or ()), {str(name): name for name in model.fitted_.codec.classes.tolist()}
    if named and not model.multilabel_:
        return [named[check_choice("labels", str(label), named)] for label in labels]
    wish = f"a list of {count} numbers for each row" if count else "numbers"
    wish = "a list of classes for each row" if named else wish
    for place, label in enumerate(labels):
        fits = isinstance(label, list) if count or named else type(label) in (int, float)
        if not fits or (count and (len(label) != count or not all(isinstance(one, int | float) for one in label))):
            raise ValueError(f"labels: expected {wish}, got {short(label)} at {place}")
    return [[named.get(str(one), one) for one in label] for label in labels] if named else labels


def _cells(row: dict[str, Any]) -> dict[str, Any]:
    return {name: shown_cell(cell, None) if isinstance(cell, bytes | dict) else cell for name, cell in row.items()}


def _prediction(record: dict[str, Any], model: BankedEstimator) -> dict[str, Any]:
    """A prediction as in responses, with the probabilities of classes in one object."""
    if model.fitted_.codec.kind == "numbers":
        return record
    chances = {str(name): record.pop(f"probability_{name}") for name in model.fitted_.codec.classes}
    return {**record, "probabilities": chances}
