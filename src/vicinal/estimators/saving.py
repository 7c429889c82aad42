"""The saved form of a neighbor estimator: a folder of JSON, safetensors and parquet, never pickle."""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import pandas as pd
import torch
from safetensors.torch import save_file

from vicinal.core import entry, short
from vicinal.core.checks import ECHO, local_path, short_text
from vicinal.core.folders import CHANGES, MARKERS, SUMS, check_sums, read_sums, read_whole, staged_folder
from vicinal.core.seeding import seeded
from vicinal.core.untrusted import LARGEST_SETTINGS, check_inside, read_settings
from vicinal.data import TableForm
from vicinal.data.column_form import ColumnForm
from vicinal.encoders import thumbnail
from vicinal.encoders.category import level_of
from vicinal.encoders.kinds import is_gap, is_list
from vicinal.estimators.bank import Bank
from vicinal.estimators.base import NeighborEstimator
from vicinal.estimators.fitted import FittedModel
from vicinal.estimators.indexing import NearBank, SavedNear
from vicinal.estimators.journal import Changes, read_changes, write_changes
from vicinal.estimators.label_codec import ClassCodec, LabelCodec, LikenessCodec, NumberCodec
from vicinal.estimators.network import check_readout
from vicinal.estimators.presets import changed_settings, settings_of
from vicinal.estimators.saved_config import (
    VERSION,
    SavedConfig,
    SavedParameters,
    allowed_index,
    check_bank,
    saved_config,
    with_allowed_encoders,
)
from vicinal.estimators.saved_network import (
    blended_readouts,
    fold_heads,
    fold_readouts,
    network_weights,
    read_network,
    tree_files,
)
from vicinal.heads.kinds import blends, weighs_locally
from vicinal.index.bank_files import ROWS
from vicinal.training.history import TrainingHistory
from vicinal.version import __version__

CONFIG, MODEL, HELD_OUT = MARKERS["model"], "model.safetensors", "held"
_ELEMENTS = 256
"""Elements of a set that are kept to show it."""

_VERIFIED = 1 << 26
"""Bytes of a bank up to which all of it is checked when it is loaded."""


class OpenSettings(TypedDict, total=False):
    """How a saved model is opened, beside its folder: see :func:`vicinal.estimators.load_model`.

    Attributes:
        index: the index to use; None: the saved one.
        encoders: names by column or kind of encoders that lie in a folder or on the hub.
    """

    index: str | None
    encoders: Mapping[str, str] | None


def save_model(model: NeighborEstimator, folder: str | Path, notes: dict[str, Any] | None = None) -> None:
    """Write a fitted estimator as a folder; see :func:`write_model`.

    An earlier model there is replaced only at the end, together with its card and report, which may show forgotten
    rows.

    Args:
        model: fitted.
        folder: new, empty, or of an earlier model.
        notes: see :func:`write_model`; None: the notes that the model was loaded with.
    """
    with staged_folder(Path(folder)) as stage:
        write_model(model, stage, getattr(model, "notes_", {}) if notes is None else notes)


def write_model(model: NeighborEstimator, stage: Path, notes: dict[str, Any] | None = None) -> None:
    """Write the files of a model into an empty folder.

    ``config.json`` (settings, versioned), ``model.safetensors`` (weights; not those that a pinned package carries), the
    bank as :meth:`vicinal.index.NeighborBank.save` writes it (``bank.json``, ``bank.safetensors``, ``rows.parquet``
    with the rows as explanations show them, ``names.parquet`` with ids and groups that are words), the rows held out,
    in the same form, in the folder ``held``, and, with an index, the folder ``index``; and
    the history of relabels, ``changes.jsonl``.

    Args:
        model: fitted.
        stage: empty folder.
        notes: JSON values to keep with the model, as target and task of the command line.
    """
    config = saved_config(saved_values(model, notes or {}))
    (stage / CONFIG).write_text(config.model_dump_json(indent=1) + "\n", encoding="utf-8")
    save_file(network_weights(model), stage / MODEL)
    for name, text in tree_files(model.network_.projector).items():
        (stage / name).write_text(text, encoding="utf-8")
    model.bank_.store.write(stage, _shown_rows(model, model.bank_))
    with staged_folder(stage / HELD_OUT, "bank") as folder:
        model.calibration_.store.write(folder, _shown_rows(model, model.calibration_))
    if model.fitted_.near is not None:
        model.fitted_.near.save(stage)
    write_changes(stage, model.changes_)


