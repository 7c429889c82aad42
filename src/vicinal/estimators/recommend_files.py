"""The saved form of a recommender: a folder of JSON, safetensors and parquet, read within bounds."""

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import torch
from pydantic import Field, NonNegativeInt, PositiveInt
from safetensors.torch import save_file
from scipy import sparse

from vicinal.core.checks import ECHO, local_path, short_text
from vicinal.core.folders import MARKERS, SUMS, check_sums, read_whole
from vicinal.core.identity import canonical_ids
from vicinal.core.untrusted import (
    LARGEST_SETTINGS,
    Saved,
    check_inside,
    check_settings,
    open_regular,
    read_frame,
    read_settings,
    read_tensors,
    saved_settings,
)
from vicinal.data.form import TableForm
from vicinal.encoders import Kind
from vicinal.encoders.names import reaches_out
from vicinal.estimators.click_sides import Side
from vicinal.estimators.column_kernel import ColumnKernel
from vicinal.estimators.saving import shown_cell
from vicinal.settings import ClickSettings
from vicinal.version import __version__

VERSION = 1
CONFIG, TENSORS, CLICKS = MARKERS["recommender"], "recommender.safetensors", "clicks.parquet"
SIDES = {"item": "items.parquet", "user": "users.parquet"}
_IDS, _DESCRIBED = "\0ids", "\0described"
"""Columns of the saved tables; no column of a user is called so."""

_FITTED = ("settings", "unit", "scores", "notes")
"""Attributes of a fitted recommender that are kept as they are."""

_Positive = Annotated[float, Field(gt=0)]
_Text = Annotated[str, Field(max_length=1000)]


_Settings = saved_settings(ClickSettings, ClickSettings.__annotations__)


class SavedRecommenderParameters(_Settings):  # type: ignore[misc, valid-type]  # it is made of settings
    """Parameters of a recommender; see :class:`vicinal.estimators.Recommender`."""

    user: _Text
    item: _Text
    value: _Text | None
    kinds: dict[str, Kind] | None
    encoders: dict[str, _Text] | None
    random_state: NonNegativeInt


class SavedKernel(Saved):
    """A :class:`vicinal.estimators.column_kernel.ColumnKernel`, but for its rows."""

    columns: dict[str, Kind] = Field(min_length=1)
    form: TableForm
    rates: dict[str, Annotated[float, Field(ge=0)]]
    noise: _Positive
    explained: float


class SavedRecommender(Saved):
    """What ``recommender.json`` holds."""

    format: Literal["vicinal-recommender"] = "vicinal-recommender"
    version: int
    vicinal: str
    parameters: SavedRecommenderParameters
    settings: tuple[_Positive, _Positive]
    unit: _Positive
    users: PositiveInt
    items: PositiveInt
    clicks: PositiveInt
    width: PositiveInt
    kernels: dict[Literal["item", "user"], SavedKernel]
    scores: dict[str, float]
    notes: list[str]


def write_recommender(stage: Path, model: Any) -> None:
    """Write the files of a recommender into an empty folder."""
    (stage / CONFIG).write_text(recommender_settings(model).model_dump_json(indent=1) + "\n", encoding="utf-8")
    state = {"vectors": model.vectors_.contiguous(), "trained": torch.from_numpy(model.trained_.copy())}
    save_file(state, stage / TENSORS)
    entries = model.clicks_.tocoo()
    columns = {"user": entries.row, "item": entries.col, "value": entries.data}
    pd.DataFrame(columns).to_parquet(stage / CLICKS, index=False)
    for side in (model.items_, model.users_):
        cells = {_IDS: side.ids, _DESCRIBED: side.described}
        kinds = model.kernels_[side.name].columns if side.name in model.kernels_ else {}
        for name in () if side.rows is None else side.rows.columns:
            column, kind = side.rows[name], kinds.get(name)
            cells[name] = [shown_cell(cell, kind) for cell in column] if column.dtype == object else column.to_numpy()
        pd.DataFrame(cells).to_parquet(stage / SIDES[side.name], index=False)


