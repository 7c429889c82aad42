"""What a model is in about ten lines, from its settings as a folder holds them: for Python, a notebook, a terminal."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from vicinal.core.checks import plain
from vicinal.report.text import metric_name, number, one_line, score

_NAMES = 20
"""Most classes that are named."""

_MEASURES = {"rmse": "RMSE", "log_loss": "log loss"}


class _Shown(BaseModel):
    """A part of settings; what is not shown is ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)


class ShownSettings(_Shown):
    """Settings of a folder."""

    version: int


class _Notes(_Shown):
    name: str | None = None
    target: str | None = None
    id: str | None = None
    group: str | None = None
    time: str | None = None
    weight: str | None = None
    scores: dict[str, dict[str, float]] = Field(default_factory=dict)
    distilled_from: str | None = None
    torch: str | None = None


class _Encoder(_Shown):
    encoder: str
    columns: list[str]


class _Encoders(_Shown):
    parts: list[_Encoder]


class _Trial(_Shown):
    metric: str
    measure: str
    out_of_fold: float | None
    held_out: float | None
    constant: float | None


class ModelSettings(ShownSettings):
    """Those of a model."""

    vicinal: str
    task: str
    parameters: dict[str, JsonValue]
    kinds: dict[str, str]
    encoder: _Encoders
    classes: list[str] | list[int] | list[float] | list[bool] | None = None
    multilabel: bool = False
    label_range: tuple[float, float] | tuple[list[float], list[float]] | None = None
    targets: list[str] | None = None
    transform: dict[str, JsonValue] = Field(default_factory=dict)
    train_error: list[Any] = Field(default_factory=list)
    best_epoch: int = 0
    folds: int | None = None
    kriging: bool | None = None
    trend: int | None = None
    cross_fits: int | None = None
    neighbors: int | None = None
    whole_up_to: int = 0
    metric: str | None = None
    blend: list[dict[str, bool | int | None]] | None = None
    adaptation: dict[str, JsonValue] | None = None
    trials: list[_Trial] = Field(default_factory=list)
    changed: list[str] | None = None
    notes: _Notes = Field(default_factory=_Notes)


class _NotedSettings(ShownSettings):
    vicinal: str
    parameters: dict[str, JsonValue]
    scores: dict[str, float] = Field(default_factory=dict)
    notes: list[str] = Field(default_factory=list)

    def _facts(self, task: str, rows: Mapping[str, int], kinds: Mapping[str, Any], **fitted: Any) -> dict[str, Any]:
        return {
            "task": task,
            "vicinal": self.vicinal,
            "rows": rows,
            "columns": {name: {"kind": kind, "encoder": ""} for name, kind in kinds.items()},
            "settings": {**self.parameters, **fitted},
            "scores": {"model": self.scores} if self.scores else {},
            "notes": self.notes,
        }


class MatcherSettings(_NotedSettings):
    """Those of a matcher."""

    texts: list[str]
    numbers: list[str]
    media: dict[str, str]
    rows: list[int]
    labelled: int
    scorer: str | None = None
    threshold: float | None = None

    def facts(self) -> dict[str, Any]:
        """What ``vicinal show --json`` says of it."""
        kinds = dict.fromkeys(self.texts, "text") | dict.fromkeys(self.numbers, "number") | self.media
        sides = ("left", "right") if len(self.rows) > 1 else ("rows",)
        rows = dict(zip(sides, self.rows, strict=True)) | {"labelled pairs": self.labelled}
        return self._facts("matching", rows, kinds, scorer=self.scorer, threshold=self.threshold)


class RecommenderSettings(_NotedSettings):
    """Those of a recommender."""

    settings: tuple[float, float]
    users: int
    items: int
    clicks: int
    kernels: dict[str, dict[str, JsonValue]]

    def facts(self) -> dict[str, Any]:
        """What ``vicinal show --json`` says of it."""
        columns = [kernel.get("columns") for kernel in self.kernels.values()]
        kinds = {name: kind for one in columns if isinstance(one, dict) for name, kind in one.items()}
        rows = {"users": self.users, "items": self.items, "clicks": self.clicks}
        return self._facts("recommending", rows, kinds, confidence=self.settings[0], ridge=self.settings[1])


def model_facts(config: ModelSettings, bank: int, held_out: int) -> dict[str, Any]:
    """What ``vicinal show --json`` says of a model with so many rows in its bank, and held out of training."""
    notes, classes = config.notes, config.classes
    labels: dict[str, Any] = {"classes": len(classes), "names": classes[:_NAMES]} if classes else {}
    labels |= {"several": True} if config.multilabel else {}
    if config.label_range is not None and config.targets is None:
        labels |= dict(zip(("lowest", "highest"), config.label_range, strict=True))
    encoders = {column: part.encoder for part in config.encoder.parts for column in part.columns}
    return {
        "task": config.task,
        "target": notes.target if config.targets is None else ", ".join(config.targets),
        **{name: getattr(notes, name) for name in ("name", "id", "group", "time", "weight")},
        "vicinal": config.vicinal,
        "torch": notes.torch,
        "distilled_from": notes.distilled_from,
        "labels": labels,
        "rows": {"bank": bank, "held out": held_out},
        "columns": {name: {"kind": kind, "encoder": encoders.get(name, "")} for name, kind in config.kinds.items()},
        "settings": _settings(config),
        "scores": notes.scores,
        "trials": [trial.model_dump() for trial in config.trials],
        "adapted": (config.adaptation or {}).get("rows"),
    }


