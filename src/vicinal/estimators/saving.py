"""The saved form of a neighbor estimator: a folder of JSON, safetensors and parquet, never pickle."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import pandas as pd
import torch
from pydantic import BeforeValidator, Field, JsonValue, NonNegativeInt, PositiveInt, model_validator
from safetensors.torch import save_file
from torch import Tensor

from vicinal.core import check_choice, entry, short
from vicinal.core.checks import ECHO, local_path, short_text
from vicinal.core.folders import CHANGES, MARKERS, SUMS, check_sums, read_sums, read_whole, staged_folder
from vicinal.core.seeding import seeded
from vicinal.core.untrusted import (
    LARGEST_SETTINGS,
    Saved,
    check_inside,
    check_settings,
    read_settings,
    read_tensors,
    tensor_header,
)
from vicinal.data import TableForm
from vicinal.data.column_form import ColumnForm
from vicinal.encoders import Kind, TableEncoder, thumbnail
from vicinal.encoders.base import KIND_NAMES, Size
from vicinal.encoders.category import level_of
from vicinal.encoders.kinds import is_gap, is_list
from vicinal.encoders.names import check_encoder, chosen_encoder, reaches_out
from vicinal.encoders.stacked_projector import StackedProjector
from vicinal.encoders.tree_columns import LinearColumns, TreeColumns
from vicinal.encoders.tree_projector import TreeProjector
from vicinal.estimators.bank import Bank
from vicinal.estimators.base import NeighborEstimator
from vicinal.estimators.fitted import FittedModel
from vicinal.estimators.indexing import SavedNear
from vicinal.estimators.journal import Changes, read_changes, write_changes
from vicinal.estimators.kernel_metric import WHOLE, check_kernel, empty_trend_network, make_kernel_network
from vicinal.estimators.label_codec import ClassCodec, LabelCodec, LikenessCodec, NumberCodec
from vicinal.estimators.network import (
    MOST_NEIGHBORS,
    NEIGHBORS,
    READOUTS,
    check_readout,
    embedding_width,
    make_kriging,
    make_network,
    similarity_network,
)
from vicinal.estimators.plan import TuningPlan
from vicinal.estimators.presets import settings_of
from vicinal.estimators.target_transform import TargetTransform
from vicinal.heads import Comparables, Kriging
from vicinal.heads.kinds import weighs_locally
from vicinal.index import FaissIndex
from vicinal.index.bank_files import ROWS
from vicinal.training import NeighborNetwork
from vicinal.training.history import TrainingHistory
from vicinal.version import __version__

VERSION = 2
"""Version of the folder's layout; folders of other versions are refused."""

WIDEST = 1 << 24
"""Numbers in the vector of a row before it is projected, at most."""

_ROLES = ("name", "target", "id", "group", "time", "weight")
"""Notes that name a column, or the data."""

_FORMER_READOUTS = {"kriging": "rows", "signed_kriging": "dense"}
"""Readouts by the names that they had."""

_Share = Annotated[float, Field(ge=0, le=1)]
_Positive = Annotated[float, Field(gt=0)]
_Finite = Annotated[float, Field(ge=-100, le=100)]
_Text = Annotated[str, Field(max_length=1000)]


