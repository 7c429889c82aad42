"""Options that several commands share, and their parsing."""

import inspect
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, TypeAlias, TypeVar

import typer

from vicinal.cli.output import print_progress
from vicinal.settings import BaseTraining, EstimatorSettings, NeighborSettings

DATA, LEARN, TRAIN = (f"Advanced: {what}" for what in ("the table", "what is learned", "training"))
ALSO = "Advanced: also"
"""Panels of ``--help``; options without a panel are the basic ones, and come first."""

Options: TypeAlias = dict[str, tuple[Any, Any]]
"""Options by the names of their parameters: what they are, and their defaults."""

Names: TypeAlias = list[str] | None
Name: TypeAlias = str | None


def described(sentence: str, *names: str, panel: str | None = None, **further: Any) -> Any:
    """An option by its sentence in the help, for the annotation of a parameter."""
    return typer.Option(*names, help=sentence, rich_help_panel=panel, **further)


def argument(sentence: str, metavar: str | None = None, **further: Any) -> Any:
    """An argument by its sentence and its name in the help, for the annotation of a parameter."""
    return typer.Argument(help=sentence, metavar=metavar, **further)


def option(
    kind: Any, sentence: str, panel: str | None = None, *names: str, default: Any = None, **further: Any
) -> tuple[Any, Any]:
    """An option of a type, as typer takes it, and its default."""
    return Annotated[kind, described(sentence, *names, panel=panel, **further)], default


def of_settings(
    kind: type, panel: str | None, *names: str, options: Mapping[str, str] = MappingProxyType({}), **kinds: Any
) -> Options:
    """Options that are settings of estimators, with defaults and sentences of :mod:`vicinal.settings`.

    Args:
        kind: the settings.
        panel: of ``--help``.
        *names: of the settings.
        options: names of options that are not those of their settings.
        **kinds: types of those that a text stands for.
    """
    chosen = [(one, kinds.get(one.name, one.type), dict(one.metadata)) for one in fields(kind) if one.name in names]

    def named(setting: str) -> list[str]:
        return [options[setting]] if setting in options else []

    return {
        one.name: option(taken, its["sentence"], panel, *named(one.name), default=one.default, metavar=its["metavar"])
        for one, taken, its in sorted(chosen, key=lambda each: names.index(each[0].name))
    }


def model_folder(source: Path, out: str | None, *, learned: bool) -> Path:
    """Where a model goes: as said, or ``NAME-model`` beside its data, unless the other command has made that."""
    from vicinal.core.checks import local_path
    from vicinal.core.folders import MARKERS, named_in
    from vicinal.data import beside

    if out is not None:
        return local_path("--out", out, written=True)
    folder = beside(source, "model")
    settings = folder / MARKERS["model"]
    if settings.is_file() and (named_in(settings, "task") == "similarity") != learned:
        other = "fit" if learned else "learn"
        raise ValueError(f"--out: expected the name of a folder, as {folder} holds a model of vicinal {other}")
    return folder


Targets: TypeAlias = Annotated[
    list[str], described("Column to predict; repeat it for several columns of numbers.", "--target")
]
IncludeOwn: TypeAlias = Annotated[
    bool,
    described(
        "Rows that equal rows of the fit are meant to be predicted from themselves, too: say nothing of it.",
        "--include-own",
        panel=ALSO,
    ),
]
Seed: TypeAlias = Annotated[int, described("Seed of all random choices.")]
AsJson: TypeAlias = Annotated[bool, described("Print JSON on standard output, for programs.", "--json")]

_KINDS = {
    "text": "text",
    "image": "images: paths, or bytes in parquet",
    "audio": "audio: paths, or bytes in parquet",
    "number": "numbers",
    "category": "categories",
    "vector": "fixed vectors",
}
"""What the columns hold that an option of this name lists."""

TABLE: Options = {
    kind: option(Names, f"Treat this column as {what} (repeatable).", DATA, metavar="COL")
    for kind, what in _KINDS.items()
} | {
    "sets": option(
        Names,
        "Treat this column of lists as sets, or combine columns of one kind into a set: photos=a,b,c,d.",
        DATA,
        "--set",
        metavar="COL[=COL,...]",
    ),
    "use": option(Names, "Learn only from this column (repeatable).", DATA, metavar="COL"),
    "drop": option(Names, "Leave out this column (repeatable).", metavar="COL"),
    "id_column": option(Name, "Column that names each row; a row never predicts itself.", None, "--id"),
    "day_first": option(
        bool | None,
        "Order of day and month in dates such as 03/04/2021. Default: detected from all cells of the column.",
        DATA,
        "--day-first/--month-first",
        show_default=False,
    ),
    "decimal": option(
        Name,
        'Mark before decimals in texts such as 1,234: "." or ",". Default: detected from all cells of the column.',
        DATA,
        metavar="MARK",
    ),
    "missing": option(
        Names,
        "Numbers that stand for missing values in this column: age=-9,-1 (repeatable). Default: detected if far from "
        "all others.",
        DATA,
        metavar="COL=NUMBER,...",
    ),
    "root": option(
        Name,
        "Folder that paths of images and sounds start from, and must stay in; default: that of the table.",
        DATA,
        metavar="FOLDER",
    ),
    "database": option(
        Name,
        "Database, if DATA is a query 'select ...': a SQLite or DuckDB file, or an address such as postgresql://...",
        DATA,
        metavar="FILE|URL",
    ),
}
"""How a table is read."""

