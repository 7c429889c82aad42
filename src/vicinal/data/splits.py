"""Seeded splits into train, validation and test, and their file format."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field

from vicinal.core.checks import check_between, check_integer
from vicinal.core.files import replace_text
from vicinal.core.identity import canonical_ids
from vicinal.core.untrusted import Saved, read_saved
from vicinal.data.table import Table, check_groups

VERSION = 1
GAIN, LATEST, FEW_LEVELS = 0.5, 20_000, 30
"""Share of the squared error that reading times must save; rows and levels of a category that are looked at."""

ORIGINS, AHEAD = (0.5, 0.625, 0.75), 0.25
"""Shares of the rows that forecasts are made after, and of those that each predicts."""

CANDIDATES = 16  # draws of groups, of which the one whose share of rows is nearest to what was asked is taken


@dataclass(frozen=True, eq=False)
class Split:
    """Positions (not labels) of the rows to train, validate and test on: int64, sorted, no row in two parts.

    Attributes:
        train: ``[a]``.
        validation: ``[b]``, for early stopping and the choice of settings.
        test: ``[c]``, to be used once.
        seed: the seed it was drawn with.
    """

    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]
    seed: int

    def __len__(self) -> int:
        return len(self.train) + len(self.validation) + len(self.test)


def make_splits(
    data: Table | int,
    *,
    number: int = 1,
    seed: int = 0,
    test: float = 0.2,
    validation: float = 0.15,
    groups: Sequence[Any] | NDArray[Any] | None = None,
    stratify: Sequence[Any] | NDArray[Any] | None = None,
) -> list[Split]:
    """Draw ``number`` splits; split i depends only on ``seed + i``, so asking for more keeps the first ones.

    With groups, no group is in two parts; of several draws the one is taken whose parts come closest to the given
    shares of rows. With ``stratify`` (and no groups) each part has about the same share of each class.

    Args:
        data: a table (its groups, and its classes in a classification, are used), or a number of rows.
        number: of splits.
        seed: at least 0.
        test: share of the rows to test on, between 0 and 1.
        validation: share of the others to validate on, between 0 and 1.
        groups: ``[n]``, instead of the table's.
        stratify: class of each row ``[n]``, instead of the table's.

    Raises:
        ValueError: for too few rows or groups for three parts.

    >>> split = make_splits(100, seed=3)[0]
    >>> len(split.train), len(split.validation), len(split.test)
    (68, 12, 20)
    """
    check_integer("number", number)
    check_integer("seed", seed, 0, 2**32 - number)
    check_between("test", test, 0, 1)
    check_between("validation", validation, 0, 1)
    rows = len(data) if isinstance(data, Table) else check_integer("data", data, 3)
    if isinstance(data, Table):
        groups = data.groups if groups is None else groups
        if stratify is None and data.task == "classification":
            stratify = data.target
    grouping = None if groups is None else _rowwise("groups", canonical_ids("groups", groups), rows)
    strata = None if stratify is None else _rowwise("stratify", stratify, rows)
    if grouping is not None:
        check_groups(grouping)
    splits = []
    for draw in range(seed, seed + number):
        others, tested = _halve(np.arange(rows), test, draw, grouping, strata)
        train, validated = _halve(others, validation, draw, grouping, strata)
        splits.append(Split(train, validated, tested, draw))
    return splits


def split_by_time(
    times: NDArray[Any],
    *,
    test: float = 0.2,
    validation: float = 0.15,
    groups: NDArray[Any] | None = None,
    seed: int = 0,
) -> Split:
    """The split whose test rows are the latest, and whose validation rows are later than the training rows.

    Rows of one time are in one part, so shares are approximate; rows of one group are in the part of its latest row.

    Args:
        times: ``[n]``, numbers or datetime64.
        test: share of the rows to test on, between 0 and 1.
        validation: share of the others to validate on.
        groups: ``[n]``.
        seed: stored in the split; nothing is drawn.

    Raises:
        ValueError: if there are fewer than three different times (with groups: latest times of groups).

    >>> split = split_by_time(np.array([5, 1, 2, 3, 4]), test=0.2, validation=0.25)
    >>> split.train.tolist(), split.validation.tolist(), split.test.tolist()
    ([1, 2, 3], [4], [0])
    """
    check_between("test", test, 0, 1)
    check_between("validation", validation, 0, 1)
    different, moments = np.unique(_latest(times, groups), return_inverse=True)
    if len(different) < 3:
        what = "times" if groups is None else "latest times of groups"
        raise ValueError(
            f"time: expected at least 3 different {what}, to train, validate and test on, got {len(different)} in "
            f"{len(times)} rows"
        )
    counts = np.bincount(moments)
    first = _moment_from(counts, test, 2)
    middle = _moment_from(counts[:first], validation, 1)
    parts = (moments < middle, (moments >= middle) & (moments < first), moments >= first)
    train, validated, tested = (np.flatnonzero(part) for part in parts)
    return Split(train, validated, tested, seed)


def forward_splits(
    times: NDArray[Any], groups: NDArray[Any] | None = None
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Positions of earlier rows to learn from, and of the quarter of all rows that comes next, for each of ``ORIGINS``.

    Rows of one time are on one side, and rows of one group on that of its latest row.

    >>> [(len(past), later.tolist()) for past, later in forward_splits(np.arange(8))]
    [(4, [4, 5]), (5, [5, 6]), (6, [6, 7])]
    """
    moments = np.unique(_latest(times, groups), return_inverse=True)[1]
    ordered, splits = np.sort(moments), {}
    for origin in ORIGINS:
        start, count = ordered[round(origin * len(ordered))], max(1, round(AHEAD * len(ordered)))
        from_start = ordered[ordered >= start]
        later = (moments >= start) & (moments <= from_start[min(count, len(from_start)) - 1])
        splits[start] = np.flatnonzero(moments < start), np.flatnonzero(later)
    return list(splits.values())


