"""The main job: a table goes in, a model folder with its report comes out."""

import json
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import vicinal
from vicinal.core.folders import check_replaceable, staged_folder
from vicinal.data import Split, duplicates_across, find_duplicates, make_splits, save_splits, table_fingerprint
from vicinal.estimators.building import predicts_by_default
from vicinal.estimators.measuring import Measured, measure
from vicinal.estimators.neighborhood import BankedEstimator
from vicinal.estimators.opening import OpenTable, TableJob, fit_split, groups_sentence, make_estimator, open_table
from vicinal.estimators.panels import mask_curves, neighbor_panels
from vicinal.estimators.resuming import CACHE, working_folder
from vicinal.estimators.saving import write_model
from vicinal.report import FitRecord, write_card, write_page

Say = Callable[[str], None]


@dataclass(frozen=True)
class FitOutcome:
    """What :func:`fit_table` gives: the model, its figures, and where it was written (None: nowhere)."""

    model: BankedEstimator
    record: FitRecord
    opened: OpenTable
    split: Split
    folder: Path | None


def fit_table(job: TableJob, out: Path | None = None, say: Say = lambda line: None) -> FitOutcome:
    """Split, fit, measure on the test rows, and write the model folder.

    The folder holds the four files of the model, ``splits.json``, ``report.html`` and ``README.md`` (the model card). A
    killed run resumes if it is called again with the same job; a model that was there before stays until
    the new one is whole.

    Args:
        job: what to learn.
        out: the folder to write, or None to write nothing.
        say: told one line of progress at a time.

    Raises:
        ValueError: if data or settings cannot be used.
    """
    started = time.perf_counter()
    if out is not None:
        check_replaceable(out)
    with working_folder(out) as work:
        opened = open_table(job, say)
        split = make_splits(opened.table, number=1, seed=job.seed, test=job.test, validation=job.validation)[0]
        leak = duplicates_across(split, find_duplicates(opened.table, opened.kinds))
        for sentence in (groups_sentence(opened.table), leak.sentence):
            if sentence:
                say(sentence)
        if work.take_up(_fingerprint(job, opened)):
            say("taking up the run that was interrupted")
        cache = None if work.folder is None else work.folder / CACHE
        settings = {"cache_dir": cache, **job.parameters, "checkpoint_dir": work.folder}
        model = make_estimator(opened, replace(job, parameters=settings))
        fit_split(model, opened, split)
        say("measuring on the test rows")
        measured = measure(model, opened, split)
        record = _record(job, opened, split, model, measured, leak.sentence, time.perf_counter() - started)
        if out is not None:
            _write(out, model, record, split, job)
    return FitOutcome(model, record, opened, split, out)


def _fingerprint(job: TableJob, opened: OpenTable) -> str:
    settings = {name: value for name, value in job.parameters.items() if name not in ("progress", "logger")}
    told = [table_fingerprint(opened.table), opened.kinds, job.seed, job.test, job.validation, settings]
    return json.dumps([vicinal.__version__, torch.__version__, *told], default=str, sort_keys=True)


def _record(
    job: TableJob,
    opened: OpenTable,
    split: Split,
    model: BankedEstimator,
    measured: Measured,
    duplicates: str,
    duration: float,
) -> FitRecord:
    table = opened.table
    loss = "mse" if table.task == "regression" else "log_loss"
    loss = loss if predicts_by_default(model.loss) else "loss"
    labels = model.bank_.labels.numpy()
    classes = [] if table.classes is None else [str(name) for name in model.classes_]
    encoders = {column: part.encoder for part in model.table_encoder.describe() for column in part.columns}
    settings = {"head": model.head, "seed": job.seed, **_shown_settings(model)}
    return FitRecord(
        name=table.name,
        target_name=table.target_name,
        task=table.task,
        settings=settings,
        columns=[(name, column.kind, encoders.get(name, ""), column.reason) for name, column in opened.columns.items()],
        rows_used=len(table),
        dropped=table.dropped_counts,
        duplicates=duplicates,
        scores=measured.scores,
        history={f"train_{loss}": model.history_.train_error, f"validation_{loss}": model.history_.validation_error},
        predicted=measured.predicted,
        truth=table.target[split.test],
        classes=classes,
        embedding=model.bank_.vectors.numpy(),
        embedding_labels=np.array([classes[int(i)] for i in labels]) if classes else labels,
        panels=neighbor_panels(model, opened.table, list(opened.kinds), split.test, measured.predicted),
        mask_curves=mask_curves(model),
        split_sizes={"train": len(split.train), "validation": len(split.validation), "test": len(split.test)},
        duration_s=duration,
        versions={"vicinal": vicinal.__version__, "torch": torch.__version__, "python": platform.python_version()},
        notes=[*opened.notes, *(f"{leak.sentence}." for leak in opened.leaks), *measured.notes],
    )


def _shown_settings(model: BankedEstimator) -> dict[str, Any]:
    hidden = ("head", "columns", "root", "cache_dir", "checkpoint_dir", "progress", "logger", "random_state")
    neighbor_only = ("similarity", "mask", "mask_parameters", "mask_extent", "simplex", "n_neighbors")
    skipped = hidden if model.head == "nona" else (*hidden, *neighbor_only)
    return {name: value for name, value in model.get_params(deep=False).items() if name not in skipped}


def _write(out: Path, model: BankedEstimator, record: FitRecord, split: Split, job: TableJob) -> None:
    notes = {"name": record.name, "target": job.target, "id": job.id, "group": job.group, "scores": dict(record.scores)}
    with staged_folder(out) as stage:
        write_model(model, stage, notes)
        save_splits(stage / "splits.json", [split])
        write_page(record, stage / "report.html")
        write_card(record, stage / "README.md")
