"""``vicinal compare``: compare heads over seeded splits, by the paper's protocol."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.cli import options as o
from vicinal.cli.app import app
from vicinal.cli.output import out as output
from vicinal.cli.output import print_json, print_rows
from vicinal.cli.progress import shown_progress

if TYPE_CHECKING:
    from vicinal.workflows import ComparePlan, Comparison


@app.command(epilog="Example: vicinal compare houses.csv --target price --splits 10 --heads dense,nona,nona+knn")
def compare(
    context: typer.Context,
    data: Annotated[list[str], typer.Argument(help="Tables: files, patterns, folders, - or queries.", metavar="DATA")],
    target: Annotated[list[str], typer.Option(help="Column to predict: one for all tables, or one per table.")],
    *,
    splits: Annotated[int, typer.Option(help="Number of seeded splits of each table.")] = 10,
    heads: Annotated[str, typer.Option(help="Heads, or k-NN on their embeddings.")] = "dense,dense+knn,nona,nona+knn",
    text: o.Text = None,
    image: o.Image = None,
    audio: o.Audio = None,
    number: o.Number = None,
    category: o.Category = None,
    vector: o.Vector = None,
    sets: o.Sets = None,
    long: o.Long = "cut",
    use: o.Use = None,
    drop: o.Drop = None,
    id_column: o.Id = None,
    group: o.Group = None,
    time: o.Time = None,
    weight: o.Weight = None,
    task: o.Task = None,
    separator: o.Separator = None,
    day_first: o.DayFirst = None,
    decimal: o.Decimal = None,
    root: o.Root = None,
    out: Annotated[str | None, typer.Option(help="Folder for splits, runs and page.", metavar="FOLDER")] = None,
    encoder: o.Encoder = None,
    tune: o.Tune = "none",
    similarity: o.Similarity = "l2",
    mask: o.Mask = "s2",
    mask_parameters: o.MaskParameters = "pointwise",
    simplex: o.Simplex = "auto",
    metric: o.Metric = "auto",
    readout: o.Readout = "auto",
    max_neighbors: o.MaxNeighbors = None,
    target_transform: o.TargetTransform = "auto",
    loss: o.Loss = None,
    hidden: o.Hidden = "200,25",
    members: o.Members = 8,
    final_tanh: o.FinalTanh = False,
    dropout: o.Dropout = 0.2,
    max_epochs: o.MaxEpochs = 200,
    epochs: o.Epochs = None,
    batch_size: o.BatchSize = 128,
    learning_rate: o.LearningRate = 1e-3,
    encoder_learning_rate: o.EncoderLearningRate = 2e-5,
    weight_decay: o.WeightDecay = 0.0,
    patience: o.Patience = 10,
    seed: o.Seed = 0,
    precision: o.Precision = "32-true",
    accelerator: o.Accelerator = "auto",
    cache: o.Cache = None,
    baselines: o.Baselines = True,
    database: o.Database = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="Run several fits at a time: joblib (processes of this machine) or ray.", rich_help_panel=o.TRAIN
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Workers of the engine; default: one per processor.", rich_help_panel=o.TRAIN)
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would run; nothing is trained or written.")
    ] = False,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> None:
    """Compare heads, k-NN on their embeddings, and tuned baselines over seeded splits: mean, deviation, tests.

    The protocol is the paper's: 80/20 and then 85/15 splits, early stopping on the validation rows, test rows used only
    once. Finished runs are stored; if a comparison is stopped, the same command resumes it. The paper's learning rate
    is --learning-rate 1e-5.
    """
    from vicinal.core import local_path
    from vicinal.data import beside, table_sources
    from vicinal.report import write_compare_page
    from vicinal.workflows import TableJob, compare_tables, plan_compare, table_columns

    if len(target) not in (1, len(data)):
        raise ValueError(f"--target: expected one column, or one for each of the {len(data)} tables, got {len(target)}")
    parameters = o.estimator_parameters(context)
    named = o.named_kinds(context.params)
    jobs = []
    sources = table_sources("data", data, database)
    grouped = o.named_sets(sets)
    columns = [table_columns(path) for path in sources]
    columns = [names + [name for name in grouped if set(grouped[name]) & set(names)] for names in columns]
    _check_named(named, columns)
    for path, column, names in zip(sources, target * (len(data) if len(target) == 1 else 1), columns, strict=True):
        jobs.append(
            TableJob(
                source=path,
                target=column,
                kinds={name: kind for name, kind in named.items() if name in names},
                long=long,
                sets={name: grouped[name] for name in grouped if name in names},
                id=id_column if id_column in names else _one(id_column, sources),
                group=group if group in names else _one(group, sources),
                time=time if time in names else _one(time, sources),
                weight=weight if weight in names else _one(weight, sources),
                task=task,
                separator=separator,
                day_first=day_first,
                decimal=decimal,
                root=o.root_of(root),
                use=None if use is None else [name for name in use if name in names],
                drop=[name for name in drop or () if name in names],
                seed=seed,
                parameters=parameters,
                baselines=baselines,
            )
        )
    first = sources[0]
    folder = beside(first, "compare") if out is None else local_path("--out", out, written=True)
    settings: dict[str, Any] = {"splits": splits, "heads": heads.split(",")}
    if dry_run:
        with shown_progress(quiet=quiet, as_json=as_json) as shown:
            plans = plan_compare(jobs, folder, **settings, log=shown.log)
        print_json(plans_json(plans)) if as_json else print_plans(plans)
        return
    with shown_progress(quiet=quiet, verbose=verbose, as_json=as_json) as shown:
        comparison = compare_tables(jobs, folder, **settings, engine=engine, workers=workers, log=shown.log)
    write_compare_page(comparison.record, folder / "report.html")
    write_runs(comparison, folder / "runs.csv")
    if as_json:
        print_json(comparison_json(comparison))
    else:
        print_comparison(comparison, folder)


def _one(column: str | None, data: list[Path]) -> str | None:
    """The column for a table that lacks it: None with several tables (it is in another); with one, refused later."""
    return column if len(data) == 1 else None


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
    from vicinal.cli.fit import print_columns
    from vicinal.core import counted

    for plan in plans:
        print_columns(plan.fit, output)
        for names, count in plan.fits.items():
            output.print(f"{counted(count, 'fit')} of {', '.join(names)}", markup=False)
        if plan.finished:
            output.print(f"{counted(plan.finished, 'fit')} are finished, and are not run again", markup=False)
    output.print("nothing was trained or written", markup=False)


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
    for sentence in comparison.record.answer:
        output.print(sentence, markup=False)
    scale, title = 1, "micro F1" if comparison.metric == "micro_f1" else "accuracy"
    if comparison.metric == "mse":
        scale, title = 1000, "MSE x 1000 on labels scaled to [0, 1]"
    several = len({cell.dataset for cell in comparison.table}) > 1
    rows = []
    for cell in comparison.table:
        spread = "" if math.isnan(cell.deviation) else f" +- {cell.deviation * scale:.2f}"
        change = "" if math.isnan(cell.change) else f"{cell.change:+.1%}"
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
        output.print(comparison.significance.sentence, markup=False)
    output.print(f"runs    {folder / 'runs.csv'}", markup=False)
    output.print(f"report  {folder / 'report.html'}", markup=False)
