"""Scores of a fitted model on held-out rows, compared with what an expert would try first."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from vicinal.core import counted, listed
from vicinal.core.arrays import Array
from vicinal.core.checks import short_text
from vicinal.core.seeding import seeded
from vicinal.data import Split, Table
from vicinal.data.attributes import attribute_groups
from vicinal.data.splits import no_test
from vicinal.encoders import (
    EmbeddingCache,
    Kind,
    TableEncoder,
    build_table_encoder,
)
from vicinal.estimators.banked import BankedEstimator
from vicinal.estimators.calibrating import calibrating_rows
from vicinal.estimators.encoder_choice import EncoderChoice, choose_encoders
from vicinal.estimators.neighbors import NeighborClassifier, NeighborRegressor
from vicinal.estimators.out_of_fold import ensemble_share
from vicinal.evaluation import group_gap, knn_baseline, knn_grid
from vicinal.evaluation.baselines import Baseline, mean_baseline
from vicinal.evaluation.fairness import GroupGap
from vicinal.evaluation.ranking import lambdarank_baseline
from vicinal.evaluation.scores import several_hot
from vicinal.evaluation.tuned import CLASSES, NUMBERS, SEVERAL, TRIED, tuned_baselines
from vicinal.workflows.measured import Measurements, measured_of
from vicinal.workflows.opening import OpenTable, TableJob
from vicinal.workflows.predict import of_target


def measure(job: TableJob, model: BankedEstimator, opened: OpenTable, split: Split) -> Measurements:
    """Scores of the model, the mean, k-NN on the model's embeddings, and baselines on the untuned features.

    On the test rows; without these out of fold, on the rows of the fit.
    """
    if not len(split.test):
        return _out_of_fold(job, model, opened)
    predicted, knn = predict_test(model, opened, split), knn_of_embeddings(model, opened, split)
    known, rows = (opened.table.select(part) for part in (split.train, split.test))
    mean = mean_baseline(known.target, len(rows), classes=_classes(model), weights=known.weights)
    tuned = untuned_baselines(model, opened, split) if job.baselines else []
    others = {"mean": mean, "k-NN (learned embeddings)": knn}
    notes = [f"k-NN (learned embeddings): {_settings_of(knn)}, chosen on the validation rows."]
    count = len(split.train) + len(split.validation)
    measured = _measured(job, model, predicted, others, tuned, rows, notes, count)
    measured.notes.extend(f"{said}." for said in unknown_classes(model, rows.target))
    if job.query is None or not rows.grouped or not job.baselines:
        return measured
    return _with_lambdarank(measured, model, opened, split)


def by_target(model: BankedEstimator, opened: OpenTable) -> list[tuple[BankedEstimator, OpenTable]]:
    """The model and the table of each target."""
    if not opened.also:
        return [(model, opened)]
    return [(of_target(model, name), opened.of_target(name)) for name in opened.targets]


def _out_of_fold(job: TableJob, model: BankedEstimator, opened: OpenTable) -> Measurements:
    """Scores of the model (see :func:`of_all_members`), mean and baselines."""
    table, tuned = opened.table, list[Baseline]()
    predicted = model.out_of_fold_predictions()[1][model.bank_.keys_of(table.ids)]  # in the order of the table
    mean = mean_baseline(table.target, len(table), classes=_classes(model), weights=table.weights)
    notes = [f"Baselines are left out: without test rows they are for at most {TRIED:,} rows."] if job.baselines else []
    if job.baselines and len(table) <= TRIED:
        tuned = untuned_baselines(model, opened, no_test(len(table), 0))
        notes = ["Baselines predict each row without its fold, by the settings that are best over all folds."]
    measured = _measured(job, model, predicted, {"mean": mean}, tuned, table, notes, len(table))
    share = share_of_all(model)
    scores = measured.scores | {"model": of_all_members(measured.scores["model"], share)}
    return replace(measured, scores=scores, share=share)


def _measured(
    job: TableJob,
    model: BankedEstimator,
    predicted: Array,
    others: Mapping[str, Baseline],
    tuned: Sequence[Baseline],
    rows: Table,
    notes: Sequence[str],
    count: int,
) -> Measurements:
    """The model, other methods and baselines on the same rows; ``count`` rows were there to learn from."""
    known: dict[str, Any] = {"queries": None if job.query is None else rows.groups}
    methods = {"model": measured_of(model, predicted, rows.target, rows.weights, **known)}
    for name, one in {**others, **{f"{one.name} (raw features)": one for one in tuned}}.items():
        methods[name] = measured_of(model, one.prediction, rows.target, rows.weights, one.thresholds, **known)
    if job.weight is not None:
        notes = [*notes, f"Rows count by {short_text(job.weight)}, in errors, too; k-NN predicts without weights."]
    notes = [*notes, *baseline_notes(tuned, count), *threshold_notes(model)]
    return Measurements(methods, {name: one.scores for name, one in methods.items()}, notes)


def _with_lambdarank(measured: Measurements, model: BankedEstimator, opened: OpenTable, split: Split) -> Measurements:
    """The same with LightGBM's LambdaRank, which orders rows and predicts no grades, where there are grades for it."""
    rows, table, ours = np.concatenate([split.train, split.validation]), opened.table, measured.model
    features = untuned_features(model, opened, rows, split.test)
    groups: Array = np.asarray(table.groups)
    ranked = lambdarank_baseline(features[0], table.target[rows], groups[rows], features[1])
    if ranked is None:
        note = "LambdaRank is left out: it takes whole grades from 0 to 30, of five queries at least."
        return replace(measured, notes=[*measured.notes, note])
    name, one = "LambdaRank (raw features)", replace(ours, predicted=ranked.prediction, only_order=True)
    note = f"LambdaRank: {_settings_of(ranked)}, chosen by cross-validation over queries."
    methods, scores = {**measured.methods, name: one}, {**measured.scores, name: one.scores}
    return replace(measured, methods=methods, scores=scores, notes=[*measured.notes, note])