class SavedParameters(Saved):
    """Parameters of an estimator that say what is fitted; see :class:`vicinal.estimators.NeighborRegressor`.

    Those of a preset are here by their values, so that a folder says what was fitted, whatever the preset will be.
    """

    head: Literal["nona", "dense"]
    metric: Literal["auto", "network", "kernel", "trees"] = "network"
    similarity: _Text
    mask: Literal["s1", "s2", "s1-ranks", "s2-ranks", "s2-reject", "topk"] | None
    mask_parameters: Literal["pointwise", "global"]
    mask_extent: Literal["admissible", "all"]
    simplex: _Text
    readout: Annotated[Literal[READOUTS], BeforeValidator(lambda name: _FORMER_READOUTS.get(name, name))] = "attention"  # type: ignore[valid-type]
    max_neighbors: Annotated[int, Field(ge=1, le=MOST_NEIGHBORS)] | None = None
    target_transform: Literal["none", "log", "rank", "auto"] = "none"
    loss: _Text | None
    fair: _Text | None = None
    fair_weight: Annotated[float, Field(ge=0)] | None = None
    fair_rate: Literal["positive", "true_positive", "false_positive", "accuracy"] = "positive"
    n_neighbors: PositiveInt
    index: _Text | None
    index_tolerance: _Share
    columns: dict[str, Kind] | None
    encoders: dict[str, _Text] | None
    tune: _Text
    hidden: list[Size] = Field(min_length=1, max_length=64)
    members: Annotated[int, Field(ge=1, le=1024)]
    final_tanh: bool
    dropout: Annotated[float, Field(ge=0, lt=1)]
    max_epochs: PositiveInt
    batch_size: Annotated[int, Field(ge=2)]
    learning_rate: _Positive
    encoder_learning_rate: _Positive
    weight_decay: Annotated[float, Field(ge=0)]
    patience: PositiveInt
    validation_fraction: Annotated[float, Field(ge=0, lt=1)]
    precision: _Text
    accelerator: _Text
    devices: PositiveInt | Literal["auto"]
    random_state: NonNegativeInt | None
    labels: Literal["classes", "several", "numbers"] | None = None
    sampler: _Text | None = None
    per_class: Annotated[int, Field(ge=2)] | None = None
    memory: NonNegativeInt | None = None
    dim: Size | None = None
    unseen: bool | None = None


class SavedTableEncoder(Saved):
    """The encoders of a table; what each may say is checked as it is made."""

    parts: list[dict[str, JsonValue]] = Field(min_length=1, max_length=1024)