def read_model(
    folder: str | Path, classes: Mapping[str, type[NeighborEstimator]], opening: OpenSettings, *, verify: bool
) -> NeighborEstimator:
    """The estimator saved in ``folder``, of the class of its task: see :func:`vicinal.estimators.load_model`."""
    folder = local_path("model", folder)
    if folder.is_file():
        raise ValueError(
            f"model: expected a model folder, got the file {short_text(folder, ECHO)}; the model comes first and the "
            "table second, as in: vicinal predict MODEL DATA"
        )
    load = partial(_load, classes=classes, opening=opening, verify=verify)
    model, sums = read_whole(folder, lambda place: _with_changes(load(place), place))
    if model.index is not None and _in_database(model.index):  # opened when it is asked for, and compared then
        _attach_index(model, SavedNear(model.index, folder, sums))
    return model


def _attach_index(model: NeighborEstimator, saved: SavedNear) -> None:
    head = model.network_.head
    if blends(head):
        raise ValueError(
            "index: expected None for the mean of trees and a kernel, which find rows in two ways, got "
            f"{short_text(str(model.index), ECHO)}; fit with metric='trees' or 'kernel' for an index"
        )
    if weighs_locally(head):  # attention was read over an index by earlier versions, too
        model.fitted_ = replace(model.fitted_, near=NearBank(head, model.bank_.store, saved))


def _with_changes(model: NeighborEstimator, folder: Path) -> tuple[NeighborEstimator, dict[str, str]]:
    """The model with the checksums of its folder; an index in files is read at once, as they may be replaced."""
    sums = read_sums(folder)
    if model.index is not None and not _in_database(model.index):
        _attach_index(model, SavedNear(model.index, folder, sums))
        _ = None if model.fitted_.near is None else model.fitted_.near.index
    changes, before = read_changes(folder)[0], model.changes_.sequence
    model.changes_ = Changes(before, 0, tuple(c for c in changes if c.sequence <= before and c.what != "add"))
    for change in changes:
        if change.sequence > before:
            model.apply_change(change)
    return model, sums


def _in_database(index: str) -> bool:
    """Whether an index lies elsewhere, where no connection is made before it is asked."""
    return "persistent" in entry("index", index.partition(":")[0]).facts


def _load(
    folder: Path, classes: Mapping[str, type[NeighborEstimator]], opening: OpenSettings, *, verify: bool
) -> NeighborEstimator:
    if not folder.is_dir():
        raise ValueError(f"model: expected a model folder, got {short_text(folder, ECHO)}, which is not there")
    check_inside(folder, SUMS, CONFIG, MODEL, HELD_OUT, CHANGES)
    check_sums(folder, (CONFIG,), largest=LARGEST_SETTINGS)
    check_sums(folder, (MODEL,))
    saved = read_settings(folder / CONFIG, SavedConfig, "a vicinal model", newest=VERSION, oldest=VERSION)
    config = with_allowed_encoders(saved, opening.get("encoders"))
    index = allowed_index(config.parameters.index, opening.get("index"))
    parameters = config.parameters.model_dump() | {"hidden": tuple(config.parameters.hidden), "index": index}
    check_readout(parameters, classes=bool(config.classes))
    known = classes[config.task]().get_params(deep=False)
    model = classes[config.task](**{name: value for name, value in parameters.items() if name in known})
    if config.task == "similarity":
        model.labels_, model.start_, model.learned_ = config.parameters.labels, config.start, bool(config.learned)
    model.kinds_ = config.kinds
    model.n_features_in_ = config.n_features
    if config.features is not None:
        model.feature_names_in_ = np.array(config.features, dtype=object)
    model.form_ = _former_form(config) if config.form is None else config.form
    model.notes_, model.plan_ = config.notes, config.plan
    model.changes_ = Changes(config.sequence)
    with seeded():  # a model of the hub draws weights that it overwrites
        network, attention = read_network(folder / MODEL, config)
    bank, held_out = (_load_bank(part, config, network.width, verify=verify) for part in (folder, folder / HELD_OUT))
    if len(bank) == 0:
        raise ValueError(f"bank.json: expected rows to predict from in {folder}, got none")
    history = TrainingHistory(config.train_error, config.validation_error, config.best_epoch)
    model.fitted_ = FittedModel(
        _codec(config),
        network,
        bank,
        held_out,
        config.fitted_metric,
        history,
        config.parameters.members,
        config.folds,
        fold_heads(config, attention),
        weight_unit=config.weight_unit,
        adaptation=config.adaptation,
        forecasts=tuple(config.forecasts),
        trials=tuple(config.trials),
    )
    return model


