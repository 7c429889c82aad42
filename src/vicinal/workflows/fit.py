"""``vicinal fit``: a table goes in, a model folder with its report comes out."""

import contextlib
import json
import logging
import platform
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from vicinal.core import check_choice, short_text
from vicinal.core.folders import check_replaceable, staged_folder
from vicinal.core.identity import IdentityWarning
from vicinal.data import (
    CHUNK_WORDS,
    ColumnLeak,
    LeakWarning,
    Split,
    Table,
    duplicates_across,
    find_duplicates,
    join_columns,
    leaking_columns,
    long_texts,
    make_splits,
    no_test,
    prepare_table,
    read_table,
    save_splits,
    split_texts,
    table_fingerprint,
)
from vicinal.encoders import (
    ColumnKind,
    EmbeddingCache,
    Kind,
    build_table_encoder,
    contact_sheet,
    infer_kinds,
    read_cell,
)
from vicinal.encoders.kinds import elements_of
from vicinal.estimators.attention import Explanation
from vicinal.estimators.banked import BankedEstimator
from vicinal.estimators.base import LONE_GROUPS
from vicinal.estimators.encoder_choice import EncoderChoice, choose_encoders
from vicinal.estimators.inputs import as_table, left_out
from vicinal.estimators.loss import predicts_by_default
from vicinal.estimators.neighbors import NeighborClassifier, NeighborRegressor
from vicinal.estimators.network import check_settings
from vicinal.estimators.saving import shown_cell, write_model
from vicinal.estimators.tuning import PLAN
from vicinal.evaluation import (
    Baseline,
    classification_scores,
    knn_baseline,
    knn_grid,
    mean_baseline,
    regression_scores,
)
from vicinal.evaluation.tuned import CLASSES, NUMBERS, TRIED, tuned_baselines
from vicinal.heads import Ensemble
from vicinal.masks import SoftStep
from vicinal.report import FitRecord, NeighborPanel, write_card, write_page
from vicinal.version import __version__
from vicinal.workflows.resuming import CACHE, working_folder

Log = Callable[[str], None]
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class TableJob:
    """What to learn from which table.

    Attributes:
        source: file of the table (csv, tsv, parquet, jsonl), or the table itself.
        target: the column to predict.
        kinds: kind of columns where it should not be found out.
        id: column of ids, or None.
        group: column of groups, or None.
        task: "regression", "classification", or None to read it from the target.
        root: folder that paths of images and sounds start from; None: that of the file.
        use: feature columns; None: all that can be used.
        drop: columns to leave out.
        sets: by the name of a column of sets, the columns of one kind that are its elements.
        long: "cut": of long texts a pretrained encoder reads the beginning; "chunks": they are sets of their chunks.
        name: of the data; "" for the name of the file.
        seed: of the split and of training.
        test: share of rows to test on; 0: all are fitted on, members are folds, and scores are out of fold.
        validation: share of the remaining rows held out for early stopping and intervals; 0: members are folds.
        parameters: of the estimator, see :class:`NeighborRegressor`.
        baselines: measure, beside the model, what :func:`vicinal.evaluation.tuned_baselines` gives.
    """

    source: Path | pd.DataFrame
    target: str
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    id: str | None = None
    group: str | None = None
    task: str | None = None
    root: Path | None = None
    use: Sequence[str] | None = None
    drop: Sequence[str] = ()
    sets: Mapping[str, Sequence[str]] = field(default_factory=dict)
    long: str = "cut"
    name: str = ""
    seed: int = 0
    test: float = 0.2
    validation: float = 0.15
    parameters: Mapping[str, Any] = field(default_factory=dict)
    baselines: bool = True


@dataclass(frozen=True)
class OpenTable:
    """A table that was read and checked.

    Attributes:
        table: the rows that are used.
        columns: what each column was taken for.
        leaks: columns that give the target away or look like a key of groups.
        notes: how the file was read, where that is not as its name says, and what is done with long texts.
        chunked: columns of texts that were made sets of their chunks.
    """

    table: Table
    columns: Mapping[str, ColumnKind]
    leaks: Sequence[ColumnLeak] = ()
    notes: Sequence[str] = ()
    chunked: Sequence[str] = ()

    @property
    def kinds(self) -> dict[str, Kind]:
        """Kinds of the columns that are used."""
        return {name: column.kind for name, column in self.columns.items() if column.kind is not None}


