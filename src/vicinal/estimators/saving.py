"""The saved form of a neighbor estimator: a folder of JSON, safetensors and parquet, never pickle."""

import io
import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors.torch import load_file, save_file
from torch import Tensor

import vicinal
from vicinal.core import ECHO, entry, local_path, short, short_text
from vicinal.core.folders import MARKERS, check_sums, read_sums, read_whole, staged_folder
from vicinal.encoders import Kind, TableEncoder
from vicinal.estimators.bank import Bank
from vicinal.estimators.building import make_network
from vicinal.estimators.indexing import SavedNear
from vicinal.estimators.neighborhood import BankedEstimator
from vicinal.estimators.neighbors import NeighborClassifier, NeighborRegressor
from vicinal.index.bank_files import ROWS, write_bank
from vicinal.training import TrainingHistory

VERSION = 2
"""Version of the folder's layout; folders of other versions are refused."""

CONFIG, MODEL, HELD = MARKERS["model"], "model.safetensors", "held"
_VERIFIED = 1 << 26
"""Bytes of a bank up to which all of it is checked when it is loaded."""
_LOCAL = ("root", "cache_dir", "checkpoint_dir", "progress", "logger")
"""Parameters that say where and how a run is made, not what is fitted; they are not saved."""
_CLASSES: dict[str, type[BankedEstimator]] = {"regression": NeighborRegressor, "classification": NeighborClassifier}


class SavedConfig(BaseModel):
    """What ``config.json`` holds."""

    model_config = ConfigDict(extra="forbid")

    format: Literal["vicinal-model"] = "vicinal-model"
    version: int
    vicinal: str
    task: Literal["regression", "classification"]
    parameters: dict[str, Any]
    kinds: dict[str, Kind]
    encoder: dict[str, Any]
    features: list[str] | None
    n_features: int
    classes: list[str | int | float | bool] | None
    label_range: tuple[float, float] | None
    train_error: list[float]
    validation_error: list[float]
    best_epoch: int
    notes: dict[str, Any] = {}


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
    write_bank(model.bank_.store, stage, _shown_rows(model, model.bank_))
    with staged_folder(stage / HELD, "bank") as held:
        write_bank(model.calibration_.store, held, _shown_rows(model, model.calibration_))
    near = model._near()
    if near is not None:
        near.save(stage)


def load_model(folder: str | Path, *, verify: bool = False) -> BankedEstimator:
    """The estimator saved in ``folder``.

    The bank is mapped from its files, not read: a large one costs memory only where it is used, and loads at once. Its
    files may be replaced while the model is in use, but not changed in place.

    Args:
        folder: as :func:`save_model` wrote it.
        verify: read and check a large bank whole, too; that of up to 64 MiB always is.

    Raises:
        ValueError: if the folder is not a model, was torn or edited, or is of a newer version; it says which file.
    """
    folder = local_path("model", folder)
    if folder.is_file():
        raise ValueError(
            f"model: expected a model folder, got the file {short_text(folder, ECHO)}; the model comes first and the "
            "table second, as in: vicinal predict MODEL DATA"
        )
    model, sums = read_whole(folder, lambda place: _load_with_index(place, verify=verify))
    if model.index is not None and _in_database(model.index):
        model._near_saved = SavedNear(folder, sums)
    return model


def _load_with_index(folder: Path, *, verify: bool) -> tuple[BankedEstimator, dict[str, str]]:
    """The model with the checksums of its folder; an index in files is read at once, as they may be replaced."""
    model, sums = _load(folder, verify=verify), read_sums(folder)
    if model.index is not None and not _in_database(model.index):
        model._near_saved = SavedNear(folder, sums)
        model._near()
    return model, sums


def _in_database(index: str) -> bool:
    """Whether an index lies elsewhere, where no connection is made before it is asked."""
    return "persistent" in entry("index", index.partition(":")[0]).facts


def _load(folder: Path, *, verify: bool) -> BankedEstimator:
    if not folder.is_dir():
        raise ValueError(f"model: expected a model folder, got {short_text(folder, ECHO)}, which is not there")
    check_sums(folder, (CONFIG, MODEL))
    config = _read_config(folder / CONFIG)
    parameters: dict[str, Any] = {k: tuple(v) if k == "hidden" else v for k, v in config.parameters.items()}
    model = _CLASSES[config.task](**parameters)
    model.kinds_ = config.kinds
    model.n_features_in_ = config.n_features
    if config.features is not None:
        model.feature_names_in_ = np.array(config.features, dtype=object)
    start = torch.zeros(())
    if config.classes is not None:
        model.classes_ = np.array(config.classes)
        start = torch.zeros(len(config.classes))
    if config.label_range is not None:
        model.label_range_ = config.label_range
    model.history_ = TrainingHistory(config.train_error, config.validation_error, config.best_epoch)
    model.notes_ = config.notes
    with torch.random.fork_rng():  # the random weights that are overwritten next cost the user no random numbers
        encoder = TableEncoder.from_config(config.encoder)
        network = make_network(model.get_params(deep=False), encoder, encoder.dim, start)
    network.projector.double()
    network.head.double()
    _load_weights(network, load_file(folder / MODEL))
    model.network_ = network.eval()
    model.bank_, model.calibration_ = (_load_bank(part, verify=verify) for part in (folder, folder / HELD))
    return model


