"""What users pass as X, y, ids and groups, checked and in one form: a table with one kind for each column."""

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa
import scipy.sparse
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data
from torch import Tensor

from vicinal.core import ColumnWarning, counted, short
from vicinal.core.checks import check_between, short_text, warn_caller
from vicinal.core.identity import Grouped
from vicinal.core.untrusted import machine_memory
from vicinal.data import TableForm
from vicinal.data.attributes import attribute_groups
from vicinal.data.form import as_argument
from vicinal.data.json_tables import flat_table, wholes_of
from vicinal.data.table import check_column
from vicinal.encoders import Kind, infer_kinds
from vicinal.encoders.kinds import ColumnKind

Ids = np.ndarray[Any, Any]

_SHOWN = 8
"""Columns that a sentence on rows beyond the fit names."""

FEWEST_ROWS = 10
"""Fewer labelled rows than this are refused: nothing can be held out of them."""


def as_table(name: str, value: Any, *, listed: bool = True) -> Any:
    """Rows in memory of any library that narwhals reads (polars, Arrow, ...) as pandas; arrays and lists as they are.

    A Series or an Arrow array becomes a table of one column, "x0" if it has no name; a Dataset of Hugging Face a table;
    a sparse matrix of scipy a dense one; if ``listed`` (labels are not) dictionaries or named tuples, one or a list,
    lists by column and an array of records become a table, and texts alone one column "x0". Columns are in buffers that
    pandas can count and torch can read.

    >>> import pyarrow
    >>> as_table("X", pyarrow.table({"size": [1, 2]}))["size"].tolist()
    [1, 2]
    """
    if isinstance(value, pd.DataFrame | pa.Table | pa.RecordBatch):
        _check_names(name, value.columns if isinstance(value, pd.DataFrame) else value.schema.names)
    table = _as_pandas(name, _listed_rows(name, value) if listed else value)
    return _with_plain_buffers(table) if isinstance(table, pd.DataFrame) else table


def _listed_rows(name: str, value: Any) -> Any:
    """Rows or columns with names as a table, texts alone as a column; anything else as it is."""
    if scipy.sparse.issparse(value):  # one of its forms is a dictionary
        return value
    if isinstance(value, Mapping) and type(value).__module__.partition(".")[0] != "datasets":
        are_columns = all(isinstance(cell, list | tuple | np.ndarray | pd.Series | Tensor) for cell in value.values())
        return pd.DataFrame(dict(value) if are_columns else [dict(value)])
    if isinstance(value, np.ndarray) and value.dtype.names:
        return pd.DataFrame(np.atleast_1d(value))
    if isinstance(value, str | Path | Iterator):
        raise ValueError(
            f"{name}: expected rows, got {short(value)}; read a file by pandas.read_csv, and make a list of a generator"
        )
    is_list = isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 0)
    if not is_list or len(value) == 0:
        return value
    if all(isinstance(row, dict) or hasattr(row, "_fields") for row in value):
        return pd.DataFrame(list(value))
    return pd.Series(list(value), dtype=object) if all(isinstance(row, str) for row in value) else value


def _as_pandas(name: str, value: Any) -> Any:
    """The rows as a table of pandas; arrays and lists as they are."""
    if isinstance(value, pd.DataFrame):
        return value
    if isinstance(value, pa.RecordBatch):
        return value.to_pandas()
    if scipy.sparse.issparse(value):
        return _dense(name, value)
    if type(value).__module__.partition(".")[0] == "datasets":
        if not hasattr(value, "to_pandas"):
            raise ValueError(f"{name}: expected a Dataset with its rows, got a {type(value).__name__}; give one split")
        return value.with_format(None).to_pandas()
    series = as_series(name, value)
    if isinstance(series, pd.Series):
        return series.to_frame("x0" if series.name is None else series.name)
    read = nw.from_native(series, pass_through=True)
    if isinstance(read, nw.LazyFrame):
        raise ValueError(f"{name}: expected rows in memory, got a {type(value).__name__}; call .collect() on it first")
    return read.to_pandas() if isinstance(read, nw.DataFrame) else series


