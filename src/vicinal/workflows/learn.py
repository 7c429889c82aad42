"""``vicinal learn``: from a table and a column that says what is alike to a model folder for search."""

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vicinal.core import check_choice, short
from vicinal.core.arrays import Array
from vicinal.core.checks import check_between, plain, unwarned
from vicinal.core.folders import check_replaceable, staged_folder
from vicinal.core.identity import IdentityWarning
from vicinal.core.progress import Log
from vicinal.core.seeding import seeded
from vicinal.data import LeakWarning, prepare_table
from vicinal.data.cells import missing_cells
from vicinal.data.duplicates import table_fingerprint
from vicinal.data.sets import join_columns
from vicinal.data.target import SEPARATOR, alike_labels
from vicinal.encoders import PrincipalProjector
from vicinal.estimators.kernel_metric import encoded
from vicinal.estimators.learner import LABELS, EmbeddingLearner
from vicinal.estimators.saving import write_model
from vicinal.evaluation.alike import (
    NEAREST,
    alike_scores,
    hold_out_classes,
    holds_out_classes,
    number_values,
    retrieval_values,
)
from vicinal.report.learned import LearnRecord, ShownHit, ShownQuery, write_learned_page
from vicinal.version import __version__
from vicinal.workflows.measuring import kept_vectors, untrained_encoder
from vicinal.workflows.opening import OpenTable, ReadJob, columns_to_learn, made_with, read_source, rows_of_the_table
from vicinal.workflows.resuming import CACHE, working_folder
from vicinal.workflows.showing import shown_cells

QUERIES = 8
"""Test rows that a report shows with their hits."""

APART = 10


@dataclass(frozen=True)
class LearnJob(ReadJob):
    """What to learn from which table; rows of a ``group`` are not pairs, such as takes of one session.

    Attributes:
        same: the column that says what is alike.
        labels: what it holds: "classes" (also groups), "several" classes with ``separator`` between them, "numbers";
            of "classes" ``test`` is a share of them, or of rows, if classes are few.
        separator: between several classes.
    """

    same: str
    labels: str = "classes"
    separator: str = SEPARATOR


@dataclass(frozen=True)
class LearnedTable(OpenTable):
    """A table that was read, with what is alike in it: labels of its rows, as y of a learner."""

    labels: Any = None

    @property
    def features(self) -> pd.DataFrame:
        """The columns that are used."""
        return self.table.frame[list(self.kinds)]

    def take(self, rows: Array) -> dict[str, Any]:
        """Arguments of a fit, and of :meth:`EmbeddingLearner.add`, for rows at these positions."""
        part = self.table.select(rows)
        labels = [self.labels[row] for row in rows.tolist()]
        return {"X": self.features.iloc[rows], "y": labels, "ids": part.ids, "groups": part.groups}


@dataclass(frozen=True)
class LearnOutcome:
    """The result of :func:`learn_table`: the model, its record, and where it was written (None: nowhere)."""

    model: EmbeddingLearner
    record: LearnRecord
    folder: Path | None


@rows_of_the_table()
def learn_table(job: LearnJob, out: Path | None = None, log: Log = lambda line: None) -> LearnOutcome:
    """Hold classes out, learn, measure on them, add all rows to the bank, and write the model folder with its report.

    A killed run resumes if it is called again with the same job.

    Args:
        job: what to learn.
        out: the folder to write, or None to write nothing.
        log: gets one line of progress at a time.

    Raises:
        ValueError: if data or settings cannot be used.
    """
    started = time.perf_counter()
    check_between("test", job.test, 0, 1)
    if out is not None:
        check_replaceable(out)
    with working_folder(out) as work:
        opened = open_labelled(job, log)
        settings = {"random_state": job.seed, "root": opened.table.root, **job.parameters}
        kinds = opened.kinds
        if job.labels == "classes":
            codes = np.unique(opened.labels, return_inverse=True)[1]
            settings["unseen"] = holds_out_classes(codes, settings.get("unseen"))
        model = EmbeddingLearner(labels=job.labels, columns=kinds, form=opened.table.form, **settings)
        test = _test_rows(job, opened, model)
        train = np.setdiff1d(np.arange(len(opened.table)), test)
        facts = [table_fingerprint(opened.table), list(map(str, opened.labels)), job.test, job.seed, kinds]
        shown = {name: value for name, value in job.parameters.items() if name not in ("verbose", "logger")}
        if work.take_up(json.dumps([__version__, torch.__version__, facts, shown], default=str, sort_keys=True)):
            log("taking up the run that was interrupted")
        cache = None if work.folder is None else work.folder / CACHE
        model.set_params(**{"cache_dir": cache, **settings, "checkpoint_dir": work.folder})
        with unwarned(LeakWarning, IdentityWarning):  # a column that tells the class is what is looked for here
            model.fit(**opened.take(train))
        log("measuring on the test rows")
        record = _measured(job, opened, model, test)
        model.add(**opened.take(test))
        record.duration_s = time.perf_counter() - started
        if out is not None:
            notes: dict[str, Any] = {"name": record.name, "target": job.same, "id": job.id, "group": job.group}
            notes |= {"sets": {name: list(columns) for name, columns in job.sets.items()}} if job.sets else {}
            notes |= {"separator": job.separator} if job.labels == "several" else {}
            notes |= {"torch": torch.__version__}
            with staged_folder(out) as stage:
                each = record.scores.items()
                scores = {name: {measure: value[0] for measure, value in values.items()} for name, values in each}
                write_model(model, stage, notes | {"scores": scores})
                write_learned_page(record, stage / "report.html")
    model.set_params(cache_dir=settings.get("cache_dir"), checkpoint_dir=None)  # those of the run are gone
    return LearnOutcome(model, record, out)