def _codec(config: SavedConfig) -> LabelCodec:
    """The codec of the labels of a saved model."""
    classes, ends = np.array(config.classes or [], dtype=None if config.classes else object), config.label_range
    if config.task == "similarity":
        return LikenessCodec(
            config.transform, classes, form=config.label_form, several=config.parameters.labels == "several"
        )
    if config.classes:
        return ClassCodec(config.transform, classes, multilabel=config.multilabel)
    if config.targets is None:
        return NumberCodec(config.transform, ends=ends or (0.0, 1.0), form=config.label_form)
    low, high = (torch.tensor(each, dtype=torch.float64) for each in ends or ())
    return NumberCodec(config.transform, targets=config.targets, ends=(low, high), form=config.label_form)


def _former_form(config: SavedConfig) -> TableForm:
    """How a folder from before forms were kept reads columns: numbers of any unit, truth values in any spelling."""
    columns = {}
    for name, kind in config.kinds.items() if config.features is not None else ():
        if kind == "number":
            columns[name] = ColumnForm(kind="number", unitless=True)
    for part in config.encoder.parts:
        levels, names = part.get("levels"), part.get("columns")
        if isinstance(levels, list) and isinstance(names, list):
            for column, some in zip(names, levels, strict=False):
                if isinstance(some, list) and some and set(map(str, some)) <= {"True", "False"}:
                    columns[str(column)] = ColumnForm(kind="truth")
    return TableForm(columns=columns)


def _load_bank(folder: Path, config: SavedConfig, width: int, *, verify: bool) -> Bank:
    rows = folder / ROWS
    small = not rows.is_file() or rows.stat().st_size <= _VERIFIED
    bank = Bank.load(folder, verify=verify or small)
    check_bank(bank, config, width, folder)
    return bank


def saved_values(model: NeighborEstimator, notes: dict[str, Any]) -> dict[str, Any]:
    """What ``config.json`` says of a fitted model, not checked yet."""
    known = [name for name in SavedParameters.model_fields if hasattr(model, name)]
    settings = settings_of(model)
    parameters = {name: settings.get(name, getattr(model, name)) for name in known}
    if hasattr(model, "labels_"):
        parameters["labels"] = model.labels_
    if not isinstance(parameters["random_state"], int):
        parameters["random_state"] = None
    sets = {part.columns[0]: part.name for part in model.table_encoder.encoders if part.kind == "set"}
    parameters["encoders"] = (model.named_encoders() | sets) or None
    codec = model.fitted_.codec
    names = getattr(model, "feature_names_in_", None)
    changed = [name for name in changed_settings(model) if name in known and name not in ("columns", "encoders")]
    return {
        "version": VERSION,
        "vicinal": __version__,
        "task": task_of(model),
        "parameters": parameters,
        "kinds": dict(model.kinds_),
        "encoder": model.table_encoder.config(),
        "features": None if names is None else [str(name) for name in names],
        "n_features": model.n_features_in_,
        "classes": codec.classes.tolist() or None,
        "multilabel": codec.multilabel,
        "targets": codec.targets,
        "transform": codec.transform.model_dump(),
        "form": model.form_.model_dump(exclude_defaults=True),
        "label_form": codec.form.model_dump(exclude_defaults=True),
        "label_range": tuple(np.asarray(end).tolist() for end in codec.ends)
        if isinstance(codec, NumberCodec)
        else None,
        "train_error": model.history_.train_error,
        "validation_error": model.history_.validation_error,
        "best_epoch": model.history_.best_epoch,
        "folds": model.folds_,
        "fold_readouts": fold_readouts(model),
        "kriging": weighs_locally(model.network_.head),
        "neighbors": model.network_.head.k if weighs_locally(model.network_.head) else None,
        "whole_up_to": getattr(model.network_.head, "whole_up_to", 0),
        "rank": getattr(model.network_.projector, "rank", None),
        "start": getattr(model, "start_", None),
        "learned": getattr(model, "learned_", None),
        "metric": model.metric_,
        "trend": getattr(model.network_.head, "trend", None),
        "blend": blended_readouts(model.network_.head),
        "cross_fits": getattr(model.network_.projector, "folds", None) if model.network_.cross_fitted else None,
        "plan": model.plan_,
        "weight_unit": model.weight_unit_,
        "sequence": model.changes_.sequence,
        "adaptation": None if model.fitted_.adaptation is None else model.fitted_.adaptation.model_dump(),
        "forecasts": [one.model_dump() for one in model.fitted_.forecasts],
        "trials": [trial.model_dump(exclude={"seconds"}) for trial in model.fitted_.trials],
        "changed": changed,
        "notes": notes,
    }