class SavedConfig(Saved):
    """What ``config.json`` holds."""

    format: Literal["vicinal-model"] = "vicinal-model"
    version: int
    vicinal: str
    task: Literal["regression", "classification", "similarity"]
    parameters: SavedParameters
    kinds: dict[str, Kind] = Field(min_length=1)
    encoder: SavedTableEncoder
    features: list[str] | None
    n_features: PositiveInt
    classes: list[str] | list[int] | list[float] | list[bool] | None
    multilabel: bool = False
    targets: Annotated[list[str], Field(min_length=2, max_length=1 << 16)] | None = None
    label_range: tuple[float, float] | tuple[list[float], list[float]] | None
    transform: TargetTransform = Field(default_factory=TargetTransform)
    form: TableForm | None = None
    train_error: list[float]
    validation_error: list[float]
    best_epoch: NonNegativeInt
    folds: Annotated[int, Field(ge=2, le=1024)] | None = None
    fold_readouts: list[tuple[_Finite, _Finite] | None] | None = None
    kriging: bool | None = None
    neighbors: Annotated[int, Field(ge=1, le=MOST_NEIGHBORS)] | None = None
    whole_up_to: Annotated[int, Field(ge=0, le=WHOLE)] = 0
    rank: Size | None = None
    start: float | None = None
    learned: bool | None = None
    metric: Literal["network", "kernel", "trees"] | None = None
    trend: PositiveInt | None = None
    cross_fits: Annotated[int, Field(ge=2, le=64)] | None = None
    plan: TuningPlan | None = None
    weight_unit: _Positive = 1.0
    sequence: NonNegativeInt = 0
    notes: dict[str, JsonValue] = Field(default_factory=dict)

    @property
    def reads_by_kriging(self) -> bool:
        """Whether the head is kriging; a folder from before readouts were chosen says it by its parameters alone."""
        return self.parameters.readout != "attention" if self.kriging is None else self.kriging

    @property
    def fitted_metric(self) -> str:
        """What makes rows near; a folder from before it was chosen says it by its parameters alone."""
        return self.metric or ("kernel" if self.parameters.metric == "kernel" else "network")

    @property
    def columns(self) -> list[str]:
        """Names of the columns of X, as the table of the bank has them."""
        return [f"x{i}" for i in range(self.n_features)] if self.features is None else self.features

    @model_validator(mode="after")
    def _agree_on_members(self) -> Self:
        by_name = {"attention": False, "rows": True, "comparables": True, "dense": True}
        if self.kriging not in (None, by_name.get(self.parameters.readout, self.kriging)):
            raise ValueError(f"a head of another readout than {self.parameters.readout}")
        if "auto" not in (self.parameters.metric, self.metric or "auto") and self.parameters.metric != self.metric:
            raise ValueError(f"a metric other than {self.parameters.metric}")
        if self.neighbors is not None and self.parameters.max_neighbors not in (None, self.neighbors):
            raise ValueError(f"{self.neighbors} neighbors where max_neighbors is {self.parameters.max_neighbors}")
        if self.fitted_metric != "network" and (self.multilabel or self.task == "similarity"):
            raise ValueError(f"{self.fitted_metric} of several classes a row, or of likeness")
        lists = isinstance(self.label_range, tuple) and isinstance(self.label_range[0], list)
        lengths = {len(ends) for ends in self.label_range or () if isinstance(ends, list)}
        if lists != (self.targets is not None) or (self.targets is not None and lengths != {len(self.targets)}):
            raise ValueError("a range of labels of other targets")
        if self.targets is not None and self.task != "regression":
            raise ValueError("several targets of another task than regression")
        if self.multilabel and self.classes is None:
            raise ValueError("several classes a row of a regression")
        if (self.task == "similarity") != (None not in (self.parameters.labels, self.parameters.dim, self.start)):
            raise ValueError(f"parameters of another task than {self.task}")
        if self.folds is not None and self.folds > self.parameters.members:
            raise ValueError(f"{self.folds} folds of {self.parameters.members} members")
        return self

    @model_validator(mode="after")
    def _agree_on_readouts(self) -> Self:
        if (self.fitted_metric == "trees" or self.trend is not None) and self.cross_fits is None:
            raise ValueError("a metric that has learned from labels without folds")
        if self.fold_readouts is not None and len(self.fold_readouts) != self.folds:
            raise ValueError(f"{len(self.fold_readouts)} readouts of {self.folds} folds")
        if None in (self.fold_readouts or ()) and self.parameters.readout != "auto":
            raise ValueError("readouts of folds other than the readout")
        return self

    @model_validator(mode="after")
    def _agree_on_transform(self) -> Self:
        name, ends = self.transform.base.name, self.label_range[0] if self.label_range else 1.0
        scores = {"kernel": "softmax", "trees": "power"}.get(self.fitted_metric) if self.classes is not None else None
        by_scores = scores is not None
        if (name if name in ("softmax", "power") else None) != scores:
            raise ValueError("probabilities of scores that the metric has not, or scores without probabilities")
        if len(self.transform.biases) > len(self.classes or ()):
            raise ValueError("probabilities of more classes than there are")
        lows = ends if isinstance(ends, list) else [ends]
        if (self.transform.by_rows or self.transform.constant) and (self.task != "regression" or self.targets):
            raise ValueError("a link or a quantile of other labels than one number a row")
        fits = by_scores or self.parameters.target_transform in ("auto", name)
        if not fits or (not by_scores and name != "none" and self.label_range is None):
            raise ValueError(f"labels by another transform than {self.parameters.target_transform}")
        if name == "rank" and len(self.transform.base.labels) != len(lows):
            raise ValueError("a transform of other targets")
        if name == "log" and min(lows) <= 0:
            raise ValueError("logarithms of labels that have none")
        return self

    @model_validator(mode="after")
    def _agree_on_sets(self) -> Self:
        sets = self.notes.get("sets") or {}
        lists = list(sets.values()) if isinstance(sets, dict) else [None]
        if not all(isinstance(names, list) and names and all(isinstance(n, str) for n in names) for names in lists):
            raise ValueError("a note of sets that lists no columns")
        chunked = self.notes.get("chunked") or []
        if not isinstance(chunked, list) or not all(self.kinds.get(str(name)) == "set" for name in chunked):
            raise ValueError("a note of chunked texts that are no sets")
        return self

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.features is not None and not len(set(self.features)) == len(self.features) == self.n_features:
            raise ValueError(f"{len(self.features)} features in place of {self.n_features} different ones")
        if not set(self.kinds) <= set(self.columns):
            raise ValueError("kinds of other columns than the features")
        if len(self.train_error) != len(self.validation_error):
            raise ValueError("error curves of different lengths")
        by_classes = self.task == "classification" or self.parameters.labels in ("classes", "several")
        if by_classes != (self.classes is not None):
            raise ValueError(f"{'no classes' if self.classes is None else 'classes'} of a {self.task}")
        if (self.task == "regression") != (self.label_range is not None):
            raise ValueError(f"{'no range' if self.label_range is None else 'a range'} of labels of a {self.task}")
        lows, highs = ([ends] if isinstance(ends, float) else ends for ends in self.label_range or (0.0, 1.0))
        if not all(low < high for low, high in zip(lows, highs, strict=False)):
            raise ValueError("a range of labels that is none")
        if self.classes is not None and len(set(self.classes)) < max(2, len(self.classes)):
            raise ValueError("classes that are not there once each")
        if not all(isinstance(self.notes.get(role), str | None) for role in _ROLES):
            raise ValueError("a note that names no column")
        return self


