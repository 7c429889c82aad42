"""``vicinal distill``: a fitted model teaches a model with a smaller or faster encoder, also on unlabelled rows."""

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone

from vicinal.core import short
from vicinal.core.arrays import Array
from vicinal.core.checks import check_between, unwarned
from vicinal.core.folders import check_replaceable, staged_folder
from vicinal.core.identity import IdentityWarning
from vicinal.core.progress import Log
from vicinal.data import LeakWarning, Split
from vicinal.data.cells import missing_cells
from vicinal.data.sources import table_name
from vicinal.data.table import Table, table_kinds
from vicinal.estimators.banked import BankedEstimator, load_model
from vicinal.estimators.neighbors import NeighborClassifier, NeighborRegressor
from vicinal.estimators.presets import settings_of
from vicinal.losses import DistillationMatchingLoss
from vicinal.losses.spec import read_teacher_loss
from vicinal.similarity.base import resolve_similarity
from vicinal.training import Teacher
from vicinal.workflows.fit import fit_record, write_files
from vicinal.workflows.known_rows import known_rows, labelled_table
from vicinal.workflows.measured import Measurements, measured_of
from vicinal.workflows.measuring import TIMED, predict_test, seconds_of
from vicinal.workflows.opening import OpenTable, TableJob, rows_of_the_table
from vicinal.workflows.predict import features_of, read_rows

FEWEST = 10
"""Fewest rows to measure on that the model has not seen."""

_SAMPLED = 1000
"""Rows whose similarities say where the floor of the matching loss is."""


@dataclass(frozen=True)
class Measure:
    """A model's ``bytes`` (weights and vectors of the bank), processor ``seconds`` per row, and ``scores``."""

    bytes: int
    seconds: float
    scores: Mapping[str, float]


@dataclass(frozen=True)
class Distilled:
    """The result of :func:`distill_table`.

    Attributes:
        folder: of the student; None: it was not written.
        measures: of the "teacher", the "student", and the "student on labels alone", trained without the teacher.
        rows: number of "labelled" and "unlabelled" rows to learn from, and of "test" rows.
    """

    model: BankedEstimator
    folder: Path | None
    measures: dict[str, Measure]
    rows: dict[str, int]
    task: str


@rows_of_the_table()
def distill_table(
    folder: Path,
    source: Path | pd.DataFrame,
    encoders: Mapping[str, str],
    out: Path | None = None,
    *,
    unlabelled: Path | pd.DataFrame | None = None,
    loss: str = "none",
    share: float = 0.5,
    root: Path | None = None,
    teacher_encoders: Mapping[str, str] | None = None,
    log: Log = lambda line: None,
) -> Distilled:
    """Train a model with other encoders on the predictions of the model in ``folder``, and measure both on new rows.

    The student has its teacher's settings, with the new encoders, whose pretrained weights are not tuned, with
    ``metric="network"``, and without an index. Its training labels are mixed with the teacher's predictions, each made
    without the row's own label; rows without a label get the teacher's prediction alone. The latter leave the bank
    after training, so that all neighbors of the student have given labels.

    Args:
        folder: of the teacher.
        source: the table that the teacher was fitted on; its other labelled rows are the test rows, and rows with an
            empty target are unlabelled rows.
        encoders: of the student, by column or kind; other columns keep theirs.
        out: folder of the student, or None to write nothing.
        unlabelled: another table of unlabelled rows; only the columns that the model reads are used.
        loss: what also compares similarities of rows with the teacher's, see :class:`vicinal.training.Teacher`:
            "none", "kl_top", "ranknet" or "sinkhorn_distillation", with settings in brackets; or "matching",
            :class:`vicinal.losses.DistillationMatchingLoss` with the teacher's median similarity as floor, so that the
            order of rows that are not alike does not matter.
        share: of the teacher's prediction in a label, from 0 to 1.
        root: folder that paths of images and sounds start from; None: that of the file.
        teacher_encoders: see ``encoders`` of :func:`vicinal.estimators.load_model`.
        log: gets one line of progress at a time.

    Raises:
        ValueError: if the model or a table cannot be used, no encoder differs, fewer than ten labelled rows are new to
            the model, or over half of the rows that it was fitted on are missing.
    """
    started = time.perf_counter()
    likeness = loss if loss in ("none", "matching") else read_teacher_loss(loss)
    check_between("share", share, 0, 1, closed=True)
    if out is not None:
        check_replaceable(out)
    teacher = load_model(folder, encoders=teacher_encoders)
    if not isinstance(teacher, NeighborRegressor | NeighborClassifier) or teacher.multilabel_ or teacher.targets_:
        raise ValueError(
            f"model: expected one that predicts numbers or a class a row, got {type(teacher).__name__} of another kind"
        )
    if teacher.fair is not None:
        raise ValueError(
            f"model: expected one without --fair, got one fair by {short(teacher.fair)}, which a student would not be; "
            "fit it with the smaller encoder and --fair"
        )
    smaller = _student_encoders(teacher, encoders)
    frame = read_rows(teacher, source, root, log)
    table = labelled_table(teacher, frame, table_name(source) if isinstance(source, Path) else "table", log)
    table, parts = known_rows(teacher, table, distinct=True)
    split = _split(teacher, np.array(parts))
    extra = [features_of(teacher, frame[missing_cells(frame[table.target_name])], lambda line: None)]
    if unlabelled is not None:
        start = teacher.root  # of both tables: reading the other one must not move that of the first
        others = read_rows(teacher, unlabelled, None if start is None else Path(start), log)
        teacher.root = start
        extra.append(features_of(teacher, others, log))
    more = pd.concat([part for part in extra if len(part)] or [extra[0]], ignore_index=True)
    rows = {"labelled": len(split.train) + len(split.validation), "unlabelled": len(more), "test": len(split.test)}
    log(f"{rows['labelled']} rows with a label and {len(more)} without; {rows['test']} to measure on")
    lesson = _lesson(teacher, table, split, more)
    plain = _student(teacher, smaller)
    log("training the student on what the model says")
    student = lesson.fit(plain, share, likeness_loss(likeness, lesson.vectors, lesson.similarity))
    log("training the same on labels alone")
    alone = lesson.fit(plain, 0.0, None, labelled_only=True)
    opened = OpenTable(table, table_kinds(table, dict(teacher.kinds_)))
    predicted = predict_test(student, opened, split)
    named = {"student": student, "teacher": teacher, "student on labels alone": alone}
    measures = {name: _measure(model, opened, split) for name, model in named.items()}
    if out is not None:
        notes = {**teacher.notes_, "name": table.name, "distilled_from": folder.name}
        scores = {"model": measures["student"].scores, "its teacher": measures["teacher"].scores}
        scores |= {"the same on labels alone": measures["student on labels alone"].scores}
        said = f"Distilled from {folder.name} on {rows['labelled']} rows with a label and {len(more)} without."
        model = measured_of(student, predicted, table.target[split.test], table.mass[split.test])
        measured = Measurements({"model": model}, {name: dict(values) for name, values in scores.items()}, [said])
        job = TableJob(table.frame, table.target_name, seed=int(student.random_state or 0))
        record = fit_record(job, opened, split, student, measured, "", time.perf_counter() - started)
        with staged_folder(out) as stage:
            write_files(stage, student, [record], split, notes | {"scores": dict(record.scores)})
    return Distilled(student, out, measures, rows, table.task)


