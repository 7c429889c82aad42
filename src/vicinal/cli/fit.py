"""``vicinal fit``: from a table to a model folder."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.cli import options as o
from vicinal.cli.app import app
from vicinal.cli.output import out as output
from vicinal.cli.output import print_json, print_rows, print_scores, progress
from vicinal.cli.progress import shown_progress

if TYPE_CHECKING:
    from rich.console import Console

    from vicinal.workflows.fit import FitOutcome, FitPlan


@app.command(epilog="Example: vicinal fit houses.csv --target price --image photo --encoder photo=efficientnet-lite0")
@o.with_options(o.TABLE, o.LABELS, o.TRAINING, o.NEIGHBORS, o.FIT, o.RUN)
def fit(
    context: typer.Context,
    data: Annotated[str, typer.Argument(help="Table: a file, pattern, folder, - or query.", metavar="DATA")],
    target: o.Targets,
    *,
    head: Annotated[str, typer.Option(help="Head: nona (neighbors) or dense.", rich_help_panel=o.LEARN)] = "nona",
    out: Annotated[
        str | None, typer.Option(help="Model folder; default: NAME-model beside the data.", metavar="FOLDER")
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only show columns, rows and what would be trained; nothing is written."),
    ] = False,
    **options: Any,
) -> None:
    """Fit a neighbor model on a table, and measure it on held-out rows.

    Writes a folder with the model, a model card and report.html. If a run is killed, the same command resumes it.
    """
    from vicinal.core.checks import local_path
    from vicinal.data import beside
    from vicinal.data.sources import table_source
    from vicinal.workflows import TableJob, fit_table, plan_fit

    source = table_source("data", data, options["database"])
    folder = beside(source, "model") if out is None else local_path("--out", out, written=True)
    o.check_method("--head", "head", head)
    parameters = o.estimator_parameters(context)
    job = TableJob(source=source, target=target[0], also=target[1:], parameters=parameters, **o.table_settings(options))
    quiet, as_json = options["quiet"], options["as_json"]
    if dry_run:
        with shown_progress(quiet=quiet, as_json=as_json) as shown:
            planned = plan_fit(job, shown.log)
        if as_json:
            print_json(plan_json(planned))
        else:
            print_plan(planned, output)
            output.print("nothing was trained or written", markup=False)
        return
    with shown_progress(quiet=quiet, verbose=options["verbose"], as_json=as_json) as shown:

        def first(plan: "FitPlan") -> None:
            if as_json:
                shown.event("plan", plan_json(plan))
            elif not quiet:
                print_plan(plan, progress)

        outcome = fit_table(job, folder, shown.log, first)
    if as_json:
        print_json(outcome_json(outcome))
    else:
        print_outcome(outcome, columns=quiet or not (output.is_terminal and progress.is_terminal))


def outcome_json(outcome: "FitOutcome") -> dict[str, Any]:
    """The result of a fit as JSON values."""
    from vicinal.report.tables import verdict_sentence

    record, columns = outcome.record, outcome.record.column_list
    return {
        "model": str(outcome.folder),
        "task": record.task,
        "columns": {c.name: {"kind": c.kind, "encoder": c.encoder, "reason": c.reason} for c in columns},
        "rows": dict(record.split_sizes),
        "dropped": dict(record.dropped),
        "duplicates": record.duplicates,
        "leaks": [
            {"column": leak.column, "form": leak.form, "sentence": leak.sentence} for leak in outcome.opened.leaks
        ],
        "out_of_fold": dict(record.out_of_fold),
        "verdict": verdict_sentence(record),
        "scores": {method: dict(values) for method, values in record.scores.items()},
        **({"by_class": dict(record.by_class)} if record.several else {}),
        "further_targets": {one.target_name: dict(one.scores) for one in outcome.further},
        "notes": list(record.notes),
        "epochs": len(outcome.model.history_.train_error),
        "seconds": record.duration_s,
    }


def plan_json(plan: "FitPlan") -> dict[str, Any]:
    """The plan of a fit as JSON values."""
    table, columns = plan.opened.table, plan.opened.columns
    return {
        "task": table.task,
        "columns": {
            name: {"kind": c.kind, "encoder": plan.encoders.get(name, ""), "reason": c.reason}
            for name, c in columns.items()
        },
        "rows": plan.sizes,
        "dropped": dict(table.dropped_counts),
        "duplicates": plan.duplicates,
        "leaks": [leak.sentence for leak in plan.opened.leaks],
        "notes": list(plan.opened.notes),
        "training": plan.steps,
    }


def print_plan(plan: "FitPlan", console: "Console") -> None:
    """Print the plan of a fit on ``console``."""
    steps, lines = plan.steps, []
    print_columns(plan, console)
    names = {"kernel": "a kernel", "trees": "trees", "network": "a network"}
    metrics = " and ".join(names[metric] for metric in steps["metrics"])
    lines.append(f"to be trained: {metrics}{', of which the better one is taken' if len(steps['metrics']) > 1 else ''}")
    if "network" in steps["metrics"]:
        lines.append(
            f"the network: {steps['members']} members together, at most {steps['max_epochs']} epochs of "
            f"{steps['steps']} steps; it stops after {steps['patience']} epochs without a better error"
        )
    for line in lines:
        console.print(line, markup=False)


def print_columns(plan: "FitPlan", console: "Console") -> None:
    """Print the columns and rows of a planned fit."""
    table, sizes = plan.opened.table, plan.sizes
    rows = [
        [name, c.kind or "left out", plan.encoders.get(name, ""), c.reason] for name, c in plan.opened.columns.items()
    ]
    headings = ["column", "taken for", "encoder", "because"]
    print_rows("Columns", headings, rows, numbers=False, console=console)
    lines = [
        f"{table.task} of {', '.join(plan.opened.targets)} ({table.reason}): {sizes['train']} rows to train on, "
        f"{sizes['validation']} to stop early and calibrate, {sizes['test']} to test on"
    ]
    lines += [f"{count} rows are left out: {reason}" for reason, count in table.dropped_counts.items()]
    for line in lines:
        console.print(line, markup=False)


def print_outcome(outcome: "FitOutcome", *, columns: bool = True) -> None:
    """Print the result of a fit; without ``columns``, these only if encoders were chosen after :func:`print_plan`."""
    from vicinal.report.tables import verdict_sentence

    record = outcome.record
    rows = [[c.name, c.kind or "left out", c.encoder, c.reason] for c in record.column_list]
    if columns or outcome.model.encoder_choices_:
        print_rows("Columns", ["column", "taken for", "encoder", "because"], rows, numbers=False)
    sizes = record.split_sizes
    use = (
        f"{sizes['validation']} to stop early and calibrate"
        if sizes["validation"]
        else f"each left out by one of {outcome.model.folds_} folds of members"
    )
    output.print(
        f"{record.task} of {', '.join(outcome.opened.targets)} ({outcome.opened.table.reason}): {sizes['train']} rows "
        f"to train on, {use}, {sizes['test']} to test on",
        markup=False,
    )
    for reason, count in record.dropped.items():
        output.print(f"dropped {count} rows: {reason}", markup=False)
    output.print(record.duplicates or "no rows of equal content", markup=False)
    for leak in outcome.opened.leaks:
        output.print(f"look at {leak.sentence}", markup=False)
    where = f"On the {sizes['test']} test rows" if sizes["test"] else "Out of fold, by members that never saw the row"
    for one in (record, *outcome.further):
        print_scores(f"{one.target_name}: {where.lower()}" if outcome.further else where, one.scores)
    for note in record.notes:
        if note.startswith(("Baselines", "Classes", "Groups", f"By {outcome.model.fair},")):
            output.print(note, markup=False)
    if sizes["test"] and record.out_of_fold:
        listed = ", ".join(f"{name} {value:.4g}" for name, value in record.out_of_fold.items())
        output.print(f"out of fold, by members that never saw the row: {listed}", markup=False)
    for said in filter(None, map(verdict_sentence, (record, *outcome.further))):
        output.print(said, markup=False)
    if outcome.folder is not None:
        output.print(f"model   {outcome.folder}", markup=False)
        output.print(f"report  {outcome.folder / 'report.html'}", markup=False)
