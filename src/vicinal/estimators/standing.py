"""What the labelled rows of a table are to a saved model, and what they attend to in its bank."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vicinal.calibration import neighbor_spread
from vicinal.core import short
from vicinal.data.cells import as_numbers
from vicinal.data.table import Table, prepare_table
from vicinal.estimators.answering import features_of, read_rows
from vicinal.estimators.neighborhood import BankedEstimator
from vicinal.estimators.saving import shown_cell
from vicinal.report import Part

Say = Callable[[str], None]
Array = np.ndarray[Any, Any]
FIRST = 10
"""First neighbors of a query, for the counts of who serves whom."""


def labelled_rows(model: BankedEstimator, source: Path | pd.DataFrame, say: Say, root: Path | None = None) -> Table:
    """The rows of ``source`` with the model's columns and target."""
    frame = read_rows(model, source, root, say)
    target = model.notes_.get("target")
    if target is None:
        raise ValueError("model: expected one of `vicinal fit`, which knows its target, got one saved from Python")
    features = features_of(model, frame, say)
    known = {role: model.notes_.get(role) for role in ("id", "group")}
    for name in (target, *known.values()):
        if name is not None:
            if name not in frame.columns:
                raise ValueError(f"data: expected the column {short(name)}, which the model was fitted with, got none")
            features[name] = frame[name]
    classes = getattr(model, "classes_", None)
    return prepare_table(
        features,
        target,
        id=known["id"],
        group=known["group"],
        task="regression" if classes is None else "classification",
        name=source.stem if isinstance(source, Path) else "table",
        root=None if model.root is None else Path(model.root),
    )


def parts_of(model: BankedEstimator, table: Table) -> list[Part]:
    """Where each row stands: its id is in the bank, or held out, and its content is the same there."""
    found: list[Part] = ["new"] * len(table)
    asked = _by_value(model, table.frame)
    for part, bank in (("bank", model.bank_), ("held out", model.calibration_)):
        places = bank.keys_of(table.ids)
        there = _by_value(model, bank.rows)
        for row, place in enumerate([] if places is None else places.tolist()):
            if place >= 0 and (model.notes_.get("id") is not None or _same(model, asked, row, there.iloc[place])):
                found[row] = part  # type: ignore[call-overload]
    return found


def _by_value(model: BankedEstimator, frame: pd.DataFrame) -> pd.DataFrame:
    """The columns that the model reads, numbers (but not dates) by their value: 3 and 3.0 are alike."""
    columns: dict[str, Any] = {name: frame[name] for name in model.kinds_}
    for name in [name for name, kind in model.kinds_.items() if kind == "number"]:
        numbers = as_numbers(frame[name])
        if not np.isnan(numbers).all():
            columns[name] = numbers
    return pd.DataFrame(columns, index=frame.index)


def _same(model: BankedEstimator, frame: pd.DataFrame, row: int, kept: "pd.Series[Any]") -> bool:
    """Whether a row of ``frame`` has the cells of a bank row, as the bank keeps them."""
    for name, kind in model.kinds_.items():
        cell = frame[name].iloc[row]
        cell = shown_cell(cell, kind) if frame[name].dtype == object else cell
        missing = [not isinstance(one, bytes) and bool(pd.isna(one)) for one in (cell, kept[name])]
        if any(missing) and not all(missing):
            return False
        if not any(missing) and str(cell) != str(kept[name]):
            return False
    return True


@dataclass(frozen=True)
class Attended:
    """What the rows attend to, put together block by block so that no ``[n, N]`` weights are kept.

    Attributes:
        expected: what each row's neighbors say without it: numbers ``[n]``, or probabilities ``[n, K]``.
        spread: deviation of the neighbors' labels ``[n]``, for numbers.
        served: how many new rows have each bank row among their first neighbors ``[N]``.
        weight: mean weight of each bank row over the new rows ``[N]``.
    """

    expected: Array
    spread: Array
    served: Array
    weight: Array


def attend(model: BankedEstimator, table: Table, vectors: Tensor, parts: list[Part]) -> Attended:
    """Let every row attend to the bank, none to its own row."""
    new = np.array([part == "new" for part in parts])
    ids = table.ids.astype(object)
    ids[new] = None  # a new row may bear the number of another one in the bank
    bank, size = model.bank_, len(model.bank_)
    identity = bank.identity(ids, table.groups if bank.groups is not None else None)
    labels, numbers = model._bank_labels().double().numpy(), bank.labels.numpy()
    expected, spread = [], []
    served, weight, start = np.zeros(size, dtype=np.int64), np.zeros(size), 0
    for part, own in model._blocks(vectors, identity):
        weights = model._weights(part, bank, own)
        fresh = weights[torch.from_numpy(new[start : start + len(part)])]
        served += np.bincount(fresh.topk(min(FIRST, size), dim=1).indices.flatten().numpy(), minlength=size)
        weight += fresh.sum(0).numpy()
        expected.append(weights.numpy() @ labels)
        spread.append(neighbor_spread(weights.numpy(), numbers))
        start += len(part)
    return Attended(np.concatenate(expected), np.concatenate(spread), served, weight / max(int(new.sum()), 1))
