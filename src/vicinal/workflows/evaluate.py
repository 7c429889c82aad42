"""``vicinal evaluate``: audit a saved model on labelled rows: errors, coverage, hubs, suspicious labels, and copies."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pandas as pd
import torch
from scipy.stats import skew
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from vicinal.calibration import conformal_quantile
from vicinal.core import ColumnWarning, short
from vicinal.core.arrays import Array
from vicinal.core.checks import check_integer, unwarned
from vicinal.core.identity import IdentityWarning
from vicinal.core.progress import Log
from vicinal.data import find_duplicates
from vicinal.data.table import Table
from vicinal.encoders.kinds import element_kind
from vicinal.estimators.banked import BankedEstimator
from vicinal.estimators.calibrating import calibrating_units
from vicinal.estimators.fitted import SCORES
from vicinal.estimators.saving import OpenSettings
from vicinal.evaluation.audit import (
    coverage_curve,
    error_by_period,
    error_slices,
    find_drift,
    target_slices,
)
from vicinal.evaluation.baselines import Baseline
from vicinal.heads.kinds import has_members
from vicinal.metrics import predictive_multiplicity
from vicinal.report import Copies, Hub
from vicinal.report.audit import worth_checking
from vicinal.report.audit_records import AuditRecord, Part
from vicinal.workflows.known_rows import known_rows, labelled_rows
from vicinal.workflows.measured import Measured, MeasuredClasses, measured_of, shown_label
from vicinal.workflows.measuring import (
    baseline_notes,
    fairness_of,
    threshold_notes,
    tuned_on,
    unknown_classes,
    untrained_features,
)
from vicinal.workflows.opening import made_with
from vicinal.workflows.predict import load_predictor, of_target, separator_of
from vicinal.workflows.showing import row_text
from vicinal.workflows.suspects import listed_suspects, relabelled_notes

LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Coverages of the intervals that are checked."""

SETS = 0.9
"""Coverage of sets of classes."""

FIRST = 10
"""Nearest neighbors of a row that count for hubs."""

MEDIA = ("text", "image", "audio", "vector", "set")
"""Kinds of columns in which an equal cell makes two rows copies."""

SHORT = 40
"""A column of texts, vectors or sets is checked for copies if their median length, as written, is above this."""


@dataclass(frozen=True)
class BankUse:
    """Summary of the rows' weights on the bank, collected block by block so that no ``[n, N]`` matrix is kept.

    Attributes:
        expected: prediction of each row without itself: numbers ``[n]``, or probabilities ``[n, K]``.
        served: number of new rows that have each bank row among their nearest neighbors ``[N]``.
        weight: mean weight of each bank row over the new rows ``[N]``.
    """

    expected: Array
    served: Array
    weight: Array


