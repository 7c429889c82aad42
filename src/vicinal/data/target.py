"""The target column: its task, and its values or classes."""

from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from vicinal.core import check_choice, short
from vicinal.core.checks import counted, short_text
from vicinal.core.identity import as_texts, canonical_ids
from vicinal.data.cells import as_numbers, missing_cells, refuse_cells
from vicinal.data.column_form import SEPARATORS
from vicinal.data.spelling import number_of, plain_text
from vicinal.encoders.kinds import is_list

Task = Literal["regression", "classification"]

FEW = 10
"""Up to this many different whole numbers count as classes, if each occurs often enough."""

OFTEN = 5
"""Rows that each of them must occur in, on average."""


LARGEST = 1e120
"""Largest number that is a label, and one over the least range of labels: squares, and sums of them, are finite."""

SEPARATOR = "|"
"""Between several classes in a cell."""

_JOINED = 0.1
"""Share of cells with a sign between parts from which a hint mentions it."""


@dataclass(frozen=True, eq=False)
class Target:
    """A target column that has been read.

    Attributes:
        values: of the rows kept: float64 ``[n]`` in a regression, class names ``[n]`` in a classification (object array
            of str, or of sorted tuples of str if rows have several classes).
        task: "regression" or "classification".
        reason: why this task, as a clause for people.
        classes: the class names in order, or None in a regression.
        keep: bool ``[rows]``, False where the target is missing.
        several: whether rows may have several classes, or none.
    """

    values: NDArray[np.float64] | NDArray[np.object_]
    task: Task
    reason: str
    classes: list[str] | None
    keep: NDArray[np.bool_]
    several: bool = False


def read_target(
    column: pd.Series, task: str | None = None, separator: str | None = None, *, repeats: bool = True
) -> Target:
    """Read the target in ``column [rows]``; its index labels name rows in errors.

    Args:
        column: numbers, lengths of time, bools, categories, texts, or lists of classes; ``keep`` says where none is
            missing.
        task: "regression" or "classification"; None infers it (see ``infer_task``).
        separator: between several classes in a cell of text; None: a text is one class. If cells are texts with
            separators or lists, :func:`read_several` reads them.
        repeats: whether the target has to vary, and classes to repeat; not so in new rows of a fitted model.

    Raises:
        ValueError: for a target that is all missing, constant, not finite, not a number in a regression, or whose
            classes hardly repeat.

    >>> read_target(pd.Series([1.5, 2.5, None], name="price")).values.tolist()
    [1.5, 2.5]
    """
    name = short_text(column.name)
    if task is not None:
        check_choice("task", task, get_args(Task))
    if separator is not None or any(is_list(cell) for cell in column):
        return read_several(column, task, separator)
    _check_cells(name, column)
    keep = ~missing_cells(column)
    if not keep.any():
        raise ValueError(f"column {name}: expected a target, got no value in any of the {len(column)} rows")
    present = column[keep]
    numbers = as_numbers(present)
    inferred, reason = infer_task(present, numbers, gaps=not keep.all())
    if task is not None and task != inferred:
        inferred, reason = ("regression" if task == "regression" else "classification"), "as asked for"
    if inferred == "regression":
        _check_numbers(present, numbers)
        values: NDArray[np.float64] | NDArray[np.object_] = numbers
        classes = None
    else:
        values, classes = _read_classes(name, present, numbers, repeats=repeats)
        reason += _lone_hint(values) if repeats else ""
    if repeats and len(np.unique(values)) < 2:
        raise ValueError(
            f"column {name}: expected a target that varies, got {short(values[0])} in all {len(values)} rows"
        )
    return Target(values, inferred, reason, classes, keep)