def _settings(config: ModelSettings) -> dict[str, Any]:
    """What was fitted, and the settings that differ from their defaults: all, of a folder that does not know them."""
    parameters = config.parameters
    metric = config.metric or ("kernel" if parameters.get("metric") == "kernel" else "network")
    by_kriging = parameters.get("readout") != "attention" if config.kriging is None else config.kriging
    signed = metric == "kernel" and config.cross_fits is None
    signed |= any(one.get("whole_up_to") for one in config.blend or ())
    chosen = "dense" if signed else "rows" if config.trend is None else "comparables"
    readout = "attention" if not by_kriging else str(parameters.get("readout")).replace("auto", chosen)
    readout = readout if parameters.get("head") != "dense" else "none, the head is dense"
    settings: dict[str, Any] = {} if config.task == "similarity" else {"metric": metric, "readout": readout}
    nearest = f"all of up to {config.whole_up_to:,} rows, else the {config.neighbors} nearest"
    settings |= {"neighbors": nearest if config.whole_up_to else config.neighbors} if config.neighbors else {}
    scale = str(config.transform.get("name", "none"))
    settings |= {"target_transform": scale} if scale != "none" else {}
    settings |= {name: config.transform[name] for name in ("link", "constant") if config.transform.get(name)}
    settings |= {"folds": config.folds} if config.folds else {}
    settings |= {"epochs": len(config.train_error), "best_epoch": config.best_epoch + 1} if metric == "network" else {}
    names = [name for name, value in parameters.items() if value is not None] if config.changed is None else []
    return settings | {name: parameters.get(name) for name in config.changed or names if name not in settings}


class Summary(dict[str, str]):
    """Lines by name, which print as a text and are a table in a notebook."""

    def __str__(self) -> str:
        width = max(map(len, self), default=0)
        return "\n".join(f"{name:<{width}}  {words}" for name, words in self.items())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from vicinal.report.theme import notebook_html

        return notebook_html(self.part())

    def part(self, title: str = "", notes: Sequence[str] = ()) -> Any:
        """The same as a part of what a notebook shows, with sentences below."""
        from vicinal.report.theme import Part

        rows = [[name, one_line(words, 300)] for name, words in self.items()]
        return Part(title, headings=["", ""], rows=rows, sentences=[one_line(note, 300) for note in notes])


def summary(facts: Mapping[str, Any]) -> Summary:
    """The lines on a model, a matcher or a recommender, from what ``vicinal show --json`` says of it."""
    from vicinal.encoders.kinds import told_kinds

    version = f"vicinal {facts['vicinal']}" + (f", torch {facts['torch']}" if facts.get("torch") else "")
    scores = facts["scores"].get("model", {})
    lines = {
        "what": _what(facts),
        "learned from": facts.get("name"),
        "columns": told_kinds(column["kind"] for column in facts["columns"].values()),
        "rows": ", ".join(f"{count:,} {use}" for use, count in facts["rows"].items()),
        **{role: facts.get(role) for role in ("id", "group", "time", "weight")},
        "settings": ", ".join(f"{name} {setting_words(value)}" for name, value in facts["settings"].items()),
        **_error_lines(facts.get("trials", [])),
        "scores": ", ".join(f"{metric_name(name)} {score(value)}" for name, value in scores.items()),
        "adapted": f"to {facts['adapted']:,} new rows" if facts.get("adapted") else None,
        "written": f"{moment(facts['written'])} by {version}" if "written" in facts else None,
    }
    return Summary({name: str(words) for name, words in lines.items() if words})


def _error_lines(trials: list[dict[str, Any]]) -> dict[str, str]:
    """The error of the chosen model, and what was tried."""
    if not trials:
        return {}
    first = trials[0]
    each = {"out of fold": first["out_of_fold"], "on rows held out": first["held_out"]}
    each |= {"for a constant prediction": first["constant"]}
    words = [f"{number(value, 3)} {where}" for where, value in each.items() if value is not None]
    tried = ", ".join(dict.fromkeys(one["metric"] for one in trials))
    said = {"error": f"{_MEASURES[first['measure']]} {', '.join(words)}"} if words else {}
    return said | {"tried": tried}


def _what(facts: Mapping[str, Any]) -> str:
    labels = facts.get("labels", {})
    if facts["task"] == "matching":
        return "a matcher of the rows of two tables" if "left" in facts["rows"] else "a matcher of rows of one table"
    if facts["task"] == "recommending":
        return "a recommender of items to users"
    target = facts["target"] or "a target without a name"
    what = f"a similarity by {target}" if facts["task"] == "similarity" else f"{facts['task']} of {target}"
    if "classes" in labels:
        more = ", ..." if labels["classes"] > len(labels["names"]) else ""
        several = ", several a row" if labels.get("several") else ""
        what += f" ({labels['classes']} classes{several}: {', '.join(map(str, labels['names']))}{more})"
    elif labels:
        low, high = (f"{end:.0f}" if end == round(end) else plain(end) for end in (labels["lowest"], labels["highest"]))
        what += f" (numbers from {low} to {high} in training)"
    return what + (f", distilled from {facts['distilled_from']}" if facts["distilled_from"] else "")


def setting_words(value: Any) -> str:
    """A setting as one line: "none" for None, texts unchanged, lists with commas.

    >>> setting_words([8, 4]), setting_words(None), setting_words(0.5)
    ('8,4', 'none', '0.5')
    """
    if isinstance(value, list):
        return ",".join(map(setting_words, value))
    if isinstance(value, Mapping):
        return json.dumps(value)
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def moment(stamp: str) -> str:
    """A time as ``isoformat`` writes it, for people.

    >>> moment("2026-11-24T02:37:12+00:00")
    '2026-11-24 02:37 UTC'
    """
    return f"{stamp[:10]} {stamp[11:16]} UTC"
