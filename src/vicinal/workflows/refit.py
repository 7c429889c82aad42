"""``vicinal refit``: fit a model's settings again on all current rows, and replace the model unless that is worse."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pandas as pd
from sklearn.base import clone

from vicinal.core import short
from vicinal.core.arrays import Array
from vicinal.core.checks import ECHO, short_text
from vicinal.core.folders import read_whole
from vicinal.core.progress import Log
from vicinal.data import Split, duplicates_across, find_duplicates
from vicinal.data.sources import table_name
from vicinal.data.splits import no_test
from vicinal.data.table import Table, table_kinds, without_weightless
from vicinal.estimators.banked import CELLS, BankedEstimator, load_model
from vicinal.estimators.inputs import Draw, hold_out
from vicinal.estimators.journal import Changes, read_changes
from vicinal.estimators.model_folder import ModelFolder
from vicinal.estimators.saving import OpenSettings, write_model
from vicinal.evaluation.scores import relative_weights
from vicinal.workflows.fit import fit_record, run_fingerprint, write_files
from vicinal.workflows.known_rows import known_rows, labelled_table
from vicinal.workflows.measured import Measurements, measured_of
from vicinal.workflows.measuring import (
    by_target,
    measure,
    named_labels,
    of_all_members,
    predict_test,
    share_of_all,
)
from vicinal.workflows.opening import OpenTable, TableJob, fit_split, further_targets, rows_of_the_table
from vicinal.workflows.predict import load_predictor, read_rows
from vicinal.workflows.resuming import CACHE, working_folder

FEWEST = 10
"""Fewest rows to compare two models on."""

_ROUNDING = 1e-9
"""Share of an error by which another one is not worse."""


@dataclass(frozen=True)
class Refit:
    """The result of a refit.

    Attributes:
        replaced: whether the new model has replaced the old one.
        scores: of the "new" and the "old" model on the same rows.
        error: that they are compared by, "mse" or "log_loss".
        change: mean error of the new model minus that of the old one.
        doubt: standard error of ``change``, over groups if there are any.
        basis: sentence on the rows of the comparison.
        rows: number of rows "compared", and, of the new model, "trained", "held out" and (if it was written) "bank".
        notes: sentences on corrections, forgotten rows, and rows that are missing now.
    """

    replaced: bool
    scores: dict[str, dict[str, float]]
    error: str
    change: float
    doubt: float
    basis: str
    rows: dict[str, int]
    notes: list[str]


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows of a refit: their table, the part of each in the old model, and which that has never seen.

    ``targets`` holds the numbers of several targets by id; else None.
    """

    table: Table
    parts: Array
    unseen: Array
    notes: list[str]
    targets: pd.DataFrame | None = None

    def opened(self, old: BankedEstimator) -> OpenTable:
        """The table with the kinds of its columns."""
        columns = table_kinds(self.table, dict(old.kinds_))
        if self.targets is None:
            return OpenTable(self.table, columns)
        by_row = self.targets.loc[self.table.ids]
        first, *others = (by_row[name].to_numpy() for name in self.targets.columns)
        also = dict(zip(self.targets.columns[1:], others, strict=True))
        return OpenTable(replace(self.table, target=first), columns, also=also)