def saved_config(values: Mapping[str, Any]) -> SavedConfig:
    """The settings of a model that is to be saved, from values of Python.

    Raises:
        ValueError: naming a parameter that has no name in JSON, or that a loaded model would be refused for.
    """
    for name, value in values["parameters"].items():
        try:
            json.dumps(value)
        except TypeError as wrong:
            raise ValueError(f"{name}: expected a value with a name, to be saved, got {short(value)}") from wrong
    return check_settings("model", SavedConfig, values)


# What a folder may not decide alone.


def allowed_index(saved: str | None, repeated: str | None) -> str | None:
    """The index to use: the one that the user named, else the saved one if it is nowhere but in the folder.

    Raises:
        ValueError: for a saved name with a path or an address, or a FAISS factory string beyond the usual ones.
    """
    if repeated is not None or saved is None:
        return repeated
    kind, _, rest = saved.partition(":")
    if kind == "exact":  # earlier versions also had codes of 1 or 2 bytes a number: "exact:int8"
        return kind
    if kind == "milvus" or (kind == "faiss" and not FaissIndex.usual(rest)):
        raise ValueError(
            f"index: expected {saved:.200} of this model's settings to be given again, as a folder may not choose what "
            f"is opened; say --index {saved:.200} (index= in Python) if that is meant, or --index exact"
        )
    return saved


def with_allowed_encoders(config: SavedConfig, repeated: Mapping[str, str] | None) -> SavedConfig:
    """The settings with the encoders that the user named in the place of those that reach out of the folder.

    Args:
        config: as it was saved.
        repeated: names of encoders by column or by kind.

    Raises:
        ValueError: for a folder or a model of the hub that the user has not named, or an encoder that is another than
            the model's.
    """
    for key in repeated or {}:
        check_choice("encoders", key, [*config.kinds, *KIND_NAMES])
    named = dict(config.parameters.encoders or {})
    chosen = {key: wish for key, wish in named.items() if not reaches_out(wish)} | dict(repeated or {})
    parts = []
    for part in config.encoder.parts:
        name, columns = part.get("encoder"), part.get("columns")
        names = tuple(str(column) for column in columns) if isinstance(columns, list) else ()
        if not names or not set(names) <= set(config.kinds):
            raise ValueError(f"config.json: expected encoders of the model's columns, got one of {columns!r:.100}")
        kind = config.kinds[names[0]]
        encoder, where = chosen_encoder(names, kind, chosen)
        if reaches_out(name) and not reaches_out(encoder):
            raise ValueError(
                f"encoders: expected {name!s:.200} of this model's settings to be given again, as a folder may not "
                f"choose what is read; say --encoder {names[0]}={name!s:.200} (encoders= in Python) if that is meant"
            )
        encoder = check_encoder(encoder, kind, where)
        if encoder != name and not (reaches_out(encoder) and reaches_out(name)):
            raise ValueError(
                f"encoders: expected {name!r:.100} for {names[0]!r}, as it was fitted with, got {encoder!r}"
            )
        parts.append({**part, "encoder": encoder})
    parameters = config.parameters.model_copy(update={"encoders": chosen or None})
    return config.model_copy(
        update={"parameters": parameters, "encoder": config.encoder.model_copy(update={"parts": parts})}
    )


