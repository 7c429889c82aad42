"""Labelled rows for a model, and which of them it was given before: by their ids, or by what is in them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vicinal.core import counted, short
from vicinal.core.identity import canonical_ids
from vicinal.core.progress import Log
from vicinal.data.cells import as_numbers
from vicinal.data.sources import table_name
from vicinal.data.table import Table, check_column, prepare_table, without_weightless
from vicinal.encoders.category import level_of
from vicinal.encoders.kinds import is_gap
from vicinal.estimators.banked import BankedEstimator
from vicinal.estimators.inputs import Ids
from vicinal.estimators.saving import shown_cell
from vicinal.report.audit_records import Part
from vicinal.workflows.predict import features_of, read_rows, separator_of

Codes = np.ndarray[Any, np.dtype[np.int64]]

_FEW = 0.01
"""Share of the rows of the fit that may be copies of others, so that equal content still says which row it is."""

_WHOLE = 0.95
"""Share of the rows of the fit that a table holds, at least, so that it is the table of the fit in another order."""


def labelled_rows(
    model: BankedEstimator, source: Path | pd.DataFrame, log: Log, root: Path | None = None, **roles: str | None
) -> Table:
    """The rows of ``source`` with the model's columns and target, and the columns ``time``, ``weight`` and ``fair``.

    For ``weight`` and ``fair``, None is the column of the fit, if the table has it.
    """
    name = table_name(source) if isinstance(source, Path) else "table"
    frame, known = read_rows(model, source, root, log), model.notes_.get("weight")
    if roles.get("weight") is None and known in frame.columns:
        roles["weight"] = known
    return labelled_table(model, frame, name, log, **roles)


def labelled_table(model: BankedEstimator, frame: pd.DataFrame, name: str, log: Log, **roles: str | None) -> Table:
    """The same for rows from :func:`vicinal.workflows.predict.read_rows`."""
    frame = without_weightless(frame, roles.get("weight"), log)
    target = model.notes_.get("target")
    if target is None:
        raise ValueError("model: expected one of `vicinal fit`, which knows its target, got one saved from Python")
    features = features_of(model, frame, log)
    known = {role: model.notes_.get(role) for role in ("id", "group")}
    for column in (target, *known.values()):
        if column is not None:
            if column not in frame.columns:
                new = "" if column == target else "; give it, with names of their own for rows that are new"
                raise ValueError(
                    f"data: expected the column {short(column)}, which the model was fitted with, got none{new}"
                )
            features[column] = frame[column]
    if roles.get("fair") is None and model.fair in frame.columns:
        roles["fair"] = model.fair
    for role, column in roles.items():
        if column is not None:
            column = check_column(role, column, list(frame.columns))
            features[column] = frame[column]
    return prepare_table(
        features,
        target,
        use=list(model.feature_names_in_),
        id=known["id"],
        group=known["group"],
        task="regression" if model.fitted_.codec.kind == "numbers" else "classification",
        separator=separator_of(model) if model.multilabel_ else None,
        name=name,
        root=None if model.root is None else Path(model.root),
        form=model.form_,
        aside=list(model.feature_names_in_),  # those of no form were read as they are, whatever these rows look like
        repeats=False,
        log=log,
        **dict[str, Any](roles),
    )


def known_rows(model: BankedEstimator, table: Table, *, distinct: bool = False) -> tuple[Table, list[Part]]:
    """The table with the model's ids of the rows that it was given, and the part of each row ``[n]``.

    With a column of ids a row is known by its id. Without one, ids are places in the table of the fit; a row is known

    - in its place, if the columns that the model reads have equal cells there (its label may have been corrected);
    - anywhere else, if its label is equal, too: one row for each row of the fit. Where rows of the fit are often copies
      of each other, as in tables of few categories, new rows may well be, too; then only if the table holds nearly all
      rows of the fit.

    Args:
        model: which may know some of the rows.
        table: whose rows are looked for.
        distinct: number new rows anew where a known row bears their number; else they keep their places in the table.
    """
    ids = table.ids if model.notes_.get("id") is not None else _by_content(model, table)
    parts: list[Part] = ["new"] * len(table)
    for part, bank in (("bank", model.bank_), ("held out", model.calibration_)):
        places = bank.keys_of(ids)
        for row in np.flatnonzero([] if places is None else places.numpy() >= 0):
            parts[row] = part  # type: ignore[call-overload]
    new = np.array([part == "new" for part in parts])
    ids = np.where(new, table.ids, ids)
    twice = new & np.isin(ids.astype(str), ids[~new].astype(str))
    if distinct and twice.any():
        top = max(one for one in [*ids.tolist(), len(table)] if isinstance(one, int))
        ids[twice] = range(top + 1, top + 1 + int(twice.sum()))
    return replace(table, ids=canonical_ids("ids", ids.tolist())), parts


def _by_content(model: BankedEstimator, table: Table) -> Ids:
    """Ids in the model ``[n]``, None for rows that it was not given."""
    banks = [bank for bank in (model.bank_, model.calibration_) if len(bank)]
    known_ids = np.concatenate([bank.ids.astype(object) for bank in banks])
    first = np.unique(known_ids.astype(str), return_index=True)[1]  # rows held out may stand in the bank, too
    known_ids = known_ids[first]
    rows = pd.concat([bank.rows for bank in banks], ignore_index=True).iloc[first]
    n = len(table)
    cells, content = _contents(model, (table.frame, rows), (table.target, _labels(model, table, known_ids)))
    home = pd.Index(known_ids.astype(str)).get_indexer(table.ids.astype(str))
    same = (home >= 0) & (content[:n] == content[n:][home])
    places = np.where(same, home, -1)
    free = np.setdiff1d(np.arange(len(known_ids)), places)
    pairs = _pair_up(content[:n], np.flatnonzero(places < 0), content[n:], free)
    copies = 1 - len(np.unique(content[n:])) / len(known_ids)
    if copies <= _FEW or same.sum() + len(pairs) >= _WHOLE * len(known_ids):
        for row, known in pairs:
            places[row] = known
    # the same place and cells, and another label: it was corrected since the fit
    corrected = (places < 0) & (home >= 0) & ~np.isin(home, places) & (cells[:n] == cells[n:][home])
    places[corrected] = home[corrected]
    return np.where(places >= 0, known_ids[places], np.array(None))


def log_repeated(
    model: BankedEstimator, frame: pd.DataFrame, labels: Any, log: Callable[[str], None], *, named: bool
) -> None:
    """Say how many rows have the cells and the label of a row of the bank, unless ids name them."""
    if named:
        return
    content = _contents(model, (frame, model.bank_.rows), (labels, model.labels_of(model.bank_.ids)))[1]
    if count := int(np.isin(content[: len(frame)], content[len(frame) :]).sum()):
        log(f"{count} of {counted(len(frame), 'row')} are in the bank already, label and all: they will count twice")


def _contents(model: BankedEstimator, frames: tuple[pd.DataFrame, ...], labels: tuple[Any, ...]) -> tuple[Codes, Codes]:
    """A number for each row of all frames ``[n + m]``: the same for equal cells; the same for equal labels, too."""
    cells = _codes(model, [_shown(model, frames[0]), *frames[1:]])
    keys = pd.factorize(np.concatenate([*map(_label_keys, labels)]))[0]
    return cells, np.unique(np.stack([cells, keys]), axis=1, return_inverse=True)[1].reshape(-1)


def _pair_up(content: Codes, rows: Codes, known_content: Codes, known: Codes) -> list[tuple[int, int]]:
    """Of ``rows`` and ``known`` rows those of the same content, each once, in their order."""
    waiting: dict[int, list[int]] = {}
    for one in known[::-1].tolist():
        waiting.setdefault(int(known_content[one]), []).append(one)
    pairs = [(row, waiting.get(int(content[row]), [])) for row in rows.tolist()]
    return [(row, others.pop()) for row, others in pairs if others]


def _shown(model: BankedEstimator, frame: pd.DataFrame) -> pd.DataFrame:
    """Cells in the form that a bank keeps."""
    kinds = model.kinds_
    shown = {
        name: [shown_cell(cell, kinds[name]) for cell in frame[name]] if frame[name].dtype == object else frame[name]
        for name in kinds
    }
    return pd.DataFrame(shown, index=frame.index)


def _codes(model: BankedEstimator, frames: list[pd.DataFrame]) -> Codes:
    """A number for each row of all frames ``[n + m]``, the same for rows with equal cells in what the model reads."""
    codes = []
    for name, kind in model.kinds_.items():
        columns = [frame[name] for frame in frames]
        numbers = [as_numbers(column) for column in columns] if kind == "number" else []
        if numbers and not any(np.isnan(one).all() for one in numbers):  # 3 is 3.0; dates are texts here
            codes.append(pd.factorize(np.concatenate(numbers))[0])
            continue
        cells = [cell for column in columns for cell in column.tolist()]
        keys = [None if is_gap(one) else str(level_of(one) if kind == "category" else one) for one in cells]
        codes.append(pd.factorize(np.array(keys, dtype=object))[0])
    return np.unique(np.stack(codes), axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _labels(model: BankedEstimator, table: Table, ids: Ids) -> list[Any]:
    labels = model.labels_of(ids)
    if getattr(model, "targets_", None) is None:
        return labels
    place = list(model.targets_ or ()).index(table.target_name)
    return [row[place] for row in labels]


def _label_keys(labels: Any) -> Ids:
    several = [tuple(sorted(map(str, one))) if isinstance(one, tuple | list) else one for one in labels]
    keys = np.empty(len(several), dtype=object)
    keys[:] = [float(one) if isinstance(one, float | int | np.number) else str(one) for one in several]
    return keys
