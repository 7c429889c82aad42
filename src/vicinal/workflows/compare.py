"""The paper's comparison: heads, with and without k-NN on their embeddings, over seeded splits of tables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vicinal.core import check_choice, check_integer
from vicinal.core.files import clear_target, resolved
from vicinal.data import Split, load_splits, save_splits, table_fingerprint
from vicinal.estimators.banked import BankedEstimator
from vicinal.evaluation import (
    HIGHER_IS_BETTER,
    PRIMARY,
    Run,
    RunStore,
    Significance,
    Summary,
    answers,
    classification_scores,
    regression_scores,
    run_protocol,
    significance,
    summarize,
)
from vicinal.report import CompareRecord
from vicinal.version import __version__
from vicinal.workflows.measuring import (
    baseline_names,
    knn_of_embeddings,
    predict_test,
    table_choices,
    untuned_baselines,
)
from vicinal.workflows.opening import (
    OpenTable,
    TableJob,
    draw_splits,
    fit_split,
    groups_sentence,
    make_estimator,
    open_table,
)

HEADS = ("dense", "dense+knn", "nona", "nona+knn")
"""What can be compared: a head, or k-NN on the embeddings that were trained for that head."""

Log = Callable[[str], None]
Array = np.ndarray[Any, Any]
Fit = Callable[[Any], Mapping[str, Mapping[str, float]]]


@dataclass(frozen=True)
class Comparison:
    """Figures of all runs.

    Attributes:
        metric: what the table shows: "mse" on labels scaled to [0, 1] by the training range, or "log_loss".
        runs: one for each data set, split and method.
        table: mean, deviation and change against dense, one for each data set and method.
        significance: tests of the heads over data sets; None for fewer than two.
        record: the same for the page of the report.
    """

    metric: str
    runs: list[Run]
    table: list[Summary]
    significance: Significance | None
    record: CompareRecord


def compare_tables(
    jobs: Sequence[TableJob], out: Path, *, splits: int = 10, heads: Sequence[str] = HEADS, log: Log = lambda line: None
) -> Comparison:
    """Compare ``heads`` on the same seeded splits of each table; what ``out`` holds already is not run again.

    Args:
        jobs: one for each table, all of one task.
        out: folder for splits, runs and the cache of frozen encoders.
        splits: how many splits of each table, 80/20 and then 85/15 by default.
        heads: out of ``HEADS``.
        log: gets one line of progress at a time.

    Raises:
        ValueError: if data or settings cannot be used, or ``out`` holds runs of other settings.
    """
    check_integer("splits", splits)
    heads = list(dict.fromkeys(check_choice("heads", head, HEADS) for head in heads))
    if not heads:
        raise ValueError(f"heads: expected at least one of {', '.join(HEADS)}, got none")
    opened = [open_table(job, log) for job in jobs]
    tasks = {table.table.task for table in opened}
    if len(tasks) > 1:
        raise ValueError("data: expected tables of one task, got regression and classification; compare them apart")
    names = [table.table.name for table in opened]
    if len(set(names)) < len(names):
        raise ValueError(f"data: expected tables of different names, got {', '.join(names)}")
    store = RunStore(out / "runs.json", _settings(jobs[0]))
    runs: list[Run] = []
    for job, table in zip(jobs, opened, strict=True):
        if lone := groups_sentence(table.table):
            log(f"{table.table.name}: {lone}")
        stored = _stored_splits(job, table, splits, out)
        runs += run_protocol(
            _methods(job, table, heads, out) | (_baselines(job, table, out) if job.baselines else {}),
            stored,
            store,
            dataset=table.table.name,
            settings={"rows": table_fingerprint(table.table), "kinds": table.kinds, "target": job.target},
            progress=lambda data, number, method, done: log(_line(data, number, method, done)) if done else None,
        )
    metric = PRIMARY[tasks.pop()]
    return _comparison(runs, metric, _settings(jobs[0]), heads)


def _settings(job: TableJob) -> dict[str, Any]:
    hidden = ("progress", "logger", "cache_dir", "accelerator", "devices")
    shown = {name: value for name, value in job.parameters.items() if name not in hidden}
    return {"seed": job.seed, "test": job.test, "validation": job.validation, **shown}


def _stored_splits(job: TableJob, opened: OpenTable, number: int, out: Path) -> list[Split]:
    """The splits stored in ``out``, or new ones that are stored there before anything is fitted."""
    path = out / f"splits-{opened.table.name}.json"
    fingerprint = table_fingerprint(opened.table)
    if path.is_file():
        clear_target(resolved(path))  # what a run left that was killed just after it wrote them
        stored = load_splits(path, rows=len(opened.table), fingerprint=fingerprint)
        if len(stored) >= number and stored[0].seed == job.seed:
            return stored[:number]
    splits = draw_splits(opened.table, job, number)
    out.mkdir(parents=True, exist_ok=True)
    save_splits(path, splits, fingerprint=fingerprint)
    return splits


def _methods(job: TableJob, opened: OpenTable, heads: Sequence[str], out: Path) -> dict[str | tuple[str, ...], Fit]:
    """One fit for each kind of head; it yields the head's own scores and those of k-NN on its embeddings."""
    methods: dict[str | tuple[str, ...], Fit] = {}
    for base in dict.fromkeys(head.partition("+")[0] for head in heads):
        variants = tuple(head for head in heads if head.partition("+")[0] == base)

        def fit(split: Split, base: str = base, variants: tuple[str, ...] = variants) -> dict[str, dict[str, float]]:
            settings = {"cache_dir": out / "cache", **job.parameters, "head": base, "random_state": split.seed}
            if base == "dense":
                settings |= {"metric": "network", "readout": "attention", "max_neighbors": None}
            model = make_estimator(opened, replace(job, parameters=settings))
            fit_split(model, opened, split)
            return {head: _scores(model, opened, split, knn=head.endswith("+knn")) for head in variants}

        methods[variants] = fit
    return methods


