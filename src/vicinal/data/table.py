"""A table made ready: features, target, ids, groups, and what was dropped."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from vicinal.core import counted, listed, nearest, short
from vicinal.core.checks import short_text
from vicinal.core.identity import Grouped, as_texts, canonical_ids, differ, first_repeat
from vicinal.core.progress import Log
from vicinal.data.cells import as_numbers, as_times, missing_cells, refuse_cells
from vicinal.data.form import TableForm
from vicinal.data.formats import check_names
from vicinal.data.spelling import number_of
from vicinal.data.target import Target, Task, read_target
from vicinal.encoders.base import Kind
from vicinal.encoders.kinds import ColumnKind, infer_kinds

FEWEST = 10
"""A table needs at least this many rows with a target."""

TARGET_MISSING, TIME_MISSING = "the target is missing", "the time is missing"
TOTAL = "it is the total of all others"


@dataclass(frozen=True)
class Dropped:
    """A row that is not used: its label in the given table, and why."""

    row: Hashable
    reason: str


@dataclass(frozen=True, eq=False)
class Table(Grouped):
    """A table with the roles of its columns; all arrays have one entry for each of the ``n`` rows used.

    Attributes:
        frame: the feature columns ``[n, columns]``; its index holds the row labels of the given table.
        target: float64 ``[n]``, or class names ``[n]`` (object array of str, or of tuples if ``several``).
        task: "regression" or "classification".
        ids: int64 or str ``[n]``, all different.
        groups: str ``[n]`` or None; rows of one group must be on one side of a split.
        root: the folder that relative image and audio paths start from, or None.
        target_name: name of the target column.
        classes: the class names in order, or None.
        dropped: the rows left out, with reasons.
        rows: row labels of the given table ``[n]`` (from a file: 1 is the first row after the header).
        name: of the data set.
        reason: why this task was chosen, as a clause.
        times: float64 or datetime64 ``[n]``, or None.
        weights: float64 ``[n]``, > 0, how much each row counts; or None.
        attribute: cells ``[n]`` of a column of groups to be treated alike, or None.
        several: whether rows may have several classes, or none.
        form: how the columns were written, those of features and of the other roles except ids and groups.
    """

    frame: pd.DataFrame
    target: NDArray[Any]
    task: Task
    ids: NDArray[Any]
    groups: NDArray[np.str_] | None
    root: Path | None
    target_name: str
    classes: list[str] | None
    dropped: list[Dropped]
    rows: NDArray[Any]
    name: str = ""
    reason: str = ""
    times: NDArray[Any] | None = None
    weights: NDArray[np.float64] | None = None
    attribute: "pd.Series[Any] | None" = None
    several: bool = False
    form: TableForm = field(default_factory=TableForm)

    def __len__(self) -> int:
        return len(self.target)

    def select(self, positions: NDArray[np.int64]) -> "Table":
        """The table with only the rows at ``positions [m]``; ``classes`` and ``dropped`` stay the same."""
        names = ("frame", "target", "ids", "groups", "rows", "times", "weights", "attribute")
        there = {name: values for name in names if (values := getattr(self, name)) is not None}
        return replace(self, **{name: getattr(values, "iloc", values)[positions] for name, values in there.items()})

    @property
    def mass(self) -> NDArray[np.float64]:
        """How much each row counts ``[n]``: its weight, or 1."""
        return np.ones(len(self)) if self.weights is None else self.weights

    @property
    def dropped_counts(self) -> dict[str, int]:
        """The number of rows dropped for each reason."""
        return dict(Counter(row.reason for row in self.dropped))


def prepare_table(
    frame: pd.DataFrame,
    target: str,
    *,
    id: str | None = None,
    group: str | None = None,
    time: str | None = None,
    weight: str | None = None,
    fair: str | None = None,
    task: str | None = None,
    use: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    name: str = "",
    root: Path | None = None,
    separator: str | None = None,
    form: TableForm | None = None,
    aside: Sequence[str] = (),
    repeats: bool = True,
    log: Log = lambda line: None,
) -> Table:
    """Give the columns of ``frame`` their roles and check them.

    Args:
        frame: one row for each thing; its index labels name rows in errors.
        target: the column to predict; rows without a value there are dropped, and those without a time.
        id: a column of ids, all different; None: the index of ``frame`` if it holds unique integers, else row numbers.
        group: a column that says which rows belong together (same patient, same house).
        time: a column of dates or numbers that says when each row came.
        weight: a column of numbers above 0 that says how much each row counts; see :func:`without_weightless`.
        fair: a column of an attribute, such as sex or age, whose groups are to be treated alike.
        task: "regression" or "classification"; None infers it from the target.
        use: the feature columns; None takes all but target, id, group, time, weight and fair.
        drop: columns to leave out.
        name: of the data set.
        root: the folder that relative image and audio paths start from.
        separator: between several classes in cells of the target, see :func:`vicinal.data.target.read_target`.
        form: how columns are written; those that it does not know are read as they show.
        aside: columns that stay as they are where ``form`` does not know them.
        repeats: see :func:`vicinal.data.target.read_target`.
        log: called with what was assumed of how columns are written.

    Raises:
        ValueError: naming the column and, if a single row is wrong, the row.

    >>> frame = pd.DataFrame({"size": range(12), "price": [0.5 * i for i in range(12)]})
    >>> table = prepare_table(frame, "price")
    >>> len(table), table.task, list(table.frame)
    (12, 'regression', ['size'])
    """
    frame = _with_names(frame)
    columns = list(frame.columns)
    roles = ("target", target), ("id", id), ("group", group), ("time", time), ("weight", weight), ("fair", fair)
    for role, column in roles:
        if column is not None:
            check_column(role, column, columns)
    if target in (id, group, time, weight, fair):
        raise ValueError(
            f"target: expected a column that is not the id, group, time, weight or fair too, got {short(target)}"
        )
    features = _feature_columns(columns, target, id, (group, time, weight, fair), use, drop)
    ids = _read_ids(frame, id)
    clusters: NDArray[Any] = np.arange(len(frame))
    if group is not None:
        refuse_cells(frame[group], missing_cells(frame[group]), "a group")
        clusters = as_texts(canonical_ids(f"column {short_text(group)}", frame[group], labels=frame.index)).astype(str)
    roles_read = [name for name in (target, time, weight, fair) if name is not None]
    frame, form = _as_meant(
        frame,
        target,
        [*features, *roles_read],
        [*aside, *(name for name in (id, group) if name is not None and name not in features)],
        form,
        log,
    )
    timed = np.ones(len(frame), dtype=bool) if time is None else ~missing_cells(frame[time])
    dropped = [Dropped(row, TIME_MISSING) for row in frame.index[~timed]]
    frame, ids, clusters = frame[timed], ids[timed], clusters[timed]
    read = read_target(frame[target], task, separator, repeats=repeats)
    dropped += [Dropped(row, TARGET_MISSING) for row in frame.index[~read.keep]]
    if repeats and _ends_in_sum(read):
        last = int(np.flatnonzero(read.keep)[-1])
        keep = read.keep & (np.arange(len(read.keep)) != last)
        dropped.append(Dropped(frame.index[last], TOTAL))
        read = replace(read, values=read.values[:-1], keep=keep)
    if len(read.values) < FEWEST:
        reasons = [f"{count} dropped because {why}" for why, count in Counter(each.reason for each in dropped).items()]
        but = f" ({', '.join(reasons)})" if dropped else ""
        raise ValueError(f"data: expected at least {FEWEST} rows with a target, got {len(read.values)}{but}")
    labelled = frame.loc[:, features][read.keep]
    clusters = clusters[read.keep]
    if group is not None:
        check_groups(clusters)
    return Table(
        frame=labelled,
        target=read.values,
        task=read.task,
        ids=ids[read.keep],
        groups=None if group is None else clusters,
        root=root,
        target_name=target,
        classes=read.classes,
        dropped=dropped,
        rows=labelled.index.to_numpy(),
        name=name,
        reason=_as_written(read.reason, form, target),
        times=None if time is None else as_times(frame.loc[read.keep, time]),
        weights=None if weight is None else read_weights(frame.loc[read.keep, weight]),
        attribute=None if fair is None else frame.loc[read.keep, fair],
        several=read.several,
        form=form,
    )


def _ends_in_sum(read: Target) -> bool:
    """Whether the last number is the sum of the others, and larger than each: a line of totals.

    >>> _ends_in_sum(read_target(pd.Series([1.5, 2.5, 4.0]))), _ends_in_sum(read_target(pd.Series([0.0, 2.5, 2.5])))
    (True, False)
    """
    if read.task != "regression" or len(read.values) < 3:
        return False
    others, last = read.values[:-1].astype(np.float64), float(read.values[-1])
    return bool(abs(last) > np.abs(others).max() and np.isclose(others.sum(), last, rtol=1e-9, atol=0.0))


def _as_meant(
    frame: pd.DataFrame, target: str, names: Sequence[str], aside: Sequence[str], form: TableForm | None, log: Log
) -> tuple[pd.DataFrame, TableForm]:
    """``frame`` with the cells of the columns ``names`` read by their form, and that form."""
    some = frame[list(dict.fromkeys(names))]
    form = (form or TableForm()).widened(some, aside=aside, targets=[target], log=log).of_columns(names)
    form = form.of_target(target)
    return form.read(frame), form


def table_kinds(table: Table, kinds: Mapping[str, Kind]) -> dict[str, ColumnKind]:
    """The kind of each column of a table; its reason also says how the column is written, where that is unusual."""
    columns = infer_kinds(table.frame, kinds)
    for name, column in columns.items():
        if column.kind is not None:
            columns[name] = replace(column, reason=_as_written(column.reason, table.form, name))
    return columns


def _as_written(reason: str, form: TableForm, name: str) -> str:
    """``reason``, and how the cells of a column are written, where that is unusual."""
    column = form.columns.get(name)
    sentence = "" if column is None else column.sentence
    return reason if sentence in ("", reason) else f"{reason}; {sentence}"


def read_weights(column: pd.Series, *, zero: bool = False) -> NDArray[np.float64]:
    """Weights ``[n]`` of rows: numbers above 0, or with ``zero`` at least 0.

    Raises:
        ValueError: naming the first row without such a weight.
    """
    values = as_numbers(column)
    wrong = ~(np.isfinite(values) & ((values >= 0) if zero else (values > 0)))
    refuse_cells(column, wrong, f"a weight {'of at least 0' if zero else 'above 0'}")
    return values


def without_weightless(frame: pd.DataFrame, weight: str | None, log: Log) -> pd.DataFrame:
    """The rows with a weight above 0; ``log`` gets a sentence about the others, if there are some.

    >>> without_weightless(pd.DataFrame({"w": [1, 0, 2]}), "w", print)["w"].tolist()
    1 row of weight 0 in w is left out
    [1, 2]
    """
    if weight is None:
        return frame
    check_column("weight", weight, [str(name) for name in frame.columns])
    some = read_weights(frame[weight], zero=True) > 0
    if some.all():
        return frame
    if not some.any():
        raise ValueError(f"weight: expected a weight above 0 in {short(weight)}, got 0 in all rows")
    gone = int((~some).sum())
    are = "rows of weight 0 in {} are" if gone > 1 else "row of weight 0 in {} is"
    log(f"{gone} {are.format(short_text(weight))} left out")
    return frame[some]


def check_column(role: str, column: str, columns: Sequence[str]) -> str:
    """Return ``column`` if it is one of ``columns``; else the error lists them and the nearest.

    >>> check_column("target", "prise", ["price", "title"])
    Traceback (most recent call last):
    ValueError: target: expected one of the columns 'price', 'title', got 'prise'; did you mean 'price'?
    >>> check_column("target", "price", ["79", "556"])
    Traceback (most recent call last):
    ValueError: target: expected one of the columns '79', '556', got 'price'; the first line looks like a row: add names
    """
    if column not in columns:
        numbers = sum(number_of(str(name)) is not None for name in columns)
        no_names = "; the first line looks like a row: add names" * (2 * numbers > len(columns))
        no_names *= [*columns] != [str(place) for place in range(len(columns))]  # as pandas names those without names
        hint = nearest(str(column), columns) or no_names
        raise ValueError(f"{role}: expected one of the columns {listed(columns, 400)}, got {short(column)}{hint}")
    return column


def check_groups(groups: NDArray[Any], role: str = "group") -> None:
    """Refuse ``groups [n]`` that cannot give train, validation and test one group each."""
    names = np.unique(groups)
    if len(names) < 3:
        shown, plural = listed(map(str, names)), "queries" if role == "query" else "groups"
        raise ValueError(
            f"{role}: expected at least 3 different {plural}, one each to train, validate and test on, "
            f"got {len(names)} ({shown}) in all {len(groups)} rows; choose another column or leave it out"
        )


def _with_names(frame: pd.DataFrame) -> pd.DataFrame:
    """``frame`` with texts as column names, all different."""
    if not isinstance(frame, pd.DataFrame):
        raise TypeError(f"data: expected a DataFrame, got {type(frame).__name__}")
    names = [str(name) for name in frame.columns]
    check_names("data", names)
    return frame.set_axis(names, axis="columns")


def _feature_columns(
    columns: list[str],
    target: str,
    identity: str | None,
    others: Sequence[str | None],
    use: Sequence[str] | None,
    drop: Sequence[str],
) -> list[str]:
    """The columns to learn from, in their order in the table."""
    for role, named in (("use", use or ()), ("drop", drop)):
        for column in named:
            check_column(role, column, columns)
    if use is not None and (target in use or identity in use):
        raise ValueError(f"use: expected feature columns, got {short(target if target in use else identity)} too")
    aside = {target, identity, *drop} | (set(others) if use is None else set())
    features = [name for name in columns if (use is None or name in use) and name not in aside]
    if not features:
        raise ValueError(f"data: expected a column to learn from beside {short(target)}, got none")
    return features


def _read_ids(frame: pd.DataFrame, identity: str | None) -> NDArray[Any]:
    """Ids ``[rows]``, int64 or str, all different."""
    if identity is None:
        index = frame.index
        if index.is_unique and pd.api.types.is_integer_dtype(index.dtype):
            return index.to_numpy(dtype=np.int64)
        return np.arange(len(frame), dtype=np.int64)
    column = frame[identity]
    refuse_cells(column, missing_cells(column), "an id")
    ids = canonical_ids(f"column {short_text(identity)}", column, labels=column.index)
    again = pd.Series(ids).duplicated()
    if again.any():
        _refuse_repeated(column, ids, int(again.sum()))
    return ids if ids.dtype == np.int64 else ids.astype(str)


def _refuse_repeated(column: pd.Series, ids: NDArray[Any], count: int) -> NoReturn:
    first, place = first_repeat(ids)
    name = short_text(column.name)
    instead = f"if rows of one id belong together, say --group {name} instead"
    cells, rows = column.iloc[[first, place]].tolist(), [short_text(column.index[place]) for place in (first, place)]
    if differ(*cells):
        raise ValueError(
            f"id: expected ids that are all different in column {name}, got {short(cells[0])} in row {rows[0]} and "
            f"{short(cells[1])} in row {rows[1]}, which are one id; {instead}"
        )
    raise ValueError(
        f"row {rows[1]}, column {name}: expected ids that are all different, got {short_text(ids[place])} again (first "
        f"in row {rows[0]}; {counted(count, 'such row')}); {instead}"
    )
