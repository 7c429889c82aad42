"""The saved form of a neighbor estimator: a folder of JSON, safetensors and parquet, never pickle."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.torch import save_file
from torch import Tensor

import vicinal
from vicinal.core import ECHO, entry, local_path, short_text
from vicinal.core.folders import MARKERS, SUMS, check_sums, read_sums, read_whole, staged_folder
from vicinal.core.untrusted import LARGEST_SETTINGS, check_inside, read_settings, read_tensors, tensor_header
from vicinal.encoders import TableEncoder, thumbnail
from vicinal.estimators.bank import Bank
from vicinal.estimators.building import make_network
from vicinal.estimators.indexing import SavedNear
from vicinal.estimators.neighborhood import BankedEstimator
from vicinal.estimators.neighbors import NeighborClassifier, NeighborRegressor
from vicinal.estimators.schema import (
    VERSION,
    SavedConfig,
    allowed_index,
    check_bank,
    check_encoder_columns,
    saved_config,
    with_allowed_encoders,
)
from vicinal.index.bank_files import ROWS
from vicinal.training import NeighborNetwork, TrainingHistory

CONFIG, MODEL, HELD = MARKERS["model"], "model.safetensors", "held"
_VERIFIED = 1 << 26
"""Bytes of a bank up to which all of it is checked when it is loaded."""
_LOCAL = ("root", "cache_dir", "checkpoint_dir", "progress", "logger")
"""Parameters that say where and how a run is made, not what is fitted; they are not saved."""
_CLASSES: dict[str, type[BankedEstimator]] = {"regression": NeighborRegressor, "classification": NeighborClassifier}


def save_model(model: BankedEstimator, folder: str | Path, notes: dict[str, Any] | None = None) -> None:
    """Write a fitted estimator as a folder; see :func:`write_model`.

    An earlier model there is replaced at the end, and with it its card and report, which may show forgotten rows.

    Args:
        model: fitted.
        folder: new, empty, or of an earlier model.
        notes: see :func:`write_model`; None: those that the model was loaded with.
    """
    with staged_folder(Path(folder)) as stage:
        write_model(model, stage, getattr(model, "notes_", {}) if notes is None else notes)


def write_model(model: BankedEstimator, stage: Path, notes: dict[str, Any] | None = None) -> None:
    """Write the files of a model into an empty folder.

    ``config.json`` (settings, versioned), ``model.safetensors`` (weights; not those that a pinned package carries), the
    bank as :meth:`vicinal.index.NeighborBank.save` writes it (``bank.json``, ``bank.safetensors``, ``rows.parquet``
    with the rows as explanations show them, ``names.parquet`` with ids and groups that are words), the rows held out,
    in the same form, in the folder ``held``, and, with an index, the folder ``index`` and ``cells.safetensors``.

    Args:
        model: fitted.
        stage: empty folder.
        notes: JSON values to keep with the model, as target and task of the command line.
    """
    (stage / CONFIG).write_text(_config(model, notes or {}).model_dump_json(indent=1) + "\n", encoding="utf-8")
    save_file(_weights(model), stage / MODEL)
    model.bank_.store.write(stage, _shown_rows(model, model.bank_))
    with staged_folder(stage / HELD, "bank") as held:
        model.calibration_.store.write(held, _shown_rows(model, model.calibration_))
    near = model._near()
    if near is not None:
        near.save(stage)


def load_model(
    folder: str | Path,
    *,
    index: str | None = None,
    encoders: Mapping[str, str] | None = None,
    verify: bool = False,
) -> BankedEstimator:
    """The estimator saved in ``folder``, which may come from anybody: see "Threats and promises" in the documentation.

    The bank is mapped from its files, not read: a large one costs memory only where it is used, and loads at once. Its
    files may be replaced while the model is in use, but not changed in place.

    Args:
        folder: as :func:`save_model` wrote it.
        index: the index to use, as :func:`vicinal.index.open_index` takes it. None: the saved one, unless it is at a
            path or an address: that has to be given again.
        encoders: names of encoders by column or kind. Those that the model was fitted with; only those out of a folder
            or from the hub have to be given again, and a folder may have moved.
        verify: read and check a large bank whole, too; that of up to 64 MiB always is, and of a larger one each row is
            checked to be finite when it is first used.

    Raises:
        ValueError: if the folder is not a model, was torn or edited, or is of a newer version, and says which file; or
            if it names a path or an address that was not given again.
    """
    folder = local_path("model", folder)
    if folder.is_file():
        raise ValueError(
            f"model: expected a model folder, got the file {short_text(folder, ECHO)}; the model comes first and the "
            "table second, as in: vicinal predict MODEL DATA"
        )
    model, sums = read_whole(folder, lambda place: _load_with_index(place, index, encoders, verify=verify))
    if model.index is not None and _in_database(model.index):
        model._near_saved = SavedNear(folder, sums)
    return model


def _load_with_index(
    folder: Path, index: str | None, encoders: Mapping[str, str] | None, *, verify: bool
) -> tuple[BankedEstimator, dict[str, str]]:
    """The model with the checksums of its folder; an index in files is read at once, as they may be replaced."""
    model, sums = _load(folder, index, encoders, verify=verify), read_sums(folder)
    if model.index is not None and not _in_database(model.index):
        model._near_saved = SavedNear(folder, sums)
        model._near()
    return model, sums


def _in_database(index: str) -> bool:
    """Whether an index lies elsewhere, where no connection is made before it is asked."""
    return "persistent" in entry("index", index.partition(":")[0]).facts


def _load(folder: Path, index: str | None, encoders: Mapping[str, str] | None, *, verify: bool) -> BankedEstimator:
    if not folder.is_dir():
        raise ValueError(f"model: expected a model folder, got {short_text(folder, ECHO)}, which is not there")
    check_inside(folder, SUMS, CONFIG, MODEL, HELD)
    check_sums(folder, (CONFIG,), largest=LARGEST_SETTINGS)
    check_sums(folder, (MODEL,))
    saved = read_settings(folder / CONFIG, SavedConfig, "a vicinal model", newest=VERSION, oldest=VERSION)
    config = with_allowed_encoders(saved, encoders)
    parameters = config.parameters.model_dump()
    parameters |= {
        "hidden": tuple(config.parameters.hidden),
        "index": allowed_index(config.parameters.index, index),
    }
    model = _CLASSES[config.task](**parameters)
    model.kinds_ = config.kinds
    model.n_features_in_ = config.n_features
    if config.features is not None:
        model.feature_names_in_ = np.array(config.features, dtype=object)
    if config.classes is not None:
        model.classes_ = np.array(config.classes)
    if config.label_range is not None:
        model.label_range_ = config.label_range
    model.history_ = TrainingHistory(config.train_error, config.validation_error, config.best_epoch)
    model.notes_ = config.notes
    with torch.random.fork_rng():  # a model of the hub draws weights that it overwrites
        model.network_ = _read_network(folder / MODEL, config)
    model.bank_, model.calibration_ = (_load_bank(part, config, verify=verify) for part in (folder, folder / HELD))
    if len(model.bank_) == 0:
        raise ValueError(f"bank.json: expected rows to predict from in {folder}, got none")
    return model


def _read_network(path: Path, config: SavedConfig) -> NeighborNetwork:
    """The network of a model: first without memory, to compare the file with it, then with the weights of the file."""
    encoder = TableEncoder.from_config(config.encoder.model_dump(), empty=True)
    check_encoder_columns(encoder, config)
    gain = tensor_header(path).get("projector.gain")
    if gain is None or gain[0][:1] != (config.parameters.members,):  # before that many members are made
        raise ValueError(f"{path.name}: expected the weights of {config.parameters.members} members, got others")
    start = torch.zeros(()) if config.classes is None else torch.zeros(len(config.classes))
    with torch.device("meta"):
        network = make_network(config.parameters.model_dump(), encoder, encoder.dim, start)
    network.projector.double()
    network.head.double()
    wanted = {f"encoder.{name}": value for name, value in encoder.trained_state().items()}
    for part in ("projector", "head"):
        wanted |= {f"{part}.{name}": value for name, value in getattr(network, part).state_dict().items()}
    state = read_tensors(path, wanted)
    for part in ("encoder", "projector", "head"):
        own = {name.removeprefix(f"{part}."): value for name, value in state.items() if name.startswith(f"{part}.")}
        if part == "encoder":
            encoder.load_trained_state(own)
        else:
            getattr(network, part).load_state_dict(own, assign=True)
    return network.eval()


def _load_bank(folder: Path, config: SavedConfig, *, verify: bool) -> Bank:
    rows = folder / ROWS
    small = not rows.is_file() or rows.stat().st_size <= _VERIFIED
    bank = Bank.load(folder, verify=verify or small)
    check_bank(bank, config, folder)
    return bank


def _config(model: BankedEstimator, notes: dict[str, Any]) -> SavedConfig:
    parameters = {k: v for k, v in model.get_params(deep=False).items() if k not in _LOCAL}
    if not isinstance(parameters["random_state"], int):
        parameters["random_state"] = None
    classes = getattr(model, "classes_", None)
    names = getattr(model, "feature_names_in_", None)
    return saved_config(
        {
            "version": VERSION,
            "vicinal": vicinal.__version__,
            "task": "regression" if classes is None else "classification",
            "parameters": parameters,
            "kinds": dict(model.kinds_),
            "encoder": model.table_encoder.config(),
            "features": None if names is None else [str(name) for name in names],
            "n_features": model.n_features_in_,
            "classes": None if classes is None else classes.tolist(),
            "label_range": getattr(model, "label_range_", None),
            "train_error": model.history_.train_error,
            "validation_error": model.history_.validation_error,
            "best_epoch": model.history_.best_epoch,
            "notes": notes,
        }
    )


def _weights(model: BankedEstimator) -> dict[str, Tensor]:
    network = model.network_
    state = {f"encoder.{name}": value for name, value in model.table_encoder.trained_state().items()}
    for part in ("projector", "head"):
        for name, value in getattr(network, part).state_dict().items():
            state[f"{part}.{name}"] = value
    return {name: value.detach().contiguous().clone() for name, value in state.items()}


def _shown_rows(model: BankedEstimator, bank: Bank) -> pd.DataFrame:
    """The rows of a bank as explanations show them."""
    rows = bank.rows
    for name in rows.columns:
        if rows[name].dtype == object:
            rows[name] = [shown_cell(cell, model.kinds_.get(name)) for cell in rows[name]]
    return rows


def shown_cell(cell: Any, kind: str | None) -> Any:
    """A cell as explanations show it: an image as a thumbnail, a sound only by its path, the rest as it is."""
    content = cell.get("bytes") if isinstance(cell, dict) else cell
    if isinstance(content, bytes | bytearray):
        return thumbnail(bytes(content)) if kind == "image" else None
    if isinstance(cell, dict):
        return cell.get("path")
    if isinstance(cell, list | tuple | np.ndarray):
        return None
    return cell if cell is None or isinstance(cell, str) else str(cell)