@rows_of_the_table()
def refit_model(
    folder: Path,
    source: Path | pd.DataFrame | None = None,
    *,
    even_if_worse: bool = False,
    root: Path | None = None,
    log: Log = lambda line: None,
    **opening: Unpack[OpenSettings],
) -> Refit:
    """Fit the settings of the model in ``folder`` again, and replace the model unless the new one is worse.

    Both models are compared on rows that neither was trained on. With at least ten rows that are new to the old model
    (added since its fit, or in ``source`` only), these are new rows, at most a fifth of all. Else, where members are
    folds, these are all common rows, each predicted by members that never saw it; otherwise half of the old model's
    held-out rows, which favors it, as they stopped its training. The new model replaces the old one if its mean error
    is larger by at most one standard error of the difference. Its bank then gets the compared rows, which calibrate.

    Corrected labels stay, with their history: labels of ``source`` from before a correction are ignored. Forgotten rows
    stay out. Rows that others add, relabel or forget meanwhile are taken over.

    Args:
        folder: of the model.
        source: file of a table, or the table itself; None: the rows of the bank, if it keeps their cells.
        even_if_worse: replace the old model in any case.
        root: folder that paths of images and sounds start from; None: that of the file.
        log: gets one line of progress at a time.
        opening: how the model is opened, see :class:`vicinal.estimators.saving.OpenSettings`.

    Raises:
        ValueError: if the rows cannot be used, or there are too few to compare on; the folder is unchanged.
    """
    started = time.perf_counter()
    old = load_predictor(folder, several=True, **opening)
    _check(old, source)
    known = _labels(old)
    with working_folder(folder, "refit") as work:
        rows = _of_bank(old, folder) if source is None else _of_table(old, folder, source, root, log)
        opened, (split, basis), job = rows.opened(old), _trial(old, rows), _job(old, rows)
        if work.take_up(f"{run_fingerprint(job, opened)} {[split.validation.tolist(), split.test.tolist()]}"):
            log("taking up the run that was interrupted")
        places = {"checkpoint_dir": work.folder, "cache_dir": work.folder / CACHE if work.folder else None}
        new = clone(old).set_params(plan=old.plan_, columns=opened.kinds, form=opened.table.form, **places)
        log(f"fitting on {len(split.train)} rows, {len(split.validation)} for validation and calibration")
        fit_split(new, opened, split)
        log("comparing with the old model")
        outcome, measured = _compared(job, old, new, opened, rows, split, basis)
        if not (even_if_worse or outcome.change <= outcome.doubt):
            return outcome
        duplicates = duplicates_across(split, find_duplicates(rows.table, opened.kinds)).sentence
        records = []
        for (one, part), each in zip(by_target(new, opened), measured, strict=True):
            each = replace(each, notes=[outcome.basis, *outcome.notes, *each.notes])
            records.append(fit_record(job, part, split, one, each, duplicates, time.perf_counter() - started))
        _hold_out_more(new, opened, split.test)
        with _following(folder, old, known, new, opening) as stage:
            notes = old.notes_ | {"scores": dict(records[0].scores), "name": records[0].name}
            write_files(stage, new, records, split, notes)
    return replace(outcome, replaced=True, rows=outcome.rows | {"bank": len(new.bank_)})


def forget_deeply(folder: Path, ids: Array, opening: OpenSettings) -> None:
    """Put a model in the place of the one in ``folder`` that has never seen these rows: ``forget(ids, deep=True)``.

    The folder stays as it was until then; rows that others add, relabel or forget meanwhile are taken over.
    """
    old, new = load_model(folder, **opening), load_model(folder, **opening)
    _check(old, folder)
    known = _labels(old.forget(ids))
    new.forget(ids, deep=True)
    with _following(folder, old, known, new, opening, ids.tolist()) as stage:
        write_model(new, stage, {name: value for name, value in new.notes_.items() if name != "scores"})


def _job(old: BankedEstimator, rows: "_Rows") -> TableJob:
    """The job of fitting ``old`` on other rows, for reports and fingerprints."""
    notes, seed = old.notes_, old.random_state or 0
    return TableJob(
        rows.table.frame,
        rows.table.target_name,
        also=list(old.targets_ or ())[1:],
        id=notes.get("id"),
        time=notes.get("time"),
        weight=notes.get("weight"),
        group=None if notes.get("query") else notes.get("group"),
        query=notes.get("query"),
        sets=notes.get("sets") or {},
        seed=seed,
        parameters=old.get_params(deep=False) | {"plan": None},
        baselines=False,
    )


