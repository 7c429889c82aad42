"""``vicinal learn``: from a table and a column that says what is alike to a model for search."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.cli import options as o
from vicinal.cli.app import app
from vicinal.cli.output import out as output
from vicinal.cli.output import print_json, print_rows
from vicinal.cli.progress import shown_progress

if TYPE_CHECKING:
    from vicinal.workflows import LearnOutcome


@app.command(epilog="Example: vicinal learn photos.csv --same product --image photo")
def learn(
    data: Annotated[str, typer.Argument(help="Table: a file, pattern, folder, - or query.", metavar="DATA")],
    *,
    same: Annotated[str, typer.Option(help="Column that says which rows are alike: a class, group or number.")],
    labels: Annotated[
        str, typer.Option(help="Contents of that column: classes, several (with --separator), or numbers.")
    ] = "classes",
    separator: Annotated[str, typer.Option(help="Separator of several classes in a cell.")] = "|",
    day_first: o.DayFirst = None,
    decimal: o.Decimal = None,
    text: o.Text = None,
    image: o.Image = None,
    audio: o.Audio = None,
    number: o.Number = None,
    category: o.Category = None,
    vector: o.Vector = None,
    sets: o.Sets = None,
    use: o.Use = None,
    drop: o.Drop = None,
    id_column: o.Id = None,
    group: Annotated[
        str | None, typer.Option(help="Column of groups whose rows are not pairs, such as takes of one session.")
    ] = None,
    root: o.Root = None,
    out: Annotated[
        str | None, typer.Option(help="Model folder; default: NAME-model beside the data.", metavar="FOLDER")
    ] = None,
    encoder: o.Encoder = None,
    tune: Annotated[
        str,
        typer.Option(help="Trained part of pretrained encoders: none, last-N, lora, all.", rich_help_panel=o.LEARN),
    ] = "none",
    loss: Annotated[
        str | None,
        typer.Option(
            help="Loss of pairs or proxies: multi_similarity(miner=hard), proxy_anchor (see vicinal losses).",
            rich_help_panel=o.LEARN,
        ),
    ] = None,
    sampler: Annotated[
        str, typer.Option(help="Sampler of batches: auto, classes, random, strata, groups.", rich_help_panel=o.LEARN)
    ] = "auto",
    per_class: Annotated[int, typer.Option(help="Rows of a class in a batch.", rich_help_panel=o.LEARN)] = 4,
    memory: Annotated[
        int, typer.Option(help="Rows of earlier batches to compare each batch with.", rich_help_panel=o.LEARN)
    ] = 0,
    dim: Annotated[int, typer.Option(help="Largest width of the learned vectors.", rich_help_panel=o.LEARN)] = 128,
    unseen: Annotated[
        bool,
        typer.Option(
            "--unseen/--seen",
            help="Test on classes that training has not seen, or on rows of all classes.",
            rich_help_panel=o.TRAIN,
        ),
    ] = True,
    max_epochs: o.MaxEpochs = 100,
    batch_size: o.BatchSize = 128,
    learning_rate: o.LearningRate = 1e-3,
    encoder_learning_rate: o.EncoderLearningRate = 2e-5,
    weight_decay: o.WeightDecay = 0.0,
    patience: o.Patience = 10,
    seed: o.Seed = 0,
    test: Annotated[float, typer.Option(help="Share of classes (or rows) to test on.", rich_help_panel=o.TRAIN)] = 0.2,
    validation: Annotated[
        float, typer.Option(help="Share of the others held out for early stopping.", rich_help_panel=o.TRAIN)
    ] = 0.15,
    precision: o.Precision = "32-true",
    accelerator: o.Accelerator = "auto",
    cache: o.Cache = None,
    database: o.Database = None,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> None:
    """Learn vectors that are near for rows of one class, group or number, also of classes never seen.

    Writes a model folder for vicinal search, embed, add and forget, and report.html with example queries and hits.
    """
    from vicinal.core import local_path
    from vicinal.data import beside, table_source
    from vicinal.workflows import LearnJob, learn_table

    source = table_source("data", data, database)
    folder = beside(source, "model") if out is None else local_path("--out", out, written=True)
    columns = {"text": text, "image": image, "audio": audio, "number": number, "category": category, "vector": vector}
    columns |= {"sets": sets}
    parameters: dict[str, Any] = {
        "encoders": o.parse_encoders(encoder),
        "loss": loss,
        "tune": tune,
        "sampler": sampler,
        "per_class": per_class,
        "memory": memory,
        "dim": dim,
        "unseen": unseen,
        "max_epochs": max_epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "encoder_learning_rate": encoder_learning_rate,
        "weight_decay": weight_decay,
        "patience": patience,
        "validation_fraction": validation,
        "precision": precision,
        "accelerator": accelerator,
    }
    parameters |= {} if cache is None else {"cache_dir": cache}
    job = LearnJob(
        source=source,
        same=same,
        labels=labels,
        separator=separator,
        day_first=day_first,
        decimal=decimal,
        kinds=o.named_kinds(columns),
        id=id_column,
        group=group,
        root=o.root_of(root),
        sets=o.named_sets(sets),
        use=use,
        drop=drop or (),
        seed=seed,
        test=test,
        parameters=parameters,
    )
    with shown_progress(quiet=quiet, verbose=verbose, as_json=as_json) as shown:
        outcome = learn_table(job, folder, shown.log)
    if as_json:
        print_json(_outcome_json(outcome))
    else:
        _print_outcome(outcome)


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


def _print_outcome(outcome: "LearnOutcome") -> None:
    from vicinal.report.learned import learned_findings, score_rows

    record = outcome.record
    rows = [[name, kind or "left out", encoder, reason] for name, kind, encoder, reason in record.columns]
    print_rows("Columns", ["column", "taken for", "encoder", "because"], rows, numbers=False)
    sizes = [
        f"{count} {use}" + (f" ({record.classes[use]} classes)" if use in record.classes else "")
        for use, count in record.rows.items()
    ]
    output.print(f"alike by {record.same}: rows {', '.join(sizes)}", markup=False)
    for reason, count in record.dropped.items():
        output.print(f"dropped {count} rows: {reason}", markup=False)
    heading, *lines = list(zip(*score_rows(record), strict=True))  # a line for each measure: it fits a terminal
    shown = [[measure, value, *(other.partition(" (")[0] for other in others)] for measure, value, *others in lines]
    print_rows("Test rows among one another (in brackets 95 % of bootstrap draws)", list(heading), shown)
    for sentence in (*learned_findings(record), *record.notes):
        output.print(sentence, markup=False)
    if outcome.folder is not None:
        output.print(f"model   {outcome.folder} ({len(outcome.model.bank_)} rows in its bank)", markup=False)
        output.print(f"report  {outcome.folder / 'report.html'}", markup=False)