def open_table(job: TableJob, log: Log = lambda line: None) -> OpenTable:
    """Read and check the table of ``job``; ``log`` gets how it was read.

    Raises:
        ValueError: in one sentence, for any of the many ways in which a table can be wrong.
    """
    notes: list[str] = []
    check_choice("long", job.long, ("cut", "chunks"))
    check_settings(NeighborRegressor(**job.parameters).get_params(deep=False))
    root: Path | None
    if isinstance(job.source, Path):
        log(f"reading {job.source.name}")
        frame = read_table(job.source, ids=_exact_columns(job), log=notes.append)
        root = job.root or job.source.resolve().parent
        name = job.name or job.source.stem
    else:
        frame, root, name = as_table("data", job.source), job.root, job.name or "table"
    log(f"{len(frame)} rows and {frame.shape[1]} columns in {name}")
    table = prepare_table(
        join_columns(frame, job.sets, of_one_kind=True),
        job.target,
        id=job.id,
        group=job.group,
        task=job.task,
        use=job.use,
        drop=job.drop,
        name=name,
        root=root,
    )
    columns = infer_kinds(table.frame, job.kinds)
    if all(column.kind is None for column in columns.values()):
        raise ValueError(f"data: expected at least one column to learn from, got none ({left_out(columns)})")
    shares = {name: long_texts(table.frame[name]) for name, column in columns.items() if column.kind == "text"}
    shares = {name: share for name, share in shares.items() if share}
    notes += [_long_note(name, share, job.long) for name, share in shares.items()]
    chunked = list(shares) if job.long == "chunks" else []
    table = replace(table, frame=split_texts(table.frame, chunked))
    columns |= infer_kinds(table.frame[chunked], dict.fromkeys(chunked, "set"))
    kinds = {name: column.kind for name, column in columns.items() if column.kind is not None}
    classes = table.task == "classification"
    leaks = leaking_columns(table.frame, kinds, table.target, classes=classes, groups=table.groups)
    for line in (*notes, *(leak.sentence for leak in leaks)):
        log(line)
    return OpenTable(table, columns, leaks, notes, chunked)


def _long_note(name: str, share: float, long: str) -> str:
    what = f"{short_text(name)}: {share:.0%} of the texts have more than {CHUNK_WORDS} words"
    if long == "chunks":
        return f"{what}; all are sets of chunks of at most so many"
    return f"{what}, of which a pretrained encoder reads the beginning; --long chunks reads all of them"


def _exact_columns(job: TableJob) -> list[str]:
    """Columns of ids and groups, unless they are learned from too."""
    return [name for name in (job.id, job.group) if name is not None and name not in (job.use or ())]


def groups_sentence(table: Table) -> str:
    """What is wrong with groups of which each holds one row, as a copy of the ids does; "" if there is nothing."""
    if table.groups is None or len(set(table.groups.tolist())) < len(table):
        return ""
    return LONE_GROUPS


def make_estimator(opened: OpenTable, job: TableJob) -> BankedEstimator:
    """The estimator for the task of the table, with the job's parameters."""
    estimator = NeighborRegressor if opened.table.task == "regression" else NeighborClassifier
    held_out = job.validation if job.test else 0.0
    settings = {"random_state": job.seed, "root": opened.table.root, "columns": opened.kinds, **job.parameters}
    settings = {"validation_fraction": held_out, **settings}
    return estimator(**settings)


def fit_split(model: BankedEstimator, opened: OpenTable, split: Split) -> BankedEstimator:
    """Fit on the training and validation rows of ``split``; test rows are not read.

    The validation rows are held out of training, unless the members are folds.
    """
    rows = np.concatenate([split.train, split.validation])
    part = opened.table.select(rows)
    validation = None if model.validation_fraction == 0 else np.arange(len(split.train), len(rows))
    frame = part.frame[list(opened.kinds)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentityWarning)  # the job says what groups_sentence gives
        warnings.simplefilter("ignore", LeakWarning)  # open_table has named them
        fitted: BankedEstimator = model.fit(frame, part.target, ids=part.ids, groups=part.groups, validation=validation)
    return fitted


@dataclass(frozen=True)
class FitOutcome:
    """What :func:`fit_table` gives: the model, its figures, and where it was written (None: nowhere)."""

    model: BankedEstimator
    record: FitRecord
    opened: OpenTable
    split: Split
    folder: Path | None


