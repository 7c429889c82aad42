"""``vicinal show``: what a folder holds, from its settings only; no weights or rows are read."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from vicinal.core.checks import ECHO, short_text
from vicinal.core.folders import CHANGES, MARKERS, check_sums, kind_of, read_whole
from vicinal.core.untrusted import LARGEST_SETTINGS, check_inside, open_regular, read_settings

_OF_NETWORKS = ("similarity", "mask", "simplex", "loss", "tune", "hidden", "members", "max_epochs", "learning_rate")
_OF_ALL = ("head", "max_neighbors", "index", "validation_fraction", "random_state")
_OF_LIKENESS = ("labels", "loss", "sampler", "per_class", "dim", "tune", "max_epochs", "random_state")
_HELD_OUT = "held"


class _Summary(BaseModel):
    """Settings of a folder; those that are not shown are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)
    version: int


class _Notes(_Summary):
    version: int = 0
    name: str | None = None
    target: str | None = None
    id: str | None = None
    group: str | None = None
    time: str | None = None
    weight: str | None = None
    scores: dict[str, dict[str, float]] = Field(default_factory=dict)
    distilled_from: str | None = None
    torch: str | None = None


class _Encoder(_Summary):
    version: int = 0
    encoder: str
    columns: list[str]


class _Encoders(_Summary):
    version: int = 0
    parts: list[_Encoder]


class _Model(_Summary):
    vicinal: str
    task: str
    parameters: dict[str, JsonValue]
    kinds: dict[str, str]
    encoder: _Encoders
    features: list[str] | None = None
    classes: list[str] | list[int] | list[float] | list[bool] | None = None
    multilabel: bool = False
    label_range: tuple[float, float] | tuple[list[float], list[float]] | None = None
    targets: list[str] | None = None
    transform: dict[str, JsonValue] = Field(default_factory=dict)
    train_error: list[float] = Field(default_factory=list)
    best_epoch: int = 0
    folds: int | None = None
    kriging: bool | None = None
    trend: int | None = None
    cross_fits: int | None = None
    neighbors: int | None = None
    whole_up_to: int = 0
    metric: str | None = None
    adaptation: dict[str, JsonValue] | None = None
    notes: _Notes = Field(default_factory=_Notes)


class _Rows(_Summary):
    rows: int
    dim: int
    storage: str


class _Matcher(_Summary):
    vicinal: str
    parameters: dict[str, JsonValue]
    texts: list[str]
    numbers: list[str]
    media: dict[str, str]
    rows: list[int]
    labelled: int
    scorer: str | None = None
    threshold: float | None = None
    scores: dict[str, float] = Field(default_factory=dict)
    notes: list[str] = Field(default_factory=list)


class _Recommender(_Summary):
    vicinal: str
    parameters: dict[str, JsonValue]
    settings: tuple[float, float]
    users: int
    items: int
    clicks: int
    kernels: dict[str, dict[str, JsonValue]]
    scores: dict[str, float] = Field(default_factory=dict)
    notes: list[str] = Field(default_factory=list)


def list_changes(folder: Path) -> list[dict[str, Any]]:
    """The journal of a model folder, oldest first: sequence, time, who, what, ids, and labels before and after.

    Added rows are listed until the folder is written again; corrected labels until their row is forgotten.
    """
    from vicinal.estimators.journal import read_changes  # it takes as long to import as a model to load

    show_folder(folder)
    names = ("sequence", "time", "who", "what", "ids", "before", "labels")
    return [{name: getattr(one, name) for name in names} for one in read_whole(folder, read_changes)[0]]


def show_folder(folder: Path) -> dict[str, Any]:
    """What the folder of a model or a matcher holds.

    Returns:
        for both "model" (the folder), "kind", "task", "vicinal" (the version that wrote it), "written" (time, UTC),
        "rows", "columns" (each with its kind and encoder), "settings", "scores", "bytes" and "files" (bytes by name);
        for a matcher "notes"; for a model "target", "name", "id", "group", "time", "weight", "labels", "dim",
        "storage", "torch" (None in older folders), "distilled_from", "adapted" (to how many rows,
        or None), and "journal" (None without one).

    Raises:
        ValueError: if there is no such folder, or its settings are damaged, edited, or of a newer version.
    """
    if not folder.is_dir():
        what = "a file" if folder.exists() else "which is not there"
        raise ValueError(f"model: expected a model folder, got {short_text(folder, ECHO)}, {what}")
    return read_whole(folder, _shown)


def _shown(folder: Path) -> dict[str, Any]:
    kind = kind_of(folder)
    if kind not in ("model", "matcher", "recommender"):
        got = "other files" if kind is None else f"that of a {kind}, which may be a part of one"
        raise ValueError(
            f"model: expected the folder of a model, a matcher or a recommender, got {got}, in "
            f"{short_text(folder, ECHO)}"
        )
    check_inside(folder, MARKERS[kind])
    check_sums(folder, (MARKERS[kind],), kind, LARGEST_SETTINGS)
    sizes = {
        path.relative_to(folder).as_posix(): path.stat().st_size for path in sorted(folder.rglob("*")) if path.is_file()
    }
    written = datetime.fromtimestamp((folder / MARKERS[kind]).stat().st_mtime, UTC).isoformat(timespec="seconds")
    shown = {"model": _model, "matcher": _matcher, "recommender": _recommender}[kind](folder)
    return {
        "model": str(folder),
        "kind": kind,
        "written": written,
        **shown,
        "bytes": sum(sizes.values()),
        "files": sizes,
    }