def _check(old: BankedEstimator, source: Any) -> None:
    """Raise ValueError for models that cannot be fitted again, or not from their bank."""
    if old.notes_.get("distilled_from"):
        raise ValueError(
            f"model: expected one that was fitted on labels, got one distilled from "
            f"{short_text(old.notes_['distilled_from'])}; say vicinal distill again"
        )
    if old.index is not None and old.index.partition(":")[0] == "milvus":
        raise ValueError("model: expected one whose index lies in its folder, got one in a database; fit it anew")
    why = [
        f", as the bank has no whole cells of {short(name)} (kind {kind})"
        for name, kind in old.kinds_.items()
        if kind not in CELLS
    ]
    if old.fair and old.fair not in old.kinds_:
        why = [f" with the column {short(old.fair)}, between whose groups the model is fair, as the bank has it not"]
    if column := old.notes_.get("time"):
        why = [f" with the column {short(column)}, as the bank has no times"]
    if source is None and why:
        raise ValueError(f"data: expected a table{why[0]}, got none; say vicinal refit MODEL TABLE")


def _labels(model: BankedEstimator) -> "pd.Series[Any]":
    """Labels of the bank as users give them, by id; tuples of several targets or classes."""
    values = named_labels(model, model.bank_.labels)
    series = pd.Series(list(map(tuple, values.tolist())), dtype=object) if values.ndim == 2 else pd.Series(values)
    return series.set_axis(pd.Index(model.bank_.ids))


# The rows.


def _of_bank(old: BankedEstimator, folder: Path) -> _Rows:
    """All rows of the bank, with their current labels."""
    bank, notes = old.bank_, old.notes_
    frame = bank.rows
    frame.index = pd.Index(bank.ids if bank.ids.dtype == np.int64 else np.arange(len(bank)))
    several = None if old.targets_ is None else list(old.targets_)
    numbers = None if several is None else pd.DataFrame(bank.labels.numpy(), pd.Index(bank.ids), several)
    first = _labels(old).to_numpy() if numbers is None else numbers.iloc[:, 0].to_numpy()
    target = old.form_.columns.get(str(notes.get("target")))
    if target is not None and target.kind == "duration":  # its cells are read anew, and numbers are of no unit there
        first = pd.to_timedelta(first, unit="s").to_numpy()
    columns = {"target": first, "id": bank.ids, "group": bank.groups}
    for role, values in columns.items():
        if notes.get(role) is not None and values is not None:
            frame[notes[role]] = values
    table = labelled_table(old, frame, str(notes.get("name") or "the bank"), lambda line: None)
    table = _with_weights(old, table)
    parts = np.where(old.calibration_.has(table.ids), "held out", "bank").astype(object)
    return _Rows(table, parts, _unseen(table, parts, folder), [], numbers)


def _of_table(old: BankedEstimator, folder: Path, source: Any, root: Path | None, log: Log) -> _Rows:
    """The rows of a table, without forgotten ones, and with the labels of corrections."""
    name = table_name(source) if isinstance(source, Path) else "table"
    roles = {role: old.notes_.get(role) for role in ("time", "weight")}
    frame = without_weightless(read_rows(old, source, root, log), roles["weight"], log)
    names = list(old.targets_ or (str(old.notes_.get("target")),))
    frame, also = further_targets(frame, TableJob(frame, names[0], also=names[1:]))
    table = labelled_table(old, frame, name, log, **roles)
    places = table.ids
    table, of_rows = known_rows(old, table, distinct=True)
    table, parts, notes = _with_weights(old, table), np.array(of_rows, dtype=object), []
    numbers = pd.DataFrame({names[0]: table.target, **also}, pd.Index(table.ids)) if also else None
    at_home = (parts != "new") & (table.ids == places)  # where places say which rows were forgotten
    of_this = old.notes_.get("id") is not None or at_home.sum() >= len(old.bank_) / 2
    forgotten = [i for change in old.changes_.history if change.what == "forget" for i in change.ids]
    gone = np.isin(table.ids.astype(str), np.array(forgotten, dtype=str)) & ~old.bank_.has(table.ids)
    if of_this and gone.any():
        notes.append(f"{int(gone.sum())} rows of the table were forgotten before and stay out.")
        table, parts = table.select(np.flatnonzero(~gone)), parts[~gone]
    table, numbers, corrected = _with_corrections(old, table, numbers, parts)
    if corrected:
        notes.append(f"{corrected} labels of the table were corrected before; the corrections stay.")
    left = len(old.bank_) - int((parts != "new").sum())
    if left:
        notes.append(f"{left} rows of the old bank are not in the table, nor in the new model.")
    return _Rows(table, parts, _unseen(table, parts, folder), notes, numbers)