@dataclass(frozen=True)
class Measured:
    """Scores on the test rows.

    Attributes:
        scores: method ("model" first) -> metric -> value.
        predicted: the model's predictions ``[n]`` or probabilities ``[n, K]``.
        notes: what the baselines chose, and what else a reader should know.
    """

    scores: dict[str, dict[str, float]]
    predicted: Array
    notes: list[str]


def fit_table(job: TableJob, out: Path | None = None, log: Log = lambda line: None) -> FitOutcome:
    """Split, fit, measure on the test rows, and write the model folder.

    The folder holds the four files of the model, ``splits.json``, ``report.html`` and ``README.md`` (the model card). A
    killed run resumes if it is called again with the same job; a model that was there before stays until
    the new one is whole.

    Args:
        job: what to learn.
        out: the folder to write, or None to write nothing.
        log: gets one line of progress at a time.

    Raises:
        ValueError: if data or settings cannot be used.
    """
    started = time.perf_counter()
    if out is not None:
        check_replaceable(out)
    with working_folder(out) as work:
        opened = open_table(job, log)
        split = _split_of(job, opened)
        leak = duplicates_across(split, find_duplicates(opened.table, opened.kinds))
        for sentence in (groups_sentence(opened.table), leak.sentence):
            if sentence:
                log(sentence)
        if work.take_up(_fingerprint(job, opened)):
            log("taking up the run that was interrupted")
        cache = None if work.folder is None else work.folder / CACHE
        settings = {"cache_dir": cache, **job.parameters, "checkpoint_dir": work.folder}
        model = make_estimator(opened, replace(job, parameters=settings))
        with _logged(log):
            fit_split(model, opened, split)
        log("measuring on the test rows" if len(split.test) else "measuring out of fold")
        measured = measure(job, model, opened, split) if len(split.test) else measure_out_of_fold(job, model, opened)
        record = fit_record(job, opened, split, model, measured, leak.sentence, time.perf_counter() - started)
        if out is not None:
            write_fit(out, model, record, split, _notes(job, record, opened.chunked))
    return FitOutcome(model, record, opened, split, out)


