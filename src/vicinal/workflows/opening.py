"""Reads, checks and splits a table, and makes the estimator of its task: the first steps of several commands."""

import contextlib
import platform
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch

from vicinal.core import CellWarning, ColumnWarning, check_choice, counted, short
from vicinal.core.arrays import Array
from vicinal.core.checks import short_text, unwarned
from vicinal.core.identity import IdentityWarning
from vicinal.core.progress import Log, report
from vicinal.data import (
    CHUNK_WORDS,
    LeakWarning,
    Split,
    Table,
    TableForm,
    leaking_columns,
    long_texts,
    make_splits,
    prepare_table,
    read_cells,
    split_texts,
)
from vicinal.data.cells import missing_cells
from vicinal.data.json_tables import flat_table
from vicinal.data.leaks import ColumnLeak
from vicinal.data.sets import join_columns
from vicinal.data.sources import root_of, table_name
from vicinal.data.splits import split_by_time, time_tells
from vicinal.data.table import FEWEST, Dropped, check_column, check_groups, table_kinds, without_weightless
from vicinal.data.target import read_target
from vicinal.encoders import Kind, infer_kinds
from vicinal.encoders.kinds import LIKE_ID, ColumnKind
from vicinal.estimators.banked import BankedEstimator
from vicinal.estimators.base import LONE_GROUPS
from vicinal.estimators.inputs import as_table, left_out
from vicinal.estimators.neighbors import NeighborClassifier, NeighborRegressor
from vicinal.estimators.network import check_settings
from vicinal.estimators.presets import settings_of
from vicinal.estimators.queries import ranked_rows
from vicinal.estimators.target_transform import check_positive
from vicinal.version import __version__


@contextlib.contextmanager
def rows_of_the_table() -> Iterator[None]:
    """While a model is measured on rows of the table that it was fitted on: their columns have been described."""
    with unwarned(ColumnWarning):
        warnings.simplefilter("default", CellWarning)  # these are said where the table is read, once
        yield


def made_with() -> dict[str, str]:
    """Versions of what a report was made with."""
    return {"vicinal": __version__, "torch": torch.__version__, "python": platform.python_version()}