def _with_plain_buffers(frame: pd.DataFrame) -> pd.DataFrame:
    """The same table without what stops pandas or torch.

    Files of other machines (FITS, HDF, netCDF) hold big-endian numbers; Arrow has half floats, of which pandas finds no
    minimum, and structs, of which it finds no categories.
    """
    plain: dict[Any, Any] = {}
    for name, dtype in frame.dtypes.items():
        if isinstance(dtype, np.dtype) and not dtype.isnative:
            plain[name] = frame[name].astype(dtype.newbyteorder("="))
        elif isinstance(dtype, pd.ArrowDtype) and pa.types.is_float16(dtype.pyarrow_dtype):
            plain[name] = as_series(str(name), frame[name]).to_numpy(dtype=np.float64)
        elif isinstance(dtype, pd.ArrowDtype) and pa.types.is_struct(dtype.pyarrow_dtype):
            plain[name] = frame[name].astype(object)
    if not plain:
        return frame
    frame = frame.copy(deep=False)
    for name, column in plain.items():
        frame[name] = column
    return frame


def _check_names(name: str, columns: Iterable[Any]) -> None:
    """Raise ValueError if two columns have one name, as texts."""
    twice = [column for column, count in Counter(map(str, columns)).items() if count > 1]
    if twice:
        raise ValueError(f"{name}: expected columns of different names, got {short(twice[0])} twice; rename one")


def _dense(name: str, matrix: Any) -> Ids:
    """All numbers of a sparse matrix, if they fit in half of the memory."""
    if matrix.shape[0] * matrix.shape[1] > machine_memory() // 16:
        raise ValueError(
            f"{name}: expected a sparse matrix that fits in memory with its zeros, got {matrix.shape[0]} x "
            f"{matrix.shape[1]}; make fewer columns of it (sklearn.decomposition.TruncatedSVD)"
        )
    return matrix.toarray()


def as_series(name: str, value: Any) -> Any:
    """One column of any library that narwhals reads as a pandas Series; anything else as it is.

    Numbers of pandas that may be missing in their own way become those of numpy; a tensor becomes an array.
    """
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    if isinstance(value, pa.Array):
        value = pa.chunked_array([value])
    read = nw.from_native(value, pass_through=True, allow_series=True)
    if not isinstance(read, nw.Series):
        return value
    series = read.to_pandas()
    if isinstance(value, pa.ChunkedArray):
        series.name = None
    if pd.api.types.is_extension_array_dtype(series.dtype) and pd.api.types.is_numeric_dtype(series.dtype):
        if isinstance(series.dtype, pd.ArrowDtype) and pa.types.is_float16(series.dtype.pyarrow_dtype):
            series = series.astype(pd.ArrowDtype(pa.float32()))
        some = series.isna().any()
        values = series.to_numpy(dtype=np.float64, na_value=np.nan) if some else series.to_numpy()
        series = pd.Series(values, index=series.index, name=series.name)
    return series


def as_frame(estimator: BaseEstimator, x: Any, *, reset: bool) -> pd.DataFrame:
    """``x`` as a table, with scikit-learn's checks of names and number of columns.

    A table (see :func:`as_table`) may hold columns of any kind; anything else must be a finite numeric matrix. A Series
    of the names of the columns, as ``frame.iloc[0]`` gives it, is one row. For a
    model that was fitted on a table, rows without names go by the place of its columns, and for one that was fitted
    without names so do those of a table; scikit-learn warns.

    Raises:
        ValueError: as scikit-learn words it.
    """
    names = None if reset else getattr(estimator, "feature_names_in_", None)
    if isinstance(x, pd.Series) and names is not None:
        cells = x.index.map(str)
        x = x.to_frame().T.infer_objects() if set(cells) >= set(names) or wholes_of(cells, names) else x
    x = _without_attribute(estimator, as_table("X", x))
    if isinstance(x, pd.DataFrame):
        if len(x) == 0:
            raise ValueError("X: expected at least one row, got a table of 0 rows")
        frame = _with_parts(x.set_axis([str(name) for name in x.columns], axis="columns"), estimator, names)
        if reset or frame.columns.tolist() != list(() if names is None else names):  # else nothing is wrong
            validate_data(estimator, frame, reset=reset, skip_check_array=True)
        if not reset and names is None:
            frame.columns = [f"x{place}" for place in range(frame.shape[1])]
        return frame
    if names is not None and _is_rows(x):
        validate_data(estimator, x, reset=False, skip_check_array=True)  # warns, and counts the columns
        frame = pd.DataFrame(x if isinstance(x, np.ndarray) else list(x), columns=list(names))
        return _with_plain_buffers(frame)
    with refused_text("X"):
        values = validate_data(estimator, x, reset=reset, dtype=np.float64)
    return pd.DataFrame(values, columns=[f"x{i}" for i in range(values.shape[1])])