LABELS: Options = {
    "long": option(
        str,
        "Long texts: cut (a pretrained encoder reads the beginning) or chunks (a text is the set of its chunks).",
        LEARN,
        default="cut",
    ),
    "group": option(Name, "Column of groups (patient, house): kept together in splits."),
    "time": option(
        Name,
        "Column of dates or numbers: the latest rows are tested on; forecasts of earlier ones calibrate intervals.",
        DATA,
        metavar="COL",
    ),
    "weight": option(
        Name,
        "Column of numbers: a row of weight 2 counts as two in training, as a neighbor, and in errors.",
        DATA,
        metavar="COL",
    ),
    "task": option(Name, "regression or classification; default: from the target.", DATA),
    "separator": option(
        Name,
        'Separator of several classes in a cell of the target, such as ";". Cells that are lists need none.',
        DATA,
        metavar="TEXT",
    ),
    "baselines": option(
        bool,
        "Also measure ridge, kernel ridge, support vectors, k-NN and boosting, tuned on the training rows.",
        ALSO,
        default=True,
    ),
}
"""What its rows are, and what they are measured by."""

TRAINING: Options = {
    "encoder": option(
        Names,
        "Encoder of a column or a kind: text=minilm, photo=efficientnet-lite0, text=hub:NAME, text=folder:PATH; "
        "of a set and its elements: photos=set_transformer:efficientnet-lite0.",
        metavar="COL=NAME",
    ),
    **of_settings(EstimatorSettings, LEARN, "tune"),
    **of_settings(
        EstimatorSettings,
        TRAIN,
        *(one.name for one in fields(BaseTraining) if one.metadata and one.name != "logger"),
    ),
    "seed": (Seed, 0),
    "cache": option(Path | None, "Folder that keeps vectors of frozen encoders between runs.", ALSO),
}
"""How anything is trained."""

NEIGHBORS: Options = {
    **of_settings(
        NeighborSettings,
        LEARN,
        *("preset", "similarity", "mask", "mask_parameters", "simplex", "metric", "readout", "max_neighbors"),
        *("target_transform", "loss", "members", "final_tanh", "dropout"),
        loss=Name,
    ),
    "hidden": option(
        str,
        "Sizes of the projector's layers; the last is the embedding's.",
        LEARN,
        default=",".join(map(str, NeighborSettings.hidden)),
    ),
    "epochs": (Annotated[int | None, typer.Option("--epochs", help="As --max-epochs.", hidden=True)], None),
}
"""What a model of neighbors is."""

FIT: Options = {
    "query": option(
        Name,
        "Column of queries (searches, users, sessions): rows are ranked within each by their target, a grade. It "
        "is the group, too.",
        metavar="COL",
    ),
    **of_settings(NeighborSettings, TRAIN, "minutes"),
    "plan": option(Name, "plan.json of an earlier model, to tune the same way.", TRAIN, metavar="FILE"),
    **of_settings(NeighborSettings, LEARN, "fair", "fair_weight", "fair_rate"),
    "test": option(
        float,
        "Share of rows to test on. 0: train on all rows; scores are from members on rows that they never saw.",
        TRAIN,
        default=0.2,
    ),
    "validation": option(
        float,
        "Share of the others held out for early stopping and calibration. 0: none; each member leaves out a fold.",
        TRAIN,
        default=0.15,
    ),
    **of_settings(NeighborSettings, TRAIN, "devices", "logger", devices=int),
    **of_settings(NeighborSettings, ALSO, "index"),
}
"""What only ``vicinal fit`` has."""

AGAIN: Options = {
    "index": option(
        Name,
        "Index to use; default: the model's own. A database must be named again: a model folder does not decide what "
        "is opened.",
        ALSO,
        metavar="NAME",
    ),
    "encoder": option(
        Names,
        "Encoder of the fit; one from a folder or the hub must be named again: text=folder:PATH, text=hub:NAME.",
        ALSO,
        metavar="COL=NAME",
    ),
}
"""How a model is opened."""

READ: Options = {name: TABLE[name] for name in ("root", "database")}
"""How rows are read that a model is asked about."""