def open_labelled(job: LearnJob, log: Log = lambda line: None) -> LearnedTable:
    """Read and check the table of ``job``.

    Raises:
        ValueError: if the table cannot be used; the message says why in one sentence.
    """
    notes: list[str] = []
    check_choice("labels", job.labels, LABELS[1:])
    exact = [job.id, job.group, None if job.labels == "numbers" else job.same]
    frame, form, root, name = read_source(job, exact, log, notes.append)
    frame = join_columns(form.read(frame), job.sets, of_one_kind=True)
    check_choice("same", job.same, frame.columns)
    if job.same in (job.id, job.group):
        raise ValueError(f"same: expected a column that is not the id or group too, got {short(job.same)}")
    cells, missing = frame[job.same], missing_cells(frame[job.same])
    values = alike_labels(cells[~missing], job.labels, job.separator)
    if len({str(value) for value in values}) < 2:
        raise ValueError(f"same: expected at least two different cells in {short(job.same)}, got the same in every row")
    codes = pd.Series(np.nan, index=frame.index)
    coded = values if job.labels == "numbers" else pd.factorize(pd.Series(list(map(str, values)), dtype=object))[0]
    codes[~missing] = np.asarray(coded, dtype=np.float64)
    table = prepare_table(
        frame.assign(**{job.same: codes}),
        job.same,
        id=job.id,
        group=job.group,
        task="regression",
        use=job.use,
        drop=job.drop,
        name=name,
        root=root,
        form=form,
    )
    table = replace(table, form=table.form.of_columns(set(table.form.columns) - ({job.same} - set(form.columns))))
    columns = columns_to_learn(table, job, log)
    log(f"{len(table)} rows in {name}")
    for line in notes:
        log(line)
    return LearnedTable(table, columns, notes=notes, labels=values)


def _test_rows(job: LearnJob, opened: LearnedTable, model: EmbeddingLearner) -> Array:
    """Test rows: those of classes held out of training, or random ones (whole groups, if there are any)."""
    if job.labels == "classes" and model.unseen:
        codes = np.unique(opened.labels, return_inverse=True)[1]
        return hold_out_classes(codes, job.test, job.seed + 1)
    clusters = opened.table.clusters
    random = np.random.RandomState(job.seed + 1)
    names = random.permutation(np.unique(clusters))
    number = max(1 if opened.table.grouped else 2, round(job.test * len(names)))
    return np.flatnonzero(np.isin(clusters, names[:number]))


def _measured(job: LearnJob, opened: LearnedTable, model: EmbeddingLearner, test: Array) -> LearnRecord:
    part = opened.take(test)
    vectors = torch.from_numpy(model.transform(part["X"]))
    labels = model.as_known(part["y"], len(part["y"]))
    groups = None
    if part["groups"] is not None:
        groups = torch.from_numpy(np.unique(part["groups"], return_inverse=True)[1])
    frozen, whitened = _untrained(opened, model, test)
    scores = {
        name: alike_scores(each, labels, groups, seed=job.seed)
        for name, each in (("model", vectors), ("frozen vectors", frozen), ("PCA-whitened vectors", whitened))
    }
    if not all(np.isfinite(estimate.value) for estimate in scores["model"].values()):
        scores = {}  # no two test rows are alike
    encoders = {column: each.encoder for each in model.table_encoder.describe() for column in each.columns}
    held_out = len(model.calibration_)
    rows = {"train": len(model.bank_) - held_out, "validation": held_out, "test": len(test)}
    classes = {}
    if job.labels == "classes" and model.unseen:
        left_out = len(set(model.calibration_.labels.tolist()))
        known = len(model.classes_) - left_out
        classes = {"train": known, "validation": left_out, "test": len(set(part["y"]))}
    start = {0.0: "the vectors of the encoders", 0.5: "half-whitened vectors", 1.0: "whitened vectors"}[model.start_]
    after = (
        f"; epoch {model.history_.best_epoch + 1} of {len(model.history_.train_error)} was best on the rows held out"
    )
    notes = [
        f"Training started at {start}{after if model.learned_ else ', and did not better them on the rows held out'}."
    ]
    names = [_name(label) for label in part["y"]]
    rows_of_test = Retrieved(model, opened, test, vectors, labels, groups, names)
    settings = {name: value for name, value in model.get_params(deep=False).items() if name not in _LOCAL}
    return LearnRecord(
        name=opened.table.name,
        same=job.same,
        labels=job.labels,
        rows=rows,
        classes=classes,
        scores=scores,
        history={"train_loss": model.history_.train_error, "validation_error": model.history_.validation_error},
        embedding=vectors.numpy(),
        embedding_labels=np.array(part["y"]) if job.labels == "numbers" else np.array(names),
        queries=rows_of_test.queries(),
        apart=rows_of_test.apart(),
        columns=[(n, c.kind or "", encoders.get(n, ""), c.reason) for n, c in opened.columns.items()],
        dropped=opened.table.dropped_counts,
        settings=settings | {"loss": model.trained_by},
        versions=made_with(),
        notes=[*opened.notes, *notes],
    )