def threshold_notes(model: BankedEstimator) -> list[str]:
    """For several classes per row, a note on how thresholds were chosen."""
    if not isinstance(model, NeighborClassifier) or not model.multilabel_:
        return []
    rows = calibrating_rows(model.fitted_)
    return [
        f"Thresholds of F1 are those of the highest F1 on {rows:,} rows held out, each class's drawn to that of all "
        "classes together the more, the fewer rows have it."
    ]


def unknown_classes(model: BankedEstimator, target: Array) -> list[str]:
    """A clause on the classes of ``target`` that the model does not know."""
    if not isinstance(model, NeighborClassifier):
        return []
    known, several = set(model.classes_.tolist()), model.multilabel_
    names = [name for cell in target for name in (cell if several else [cell]) if name not in known]
    if not names:
        return []
    which, often = listed(sorted(set(names)), 100), counted(len(names), "time")
    return [f"Classes that the model does not know count as {'missed' if several else 'wrong'}: {which} ({often})"]


def untuned_baselines(model: BankedEstimator, opened: OpenTable, split: Split) -> list[Baseline]:
    """Baselines on the features that the encoders give before any training: see :func:`tuned_baselines`.

    They learn from all rows except the test rows; without test rows, each row is predicted without its fold.
    """
    rows, table = np.concatenate([split.train, split.validation]), opened.table
    features = untuned_features(model, opened, rows, split.test)
    queries = features[1] if len(split.test) else None
    return tuned_on(table.select(rows), features[0], queries, opened.kinds, classes_among(table.target[rows], table))


def tuned_on(
    rows: Table, features: Any, queries: Any, kinds: Mapping[str, Kind], classes: Sequence[Any]
) -> list[Baseline]:
    """Baselines for columns of these kinds, which learn from ``rows`` by their ``features``."""
    return tuned_baselines(
        features,
        rows.target,
        queries,
        classes=classes,
        groups=rows.groups,
        times=rows.times,
        weights=rows.weights,
        methods=baseline_names(kinds, classes=len(classes) > 0, several=rows.several),
    )


def classes_among(target: Array, table: Table) -> list[Any]:
    """The classes that occur in ``target``, sorted; numbers have none."""
    if table.task == "regression":
        return []
    return sorted({name for names in target for name in names}) if table.several else np.unique(target).tolist()