def _model(folder: Path) -> dict[str, Any]:
    config = read_settings(folder / MARKERS["model"], _Model, "a vicinal model", newest=2)
    bank, held_out = (_bank(place) for place in (folder, folder / _HELD_OUT))
    encoders = {column: part.encoder for part in config.encoder.parts for column in part.columns}
    columns = {name: {"kind": kind, "encoder": encoders.get(name, "")} for name, kind in config.kinds.items()}
    notes, classes = config.notes, config.classes
    labels: dict[str, Any] = {} if classes is None else {"classes": len(classes), "names": classes[:_NAMES]}
    labels |= {"several": True} if config.multilabel else {}
    if config.label_range is not None and config.targets is None:
        labels |= dict(zip(("lowest", "highest"), config.label_range, strict=True))
    return {
        "task": config.task,
        "target": notes.target if config.targets is None else ", ".join(config.targets),
        "name": notes.name,
        "id": notes.id,
        "group": notes.group,
        "time": notes.time,
        "weight": notes.weight,
        "vicinal": config.vicinal,
        "torch": notes.torch,
        "distilled_from": notes.distilled_from,
        "labels": labels,
        "rows": {"bank": bank.rows, "held out": held_out.rows},
        "dim": bank.dim,
        "storage": bank.storage,
        "columns": columns,
        "settings": _settings(config),
        "scores": notes.scores,
        "adapted": (config.adaptation or {}).get("rows"),
        "journal": _journal(folder / CHANGES),
    }


def _journal(path: Path) -> dict[str, int] | None:
    """Bytes and records of the journal; None without one."""
    if not path.is_file():
        return None
    check_inside(path.parent, path.name)
    with open_regular(path) as file:
        records = sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
    return {"bytes": path.stat().st_size, "records": records}


_NAMES = 20
"""Most classes that are named."""


def _bank(folder: Path) -> _Rows:
    check_inside(folder, MARKERS["bank"])
    return read_settings(folder / MARKERS["bank"], _Rows, "a bank", newest=1)


def _settings(config: _Model) -> dict[str, Any]:
    """The settings that apply, with the fitted choice in place of "auto"."""
    parameters = config.parameters
    metric = config.metric or ("kernel" if parameters.get("metric") == "kernel" else "network")
    if config.task == "similarity":
        return {name: parameters.get(name) for name in _OF_LIKENESS}
    by_kriging = parameters.get("readout") != "attention" if config.kriging is None else config.kriging
    plain = "dense" if metric == "kernel" and config.cross_fits is None else "rows"
    chosen = plain if config.trend is None else "comparables"
    readout = "attention" if not by_kriging else str(parameters.get("readout")).replace("auto", chosen)
    readout = readout if parameters.get("head") != "dense" else "none, the head is dense"
    settings: dict[str, Any] = {"metric": metric, "readout": readout}
    nearest = f"all of up to {config.whole_up_to:,} rows, else the {config.neighbors} nearest"
    settings |= {"neighbors": nearest if config.whole_up_to else config.neighbors} if config.neighbors else {}
    names = [name for name in _OF_ALL if name != "max_neighbors" or (by_kriging and not config.neighbors)]
    names += list(_OF_NETWORKS) if metric == "network" else []
    settings |= {name: parameters.get(name) for name in names}
    scale = str(config.transform.get("name", "none"))
    settings |= {"target_transform": scale} if scale != "none" else {}
    settings |= {name: config.transform[name] for name in ("link", "constant") if config.transform.get(name)}
    settings |= {"folds": config.folds} if config.folds else {}
    settings |= {"epochs": len(config.train_error), "best_epoch": config.best_epoch + 1} if metric == "network" else {}
    return settings


def _matcher(folder: Path) -> dict[str, Any]:
    config = read_settings(folder / MARKERS["matcher"], _Matcher, "a matcher", newest=1)
    kinds = dict.fromkeys(config.texts, "text") | dict.fromkeys(config.numbers, "number") | config.media
    sides = ("left", "right") if len(config.rows) > 1 else ("rows",)
    return {
        "task": "matching",
        "vicinal": config.vicinal,
        "rows": dict(zip(sides, config.rows, strict=True)) | {"labelled pairs": config.labelled},
        "columns": {name: {"kind": kind, "encoder": ""} for name, kind in kinds.items()},
        "settings": {**config.parameters, "scorer": config.scorer, "threshold": config.threshold},
        "scores": {"model": config.scores} if config.scores else {},
        "notes": config.notes,
    }


def _recommender(folder: Path) -> dict[str, Any]:
    config = read_settings(folder / MARKERS["recommender"], _Recommender, "a recommender", newest=1)
    kinds: dict[str, Any] = {}
    for kernel in config.kernels.values():
        columns = kernel.get("columns")
        kinds |= columns if isinstance(columns, dict) else {}
    return {
        "task": "recommending",
        "vicinal": config.vicinal,
        "rows": {"users": config.users, "items": config.items, "clicks": config.clicks},
        "columns": {name: {"kind": kind, "encoder": ""} for name, kind in kinds.items()},
        "settings": {**config.parameters, **dict(zip(("confidence", "ridge"), config.settings, strict=True))},
        "scores": {"model": config.scores} if config.scores else {},
        "notes": config.notes,
    }


def size_words(size: int) -> str:
    """A number of bytes in suitable units.

    >>> size_words(900), size_words(126_944), size_words(5_300_000_000)
    ('900 B', '127 kB', '5.3 GB')
    """
    value, unit = float(size), "B"
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            break
        value /= 1000
    return f"{value:.3g} {unit}"


def setting_words(value: Any) -> str:
    """A setting as one line: "none" for None, texts unchanged, lists with commas."""
    if isinstance(value, list):
        return ",".join(map(setting_words, value))
    if isinstance(value, Mapping):
        return json.dumps(value)
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
