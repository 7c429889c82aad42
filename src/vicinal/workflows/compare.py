"""``vicinal compare``: heads, and k-NN on their embeddings, over seeded splits of tables, as in the paper."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vicinal.core import CalibrationWarning, check_choice
from vicinal.core.arrays import Array
from vicinal.core.checks import check_integer, unwarned
from vicinal.core.files import clear_target, resolved
from vicinal.core.progress import Log
from vicinal.data import Split
from vicinal.data.duplicates import table_fingerprint
from vicinal.data.splits import load_splits, save_splits
from vicinal.estimators.banked import BankedEstimator
from vicinal.evaluation import Run, Significance, Summary, answers, significance, summarize
from vicinal.evaluation.store import RunStore, fits_left, run_protocol
from vicinal.metrics.predictions import HIGHER_IS_BETTER, PRIMARY, PRIMARY_OF_SEVERAL
from vicinal.report.records import CompareRecord
from vicinal.version import __version__
from vicinal.workflows.engines import FITTING, check_engine, done_together
from vicinal.workflows.fit import FitPlan, plan_opened
from vicinal.workflows.measured import measured
from vicinal.workflows.measuring import (
    baseline_names,
    classes_among,
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
    rows_of_the_table,
)

HEADS = ("dense", "dense+knn", "nona", "nona+knn")
"""What can be compared: a head, or k-NN on the embeddings trained for that head."""


@dataclass(frozen=True)
class Comparison:
    """Results of all runs, their means and changes against dense, and the same for the page of the report.

    Attributes:
        metric: "mse" on labels scaled to [0, 1] by the training range, "accuracy", or (several classes per row)
            "micro_f1".
        significance: tests of the heads over the data sets; None for fewer than two data sets or heads.
    """

    metric: str
    runs: list[Run]
    table: list[Summary]
    significance: Significance | None
    record: CompareRecord


@dataclass(frozen=True)
class ComparePlan:
    """What a comparison would run on one table, known before anything is encoded or trained.

    Attributes:
        fit: the plan of one fit of the first head, with columns and rows.
        fits: names of the methods of a fit -> number of fits still to run.
        finished: number of fits that the folder has already.
    """

    fit: FitPlan
    fits: dict[tuple[str, ...], int]
    finished: int


@rows_of_the_table()
def compare_tables(
    jobs: Sequence[TableJob],
    out: Path,
    *,
    splits: int = 10,
    heads: Sequence[str] = HEADS,
    engine: str | None = None,
    workers: int | None = None,
    log: Log = lambda line: None,
) -> Comparison:
    """Compare ``heads`` on the same seeded splits of each table; runs stored in ``out`` are not repeated.

    Args:
        jobs: one for each table, all of one task.
        out: folder for splits, runs and the cache of frozen encoders.
        splits: number of splits of each table, by default 80/20 and then 85/15; a split by time is the only one.
        heads: out of ``HEADS``.
        engine: "joblib" (processes of this machine) or "ray" for several fits at a time, see
            :func:`vicinal.workflows.engines.done_together`; None: one after the other. Results are the same.
        workers: of the engine; None: one per processor.
        log: gets one line of progress at a time.

    Raises:
        ValueError: if data or settings cannot be used, or ``out`` holds runs with other settings.
    """
    count = check_engine(engine, workers, FITTING)
    together = None if engine is None or count is None else partial(done_together, engine, count)
    heads, opened = _opened(jobs, splits, heads, log)
    store = RunStore(out / "runs.json", _settings(jobs[0]))
    runs: list[Run] = []
    for job, table in zip(jobs, opened, strict=True):
        if lone := groups_sentence(table.table):
            log(f"{table.table.name}: {lone}")
        stored = _drawn_splits(job, table, splits, out)
        out.mkdir(parents=True, exist_ok=True)
        save_splits(_splits_file(table, out), stored, fingerprint=table_fingerprint(table.table))
        runs += run_protocol(
            {one.names: one for one in _fits(job, table, heads, out)},
            stored[: 1 if job.time else splits],
            store,
            dataset=table.table.name,
            settings=_of_table(job, table),
            progress=lambda data, number, method, done: log(_line(data, number, method, done)) if done else None,
            together=together,
        )
    metric = PRIMARY_OF_SEVERAL if opened[0].table.several else PRIMARY[opened[0].table.task]
    return _comparison(runs, metric, _settings(jobs[0]), heads)


def plan_compare(
    jobs: Sequence[TableJob],
    out: Path,
    *,
    splits: int = 10,
    heads: Sequence[str] = HEADS,
    log: Log = lambda line: None,
) -> list[ComparePlan]:
    """What :func:`compare_tables` would run, for each table; nothing is trained or written.

    Raises:
        ValueError: as :func:`compare_tables` does before it trains.
    """
    heads, opened = _opened(jobs, splits, heads, log)
    store = RunStore(out / "runs.json", _settings(jobs[0])) if (out / "runs.json").exists() else None
    plans = []
    for job, table in zip(jobs, opened, strict=True):
        drawn = _drawn_splits(job, table, splits, out)[: 1 if job.time else splits]
        fits, finished = {}, 0
        named = _fits(job, table, heads, out)
        left = [(number, one.names) for number in range(len(drawn)) for one in named]
        if store is not None:
            store.enter(table.table.name, _of_table(job, table))
            left = fits_left([one.names for one in named], drawn, store, table.table.name)
        for one in named:
            fits[one.names] = sum(names == one.names for _, names in left)
            finished += len(drawn) - fits[one.names]
        plan = plan_opened(named[0].job(drawn[0].seed), table, drawn[0])
        plans.append(ComparePlan(plan, fits, finished))
    return plans


def _opened(jobs: Sequence[TableJob], splits: int, heads: Sequence[str], log: Log) -> tuple[list[str], list[OpenTable]]:
    """The heads, each once, and the tables, of one task and of different names."""
    check_integer("splits", splits)
    heads = list(dict.fromkeys(check_choice("heads", head, HEADS) for head in heads))
    if not heads:
        raise ValueError(f"heads: expected at least one of {', '.join(HEADS)}, got none")
    opened = [open_table(job, log) for job in jobs]
    if len({(table.table.task, table.table.several) for table in opened}) > 1:
        raise ValueError(
            "data: expected tables of one task, got several of numbers, one class a row and several; compare them apart"
        )
    names = [table.table.name for table in opened]
    if len(set(names)) < len(names):
        raise ValueError(f"data: expected tables of different names, got {', '.join(names)}")
    if splits > 1 and any(job.time for job in jobs):
        log("by time there is one split: its test rows are the latest")
    return heads, opened


def _settings(job: TableJob) -> dict[str, Any]:
    hidden = ("verbose", "logger", "cache_dir", "accelerator", "devices")
    shown = {name: value for name, value in job.parameters.items() if name not in hidden}
    roles = {name: column for name, column in (("time", job.time), ("weight", job.weight)) if column}
    return {"seed": job.seed, "test": job.test, "validation": job.validation, **roles, **shown}


def _of_table(job: TableJob, opened: OpenTable) -> dict[str, Any]:
    """Settings that all runs on a table share."""
    table = opened.table
    known = {"weights": sha256(table.mass.tobytes()).hexdigest()[:16]} if table.weighted else {}
    return {"rows": table_fingerprint(table), "kinds": opened.kinds, "target": job.target} | known


def _splits_file(opened: OpenTable, out: Path) -> Path:
    return out / f"splits-{opened.table.name}.json"


def _drawn_splits(job: TableJob, opened: OpenTable, number: int, out: Path) -> list[Split]:
    """The splits stored in ``out``, or new ones; a split by time is never stored, as it is not random."""
    path = _splits_file(opened, out)
    if path.is_file() and job.time is None:
        clear_target(resolved(path))  # what a run left that was killed just after it wrote them
        stored = load_splits(path, rows=len(opened.table), fingerprint=table_fingerprint(opened.table))
        if len(stored) >= number and stored[0].seed == job.seed:
            return stored
    return draw_splits(opened.table, job, number)


@dataclass(frozen=True, eq=False)
class _Fit:
    """A fit on a split, which may run in another process.

    Attributes:
        base: the head; None: all baselines on untuned features.
        names: methods that it scores: the head itself, and k-NN on its embeddings.
        out: folder of the comparison.
    """

    of: TableJob
    opened: OpenTable
    base: str | None
    names: tuple[str, ...]
    out: Path

    def job(self, seed: int) -> TableJob:
        """The job with the settings of this head."""
        settings = {"cache_dir": self.out / "cache", **self.of.parameters}
        if self.base is not None:
            settings |= {"head": self.base, "random_state": seed}
        if self.base == "dense":
            settings |= {"metric": "network", "readout": "attention", "max_neighbors": None}
        return replace(self.of, parameters=settings)

    def __call__(self, split: Any) -> dict[str, dict[str, float]]:
        """The scores of each method on the test rows."""
        opened = self.opened
        model = make_estimator(opened, self.job(split.seed))
        if self.base is None:
            model.encoder_choices_ = table_choices(model, opened, split)
            tuned = untuned_baselines(model, opened, split)
            return {one.name: _scaled_scores(model, opened, split, one.prediction, one.thresholds) for one in tuned}
        with unwarned(CalibrationWarning):  # of intervals, which are not compared
            fit_split(model, opened, split)
        return {head: _scores(model, opened, split, knn=head.endswith("+knn")) for head in self.names}


def _fits(job: TableJob, opened: OpenTable, heads: Sequence[str], out: Path) -> list[_Fit]:
    """One fit for each kind of head, and one for the baselines."""
    fits = []
    for base in dict.fromkeys(head.partition("+")[0] for head in heads):
        variants = tuple(head for head in heads if head.partition("+")[0] == base)
        fits.append(_Fit(job, opened, base, variants, out))
    if job.baselines:
        classes, several = opened.table.task == "classification", opened.table.several
        names = baseline_names(opened.kinds, classes=classes, several=several)
        fits.append(_Fit(job, opened, None, tuple(names), out))
    return fits


def _scores(model: BankedEstimator, opened: OpenTable, split: Split, *, knn: bool) -> dict[str, float]:
    if knn:
        neighbors = knn_of_embeddings(model, opened, split)
        return _scaled_scores(model, opened, split, neighbors.prediction, neighbors.thresholds)
    return _scaled_scores(model, opened, split, predict_test(model, opened, split), getattr(model, "thresholds_", None))


def _scaled_scores(
    model: BankedEstimator, opened: OpenTable, split: Split, predicted: Array, thresholds: Array | None = None
) -> dict[str, float]:
    """Scores on the test rows, for numbers scaled to [0, 1] by the range of the training rows.

    For several classes per row, classes are predicted from ``thresholds [K]`` on.
    """
    target, rows = opened.table.target, np.concatenate([split.train, split.validation])
    truth, weights = target[split.test], opened.table.mass[split.test]
    classes = classes_among(target[rows], opened.table)
    if not classes:
        known = target[rows if model.validation_fraction == 0 else split.train]
        low, high = known.min(), known.max()
        truth, predicted = (truth - low) / (high - low), (predicted - low) / (high - low)
    return measured(predicted, truth, weights, classes=classes, thresholds=thresholds).scores


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
    p_values = {name: {cell.method: cell.p_value for cell in table if cell.dataset == name} for name in results}
    several = tests is not None and len(tests.methods) > 2
    record = CompareRecord(
        name="Comparison of methods",
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
