"""What the settings of a saved model may say, and which of them the user has to say again."""

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, JsonValue, NonNegativeInt, PositiveInt, model_validator

from vicinal.core import check_choice, short
from vicinal.core.untrusted import Saved, check_settings
from vicinal.encoders import KIND_NAMES, Kind, TableEncoder, check_encoder, reaches_out
from vicinal.encoders.base import Size
from vicinal.encoders.build import chosen_encoder
from vicinal.estimators.bank import Bank
from vicinal.index import FaissIndex

VERSION = 2
"""Version of the folder's layout; folders of other versions are refused."""

WIDEST = 1 << 24
"""Numbers in the vector of a row before it is projected, at most."""

_ROLES = ("name", "target", "id", "group")
"""Notes that name a column, or the data."""

_Share = Annotated[float, Field(ge=0, le=1)]
_Positive = Annotated[float, Field(gt=0)]
_Text = Annotated[str, Field(max_length=1000)]


class SavedParameters(Saved):
    """Parameters of an estimator that say what is fitted; see :class:`vicinal.estimators.NeighborRegressor`."""

    head: Literal["nona", "dense"]
    similarity: _Text
    mask: Literal["s1", "s2", "topk"] | None
    mask_parameters: Literal["pointwise", "global"]
    mask_extent: Literal["admissible", "all"]
    simplex: _Text
    loss: _Text | None
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
    validation_fraction: _Share
    precision: _Text
    accelerator: _Text
    devices: PositiveInt | Literal["auto"]
    random_state: NonNegativeInt | None


class SavedTableEncoder(Saved):
    """The encoders of a table; what each may say is checked as it is made."""

    parts: list[dict[str, JsonValue]] = Field(min_length=1, max_length=1024)


class SavedConfig(Saved):
    """What ``config.json`` holds."""

    format: Literal["vicinal-model"] = "vicinal-model"
    version: int
    vicinal: str
    task: Literal["regression", "classification"]
    parameters: SavedParameters
    kinds: dict[str, Kind] = Field(min_length=1)
    encoder: SavedTableEncoder
    features: list[str] | None
    n_features: PositiveInt
    classes: list[str] | list[int] | list[float] | list[bool] | None
    label_range: tuple[float, float] | None
    train_error: list[float]
    validation_error: list[float]
    best_epoch: NonNegativeInt
    notes: dict[str, JsonValue] = Field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """Names of the columns of X, as the table of the bank has them."""
        return [f"x{i}" for i in range(self.n_features)] if self.features is None else self.features

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.features is not None and not len(set(self.features)) == len(self.features) == self.n_features:
            raise ValueError(f"{len(self.features)} features in place of {self.n_features} different ones")
        if not set(self.kinds) <= set(self.columns):
            raise ValueError("kinds of other columns than the features")
        if len(self.train_error) != len(self.validation_error):
            raise ValueError("error curves of different lengths")
        if (self.task == "classification") != (self.classes is not None):
            raise ValueError(f"{'no classes' if self.classes is None else 'classes'} of a {self.task}")
        if (self.task == "regression") != (self.label_range is not None):
            raise ValueError(f"{'no range' if self.label_range is None else 'a range'} of labels of a {self.task}")
        if self.label_range is not None and not self.label_range[0] < self.label_range[1]:
            raise ValueError("a range of labels that is none")
        if self.classes is not None and (len(self.classes) < 2 or not _rising(self.classes)):
            raise ValueError("classes that are not sorted, each once")
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


def _rising(values: list[Any]) -> bool:
    return all(one < other for one, other in pairwise(values))


# What a folder may not decide alone.


def allowed_index(saved: str | None, repeated: str | None) -> str | None:
    """The index to use: the one that the user named, else the saved one if it is nowhere but in the folder.

    Raises:
        ValueError: for a saved name with a path or an address, or a FAISS factory string beyond the usual ones.
    """
    if repeated is not None or saved is None:
        return repeated
    kind, _, rest = saved.partition(":")
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
    read = {column: part.kind for part in encoder.encoders for column in part.columns}
    if read != config.kinds:
        raise ValueError("config.json: expected encoders of all columns by their kinds, got others")
    for part in encoder.encoders:
        if part.columns != [column for column in config.kinds if column in part.columns]:
            raise ValueError("config.json: expected the columns of an encoder in the order of the kinds, got another")
    if encoder.dim > WIDEST:
        raise ValueError(f"config.json: expected rows of at most {WIDEST} numbers, got {encoder.dim}")


def check_bank(bank: Bank, config: SavedConfig, folder: Path) -> None:
    """Raise ValueError unless the rows in ``folder`` are of the form that the settings of the model ask for."""
    store, form = bank.store, bank.store.form
    width = config.parameters.hidden[-1] * config.parameters.members
    if store.dim != width:
        raise ValueError(f"bank.json: expected vectors of {width} numbers in {folder}, got {store.dim}")
    if form is None:
        return
    if form.labels != ("float64", 0) or store.columns != config.columns:
        raise ValueError(f"bank.json: expected rows with the labels and columns of config.json in {folder}, got others")
    labels = bank.labels
    if not bool(labels.isfinite().all()):
        raise ValueError(f"bank.safetensors: expected finite labels in {folder}, got NaN or infinity")
    count = None if config.classes is None else len(config.classes)
    if count is not None and not bool(((labels >= 0) & (labels < count) & (labels == labels.floor())).all()):
        raise ValueError(f"bank.safetensors: expected places of {count} classes as labels in {folder}, got others")