def infer_task(present: pd.Series, numbers: NDArray[np.float64], *, gaps: bool = False) -> tuple[Task, str]:
    """The task of a target, and the reason as a clause.

    Bools, categories and texts are classes. Numbers are a regression, except whole numbers with at most ``FEW``
    different values (two if they are floats, such as 1.0), each in ``OFTEN`` rows on average. If at least half of the
    texts are numbers (with more than ``FEW`` different values), it is a regression with some wrong cells.

    Args:
        present: the cells that are not missing.
        numbers: the same as numbers, NaN for cells that are not.
        gaps: whether the column also had missing cells (which turns whole numbers into floats).

    >>> infer_task(pd.Series([0, 1] * 10), np.array([0.0, 1.0] * 10))
    ('classification', 'only 2 different whole numbers; --task regression if their order and distance matter')
    """
    if pd.api.types.is_bool_dtype(present.dtype) or all(isinstance(c, (bool, np.bool_)) for c in present):
        return "classification", "true or false"
    if isinstance(present.dtype, pd.CategoricalDtype):
        return "classification", "declared as categories"
    if pd.api.types.is_timedelta64_dtype(present.dtype):
        return "regression", "lengths of time, in seconds"
    share = float(np.mean(~np.isnan(numbers)))
    distinct = len(np.unique(numbers[~np.isnan(numbers)]))
    if share == 1:
        if distinct <= FEW and len(numbers) >= OFTEN * distinct and _whole(present, numbers, gaps=gaps):
            return (
                "classification",
                f"only {distinct} different whole numbers; --task regression if their order and distance matter",
            )
        hint = "; --task classification if these are classes" if distinct <= FEW else ""
        return "regression", f"numbers, {distinct} different ones{hint}"
    if share >= 0.5 and distinct > FEW:
        return "regression", f"{share:.0%} of the cells are numbers"
    return "classification", f"texts{_joined_hint(present)}"


def _joined_hint(present: pd.Series) -> str:
    """A hint if many texts seem to be several classes joined by a sign, of which there are fewer than texts.

    >>> _joined_hint(pd.Series(["sea;sun", "sun", "sun;snow", "sea;snow"]))
    "; 75 % of them hold ';': --separator ';' if those are several classes"
    >>> _joined_hint(pd.Series(["Paris, France", "Rome, Italy"]))
    ''
    """
    cells = [cell for cell in present if isinstance(cell, str)]
    for sign in filter(str.strip, SEPARATORS):
        share = sum(sign in cell for cell in cells) / max(1, len(cells))
        parts = {part.strip() for cell in cells for part in cell.split(sign)}
        if share >= _JOINED and len(parts - {""}) < len(set(cells)):
            return f"; {100 * share:.0f} % of them hold {sign!r}: --separator {sign!r} if those are several classes"
    return ""


def _lone_hint(labels: NDArray[np.object_]) -> str:
    """A hint at classes of one row each, which is either learned from or tested on.

    >>> _lone_hint(np.array(["a", "a", "b", "b", "c"], dtype=object))
    "; 'c' is in one row, too few to learn it"
    """
    lone = [name for name, count in Counter(labels.tolist()).items() if count == 1]
    if len(lone) < 2:
        return f"; {short(lone[0])} is in one row, too few to learn it" if lone else ""
    return f"; {len(lone)} classes, such as {short(lone[0])}, are in one row each, too few to learn them"


def _whole(present: pd.Series, numbers: NDArray[np.float64], *, gaps: bool) -> bool:
    """Whether the cells are whole numbers; floats such as 1.0 count if the column had missing cells, or if two differ.

    Ratings are often written as 1.0, 2.0 and so on, with halves that no row happens to have; two values are classes.
    """
    if pd.api.types.is_float_dtype(present.dtype) and not gaps and len(np.unique(numbers)) != 2:
        return False
    return bool(np.isfinite(numbers).all() and (numbers == np.round(numbers)).all())


def _check_cells(name: str, column: pd.Series) -> None:
    """Refuse dates and nested cells."""
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        raise ValueError(f"column {name}: expected numbers or classes, got dates; make them numbers first, as days")
    if column.dtype != object:
        return
    for row, cell in column.items():
        if isinstance(cell, (bytes, bytearray, dict)) or np.ndim(cell):
            raise ValueError(
                f"row {short_text(row)}, column {name}: expected a number or a class, got a {type(cell).__name__}"
            )