# What must fit together.


def check_encoder_columns(encoder: TableEncoder, config: SavedConfig) -> None:
    """Raise ValueError unless the encoders read the columns of ``config``, each as its kind, in their order."""
    if encoder.kinds != config.kinds:
        raise ValueError("config.json: expected encoders of all columns by their kinds, got others")
    for part in encoder.encoders:
        if part.columns != [column for column in config.kinds if column in part.columns]:
            raise ValueError("config.json: expected the columns of an encoder in the order of the kinds, got another")
    if encoder.dim > WIDEST:
        raise ValueError(f"config.json: expected rows of at most {WIDEST} numbers, got {encoder.dim}")


def check_bank(bank: Bank, config: SavedConfig, width: int, folder: Path) -> None:
    """Raise ValueError unless the rows in ``folder`` are of the form and width that the model asks for."""
    store, form = bank.store, bank.store.form
    if store.dim != width:
        raise ValueError(f"bank.json: expected vectors of {width} numbers in {folder}, got {store.dim}")
    if form is None:
        return
    each = len(config.classes) if config.multilabel and config.classes is not None else len(config.targets or ())
    if form.labels != ("float64", each) or store.columns != config.columns:
        raise ValueError(f"bank.json: expected rows with the labels and columns of config.json in {folder}, got others")
    folds = bank.folds
    most = config.folds or config.cross_fits or 0
    if folds is not None and not bool((folds < most).all()):
        raise ValueError(f"bank.safetensors: expected folds below {most} in {folder}, got others")
    labels = bank.labels
    if not bool(labels.isfinite().all()):
        raise ValueError(f"bank.safetensors: expected finite labels in {folder}, got NaN or infinity")
    if config.transform.base.name == "log" and not bool((labels > 0).all()):
        raise ValueError(f"bank.safetensors: expected labels above 0 in {folder}, got others")
    if config.classes is not None:
        count, what = (2, "0 or 1 for each class") if each else (len(config.classes), "places of its classes")
        if not bool(((labels >= 0) & (labels < count) & (labels == labels.floor())).all()):
            raise ValueError(f"bank.safetensors: expected {what} as labels in {folder}, got others")


CONFIG, MODEL, HELD_OUT = MARKERS["model"], "model.safetensors", "held"
_ELEMENTS = 256
"""Elements of a set that are kept to show it."""
_FORMER_NEIGHBORS = 128
"""Rows that a kernel is read out by in folders that do not say it."""

_LARGEST_TREES = 1 << 28
"""Bytes of the trees of a fold, at most."""

_VERIFIED = 1 << 26
"""Bytes of a bank up to which all of it is checked when it is loaded."""
_LOCAL = ("form", "root", "cache_dir", "checkpoint_dir", "progress", "logger", "minutes", "plan")
"""Parameters that say where and how a run is made, not what is fitted; they are not saved."""


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
    (stage / CONFIG).write_text(_config(model, notes or {}).model_dump_json(indent=1) + "\n", encoding="utf-8")
    save_file(_weights(model), stage / MODEL)
    for name, text in _tree_files(model.network_.projector).items():
        (stage / name).write_text(text, encoding="utf-8")
    model.bank_.store.write(stage, _shown_rows(model, model.bank_))
    with staged_folder(stage / HELD_OUT, "bank") as folder:
        model.calibration_.store.write(folder, _shown_rows(model, model.calibration_))
    near = model.near_bank()
    if near is not None:
        near.save(stage)
    write_changes(stage, model.changes_)