class _ToLog(logging.Handler):
    """What estimators say while they are fitted, as lines of progress."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        self.log(record.getMessage())


@contextlib.contextmanager
def _logged(log: Log) -> Iterator[None]:
    logger, handler = logging.getLogger("vicinal.estimators.tuning"), _ToLog(log)
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False  # or whoever has set up logging says it once more
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


def _split_of(job: TableJob, opened: OpenTable) -> Split:
    """The split of a job; for one without test rows all are trained on, which needs members that are folds."""
    model = make_estimator(opened, job)
    if model.validation_fraction == 0:
        tune = "none" if model.tune == "auto" else model.tune  # which tunes nothing where members are folds
        model.check_folds(build_table_encoder(opened.kinds, encoders=model.encoders, tune=tune))
    return draw_splits(opened.table, job, 1)[0] if job.test else no_test(len(opened.table), job.seed)


def draw_splits(table: Table, job: TableJob, number: int) -> list[Split]:
    """Splits of a job with test rows; where members are folds, baselines still have validation rows."""
    share = job.validation or TableJob.validation
    return make_splits(table, number=number, seed=job.seed, test=job.test, validation=share)


def _fingerprint(job: TableJob, opened: OpenTable) -> str:
    settings = {name: value for name, value in job.parameters.items() if name not in ("progress", "logger")}
    facts = [table_fingerprint(opened.table), opened.kinds, job.seed, job.test, job.validation, settings]
    return json.dumps([__version__, torch.__version__, *facts], default=str, sort_keys=True)


def fit_record(
    job: TableJob,
    opened: OpenTable,
    split: Split,
    model: BankedEstimator,
    measured: Measured,
    duplicates: str,
    duration: float,
) -> FitRecord:
    """The figures of a fit, for its report and its card; ``duplicates`` is the sentence on rows of equal content."""
    table = opened.table
    loss = "mse" if table.task == "regression" else "log_loss"
    loss = loss if predicts_by_default(model.loss) else "loss"
    labels = model.bank_.labels.numpy()
    classes = [] if table.classes is None else [str(name) for name in model.classes_]
    encoders = {column: part.encoder for part in model.table_encoder.describe() for column in part.columns}
    reasons = {choice.column: [choice.sentence] for choice in model.encoder_choices_}
    settings = {"head": model.head, "seed": job.seed, **_shown_settings(model)}
    scored = split.test if len(split.test) else np.arange(len(table))
    held_out = 0 if model.folds_ is not None else len(split.validation)
    sizes = {"train": len(table) - len(split.test) - held_out, "validation": held_out, "test": len(split.test)}
    return FitRecord(
        name=table.name,
        target_name=table.target_name,
        task=table.task,
        settings=settings,
        columns=[
            (name, column.kind, encoders.get(name, ""), "; ".join([column.reason, *reasons.get(name, [])]))
            for name, column in opened.columns.items()
        ],
        rows_used=len(table),
        dropped=table.dropped_counts,
        duplicates=duplicates,
        scores=measured.scores,
        history=_curves(model, loss),
        predicted=measured.predicted,
        truth=table.target[split.test] if len(split.test) else table.target,
        classes=classes,
        embedding=model.bank_.vectors.numpy(),
        embedding_labels=np.array([classes[int(i)] for i in labels]) if classes else labels,
        panels=neighbor_panels(model, opened.table, list(opened.kinds), scored, measured.predicted),
        mask_curves=mask_curves(model),
        split_sizes=sizes,
        out_of_fold=out_of_fold_scores(model),
        duration_s=duration,
        versions={"vicinal": __version__, "torch": torch.__version__, "python": platform.python_version()},
        notes=[*opened.notes, *(f"{leak.sentence}." for leak in opened.leaks), *_tuning(model), *measured.notes],
    )


_OF_NETWORKS = (
    "similarity",
    "mask",
    "mask_parameters",
    "mask_extent",
    "simplex",
    "loss",
    "tune",
    "minutes",
    "plan",
    "hidden",
    "members",
    "final_tanh",
    "dropout",
    "max_epochs",
    "batch_size",
    "learning_rate",
    "encoder_learning_rate",
    "weight_decay",
    "patience",
    "precision",
    "accelerator",
    "devices",
)
"""Settings that a kernel passes over."""


def _shown_settings(model: BankedEstimator) -> dict[str, Any]:
    hidden = ("head", "columns", "root", "cache_dir", "checkpoint_dir", "progress", "logger", "random_state")
    neighbor_only = (
        "similarity",
        "mask",
        "mask_parameters",
        "mask_extent",
        "simplex",
        "n_neighbors",
        "metric",
        "readout",
        "max_neighbors",
    )
    skipped = hidden if model.head == "nona" else (*hidden, *neighbor_only)
    skipped = (*skipped, *_OF_NETWORKS) if model.metric_ == "kernel" else skipped
    settings = model.get_params(deep=False) | {"metric": model.metric_, "readout": model.readout_}
    return {name: value for name, value in settings.items() if name not in skipped}


def _tuning(model: BankedEstimator) -> list[str]:
    """By which plan the encoder was tuned, if there was one to tune."""
    if model.plan_ is None:
        return []
    if model.plan_.tune == "none":
        return ["The pretrained encoder stays as published: tuning it gained nothing, or there was no time."]
    return [f"The encoder was tuned. {model.plan_.sentence().capitalize()}; the plan is in plan.json."]


def _curves(model: BankedEstimator, loss: str) -> dict[str, list[float]]:
    """Error by epoch; a kernel has none."""
    if model.metric_ == "kernel":
        return {}
    return {f"train_{loss}": model.history_.train_error, f"validation_{loss}": model.history_.validation_error}


def _notes(job: TableJob, record: FitRecord, chunked: Sequence[str]) -> dict[str, Any]:
    notes: dict[str, Any] = {
        "name": record.name,
        "target": job.target,
        "id": job.id,
        "group": job.group,
        "scores": dict(record.scores),
    }
    notes |= {"sets": {name: list(columns) for name, columns in job.sets.items()}} if job.sets else {}
    return notes | ({"chunked": list(chunked)} if chunked else {})


def write_fit(out: Path, model: BankedEstimator, record: FitRecord, split: Split, notes: dict[str, Any]) -> None:
    """Write the folder of a model with its splits, report and card."""
    with staged_folder(out) as stage:
        write_model(model, stage, notes)
        save_splits(stage / "splits.json", [split])
        if model.plan_ is not None:
            (stage / PLAN).write_text(model.plan_.model_dump_json(indent=1) + "\n", encoding="utf-8")
        write_page(record, stage / "report.html")
        write_card(record, stage / "README.md")


def measure(job: TableJob, model: BankedEstimator, opened: OpenTable, split: Split) -> Measured:
    """Scores of the model, of the mean, of k-NN on the model's embeddings, and of baselines on the untuned features."""
    predicted = predict_test(model, opened, split)
    classes, target = _classes(model), opened.table.target
    mean = mean_baseline(target[split.train], len(split.test), classes=classes)
    knn = knn_of_embeddings(model, opened, split)
    tuned = untuned_baselines(model, opened, split) if job.baselines else []
    named = {"model": predicted, "mean": mean.prediction, "k-NN on its embeddings": knn.prediction}
    named |= {f"{baseline.name} on untuned features": baseline.prediction for baseline in tuned}
    scores = {name: score(model, guess, target[split.test]) for name, guess in named.items()}
    notes = [f"k-NN on its embeddings: {_settings_of(knn)}, chosen on the validation rows."]
    return Measured(scores, predicted, notes + baseline_notes(tuned, len(split.train) + len(split.validation)))