def _baselines(job: TableJob, opened: OpenTable, out: Path) -> dict[str | tuple[str, ...], Fit]:
    """The baselines on untuned features, all at once."""

    def fit(split: Split) -> dict[str, dict[str, float]]:
        model = make_estimator(opened, replace(job, parameters={"cache_dir": out / "cache", **job.parameters}))
        model.encoder_choices_ = table_choices(model, opened, split)
        tuned = untuned_baselines(model, opened, split)
        return {baseline.name: _scaled_scores(model, opened, split, baseline.prediction) for baseline in tuned}

    names = baseline_names(opened.kinds, classes=opened.table.task == "classification")
    return {tuple(names): fit}


def _scores(model: BankedEstimator, opened: OpenTable, split: Split, *, knn: bool) -> dict[str, float]:
    predicted = knn_of_embeddings(model, opened, split).prediction if knn else predict_test(model, opened, split)
    return _scaled_scores(model, opened, split, predicted)


def _scaled_scores(model: BankedEstimator, opened: OpenTable, split: Split, predicted: Array) -> dict[str, float]:
    """Scores on the test rows, numbers scaled to [0, 1] by the range of the rows that the model trains on."""
    target, rows = opened.table.target, np.concatenate([split.train, split.validation])
    truth = target[split.test]
    if opened.table.task == "classification":
        return classification_scores(truth, predicted, np.unique(target[rows]).tolist())
    known = target[rows if model.validation_fraction == 0 else split.train]
    low, high = known.min(), known.max()
    return regression_scores((truth - low) / (high - low), (predicted - low) / (high - low))


def _line(data: str, number: int, method: str, done: Sequence[Run]) -> str:
    text = ", ".join(f"{run.method} {next(iter(run.metrics)):s} {next(iter(run.metrics.values())):.4g}" for run in done)
    return f"{data}, split {number + 1}, {method}: {text} ({done[0].seconds:.0f} s)"


def _comparison(runs: list[Run], metric: str, settings: dict[str, Any], heads: Sequence[str]) -> Comparison:
    tests = significance(runs, metric, methods=heads)
    results: dict[str, dict[str, list[float]]] = {}
    seconds: dict[str, dict[tuple[int, str], float]] = {}
    for run in runs:
        results.setdefault(run.dataset, {}).setdefault(run.method, []).append(run.metrics[metric])
        fit = run.method.partition("+")[0] if run.method in HEADS else "baselines"
        seconds.setdefault(run.dataset, {})[run.split, fit] = run.seconds
    per_split = {
        name: float(np.sum(list(of.values())) / len({split for split, _ in of})) for name, of in seconds.items()
    }
    table = summarize(runs, metric)
    p_values: dict[str, dict[str, float]] = {}
    for cell in table:
        p_values.setdefault(cell.dataset, {})[cell.method] = cell.p_value
    several = tests is not None and len(tests.methods) > 2
    record = CompareRecord(
        name="Comparison of heads",
        results=results,
        metric=metric,
        scale=1000.0 if metric == "mse" else 1.0,
        friedman=(tests.omnibus.statistic, tests.omnibus.p_value) if tests is not None and several else None,
        ranks={} if tests is None else dict(zip(tests.methods, tests.ranks, strict=True)),
        critical_difference=None if tests is None else tests.critical_difference,
        test_note="" if tests is None else tests.sentence,
        seconds=per_split,
        settings=settings,
        versions={"vicinal": __version__, "torch": torch.__version__},
        higher_is_better=HIGHER_IS_BETTER[metric],
        answer=answers(runs, metric),
        p_values=p_values,
    )
    return Comparison(metric, runs, table, tests, record)