_LOCAL = ("root", "cache_dir", "checkpoint_dir", "verbose", "logger", "columns", "form", "labels")


def _untrained(opened: LearnedTable, model: EmbeddingLearner, test: Array) -> tuple[Tensor, Tensor]:
    """Vectors of test rows from encoders before training, plain, and whitened by the training rows."""
    train = model.bank_.rows
    encoder = untrained_encoder(model, opened.kinds, train)
    with seeded(0):
        features = [
            encoded(encoder, kept_vectors(model, encoder, part, opened.table.root))
            for part in (train, opened.features.iloc[test])
        ]
        width = min(model.dim, encoder.dim)
        whitened = PrincipalProjector(encoder.dim, width).double().fit(features[0], 1.0)(features[1])
    return features[1], whitened.detach()


@dataclass(frozen=True, eq=False)
class Retrieved:
    """The test rows of a similarity: which of them lie near each other.

    Attributes:
        test: positions of the rows in the table ``[n]``.
        vectors: their embeddings ``[n, d]``.
        labels: in the form for measures; ``names`` in words.
        groups: ``[n]``, whose rows are no pairs; None: each row is one.
    """

    model: EmbeddingLearner
    opened: LearnedTable
    test: Array
    vectors: Tensor
    labels: Tensor
    groups: Tensor | None
    names: list[str]

    def queries(self) -> list[ShownQuery]:
        """Rows from the best to the worst retrieval, with their nearest rows."""
        data = self.vectors, self.labels, self.groups
        if self.labels.is_floating_point():
            quality = -(number_values(*data) - self.labels).abs()
        else:
            quality = retrieval_values(*data, metrics=["map@r"])["map@r"]
        usable = (~quality.isnan()).nonzero()[:, 0]
        order = usable[quality[usable].argsort(descending=True, stable=True)]
        chosen = order[torch.linspace(0, len(order) - 1, min(QUERIES, len(order))).round().long()]
        titles = ["Best answered", *["Between"] * (len(chosen) - 2), "Worst answered"]
        shown = []
        for title, row, near in zip(titles, chosen.tolist(), self.nearest(chosen), strict=False):
            hits = [self._hit(place, value, self._alike(row, place)) for value, place in near]
            query = self._hit(row, 1.0, None)
            shown.append(ShownQuery(title, query.row, query.label, query.id, hits))
        return shown

    def apart(self) -> list[tuple[ShownHit, ShownHit]]:
        """The nearest pairs of rows with different labels; none for numbers."""
        if self.labels.is_floating_point():
            return []
        pairs: dict[tuple[int, int], float] = {}
        for part in torch.split(torch.arange(len(self.vectors)), 1024):
            for row, near in zip(part.tolist(), self.nearest(part), strict=True):
                different = {place: value for value, place in near if not self._alike(row, place)}
                pairs |= {(min(row, place), max(row, place)): value for place, value in different.items()}
        closest = sorted(pairs.items(), key=lambda pair: -pair[1])[:APART]
        return [(self._hit(a, value, None), self._hit(b, value, None)) for (a, b), value in closest]

    def nearest(self, rows: Tensor) -> list[list[tuple[float, int]]]:
        """Scores and positions of what is nearest to each of ``rows [b]``, without itself and its group."""
        scores = self.vectors[rows] @ self.vectors.T
        scores[torch.arange(len(rows)), rows] = -torch.inf
        if self.groups is not None:
            scores[self.groups[rows, None] == self.groups] = -torch.inf
        best = scores.topk(min(NEAREST, len(self.vectors) - 1), dim=1)
        each = zip(best.values.tolist(), best.indices.tolist(), strict=True)
        return [[one for one in zip(*lines, strict=True) if one[0] > -torch.inf] for lines in each]

    def _hit(self, place: int, score: float, right: bool | None) -> ShownHit:  # noqa: FBT001  a field of what is shown
        row = int(self.test[place])
        cells_of_row = {str(name): cell for name, cell in self.opened.features.iloc[row].items()}
        cells = shown_cells(cells_of_row, self.model.kinds_, self.opened.table.root)
        return ShownHit(cells, self.names[place], score, right, str(self.opened.table.ids[row]))

    def _alike(self, one: int, other: int) -> bool | None:
        labels = self.labels
        if labels.ndim == 2:
            return bool((labels[one] * labels[other]).sum() > 0)
        return None if labels.is_floating_point() else bool(labels[one] == labels[other])


def _name(label: Any) -> str:
    return ", ".join(label) if isinstance(label, list) else plain(label) if isinstance(label, float) else str(label)