def measure_out_of_fold(job: TableJob, model: BankedEstimator, opened: OpenTable) -> Measured:
    """Scores on the rows fitted on, each by members that never saw it; of the mean; and of baselines in folds."""
    table = opened.table
    predicted = model.out_of_fold_predictions()[1][model.bank_.keys_of(table.ids)]  # in the order of the table
    mean = mean_baseline(table.target, len(table), classes=_classes(model))
    named = {"model": predicted, "mean": mean.prediction}
    tuned: list[Baseline] = []
    notes = [f"Baselines are left out: without test rows they are for at most {TRIED:,} rows."] if job.baselines else []
    if job.baselines and len(table) <= TRIED:
        tuned = untuned_baselines(model, opened, no_test(len(table), 0))
        notes = ["Baselines predict each row without its fold, by the settings that are best over all folds."]
    named |= {f"{baseline.name} on untuned features": baseline.prediction for baseline in tuned}
    scores = {name: score(model, guess, table.target) for name, guess in named.items()}
    return Measured(scores, predicted, notes + baseline_notes(tuned, len(table)))


def untuned_baselines(model: BankedEstimator, opened: OpenTable, split: Split) -> list[Baseline]:
    """What is tried first, on the features that the encoders give before any training: see :func:`tuned_baselines`.

    All but the test rows are learned from; without test rows, each row is predicted without its fold.
    """
    rows, table = np.concatenate([split.train, split.validation]), opened.table
    features = untuned_features(model, opened, rows, split.test)
    return tuned_baselines(
        features[0],
        table.target[rows],
        features[1] if len(split.test) else None,
        classes=None if table.task == "regression" else np.unique(table.target[rows]).tolist(),
        groups=None if table.groups is None else table.groups[rows],
        methods=baseline_names(opened.kinds, classes=table.task != "regression"),
    )


def table_choices(model: BankedEstimator, opened: OpenTable, split: Split) -> Sequence[EncoderChoice]:
    """The encoders that a fit on the training rows of ``split`` would choose, for baselines without one."""
    table = opened.table.select(split.train)
    classes = table.task == "classification"
    labels = np.unique(table.target, return_inverse=True)[1] if classes else table.target
    cache, frame = EmbeddingCache(model.cache_dir), table.frame[list(opened.kinds)]
    job = frame, opened.kinds, labels, model.encoders, cache
    return choose_encoders(*job, classes=classes, groups=table.groups, root=table.root)


def baseline_names(kinds: Mapping[str, Kind], *, classes: bool) -> list[str]:
    """The baselines for columns of these kinds; boosting is for numbers and categories."""
    plain = set(kinds.values()) <= {"number", "category"}
    return [name for name in (CLASSES if classes else NUMBERS) if name != "boosting" or plain]


def baseline_notes(tuned: Sequence[Baseline], rows: int) -> list[str]:
    """The settings of baselines, chosen by cross-validation, and whether all ``rows`` were used for that."""
    notes = [f"{one.name}: {_settings_of(one)}, chosen by cross-validation." for one in tuned]
    fewer = [one for one in tuned if one.rows < rows]
    if tuned and rows > TRIED:
        limited = "; " + ", ".join(one.name for one in fewer) + f" learned from {fewer[0].rows:,}" if fewer else ""
        notes.append(f"Baselines were tuned on {TRIED:,} of {rows:,} rows{limited}.")
    return notes