def _with_weights(old: BankedEstimator, table: Table) -> Table:
    """The table with its rows' weights in the bank, unless it has its own; new rows count as an average row."""
    known = old.given_weights()
    if known is None or table.weighted:
        return table
    at = old.bank_.store.positions(table.ids).numpy()
    return replace(table, weights=np.where(at >= 0, known[at], old.weight_unit_))


def _with_corrections(
    old: BankedEstimator, table: Table, numbers: pd.DataFrame | None, parts: Array
) -> tuple[Table, pd.DataFrame | None, int]:
    """The table and the numbers with corrections in place of the labels before them, and the number of these.

    A row of the table is behind a correction if it holds a label that the bank once had and has no more. One that the
    bank never had is newer than the correction, and stays.
    """
    before: dict[str, list[Any]] = {}
    sets = (lambda label: tuple(sorted(label))) if table.several else (lambda label: label)
    for change in old.changes_.history:
        for one, label in zip(change.ids, change.before or [], strict=False):
            before.setdefault(str(one), []).append(sets(label))
    target, count = table.target.copy(), 0
    for place in np.flatnonzero((parts != "new") & np.isin(table.ids.astype(str), list(before))):
        name = table.ids[place]
        now, label = sets(old.labels_of([name])[0]), target[place] if numbers is None else numbers.loc[name].tolist()
        if label != now and label in before[str(name)]:
            count += 1
            if numbers is None:
                target[place] = now
            else:
                numbers.loc[name] = now
    return replace(table, target=target), numbers, count


def _unseen(table: Table, parts: Array, folder: Path) -> Array:
    """Whether each row, and all of its group, is new to all training: nowhere in the folder, or added since its fit."""
    changes = read_whole(folder, read_changes)[0]
    added = [name for change in changes if change.what == "add" for name in change.ids]
    unseen: Array = (parts == "new") | np.isin(table.ids.astype(str), np.array(added, dtype=str))
    return unseen & ~np.isin(table.clusters, table.clusters[~unseen])


# The comparison.


