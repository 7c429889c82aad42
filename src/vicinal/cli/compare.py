"""``vicinal compare``: compare heads over seeded splits, by the paper's protocol."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.cli import options as o
from vicinal.cli.app import app
from vicinal.cli.output import output, print_json, print_rows
from vicinal.cli.progress import shown_progress

if TYPE_CHECKING:
    from vicinal.workflows.compare import ComparePlan, Comparison


@app.command(epilog="Example: vicinal compare houses.csv --target price --splits 10 --heads dense,nona,nona+knn")
@o.with_options(o.TABLE, o.LABELS, o.TRAINING, o.NEIGHBORS, o.RUN)
def compare(
    context: typer.Context,
    data: Annotated[list[str], o.argument("Tables: files, patterns, folders, - or queries.", "DATA")],
    target: Annotated[list[str], o.described("Column to predict: one for all tables, or one per table.")],
    *,
    splits: Annotated[int, o.described("Number of seeded splits of each table.")] = 10,
    heads: Annotated[str, o.described("Heads, or k-NN on their embeddings.")] = "dense,dense+knn,nona,nona+knn",
    out: Annotated[o.Name, o.described("Folder for splits, runs and page.", metavar="FOLDER")] = None,
    engine: Annotated[
        o.Name, o.described("Run several fits at a time: joblib (processes of this machine) or ray.", panel=o.TRAIN)
    ] = None,
    workers: Annotated[
        int | None, o.described("Workers of the engine; default: one per processor.", panel=o.TRAIN)
    ] = None,
    dry_run: Annotated[
        bool, o.described("Only show what would run; nothing is trained or written.", "--dry-run")
    ] = False,
    **options: Any,
) -> None:
    """Compare heads, k-NN on their embeddings, and tuned baselines over seeded splits: mean, deviation, tests.

    The protocol is the paper's: 80/20 and then 85/15 splits, early stopping on the validation rows, test rows used only
    once. Finished runs are stored; if a comparison is stopped, the same command resumes it. --preset nona is the
    paper's model and training.
    """
    from vicinal.core.checks import local_path
    from vicinal.core.files import replace_text
    from vicinal.data import beside, read_cells
    from vicinal.data.sources import table_sources
    from vicinal.report.compare import compare_html
    from vicinal.workflows import TableJob, compare_tables
    from vicinal.workflows.compare import plan_compare

    if len(target) not in (1, len(data)):
        raise ValueError(f"--target: expected one column, or one for each of the {len(data)} tables, got {len(target)}")
    parameters = o.estimator_parameters(context)
    settings = o.table_settings(options)
    sources, grouped = table_sources("data", data, options["database"]), settings["sets"]
    columns = [list(map(str, read_cells(path).columns)) for path in sources]
    columns = [names + [name for name in grouped if set(grouped[name]) & set(names)] for names in columns]
    _check_named(settings["kinds"] | dict.fromkeys(settings["missing"], "missing"), columns)
    jobs = []
    for path, column, names in zip(sources, target * (len(data) if len(target) == 1 else 1), columns, strict=True):
        there: dict[str, Any] = {
            name: {one: kind for one, kind in settings[name].items() if one in names}
            for name in ("kinds", "sets", "missing")
        }
        # a column that this table lacks is in another one; of a single table it is refused later
        there |= {
            role: settings[role] if settings[role] in names or len(sources) == 1 else None
            for role in ("id", "group", "time", "weight")
        }
        use, drop = options["use"], settings["drop"]
        there |= {"use": use and [one for one in use if one in names], "drop": [one for one in drop if one in names]}
        jobs.append(TableJob(source=path, target=column, parameters=parameters, **settings | there))
    first = sources[0]
    folder = beside(first, "compare") if out is None else local_path("--out", out, written=True)
    protocol: dict[str, Any] = {"splits": splits, "heads": heads.split(",")}
    quiet, as_json = options["quiet"], options["as_json"]
    if dry_run:
        with shown_progress(quiet=quiet, as_json=as_json) as shown:
            plans = plan_compare(jobs, folder, **protocol, log=shown.log)
        print_json(plans_json(plans)) if as_json else print_plans(plans)
        return
    with shown_progress(quiet=quiet, verbose=options["verbose"], as_json=as_json) as shown:
        comparison = compare_tables(jobs, folder, **protocol, engine=engine, workers=workers, log=shown.log)
    replace_text(folder / "report.html", compare_html(comparison.record))
    write_runs(comparison, folder / "runs.csv")
    if as_json:
        print_json(comparison_json(comparison))
    else:
        print_comparison(comparison, folder)


def _check_named(named: dict[str, Any], columns: list[list[str]]) -> None:
    from vicinal.core import nearest, short

    known = [name for names in columns for name in names]
    for name, kind in named.items():
        if name not in known:
            raise ValueError(f"--{kind}: expected a column of the data, got {short(name)}{nearest(name, known)}")


def plans_json(plans: "list[ComparePlan]") -> dict[str, Any]:
    """The plans of a comparison as JSON values."""
    from vicinal.cli.fit import plan_json

    return {
        "tables": [
            {
                "name": plan.fit.opened.table.name,
                **{name: value for name, value in plan_json(plan.fit).items() if name != "training"},
                "fits": [{"methods": list(names), "left": count} for names, count in plan.fits.items()],
                "finished": plan.finished,
            }
            for plan in plans
        ],
    }


def print_plans(plans: "list[ComparePlan]") -> None:
    """Print the plans of a comparison."""
    from vicinal.cli.fit import print_table_plan
    from vicinal.core import counted

    for plan in plans:
        print_table_plan(plan.fit, output)
        for names, count in plan.fits.items():
            output.print(f"{counted(count, 'fit')} of {', '.join(names)}")
        if plan.finished:
            output.print(f"{counted(plan.finished, 'fit')} are finished already")
    output.print("Nothing was trained or written.")


def write_runs(comparison: "Comparison", path: Path) -> None:
    """Write all runs to a CSV file, one line each."""
    import pandas as pd

    from vicinal.data import write_table

    lines = [
        {"dataset": r.dataset, "split": r.split, "seed": r.seed, "method": r.method, **r.metrics, "seconds": r.seconds}
        for r in comparison.runs
    ]
    write_table(pd.DataFrame(lines), path)


def comparison_json(comparison: "Comparison") -> dict[str, Any]:
    """The result of a comparison as JSON values."""
    tests = comparison.significance
    return {
        "metric": comparison.metric,
        "answer": list(comparison.record.answer),
        "table": [vars(summary) for summary in comparison.table],
        "runs": [vars(run) for run in comparison.runs],
        "tests": None
        if tests is None
        else {"sentence": tests.sentence, "ranks": dict(zip(tests.methods, tests.ranks, strict=True))},
    }


def print_comparison(comparison: "Comparison", folder: Path) -> None:
    """Print the result of a comparison."""
    from vicinal.report.text import change_cell

    for sentence in comparison.record.answer:
        output.print(sentence)
    scale, title = 1, "micro F1" if comparison.metric == "micro_f1" else "accuracy"
    if comparison.metric == "mse":
        scale, title = 1000, "MSE x 1000, labels scaled to 0-1"
    several = len({cell.dataset for cell in comparison.table}) > 1
    rows = []
    for cell in comparison.table:
        spread = "" if math.isnan(cell.deviation) else f" +- {cell.deviation * scale:.2f}"
        change = "" if math.isnan(cell.change) else change_cell(cell.change)
        p_value = "" if math.isnan(cell.p_value) else f"{cell.p_value:.3f}"
        rows.append(
            [
                *([cell.dataset] if several else []),
                cell.method,
                f"{cell.mean * scale:.2f}{spread}",
                change,
                p_value,
                str(cell.splits),
                f"{cell.seconds:.0f} s",
            ]
        )
    headings = [*(["data"] if several else []), "method", "mean +- sd", "vs dense", "p", "splits", "a fit"]
    print_rows(title, headings, rows, names=several)
    if comparison.significance is not None:
        output.print(comparison.significance.sentence)
    output.print(f"runs    {folder / 'runs.csv'}")
    output.print(f"report  {folder / 'report.html'}")