MODEL: Options = {**READ, **AGAIN}
"""Both."""

AIM: Options = {
    "link": option(
        Name, "Predict what has the least expected matching loss of this link, exp(1.5) say.", metavar="LINK"
    ),
    "cost": option(Name, "Predict what costs least where a unit too low costs A and one too high B.", metavar="A:B"),
    "quantile": option(float | None, "Predict this quantile, from 0 to 1.", metavar="SHARE"),
    "cap": option(
        str,
        "Spreads from the median beyond which a --link that grows exponentially goes on straight, or none.",
        ALSO,
        default="2",
    ),
}
"""Which summary of the labels behind it a prediction is."""

RUN: Options = {
    "as_json": (AsJson, False),
    "quiet": option(bool, "No progress on standard error.", None, "--quiet", "-q", default=False),
    "verbose": option(
        bool, "Print all details, and a line of progress every second.", ALSO, "--verbose", "-v", default=False
    ),
}
"""How a run reports."""

ANSWER: Options = {name: RUN[name] for name in ("as_json", "quiet")}
"""How a command reports that shows lines of progress and no display."""

_PARSED = frozenset({"preset", "encoder", "mask", "hidden", "max_epochs", "epochs", "seed", "cache"})
_OF_JOBS = frozenset({"test", "validation", "plan", "query"})

PLAIN = tuple(name for name in ("head", *TRAINING, *NEIGHBORS, *FIT) if name not in _PARSED | _OF_JOBS)
"""Options that are parameters of estimators as they are."""

Command = TypeVar("Command", bound=Callable[..., Any])


def with_options(*groups: Options, **defaults: Any) -> Callable[[Command], Command]:
    """A command with all options of these groups, which it gets as ``**options``; ``defaults`` are its own.

    They stand in the help behind those that the command itself declares.
    """

    def add(command: Command) -> Command:
        signature = inspect.signature(command)
        declared = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        shared = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=defaults.get(name, default), annotation=option
            )
            for name, (option, default) in ChainMap(*reversed(groups)).items()
        ]
        every = [*declared, *shared]
        command.__signature__ = signature.replace(parameters=every)  # type: ignore[attr-defined]
        command.__annotations__ = {one.name: one.annotation for one in every}
        return command

    return add


def named_kinds(options: Mapping[str, Any]) -> dict[str, Any]:
    """Kind by column from the options of the kinds; ValueError for a column of two kinds."""
    kinds: dict[str, str] = {}
    sets = [name.partition("=")[0] for name in options["sets"] or []]
    for kind, columns in [*((kind, options[kind] or []) for kind in _KINDS), ("set", sets)]:
        for column in columns:
            if column in kinds:
                raise _wrong(f"--{kind}", "each column for one kind", column, f" for {kinds[column]} too")
            kinds[column] = kind
    return kinds


def named_sets(pairs: Iterable[str] | None) -> dict[str, list[str]]:
    """Columns by the name of the set that they form, from ``NAME=COL,COL``; a plain ``COL`` of lists is left out."""
    sets: dict[str, list[str]] = {}
    for pair in pairs or []:
        name, equals, columns = pair.partition("=")
        names = [column.strip() for column in columns.split(",")]
        if name in sets or (equals and not (name and all(names))):
            raise _wrong("--set", "COL or NAME=COL,COL,..., each name once", pair)
        if equals:
            sets[name] = names
    return sets


def named_missing(pairs: Iterable[str] | None) -> dict[str, list[float]]:
    """Numbers that stand for missing ones by column, from ``COL=NUMBER,NUMBER``."""
    missing: dict[str, list[float]] = {}
    for pair in pairs or []:
        name, _, numbers = pair.rpartition("=")
        try:
            missing.setdefault(name, []).extend(map(float, numbers.split(",")))
        except ValueError:
            raise _wrong("--missing", "COL=NUMBER or COL=NUMBER,NUMBER,...", pair) from None
    return missing


def table_settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """What options of a command say of its table, as jobs of workflows take it."""
    same = ("long", "group", "query", "time", "weight", "task", "separator", "day_first", "decimal", "use", "seed")
    settings = {name: options[name] for name in (*same, "test", "validation", "baselines") if name in options}
    return settings | {
        "kinds": named_kinds(options),
        "sets": named_sets(options["sets"]),
        "missing": named_missing(options["missing"]),
        "id": options["id_column"],
        "root": root_of(options["root"]),
        "drop": options["drop"] or (),
    }