def _trial(old: BankedEstimator, rows: _Rows) -> tuple[Split, str]:
    """The rows to train the new model on and those to compare both on, and a sentence on these."""
    table, seed = rows.table, old.random_state or 0
    new = np.flatnonzero(rows.unseen)
    if len(new) >= FEWEST:
        compared = _some(table, new, round(TableJob.test * len(table)), seed)
        rest = np.setdiff1d(np.arange(len(table)), compared)
        held_out = _validation(old, table.select(rest), seed)
        validation = rest[held_out]
        basis = f"On {len(compared)} rows that neither model was trained on, or stopped its training by."
        return Split(np.setdiff1d(rest, validation), validation, compared, seed), basis
    if old.folds_ is not None:
        return no_test(len(table), seed), "Out of fold: each row by members of either model that never saw it."
    calibrating = np.flatnonzero(rows.parts == "held out")
    compared = (
        _some(table, calibrating, len(calibrating) // 2, seed) if len(calibrating) >= 2 * FEWEST else calibrating[:0]
    )
    if len(compared) < FEWEST:
        raise ValueError(
            f"data: expected at least {FEWEST} rows that are new to the model, or {2 * FEWEST} that it held out, to "
            f"compare both on, got {len(new)} and {len(calibrating)}; give a table with more rows, or its test rows"
        )
    basis = (
        f"On {len(compared)} of the {len(calibrating)} rows that the old model held out: neither was trained on them, "
        "and the old one stopped its training by them, which favors it."
    )
    validation = np.setdiff1d(calibrating, compared)
    return Split(np.setdiff1d(np.arange(len(table)), calibrating), validation, compared, seed), basis


def _some(table: Table, positions: Array, most: int, seed: int) -> Array:
    """Whole groups of ``positions``: at most ``most`` rows, but at least one group; the latest, if there are times."""
    names = table.clusters[positions]
    if table.times is None:
        order = np.random.RandomState(seed).permutation(np.unique(names))
    else:
        by_time = np.argsort(table.times[positions], kind="stable")[::-1]
        order = pd.unique(names[by_time])
    counts = pd.Series(names).value_counts()[order].cumsum().to_numpy()
    return np.asarray(positions[np.isin(names, order[: max(1, int((counts <= most).sum()))])])


def _validation(old: BankedEstimator, table: Table, seed: int) -> Array:
    """Positions that the new model holds out."""
    if old.validation_fraction == 0:
        return np.zeros(0, dtype=np.int64)
    if table.times is not None:
        return _some(table, np.arange(len(table)), round(old.validation_fraction * len(table)), seed)
    codes = np.unique(table.target, return_inverse=True)[1] if table.task == "classification" else None
    return hold_out(Draw(len(table), seed, table.groups, codes), old.validation_fraction).validation


def _compared(
    job: TableJob,
    old: BankedEstimator,
    new: BankedEstimator,
    opened: OpenTable,
    rows: _Rows,
    split: Split,
    basis: str,
) -> tuple[Refit, list[Measurements]]:
    """The comparison of both models on the same rows, and the scores for each target."""
    table, parts, notes = opened.table, by_target(new, opened), list(rows.notes)
    measured = [measure(job, one, part, split) for one, part in parts]
    ours = np.stack([one.model.predicted for one in measured], axis=1) if opened.also else measured[0].model.predicted
    if len(split.test):
        at = split.test
        known = table.ids[at][rows.parts[at] != "new"]
        # some of these rows stand in the old bank, held out of the fit or added since: none is to predict itself
        both = ours, predict_test(old.forget(known) if len(known) else old, opened, split)
    else:
        ids, of_old = old.out_of_fold_predictions()
        places = pd.Index(ids.astype(str)).get_indexer(table.ids.astype(str))
        at = np.flatnonzero((places >= 0) & (rows.parts != "new"))
        both = ours[at], of_old[places[at]]
    groups, weights = (None if one is None else one[at] for one in (table.groups, table.weights))
    truth, predicted = table.target[at], both
    if opened.also:
        low, high = (ends.numpy() for ends in old.label_range_)
        truth = (np.stack([values[at] for values in opened.targets.values()], axis=1) - low) / (high - low)
        predicted = (both[0] - low) / (high - low), (both[1] - low) / (high - low)
        notes.append(
            f"Errors are means over {', '.join(opened.targets)}, each on the range that it had in the rows of the old "
            "fit."
        )
    pairs = list(zip(("new", "old"), (new, old), predicted, strict=True))
    both_measured = {name: measured_of(model, guess, truth, weights) for name, model, guess in pairs}
    scores = {name: one.scores for name, one in both_measured.items()}
    olds, former = [one for one, _ in by_target(old, opened)], [scores["old"]]
    if opened.also:
        former = [
            measured_of(one, both[1][:, k], part.table.target[at], weights).scores
            for k, (one, part) in enumerate(parts)
        ]
    if not len(split.test):
        former = [of_all_members(one, share_of_all(before)) for before, one in zip(olds, former, strict=True)]
    error = "mse" if table.task == "regression" else "log_loss"
    difference = both_measured["new"].log_losses - both_measured["old"].log_losses
    change, doubt = _difference(difference, groups, weights)
    doubt = max(doubt, _ROUNDING * float(np.abs(both_measured["old"].log_losses).mean()))
    sizes = {"compared": len(at), "trained": len(split.train), "held out": len(split.validation)}
    measured = [
        replace(one, scores={"model": one.scores["model"], "the model before": before} | one.scores)
        for one, before in zip(measured, former, strict=True)
    ]
    replaced = False
    return Refit(replaced, scores, error, change, doubt, basis, sizes, notes), measured


def _difference(differences: Array, groups: Array | None = None, weights: Array | None = None) -> tuple[float, float]:
    r"""Mean of paired differences $d$ ``[n]`` and its standard error, with groups $g$ and weights $w$ of mean 1.

    $\sqrt{\frac{G}{G-1} \sum_g (\sum_{i \in g} w_i (d_i - \bar d))^2} / n$; without groups, each row is one.
    """
    count = len(differences)
    mass = relative_weights(count, weights)
    mean, names = float((mass * differences).mean()), np.arange(count) if groups is None else groups
    sums = pd.Series(mass * (differences - mean)).groupby(names).sum().to_numpy()
    return mean, float(np.sqrt(len(sums) / max(1, len(sums) - 1) * (sums**2).sum()) / count)


# The new model takes the place of the old one.


def _hold_out_more(new: BankedEstimator, opened: OpenTable, rows: Array) -> None:
    """Add the compared rows to the bank; they calibrate together with the held-out rows."""
    if not len(rows):
        return
    table = opened.table.select(rows)
    targets = np.stack([values[rows] for values in opened.targets.values()], axis=1)
    frame, vectors = new.embedded_rows(table.frame[list(new.kinds_)])
    known: dict[str, Any] = {"ids": table.ids, "groups": table.groups, "sample_weight": table.weights}
    new.add_embedded(frame, vectors, targets if opened.also else table.target, **known)
    if new.folds_ is None:
        added = new.bank_.take(new.bank_.store.positions(table.ids).numpy(), vectors, cells=False)
        new.calibration_.add(added.ids, vectors, added.labels, frame, added.groups, added.weights)


@contextmanager
def _following(
    folder: Path,
    old: BankedEstimator,
    known: "pd.Series[Any]",
    new: BankedEstimator,
    opening: OpenSettings,
    without: Sequence[Any] = (),
) -> Iterator[Path]:
    """A locked folder to write ``new`` into, after taking over changes since the labels were ``known``."""
    opened = ModelFolder(folder, **opening)
    with opened.replaced(without) as stage:
        now, labels = opened.model, _labels(opened.model)
        if now.history_.validation_error != old.history_.validation_error or now.kinds_ != old.kinds_:
            raise ValueError(
                f"model: expected {short_text(folder, ECHO)} to stay while it is fitted anew, got another model there"
            )
        gone = known.index.difference(labels.index).to_numpy()
        if new.bank_.has(gone).any():
            new.forget(gone[new.bank_.has(gone)])
        both = known.index.intersection(labels.index)
        changed = both[(known.loc[both].to_numpy() != labels.loc[both].to_numpy()) & new.bank_.has(both.to_numpy())]
        if len(changed):
            new.relabel(changed.to_numpy(), labels.loc[changed].tolist())
        added = labels.index.difference(known.index).to_numpy()
        if len(added):
            _take_over(new, now, added, labels.loc[added].tolist())
        lost = labels.index[~new.bank_.has(labels.index.to_numpy())].tolist()
        new.changes_ = Changes(now.changes_.sequence, 0, now.changes_.without(lost).history)
        yield stage


def _take_over(new: BankedEstimator, now: BankedEstimator, ids: Array, labels: list[Any]) -> None:
    """Add rows that arrived while the new model was fitted."""
    if set(new.kinds_.values()) - set(CELLS):
        raise ValueError(
            f"model: expected one that stays while it is fitted anew, got {len(ids)} rows that were added meanwhile; "
            "say the same command again"
        )
    at = now.bank_.store.positions(ids)
    rows, known = now.bank_.store.rows_at(at)[list(new.kinds_)], now.given_weights()
    who: dict[str, Any] = now.bank_.who(at)
    new.add(rows, labels, sample_weight=None if known is None else known[at.numpy()], **who)