def out_of_fold_scores(model: BankedEstimator) -> dict[str, float]:
    """Scores of the predictions out of fold; none if rows were held out in place of folds."""
    if model.folds_ is None:
        return {}
    ids, predictions = model.out_of_fold_predictions()
    return score(model, predictions, _named_labels(model, model.bank_.labels[model.bank_.keys_of(ids)]))


def predict_test(model: BankedEstimator, opened: OpenTable, split: Split) -> Array:
    """Predictions of the test rows; their ids and groups keep a row from its own."""
    part = opened.table.select(split.test)
    frame = part.frame[list(opened.kinds)]
    predict = model.predict if _classes(model) is None else model.predict_proba
    predicted: Array = predict(frame, ids=part.ids, groups=part.groups)
    return predicted


def knn_of_embeddings(model: BankedEstimator, opened: OpenTable, split: Split) -> Baseline:
    """The paper's k-NN grid on the model's embeddings, chosen on the rows held out, or on a fold that was left out."""
    test = model.embed(opened.table.select(split.test).frame[list(opened.kinds)])
    vectors, labels, classes = model.bank_.vectors, _named_labels(model, model.bank_.labels), _classes(model)
    if model.bank_.folds is None:
        trained = ~model.calibration_.has(model.bank_.ids)  # the rows held out choose k
        held_out = model.calibration_.vectors.numpy(), _named_labels(model, model.calibration_.labels)
        return knn_grid(vectors.numpy()[trained], labels[trained], *held_out, test, classes=classes)
    left_out = (model.bank_.folds == 0).numpy()
    of_members = model.fold_members().columns(0, vectors).numpy()
    rows = of_members[~left_out], labels[~left_out], of_members[left_out], labels[left_out]
    chosen = knn_grid(*rows, of_members[:1], classes=classes).settings
    return knn_baseline(vectors.numpy(), labels, test, chosen, classes=classes)


def untuned_features(model: BankedEstimator, opened: OpenTable, rows: Array, others: Array) -> list[Any]:
    """Features of ``rows`` and ``others`` as encoders give them before any training, statistics from ``rows``."""
    frame = opened.table.frame[list(opened.kinds)]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        encoder = build_table_encoder(opened.kinds, encoders=model.named_encoders())
        encoder.fit(frame.iloc[rows])
    store = None if model.cache_dir is None else EmbeddingCache(model.cache_dir)
    features = []
    for places in filter(len, (rows, others)):
        part = frame.iloc[places]
        features.append(encoder.features(part, encoder.cache(encoder.prepare(part, opened.table.root), store=store)))
    return features


def score(model: BankedEstimator, predicted: Array, truth: Array) -> dict[str, float]:
    """Regression or classification scores of predictions of this model's kind."""
    classes = _classes(model)
    if classes is None:
        return regression_scores(truth, predicted)
    return classification_scores(truth, predicted, classes)


def _classes(model: BankedEstimator) -> Sequence[Any] | None:
    classes = getattr(model, "classes_", None)
    return None if classes is None else classes.tolist()


def _named_labels(model: BankedEstimator, labels: torch.Tensor) -> Array:
    classes = getattr(model, "classes_", None)
    return labels.numpy() if classes is None else classes[labels.long().numpy()]


def _settings_of(baseline: Baseline) -> str:
    return (
        ", ".join(
            f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in baseline.settings.items()
        )
        or "as it is"
    )