def estimator_parameters(context: typer.Context) -> dict[str, Any]:
    """Parameters of an estimator from the options of a command."""
    options = context.params
    parameters = {name: options[name] for name in PLAIN if name in options}
    parameters |= {
        "encoders": parse_encoders(options["encoder"]),
        "mask": None if options["mask"] == "none" else options["mask"],
        "hidden": parse_sizes(options["hidden"]),
        "max_epochs": _max_epochs(context),
    }
    if options["preset"] is not None:
        parameters |= _of_preset(context, options["preset"])
    if options["cache"] is not None:
        parameters["cache_dir"] = options["cache"]
    if options.get("plan") is not None:
        parameters["plan"] = plan_of(options["plan"])
    return parameters


def _of_preset(context: typer.Context, name: str) -> dict[str, Any]:
    """Settings of a preset, but for those that options name, their defaults included."""
    from vicinal.core import check_choice
    from vicinal.estimators.presets import PRESETS

    named = {option for option in context.params if _is_named(context, option)}
    named |= {"max_epochs"} if "epochs" in named else set()
    settings = PRESETS[check_choice("--preset", name, PRESETS)].settings
    return {setting: value for setting, value in settings.items() if setting not in named}


def _is_named(context: typer.Context, option: str) -> bool:
    """Whether the user has named the option, rather than left it at its default."""
    source = context.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"


def folder_of(model: str) -> Path:
    """The folder of the argument MODEL."""
    from vicinal.core.checks import local_path

    return local_path("model", model)


def table_of(text: str | None, options: Mapping[str, Any] = MappingProxyType({}), name: str = "data") -> Any:
    """The file of a table, if one is named."""
    from vicinal.data.sources import table_source

    return None if text is None else table_source(name, text, options.get("database"))


def log_of(options: Mapping[str, Any]) -> Callable[[str], None]:
    """Where lines of progress go."""
    return (lambda line: None) if options.get("quiet") else print_progress


def again(options: Mapping[str, Any]) -> dict[str, Any]:
    """What workflows that open a model take, of the options ``AGAIN``."""
    return {"index": options["index"], "encoders": parse_encoders(options["encoder"])}


def opened(options: Mapping[str, Any]) -> dict[str, Any]:
    """The same of the options ``MODEL`` and ``ANSWER``."""
    return {"root": root_of(options["root"]), **again(options), "log": log_of(options)}


def aim_of(options: Mapping[str, Any]) -> dict[str, Any] | None:
    """Arguments of ``NeighborRegressor.for_loss`` of the options ``AIM``; None where nothing is asked for."""
    prices, cost = None, options["cost"]
    if cost is not None:
        prices = tuple(_number("--cost", part, "two prices such as 3:1") for part in cost.split(":"))
        if len(prices) != 2:
            raise _wrong("--cost", "two prices such as 3:1", cost)
    named = {"link": options["link"], "cost": prices, "quantile": options["quantile"]}
    aim: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    if "link" in aim:
        cap = options["cap"]
        aim["cap"] = None if cap == "none" else _number("--cap", cap, "a number or none")
    return aim or None


def _number(name: str, text: str, expected: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise _wrong(name, expected, text) from None


def _wrong(option: str, expected: str, got: str, more: str = "") -> ValueError:
    from vicinal.core import short

    return ValueError(f"{option}: expected {expected}, got {short(got)}{more}")


def plan_of(name: str | None) -> Any:
    """The plan in a file, if one is named."""
    from vicinal.core.checks import local_path
    from vicinal.estimators.plan import read_plan

    return None if name is None else read_plan(local_path("--plan", name))


def _max_epochs(context: typer.Context) -> int:
    """The value of ``--max-epochs``, or of its hidden alias ``--epochs``; ValueError if both are given."""
    most: int = context.params["max_epochs"]
    alias: int | None = context.params["epochs"]
    if alias is None:
        return most
    if _is_named(context, "max_epochs"):
        raise ValueError(f"--max-epochs: expected one number, got {most} and --epochs {alias}; leave --epochs out")
    return alias


def root_of(path: str | None) -> Path | None:
    """The folder of ``--root``, which must exist."""
    from vicinal.core import short
    from vicinal.core.checks import local_path

    if path is None:
        return None
    root = local_path("--root", path)
    if not root.is_dir():
        raise ValueError(f"--root: expected a folder, got {short(path, 120)}, which is none")
    return root.resolve()


def parse_encoders(pairs: Iterable[str] | None) -> dict[str, str]:
    """Encoders by column or kind, from ``COL=NAME`` pairs."""
    encoders = {}
    for pair in pairs or []:
        column, equals, name = pair.partition("=")
        if not (column and equals and name):
            raise _wrong("--encoder", "COL=NAME, as text=minilm", pair)
        encoders[column] = name
    return encoders


def parse_sizes(text: str) -> tuple[int, ...]:
    """Layer sizes from text such as ``200,25``."""
    try:
        return tuple(int(size) for size in text.split(","))
    except ValueError as wrong:
        raise _wrong("--hidden", "whole numbers with commas, as 200,25", text) from wrong
