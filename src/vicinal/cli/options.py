"""Options that several commands share, and their parsing."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

import typer

DATA, LEARN, TRAIN = (f"Advanced: {what}" for what in ("the table", "what is learned", "training"))
ALSO = "Advanced: also"
"""Panels of ``--help``; options without a panel are the basic ones, and come first."""

Database: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Database, if DATA is a query 'select ...': a SQLite or DuckDB file, or an address such as postgresql://...",
        rich_help_panel=DATA,
        metavar="FILE|URL",
    ),
]
Target: TypeAlias = Annotated[str, typer.Option(help="Column to predict.")]
Targets: TypeAlias = Annotated[
    list[str], typer.Option("--target", help="Column to predict; repeat it for several columns of numbers.")
]


def _columns(kind: str) -> Any:
    """Option that names columns of one kind."""
    help_text = f"Treat this column as {kind} (repeatable)."
    return typer.Option(help=help_text, rich_help_panel=DATA, metavar="COL")


Text: TypeAlias = Annotated[list[str] | None, _columns("text")]
Image: TypeAlias = Annotated[list[str] | None, _columns("images: paths, or bytes in parquet")]
Audio: TypeAlias = Annotated[list[str] | None, _columns("audio: paths, or bytes in parquet")]
Number: TypeAlias = Annotated[list[str] | None, _columns("numbers")]
Category: TypeAlias = Annotated[list[str] | None, _columns("categories")]
Vector: TypeAlias = Annotated[list[str] | None, _columns("fixed vectors")]
Sets: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Treat this column of lists as sets, or combine columns of one kind into a set: photos=a,b,c,d.",
        rich_help_panel=DATA,
        metavar="COL[=COL,...]",
    ),
]
Long: TypeAlias = Annotated[
    str,
    typer.Option(
        help="Long texts: cut (a pretrained encoder reads the beginning) or chunks (a text is the set of its chunks).",
        rich_help_panel=LEARN,
    ),
]
Drop: TypeAlias = Annotated[list[str] | None, typer.Option(help="Leave out this column (repeatable).", metavar="COL")]
Use: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(help="Learn only from this column (repeatable).", rich_help_panel=DATA, metavar="COL"),
]
Id: TypeAlias = Annotated[
    str | None,
    typer.Option("--id", help="Column that names each row; a row never predicts itself."),
]
Group: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Column of groups (patient, house): kept together in splits."),
]
Query: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Column of queries (searches, users, sessions): rows are ranked within each by their target, a grade. It "
        "is the group, too.",
        metavar="COL",
    ),
]
Time: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Column of dates or numbers: the latest rows are test rows, those before them serve early stopping.",
        rich_help_panel=DATA,
        metavar="COL",
    ),
]
Weight: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Column of numbers: a row of weight 2 counts as two in training, as a neighbor, and in errors.",
        rich_help_panel=DATA,
        metavar="COL",
    ),
]
Task: TypeAlias = Annotated[
    str | None, typer.Option(help="regression or classification; default: from the target.", rich_help_panel=DATA)
]
Separator: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help='Separator of several classes in a cell of the target, such as ";". Cells that are lists need none.',
        rich_help_panel=DATA,
        metavar="TEXT",
    ),
]
DayFirst: TypeAlias = Annotated[
    bool | None,
    typer.Option(
        "--day-first/--month-first",
        help="Order of day and month in dates such as 03/04/2021. Default: detected from all cells of the column.",
        rich_help_panel=DATA,
        show_default=False,
    ),
]
Decimal: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help='Mark before decimals in texts such as 1,234: "." or ",". Default: detected from all cells of the column.',
        rich_help_panel=DATA,
        metavar="MARK",
    ),
]
Encoder: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        help="Encoder of a column or a kind: text=minilm, photo=efficientnet-lite0, text=hub:NAME, text=folder:PATH; "
        "of a set and its elements: photos=set_transformer:efficientnet-lite0.",
        metavar="COL=NAME",
    ),
]
Tune: TypeAlias = Annotated[
    str,
    typer.Option(
        help="Trained part of pretrained encoders: none, last-N, lora, all, or auto (as much as --minutes allow, if it "
        "predicts the held-out rows better).",
        rich_help_panel=LEARN,
    ),
]
Minutes: TypeAlias = Annotated[float, typer.Option(help="Most minutes for --tune auto.", rich_help_panel=TRAIN)]
Plan: TypeAlias = Annotated[
    str | None,
    typer.Option(help="plan.json of an earlier model, to tune the same way.", rich_help_panel=TRAIN, metavar="FILE"),
]
Preset: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Settings by one name: nona (the NONA paper's model and training; its encoders are trained, too, unless "
        "--tune none). Options that are named go before it.",
        rich_help_panel=LEARN,
    ),
]
Similarity: TypeAlias = Annotated[
    str, typer.Option(help="Similarity: l2, l1, cosine, dot, scaled_dot, snr, squared_l2.", rich_help_panel=LEARN)
]
Mask: TypeAlias = Annotated[
    str,
    typer.Option(
        help="Rejection of far neighbors: s2, s1, s2-ranks, s1-ranks, s2-reject, topk or none.", rich_help_panel=LEARN
    ),
]
MaskParameters: TypeAlias = Annotated[
    str, typer.Option(help="Parameters of s1 and s2: pointwise or global.", rich_help_panel=LEARN)
]
Simplex: TypeAlias = Annotated[
    str,
    typer.Option(
        help="Weights: softmax, sparsemax, entmax15; auto: entmax15 for numbers, softmax for classes.",
        rich_help_panel=LEARN,
    ),
]
Metric: TypeAlias = Annotated[
    str,
    typer.Option(
        help="What makes rows near: trees (boosted), kernel (with learned lengths of columns; for classes "
        "also of frozen encoders), network (trained), or auto (what predicts best; a network only if clearly better).",
        rich_help_panel=LEARN,
    ),
]
Readout: TypeAlias = Annotated[
    str,
    typer.Option(
        help="How neighbors are combined: rows (a weighted mean of few), comparables (few, each adjusted by a trend "
        "by columns), dense (many, weights also below 0), attention (all, of a network), or auto (the fewest rows that "
        "do nearly as well).",
        rich_help_panel=LEARN,
    ),
]
MaxNeighbors: TypeAlias = Annotated[
    int | None,
    typer.Option(
        help="Most neighbors of a prediction; default: 10 to 120, chosen; 30 of a network; for dense weights all of "
        "up to 2,048, 256 of more rows, 128 of over 5,000.",
        rich_help_panel=LEARN,
    ),
]
TargetTransform: TypeAlias = Annotated[
    str,
    typer.Option(
        help="Scale that numbers are learned on: none, log (for positive numbers such as prices; predictions are "
        "weighted geometric means), rank (normal scores), or auto (log if a kernel predicts better with it).",
        rich_help_panel=LEARN,
    ),
]
Loss: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Losses and regularizers of the embeddings to add: supcon(temperature=.1) + 0.05*energy_confusion (see "
        "vicinal losses); or the loss of predictions: matching:sigmoid(scale=2,shift=0.7) in label units, "
        "comp_sum(tau=1.7) for classes; or both, with + between them. Default: squared error, log-loss.",
        rich_help_panel=LEARN,
    ),
]
Fair: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Column of an attribute such as sex or age, whose groups should be treated alike. It is not a feature "
        "unless --use or a kind names it. The metric is then the network.",
        rich_help_panel=LEARN,
        metavar="COL",
    ),
]
FairWeight: TypeAlias = Annotated[
    float | None,
    typer.Option(
        help="Weight of --fair in the loss; 0: only measure. Default: 0.1 for classes, 1 for numbers.",
        rich_help_panel=LEARN,
    ),
]
FairRate: TypeAlias = Annotated[
    str,
    typer.Option(
        help="For classes, the rate that --fair makes equal: positive, true_positive, false_positive or accuracy.",
        rich_help_panel=LEARN,
    ),
]
Index: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Index to find neighbors: exact, faiss:IVF1024,Flat, milvus:./bank.db, milvus:http://host:19530; default: "
        "none, the whole bank is read. It is saved with the model; a database stays where it is.",
        rich_help_panel=ALSO,
        metavar="NAME",
    ),
]
IncludeOwn: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--include-own",
        help="Rows that equal rows of the fit are meant to be predicted from themselves, too: say nothing of it.",
        rich_help_panel=ALSO,
    ),
]
IndexAgain: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--index",
        help="Index to use; default: the model's own. A database must be named again: a model folder does not decide "
        "what is opened.",
        rich_help_panel=ALSO,
        metavar="NAME",
    ),
]
EncoderAgain: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--encoder",
        help="Encoder of the fit; one from a folder or the hub must be named again: text=folder:PATH, text=hub:NAME.",
        rich_help_panel=ALSO,
        metavar="COL=NAME",
    ),
]
IndexTolerance: TypeAlias = Annotated[
    float,
    typer.Option(
        help="With --index: most weight allowed for rows that were not fetched; else the whole bank is read.",
        rich_help_panel=ALSO,
    ),
]
Hidden: TypeAlias = Annotated[
    str, typer.Option(help="Sizes of the projector's layers; the last is the embedding's.", rich_help_panel=LEARN)
]
Members: TypeAlias = Annotated[
    int, typer.Option(help="Number of projectors with heads, whose predictions are averaged.", rich_help_panel=LEARN)
]
FinalTanh: TypeAlias = Annotated[
    bool, typer.Option(help="End the projector with a tanh, as in the NONA paper.", rich_help_panel=LEARN)
]
Dropout: TypeAlias = Annotated[float, typer.Option(help="Dropout before each projector layer.", rich_help_panel=LEARN)]
MaxEpochs: TypeAlias = Annotated[int, typer.Option(help="Most passes over the training rows.", rich_help_panel=TRAIN)]
Epochs: TypeAlias = Annotated[int | None, typer.Option("--epochs", help="As --max-epochs.", hidden=True)]
BatchSize: TypeAlias = Annotated[int, typer.Option(help="Rows per training step.", rich_help_panel=TRAIN)]
LearningRate: TypeAlias = Annotated[float, typer.Option(help="Learning rate of new weights.", rich_help_panel=TRAIN)]
EncoderLearningRate: TypeAlias = Annotated[
    float, typer.Option(help="Learning rate of tuned pretrained encoders.", rich_help_panel=TRAIN)
]
WeightDecay: TypeAlias = Annotated[float, typer.Option(help="Decoupled weight decay.", rich_help_panel=TRAIN)]
Patience: TypeAlias = Annotated[
    int, typer.Option(help="Epochs without a better validation error before training stops.", rich_help_panel=TRAIN)
]
Test: TypeAlias = Annotated[
    float,
    typer.Option(
        help="Share of rows to test on. 0: train on all rows; scores are from members on rows that they never saw.",
        rich_help_panel=TRAIN,
    ),
]
Validation: TypeAlias = Annotated[
    float,
    typer.Option(
        help="Share of the others held out for early stopping and calibration. 0: none; each member leaves out a fold.",
        rich_help_panel=TRAIN,
    ),
]
Seed: TypeAlias = Annotated[int, typer.Option(help="Seed of all random choices.")]
Precision: TypeAlias = Annotated[
    str, typer.Option(help="Precision: 32-true, 64-true, bf16-mixed or 16-mixed.", rich_help_panel=TRAIN)
]
Accelerator: TypeAlias = Annotated[
    str, typer.Option(help="Accelerator: cpu, gpu, mps or auto, as in Lightning.", rich_help_panel=TRAIN)
]
Devices: TypeAlias = Annotated[
    int, typer.Option(help="Number of processes that train together, each on its own device.", rich_help_panel=TRAIN)
]
Logger: TypeAlias = Annotated[
    str | None, typer.Option(help="Training log: csv, tensorboard, wandb or mlflow.", rich_help_panel=TRAIN)
]
Root: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Folder that paths of images and sounds start from, and must stay in; default: that of the table.",
        rich_help_panel=DATA,
        metavar="FOLDER",
    ),
]
Cache: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="Folder that keeps vectors of frozen encoders between runs.", rich_help_panel=ALSO),
]
Baselines: TypeAlias = Annotated[
    bool,
    typer.Option(
        help="Also measure ridge, kernel ridge, support vectors, k-NN and boosting, tuned on the training rows.",
        rich_help_panel=ALSO,
    ),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON on standard output, for programs.")]
Verbose: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--verbose", "-v", help="Print all details, and a line of progress every second.", rich_help_panel=ALSO
    ),
]
Quiet: TypeAlias = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on standard error.")]


Options: TypeAlias = dict[str, tuple[Any, Any]]
"""Options by the names of their parameters: what they are, and their defaults."""

TABLE: Options = {
    "text": (Text, None),
    "image": (Image, None),
    "audio": (Audio, None),
    "number": (Number, None),
    "category": (Category, None),
    "vector": (Vector, None),
    "sets": (Sets, None),
    "use": (Use, None),
    "drop": (Drop, None),
    "id_column": (Id, None),
    "day_first": (DayFirst, None),
    "decimal": (Decimal, None),
    "root": (Root, None),
    "database": (Database, None),
}
"""How a table is read."""

LABELS: Options = {
    "long": (Long, "cut"),
    "group": (Group, None),
    "time": (Time, None),
    "weight": (Weight, None),
    "task": (Task, None),
    "separator": (Separator, None),
    "baselines": (Baselines, True),
}
"""What its rows are, and what they are measured by."""

TRAINING: Options = {
    "encoder": (Encoder, None),
    "tune": (Tune, "auto"),
    "max_epochs": (MaxEpochs, 200),
    "batch_size": (BatchSize, 128),
    "learning_rate": (LearningRate, 1e-3),
    "encoder_learning_rate": (EncoderLearningRate, 2e-5),
    "weight_decay": (WeightDecay, 0.0),
    "patience": (Patience, 10),
    "seed": (Seed, 0),
    "precision": (Precision, "32-true"),
    "accelerator": (Accelerator, "auto"),
    "cache": (Cache, None),
}
"""How anything is trained."""

NEIGHBORS: Options = {
    "preset": (Preset, None),
    "similarity": (Similarity, "l2"),
    "mask": (Mask, "s2"),
    "mask_parameters": (MaskParameters, "pointwise"),
    "simplex": (Simplex, "auto"),
    "metric": (Metric, "auto"),
    "readout": (Readout, "auto"),
    "max_neighbors": (MaxNeighbors, None),
    "target_transform": (TargetTransform, "auto"),
    "loss": (Loss, None),
    "hidden": (Hidden, "200,25"),
    "members": (Members, 8),
    "final_tanh": (FinalTanh, False),
    "dropout": (Dropout, 0.2),
    "epochs": (Epochs, None),
}
"""What a model of neighbors is."""

FIT: Options = {
    "query": (Query, None),
    "minutes": (Minutes, 10.0),
    "plan": (Plan, None),
    "fair": (Fair, None),
    "fair_weight": (FairWeight, None),
    "fair_rate": (FairRate, "positive"),
    "test": (Test, 0.2),
    "validation": (Validation, 0.15),
    "devices": (Devices, 1),
    "logger": (Logger, None),
    "index": (Index, None),
    "index_tolerance": (IndexTolerance, 1e-3),
}
"""What only ``vicinal fit`` has."""

RUN: Options = {"as_json": (AsJson, False), "quiet": (Quiet, False), "verbose": (Verbose, False)}
"""How a run reports."""

_PARSED = frozenset(
    {"preset", "encoder", "similarity", "mask", "simplex", "hidden", "max_epochs", "epochs", "seed", "cache"}
)
_OF_JOBS = frozenset({"test", "validation", "plan", "query"})

PLAIN = tuple(name for name in ("head", *TRAINING, *NEIGHBORS, *FIT) if name not in _PARSED | _OF_JOBS)
"""Options that are parameters of estimators as they are."""

Command = TypeVar("Command", bound=Callable[..., Any])


def with_options(*groups: Options, **defaults: Any) -> Callable[[Command], Command]:
    """A command with all options of these groups, which it gets as ``**options``; ``defaults`` are its own.

    They stand in the help before those that the command itself declares.
    """

    def add(command: Command) -> Command:
        signature = inspect.signature(command)
        declared = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        shared = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=defaults.get(name, default), annotation=option
            )
            for group in groups
            for name, (option, default) in group.items()
        ]
        first = [one for one in declared if one.kind is not inspect.Parameter.KEYWORD_ONLY]
        every = [*first, *shared, *declared[len(first) :]]
        command.__signature__ = signature.replace(parameters=every)  # type: ignore[attr-defined]
        command.__annotations__ = {one.name: one.annotation for one in every}
        return command

    return add


_KINDS = ("text", "image", "audio", "number", "category", "vector")


def named_kinds(options: Mapping[str, Any]) -> dict[str, Any]:
    """Kind by column from the options of the kinds; ValueError for a column of two kinds."""
    from vicinal.core import short

    kinds: dict[str, str] = {}
    for kind in (*_KINDS, "set"):
        for column in (
            [name.partition("=")[0] for name in options["sets"] or []] if kind == "set" else options[kind] or []
        ):
            if column in kinds:
                raise ValueError(
                    f"--{kind}: expected each column for one kind, got {short(column)} for {kinds[column]} too"
                )
            kinds[column] = kind
    return kinds


def named_sets(pairs: Iterable[str] | None) -> dict[str, list[str]]:
    """Columns by the name of the set that they form, from ``NAME=COL,COL``; a plain ``COL`` of lists is left out."""
    from vicinal.core import short

    sets: dict[str, list[str]] = {}
    for pair in pairs or []:
        name, equals, columns = pair.partition("=")
        names = [column.strip() for column in columns.split(",")]
        if name in sets or (equals and not (name and all(names))):
            raise ValueError(f"--set: expected COL or NAME=COL,COL,..., each name once, got {short(pair)}")
        if equals:
            sets[name] = names
    return sets


def table_settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """What options of a command say of its table, as jobs of workflows take it."""
    same = ("long", "group", "query", "time", "weight", "task", "separator", "day_first", "decimal", "use", "seed")
    settings = {name: options[name] for name in (*same, "test", "validation", "baselines") if name in options}
    return settings | {
        "kinds": named_kinds(options),
        "sets": named_sets(options["sets"]),
        "id": options["id_column"],
        "root": root_of(options["root"]),
        "drop": options["drop"] or (),
    }


def estimator_parameters(context: typer.Context) -> dict[str, Any]:
    """Parameters of an estimator from the options of a command, checked."""
    options = context.params
    parameters = {name: options[name] for name in PLAIN if name in options}
    parameters |= {
        "encoders": parse_encoders(options["encoder"]),
        "similarity": check_method("--similarity", "similarity", options["similarity"]),
        "mask": parse_mask(options["mask"]),
        "simplex": check_method("--simplex", "simplex", options["simplex"], also=("auto",)),
        "hidden": parse_sizes(options["hidden"]),
        "max_epochs": _max_epochs(context),
        "progress": False,
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
    from vicinal.core import short

    encoders = {}
    for pair in pairs or []:
        column, equals, name = pair.partition("=")
        if not (column and equals and name):
            raise ValueError(f"--encoder: expected COL=NAME, as text=minilm, got {short(pair)}")
        encoders[column] = name
    return encoders


def parse_sizes(text: str) -> tuple[int, ...]:
    """Layer sizes from text such as ``200,25``."""
    from vicinal.core import short

    try:
        return tuple(int(size) for size in text.split(","))
    except ValueError as wrong:
        raise ValueError(f"--hidden: expected whole numbers with commas, as 200,25, got {short(text)}") from wrong


def parse_mask(text: str) -> str | None:
    """Name of a mask, None for "none"."""
    from vicinal.core import check_choice

    masks = ("s1", "s2", "s1-ranks", "s2-ranks", "s2-reject", "topk", "none")
    check_choice("--mask", text, masks)
    return None if text == "none" else text


def check_method(option: str, kind: str, name: str, also: tuple[str, ...] = ()) -> str:
    """``name`` if it is a registered method of ``kind``, or one of ``also``; else ValueError."""
    from vicinal.core import check_choice, entries

    return check_choice(option, name, [*also, *(method.name for method in entries(kind))])