def audit_table(
    folder: Path,
    source: Path | pd.DataFrame,
    *,
    target: str | None = None,
    root: Path | None = None,
    suspects: int = 50,
    time: str | None = None,
    weight: str | None = None,
    fair: str | None = None,
    log: Log = lambda line: None,
    **opening: Unpack[OpenSettings],
) -> AuditRecord:
    """Audit the model saved in ``folder`` with the labelled rows of ``source``.

    Errors, intervals and hubs are measured on new rows, which the model has neither in its bank nor held out; all rows
    are searched for suspicious labels and copies. A row is known to the model by its id if the fit had a column of ids;
    else by its content, in any order: see :func:`vicinal.workflows.known_rows.known_rows`.

    Args:
        folder: of the model, which must predict from neighbors.
        source: file of the table, or the table itself, with the column that the model predicts.
        target: for a model of several targets, the one to audit, on the rows that have it.
        root: folder that paths of images and sounds start from; None: that of the file.
        suspects: number of suspicious labels to list.
        time: column of dates or numbers, to show errors and coverage by period; None: that of the fit.
        weight: column of numbers: how much each row counts in scores, baselines and coverage; None: that of the fit, if
            the table has it.
        fair: column of an attribute whose groups are compared by their rates of predictions; None: that of the fit, if
            the table has it.
        log: gets one line of progress at a time.
        opening: how the model is opened, see :class:`vicinal.estimators.saving.OpenSettings`.

    Raises:
        ValueError: if the model cannot be loaded, the target is missing, or fewer than 10 rows are new to the model.
    """
    check_integer("suspects", suspects, 0)
    whole = load_predictor(folder, several=True, **opening)
    model = of_target(whole, target)
    model.notes_ = whole.notes_ if target is None else whole.notes_ | {"target": target}
    model.check_neighbor_head("evaluate")
    time = time or model.notes_.get("time")
    table = labelled_rows(model, source, log, root, time=time, weight=weight, fair=fair)
    table, parts = known_rows(model, table)
    new = np.array([part == "new" for part in parts])
    if new.sum() < 10:
        raise ValueError(
            f"data: expected at least 10 rows that the model has not seen, got {int(new.sum())} of {len(table)}; "
            "give it the table it was fitted on, whose test rows are new to it, or other labelled rows"
        )
    log(f"measuring on {int(new.sum())} rows that the model has not seen")
    features = untrained_features(model, table.frame, table.root)
    tuned, tuned_notes = _baselines(model, table, features, new)
    vectors = _vectors(model, table, new)
    seen = attend(model, table, vectors, parts)
    fresh = table.select(np.flatnonzero(new))
    # a model that was fitted without groups refuses them, whatever column the table has
    fresh = fresh if model.bank_.grouped else replace(fresh, groups=None)
    queries = fresh.groups if model.notes_.get("query") else None

    def measured(prediction: Array, thresholds: Array | None = None) -> Measured:
        return measured_of(model, prediction, fresh.target, fresh.weights, thresholds, queries=queries)

    ours = measured(seen.expected[new])
    copies = equal_content(table, {n: str(k) for n, k in model.kinds_.items()}, parts)
    counts = {part: parts.count(part) for part in ("bank", "held out", "new")}
    classes, errors = model.fitted_.codec.classes.tolist(), ours.losses
    gap, said = fairness_of(model, ours.predicted, fresh)
    doubted = listed_suspects(model, table, features, seen.expected, parts)
    worth = [one.chance for one in worth_checking(doubted) if one.chance is not None]
    return AuditRecord(
        name=table.name,
        model=folder.name,
        target_name=table.target_name,
        task=table.task,
        rows=counts,
        scores=ours.scores,
        baselines={one.name: measured(one.prediction, one.thresholds).scores for one in tuned},
        by_class=ours.by_class,
        slices=error_slices(
            errors, {n: fresh.frame[n].tolist() for n, kind in model.kinds_.items() if kind == "category"}
        ),
        target_slices=_along_target(model, errors, fresh),
        coverage=[] if classes else _coverage(model, fresh),
        class_sets=_class_sets(model, fresh, ours),
        hubs=_hubs(model, seen),
        hubness=float(skew(seen.served)) if seen.served.std() else 0.0,
        unused=float((seen.served == 0).mean()),
        neighbors=min(FIRST, len(model.bank_)),
        suspects=doubted[:suspects],
        worth_checking=len(worth),
        expected_wrong=sum(worth),
        copies=copies + near_embeddings(table, vectors, parts, copies),
        predicted=ours.predicted,
        truth=ours.labels,
        classes=list(map(str, classes)),
        served=seen.served,
        time=time or "",
        **_in_time(model, fresh, ours),
        fairness={} if gap is None else {**asdict(gap), "sentence": gap.sentence},
        multiplicity=_multiplicity(model, vectors[torch.from_numpy(new)], fresh, ours),
        notes=[
            *_notes(model, table),
            *relabelled_notes(model, table, parts),
            *tuned_notes,
            *threshold_notes(model),
            *(said if gap is None else []),
        ],
        versions=made_with(),
    )