def table_choices(model: BankedEstimator, opened: OpenTable, split: Split) -> Sequence[EncoderChoice]:
    """The encoders that a fit on the training rows of ``split`` would choose, for baselines without a fit."""
    table = opened.table.select(split.train)
    classes = table.task == "classification"
    labels = np.unique(table.target, return_inverse=True)[1] if classes else table.target
    if table.several:
        labels, classes = several_hot(table.target, table.classes or [])[0], False
    cache, frame = EmbeddingCache(model.cache_dir), table.frame[list(opened.kinds)]
    job = frame, opened.kinds, labels, model.encoders, cache
    return choose_encoders(*job, classes=classes, groups=table.groups, root=table.root)


def baseline_names(kinds: Mapping[str, Kind], *, classes: bool, several: bool = False) -> list[str]:
    """Names of the baselines for columns of these kinds; boosting only for numbers and categories."""
    if several:
        return list(SEVERAL)
    plain = set(kinds.values()) <= {"number", "category"}
    return [name for name in (CLASSES if classes else NUMBERS) if name != "boosting" or plain]


def baseline_notes(tuned: Sequence[Baseline], rows: int) -> list[str]:
    """Notes on the settings of baselines, and on how many of the ``rows`` they were chosen by."""
    notes = [f"{one.name}: {_settings_of(one)}, chosen by cross-validation." for one in tuned]
    fewer = [one for one in tuned if one.rows < rows]
    if tuned and rows > TRIED:
        limited = "; " + ", ".join(one.name for one in fewer) + f" learned from {fewer[0].rows:,}" if fewer else ""
        notes.append(f"Baselines were tuned on {TRIED:,} of {rows:,} rows{limited}.")
    return notes


def out_of_fold_scores(model: BankedEstimator) -> dict[str, float]:
    """Scores of the out-of-fold predictions; empty if rows were held out instead of folds."""
    if model.folds_ is None:
        return {}
    ids, predictions = model.out_of_fold_predictions()
    bank, at = model.bank_, model.bank_.keys_of(ids)
    measured = measured_of(model, predictions, named_labels(model, bank.labels[at]), bank.mass[at].numpy())
    return of_all_members(measured.scores, share_of_all(model))


def share_of_all(model: BankedEstimator) -> float:
    """Of the squared error of a model's out-of-fold predictions, the share that the whole model has; 1 for classes."""
    return ensemble_share(model.fitted_) if isinstance(model, NeighborRegressor) else 1.0


def of_all_members(scores: Mapping[str, float], share: float) -> dict[str, float]:
    """Scores of out-of-fold predictions as those of the whole model: see ``NeighborRegressor.out_of_fold_error``.

    The absolute error is taken to fall as the root of the squared one.
    """
    if share == 1:
        return dict(scores)
    changed = {"mse": scores["mse"] * share, "mae": scores["mae"] * share**0.5, "r2": 1 - (1 - scores["r2"]) * share}
    return dict(scores) | changed


def predict_test(model: BankedEstimator, opened: OpenTable, split: Split) -> Array:
    """Predictions of the test rows, each without bank rows of its own id or group."""
    part = opened.table.select(split.test)
    frame = part.frame[list(opened.kinds)]
    predict = model.predict_proba if _classes(model) else model.predict
    return predict(frame, ids=part.ids, groups=part.groups)


def knn_of_embeddings(model: BankedEstimator, opened: OpenTable, split: Split) -> Baseline:
    """The paper's k-NN grid on the model's embeddings, chosen on the held-out rows, or on a left-out fold."""
    test = model.embed(opened.table.select(split.test).frame[list(opened.kinds)])
    vectors, labels, classes = model.bank_.vectors, named_labels(model, model.bank_.labels), _classes(model)
    if model.folds_ is None or model.bank_.folds is None:
        trained = ~model.calibration_.has(model.bank_.ids)  # the rows held out choose k
        held_out = model.calibration_.vectors.numpy(), named_labels(model, model.calibration_.labels)
        return knn_grid(vectors.numpy()[trained], labels[trained], *held_out, test, classes=classes)
    # no rows were held out, so k is chosen on a fold, embedded by the members that have not seen its labels; so are the
    # rows that it is searched among, as members of other folds lie in spaces of their own
    left_out = (model.bank_.folds == 0).numpy()
    of_members = model.fitted_.fold_members().columns(0, vectors).numpy()
    rows = of_members[~left_out], labels[~left_out], of_members[left_out], labels[left_out]
    chosen = knn_grid(*rows, of_members[:1], classes=classes).settings
    return knn_baseline(vectors.numpy(), labels, test, chosen, classes=classes)


