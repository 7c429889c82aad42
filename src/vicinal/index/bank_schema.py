"""What the files of a saved bank may hold: settings, columns of numbers and names that fit together."""

from collections.abc import Callable, Mapping
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt

from vicinal.core.untrusted import Saved
from vicinal.index.identity import Array

_Count = Annotated[int, Field(ge=0, lt=1 << 62)]
_STEP = 1 << 16
"""Rows whose values are checked at a time."""


class SavedForm(Saved):
    """What every row has alike, as ``bank.json`` holds it."""

    ids: Literal["whole numbers", "strings"]
    groups: Literal["whole numbers", "strings"] | None
    labels: tuple[Literal["float32", "float64"], NonNegativeInt] | None
    rows: bool


class SavedBank(Saved):
    """What ``bank.json`` holds."""

    format: Literal["vicinal-bank"] = "vicinal-bank"
    version: int
    vicinal: str
    dim: PositiveInt
    storage: Literal["float32", "float16", "int8"]
    exact: bool
    rows: _Count
    form: SavedForm | None
    following: _Count
    columns: list[str] | None
    header: str


def check_columns(name: str, config: SavedBank, columns: Mapping[str, Array]) -> None:
    """Raise ValueError, naming the file, unless it has just the columns of numbers that ``config`` asks for."""
    expected = _expected_columns(config)
    for key in (*expected, *columns):
        if key not in columns or key not in expected:
            got = "no such one" if key in expected else "it, too"
            raise ValueError(
                f"{name}: expected the columns {', '.join(expected) or 'of no rows'}, got {got}: {key!r:.100}"
            )
        shape, dtype = expected[key]
        values = columns[key]
        if values.shape != shape or values.dtype != dtype:
            raise ValueError(f"{name}: expected {key} as {shape} {dtype}, got {values.shape} {values.dtype}")


def _expected_columns(config: SavedBank) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    form, rows = config.form, config.rows
    if form is None or not rows:
        return {}
    expected: dict[str, tuple[tuple[int, ...], str]] = {"keys": ((rows,), "int64")}
    if form.groups == "whole numbers":
        expected["groups"] = ((rows,), "int64")
    if config.exact or config.storage == "float32":
        expected["vectors"] = ((rows, config.dim), "float32")
    if config.storage != "float32":
        expected["codes"] = ((rows, config.dim), config.storage)
        expected["residual"] = ((rows,), "float32")
    if config.storage == "int8":
        expected["scale"] = ((rows,), "float32")
    if form.labels is not None:
        dtype, width = form.labels
        expected["labels"] = ((rows, width) if width else (rows,), dtype)
    return {key: (shape, np.dtype(dtype)) for key, (shape, dtype) in expected.items()}


_VALUES: dict[str, tuple[str, Callable[[Array], Array]]] = {
    "keys": ("whole numbers of at least 0", lambda keys: keys >= 0),
    "vectors": ("finite numbers", np.isfinite),
    "codes": ("finite numbers", np.isfinite),
    "scale": ("positive numbers", lambda scale: np.isfinite(scale) & (scale > 0)),
    "residual": ("distances", lambda residual: np.isfinite(residual) & (residual >= 0)),
    "labels": ("numbers", lambda labels: ~np.isnan(labels)),
}


def check_values(name: str, column: str, values: Array) -> None:
    """Raise ValueError, naming the file, if a column holds values that no bank has, as NaN in its vectors."""
    if column not in _VALUES:
        return
    expected, right = _VALUES[column]
    for start in range(0, len(values), _STEP):
        good: Array = right(values[start : start + _STEP])
        good = np.asarray(good.reshape(len(good), -1).all(axis=1))
        if not good.all():
            row = start + int(good.argmin())
            raise ValueError(f"{name}: expected {expected} as {column}, got others in row {row}; the file was edited")


def check_names(name: str, config: SavedBank, names: Mapping[str, list[object]]) -> None:
    """Raise ValueError, naming the file, unless it has just the ids and groups that are strings."""
    form = config.form
    kinds = {} if form is None else {"id": form.ids, "group": form.groups}
    expected = [key for key, kind in kinds.items() if kind == "strings"]
    if list(names) != expected:
        raise ValueError(f"{name}: expected the columns {expected}, got {list(map(str, names))}")
    for key, values in names.items():
        if len(values) != config.rows or not all(isinstance(value, str) for value in values):
            raise ValueError(f"{name}: expected {config.rows} strings as {key}, got others")
    if "id" in names and len(set(names["id"])) < config.rows:
        raise ValueError(f"{name}: expected each id once, got one twice")
