"""What all rows of a bank have alike, and what the files of a saved bank may hold."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import torch
from pydantic import Field, NonNegativeInt, PositiveInt
from torch import Tensor

from vicinal.core import as_tensor, short
from vicinal.core.arrays import Array
from vicinal.core.checks import check_labels
from vicinal.core.identity import as_texts, canonical_ids, whole_values
from vicinal.core.untrusted import Saved

if TYPE_CHECKING:
    import pandas as pd


Kind = Literal["whole numbers", "strings"]


class BankSchema(Saved):
    """What every row of a bank has alike, as ``bank.json`` holds it.

    Attributes:
        ids: "whole numbers" or "strings".
        groups: the same, or None without groups.
        labels: dtype and width ("float32", 0 for one number a row), or None without labels.
        rows: there is a table.
        folds: rows have the fold that they were held out with.
        weights: rows say how many equal rows each counts as; those of a bank without count as one.
    """

    ids: Kind
    groups: Kind | None
    labels: tuple[Literal["float32", "float64"], NonNegativeInt] | None
    rows: bool
    folds: bool = False
    weights: bool = False

    def check_same(self, other: "BankSchema") -> None:
        """Raise ValueError unless rows of the form ``other`` may stand beside ours."""
        for name in ("labels", "groups", "rows", "folds"):
            if bool(getattr(self, name)) != bool(getattr(other, name)):
                has, got = ("some", "none") if getattr(self, name) else ("none", "some")
                raise ValueError(f"{name}: expected {has}, as the rows of the bank have {has}, got {got}")


def schema_of(names: Array, cells: dict[str, Array], rows: "pd.DataFrame | None") -> BankSchema:
    """The form of rows with ids ``names`` and the labels and groups in ``cells``."""
    labels = cells.get("labels")
    return BankSchema(
        ids=_kind(names),
        groups=_kind(cells["groups"]) if "groups" in cells else None,
        labels=None if labels is None else ("float64" if labels.dtype == np.float64 else "float32", _width(labels)),
        rows=rows is not None,
        folds="folds" in cells,
        weights="weights" in cells,
    )


def checked_folds(folds: object, rows: int) -> Array:
    """``folds`` of ``rows`` rows as int16 ``[n]``."""
    codes = np.asarray(folds)
    if codes.shape != (rows,) or codes.dtype.kind not in "iu":
        raise ValueError(f"folds: expected whole numbers [{rows}], got {codes.dtype} {codes.shape}")
    if rows and not (codes.min() >= -1 and codes.max() < 1 << 15):
        raise ValueError(f"folds: expected numbers from -1 to {(1 << 15) - 1}, got {codes.min()} to {codes.max()}")
    return codes.astype(np.int16)


def checked_weights(weights: object, rows: int) -> Array:
    """``weights`` of ``rows`` rows as float64 ``[n]``."""
    values = np.asarray(weights, dtype=np.float64)
    if values.shape != (rows,) or not (np.isfinite(values) & (values > 0)).all():
        raise ValueError(f"weights: expected {rows} finite numbers above 0, got others")
    return values


def checked_labels(labels: Tensor | Array, rows: int, form: BankSchema | None) -> Array:
    """``labels`` of ``rows`` rows, in the dtype and width of a bank of this form."""
    tensor = as_tensor("labels", labels).detach().cpu()
    check_labels(tensor, rows)
    known = None if form is None else form.labels
    if known is not None and _width(tensor) != known[1]:
        shape = f"[{rows}, {known[1]}]" if known[1] else f"[{rows}]"
        raise ValueError(f"labels: expected {shape} as the bank has them, got {tuple(tensor.shape)}")
    bad = tensor.isnan() if tensor.ndim == 1 else tensor.isnan().any(dim=1)
    if bool(bad.any()):
        raise ValueError(f"labels: expected a number for every row, got NaN in row {int(bad.nonzero()[0])}")
    dtype = known[0] if known is not None else "float64" if tensor.dtype == torch.float64 else "float32"
    return tensor.to(getattr(torch, dtype)).numpy()


def checked_groups(groups: object, rows: int, form: BankSchema | None) -> Array:
    """``groups`` of ``rows`` rows, as numbers or strings as a bank of this form has them."""
    names = canonical_ids("groups", groups, rows)  # type: ignore[arg-type]
    kind = None if form is None else form.groups
    return names if kind is None or rows == 0 else as_kind("groups", names, kind)


def as_kind(name: str, ids: Array, kind: str) -> Array:
    """Canonical ``ids`` as the whole numbers or the strings that a bank has."""
    if kind == "strings":
        return as_texts(ids)
    numbers, whole = whole_values(ids)
    if not whole.all():
        raise ValueError(f"{name}: expected whole numbers as the bank has them, got {short(ids[int(whole.argmin())])}")
    return numbers


def checked_rows(rows: "pd.DataFrame", count: int, columns: list[object] | None) -> None:
    """Check that a table has ``count`` rows, and these columns if the bank has some."""
    if len(rows) != count:
        raise ValueError(f"rows: expected a table of {count} rows, one for each id, got {len(rows)}")
    if columns is not None and list(rows.columns) != columns:
        raise ValueError(f"rows: expected the columns {columns}, got {list(rows.columns)}")


def _kind(names: Array) -> Kind:
    return "whole numbers" if names.dtype == np.int64 else "strings"


def _width(labels: Tensor | Array) -> int:
    return labels.shape[1] if labels.ndim == 2 else 0


_Count = Annotated[int, Field(ge=0, lt=1 << 62)]
_STEP = 1 << 16
"""Rows whose values are checked at a time."""


class SavedBank(Saved):
    """What ``bank.json`` holds.

    Attributes:
        storage: of what searches scanned: earlier versions kept codes of 2 or 1 bytes a number beside the vectors.
        exact: whether there are vectors, not codes alone.
    """

    format: Literal["vicinal-bank"] = "vicinal-bank"
    version: int
    vicinal: str
    dim: PositiveInt
    storage: Literal["float32", "float16", "int8"]
    exact: bool
    rows: _Count
    form: BankSchema | None
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


def in_float32(columns: dict[str, Array]) -> dict[str, Array]:
    """Columns without the codes that earlier versions kept; what these stand for where there are no vectors."""
    codes, scale = columns.get("codes"), columns.get("scale")
    rest = {name: values for name, values in columns.items() if name not in ("codes", "scale", "residual")}
    if codes is not None and "vectors" not in rest:
        rest["vectors"] = codes.astype(np.float32) * (1 if scale is None else scale[:, None])
    return rest


def _expected_columns(config: SavedBank) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    form, rows = config.form, config.rows
    if form is None or not rows:
        return {}
    expected: dict[str, tuple[tuple[int, ...], str]] = {"keys": ((rows,), "int64")}
    if form.groups == "whole numbers":
        expected["groups"] = ((rows,), "int64")
    if form.folds:
        expected["folds"] = ((rows,), "int16")
    if form.weights:
        expected["weights"] = ((rows,), "float64")
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
    "labels": ("numbers", lambda labels: ~np.isnan(labels)),
    "folds": ("numbers of folds", lambda folds: folds >= -1),
    "weights": ("finite numbers above 0", lambda weights: np.isfinite(weights) & (weights > 0)),
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
