"""``vicinal embed``, ``add``, ``relabel`` and ``forget``: vectors of rows, and changes of a fitted model's bank."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pandas as pd
import torch

from vicinal.core import check_choice, counted, replaced_file, short
from vicinal.core.checks import local_path, short_text, unwarned
from vicinal.core.folders import read_sums
from vicinal.core.identity import IdentityWarning, as_texts, canonical_ids, spelled
from vicinal.core.progress import Log
from vicinal.data import TableForm, read_table, write_table
from vicinal.data.cells import missing_cells
from vicinal.data.table import read_weights, without_weightless
from vicinal.data.target import alike_labels, read_labels, several_names
from vicinal.estimators.banked import BankedEstimator, load_model
from vicinal.estimators.inputs import EmbeddedRows, as_table
from vicinal.estimators.learner import EmbeddingLearner
from vicinal.estimators.model_folder import ModelFolder
from vicinal.estimators.saving import OpenSettings
from vicinal.workflows.known_rows import log_repeated
from vicinal.workflows.predict import exact_columns, features_of, read_rows, separator_of
from vicinal.workflows.receipts import Receipt, write_receipt
from vicinal.workflows.recommend import add_clicks, forget_users, is_recommender
from vicinal.workflows.refit import forget_deeply

AUTO = "auto"
"""In place of a column of weights: the weight that predicts the added rows best."""


@dataclass(frozen=True)
class BankChange:
    """The number of rows that were added, relabelled or forgotten, and of rows in the bank now.

    Of a recommender ``unit`` is "click": rows of a table were added, or users forgotten, and ``rows`` are its clicks.
    ``receipt`` is what :func:`forget_rows` checked, if it was to write that. ``named`` says by which column of ids, or
    numbers, added rows are named.
    """

    changed: int
    rows: int
    unit: str = "row"
    receipt: Receipt | None = None
    named: str = ""

    def now(self, model: str) -> str:
        """How much there is now."""
        return f"{'the bank of ' if self.unit == 'row' else ''}{model} has {counted(self.rows, self.unit)} now"


def add_table(
    folder: Path,
    source: Path | pd.DataFrame,
    *,
    target: str | None = None,
    id: str | None = None,
    group: str | None = None,
    weight: str | None = None,
    names: Path | pd.DataFrame | None = None,
    new_classes: bool = False,
    epochs: int | None = None,
    root: Path | None = None,
    log: Log = lambda line: None,
    **opening: Unpack[OpenSettings],
) -> BankChange:
    """Add the labelled rows of a table to the bank of the model in ``folder``, all or none, without training.

    Args:
        folder: of the model.
        source: file of the table, or the table itself.
        target: column of labels; None: that of the fit, as for ``id`` and ``group``.
        id: column of ids; without one, rows get the next numbers.
        group: column of groups.
        weight: column of numbers: how much each row counts, in the units of the fit. None: that of the fit if the table
            has it, else each row counts as an average row of the fit. Rows of weight 0 are left out. "auto" (unless
            there is a column of that name): the weight that predicts the new rows best, see
            :meth:`NeighborRegressor.weights_for`.
        names: table of :func:`vicinal.workflows.discover_table` with labels; a group with a single label has that label
            for all of its rows. These labels replace ``target`` and may be new classes; rows without one are left out.
        new_classes: accept classes that the model does not know yet; see :meth:`NeighborRegressor.add`.
        epochs: then train at most so many more epochs on all rows of the bank, with the new ones: see
            :meth:`NeighborRegressor.train_on`.
        root: folder that paths of images and sounds start from; None: that of the file.
        log: gets lines on what was ignored or left out, and on the weight and the training.
        opening: how the model is opened, see :class:`vicinal.estimators.saving.OpenSettings`.

    Raises:
        ValueError: if a label is missing, an id is in the bank already, or rows cannot be used; the folder is
            unchanged.
    """
    if is_recommender(folder):
        if new_classes or any(each is not None for each in (target, id, group, weight, names, epochs)):
            raise ValueError(
                "data: expected no further settings with a recommender, which knows its columns, got some; give the "
                "table alone"
            )
        count, recommender = add_clicks(folder, source, log)
        return BankChange(count, recommender.clicks_.nnz, "click")
    opened = ModelFolder(folder, **opening)
    model = opened.model
    if epochs is not None:
        model.check_trains_on(epochs)
    columns = {
        role: model.notes_.get(role) if name is None else name
        for role, name in (("target", target), ("id", id), ("group", group))
    }
    fitted = model.notes_
    model.notes_ = fitted | {role: name for role, name in columns.items() if name is not None}
    frame = model.form_.read(read_rows(model, source, root, log), model.targets_ or [str(columns["target"])])
    weight = fitted.get("weight") if weight is None and fitted.get("weight") in frame.columns else weight
    chosen = weight == AUTO not in frame.columns
    weight = None if chosen else weight
    frame = without_weightless(frame, weight, log)
    if names is not None:
        column = columns["target"] = columns["target"] or "label"
        frame = _named_rows(frame, names, columns["id"], column, log)
    if model.targets_:
        columns["target"] = None
    elif columns["target"] is None:
        raise ValueError("target: expected the column of labels, as the model does not name one, got none")
    for role, name in columns.items():
        if name is not None:
            check_choice(role, name, frame.columns)
    features = features_of(model, frame, log)
    labels = _labels(model, frame, columns["target"], fitted)
    ids, groups = (_cells(frame, columns[role]) for role in ("id", "group"))
    groups = None if model.bank_.store.group_codes is None else groups
    model.notes_ = fitted  # the names are those of this table; the model's stay
    weights = AUTO if chosen else None if weight is None else read_weights(frame[weight])
    known: dict[str, Any] = {"ids": ids, "groups": groups, "sample_weight": weights}
    log_repeated(model, frame, labels, log, named=columns["id"] in frame.columns)
    added = opened.add(features, labels, **known, new_classes=new_classes or names is not None)
    _finish(opened, added, epochs, log, weighed=chosen)
    numbers = f"the next numbers, from {added[0]} to {added[-1]}" if len(added) else ""
    named = f"column {short(columns['id'])}" if columns["id"] in frame.columns else numbers
    return BankChange(len(frame), len(opened.model.bank_), named=named)


def add_bank(
    folder: Path,
    other: Path,
    *,
    new_classes: bool = False,
    epochs: int | None = None,
    log: Log = lambda line: None,
    **opening: Unpack[OpenSettings],
) -> BankChange:
    """Add the rows of another model of the same fit, with their vectors: as if all had been added to one model.

    Rows that both have are there already, and rows that this model was told to forget stay away.

    Args:
        folder: of the model that gets the rows.
        other: of a copy of it that was given other rows since.
        new_classes: see :func:`add_table`, as for ``epochs``.
        epochs: likewise.
        log: gets lines on what was left out, and on the training.
        opening: how the model is opened, see :class:`vicinal.estimators.saving.OpenSettings`.

    Raises:
        ValueError: for a model of another fit, or a row that has another label there; the folder is unchanged.
    """
    opened, source = ModelFolder(folder, **opening), load_model(other, encoders=opening.get("encoders"))
    model = opened.model
    if epochs is not None:
        model.check_trains_on(epochs)
    _check_same_fit(model, source, folder, other)
    bank = source.bank_
    forgotten = {str(name) for change in model.changes_.history if change.what == "forget" for name in change.ids}
    here = model.bank_.has(bank.ids) | (model.calibration_.has(bank.ids) if len(model.calibration_) else False)
    gone = np.array([str(name) in forgotten for name in bank.ids.tolist()], dtype=bool) & ~here
    for name, one, another in zip(
        bank.ids[here], *(each.labels_of(bank.ids[here]) for each in (model, source)), strict=True
    ):
        if one != another:
            raise ValueError(
                f"from: expected the label {short(one)} of row {short(name)}, as in {short_text(folder, 200)}, got "
                f"{short(another)}; relabel it in one of them"
            )
    at = np.flatnonzero(~here & ~gone)
    if here.any() or gone.any():
        known_rows, left = (counted(int(one.sum()), "row") for one in (here, gone))
        log(f"{known_rows} there already; {left} forgotten earlier, left out")
    if len(at):
        place = torch.from_numpy(at)
        rows = EmbeddedRows(bank.store.rows_at(place), bank.store.vectors_at(place))
        known: dict[str, Any] = bank.who(place)
        known["sample_weight"] = source.given_weights(bank.take(at, cells=False))
        added = opened.add(rows, source.labels_of(bank.ids[at]), **known, new_classes=new_classes)
        _finish(opened, added, epochs, log)
    return BankChange(len(at), len(opened.model.bank_))


def _check_same_fit(model: BankedEstimator, source: BankedEstimator, folder: Path, other: Path) -> None:
    """Raise ValueError unless both embed alike: what was fitted of encoder and projector is equal, bit for bit."""
    parts = [
        {
            name: value
            for part in (one.table_encoder, one.network_.projector)
            for name, value in part.state_dict().items()
        }
        for one in (model, source)
    ]
    same = type(model) is type(source) and parts[0].keys() == parts[1].keys() and model.kinds_ == source.kinds_
    if not same or not all(torch.equal(value, parts[1][name]) for name, value in parts[0].items()):
        raise ValueError(
            f"from: expected a copy of {short_text(folder, 200)} that was given other rows, got a model of another fit "
            f"in {short_text(other, 200)}; add its table"
        )


def _finish(opened: ModelFolder, added: Any, epochs: int | None, log: Log, *, weighed: bool = False) -> None:
    """Say the weight if it was found, continue training, if requested, and rewrite the folder if it is due."""
    if weighed:
        bank = opened.model.bank_
        log(f"each of the new rows counts as {float(bank.mass[bank.store.positions(added)[0]]):g} of the fit")
    if epochs is not None:
        log(f"training on, {counted(epochs, 'epoch')} at most")
        opened.train_on(added, epochs)
    if opened.due:
        opened.compact()


def _named_rows(frame: pd.DataFrame, names: Path | pd.DataFrame, id: str | None, target: str, log: Log) -> pd.DataFrame:
    """The rows that a person named, with the names in the column ``target``."""
    table = read_table(names, ids=["id"], text=["label"]) if isinstance(names, Path) else as_table("names", names)
    for column in ("id", "group", "label"):
        check_choice("names", column, table.columns)
    cells = [
        None if gone else str(cell).strip() or None
        for cell, gone in zip(table["label"].tolist(), missing_cells(table["label"]), strict=True)
    ]
    of_group: dict[Any, set[str]] = {}
    for group, label in zip(table["group"].tolist(), cells, strict=True):
        of_group.setdefault(group, set()).update([label] if label else [])
    one = {group: next(iter(labels)) for group, labels in of_group.items() if len(labels) == 1}
    labels = [label or one.get(group) for group, label in zip(table["group"].tolist(), cells, strict=True)]
    rows = map(spelled, as_texts(canonical_ids("names", table["id"].tolist())).tolist())
    known = dict(zip(rows, labels, strict=True))
    keys = frame[id].tolist() if id is not None and id in frame.columns else frame.index.tolist()
    target_cells = pd.Series(
        [known.get(spelled(key)) for key in as_texts(canonical_ids("ids", keys)).tolist()],
        frame.index,
        dtype=object,
    )
    named = target_cells.notna()
    if not named.any():
        raise ValueError(
            "names: expected a name in the column label of at least one row of this table, got none; write one into a "
            "row of each group that is to be added"
        )
    log(f"{int(named.sum())} rows have a name; {len(frame) - int(named.sum())} have none, and are left out")
    return frame.assign(**{target: target_cells})[named]


def _labels(model: BankedEstimator, frame: pd.DataFrame, target: Any, notes: Mapping[str, Any]) -> list[Any]:
    """Labels out of the cells of a table, as ``model`` takes them: of several targets the numbers of each row.

    They are read as they were meant, by the form of the target of the fit, whatever their column is called.
    """
    if model.targets_:
        for name in model.targets_:
            check_choice("target", name, frame.columns)
        columns = [read_labels(frame[name], classes=False).tolist() for name in model.targets_]
        return list(map(list, zip(*columns, strict=True)))
    cells, form = frame[target], model.form_.columns.get(str(notes.get("target")))
    if form is not None:
        cells = TableForm(columns={target: form}).read(cells.to_frame(target), [target])[target]
    if isinstance(model, EmbeddingLearner):
        return alike_labels(cells, model.labels_, separator_of(model))
    if model.multilabel_:
        empty = missing_cells(cells)
        if empty.any():
            row, column = short_text(cells.index[int(empty.argmax())]), short_text(cells.name)
            raise ValueError(
                f"row {row}, column {column}: expected a label, got an empty cell; leave the row out, or write "
                f"{separator_of(model)} for a row without classes"
            )
        names = {str(name): name for name in model.classes_.tolist()}
        return [[names.get(one, one) for one in cell] for cell in several_names(cells, separator_of(model))]
    return list(read_labels(cells, classes=hasattr(model, "classes_")).tolist())


def relabel_table(
    folder: Path,
    source: Path | pd.DataFrame,
    *,
    target: str | None = None,
    id: str | None = None,
    who: str | None = None,
    **opening: Unpack[OpenSettings],
) -> tuple[BankChange, list[tuple[Any, Any, Any]]]:
    """Give rows of the model in ``folder`` the labels of a table, all or none, without training.

    Args:
        folder: of the model.
        source: file of the table, or the table itself: a column of ids and one of labels.
        target: column of labels; None: that of the fit.
        id: column of ids; None: that of the fit, or "id".
        who: name for the journal; None: the user.
        opening: how the model is opened, see :class:`vicinal.estimators.saving.OpenSettings`.

    Returns:
        the change, and (id, old label, new label) of each row whose label changed.

    Raises:
        ValueError: for an unknown id, an id that appears twice, or a label that the model cannot have.
    """
    opened = ModelFolder(folder, who=who, **opening)
    notes = opened.model.notes_
    target, id = target or notes.get("target"), id or notes.get("id") or "id"
    exact = [name for name in exact_columns(opened.model) if name != id]
    several = opened.model.targets_
    if several is None and target is None:
        raise ValueError("target: expected the column of labels, as the model does not name one, got none")
    frame = (
        read_table(source, ids=[id, *exact], form=opened.model.form_, labels=several or [str(target)])
        if isinstance(source, Path)
        else opened.model.form_.read(as_table("data", source).rename(columns=str), several or [str(target)])
    )
    for role, name in (("id", id), *([("target", target)] if several is None else [])):
        check_choice(role, name, frame.columns)
    ids = canonical_ids("ids", frame[id].tolist(), distinct=True)
    labels = _labels(opened.model, frame, target, notes)
    changed = [row for row in zip(ids.tolist(), opened.model.labels_of(ids), labels, strict=True) if row[1] != row[2]]
    if changed:
        opened.relabel([name for name, _, _ in changed], [new for _, _, new in changed])
    return BankChange(len(changed), len(opened.model.bank_)), changed


def _cells(frame: pd.DataFrame, column: str | None) -> list[Any] | None:
    return None if column is None or column not in frame.columns else frame[column].tolist()


def forget_rows(
    folder: Path,
    ids: Sequence[Any],
    *,
    deep: bool = False,
    receipt: Path | None = None,
    **opening: Unpack[OpenSettings],
) -> BankChange:
    """Remove rows from the model in ``folder``, all or none, with its report and card, which may show them.

    Args:
        folder: of the model.
        ids: of rows of the bank, or of held-out rows; of a recommender, users.
        deep: fit again on the rows that are left, see :meth:`NeighborRegressor.forget`. The folder stays as it was
            until then.
        receipt: file to write, see :func:`vicinal.workflows.receipts.write_receipt`; None, and of a recommender: none.
        opening: how the model is opened, see :class:`vicinal.estimators.saving.OpenSettings`.

    Raises:
        ValueError: for an unknown id, if no row would be left, or if the rows that are left cannot be fitted; the
            folder is unchanged.
    """
    if is_recommender(folder):
        if deep:
            raise ValueError("deep: expected a model of `vicinal fit`, got a recommender; fit it again without them")
        count, recommender = forget_users(folder, ids)
        return BankChange(count, recommender.clicks_.nnz, "click")
    opened = ModelFolder(folder, **opening)
    gone, before = pd.unique(canonical_ids("ids", list(ids))), {} if receipt is None else read_sums(folder)
    banks = (opened.model.bank_, opened.model.calibration_)
    in_bank, held_out = (int(bank.has(gone).sum()) if len(bank) else 0 for bank in banks)
    if deep:
        forget_deeply(folder, gone, opening)
        opened.refresh()
    else:
        opened.forget(gone)
    written = None
    if receipt is not None:
        written = write_receipt(receipt, folder, gone.tolist(), (in_bank, held_out), before, opening, deep=deep)
    return BankChange(len(gone), len(opened.model.bank_), receipt=written)


def read_ids(values: Sequence[str]) -> list[str]:
    """Ids as typed; the name of a table file stands for the ids in its column "id", or its only column.

    A text file has one id per line.

    Raises:
        ValueError: if there is no id, or a table has several columns but none named "id".
    """
    ids: list[str] = []
    for value in values:
        path = Path(value)
        if not path.is_file():
            ids.append(value)
            continue
        if path.suffix in (".txt", ""):
            ids += [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
            continue
        names = [str(name) for name in read_table(path).columns]
        column = "id" if "id" in names else names[0]
        if column != "id" and len(names) > 1:
            raise ValueError(
                f"ids: expected a column id in {short_text(path.name)}, or one column only, got {len(names)} columns"
            )
        ids += read_table(path, ids=[column])[column].tolist()
    if not ids:
        raise ValueError("ids: expected at least one, got none")
    return ids


def embed_table(
    folder: Path,
    source: Path | pd.DataFrame,
    out: str,
    *,
    collection: str = "vicinal",
    root: Path | None = None,
    log: Log = lambda line: None,
    **opening: Unpack[OpenSettings],
) -> tuple[int, int]:
    """Write the vectors of the rows of a table.

    Args:
        folder: of the model.
        source: file of the table, or the table itself.
        out: a file name that ends in .parquet (columns ``id`` and ``vector``) or .npy (float32 ``[n, d]``), or
            ``milvus:URI``, a database to which the rows are added.
        collection: in that database.
        root: folder that paths of images and sounds start from; None: that of the file.
        log: gets what was ignored.
        opening: how the model is opened, see :class:`vicinal.estimators.saving.OpenSettings`.

    Returns:
        the number of rows and the width of the vectors.

    Raises:
        ValueError: for another file name, or ids that the database cannot take.
    """
    kind, _, uri = out.partition(":")
    path = Path() if kind == "milvus" else _vector_file(out)
    model = load_model(folder, **opening)
    frame = read_rows(model, source, root, log)
    ids = _cells(frame, model.notes_.get("id")) or frame.index.tolist()
    with unwarned(IdentityWarning):
        vectors = model.embed(features_of(model, frame, log)).astype(np.float32)
    if kind == "milvus":
        _to_milvus(model, uri, collection, ids, vectors)
    elif path.suffix == ".parquet":
        write_table(pd.DataFrame({"id": ids, "vector": list(vectors)}), path)
    else:
        with replaced_file(path) as aside, aside.open("wb") as file:
            np.save(file, vectors, allow_pickle=False)
    return vectors.shape[0], vectors.shape[1]


def _vector_file(out: str) -> Path:
    path = local_path("out", out, written=True)
    if path.suffix not in (".parquet", ".npy"):
        raise ValueError(f"out: expected a name that ends in .parquet or .npy, or milvus:URI, got {short(out)}")
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise ValueError(f"out: expected a file in a folder that is there, got {short_text(path, 200)}")
    return path


def _to_milvus(model: BankedEstimator, uri: str, collection: str, ids: list[Any], vectors: np.ndarray) -> None:
    from vicinal.index import open_index

    keys = canonical_ids("ids", ids, distinct=True)
    if keys.dtype != np.int64 or (keys < 0).any():
        raise ValueError(
            f"ids: expected whole numbers of at least 0, as the database takes no others, got {short(keys[0])}; write "
            "a .parquet file, or give the rows numbers"
        )
    similarity = model.fitted_similarity()
    index = open_index(f"milvus:{uri}", dim=vectors.shape[1], similarity=similarity, collection=collection)
    with closing(index):
        index.add(keys, torch.from_numpy(vectors))