def recommender_settings(model: Any) -> SavedRecommender:
    """What ``recommender.json`` holds of a recommender."""
    fields = SavedKernel.model_fields
    kernels = {name: {each: getattr(kernel, each) for each in fields} for name, kernel in model.kernels_.items()}
    settings = {name: getattr(model, f"{name}_") for name in _FITTED} | {
        "version": VERSION,
        "vicinal": __version__,
        "parameters": model.get_params(deep=False),
        "users": len(model.users_),
        "items": len(model.items_),
        "clicks": model.clicks_.nnz,
        "width": model.vectors_.shape[1],
        "kernels": kernels,
    }
    return check_settings("recommender", SavedRecommender, settings)


def read_recommender(folder: Path) -> dict[str, Any]:
    """The attributes of a recommender, by name, and its "parameters".

    Raises:
        ValueError: naming the file that is missing, torn, edited or of a newer version.
    """
    folder = local_path("model", folder)
    if not folder.is_dir():
        raise ValueError(f"model: expected a folder of a recommender, got {short_text(folder, ECHO)}, which is none")
    return read_whole(folder, _read)


def _read(folder: Path) -> dict[str, Any]:
    files = (TENSORS, CLICKS, *SIDES.values())
    check_inside(folder, SUMS, CONFIG, *files)
    check_sums(folder, (CONFIG,), "recommender", LARGEST_SETTINGS)
    config = read_settings(folder / CONFIG, SavedRecommender, "a vicinal recommender", newest=VERSION)
    for name in (config.parameters.encoders or {}).values():
        if reaches_out(name):
            raise ValueError(f"{CONFIG}: expected encoders of installed packages, got {short_text(name)}")
    check_sums(folder, files, "recommender")
    with torch.device("meta"):
        shapes = {
            "vectors": torch.zeros(config.items, config.width, dtype=torch.float64),
            "trained": torch.zeros(config.items, dtype=torch.bool),
        }
    state = read_tensors(folder / TENSORS, shapes)
    items, users = (_side(folder, name, size) for name, size in (("item", config.items), ("user", config.users)))
    return {f"{name}_": getattr(config, name) for name in _FITTED} | {
        "parameters": config.parameters.model_dump(),
        "vectors_": state["vectors"],
        "trained_": state["trained"].numpy(),
        "clicks_": _clicks(folder, config),
        "items_": items,
        "users_": users,
        "kernels_": {n: _kernel(k, items if n == "item" else users) for n, k in config.kernels.items()},
    }


def _frame(folder: Path, name: str) -> pd.DataFrame:
    with open_regular(folder / name) as stream:
        return read_frame(stream, name)


def _side(folder: Path, name: str, size: int) -> Side:
    frame = _frame(folder, SIDES[name])
    if len(frame) != size or not {_IDS, _DESCRIBED} <= set(frame.columns) or frame[_DESCRIBED].dtype != bool:
        raise ValueError(f"{SIDES[name]}: expected {size} rows as {CONFIG} says, got others")
    ids = canonical_ids(SIDES[name], frame[_IDS], distinct=True)
    rows = frame.drop(columns=[_IDS, _DESCRIBED])
    return Side(name, ids, rows if rows.shape[1] else None, frame[_DESCRIBED].to_numpy())


def _clicks(folder: Path, config: SavedRecommender) -> Any:
    frame = _frame(folder, CLICKS)
    kinds = {name: dtype.kind for name, dtype in frame.dtypes.items()}
    if len(frame) != config.clicks or kinds != {"user": "i", "item": "i", "value": "f"}:
        raise ValueError(f"{CLICKS}: expected {config.clicks} clicks of users and items, got others")
    for name, most in (("user", config.users), ("item", config.items)):
        if frame[name].min() < 0 or frame[name].max() >= most:
            raise ValueError(f"{CLICKS}: expected positions of {name}s below {most}, got others")
    values = frame["value"].to_numpy()
    if not (np.isfinite(values) & (values > 0)).all():
        raise ValueError(f"{CLICKS}: expected values above 0, got others")
    table = sparse.csr_array((values, (frame["user"], frame["item"])), shape=(config.users, config.items))
    table.sum_duplicates()
    return table


def _kernel(saved: SavedKernel, side: Side) -> ColumnKernel:
    """A kernel over one row, until its rows are put under it."""
    if side.rows is None or not set(saved.columns) <= set(side.rows.columns) or set(saved.rates) != set(saved.columns):
        raise ValueError(f"{SIDES[side.name]}: expected the columns that {CONFIG} names, got others")
    return ColumnKernel(side.rows[list(saved.columns)], saved.columns, None, saved.form).with_rates(saved)
