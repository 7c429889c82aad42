"""A saved model on labelled rows: errors by slice, coverage, hubs, suspicious labels, and copies across its parts."""

import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import vicinal
from vicinal.calibration import ConformalClasses
from vicinal.core import check_integer
from vicinal.data.table import Table
from vicinal.encoders import EmbeddingCache, build_table_encoder
from vicinal.estimators.bank import Bank
from vicinal.estimators.copies import equal_content, near_embeddings
from vicinal.estimators.measuring import score
from vicinal.estimators.neighborhood import BankedEstimator
from vicinal.estimators.saving import load_model
from vicinal.estimators.standing import FIRST, Attended, attend, labelled_rows, parts_of
from vicinal.evaluation import (
    class_suspicion,
    coverage_curve,
    error_slices,
    left_out_predictions,
    suspicion,
    target_slices,
)
from vicinal.report import AuditRecord, Hub, Part, Suspect

Say = Callable[[str], None]
Array = np.ndarray[Any, Any]
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Coverage of intervals that is looked at."""

SETS = 0.9
"""Coverage of sets of classes."""


def audit_table(
    folder: Path,
    source: Path | pd.DataFrame,
    *,
    root: Path | None = None,
    suspects: int = 50,
    index: str | None = None,
    encoders: Mapping[str, str] | None = None,
    say: Say = lambda line: None,
) -> AuditRecord:
    """Look at the model saved in ``folder`` with the labelled rows of ``source``.

    Errors, intervals and hubs are measured on rows that the model has neither in its bank nor held out; suspicious
    labels and copies are looked for among all. A row is known to the model if the model has its id (the column of ids
    it was fitted with, or else the row's place in the table) with the same content.

    Args:
        folder: of the model; it must predict from neighbors.
        source: file of the table, or the table itself, with the column that the model predicts.
        root: folder that paths of images and sounds start from; None: that of the file.
        suspects: how many suspicious labels to list.
        index: see :func:`vicinal.estimators.load_model`, as are ``encoders``.
        encoders: by column or kind.
        say: told one line of progress at a time.

    Raises:
        ValueError: if the model cannot be loaded, the target is missing, or fewer than 10 rows are new to the model.
    """
    check_integer("suspects", suspects, 0)
    model = load_model(folder, index=index, encoders=encoders)
    model._check_neighbor_head("evaluate")
    table = labelled_rows(model, source, say, root)
    parts = parts_of(model, table)
    new = np.array([part == "new" for part in parts])
    if new.sum() < 10:
        raise ValueError(
            f"data: expected at least 10 rows that the model has not seen, got {int(new.sum())} of {len(table)}; "
            "give it the table it was fitted on, whose test rows are new to it, or other labelled rows"
        )
    say(f"measuring on {int(new.sum())} rows that the model has not seen")
    vectors = torch.from_numpy(model.embed(table.frame))
    seen = attend(model, table, vectors, parts)
    fresh = table.select(np.flatnonzero(new))
    predicted = seen.expected[new]
    copies = equal_content(table, {n: str(k) for n, k in model.kinds_.items()}, parts)
    counts = {part: parts.count(part) for part in ("bank", "held out", "new")}
    classes = getattr(model, "classes_", None)
    errors = _errors(model, predicted, fresh.target)
    return AuditRecord(
        name=table.name,
        model=folder.name,
        target_name=table.target_name,
        task=table.task,
        rows=counts,
        scores=score(model, predicted, fresh.target),
        slices=error_slices(errors, _slice_columns(model, fresh)),
        target_slices=_along_target(model, errors, fresh),
        coverage=[] if classes is not None else _coverage(model, fresh),
        class_sets={} if classes is None else _class_sets(model, predicted, fresh.target),
        hubs=_hubs(model, seen),
        hubness=_skewness(seen.served),
        unused=float((seen.served == 0).mean()),
        neighbors=min(FIRST, len(model.bank_)),
        suspects=_suspects(model, table, seen, parts)[:suspects],
        copies=copies + near_embeddings(table, vectors, parts, copies),
        predicted=predicted,
        truth=fresh.target,
        classes=[] if classes is None else [str(name) for name in classes],
        served=seen.served,
        notes=_notes(model, table),
        versions={"vicinal": vicinal.__version__, "torch": torch.__version__, "python": platform.python_version()},
    )


def _errors(model: BankedEstimator, predicted: Array, truth: Array) -> Array:
    classes = getattr(model, "classes_", None)
    if classes is None:
        return np.asarray((predicted - truth) ** 2)
    return np.asarray(np.asarray(classes)[predicted.argmax(1)] != truth, dtype=np.float64)


def _slice_columns(model: BankedEstimator, fresh: Table) -> dict[str, list[Any]]:
    return {name: fresh.frame[name].tolist() for name, kind in model.kinds_.items() if kind == "category"}


def _along_target(model: BankedEstimator, errors: Array, fresh: Table) -> list[Any]:
    if getattr(model, "classes_", None) is None:
        return target_slices(errors, fresh.target, name=fresh.target_name)
    return error_slices(errors, {fresh.target_name: fresh.target.tolist()}, least=1)


def _coverage(model: BankedEstimator, fresh: Table) -> list[Mapping[str, Any]]:
    bounds: dict[float, Array] = {}
    groups = fresh.groups if model.bank_.groups is not None else None
    for level in LEVELS:
        if _enough(model, level):
            bounds[level] = model.predict_interval(fresh.frame, level, groups=groups)
    return list(coverage_curve(fresh.target, bounds)) if bounds else []


def _enough(model: BankedEstimator, level: float) -> bool:
    """Whether so many rows were held out that their scores have a quantile for this coverage."""
    count = len(model.calibration_)
    return bool(count and np.ceil((count + 1) * level - 1e-9) <= count)


def _notes(model: BankedEstimator, table: Table) -> list[str]:
    """What a reader should know: rows that were left out, and what could not be calibrated."""
    notes = [f"{len(table.dropped)} rows were left out: {table.dropped[0].reason}."] if table.dropped else []
    what, levels = ("intervals", LEVELS) if getattr(model, "classes_", None) is None else ("sets of classes", (SETS,))
    short = [f"{level:.0%}" for level in levels if not _enough(model, level)]
    if short:
        held = len(model.calibration_)
        notes.append(
            f"{held} rows are held out for calibration: too few for {what} that cover {', '.join(short)}, which "
            "are not shown. Fit on more rows for them."
        )
    return notes


def _class_sets(model: BankedEstimator, predicted: Array, truth: Array) -> dict[str, dict[str, float]]:
    held: Bank = model.calibration_
    if not _enough(model, SETS):
        return {}
    identity = model.bank_.identity(held.ids, held.groups)
    shares = model._head_predict(held.vectors.double(), identity).double().numpy()
    shares /= shares.sum(1, keepdims=True)
    places = {name: place for place, name in enumerate(getattr(model, "classes_", ()))}
    right = np.array([places.get(label, 0) for label in truth.tolist()])
    sets = {}
    for method in ("lac", "aps", "raps"):
        fitted = ConformalClasses(method, coverage=SETS, seed=0).fit(shares, held.labels.long().numpy())
        found = fitted.predict(predicted)
        sets[method] = {
            "covered": float(found[np.arange(len(found)), right].mean()),
            "size": float(found.sum(1).mean()),
        }
    return sets


def _hubs(model: BankedEstimator, seen: Attended, most: int = 10) -> list[Hub]:
    bank, hubs = model.bank_, []
    for place in np.lexsort((-seen.weight, -seen.served))[:most]:
        label, shown = _named(model, float(bank.labels[place])), _shown(bank.rows.iloc[place])
        hubs.append(Hub(bank.ids[place], label, int(seen.served[place]), float(seen.weight[place]), shown))
    return hubs


def _suspects(model: BankedEstimator, table: Table, seen: Attended, parts: list[Part]) -> list[Suspect]:
    """All rows, the most suspicious first.

    The trained encoder has seen the labels of the bank and has moved mislabelled rows toward their wrong labels, so the
    score is that of a ridge regression on the untrained features, which leaves each row out.
    """
    classes = getattr(model, "classes_", None)
    features = _untrained_features(model, table)
    if classes is None:
        expected = left_out_predictions(features, table.target, groups=table.groups)
        scores = suspicion(table.target, expected, float(np.std(table.target - expected)) or 1.0)
        said = seen.expected.tolist()
    else:
        places = {name: place for place, name in enumerate(classes.tolist())}
        given = np.array([places.get(label, 0) for label in table.target.tolist()])
        expected = left_out_predictions(features, np.eye(len(classes))[given], groups=table.groups)
        scores, said = class_suspicion(given, expected), np.asarray(classes)[seen.expected.argmax(1)].tolist()
        expected = np.asarray(classes)[expected.argmax(1)]
    order = np.argsort(-scores, kind="stable").tolist()
    rows, labels, cells = table.rows, table.target, table.frame
    return [
        Suspect(rows[i], parts[i], labels[i], expected[i], said[i], float(scores[i]), _shown(cells.iloc[i]))
        for i in order
    ]


def _untrained_features(model: BankedEstimator, table: Table) -> Any:
    """Features of the rows as encoders give them before any training, statistics from the bank's rows."""
    frame = table.frame[list(model.kinds_)]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        encoder = build_table_encoder(model.kinds_, encoders=model.encoders)
        encoder.fit(model.bank_.rows[list(model.kinds_)])
    store = None if model.cache_dir is None else EmbeddingCache(model.cache_dir)
    return encoder.features(frame, encoder.cache(encoder.prepare(frame, table.root), store=store))


def _named(model: BankedEstimator, label: float) -> Any:
    classes = getattr(model, "classes_", None)
    return label if classes is None else classes[int(label)]


def _shown(row: "pd.Series[Any]") -> str:
    cells = [f"{name}: {str(value)[:60]}" for name, value in row.items() if not isinstance(value, bytes | dict)]
    return "; ".join(cells)[:200]


def _skewness(counts: Array) -> float:
    centered = counts - counts.mean()
    deviation = float(np.sqrt((centered**2).mean()))
    return float((centered**3).mean() / deviation**3) if deviation else 0.0