def untuned_features(model: BankedEstimator, opened: OpenTable, rows: Array, others: Array) -> list[Any]:
    """Features of ``rows`` and ``others`` from encoders before any training, with statistics from ``rows``."""
    frame = opened.table.frame[list(opened.kinds)]
    encoder = untrained_encoder(model, opened.kinds, frame.iloc[rows])
    parts = [frame.iloc[places] for places in (rows, others) if len(places)]
    return [encoder.features(part, kept_vectors(model, encoder, part, opened.table.root)) for part in parts]


def untrained_encoder(
    model: BankedEstimator, kinds: Mapping[str, Kind], rows: pd.DataFrame, fitted_kinds: Sequence[str] = ()
) -> TableEncoder:
    """The encoders of a model before any training, with statistics from ``rows``; those of some kinds as fitted."""
    with seeded(0):
        encoder = build_table_encoder(kinds, encoders=model.named_encoders())
        if not fitted_kinds:
            return encoder.fit(rows)
        pairs = zip(model.table_encoder.encoders, encoder.encoders, strict=True)
        return TableEncoder([old if old.kind in fitted_kinds else new.fit(rows) for old, new in pairs])


def untrained_features(model: BankedEstimator, frame: pd.DataFrame, root: Path | None = None) -> Any:
    """Features of the rows from encoders before any training, with statistics from the bank's rows.

    Vectors and sets keep their fitted encoders, since the bank does not have their whole cells.
    """
    frame, rows = frame[list(model.kinds_)], model.bank_.rows[list(model.kinds_)]
    encoder = untrained_encoder(model, model.kinds_, rows, ("vector", "set"))
    return encoder.features(frame, kept_vectors(model, encoder, frame, root))


def kept_vectors(model: BankedEstimator, encoder: TableEncoder, frame: pd.DataFrame, root: Path | None) -> Any:
    """What an encoder gives for the cells of rows, taken from the model's cache of frozen encoders if it has one."""
    store = None if model.cache_dir is None else EmbeddingCache(model.cache_dir)
    return encoder.cache(encoder.prepare(frame, root), store=store)


def fairness_of(model: BankedEstimator, predicted: Array, table: Table) -> tuple[GroupGap | None, list[str]]:
    """The gap between groups of the attribute of ``table`` in the predictions of its rows, and a sentence on it.

    Without an attribute, None and no sentence; if groups cannot be compared, None and the reason.
    """
    if table.attribute is None:
        return None, []
    if table.several:
        return None, ["Groups are not compared: rates of groups are defined for one class a row."]
    attribute = str(table.attribute.name)
    groups, names = attribute_groups(table.attribute, least=1)
    named: dict[str, Any] = {"names": names, "attribute": attribute, "classes": _classes(model) or None}
    try:
        gap = group_gap(predicted, table.target, groups, **named, rate=model.fair_rate)
    except ValueError as error:
        return None, [f"Groups of {attribute} cannot be compared on these rows: {error}."]
    return gap, [gap.sentence]


def _classes(model: BankedEstimator) -> list[Any]:
    return model.fitted_.codec.classes.tolist()


def named_labels(model: BankedEstimator, labels: torch.Tensor) -> Array:
    """Labels of a bank as in a table: numbers, classes, or tuples of classes ``[n]``."""
    codec, values = model.fitted_.codec, np.empty(len(labels), dtype=object)
    if codec.kind == "numbers":
        return labels.numpy()
    values[:] = list(map(codec.named, labels.tolist()))
    return values if codec.multilabel else values.astype(codec.classes.dtype)


TIMED, _TIMES = 200, 3
"""Most rows whose prediction is timed, and how often; the least time counts."""


def seconds_of(model: BankedEstimator, ask: Callable[[], Any]) -> float:
    """Processor seconds of an answer of a model that has encoded nothing before."""
    least = float("inf")
    for _ in range(_TIMES):
        model.table_encoder.cache_of_frozen = EmbeddingCache()
        begun = time.process_time()
        ask()
        least = min(least, time.process_time() - begun)
    return least


def _settings_of(baseline: Baseline) -> str:
    each = [(name, f"{value:g}" if isinstance(value, float) else value) for name, value in baseline.settings.items()]
    return ", ".join(f"{name} {value}" for name, value in each) or "as it is"