def _load_bank(folder: Path, *, verify: bool) -> Bank:
    rows = folder / ROWS
    small = not rows.is_file() or rows.stat().st_size <= _VERIFIED
    return Bank.load(folder, verify=verify or small)


def _config(model: BankedEstimator, notes: dict[str, Any]) -> SavedConfig:
    parameters = {k: v for k, v in model.get_params(deep=False).items() if k not in _LOCAL}
    if not isinstance(parameters["random_state"], int):
        parameters["random_state"] = None
    for name, value in parameters.items():
        try:
            json.dumps(value)
        except TypeError as wrong:
            raise ValueError(f"{name}: expected a value with a name, to be saved, got {short(value)}") from wrong
    classes = getattr(model, "classes_", None)
    names = getattr(model, "feature_names_in_", None)
    return SavedConfig(
        version=VERSION,
        vicinal=vicinal.__version__,
        task="regression" if classes is None else "classification",
        parameters=parameters,
        kinds=dict(model.kinds_),
        encoder=model.table_encoder.config(),
        features=None if names is None else [str(name) for name in names],
        n_features=model.n_features_in_,
        classes=None if classes is None else classes.tolist(),
        label_range=getattr(model, "label_range_", None),
        train_error=model.history_.train_error,
        validation_error=model.history_.validation_error,
        best_epoch=model.history_.best_epoch,
        notes=notes,
    )


def _read_config(path: Path) -> SavedConfig:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        version = raw["version"]
    except (json.JSONDecodeError, KeyError, TypeError) as wrong:
        raise ValueError(f"{path.name}: expected the settings of a vicinal model, got other content") from wrong
    if version != VERSION:
        older = isinstance(version, int) and version < VERSION
        remedy = "fit it again" if older else "update vicinal to load this model"
        raise ValueError(f"{path.name}: expected format version {VERSION}, got {version}; {remedy}")
    try:
        return SavedConfig.model_validate(raw)
    except ValidationError as wrong:
        first = wrong.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{path.name}: expected valid settings, got {first['msg']} at {where!r}") from wrong


def _weights(model: BankedEstimator) -> dict[str, Tensor]:
    network = model.network_
    state = {f"encoder.{name}": value for name, value in model.table_encoder.trained_state().items()}
    for part in ("projector", "head"):
        for name, value in getattr(network, part).state_dict().items():
            state[f"{part}.{name}"] = value
    return {name: value.detach().contiguous().clone() for name, value in state.items()}


def _load_weights(network: torch.nn.Module, state: dict[str, Tensor]) -> None:
    for part in ("encoder", "projector", "head"):
        own = {name.removeprefix(f"{part}."): value for name, value in state.items() if name.startswith(f"{part}.")}
        module = getattr(network, part)
        if part == "encoder":
            module.load_trained_state(own)
        else:
            module.load_state_dict(own)


def _shown_rows(model: BankedEstimator, bank: Bank) -> pd.DataFrame:
    """The rows of a bank as explanations show them."""
    rows = bank.rows
    for name in rows.columns:
        if rows[name].dtype == object:
            rows[name] = [_shown(cell, model.kinds_.get(name)) for cell in rows[name]]
    return rows


def _shown(cell: Any, kind: str | None) -> Any:
    """A cell as explanations show it: an image as a thumbnail, a sound only by its path, the rest as it is."""
    content = cell.get("bytes") if isinstance(cell, dict) else cell
    if isinstance(content, bytes | bytearray):
        return thumbnail(bytes(content)) if kind == "image" else None
    if isinstance(cell, dict):
        return cell.get("path")
    if isinstance(cell, list | tuple | np.ndarray):
        return None
    return cell if cell is None or isinstance(cell, str) else str(cell)


def thumbnail(content: bytes, size: int = 128) -> bytes | None:
    """A small JPEG of an image, or None if it cannot be read."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(content)) as image:
            image.thumbnail((size, size))
            small = io.BytesIO()
            image.convert("RGB").save(small, "JPEG", quality=80)
    except (UnidentifiedImageError, OSError):
        return None
    return small.getvalue()