def _with_parts(frame: pd.DataFrame, estimator: BaseEstimator, names: Sequence[str] | None) -> pd.DataFrame:
    """The table with columns of objects as columns of their parts, but those that ``columns`` names.

    Of a fitted model the parts that it reads; a part that no object has here is missing.
    """
    wholes = [name for name in frame.columns if name not in (getattr(estimator, "columns", None) or ())]
    wholes = wholes if names is None else wholes_of(wholes, names)
    parts = flat_table(frame[wholes]) if wholes else frame
    if parts.columns.tolist() == frame.columns[: len(parts.columns)].tolist():
        return frame
    if names is not None:
        starts = tuple(f"{name}." for name in wholes)
        parts = parts.reindex(columns=[name for name in names if name.startswith(starts)])
    whole = pd.concat([frame.drop(columns=wholes), parts], axis="columns")
    return whole if names is None or set(whole.columns) != set(names) else whole[list(names)]


def _is_rows(x: Any) -> bool:
    """Whether ``x`` is a matrix, or a list of rows, with at least one row."""
    if isinstance(x, np.ndarray):
        return x.ndim == 2 and len(x) > 0
    return isinstance(x, list | tuple) and len(x) > 0 and all(isinstance(row, list | tuple | np.ndarray) for row in x)


def checked_weights(weights: Any, rows: int) -> Ids:
    """Weights of rows as float64 ``[rows]``, at least 0 and not all 0.

    Raises:
        ValueError: naming the first that is none.
    """
    with refused_text("sample_weight"):
        values = np.asarray(as_series("sample_weight", weights), dtype=np.float64)
    if values.shape != (rows,):
        raise ValueError(f"sample_weight: expected {rows} numbers, one a row of X, got shape {values.shape}")
    wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(wrong):
        raise ValueError(
            f"sample_weight: expected finite numbers of at least 0, got {values[wrong[0]]:g} in row {wrong[0]}"
        )
    if not values.any():
        raise ValueError("sample_weight: expected a weight above zero, got 0 for all rows")
    return values


def with_weight(weights: Any, *columns: Any) -> tuple[Ids, list[Any]]:
    """Checked weights above 0, and the rows of each of ``columns`` that have them; that others are left out is said.

    Args:
        weights: ``[n]``.
        columns: tables, arrays or lists of n rows, or None.
    """
    columns = tuple(one if one is None or hasattr(one, "__len__") else np.asarray(one) for one in columns)
    values = checked_weights(weights, len(columns[0]))
    for column in columns:
        if column is not None and len(column) != len(values):
            raise ValueError(f"sample_weight: expected one for each of {len(column)} rows, got {len(values)}")
    at = np.flatnonzero(values)
    if len(at) == len(values):
        return values, list(columns)
    warn_caller(
        f"sample_weight: expected weights above 0, got 0 for {len(values) - len(at)} of {len(values)} rows, which are "
        "left out"
    )
    return values[at], [None if column is None else rows_at(column, at) for column in columns]


def positions_left(positions: Any, left: Ids, rows: int) -> Any:
    """Positions among ``rows`` rows as those among the rows ``left``; wrong ones as they are, to be refused.

    >>> positions_left([1, 2, 5], np.array([0, 2, 3, 5]), 6).tolist()
    [1, 3]
    """
    at = np.asarray(positions)  # of None no number
    if at.dtype.kind not in "iu" or len(left) == rows or not ((at >= 0) & (at < rows)).all():
        return positions
    return np.flatnonzero(np.isin(left, at))


def rows_at(rows: Any, at: Ids) -> Any:
    """The rows ``at`` positions of a table, an array, a tensor or a list."""
    if isinstance(rows, Tensor):
        return rows[torch.from_numpy(at)]
    rows = as_series("y", rows)
    rows = rows if isinstance(rows, pd.Series) else as_table("y", rows, listed=False)
    if isinstance(rows, list | tuple):
        return [rows[place] for place in at]
    return rows.iloc[at] if hasattr(rows, "iloc") else rows[at]


