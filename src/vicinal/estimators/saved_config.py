"""What the settings of a saved model may hold, and what the rest of its folder must fit."""

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, JsonValue, NonNegativeInt, PositiveInt, model_validator

from vicinal.core import check_choice, short
from vicinal.core.untrusted import Saved, check_settings, saved_settings
from vicinal.data import TableForm
from vicinal.encoders import Kind, TableEncoder
from vicinal.encoders.base import KIND_NAMES, Size
from vicinal.encoders.names import check_encoder, chosen_encoder, reaches_out
from vicinal.estimators.adaptation import Adaptation, Forecasts
from vicinal.estimators.bank import Bank
from vicinal.estimators.kernel_metric import WHOLE
from vicinal.estimators.plan import TuningPlan
from vicinal.estimators.target_transform import TargetTransform
from vicinal.estimators.trials import Trial
from vicinal.index import FaissIndex
from vicinal.settings import MOST_NEIGHBORS, NeighborSettings

VERSION = 2
"""Version of the folder's layout; folders of other versions are refused."""

WIDEST = 1 << 24
"""Numbers in the vector of a row before it is projected, at most."""

_ROLES = ("name", "target", "id", "group", "time", "weight")
"""Notes that name a column, or the data."""

_FORMER_READOUTS = {"kriging": "rows", "signed_kriging": "dense"}
"""Readouts by the names that they had."""

_GONE = ("index_tolerance",)
"""Settings that folders of earlier versions have, and nothing reads any more."""

_Positive = Annotated[float, Field(gt=0)]
_Finite = Annotated[float, Field(ge=-100, le=100)]
_Text = Annotated[str, Field(max_length=1000)]

_LOCAL = ("preset", "minutes", "root", "cache_dir", "checkpoint_dir", "verbose", "logger")
"""Settings that say where and how a run is made, not what is fitted; they are not saved."""

_Settings = saved_settings(NeighborSettings, {one.name for one in fields(NeighborSettings)} - set(_LOCAL))


class SavedParameters(_Settings):  # type: ignore[misc, valid-type]  # it is made of settings
    """Parameters of an estimator that say what is fitted; see :class:`vicinal.estimators.NeighborRegressor`.

    Those of a preset are here by their values, so that a folder says what was fitted, whatever the preset will be. The
    settings that are named here have another type in a folder, or are those of a learner.
    """

    loss: _Text | None
    columns: dict[str, Kind] | None
    encoders: dict[str, _Text] | None
    hidden: list[Size] = Field(min_length=1, max_length=64)
    dropout: Annotated[float, Field(ge=0, lt=1)]
    validation_fraction: Annotated[float, Field(ge=0, lt=1)]
    devices: PositiveInt | Literal["auto"]
    random_state: NonNegativeInt | None
    labels: Literal["classes", "several", "numbers"] | None = None
    miner: _Text | None = None
    sampler: _Text | None = None
    per_class: Annotated[int, Field(ge=2)] | None = None
    memory: NonNegativeInt | None = None
    dim: Size | None = None
    unseen: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_former(cls, values: Any) -> Any:
        """With what folders lack that were written before these settings were there, without those that are gone."""
        if not isinstance(values, Mapping):
            return values
        former = {"metric": "network", "readout": "attention", "target_transform": "none", "fair_rate": "positive"}
        readout = values.get("readout", former["readout"])
        values = {name: value for name, value in values.items() if name not in _GONE}
        return former | {**values, "readout": _FORMER_READOUTS.get(str(readout), readout)}


class SavedTableEncoder(Saved):
    """The encoders of a table; what each may say is checked as it is made."""

    parts: list[dict[str, JsonValue]] = Field(min_length=1, max_length=1024)


class SavedReadout(Saved):
    """How trees, or a kernel, are read out in the mean of both; by signed weights where all rows may be used.

    ``line``: whether a kernel of classes has inner products, too, as one that was learned by its likelihood has.
    """

    neighbors: Annotated[int, Field(ge=1, le=MOST_NEIGHBORS)]
    trend: PositiveInt | None = None
    whole_up_to: Annotated[int, Field(ge=0, le=WHOLE)] = 0
    line: bool = True


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
    label_form: TableForm = Field(default_factory=TableForm)
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
    metric: Literal["network", "kernel", "trees", "trees and kernel"] | None = None
    trend: PositiveInt | None = None
    blend: tuple[SavedReadout, SavedReadout] | None = None
    cross_fits: Annotated[int, Field(ge=2, le=64)] | None = None
    plan: TuningPlan | None = None
    weight_unit: _Positive = 1.0
    sequence: NonNegativeInt = 0
    adaptation: Adaptation | None = None
    forecasts: list[Forecasts] = Field(default_factory=list, max_length=1 << 16)
    trials: list[Trial] = Field(default_factory=list, max_length=64)
    changed: list[str] | None = None
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
        if (self.fitted_metric in ("trees", "trees and kernel") or self.trend is not None) and self.cross_fits is None:
            raise ValueError("a metric that has learned from labels without folds")
        if (self.fitted_metric == "trees and kernel") != (self.blend is not None):
            raise ValueError("two readouts of another metric than trees and kernel")
        if self.fold_readouts is not None and len(self.fold_readouts) != self.folds:
            raise ValueError(f"{len(self.fold_readouts)} readouts of {self.folds} folds")
        if None in (self.fold_readouts or ()) and self.parameters.readout != "auto":
            raise ValueError("readouts of folds other than the readout")
        return self

    @model_validator(mode="after")
    def _agree_on_transform(self) -> Self:
        name, ends = self.transform.base.name, self.label_range[0] if self.label_range else 1.0
        known = {"kernel": {"softmax", "power"}, "trees": {"power"}, "trees and kernel": {"softmax"}}
        scores = known.get(str(self.fitted_metric), set())
        by_scores = bool(scores) and self.classes is not None
        if by_scores != (name in ("softmax", "power")) or (by_scores and name not in scores):
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
    each = len((config.classes if config.multilabel else config.targets) or ())
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
    if config.classes:
        count, what = (2, "0 or 1 for each class") if each else (len(config.classes), "places of its classes")
        if not bool(((labels >= 0) & (labels < count) & (labels == labels.floor())).all()):
            raise ValueError(f"bank.safetensors: expected {what} as labels in {folder}, got others")