def read_model(
    folder: str | Path,
    classes: Mapping[str, type[NeighborEstimator]],
    *,
    index: str | None = None,
    encoders: Mapping[str, str] | None = None,
    verify: bool = False,
) -> NeighborEstimator:
    """The estimator saved in ``folder``: see :func:`vicinal.estimators.load_model`.

    Args:
        folder: as :func:`save_model` wrote it.
        classes: what is made for each task.
        index: see there, as for the others.
        encoders: by column or kind.
        verify: read and check a large bank whole.
    """
    folder = local_path("model", folder)
    if folder.is_file():
        raise ValueError(
            f"model: expected a model folder, got the file {short_text(folder, ECHO)}; the model comes first and the "
            "table second, as in: vicinal predict MODEL DATA"
        )
    model, sums = read_whole(folder, lambda place: _load_with_index(place, classes, index, encoders, verify=verify))
    if model.index is not None and _in_database(model.index):
        model.attach_saved_index(SavedNear(folder, sums))
    return model


def _load_with_index(
    folder: Path,
    classes: Mapping[str, type[NeighborEstimator]],
    index: str | None,
    encoders: Mapping[str, str] | None,
    *,
    verify: bool,
) -> tuple[NeighborEstimator, dict[str, str]]:
    """The model with the checksums of its folder; an index in files is read at once, as they may be replaced."""
    model, sums = _load(folder, classes, index, encoders, verify=verify), read_sums(folder)
    if model.index is not None and not _in_database(model.index):
        model.attach_saved_index(SavedNear(folder, sums))
        model.near_bank()
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
    folder: Path,
    classes: Mapping[str, type[NeighborEstimator]],
    index: str | None,
    encoders: Mapping[str, str] | None,
    *,
    verify: bool,
) -> NeighborEstimator:
    if not folder.is_dir():
        raise ValueError(f"model: expected a model folder, got {short_text(folder, ECHO)}, which is not there")
    check_inside(folder, SUMS, CONFIG, MODEL, HELD_OUT, CHANGES)
    check_sums(folder, (CONFIG,), largest=LARGEST_SETTINGS)
    check_sums(folder, (MODEL,))
    saved = read_settings(folder / CONFIG, SavedConfig, "a vicinal model", newest=VERSION, oldest=VERSION)
    config = with_allowed_encoders(saved, encoders)
    parameters = config.parameters.model_dump()
    parameters |= {
        "hidden": tuple(config.parameters.hidden),
        "index": allowed_index(config.parameters.index, index),
    }
    check_readout(parameters, classes=config.classes is not None)
    known = classes[config.task]().get_params(deep=False)
    model = classes[config.task](**{name: value for name, value in parameters.items() if name in known})
    if config.task == "similarity":
        model.labels_, model.start_, model.learned_ = config.parameters.labels, config.start, bool(config.learned)
    model.kinds_ = config.kinds
    model.n_features_in_ = config.n_features
    if config.features is not None:
        model.feature_names_in_ = np.array(config.features, dtype=object)
    model.form_ = _former_form(config) if config.form is None else config.form
    model.notes_, model.plan_, model.weight_unit_ = config.notes, config.plan, config.weight_unit
    model.changes_ = Changes(config.sequence)
    with seeded():  # a model of the hub draws weights that it overwrites
        network, attention = _read_network(folder / MODEL, config)
    width = embedding_width(network)
    bank, held_out = (_load_bank(part, config, width, verify=verify) for part in (folder, folder / HELD_OUT))
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
        _fold_heads(config, attention),
    )
    return model


def _codec(config: SavedConfig) -> LabelCodec:
    """The codec of the labels of a saved model."""
    classes, ends = np.array(config.classes or [], dtype=None if config.classes else object), config.label_range
    if config.task == "similarity":
        return LikenessCodec(config.transform, classes, several=config.parameters.labels == "several")
    if config.classes is not None:
        return ClassCodec(config.transform, classes, multilabel=config.multilabel)
    if config.targets is None:
        return NumberCodec(config.transform, ends=ends or (0.0, 1.0))
    low, high = (torch.tensor(each, dtype=torch.float64) for each in ends or ())
    return NumberCodec(config.transform, targets=config.targets, ends=(low, high))


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