@dataclass(frozen=True)
class ReadJob:
    """Which table to learn from, and how it is read: what all jobs have.

    Attributes:
        source: file of the table, see :func:`vicinal.data.read_table`, or the table itself.
        kinds: kind of a column, where it should not be detected.
        id: column of ids, or None.
        group: column of groups, or None.
        root: folder that paths of images and sounds start from; None: that of the file.
        use: feature columns; None: all that can be used.
        drop: columns to leave out.
        sets: by the name of a column of sets, the columns of one kind that are its elements.
        name: of the data; "" for the name of the file.
        seed: of the split and of training.
        test: share of rows to test on.
        parameters: of the estimator.
        decimal: the mark before decimals in texts, "." or ","; None: detected, column by column.
        day_first: whether dates such as 03/04/2021 have the day first; None: detected.
        missing: numbers that stand for missing ones, by column; in columns that are not named they are detected.
    """

    source: Path | pd.DataFrame
    _: KW_ONLY
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    id: str | None = None
    group: str | None = None
    root: Path | None = None
    use: Sequence[str] | None = None
    drop: Sequence[str] = ()
    sets: Mapping[str, Sequence[str]] = field(default_factory=dict)
    name: str = ""
    seed: int = 0
    test: float = 0.2
    parameters: Mapping[str, Any] = field(default_factory=dict)
    decimal: str | None = None
    day_first: bool | None = None
    missing: Mapping[str, Sequence[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class TableJob(ReadJob):
    """What to predict from which table; ``test`` 0: all rows are trained on, members are folds, scores are out of fold.

    Attributes:
        target: the column to predict.
        also: further columns of numbers to predict with the same model.
        query: column of queries, or None: rows are ranked within each by the target, and queries are the groups.
        time: column of dates or numbers, or None; the latest rows are the test rows, those before them are held out.
        weight: column of numbers: how much each row counts, or None; rows of weight 0 are left out.
        task: "regression", "classification", or None to detect it from the target.
        separator: between several classes in cells of the target; None: a text is one class. Cells that are lists are
            several classes in either case.
        long: "cut": a pretrained encoder reads the beginning of long texts; "chunks": a text is the set of its chunks.
        validation: share of the remaining rows held out for early stopping and intervals; 0: members are folds.
        baselines: also measure :func:`vicinal.evaluation.tuned_baselines`.
    """

    target: str
    also: Sequence[str] = ()
    query: str | None = None
    time: str | None = None
    weight: str | None = None
    task: str | None = None
    separator: str | None = None
    long: str = "cut"
    validation: float = 0.15
    baselines: bool = True


@dataclass(frozen=True)
class OpenTable:
    """A table that was read and checked.

    Attributes:
        table: the rows that are used.
        columns: the kind of each column, and the reason.
        leaks: columns that give the target away or look like a key of groups.
        notes: how the file was read, if not as its name says, rows of weight 0, and the treatment of long texts.
        chunked: text columns that were turned into sets of their chunks.
        also: further targets ``[n]`` by name.
    """

    table: Table
    columns: Mapping[str, ColumnKind]
    leaks: Sequence[ColumnLeak] = ()
    notes: Sequence[str] = ()
    chunked: Sequence[str] = ()
    also: Mapping[str, Array] = field(default_factory=dict)

    def of_target(self, name: str) -> Self:
        """The same table with one of its targets."""
        return replace(self, table=replace(self.table, target=self.targets[name], target_name=name), also={})

    @property
    def targets(self) -> dict[str, Array]:
        """All targets by name, the main one first."""
        return {self.table.target_name: self.table.target, **self.also}

    @property
    def kinds(self) -> dict[str, Kind]:
        """Kinds of the columns that are used."""
        return {name: column.kind for name, column in self.columns.items() if column.kind is not None}


def open_table(job: TableJob, log: Log = lambda line: None) -> OpenTable:
    """Read and check the table of ``job``; ``log`` gets notes on it.

    Raises:
        ValueError: if the table cannot be used; the message says why in one sentence.
    """
    notes: list[str] = []
    _check_query(job)
    check_choice("long", job.long, ("cut", "chunks"))
    settings = settings_of(NeighborRegressor(**job.parameters))
    check_settings(settings | {"fair_rate": "positive"})  # what else there is depends on the task
    targets = [job.target, *job.also]
    frame, form, root, name = read_source(job, [job.id, job.group, job.query], log, notes.append, targets)
    log(f"{counted(len(frame), 'row')} and {counted(frame.shape[1], 'column')} in {name}")
    if len(frame) < FEWEST:
        raise ValueError(f"data: expected at least {FEWEST} rows with a target, got {len(frame)}")
    if job.query is not None:
        check_column("query", job.query, list(frame.columns))
        check_groups(frame[job.query].dropna().astype(str).to_numpy(), "query")
    frame = without_weightless(form.read(frame), job.weight, lambda left: notes.append(f"{left}."))
    frame, also = further_targets(join_columns(frame, job.sets, of_one_kind=True), job)
    fair, use = job.parameters.get("fair"), job.use
    if use is None and fair in job.kinds:  # a column that is named for a kind is read
        use = [
            name
            for name in frame.columns
            if name not in (job.target, job.id, job.group, job.query, job.time, job.weight)
        ]
    table = prepare_table(
        frame,
        job.target,
        id=job.id,
        group=job.query or job.group,
        time=job.time,
        weight=job.weight,
        task="regression" if also or job.query else job.task,
        fair=fair,
        use=use,
        drop=[*job.drop, *job.also],
        name=name,
        root=root,
        separator=job.separator,
        form=form,
    )
    table = table if job.query is None else _of_ranked_queries(table)
    if job.time is not None and use is None and job.time not in job.drop and table.task == "regression" and not also:
        table = _with_time(table, job, notes)
    if job.separator is not None and all(len(names) == 1 for names in table.target):
        raise ValueError(
            f"separator: expected one that is between classes in some cells of {short(job.target)}, got "
            f"{short(job.separator)}, which is in none; without it each cell is one class"
        )
    check_settings(settings, classes=table.task == "classification")
    for name, values in {table.target_name: table.target, **also}.items():
        if settings["target_transform"] == "log":
            check_positive(values, short(name))
    columns = columns_to_learn(table, job, log)
    shares = {name: long_texts(table.frame[name]) for name, column in columns.items() if column.kind == "text"}
    shares = {name: share for name, share in shares.items() if share}
    notes += [_long_note(name, share, job.long) for name, share in shares.items()]
    chunked = list(shares) if job.long == "chunks" else []
    table = replace(table, frame=split_texts(table.frame, chunked))
    columns |= infer_kinds(table.frame[chunked], dict.fromkeys(chunked, "set"))
    kinds = {name: column.kind for name, column in columns.items() if column.kind is not None}
    classes = table.task == "classification"
    leaks = leaking_columns(table.frame, kinds, table.target, classes=classes, groups=table.groups)
    for values in also.values():
        leaks += leaking_columns(table.frame, kinds, values, classes=False, groups=table.groups)
    for line in (*notes, *(leak.sentence for leak in leaks)):
        log(line)
    return OpenTable(table, columns, leaks, notes, chunked, also)


def read_source(
    job: ReadJob, exact: Sequence[str | None], log: Log, note: Log, targets: Sequence[str] = ()
) -> tuple[pd.DataFrame, TableForm, Path | None, str]:
    """The cells of the table of a job as they are stored, how they are written, the folder of its files, its name.

    Args:
        job: of the table.
        exact: columns of ids and groups, which are read as they are written unless they are also features.
        log: gets a line when a file is read.
        note: gets notes on how the table is read.
        targets: columns to predict.
    """
    root: Path | None
    aside = [name for name in exact if name is not None and name not in (job.use or ())]
    if isinstance(job.source, Path):
        report("reading")
        log(f"reading {job.source.name}")
        frame = read_cells(job.source, ids=aside, log=note)
        root, name = job.root or root_of(job.source), job.name or table_name(job.source)
    else:
        frame = flat_table(as_table("data", job.source).rename(columns=str))
        root, name = job.root, job.name or "table"
    for column in job.missing:
        check_column("missing", column, list(frame.columns))
    known: dict[str, Any] = {"targets": targets, "kinds": job.kinds, "decimal": job.decimal, "day_first": job.day_first}
    known |= {"missing": job.missing}
    return frame, TableForm.of(frame, aside=aside, **known, log=note), root, name


def columns_to_learn(table: Table, job: ReadJob, log: Log) -> dict[str, ColumnKind]:
    """The kind of each column of a table, with the reason; ValueError if none is left. ``log``: which may name rows."""
    columns = table_kinds(table, job.kinds)
    if all(column.kind is None for column in columns.values()):
        raise ValueError(f"data: expected at least one column to learn from, got none ({left_out(columns)})")
    like_ids = [name for name, column in columns.items() if column.kind is None and column.reason.startswith(LIKE_ID)]
    if job.id is None and like_ids:
        log(f"rows are named by their numbers, from 1; --id {short_text(like_ids[0])} names them by that column")
    return columns


def _check_query(job: TableJob) -> None:
    """Raise ValueError for a setting that does not go with ranking within queries."""
    if job.query is None:
        return
    if job.group is not None:
        raise ValueError(f"group: expected none beside a query, which is the group, got {short(job.group)}")
    if job.also:
        raise ValueError(f"target: expected one column of grades with a query, got {1 + len(job.also)}")
    if job.separator is not None or job.task == "classification":
        name, got = ("task", job.task) if job.separator is None else ("separator", job.separator)
        raise ValueError(f"{name}: expected none for classes beside a query, whose rows have grades, got {short(got)}")


def _of_ranked_queries(table: Table) -> Table:
    """The table without the queries of one row or one grade; ValueError if fewer than three are left."""
    some, said = ranked_rows(table.groups, table.target)
    if not said:
        return table
    dropped = [Dropped(row, "their query has one row or one grade, so no order") for row in table.rows[~some]]
    left = replace(table.select(np.flatnonzero(some)), dropped=[*table.dropped, *dropped])
    check_groups(left.groups, "query")  # type: ignore[arg-type]  # queries are groups
    return left


def further_targets(frame: pd.DataFrame, job: TableJob) -> tuple[pd.DataFrame, dict[str, Array]]:
    """The table without the target in rows that lack any target, and the further targets ``[n]`` of the other rows.

    Raises:
        ValueError: for a column that is missing, named twice, or not of numbers.
    """
    frame = frame.rename(columns=str)
    if not job.also:
        return frame, {}
    for name, of_classes in (("task", job.task == "classification"), ("separator", job.separator is not None)):
        if of_classes:
            raise ValueError(f"{name}: expected none for several targets, which are numbers, got one for classes")
    for name in (job.target, *job.also):
        check_choice("target", name, frame.columns)
    if len({job.target, *job.also}) <= len(job.also):
        raise ValueError(f"target: expected different columns, got {short([job.target, *job.also])}")
    if twice := {job.id, job.group, job.weight} & set(job.also):
        raise ValueError(f"target: expected columns that are not the id, group or weight too, got {short(twice.pop())}")
    there = np.all([~missing_cells(frame[name]) for name in (job.target, *job.also)], axis=0)
    numbers = {name: read_target(frame.loc[there, name], "regression").values for name in job.also}
    return frame.assign(**{job.target: frame[job.target].where(there)}), numbers


def _long_note(name: str, share: float, long: str) -> str:
    what = f"{short_text(name)}: {share:.0%} of the texts have more than {CHUNK_WORDS} words"
    if long == "chunks":
        return f"{what}; all are sets of chunks of at most so many"
    return f"{what}, of which a pretrained encoder reads the beginning; --long chunks reads all of them"


def groups_sentence(table: Table) -> str:
    """A warning if every group has a single row, as if the column were ids; else ""."""
    if not table.grouped or len(set(table.clusters.tolist())) < len(table):
        return ""
    return LONE_GROUPS


def _with_time(table: Table, job: TableJob, notes: list[str]) -> Table:
    """The table with its times as a column to learn from, and a note that says so, if they tell of later rows."""
    if table.times is None or not time_tells(table.frame, table.times, table.target, job.test):
        return table
    times, name = pd.Series(table.times, index=table.frame.index), short_text(job.time)
    notes.append(f"{name} is learned from, too, as it tells of later rows (--drop {name} if not)")
    return replace(table, frame=table.frame.assign(**{str(job.time): times}))


def make_estimator(opened: OpenTable, job: TableJob) -> BankedEstimator:
    """The estimator for the task of the table, with the job's parameters."""
    estimator = NeighborRegressor if opened.table.task == "regression" else NeighborClassifier
    held_out = job.validation if job.test else 0.0
    of_table = {"root": opened.table.root, "columns": opened.kinds, "form": opened.table.form}
    return estimator(**{"random_state": job.seed, "validation_fraction": held_out, **of_table, **job.parameters})


def fit_split(model: BankedEstimator, opened: OpenTable, split: Split) -> BankedEstimator:
    """Fit on the training and validation rows of ``split``, without the test rows.

    The validation rows are held out of training, unless members are folds.
    """
    rows = np.concatenate([split.train, split.validation])
    part = opened.table.select(rows)
    validation = None if model.validation_fraction == 0 else np.arange(len(split.train), len(rows))
    frame = part.frame[list(opened.kinds)]
    if part.attribute is not None and part.attribute.name not in frame:
        frame = frame.assign(**{str(part.attribute.name): part.attribute})
    with unwarned(IdentityWarning, LeakWarning):  # the job says what groups_sentence gives; open_table has named leaks
        targets = {name: values[rows] for name, values in opened.targets.items()}
        y = pd.DataFrame(targets) if opened.also else part.target
        known = {"ids": part.ids, "groups": part.groups, "validation": validation, "times": part.times}
        fitted: BankedEstimator = model.fit(frame, y, sample_weight=part.weights, **known)
    return fitted


def draw_splits(table: Table, job: TableJob, number: int) -> list[Split]:
    """Splits of a job with test rows, only one by time. Even with folds they have validation rows, for baselines."""
    share, spare = job.validation or TableJob.validation, len(table) - FEWEST
    if spare < 2:
        raise ValueError(
            f"data: expected at least {FEWEST + 2} rows, to train on {FEWEST} and test on the others, got "
            f"{len(table)}; --test 0 trains on all, and measures each row from the others"
        )
    test = min(job.test, (spare - 0.5) / len(table))  # rows to test on are rounded up
    if table.times is not None:
        return [split_by_time(table.times, test=test, validation=share, groups=table.groups, seed=job.seed)]
    return make_splits(table, number=number, seed=job.seed, test=test, validation=share)