def _without_attribute(estimator: BaseEstimator, x: Any) -> Any:
    """``x`` without the column of ``fair``, unless ``columns`` names it: predictions do not read it."""
    fair = getattr(estimator, "fair", None)
    if fair is None or not isinstance(x, pd.DataFrame) or fair in (estimator.columns or ()):
        return x
    return x.drop(columns=[name for name in x.columns if str(name) == fair])


def fair_groups(x: Any, name: str) -> Tensor:
    """The groups of the rows of ``x`` by the attribute in the column ``name``, ``[n]``."""
    if not isinstance(x, pd.DataFrame):
        raise ValueError(f"fair: expected X to be a table with the column {short_text(name)}, got an array")
    check_column("fair", name, [str(column) for column in x.columns])
    values = x.loc[:, [str(column) == name for column in x.columns]].iloc[:, 0]
    return torch.from_numpy(attribute_groups(values.rename(name))[0])


@contextlib.contextmanager
def refused_text(name: str) -> Iterator[None]:
    """Words the error of numpy on a text that is no number as ours, without the whole text."""
    try:
        yield
    except ValueError as wrong:
        refused = re.match(r"could not convert string to float: (.*)", str(wrong), re.DOTALL)
        if refused is None:
            raise
        advice = "; columns of text go in a DataFrame" if name == "X" else ""
        raise ValueError(f"{name}: expected numbers, got {short_text(refused[1])}{advice}") from None


def form_of(frame: pd.DataFrame, x: Any, form: TableForm | None, columns: Mapping[str, Kind] | None) -> TableForm:
    """How the columns of a table are written: by ``form``, and what that does not know as they show; none of an array.

    A column whose cells allow two readings is named in a warning.
    """
    if not isinstance(x, pd.DataFrame):
        return TableForm()

    def log(line: str) -> None:
        warn_caller(line, ColumnWarning)

    return (form or TableForm()).widened(frame, kinds=columns, log=log, advice=as_argument)


def kinds_of(frame: pd.DataFrame, x: Any, columns: Mapping[str, Kind] | None) -> dict[str, Kind]:
    """Kind of each column that is used: those of ``columns``, the rest by what they hold; all numbers for an array."""
    if not isinstance(x, pd.DataFrame):
        return {str(name): "number" for name in frame.columns}
    inferred = infer_kinds(frame, dict(columns or {}))
    used: dict[str, Kind] = {name: column.kind for name, column in inferred.items() if column.kind is not None}
    aside = {name: column for name, column in inferred.items() if column.kind is None}
    if not used:
        raise ValueError(f"X: expected at least one column to learn from, got none ({left_out(inferred)})")
    if aside:
        warn_caller(f"X: {left_out(aside)}", ColumnWarning)
    return used


def warn_of_unseen(unseen: Mapping[str, Sequence[str]], rows: int) -> None:
    """Warn of cells, by column, whose category no training row had."""
    parts = [
        f"{short_text(name)}: {len(cells)} of {rows} cells were never seen in training: "
        f"{', '.join(short_text(cell, 40) for cell in sorted(set(cells))[:5])}"
        for name, cells in list(unseen.items())[:5]
    ]
    if parts:
        more = f"; and {len(unseen) - 5} more columns" if len(unseen) > 5 else ""
        warn_caller("; ".join(parts) + more, ColumnWarning)


def left_out(columns: Mapping[str, ColumnKind]) -> str:
    """Why columns are not used, the first few of them, as a clause."""
    reasons = [f"{short_text(name)}: {column.reason}" for name, column in columns.items()]
    more = f"; and {len(reasons) - 5} more" if len(reasons) > 5 else ""
    return "; ".join(reasons[:5]) + more


def check_rows(rows: int) -> None:
    """Raise ValueError for fewer than ``FEWEST_ROWS`` rows."""
    if rows < FEWEST_ROWS:
        raise ValueError(f"X: expected at least {FEWEST_ROWS} rows to train on, got n_samples={rows}")