def neighbor_panels(
    model: BankedEstimator, table: Table, columns: list[str], test: Array, predicted: Array, k: int = 5
) -> list[NeighborPanel]:
    """Panels of the best, the median and the worst test prediction; none for a head without neighbors."""
    if not model.network_.head.uses_bank or len(test) == 0:
        return []
    order = np.argsort(_errors(model, predicted, table.target[test]), kind="stable")
    chosen = {"Best prediction": order[0], "Median prediction": order[len(order) // 2], "Worst prediction": order[-1]}
    positions = test[list(chosen.values())]
    part = table.select(positions)
    explained = model.explain(part.frame[columns], k, ids=part.ids, groups=part.groups)
    panels = []
    for title, explanation, row in zip(chosen, explained, range(len(positions)), strict=True):
        shown = {name: part.frame[name].iloc[row] for name in columns}
        panels.append(_panel(model, title, explanation, shown, part.target[row], table.root))
    return panels


def mask_curves(model: BankedEstimator, queries: int = 200) -> tuple[Array, list[tuple[str, Array]]] | None:
    """Learned masks (of the first member) of held-out rows: those that reject the least, the median, and the most."""
    head = model.network_.head
    members = len(head.heads) if isinstance(head, Ensemble) else 1
    mask = getattr(head.heads[0] if isinstance(head, Ensemble) else head, "mask", None)
    if not isinstance(mask, SoftStep):
        return None
    grid = torch.linspace(0, 1, 201, dtype=torch.float64)
    rows = model.calibration_ if len(model.calibration_) else model.bank_
    with torch.no_grad():
        curves = mask.curve(grid, rows.vectors[:queries].double().chunk(members, dim=1)[0])
    if mask.parameters_from == "global":
        return grid.numpy(), [("all rows", curves[0].numpy())]
    order = curves.mean(dim=1).argsort(descending=True)
    picked = {"rejects least": order[0], "median": order[len(order) // 2], "rejects most": order[-1]}
    return grid.numpy(), [(label, curves[int(i)].numpy()) for label, i in picked.items()]


def _errors(model: BankedEstimator, predicted: Array, truth: Array) -> Array:
    classes = getattr(model, "classes_", None)
    if classes is None:
        errors: Array = np.abs(predicted - truth)
        return errors
    column = {name: place for place, name in enumerate(classes.tolist())}
    places = [column.get(name) for name in truth.tolist()]
    return np.array([1.0 if place is None else 1 - row[place] for row, place in zip(predicted, places, strict=True)])


def _panel(
    model: BankedEstimator, title: str, explanation: Explanation, row: dict[str, Any], target: Any, root: Path | None
) -> NeighborPanel:
    images = [p.columns[0] for p in model.table_encoder.encoders if getattr(p, "element_kind", None) == "image"]
    kinds: dict[str, str] = {**model.kinds_, **dict.fromkeys(images, "images")}
    neighbors = [
        (shown_cells(n.row, kinds, root), _label(n.label), n.weight, n.contribution, str(n.id))
        for n in explanation.neighbors
    ]
    return NeighborPanel(
        title=title,
        query=shown_cells(row, kinds, root),
        prediction=_label(explanation.prediction),
        target=_label(target),
        neighbors=neighbors,
        other_weight=explanation.other_weight,
        other_contribution=explanation.other_contribution,
        other_rows=explanation.other_count,
        probability=None if isinstance(explanation.prediction, float) else explanation.total,
    )


_SHOWN = 6
"""Images of a set that a report shows."""


def _label(value: Any) -> float | str:
    return float(value) if isinstance(value, float | np.floating) else str(value)


def shown_cells(row: dict[str, Any], kinds: dict[str, Any], root: Path | None) -> dict[str, str | bytes]:
    """What to show of a row: thumbnails of images, names of sounds, texts and numbers as they read."""
    shown: dict[str, str | bytes] = {}
    for name, cell in row.items():
        content = cell.get("bytes") if isinstance(cell, dict) else cell
        if kinds.get(name) in ("image", "images"):
            members = [value for _, value in elements_of(cell, name, "")] if kinds[name] == "images" else [cell]
            try:
                files = (read_cell(one, column=name, row="", what="an image", root=root) for one in members[:_SHOWN])
                small = contact_sheet(files, 320 if kinds[name] == "image" else 128)
            except ValueError:  # it was there when the model was fitted
                small = None
            shown[name] = small if small is not None else str(cell)[:80]
        elif isinstance(content, bytes | bytearray):
            shown[name] = f"({len(content)} bytes)"
        elif isinstance(cell, float | np.floating):
            shown[name] = "" if np.isnan(cell) else f"{cell:.4g}"
        elif kinds.get(name) == "set":
            shown[name] = short_text(shown_cell(cell, "set") or "", 320)
        elif isinstance(cell, list | tuple | np.ndarray):
            shown[name] = f"({len(cell)} numbers)"
        else:
            shown[name] = "" if cell is None else str(cell)
    return shown