def likeness_loss(loss: str | Callable[..., Any], vectors: torch.Tensor, similarity: str) -> Any:
    """The loss of similarities ``[b, b - 1]`` and of those of a teacher's vectors; None for "none"."""
    if loss != "matching":
        return None if loss == "none" else loss
    rows = vectors[np.linspace(0, len(vectors) - 1, min(len(vectors), _SAMPLED)).astype(int)]
    scores = resolve_similarity(similarity)(rows, rows)[~torch.eye(len(rows), dtype=torch.bool)]
    low, middle, high = torch.quantile(scores.double(), torch.tensor([0.25, 0.5, 0.75]).double()).tolist()
    return DistillationMatchingLoss(middle, max((high - low) / 2, 1e-6))


def _student_encoders(teacher: BankedEstimator, encoders: Mapping[str, str]) -> dict[str, str]:
    """Encoders of the student by column: those named by column, else those named by kind, else the teacher's."""
    kinds, parts = teacher.kinds_, teacher.table_encoder.describe()
    known = {column: part.encoder for part in parts for column in part.columns}
    for name in encoders:
        if name not in kinds and name not in kinds.values():
            raise ValueError(
                f"encoders: expected columns or kinds that the model reads ({', '.join(kinds)}), got {short(name)}"
            )
    chosen = {column: encoders.get(column, encoders.get(kind, known[column])) for column, kind in kinds.items()}
    if chosen == known:
        named = ", ".join(f"{name}={encoder}" for name, encoder in encoders.items())
        raise ValueError(
            f"encoders: expected another encoder than the model has, got {f'its own, {named}' if named else 'none'}"
        )
    return {column: name for column, name in chosen.items() if name != "numbers"}


def _split(teacher: BankedEstimator, parts: Array) -> Split:
    """Positions of the rows that the teacher was trained on, held out, and has never seen."""
    train, validation, test = (np.flatnonzero(parts == part) for part in ("bank", "held out", "new"))
    if len(train) + len(validation) < len(teacher.bank_) / 2:
        raise ValueError(
            f"data: expected the rows that the model was fitted on, got {len(train) + len(validation)} of "
            f"{len(teacher.bank_)}; give the same table again"
        )
    if len(test) < FEWEST:
        raise ValueError(
            f"data: expected at least {FEWEST} labelled rows that the model has not seen, to measure on, got "
            f"{len(test)}; fit it with test rows, or add labelled rows to the table"
        )
    return Split(train, validation, test, seed=0)