@dataclass(frozen=True, eq=False)
class Draw:
    """What decides which of so many rows are held out: positions that were asked for, groups, classes and the seed."""

    rows: int
    seed: int
    groups: Ids | None = None
    classes: Ids | None = None
    validation: Any = None

    @property
    def grouped(self) -> bool:
        """Whether rows have groups."""
        return self.groups is not None

    @property
    def by_class(self) -> bool:
        """Whether rows have classes."""
        return self.classes is not None

    @property
    def clusters(self) -> Ids:
        """Of what group each row is ``[rows]``: its own where there are none."""
        return np.arange(self.rows) if self.groups is None else _as_they_come(self.groups)

    @property
    def codes(self) -> Ids:
        """The class of each row ``[rows]``: 0 where there are none."""
        return np.zeros(self.rows, dtype=np.int64) if self.classes is None else _as_they_come(self.classes)


def _as_they_come(names: Ids) -> Ids:
    """Numbers of names in the order of the rows: what they are called does not decide which rows are held out."""
    return np.asarray(pd.factorize(names, use_na_sentinel=False)[0], dtype=np.int64)


@dataclass(frozen=True)
class HeldOut:
    """Positions of the rows that are trained on, and of those held out for early stopping and calibration.

    Where members are folds, ``folds [n]`` says which leave out each row; all are trained on, and none is held out.
    """

    train: Ids
    validation: Ids
    folds: Ids | None = None


@dataclass(frozen=True, eq=False)
class EmbeddedRows:
    """Rows whose embeddings ``vectors [n, d]`` are known; prediction and explanation take them in the place of X.

    ``excess`` says by column how far cells lie beyond what the fit has seen, see
    :func:`vicinal.encoders.numeric.bounded`; of columns where some do. ``own_rows`` of them equal rows of the bank, see
    :meth:`vicinal.estimators.bank.Bank.equal_rows`.
    """

    frame: pd.DataFrame
    vectors: Tensor
    excess: Mapping[str, Tensor] = field(default_factory=dict)
    own_rows: int = 0

    def own_sentence(self) -> str:
        """How many rows are their own neighbors; "" if none is."""
        if not self.own_rows:
            return ""
        one = self.own_rows == 1
        equal = "equals a row that was fitted on, and is" if one else "equal rows that were fitted on, and are"
        label = "its own label" if one else "their own labels"
        return f"{self.own_rows} of {counted(len(self.frame), 'row')} {equal} predicted from {label}, too"

    def farthest(self) -> Tensor | None:
        """How far each row lies beyond ``[n]``, by its farthest cell; None: no row does."""
        return torch.stack(list(self.excess.values())).amax(dim=0) if self.excess else None

    def sentence(self) -> str:
        """How many rows lie far beyond the fit, and in which columns; "" if none does."""
        if not self.excess:
            return ""
        beyond = torch.stack([far > 0 for far in self.excess.values()])
        counts = zip(self.excess, beyond.sum(dim=1).tolist(), strict=True)
        columns = [f"{short(name)} ({count})" for name, count in counts]
        rows = int(beyond.any(dim=0).sum())
        more = f" and {len(columns) - _SHOWN} more" if len(columns) > _SHOWN else ""
        return (
            f"{counted(rows, 'row')} of {len(self.frame)} {'lies' if rows == 1 else 'lie'} far beyond the rows of the "
            f"fit, in {', '.join(columns[:_SHOWN])}{more}; such cells count as half a range beyond the ends of the "
            "fit, and intervals are wider"
        )


@dataclass(frozen=True, eq=False)
class LabelledRows(Grouped):
    """What a fit is of: a table, ``labels [n]`` float64, ``ids [n]``, ``groups [n]`` or None, and what is held out.

    ``weights [n]``, of mean 1, say how many equal rows each counts as; None: one.
    ``attribute [n]`` are the groups between which a fit is to be fair, or None.
    """

    frame: pd.DataFrame
    labels: Tensor
    ids: Ids
    groups: Ids | None
    held_out: HeldOut
    weights: Ids | None = None
    attribute: Tensor | None = None

    def __len__(self) -> int:
        return len(self.frame)

    def weights_of(self, at: Tensor) -> Tensor | None:
        """Weights of the rows at these positions, if those of all rows differ."""
        return None if self.weights is None else torch.from_numpy(self.weights)[at]

    def mass_of(self, at: Tensor, dtype: torch.dtype = torch.float64) -> Tensor | None:
        """The same, of mean 1."""
        if self.weights is None or not len(at):
            return None
        weights = torch.from_numpy(self.weights)[at]
        return (weights / weights.mean()).to(dtype)

    def of(self, at: Ids) -> dict[str, Any]:
        """Groups, folds and weights of the rows at these positions, each None where there are none."""
        each = {"groups": self.groups, "folds": self.held_out.folds, "weights": self.weights}
        return {name: None if values is None else values[at] for name, values in each.items()}

    def group_codes(self) -> Tensor | None:
        """Integers ``[n]``, the same for rows of one group; or None."""
        if self.groups is None:
            return None
        return torch.from_numpy(np.unique(self.groups, return_inverse=True)[1].astype(np.int64))