def _latest(times: NDArray[Any], groups: NDArray[Any] | None = None) -> NDArray[Any]:
    """Times ``[n]``, or that of the latest row of each row's group."""
    if groups is None:
        return times
    codes = np.unique(groups, return_inverse=True)[1]
    by_time = np.argsort(times, kind="stable")
    latest = np.empty(codes.max() + 1, dtype=times.dtype)
    latest[codes[by_time]] = times[by_time]  # the last one stays
    return latest[codes]


def time_tells(frame: pd.DataFrame, times: NDArray[Any], target: NDArray[np.float64], test: float) -> bool:
    r"""Whether a ridge regression predicts later rows better that reads their times, too, by a share of ``GAIN``.

    It reads numbers (gaps as their mean) and categories of few levels, standardized. Of the rows before those to test
    on the earlier three quarters are fitted, and the others predicted.

    Args:
        frame: the other columns ``[n, c]``.
        times: ``[n]``, numbers or datetime64.
        target: numbers ``[n]``.
        test: share of the latest rows, which are not looked at.

    >>> t = np.arange(40.0)
    >>> time_tells(pd.DataFrame({"x": t % 3}), t, 2 * t, 0.2), time_tells(pd.DataFrame({"x": t % 3}), t, t % 3, 0.2)
    (True, False)
    """
    from sklearn.linear_model import Ridge  # slow to import
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    order = np.argsort(times, kind="stable")[-LATEST:]
    order = order[: len(order) - round(test * len(order))]
    fitted = 3 * len(order) // 4
    some = frame.iloc[order]
    few = [name for name, cells in some.items() if pd.api.types.is_numeric_dtype(cells) or _few_levels(cells)]
    columns = pd.get_dummies(some[few], dtype=np.float64)
    numbers = columns.fillna(columns.iloc[:fitted].mean()).fillna(0.0).to_numpy(dtype=np.float64)
    when = (times[order].astype("datetime64[s]") if times.dtype.kind == "M" else times[order]).astype(np.float64)
    errors = []
    for values in (numbers, np.column_stack([numbers, when])):
        model = make_pipeline(StandardScaler(), Ridge()).fit(values[:fitted], target[order[:fitted]])
        errors.append(float(np.square(target[order[fitted:]] - model.predict(values[fitted:])).mean()))
    return errors[1] < (1 - GAIN) * errors[0]


def _few_levels(cells: "pd.Series[Any]") -> bool:
    is_text = cells.dtype == object or isinstance(cells.dtype, pd.StringDtype | pd.CategoricalDtype)
    return is_text and all(isinstance(cell, str | float) for cell in cells) and cells.nunique() <= FEW_LEVELS


def _moment_from(counts: NDArray[np.int64], share: float, least: int) -> int:
    """The moment from which the rows come closest to ``share`` of all, after ``least`` moments at least."""
    later = counts[::-1].cumsum()[::-1]
    return least + int(np.argmin(np.abs(later[least:] - share * counts.sum())))


def no_test(rows: int, seed: int) -> Split:
    """The split that trains on all rows, with none to validate or test on.

    >>> len(no_test(10, 0).train)
    10
    """
    nothing = np.zeros(0, dtype=np.int64)
    return Split(np.arange(check_integer("rows", rows)), nothing, nothing, seed)


