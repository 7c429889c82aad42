"""``vicinal learn``: from a table and a column that says what is alike to a model for search."""

from typing import TYPE_CHECKING, Annotated, Any

from vicinal.cli import options as o
from vicinal.cli.app import app
from vicinal.cli.output import output, print_columns, print_json, print_rows
from vicinal.cli.progress import shown_progress
from vicinal.settings import LikenessSettings

if TYPE_CHECKING:
    from vicinal.workflows.learn import LearnOutcome


LEARNING: o.Options = {
    **o.of_settings(LikenessSettings, o.TRAIN, "max_epochs"),
    **o.of_settings(LikenessSettings, o.LEARN, "loss", "miner", "sampler", "per_class", "memory", "dim"),
}
"""What only this command has of the settings of a learner."""


@app.command(epilog="Example: vicinal learn photos.csv --same product --image photo")
@o.with_options(o.TABLE, o.TRAINING, LEARNING, o.RUN)
def learn(
    data: Annotated[str, o.argument("Table: a file, pattern, folder, - or query.", "DATA")],
    *,
    same: Annotated[str, o.described("Column that says which rows are alike: a class, group or number.")],
    labels: Annotated[
        str, o.described("Contents of that column: classes, several (with --separator), or numbers.")
    ] = "classes",
    separator: Annotated[str, o.described("Separator of several classes in a cell.")] = "|",
    group: Annotated[
        o.Name, o.described("Column of groups whose rows are not pairs, such as takes of one session.")
    ] = None,
    out: Annotated[o.Name, o.described("Model folder; default: NAME-model beside the data.", metavar="FOLDER")] = None,
    unseen: Annotated[
        bool | None,
        o.described(
            "Test on classes that training has not seen, or on rows of all classes; default: the former from 8 "
            "classes on.",
            "--unseen/--seen",
            panel=o.TRAIN,
        ),
    ] = None,
    test: Annotated[float, o.described("Share of classes (or rows) to test on.", panel=o.TRAIN)] = 0.2,
    validation: Annotated[float, o.described("Share of the others held out for early stopping.", panel=o.TRAIN)] = 0.15,
    **options: Any,
) -> None:
    """Learn vectors that are near for rows of one class, group or number, also of classes never seen.

    Writes a model folder for vicinal search, embed, add and forget, and report.html with example queries and hits.
    """
    from vicinal.workflows.learn import LearnJob, learn_table

    source = o.table_of(data, options)
    folder = o.model_folder(source, out, learned=True)
    parameters: dict[str, Any] = {name: options[name] for name in o.PLAIN if name in options}
    parameters |= {name: options[name] for name in LEARNING}
    parameters |= {"encoders": o.parse_encoders(options["encoder"]), "unseen": unseen}
    parameters |= {"validation_fraction": validation}
    parameters |= {} if options["cache"] is None else {"cache_dir": options["cache"]}
    of_table = o.table_settings(options | {"separator": separator, "group": group, "test": test})
    job = LearnJob(source=source, same=same, labels=labels, parameters=parameters, **of_table)
    as_json = options["as_json"]
    with shown_progress(quiet=options["quiet"], verbose=options["verbose"], as_json=as_json) as shown:
        outcome = learn_table(job, folder, shown.log)
    if as_json:
        print_json(_outcome_json(outcome))
    else:
        _print_outcome(outcome, whole=options["verbose"])


def _outcome_json(outcome: "LearnOutcome") -> dict[str, Any]:
    record = outcome.record
    return {
        "model": str(outcome.folder),
        "rows": dict(record.rows),
        "classes": dict(record.classes),
        "columns": {name: {"kind": kind, "encoder": encoder} for name, kind, encoder, _ in record.columns},
        "dropped": dict(record.dropped),
        "scores": {
            method: {name: {"value": v, "low": low, "high": high} for name, (v, low, high) in values.items()}
            for method, values in record.scores.items()
        },
        "notes": list(record.notes),
        "epochs": len(outcome.model.history_.train_error),
        "bank": len(outcome.model.bank_),
        "seconds": record.duration_s,
    }


def _print_outcome(outcome: "LearnOutcome", *, whole: bool) -> None:
    """Rows, the result in sentences, and where it is; with ``whole`` also columns, all measures and notes."""
    from vicinal.core import counted
    from vicinal.report.learned import learned_findings, score_rows

    record = outcome.record
    print_columns(record.columns, output, whole=whole)
    sizes = [
        f"{count} {use}" + (f" ({record.classes[use]} classes)" if use in record.classes else "")
        for use, count in record.rows.items()
    ]
    output.print(f"Similar rows share their {record.same}. Rows: {', '.join(sizes)}.")
    for reason, count in record.dropped.items():
        output.print(f"{counted(count, 'row')} left out: {reason}")
    if whole and record.scores:
        heading, *lines = list(zip(*score_rows(record), strict=True))  # a line for each measure: it fits a terminal
        shown = [[measure, value, *(other.partition(" (")[0] for other in others)] for measure, value, *others in lines]
        print_rows("Retrieval among the test rows (95 % bootstrap intervals)", list(heading), shown)
    for sentence in (*learned_findings(record), *(record.notes if whole else ())):
        output.print(sentence)
    if outcome.folder is not None:
        output.print(f"model   {outcome.folder} ({len(outcome.model.bank_)} rows in its bank)")
        output.print(f"report  {outcome.folder / 'report.html'}")
