"""What to learn from which table: reading it, telling its columns apart, and fitting on the rows of a split."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vicinal.core.identity import IdentityWarning
from vicinal.data import ColumnLeak, LeakWarning, Split, Table, leaking_columns, prepare_table, read_table
from vicinal.encoders import ColumnKind, Kind, infer_kinds
from vicinal.estimators.base import LONE_GROUPS
from vicinal.estimators.building import check_settings
from vicinal.estimators.inputs import as_table, left_out
from vicinal.estimators.neighborhood import BankedEstimator
from vicinal.estimators.neighbors import NeighborClassifier, NeighborRegressor

Say = Callable[[str], None]


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
        name: of the data; "" for the name of the file.
        seed: of the split and of training.
        test: share of rows to test on.
        validation: share of the remaining rows held out for early stopping and intervals.
        parameters: of the estimator, see :class:`NeighborRegressor`.
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
    name: str = ""
    seed: int = 0
    test: float = 0.2
    validation: float = 0.15
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OpenTable:
    """A table that was read and checked.

    Attributes:
        table: the rows that are used.
        columns: what each column was taken for.
        leaks: columns that give the target away or look like a key of groups.
        notes: how the file was read, where that is not as its name says.
    """

    table: Table
    columns: Mapping[str, ColumnKind]
    leaks: Sequence[ColumnLeak] = ()
    notes: Sequence[str] = ()

    @property
    def kinds(self) -> dict[str, Kind]:
        """Kinds of the columns that are used."""
        return {name: column.kind for name, column in self.columns.items() if column.kind is not None}


def open_table(job: TableJob, say: Say = lambda line: None) -> OpenTable:
    """Read and check the table of ``job``; ``say`` is told how it was read.

    Raises:
        ValueError: in one sentence, for any of the many ways in which a table can be wrong.
    """
    notes: list[str] = []
    check_settings(NeighborRegressor(**job.parameters).get_params(deep=False))
    root: Path | None
    if isinstance(job.source, Path):
        say(f"reading {job.source.name}")
        frame = read_table(job.source, ids=_exact_columns(job), say=notes.append)
        root = job.root or job.source.resolve().parent
        name = job.name or job.source.stem
    else:
        frame, root, name = as_table("data", job.source), job.root, job.name or "table"
    say(f"{len(frame)} rows and {frame.shape[1]} columns in {name}")
    table = prepare_table(
        frame,
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
    kinds = {name: column.kind for name, column in columns.items() if column.kind is not None}
    classes = table.task == "classification"
    leaks = leaking_columns(table.frame, kinds, table.target, classes=classes, groups=table.groups)
    for line in (*notes, *(leak.sentence for leak in leaks)):
        say(line)
    return OpenTable(table, columns, leaks, notes)


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
    made = NeighborRegressor if opened.table.task == "regression" else NeighborClassifier
    settings = {"random_state": job.seed, "root": opened.table.root, "columns": opened.kinds, **job.parameters}
    return made(**settings)


def fit_split(model: BankedEstimator, opened: OpenTable, split: Split) -> BankedEstimator:
    """Fit on the training rows of ``split``, with its validation rows held out; test rows are not read."""
    rows = np.concatenate([split.train, split.validation])
    part = opened.table.select(rows)
    held = np.arange(len(split.train), len(rows))
    frame = part.frame[list(opened.kinds)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentityWarning)  # the job says what groups_sentence gives
        warnings.simplefilter("ignore", LeakWarning)  # open_table has told
        fitted: BankedEstimator = model.fit(frame, part.target, ids=part.ids, groups=part.groups, validation=held)
    return fitted