def _check_numbers(present: pd.Series, numbers: NDArray[np.float64]) -> None:
    """Refuse the first cell that is not a number, not finite, or too large to be squared."""
    most = f"a number of at most {LARGEST:g}"
    wrongs = np.isnan(numbers), np.isinf(numbers), np.abs(numbers) > LARGEST
    for wrong, kind in zip(wrongs, ("a number", "a finite number", most), strict=True):
        if wrong.any():
            wrong = wrong & no_number if (no_number := _no_numbers(present)).any() else wrong
            advice = "correct it, or leave it empty to drop the row"
            if kind == "a number" and 2 * wrong.sum() > len(wrong):
                advice = "if these are classes, predict this column alone, with --task classification"
            refuse_cells(present, wrong, kind, f"; {advice}")


def _no_numbers(present: pd.Series) -> NDArray[np.bool_]:
    """Which cells are texts that are no number however it is written: by them a column of numbers is one of texts."""
    return np.array([isinstance(cell, str) and number_of(plain_text(cell)) is None for cell in present], dtype=bool)


def read_several(column: pd.Series, task: str | None = None, separator: str | None = None) -> Target:
    """Read a target whose rows have several classes, or none: lists, or texts with ``separator`` between classes.

    An empty list, or only a separator, is a row without classes; an empty cell is a row without a label.

    Raises:
        ValueError: for a regression, a cell of another kind, fewer than two classes, the same classes in every row, a
            blank separator, or classes that hardly repeat.

    >>> target = read_several(pd.Series(["sea; sun", ";", None, "sun"]), separator=";")
    >>> target.values.tolist(), target.classes, target.keep.tolist()
    ([('sea', 'sun'), (), ('sun',)], ['sea', 'sun'], [True, True, False, True])
    """
    name, keep = short_text(column.name), ~missing_cells(column)
    if separator is not None and not separator.strip():
        raise ValueError(f"separator: expected a sign between classes, such as ';', got {short(separator)}")
    _check_several(name, column[keep], separator)
    if task == "regression":
        raise ValueError(f"task: expected classification, as column {name} has several classes a row, got regression")
    rows = [tuple(sorted(set(names))) for names in several_names(column[keep], separator or SEPARATOR)]
    counts = Counter(one for names in rows for one in names)
    if len(counts) < 2 or len(set(rows)) < 2:
        got = ", ".join(map(short, counts)) or "none"
        raise ValueError(
            f"column {name}: expected at least two classes, and not the same in every row, got {got} in {len(rows)} "
            "rows with a label"
        )
    if len(counts) > max(FEW, len(rows) // 2):
        raise ValueError(
            f"column {name}: expected classes that repeat, got {len(counts)} different ones in {len(rows)} rows, of "
            f"which {sum(count == 1 for count in counts.values())} occur once; leave rare ones out"
        )
    values = np.empty(len(rows), dtype=object)
    values[:] = rows
    mean, none = sum(counts.values()) / len(rows), sum(not names for names in rows)
    reason = f"{len(counts)} classes, {mean:.2g} a row on average, {none} rows without any"
    return Target(values, "classification", reason, sorted(counts), keep, several=True)


def _check_several(name: str, present: pd.Series, separator: str | None) -> None:
    """Refuse cells that are neither lists of names nor, with a separator, texts."""
    for row, cell in present.items():
        where = f"row {short_text(row)}, column {name}"
        if is_list(cell):
            for one in cell:
                if isinstance(one, float):
                    got = f"a list of {counted(len(cell), 'number')}; put each into a column of its own"
                    raise ValueError(
                        f"{where}: expected a number or names of classes, got {got}, and predict one of them"
                    )
                if not isinstance(one, str | int | np.integer | np.bool_):
                    raise ValueError(f"{where}: expected a list of names of classes, got {short(one)} in it")
        elif isinstance(cell, dict | bytes):
            raise ValueError(f"{where}: expected a list of classes, got a {type(cell).__name__}")
        elif separator is None:
            raise ValueError(
                f"{where}: expected a list of classes, as other rows have, got {short(cell)}; say --separator for "
                "texts of several classes"
            )


def read_labels(column: pd.Series, *, classes: bool) -> NDArray[Any]:
    """Labels of all rows of ``column [n]`` for a fitted model: class names, or numbers in float64.

    Raises:
        ValueError: naming the first row without a label or, unless ``classes``, with one that is not a finite number.

    >>> read_labels(pd.Series([1, 2]), classes=True).tolist()
    ['1', '2']
    """
    refuse_cells(column, missing_cells(column), "a label", "; leave the row out")
    _check_cells(short_text(column.name), column)
    numbers = as_numbers(column)
    if classes:
        return class_names(column, numbers)
    _check_numbers(column, numbers)
    return numbers


def several_names(column: pd.Series, separator: str = SEPARATOR) -> list[list[str]]:
    """The classes of each cell: the elements of a list, or the parts of a text; none for an empty cell.

    >>> several_names(pd.Series([["sea", 3], "sea | sun|", None]))
    [['sea', '3'], ['sea', 'sun'], []]
    """
    cells = [
        [] if gone else list(cell) if is_list(cell) else str(cell).split(separator)
        for cell, gone in zip(column, missing_cells(column), strict=True)
    ]
    return [[name for part in parts if (name := str(part).strip())] for parts in cells]


def alike_labels(column: pd.Series, labels: str, separator: str = SEPARATOR) -> list[Any]:
    """What makes rows alike, as y of an :class:`vicinal.estimators.EmbeddingLearner`.

    Args:
        column: cells ``[n]``, none of them empty unless rows may have no class ("several").
        labels: "classes": names as written; "several": see :func:`several_names`; "numbers".
        separator: between several classes in a cell.

    Raises:
        ValueError: for a cell that is empty or, with "numbers", not a finite number.

    >>> alike_labels(pd.Series(["1.00", "x"]), "classes"), alike_labels(pd.Series(["a|b"]), "several")
    (['1.00', 'x'], [['a', 'b']])
    """
    if labels == "several":
        return several_names(column, separator)
    if labels == "numbers":
        return list(read_labels(column, classes=False).tolist())
    names = canonical_ids(f"column {short_text(column.name)}", column, labels=column.index)
    return list(as_texts(names).astype(str).tolist())


def class_names(present: pd.Series, numbers: NDArray[np.float64]) -> NDArray[np.object_]:
    """The cells of a column as class names ``[n]``; ``numbers [n]`` are the same cells as numbers."""
    if (
        pd.api.types.is_bool_dtype(present.dtype)
        or np.isnan(numbers).any()
        or pd.api.types.is_string_dtype(present.dtype)
    ):
        return np.array([str(cell).strip() for cell in present], dtype=object)
    names = [
        _exact_name(cell) or (str(int(value)) if value.is_integer() else str(value))
        for cell, value in zip(present.tolist(), numbers.tolist(), strict=True)
    ]
    return np.array(names, dtype=object)


def _exact_name(cell: Any) -> str:
    """A whole number by its own digits, which a float keeps apart only up to 2**53; "" of anything else."""
    if isinstance(cell, Decimal) and cell.is_finite() and cell == cell.to_integral_value():
        cell = int(cell)
    return str(int(cell)) if isinstance(cell, int | np.integer) and not isinstance(cell, bool) else ""


def _read_classes(
    name: str, present: pd.Series, numbers: NDArray[np.float64], *, repeats: bool
) -> tuple[NDArray[np.object_], list[str]]:
    """Class names ``[n]``, and the different ones: numbers sorted by value, texts by alphabet."""
    truth, labels = pd.api.types.is_bool_dtype(present.dtype), class_names(present, numbers)
    order = dict(zip(labels.tolist(), numbers.tolist(), strict=True))
    numeric = not truth and not np.isnan(numbers).any()
    classes = sorted(order, key=(lambda label: (order[label], label)) if numeric else None)
    if repeats and len(classes) > max(FEW, len(labels) // 2):
        odd = _no_numbers(present)
        are_not = f", and {int(odd.sum())} are not, such as {short(labels[odd][0])}" if odd.any() else ""
        raise ValueError(
            f"column {name}: expected classes that repeat, got {len(classes)} different values in {len(labels)} rows, "
            f"such as {short(labels[0])}; for a number to predict, every cell must be a number{are_not} "
            f"(--task regression){_joined_hint(present)}"
        )
    return labels, classes