def _read_network(path: Path, config: SavedConfig) -> tuple[NeighborNetwork, torch.nn.Module]:
    """The network of a model: first without memory, to compare the file with it, then with the weights of the file.

    Returns:
        the network, and the attention by which some folds are read.
    """
    encoder = TableEncoder.from_config(config.encoder.model_dump(), empty=True)
    check_encoder_columns(encoder, config)
    network, attention = _empty_network(path, config, encoder)
    parts = {"projector": network.projector.double(), "head": network.head.double()}
    if config.reads_by_kriging and None in (config.fold_readouts or ()):
        parts["attention"] = attention.double()
    template = {f"encoder.{name}": value for name, value in encoder.trained_state().items()}
    for part, module in parts.items():
        template |= {f"{part}.{name}": value for name, value in module.state_dict().items()}
    state = read_tensors(path, template)
    for part in ("encoder", *parts):
        weights = {name.removeprefix(f"{part}."): value for name, value in state.items() if name.startswith(f"{part}.")}
        if part == "encoder":
            encoder.load_trained_state(weights)
        else:
            parts[part].load_state_dict(weights, assign=True)
    network.eval()
    return network, attention.eval() if "attention" in parts else network.head


def fold_readouts(model: NeighborEstimator) -> list[tuple[float, float] | None] | None:
    """Of the readout of each fold the logarithms of scale and noise, None for attention; None: that of the model."""
    heads = model.fold_heads_
    if heads is None:
        return None
    return [(one.log_scale.item(), one.log_noise.item()) if weighs_locally(one) else None for one in heads]


def _fold_heads(config: SavedConfig, attention: torch.nn.Module) -> list[torch.nn.Module] | None:
    """The heads of which :func:`fold_readouts` tells."""
    if config.fold_readouts is None:
        return None
    settings, heads = config.parameters.model_dump() | {"metric": config.fitted_metric}, list[torch.nn.Module]()
    for each in config.fold_readouts:
        head = None if each is None else make_kriging(settings)
        if head is not None and each is not None:
            with torch.no_grad():
                head.double().log_scale.fill_(each[0])
                head.log_noise.fill_(each[1])
        heads.append(attention if head is None else head.eval())
    return heads


def _empty_network(path: Path, config: SavedConfig, encoder: TableEncoder) -> tuple[NeighborNetwork, torch.nn.Module]:
    """The network of a model without memory for its weights, and its attention if it is read out by kriging."""
    settings = config.parameters.model_dump() | {"metric": config.fitted_metric, "rank": config.rank}
    former = _FORMER_NEIGHBORS if config.fitted_metric == "kernel" else None
    settings["max_neighbors"] = config.neighbors or settings["max_neighbors"] or former
    if config.task == "similarity":
        width = (tensor_header(path).get("projector.weight") or ((0,),))[0][-1]
        with torch.device("meta"):
            network = similarity_network(encoder, max(1, min(width, settings["dim"])))
            return network, network.head
    if config.fitted_metric == "trees":
        projector = _tree_projector(path, config, encoder)
        if config.trend not in (None, projector.trend):
            raise ValueError(f"{CONFIG}: expected a trend of {projector.trend} columns, got {config.trend}")
        with torch.device("meta"):
            return NeighborNetwork(encoder, projector, _local_head(config, settings)), torch.nn.Identity()
    if config.fitted_metric == "kernel":
        by_scores = config.classes is not None
        check_kernel(encoder, classes=by_scores)
        with torch.device("meta"):
            network = make_kernel_network(settings, encoder, classes=by_scores, whole_up_to=config.whole_up_to)
            if config.cross_fits is not None:
                network = empty_trend_network(network, config.cross_fits, len(config.targets or "1"))
                network.head = _local_head(config, settings)
            return network, network.head
    gain = tensor_header(path).get("projector.gain")
    if gain is None or gain[0][:1] != (config.parameters.members,):  # before that many members are made
        raise ValueError(f"{path.name}: expected the weights of {config.parameters.members} members, got others")
    outputs, several = config.classes or config.targets, config.targets is not None
    start = torch.zeros(()) if outputs is None else torch.zeros(len(outputs))
    with torch.device("meta"):
        network = make_network(settings, encoder, encoder.dim, start, multilabel=config.multilabel, numbers=several)
        attention = network.head
        if config.reads_by_kriging:
            network.head = make_kriging(settings) or network.head
    return network, attention