_FEWEST_GROUPS = 3
"""Groups from which on they make folds: a row learns from other groups than its own, two of which must be left."""


def make_folds(draw: Draw, members: int) -> HeldOut:
    """A fold of all rows for each member, at random: whole groups, else the classes spread evenly.

    Raises:
        ValueError: if there are fewer than three groups.
    """
    rows, clusters, seed = draw.rows, draw.clusters, draw.seed
    random = np.random.RandomState(seed)
    everything, nothing = np.arange(rows), np.zeros(0, dtype=np.int64)
    if not draw.grouped:
        order = random.permutation(rows)
        order = order[np.argsort(draw.codes[order], kind="stable")]
        folds = np.empty(rows, dtype=np.int64)
        folds[order] = everything % min(members, rows // 2)
        return HeldOut(everything, nothing, folds)
    from sklearn.model_selection import GroupKFold  # slow to import, and needed only when a model is fitted

    count = len(set(clusters.tolist()))
    if count < _FEWEST_GROUPS:
        raise ValueError(
            f"groups: expected at least {_FEWEST_GROUPS} for members that are folds, got {count}; give "
            "validation_fraction a share above 0"
        )
    folds = np.empty(rows, dtype=np.int64)
    splits = GroupKFold(min(members, count), shuffle=True, random_state=random).split(everything, groups=clusters)
    for fold, (_, held_out) in enumerate(splits):
        folds[held_out] = fold
    return HeldOut(everything, nothing, folds)


def hold_out(draw: Draw, fraction: float) -> HeldOut:
    """Which rows are held out: those asked for, or a seeded ``fraction``, whole groups if there are groups.

    Raises:
        ValueError: if the positions are wrong, or one group holds nearly everything.
    """
    # slow to import, and needed only when a model is fitted
    from sklearn.model_selection import GroupShuffleSplit, ShuffleSplit, StratifiedShuffleSplit

    rows, seed, validation = draw.rows, draw.seed, draw.validation
    everything = np.arange(rows)
    if validation is not None:
        held_out = np.unique(np.asarray(validation, dtype=np.int64))
        if len(held_out) == 0 or held_out[0] < 0 or held_out[-1] >= rows or len(held_out) > rows - 2:
            raise ValueError(
                f"validation: expected positions from 0 to {rows - 1} that leave at least 2 rows to train on, "
                f"got {len(held_out)} positions"
            )
        return HeldOut(np.setdiff1d(everything, held_out), held_out)
    check_between("validation_fraction", fraction, 0, 1)
    count = min(rows - 2, max(1, round(fraction * rows)))
    if draw.grouped:
        if len(set(draw.clusters.tolist())) < 2:
            raise ValueError("groups: expected at least two groups, got one group that holds every row")
        splitter: Any = GroupShuffleSplit(1, test_size=fraction, random_state=seed)
    elif draw.by_class and _can_stratify(draw.codes, count):
        splitter = StratifiedShuffleSplit(1, test_size=count, random_state=seed)
    else:
        splitter = ShuffleSplit(1, test_size=count, random_state=seed)
    train, held_out = next(splitter.split(everything, draw.codes, draw.clusters if draw.grouped else None))
    if len(train) < 2:
        raise ValueError(f"groups: expected groups that leave at least 2 rows to train on, got {len(train)}")
    return HeldOut(np.sort(train), np.sort(held_out))


def _can_stratify(classes: Ids, count: int) -> bool:
    counts = np.unique(classes, return_counts=True)[1]
    return bool(counts.min() >= 2 and count >= len(counts) and len(classes) - count >= len(counts))