def _student(teacher: BankedEstimator, encoders: dict[str, str]) -> BankedEstimator:
    """The student before its fit: the teacher's settings, except encoders and what depends on them."""
    settings = settings_of(teacher)
    validation = settings["validation_fraction"] or TableJob.validation
    changed = {"encoders": encoders, "columns": dict(teacher.kinds_), "form": teacher.form_}
    changed |= {"tune": "none", "plan": None, "index": None}
    changed |= {"validation_fraction": validation, "metric": "network", "loss": None}
    changed |= {"readout": "auto"} if teacher.metric_ == "kernel" else {}
    return clone(type(teacher)(**settings)).set_params(**changed)


@dataclass(frozen=True, eq=False)
class _Lesson:
    """Rows to learn from, labelled ones first, with the teacher's predictions and vectors of all."""

    frame: pd.DataFrame
    labels: Array
    ids: list[Any]
    groups: list[Any] | None
    labelled: int
    validation: Array | None
    predictions: torch.Tensor
    vectors: torch.Tensor
    similarity: str

    def fit(self, plain: BankedEstimator, share: float, loss: Any, *, labelled_only: bool = False) -> BankedEstimator:
        """The fitted student; with ``labelled_only`` without the teacher, on labelled rows."""
        count = self.labelled if labelled_only else len(self.frame)
        student: BankedEstimator = clone(plain)
        if not labelled_only:
            shares = torch.ones(count, dtype=torch.float64)
            shares[: self.labelled] = share
            student.loss = Teacher(self.predictions, shares, self.vectors, loss, similarity=self.similarity)
        groups = None if self.groups is None else self.groups[:count]
        frame, labels, ids = self.frame.iloc[:count], self.labels[:count], self.ids[:count]
        with unwarned(IdentityWarning, LeakWarning):
            student.fit(frame, labels, ids=ids, groups=groups, validation=self._validation(student, count))
        student.loss = None  # it has done its work, and does not go into the folder
        if count > self.labelled:
            student.forget(ids[self.labelled :])
        return student

    def _validation(self, student: BankedEstimator, count: int) -> Array:
        """The teacher's held-out rows, or a random share of the labelled rows; never an unlabelled row."""
        if self.validation is not None:
            return self.validation
        held_out = max(1, round(student.validation_fraction * self.labelled))
        return np.sort(np.random.RandomState(0).permutation(self.labelled)[:held_out])


def _lesson(teacher: BankedEstimator, table: Table, split: Split, more: pd.DataFrame) -> _Lesson:
    at = np.concatenate([split.train, split.validation])
    part = table.select(at)
    columns = list(teacher.kinds_)
    known = part.frame[columns]
    grouped = teacher.bank_.grouped and part.grouped
    groups = part.groups if grouped else None
    classes = teacher.fitted_.codec.classes
    predict = teacher.predict_proba if len(classes) else teacher.predict
    with unwarned(IdentityWarning):
        said = [predict(known, ids=part.ids, groups=groups)]
        said += [predict(more[columns])] if len(more) else []
    labels, frame = part.target, known
    if len(more):
        guessed = classes[said[1].argmax(1)] if len(classes) else said[1]
        labels, frame = np.concatenate([labels, guessed]), pd.concat([known, more[columns]], ignore_index=True)
    ids = part.ids.tolist()
    used = set(map(str, [*ids, *table.ids.tolist()]))
    if part.ids.dtype == np.int64:
        fresh: list[Any] = list(range(int(table.ids.max()) + 1, int(table.ids.max()) + 1 + len(more)))
    else:
        named = (f"unlabelled {number}" for number in itertools.count())
        fresh = list(itertools.islice((name for name in named if name not in used), len(more)))
    return _Lesson(
        frame=frame,
        labels=labels,
        ids=ids + fresh,
        groups=[*part.clusters.tolist(), *(f"{name} alone" for name in fresh)] if grouped else None,
        labelled=len(known),
        validation=np.arange(len(split.train), len(known)) if len(split.validation) else None,
        predictions=torch.from_numpy(np.concatenate(said)),
        vectors=torch.from_numpy(teacher.embed(frame)),
        similarity=teacher.similarity,
    )


def _measure(model: BankedEstimator, opened: OpenTable, split: Split) -> Measure:
    """Size, time and scores on the test rows."""
    network = model.network_
    weights = {id(value): value for value in itertools.chain(network.parameters(), network.buffers())}
    size = sum(value.numel() * value.element_size() for value in weights.values())
    some = replace(split, test=split.test[:TIMED])
    seconds = seconds_of(model, lambda: predict_test(model, opened, some)) / len(some.test)
    measured = measured_of(model, predict_test(model, opened, split), opened.table.target[split.test])
    return Measure(size + model.bank_.vectors.nbytes, seconds, measured.scores)