def _local_head(config: SavedConfig, settings: dict[str, Any]) -> torch.nn.Module:
    """The head of a metric without a network, its weights not loaded yet."""
    k = settings["max_neighbors"] or NEIGHBORS
    if config.trend is None:
        return Kriging(k)
    return Comparables(k, trend=config.trend, targets=_outputs(config))


def _outputs(config: SavedConfig) -> int:
    """How many numbers a trend says of a row: those of the targets, or of the classes that the fit had."""
    return len(config.transform.biases or config.targets or "1")


def _tree_projector(path: Path, config: SavedConfig, encoder: TableEncoder) -> TreeProjector | StackedProjector:
    """The projector of trees, its weights not loaded yet; a folder from before linear models were there has none."""
    texts, outputs = _read_trees(path.parent, config), _outputs(config)
    if "projector.slopes" not in tensor_header(path):
        return TreeProjector(texts, TreeColumns(encoder))
    return StackedProjector(texts, LinearColumns(encoder), outputs, classes=config.classes is not None)


def _tree_files(projector: torch.nn.Module) -> dict[str, str]:
    """The texts of trees by the names of their files: fold, then target."""
    texts = getattr(projector, "texts", [])
    return {f"trees-{i}-{j}.txt": text for i, fold in enumerate(texts) for j, text in enumerate(fold)}


def _read_trees(folder: Path, config: SavedConfig) -> list[list[str]]:
    """The texts of :func:`_tree_files`, of a size that can be read.

    Raises:
        ValueError: for a file that is not there, was changed or is too large.
    """
    outputs, texts = _outputs(config), list[list[str]]()
    targets = range(1 if config.classes is not None and outputs == 2 else outputs)
    for fold in range(config.cross_fits or 0):
        names = [f"trees-{fold}-{target}.txt" for target in targets]
        check_inside(folder, *names)
        check_sums(folder, tuple(names), largest=_LARGEST_TREES)
        texts.append([(folder / name).read_text(encoding="utf-8") for name in names])
    return texts


def _load_bank(folder: Path, config: SavedConfig, width: int, *, verify: bool) -> Bank:
    rows = folder / ROWS
    small = not rows.is_file() or rows.stat().st_size <= _VERIFIED
    bank = Bank.load(folder, verify=verify or small)
    check_bank(bank, config, width, folder)
    return bank


def _config(model: NeighborEstimator, notes: dict[str, Any]) -> SavedConfig:
    known = [name for name in SavedParameters.model_fields if name not in _LOCAL and hasattr(model, name)]
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
    return saved_config(
        {
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
            "label_range": _ends(codec.ends) if isinstance(codec, NumberCodec) else None,
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
            "cross_fits": getattr(model.network_.projector, "folds", None) if model.network_.cross_fitted else None,
            "plan": model.plan_,
            "weight_unit": model.weight_unit_,
            "sequence": model.changes_.sequence,
            "notes": notes,
        }
    )


def _ends(label_range: tuple[Any, Any] | None) -> Any:
    """The range of labels as JSON has it."""
    return label_range and tuple(ends.tolist() if isinstance(ends, Tensor) else ends for ends in label_range)


def task_of(model: NeighborEstimator) -> str:
    """The task by which a folder names what it holds."""
    if hasattr(model, "start_"):
        return "similarity"
    return "classification" if model.fitted_.codec.kind == "classes" else "regression"


def _weights(model: NeighborEstimator) -> dict[str, Tensor]:
    network = model.network_
    state = {f"encoder.{name}": value for name, value in model.table_encoder.trained_state().items()}
    for part in ("projector", "head"):
        for name, value in getattr(network, part).state_dict().items():
            state[f"{part}.{name}"] = value
    others = [one for one in model.fold_heads_ or () if not weighs_locally(one)]
    if others and weighs_locally(network.head):
        state |= {f"attention.{name}": value for name, value in others[0].state_dict().items()}
    return {name: value.detach().contiguous().clone() for name, value in state.items()}


def _shown_rows(model: NeighborEstimator, bank: Bank) -> pd.DataFrame:
    """The rows of a bank as explanations show them."""
    rows = bank.rows
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