def facts_of(model: NeighborEstimator) -> dict[str, Any]:
    """What ``vicinal show --json`` says of a fitted model, but for its files; of a loss that is a module its name."""
    from vicinal.report.summary import ModelSettings, model_facts  # pages take a while to import

    values = json.dumps(saved_values(model, getattr(model, "notes_", {})), default=short)
    return model_facts(ModelSettings.model_validate_json(values), len(model.bank_), len(model.calibration_))


def task_of(model: NeighborEstimator) -> str:
    """The task by which a folder names what it holds."""
    if hasattr(model, "start_"):
        return "similarity"
    return "classification" if model.fitted_.codec.kind == "classes" else "regression"


def _shown_rows(model: NeighborEstimator, bank: Bank) -> pd.DataFrame:
    """The rows of a bank as explanations show them."""
    rows = model.form_.written(bank.rows)
    rows.attrs = {}  # which parquet would write beside the rows, as it would levels that no row has
    for name in rows.columns:
        if rows[name].dtype == object or isinstance(rows[name].dtype, pd.CategoricalDtype):
            rows[name] = [shown_cell(cell, model.kinds_.get(name)) for cell in rows[name]]
    return rows


def shown_cell(cell: Any, kind: str | None) -> Any:
    """A cell as explanations show it: an image as a thumbnail, a sound only by its path, a set's first elements.

    A gap is None, and a number in a column of categories is the name of its level, so that the cell is read again as
    what it was.

    >>> shown_cell(float("nan"), "category"), shown_cell(1.0, "category"), shown_cell(["a", None], "set")
    (None, '1', '["a", null]')
    """
    if is_gap(cell):
        return None
    if kind == "set" and is_list(cell):
        return json.dumps(list(map(_plain, list(cell)[:_ELEMENTS])), default=_plain, ensure_ascii=False)
    content = cell.get("bytes") if isinstance(cell, dict) else cell
    if isinstance(content, bytes | bytearray):
        return thumbnail(bytes(content)) if kind == "image" else None
    if isinstance(cell, dict):
        return cell.get("path")
    if isinstance(cell, list | tuple | np.ndarray):
        return None
    if isinstance(cell, str):
        return cell
    return level_of(cell) if kind == "category" else str(cell)


def _plain(element: Any) -> Any:
    """An element of a set as JSON has it: a gap is None, and a file its path, or not there at all."""
    if is_gap(element):
        return None
    if isinstance(element, np.ndarray | np.generic):
        return element.tolist()
    if isinstance(element, bytes | bytearray | dict):
        return element.get("path") if isinstance(element, dict) else None
    return element if isinstance(element, list | tuple | str | int | float) else str(element)