def audit_targets(
    folder: Path, source: Path | pd.DataFrame, *, target: str | None = None, **settings: Any
) -> list[AuditRecord]:
    """The records of :func:`audit_table` for each target of the model, or for ``target`` only."""
    opening: dict[str, Any] = {name: settings.get(name) for name in OpenSettings.__annotations__}
    names = load_predictor(folder, several=True, **opening).targets_
    chosen = [target] if names is None or target is not None else list(names)
    return [audit_table(folder, source, target=name, **settings) for name in chosen]


_said_once = partial(unwarned, ColumnWarning, IdentityWarning)
"""While the same rows are predicted again: their unknown cells were named, and findings count their copies."""


def _along_target(model: BankedEstimator, errors: Array, fresh: Table) -> list[Any]:
    if model.fitted_.codec.kind == "numbers":
        return target_slices(errors, fresh.target, name=fresh.target_name)
    if model.multilabel_:  # each has its line in by_class
        return []
    return error_slices(errors, {fresh.target_name: fresh.target.tolist()}, least=1)


@_said_once()
def _coverage(model: BankedEstimator, fresh: Table) -> list[Mapping[str, Any]]:
    levels = [level for level in LEVELS if model.calibrates(level)]
    bounds = {level: model.predict_interval(fresh.frame, level, groups=fresh.groups) for level in levels}
    return list(coverage_curve(fresh.target, bounds, weights=fresh.weights)) if bounds else []


@_said_once()
def _in_time(model: BankedEstimator, fresh: Table, ours: Measured) -> dict[str, Any]:
    """Errors and coverage by period, and their changes in time; {} without times."""
    if fresh.times is None:
        return {}
    times, errors, inside, excess = fresh.times, ours.losses, None, None
    if model.multilabel_ or not model.calibrates(SETS):
        pass
    elif isinstance(ours, MeasuredClasses):
        inside = ours.inside(model.predict_set(fresh.frame, SETS, method="lac", groups=fresh.groups))
    else:
        low, high = model.predict_interval(fresh.frame, SETS, groups=fresh.groups).T
        excess = np.abs(fresh.target - (low + high) / 2) / np.maximum((high - low) / 2, np.finfo(np.float64).tiny)
        inside = (fresh.target >= low) & (fresh.target <= high)
    periods = []
    for period in error_by_period(errors, times, covered=inside):
        at = (times >= period.start) & (times <= period.end)
        wider = None if excess is None or at.sum() < _TIMES else conformal_quantile(excess[at], SETS)
        periods.append({**asdict(period), "start": _moment(period.start), "end": _moment(period.end), "width": wider})
    changes = {"error": find_drift(errors, times), "coverage": None if inside is None else find_drift(inside, times)}
    drift = {what: {**asdict(one), "since": _moment(one.since)} for what, one in changes.items() if one is not None}
    return {"periods": periods, "drift": drift}


_TIMES = 10
"""Fewest rows of a period for the width that its intervals would need."""


def _moment(time: Any) -> str | float:
    """A time as a number, or as text of a date."""
    if not isinstance(time, np.datetime64):
        return float(time)
    day = time == time.astype("datetime64[D]")
    return str(np.datetime_as_string(time, "D" if day else "m")).replace("T", " ")


def _notes(model: BankedEstimator, table: Table) -> list[str]:
    """Notes for the reader: rows that were left out, weights, unknown classes, and what could not be calibrated."""
    notes = [f"{len(table.dropped)} rows were left out: {table.dropped[0].reason}."] if table.dropped else []
    notes += ["Scores, baselines and coverage count rows by their weights."] if table.weighted else []
    unknown = unknown_classes(model, table.target)
    between = f" Between classes of a text it expects {short(separator_of(model))}." if model.multilabel_ else ""
    notes += [f"{said}.{between}" for said in unknown]
    numbers = model.fitted_.codec.kind == "numbers"
    what, levels = ("intervals", LEVELS) if numbers else ("sets of classes", (SETS,))
    uncovered = [f"{level:.0%}" for level in levels if not (model.multilabel_ or model.calibrates(level))]
    if uncovered:
        count, units = calibrating_units(model.fitted_)
        notes.append(
            f"{count} {units} calibrate: too few for {what} that cover {', '.join(uncovered)}, which "
            f"are not shown. Fit on more {units} for them."
        )
    return notes


