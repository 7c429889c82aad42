"""``vicinal fit``: from a table to a model folder with its report."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vicinal.core.folders import check_replaceable, staged_folder
from vicinal.core.progress import Log, logged, report
from vicinal.data import Split, duplicates_across, find_duplicates
from vicinal.data.duplicates import table_fingerprint
from vicinal.data.splits import no_test, save_splits
from vicinal.data.target import SEPARATOR
from vicinal.encoders import build_table_encoder
from vicinal.estimators.banked import BankedEstimator
from vicinal.estimators.comparables import noise_sentence
from vicinal.estimators.encoder_choice import expected_memory, planned_encoders
from vicinal.estimators.importance import knows_columns
from vicinal.estimators.loss import predicts_by_default
from vicinal.estimators.loss_readout import readout_sentences
from vicinal.estimators.metric_choice import metrics_to_try
from vicinal.estimators.presets import settings_of
from vicinal.estimators.saving import facts_of, write_model
from vicinal.estimators.tuning import PLAN
from vicinal.plot import mask_curves
from vicinal.report import write_page
from vicinal.report.card import card_text
from vicinal.report.figures import most_frequent
from vicinal.report.records import Column, FitRecord
from vicinal.version import __version__
from vicinal.workflows.measured import Measurements
from vicinal.workflows.measuring import by_target, fairness_of, measure, out_of_fold_scores
from vicinal.workflows.opening import (
    OpenTable,
    TableJob,
    draw_splits,
    fit_split,
    groups_sentence,
    made_with,
    make_estimator,
    open_table,
    rows_of_the_table,
)
from vicinal.workflows.resuming import CACHE, working_folder
from vicinal.workflows.showing import neighbor_panels
from vicinal.workflows.verdict import covering, examples, verdict, worst_groups

REPORT = "report-{}.html"
"""Name of the pages of the second and further targets."""


@dataclass(frozen=True)
class FitPlan:
    """What a fit will do, known before anything is encoded or trained.

    Attributes:
        encoders: by column; "one or another" if the fit will choose by the training rows.
        duplicates: the sentence on rows of equal content.
        sizes: number of rows to train on ("train"), to stop early and calibrate ("validation"; 0 where members are
            folds) and to test on ("test").
        steps: "steps" of an epoch, "max_epochs", "patience", "members", "batch_size"; and "metrics": those that
            are fitted, "kernel", "trees" and "network", of which the best one is taken; and "mean": whether the mean of
            the first two may be.
        memory: bytes that it takes at its peak, about, where texts may be read by a pretrained encoder; else 0.
    """

    opened: OpenTable
    split: Split
    encoders: dict[str, str]
    duplicates: str
    sizes: dict[str, int]
    steps: dict[str, Any]
    memory: int = 0


@dataclass(frozen=True)
class FitOutcome:
    """The result of :func:`fit_table`: the model, its record, and where it was written (None: nowhere).

    ``further`` holds the records of further targets.
    """

    model: BankedEstimator
    record: FitRecord
    opened: OpenTable
    split: Split
    folder: Path | None
    further: Sequence[FitRecord] = ()


def plan_fit(job: TableJob, log: Log = lambda line: None) -> FitPlan:
    """Read and check the table, detect kinds, plan encoders, and split; nothing is encoded, trained or written.

    Raises:
        ValueError: as :func:`fit_table` does before it trains.
    """
    opened = open_table(job, log)
    plan = plan_opened(job, opened, _split_of(job, opened))
    for sentence in filter(None, (groups_sentence(opened.table), plan.duplicates)):
        log(sentence)
    return plan


def plan_opened(job: TableJob, opened: OpenTable, split: Split) -> FitPlan:
    """The same for an open table and its split."""
    model = make_estimator(opened, job)
    leak = duplicates_across(split, find_duplicates(opened.table, opened.kinds))
    folds = model.validation_fraction == 0
    frame = opened.table.select(split.train).frame
    rows, held_out = len(split.train) + len(split.validation), 0 if folds else len(split.validation)
    sizes = {"train": rows - held_out, "validation": held_out, "test": len(split.test)}
    settings = settings_of(model)
    encoders = planned_encoders(frame, opened.kinds, model.encoders)
    steps: dict[str, Any] = {"metrics": _metrics(model, opened, encoders, rows)}
    steps |= {"mean": {"kernel", "trees"} <= set(steps["metrics"])}
    steps |= {"steps": -(-sizes["train"] // settings["batch_size"])}
    steps |= {name: settings[name] for name in ("max_epochs", "patience", "members", "batch_size")}
    tuned = settings["tune"] != "none" and settings["metric"] != "kernel" and not folds
    memory = expected_memory(encoders, tuned=tuned)
    return FitPlan(opened, split, encoders, leak.sentence, sizes, steps, memory)


@rows_of_the_table()
def fit_table(
    job: TableJob,
    out: Path | None = None,
    log: Log = lambda line: None,
    first: Callable[[FitPlan], None] = lambda plan: None,
) -> FitOutcome:
    """Split, fit, measure on the test rows, and write the model folder.

    The folder holds the model, ``splits.json``, ``report.html`` (and reports of further targets), ``README.md`` (the
    model card) and any ``plan.json``. A killed run resumes if it is called again with the same job; an earlier model
    stays until the new one is complete.

    Args:
        job: what to learn.
        out: the folder to write, or None to write nothing.
        log: gets one line of progress at a time.
        first: gets the plan, before anything is encoded or trained.

    Raises:
        ValueError: if data or settings cannot be used.
    """
    started = time.perf_counter()
    if out is not None:
        check_replaceable(out)
    with working_folder(out) as work:
        plan = plan_fit(job, log)
        first(plan)
        opened, split = plan.opened, plan.split
        if work.take_up(run_fingerprint(job, opened)):
            log("taking up the run that was interrupted")
        cache = None if work.folder is None else work.folder / CACHE
        settings = {"cache_dir": cache, **job.parameters, "checkpoint_dir": work.folder}
        model = make_estimator(opened, replace(job, parameters=settings))
        with logged(log, "vicinal.estimators.tuning"):
            fit_split(model, opened, split)
        report("measuring")
        log("measuring on the test rows" if len(split.test) else "measuring out of fold")
        records = []
        for one, part in by_target(model, opened):
            measured = measure(job, one, part, split)
            scored = part.table.select(split.test) if len(split.test) else part.table
            measured.notes.extend(fairness_of(one, measured.model.predicted, scored)[1])
            measured.notes.extend(_other_targets(list(opened.targets), part.table.target_name))
            duration = time.perf_counter() - started
            records.append(fit_record(job, part, split, one, measured, plan.duplicates, duration))
        if out is not None:
            notes = _notes(job, records[0], opened.chunked)
            with staged_folder(out) as stage:
                write_files(stage, model, records, split, notes)
    model.set_params(cache_dir=job.parameters.get("cache_dir"), checkpoint_dir=None)  # those of the run are gone
    return FitOutcome(model, records[0], opened, split, out, records[1:])


def _other_targets(names: Sequence[str], name: str) -> list[str]:
    """A note on the reports of the other targets."""
    pages = {each: "report.html" if place == 0 else REPORT.format(place + 1) for place, each in enumerate(names)}
    others = ", ".join(f"{each} in {page}" for each, page in pages.items() if each != name)
    return [f"The model predicts other targets, too: {others}."] if others else []


def _split_of(job: TableJob, opened: OpenTable) -> Split:
    """The split of a job; without test rows all rows are trained on, which needs members as folds."""
    model = make_estimator(opened, job)
    if job.time is not None and model.validation_fraction == 0:
        raise ValueError(
            "time: expected shares above 0 to test on and to hold out, as folds learn from later rows, got 0"
        )
    if model.validation_fraction == 0:
        tune = settings_of(model)["tune"]
        tune = "none" if tune == "auto" else tune  # which tunes nothing where members are folds
        model.check_folds(build_table_encoder(opened.kinds, encoders=model.encoders, tune=tune))
    return draw_splits(opened.table, job, 1)[0] if job.test else no_test(len(opened.table), job.seed)


def run_fingerprint(job: TableJob, opened: OpenTable) -> str:
    """All that the result of a fit depends on; an interrupted run with the same fingerprint resumes."""
    settings = {name: value for name, value in job.parameters.items() if name not in ("verbose", "logger")}
    also = {name: sha256(values.tobytes()).hexdigest() for name, values in opened.also.items()}
    weights = sha256(opened.table.mass.tobytes()).hexdigest() if opened.table.weighted else None
    facts = [
        table_fingerprint(opened.table),
        opened.kinds,
        job.seed,
        job.test,
        job.validation,
        job.time,
        job.query,
        settings,
        also,
        weights,
    ]
    return json.dumps([__version__, torch.__version__, *facts], default=str, sort_keys=True)


def fit_record(
    job: TableJob,
    opened: OpenTable,
    split: Split,
    model: BankedEstimator,
    measured: Measurements,
    duplicates: str,
    duration: float,
) -> FitRecord:
    """The record of a fit, for its report and card; ``duplicates`` is the sentence on rows of equal content."""
    table = opened.table
    loss = "mse" if table.task == "regression" else "log_loss"
    loss = loss if predicts_by_default(model.loss) else "loss"
    labels, history = model.bank_.labels.numpy(), model.history_
    classes = [str(name) for name in model.fitted_.codec.classes]
    encoders = {column: part.encoder for part in model.table_encoder.describe() for column in part.columns}
    reasons = {choice.column: [choice.sentence] for choice in model.encoder_choices_}
    settings = {"head": model.head, "seed": job.seed, "target_transform": model.target_transform_.name}
    settings |= {**facts_of(model)["settings"], **({"encoders": model.encoders} if model.encoders else {})}
    scored = split.test if len(split.test) else np.arange(len(table))
    is_out_of_fold = model.folds_ is not None and not len(split.test)
    held_out = 0 if model.folds_ is not None else len(split.validation)
    sizes = {"train": len(table) - len(split.test) - held_out, "validation": held_out, "test": len(split.test)}
    promise = covering(model, opened, split)
    return FitRecord(
        name=table.name,
        target_name=table.target_name,
        task=table.task,
        settings=settings,
        columns=[
            Column(name, column.kind, encoders.get(name, ""), "; ".join([column.reason, *reasons.get(name, [])]))
            for name, column in opened.columns.items()
        ],
        rows_used=len(table),
        dropped=table.dropped_counts,
        duplicates=duplicates,
        scores=measured.scores,
        history={f"train_{loss}": history.train_error, f"validation_{loss}": history.validation_error}
        if model.metric_ == "network"
        else {},
        predicted=measured.model.predicted,
        truth=measured.model.labels,
        classes=classes,
        embedding=model.bank_.vectors.numpy(),
        embedding_labels=most_frequent(classes, labels) if classes else labels,
        panels=neighbor_panels(model, opened.table, list(opened.kinds), scored, measured.model),
        mask_curves=mask_curves(model),
        split_sizes=sizes,
        out_of_fold=measured.scores["model"] if is_out_of_fold else out_of_fold_scores(model),
        duration_s=duration,
        versions=made_with(),
        notes=[
            *opened.notes,
            *(f"{leak.sentence}." for leak in opened.leaks),
            *_notes_on(model),
            *measured.notes,
        ],
        verdict=verdict(measured, table.clusters[scored], promise),
        coverage=promise.levels,
        examples=examples(model, opened, scored, measured.model, promise),
        by_class=measured.model.by_class,
        slices=worst_groups(opened, scored, measured.model),
        importance=model.importance() if knows_columns(model.fitted_) else {},
        importance_by="trend" if model.network_.cross_fitted else "distance",
    )


def _notes_on(model: BankedEstimator) -> list[str]:
    """How the encoder was tuned, the label scale, the readout, and what intervals promise for later rows."""
    notes, sentence = [], model.target_transform_.sentence
    if model.plan_ is not None and model.plan_.tune == "none":
        notes.append("The pretrained encoder stays as published: tuning it gained nothing, or there was no time.")
    elif model.plan_ is not None:
        notes.append(f"The encoder was tuned. {model.plan_.sentence().capitalize()}; the plan is in plan.json.")
    if sentence:
        is_chosen = model.target_transform == "auto" and not hasattr(model, "classes_")
        why = " (a kernel predicts rows better from the others so)" if is_chosen else ""
        notes.append(f"{sentence[0].upper()}{sentence[1:]}{why}.")
    notes += [*readout_sentences(model.fitted_, settings_of(model)), *filter(None, [noise_sentence(model.fitted_)])]
    if model.fitted_.forecasts:
        what = "intervals" if model.fitted_.codec.kind == "numbers" else "sets of classes"
        notes.append(
            f"Calibrated by forecasts: models of the earlier half, five and six eighths of the rows predicted the "
            f"quarter that comes next, and {what} are as wide as these needed. Rows farther ahead, or that change as "
            "no rows did before, have no promise."
        )
    return notes


def _notes(job: TableJob, record: FitRecord, chunked: Sequence[str]) -> dict[str, Any]:
    notes: dict[str, Any] = {
        "name": record.name,
        "target": job.target,
        "id": job.id,
        "group": job.query or job.group,
        "scores": dict(record.scores),
    }
    notes |= {
        name: column for name, column in (("time", job.time), ("weight", job.weight), ("query", job.query)) if column
    }
    notes |= {"separator": job.separator or SEPARATOR} if record.several else {}
    notes |= {"sets": {name: list(columns) for name, columns in job.sets.items()}} if job.sets else {}
    return notes | ({"chunked": list(chunked)} if chunked else {})


def _metrics(model: BankedEstimator, opened: OpenTable, encoders: Mapping[str, str], rows: int) -> list[str]:
    """The metrics that will be fitted to so many rows."""
    table, kinds = opened.table, opened.kinds
    known = {one for each in encoders.values() for one in each.split(" or ")}
    return metrics_to_try(
        settings_of(model),
        kinds,
        table.target,
        table.groups,
        classes=table.task != "regression",
        several=table.several,
        rows=rows,
        wide=not {*kinds.values()} <= {"number", "category"},
        untrained=bool({"cnn", "cnn-mel"} & known),
    )


def write_files(
    stage: Path, model: BankedEstimator, records: Sequence[FitRecord], split: Split, notes: dict[str, Any]
) -> None:
    """Write the files of a model, its splits, plan, card and a report of each target into an empty folder."""
    write_model(model, stage, notes | {"torch": torch.__version__})
    save_splits(stage / "splits.json", [split])
    if model.plan_ is not None:
        (stage / PLAN).write_text(model.plan_.model_dump_json(indent=1) + "\n", encoding="utf-8")
    for place, record in enumerate(records, start=1):
        write_page(record, stage / (REPORT.format(place) if place > 1 else "report.html"))
    (stage / "README.md").write_text(card_text(records[0]), encoding="utf-8")