def _rowwise(name: str, values: Sequence[Any] | NDArray[Any], rows: int) -> NDArray[Any]:
    array = np.asarray(values)
    if array.shape != (rows,):
        raise ValueError(f"{name}: expected one value for each of the {rows} rows, got shape {array.shape}")
    return array


def _halve(
    rows: NDArray[np.int64],
    share: float,
    seed: int,
    groups: NDArray[Any] | None = None,
    strata: NDArray[Any] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Part ``rows`` into (others, held out), both sorted."""
    from sklearn.model_selection import GroupShuffleSplit, ShuffleSplit, StratifiedShuffleSplit  # slow to import

    count = int(np.ceil(share * len(rows)))
    if count >= len(rows):
        raise ValueError(
            f"splits: expected shares that leave rows to train on, got {count} of {len(rows)} rows held out"
        )
    merged = None if strata is None or groups is not None else _merge_rare(strata[rows])
    if groups is not None:
        draws = GroupShuffleSplit(CANDIDATES, test_size=share, random_state=seed).split(rows, groups=groups[rows])
    elif merged is not None and 2 <= merged.max() + 1 <= min(count, len(rows) - count):
        draws = StratifiedShuffleSplit(1, test_size=share, random_state=seed).split(rows, merged)
    else:
        draws = ShuffleSplit(1, test_size=share, random_state=seed).split(rows)
    others, held_out = min(draws, key=lambda draw: abs(len(draw[1]) / len(rows) - share))
    return np.sort(rows[others]), np.sort(rows[held_out])


def _merge_rare(labels: NDArray[Any]) -> NDArray[np.int64]:
    """Class numbers to draw by: classes of one row are merged; a single such row joins the largest class."""
    _, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    rare = counts[codes] < 2
    if rare.sum() == 1:
        codes[rare] = int(np.argmax(counts))
    elif rare.any():
        codes[rare] = codes[rare].min()
    return np.unique(codes, return_inverse=True)[1].astype(np.int64)


_Row = Annotated[int, Field(ge=0, lt=1 << 62)]


class SavedSplit(Saved):
    """A split as it is stored in a file."""

    seed: int
    train: list[_Row]
    validation: list[_Row]
    test: list[_Row]

    @property
    def split(self) -> Split:
        """The split itself."""
        train, validation, test = (np.array(part, dtype=np.int64) for part in (self.train, self.validation, self.test))
        return Split(train, validation, test, self.seed)


class SavedSplits(Saved):
    """The content of a file of splits."""

    version: int
    rows: _Row
    fingerprint: str
    splits: list[SavedSplit]


def save_splits(path: str | Path, splits: Sequence[Split], *, fingerprint: str = "") -> None:
    """Write ``splits`` to a JSON file, whole or not at all; ``fingerprint``: ``table_fingerprint`` of the data."""
    lists = [{part: getattr(each, part).tolist() for part in ("train", "validation", "test")} for each in splits]
    parts = [SavedSplit(seed=each.seed, **some) for each, some in zip(splits, lists, strict=True)]
    stored = SavedSplits(version=VERSION, rows=len(splits[0]), fingerprint=fingerprint, splits=parts)
    replace_text(Path(path), stored.model_dump_json())


def load_splits(path: str | Path, *, rows: int | None = None, fingerprint: str = "") -> list[Split]:
    """Read splits back.

    Args:
        path: a file of ``save_splits``.
        rows: number of rows of the data; None: not checked.
        fingerprint: of the data; "": not checked.

    Raises:
        ValueError: for a file that is missing, torn, edited so that not each row is in one part, of a newer version, or
            of other data.
    """
    path = Path(path)
    if not os.path.lexists(path):
        raise ValueError(f"{path}: expected a file of splits, got none")
    stored = read_saved(path, SavedSplits, "splits", newest=VERSION)
    splits, total = [one.split for one in stored.splits], stored.rows
    for split in splits:
        together = np.concatenate([split.train, split.validation, split.test])
        if len(together) != total or not np.array_equal(np.sort(together), np.arange(total)):
            raise ValueError(f"{path.name}: expected each of {total} rows in one part, got others at seed {split.seed}")
    if rows is not None and rows != total:
        raise ValueError(f"{path.name}: expected splits of {rows} rows as the data has, got splits of {total} rows")
    if fingerprint and stored.fingerprint not in ("", fingerprint):
        raise ValueError(f"{path.name}: expected splits of this data, got splits of data with other content")
    return splits
