"""``vicinal fit``: from a table to a model folder."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.cli import options as o
from vicinal.cli.app import app
from vicinal.cli.output import output, print_columns, print_json, print_scores, progress
from vicinal.cli.progress import shown_progress
from vicinal.settings import NeighborSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from vicinal.workflows.fit import FitOutcome, FitPlan
    from vicinal.workflows.opening import OpenTable


@app.command(epilog="Example: vicinal fit houses.csv --target price --image photo --encoder photo=efficientnet-lite0")
@o.with_options(
    o.TABLE,
    o.LABELS,
    o.TRAINING,
    o.NEIGHBORS,
    o.FIT,
    o.of_settings(NeighborSettings, o.LEARN, "head"),
    o.RUN,
    tune="auto",
)
def fit(
    context: typer.Context,
    data: Annotated[str, o.argument("Table: a file, pattern, folder, - or query.", "DATA")],
    target: o.Targets,
    *,
    out: Annotated[o.Name, o.described("Model folder; default: NAME-model beside the data.", metavar="FOLDER")] = None,
    dry_run: Annotated[
        bool, o.described("Only show columns, rows and what would be trained; nothing is written.", "--dry-run")
    ] = False,
    **options: Any,
) -> None:
    """Fit a neighbor model on a table, and measure it on held-out rows.

    Writes a folder with the model, a model card and report.html. If a run is killed, the same command resumes it.
    """
    from vicinal.workflows import TableJob, fit_table, plan_fit

    source = o.table_of(data, options)
    folder = o.model_folder(source, out, learned=False)
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
            output.print("Nothing was trained or written.")
        return
    with shown_progress(quiet=quiet, verbose=options["verbose"], as_json=as_json) as shown:

        def first(plan: "FitPlan") -> None:
            if as_json:
                shown.event("plan", plan_json(plan))
            elif not quiet:
                print_plan(plan, progress, whole=options["verbose"])

        outcome = fit_table(job, folder, shown.log, first)
    if as_json:
        print_json(outcome_json(outcome))
    else:
        seen = output.is_terminal and progress.is_terminal and not quiet
        print_outcome(outcome, columns=not seen, whole=options["verbose"])


def outcome_json(outcome: "FitOutcome") -> dict[str, Any]:
    """The result of a fit as JSON values."""
    from vicinal.report.tables import verdict_sentence

    record, columns = outcome.record, outcome.record.columns
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
        "memory": plan.memory,
    }


def print_plan(plan: "FitPlan", console: "Console", *, whole: bool = True) -> None:
    """Print the plan of a fit on ``console``; without ``whole`` the columns in one line, and no limits of training."""
    steps = plan.steps
    print_table_plan(plan, console, whole=whole)
    names = {"kernel": "a kernel model", "trees": "a tree model", "network": "a neural model"}
    *others, last = (names[metric] for metric in steps["metrics"])
    keep = ("", ", and keep the better", ", and keep the best")[len(others)]
    keep += ("", " or their mean", " or the mean of the first two")[len(others)] * steps["mean"]
    lines = [f"Will train {', '.join(others)}{' and ' if others else ''}{last}{keep}."]
    if whole and "network" in steps["metrics"]:
        lines.append(
            f"Neural model: {steps['members']} members, {steps['steps']} steps an epoch, early stopping: "
            f"{steps['patience']} epochs without improvement (max. {steps['max_epochs']})."
        )
    if plan.memory:
        from vicinal.estimators.encoder_choice import expected_memory
        from vicinal.workflows.show import size_words

        frozen = expected_memory(plan.encoders, tuned=False)
        more = f", {size_words(plan.memory)} if an encoder is tuned" * (plan.memory > frozen)
        lines.append(f"Memory: about {size_words(frozen)}{more}.")
    for line in lines:
        console.print(line)


def print_table_plan(plan: "FitPlan", console: "Console", *, whole: bool = True) -> None:
    """Print the columns and rows of a planned fit, the columns as a table with ``whole``, else in one line."""
    from vicinal.core import counted

    table, columns = plan.opened.table, plan.opened.columns
    rows = [(name, c.kind, plan.encoders.get(name, ""), c.reason) for name, c in columns.items()]
    print_columns(rows, console, whole=whole)
    sizes = {use: count for use, count in plan.sizes.items() if count or use != "validation"}
    console.print(_rows_sentence(table.task, plan.opened, sizes))
    for reason, count in table.dropped_counts.items():
        console.print(f"{counted(count, 'row')} left out: {reason}")


def _rows_sentence(task: str, opened: "OpenTable", sizes: "Mapping[str, int]", folds: int | None = None) -> str:
    words = {"train": "for training", "validation": "for validation and calibration", "test": "for testing"}
    said = [f"{sizes[use]} {what}" for use, what in words.items() if sizes.get(use)]
    said += [f"each left out by one of {folds} folds"] if folds else []
    targets = ", ".join(opened.targets)
    return f"{task.capitalize()} of {targets} ({opened.table.reason}). Rows: {', '.join(said)}."


def print_outcome(outcome: "FitOutcome", *, columns: bool = True, whole: bool = False) -> None:
    """Print the result of a fit: the verdict, and where the model is.

    Args:
        outcome: of the fit.
        columns: print columns and rows, too, which :func:`print_plan` may have shown already.
        whole: print the columns as a table, also where encoders were chosen since, and the scores of all methods.
    """
    from vicinal.core import counted
    from vicinal.report.tables import verdict_sentence
    from vicinal.report.text import metric_name, score

    record, model = outcome.record, outcome.model
    if columns or (whole and model.encoder_choices_):
        rows = [(c.name, c.kind, c.encoder, c.reason) for c in record.columns]
        print_columns(rows, output, whole=whole)
        folds = None if record.split_sizes["validation"] else model.folds_
        output.print(_rows_sentence(record.task, outcome.opened, record.split_sizes, folds))
        for reason, count in record.dropped.items():
            output.print(f"{counted(count, 'row')} left out: {reason}")
    if record.duplicates or whole:
        output.print(record.duplicates or "No duplicate rows.")
    for leak in outcome.opened.leaks:
        output.print(f"Check: {leak.sentence}")
    if whole:
        _print_scores(outcome)
    notes = ("Baselines", "Classes", "Groups") if whole else ("Classes", "Groups")
    for note in record.notes:
        if note.startswith((*notes, f"By {model.fair},")):
            output.print(note)
    for one in (record, *outcome.further):
        scores = (f"{metric_name(name)} {score(value)}" for name, value in one.scores["model"].items())
        said = verdict_sentence(one) or ", ".join(scores)
        output.print(f"{one.target_name}: {said}" if outcome.further else said)
    if outcome.folder is not None:
        output.print(f"model   {outcome.folder}")
        output.print(f"report  {outcome.folder / 'report.html'}")


def _print_scores(outcome: "FitOutcome") -> None:
    """Scores of the model and of all baselines, for each target."""
    record, rows = outcome.record, outcome.record.split_sizes["test"]
    where = f"{rows} test rows" if rows else "Out of fold, each row predicted without its fold"
    for one in (record, *outcome.further):
        print_scores(f"{one.target_name}: {where}" if outcome.further else where, one.scores)
    if rows and record.out_of_fold:
        listed = ", ".join(f"{name} {value:.4g}" for name, value in record.out_of_fold.items())
        output.print(f"Out of fold, each row predicted without its fold: {listed}")