@_said_once()
def _class_sets(model: BankedEstimator, fresh: Table, ours: Measured) -> dict[str, dict[str, float]]:
    if not isinstance(ours, MeasuredClasses) or not model.calibrates(SETS):
        return {}
    sets = {}
    for method in ("lac", "aps", "raps"):
        class_sets = model.predict_set(fresh.frame, SETS, method=method, groups=fresh.groups)
        sets[method] = {
            "covered": float(np.average(ours.inside(class_sets), weights=fresh.weights)),
            "size": float(np.average(class_sets.sum(1), weights=fresh.weights)),
        }
    return sets


@torch.no_grad()
def _multiplicity(model: BankedEstimator, vectors: Tensor, fresh: Table, ours: Measured) -> dict[str, float]:
    """How far the members of a classifier disagree on new rows of its classes; {} without several members."""
    head = model.network_.head
    if not isinstance(ours, MeasuredClasses) or not has_members(head):
        return {}
    known = np.flatnonzero(ours.places >= 0)
    bank, labels, members = model.bank_.vectors, model.fitted_.bank_labels(), len(head.heads)
    identity = model.bank_.identity(None, fresh.select(known).groups)
    blocks = model.fitted_.query_blocks(vectors[known], identity, max(1, SCORES // (members * len(bank))))
    each = [head.each(part, bank, labels, **part_identity) for part, part_identity in blocks]
    if not each:
        return {}
    chances = torch.cat(each).double().clamp(min=0).movedim(-1, 0)  # [M, n, K]
    truth = torch.from_numpy(ours.places[known])
    disagreement = predictive_multiplicity(chances / chances.sum(-1, keepdim=True), truth)
    return {
        "members": members,
        "ambiguity": disagreement.ambiguity,
        "discrepancy": disagreement.discrepancy,
        "viable_range": float(disagreement.viable_range.mean()),
        "capacity": float(disagreement.capacity.mean()),
    }


def _hubs(model: BankedEstimator, seen: BankUse) -> list[Hub]:
    bank, hubs = model.bank_, []
    for place in np.lexsort((-seen.weight, -seen.served))[:_HUBS]:
        label, shown = _label(model.fitted_.codec.named(bank.labels[place].tolist())), row_text(bank.rows.iloc[place])
        hubs.append(Hub(bank.ids[place], label, int(seen.served[place]), float(seen.weight[place]), shown))
    return hubs


_HUBS = 10
"""Bank rows that are listed."""


def _label(label: Any) -> Any:
    """A label for a record: a number or a class as it is, several classes as a text."""
    return shown_label(label) if isinstance(label, tuple) else label


def _baselines(model: BankedEstimator, table: Table, features: Any, new: Array) -> tuple[list[Baseline], list[str]]:
    """Baselines for the new rows, which learn from the rows that the model knows, and notes on them."""
    classes = model.fitted_.codec.classes.tolist()
    # a row of the model may have another class by now, which the model may not know
    named = np.array([table.several or not classes or label in classes for label in table.target])
    known = np.flatnonzero(~new & named)
    if len(known) < len(model.bank_) / 2 or len(known) < 10:
        return [], [f"Baselines are left out: they learn from the model's rows; {len(known)} are in this table."]
    rows = replace(table.select(known), times=None)
    tuned = tuned_on(rows, features[known], features[np.flatnonzero(new)], model.kinds_, classes)
    return tuned, baseline_notes(tuned, len(known))


def _vectors(model: BankedEstimator, table: Table, new: Array) -> Tensor:
    """Embeddings ``[n, d]`` of all rows: those that the model knows by the fold that left them out."""
    vectors = torch.from_numpy(model.embed(table.frame))
    if model.network_.cross_fitted and not new.all():
        at = np.flatnonzero(~new)
        known = table.select(at)
        with _said_once():
            rows = model.query_rows(known.frame, known.ids, known.groups if model.bank_.grouped else None)
        vectors[torch.from_numpy(at)] = rows.vectors
    return vectors


def attend(model: BankedEstimator, table: Table, vectors: Tensor, parts: list[Part]) -> BankUse:
    """Let every row attend to the bank, except to itself."""
    new = np.array([part == "new" for part in parts])
    ids = table.ids.astype(object)
    ids[new] = None  # a new row may bear the number of another one in the bank
    bank, size = model.bank_, len(model.bank_)
    identity = bank.identity(ids, table.groups if bank.grouped else None)
    expected = []
    served, weight, start = np.zeros(size, dtype=np.int64), np.zeros(size), 0
    for part, part_identity in model.fitted_.query_blocks(vectors, identity):
        weights = model.fitted_.bank_weights(part, part_identity)
        fresh = weights[torch.from_numpy(new[start : start + len(part)])]
        served += np.bincount(fresh.topk(min(FIRST, size), dim=1).indices.flatten().numpy(), minlength=size)
        weight += fresh.sum(0).numpy()
        expected.append(model.fitted_.predict_embedded(part, part_identity).double().numpy())
        start += len(part)
    said = model.fitted_.in_label_units(torch.from_numpy(np.concatenate(expected))).numpy()
    return BankUse(said, served, weight / max(int(new.sum()), 1))


def equal_content(table: Table, kinds: dict[str, str], parts: Sequence[Part]) -> list[Copies]:
    """Groups of rows that are equal in all columns, or in one of media or of long texts, vectors or sets."""
    copies, listed = [], set()
    singles = [name for name, kind in kinds.items() if kind in MEDIA and _says_much(table, name, kind)]
    for what, columns in [("all columns", list(kinds)), *((name, [name]) for name in singles)]:
        for group in find_duplicates(table, kinds, columns=columns).groups:
            if tuple(group) in listed:
                continue
            listed.add(tuple(group))
            copies.append(_copies(table, what, group, parts))
    return copies


def _says_much(table: Table, name: str, kind: str) -> bool:
    """Whether equal cells of this column make rows copies: for a medium they do, for "yes" and [50, 70] they do not."""
    cells = table.form.written(table.frame[[name]])[name].dropna()
    if kind == "set" and (elements := [each for cell in cells for each in cell]):
        kind = element_kind(elements) or kind
    return kind in ("image", "audio") or bool(cells.astype(str).str.len().median() > SHORT)


_NEAR, _PAIRS = 0.01, 20
"""Share of the median distance from new rows to their nearest seen row up to which two are near copies; most pairs."""


def near_embeddings(table: Table, vectors: Tensor, parts: Sequence[Part], known: Sequence[Copies]) -> list[Copies]:
    """New rows of ``vectors [n, d]`` unusually near one that the model has seen, which are not ``known`` copies."""
    new = np.array([part == "new" for part in parts])
    fresh, seen = np.flatnonzero(new), np.flatnonzero(~new)
    if not len(fresh) or not len(seen):
        return []
    near = NearestNeighbors(n_neighbors=1).fit(vectors[seen].numpy()).kneighbors(vectors[fresh].numpy())
    gaps, others = near[0][:, 0], seen[near[1][:, 0]]
    listed = {frozenset((a, b)) for group in known for a in group.rows for b in group.rows}
    copies: list[Copies] = []
    for query in np.argsort(gaps, kind="stable"):
        if gaps[query] > _NEAR * np.median(gaps) or len(copies) == _PAIRS:
            break
        pair = np.array([fresh[query], others[query]])
        if frozenset(table.ids[pair].tolist()) not in listed:
            copies.append(_copies(table, "the embedding", pair, parts, float(gaps[query])))
    return copies


def _copies(table: Table, what: str, rows: np.ndarray, parts: Sequence[Part], distance: float = 0.0) -> Copies:
    return Copies(
        what,
        table.ids[rows].tolist(),
        [parts[row] for row in rows],
        list(map(_label, table.target[rows].tolist())),
        distance,
    )
