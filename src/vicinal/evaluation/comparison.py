"""From runs to the table: mean and deviation, change against a reference, and tests over splits and data sets."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vicinal.core import check_choice
from vicinal.evaluation.statistics import (
    Outcome,
    average_ranks,
    critical_difference,
    friedman,
    nemenyi,
    paired_t,
    relative_change,
    wilcoxon,
)
from vicinal.evaluation.store import Run
from vicinal.metrics.predictions import HIGHER_IS_BETTER


@dataclass(frozen=True)
class Summary:
    """One cell of the table: a method on a data set.

    Attributes:
        dataset: name of the data set.
        method: name of the method.
        metric: name of the score.
        mean: over the splits.
        deviation: standard deviation over the splits (n - 1); NaN for one split.
        splits: how many splits.
        change: relative change of the mean against the reference on the splits that both have (-0.1: a tenth less);
            NaN for the reference itself or without one.
        p_value: of the paired t-test against the reference on those splits, corrected for overlapping training rows.
        seconds: mean duration of a fit.
    """

    dataset: str
    method: str
    metric: str
    mean: float
    deviation: float
    splits: int
    change: float
    p_value: float
    seconds: float


@dataclass(frozen=True)
class Significance:
    """Tests of the methods over data sets (each data set is one block, by its mean over splits).

    Attributes:
        methods: in the order given.
        datasets: those on which all the methods have run.
        ranks: average rank of each method; 1 is best.
        omnibus: Friedman's test; for two methods Wilcoxon's.
        nemenyi: p-value of each pair of methods; None for two methods.
        critical_difference: of average ranks; None for two methods.
        alpha: level of the critical difference.
        sentence: the result in words.
    """

    methods: list[str]
    datasets: list[str]
    ranks: list[float]
    omnibus: Outcome
    nemenyi: list[list[float]] | None
    critical_difference: float | None
    alpha: float
    sentence: str


def summarize(runs: Sequence[Run], metric: str, *, reference: str | None = "dense") -> list[Summary]:
    """The table of ``runs``: one entry for each data set and method, in the order they came.

    Args:
        runs: of any data sets and methods.
        metric: which score; runs without it are left out.
        reference: the method that ``change`` and ``p_value`` compare with; without runs of it they are NaN.
    """
    check_choice("metric", metric, HIGHER_IS_BETTER)
    cells: dict[tuple[str, str], dict[int, Run]] = {}
    for run in runs:
        if metric in run.metrics:
            cells.setdefault((run.dataset, run.method), {})[run.split] = run
    order = list(dict.fromkeys(dataset for dataset, _ in cells))
    ordered = sorted(cells.items(), key=lambda item: order.index(item[0][0]))
    return [
        _summary(metric, dataset, method, done, cells.get((dataset, reference or "")) if method != reference else None)
        for (dataset, method), done in ordered
    ]


def answers(runs: Sequence[Run], metric: str) -> list[str]:
    """For each data set a sentence: which method is best, how far ahead of the next, and whether that may be chance.

    Args:
        runs: of any data sets and methods.
        metric: which score; runs without it are left out.

    >>> from vicinal.evaluation import Run
    >>> sizes = {"rows": "", "sizes": (80, 10, 10)}
    >>> runs = [Run("toys", i, i, str(m), {"mse": m + i / 9}, 1.0, **sizes) for i in range(3) for m in (1, 2)]
    >>> answers(runs, "mse")
    ['toys: 1 is best, 47.4 % ahead of 2, the next of 2 (the same on 3 splits, no test).']
    """
    higher, said = HIGHER_IS_BETTER[metric], []
    cells = summarize(runs, metric, reference=None)
    for dataset in dict.fromkeys(cell.dataset for cell in cells):
        ordered = sorted((c for c in cells if c.dataset == dataset), key=lambda c: -c.mean if higher else c.mean)
        if len(ordered) < 2:
            said.append(f"{dataset}: {ordered[0].method} was run alone.")
            continue
        best, after = ordered[:2]
        beside = summarize([run for run in runs if run.dataset == dataset], metric, reference=after.method)
        ahead = next(cell for cell in beside if cell.method == best.method)
        points = f"{100 * (best.mean - after.mean):.1f} points"
        gap = points if higher else f"{abs(ahead.change):.1%}".replace("%", " %")
        chance = "< 0.001" if ahead.p_value < 0.001 else f"= {ahead.p_value:.3f}"
        clear = "" if ahead.p_value < 0.05 else ": not significant"
        doubt = f"p {chance} over {ahead.splits} splits{clear}"
        if math.isnan(ahead.p_value):
            doubt = "one split, no test" if ahead.splits < 2 else f"the same on {ahead.splits} splits, no test"
        said.append(
            f"{dataset}: {best.method} is best, {gap} ahead of {after.method}, the next of {len(ordered)} ({doubt})."
        )
    return said


_ALPHA = 0.05


def significance(runs: Sequence[Run], metric: str, *, methods: Sequence[str] | None = None) -> Significance | None:
    """Test whether the methods differ over data sets, after Demsar (2006); None below two data sets or methods.

    Args:
        runs: of several data sets.
        metric: which score.
        methods: which methods; None: all that occur.
    """
    check_choice("metric", metric, HIGHER_IS_BETTER)
    table = {(cell.dataset, cell.method): cell.mean for cell in summarize(runs, metric, reference=None)}
    names = list(methods) if methods is not None else list(dict.fromkeys(method for _, method in table))
    datasets = [
        dataset
        for dataset in dict.fromkeys(dataset for dataset, _ in table)
        if all(np.isfinite(table.get((dataset, name), np.nan)) for name in names)
    ]
    if len(datasets) < 2 or len(names) < 2:
        return None
    scores = np.array([[table[dataset, name] for name in names] for dataset in datasets])  # [N, k]
    ranks = average_ranks(scores, higher_is_better=HIGHER_IS_BETTER[metric])
    several = len(names) > 2
    omnibus = friedman(scores) if several else wilcoxon(scores[:, 0], scores[:, 1])
    pairs = nemenyi(scores).tolist() if several else None
    difference = critical_difference(len(names), len(datasets), alpha=_ALPHA) if several else None
    return Significance(
        methods=names,
        datasets=datasets,
        ranks=ranks.tolist(),
        omnibus=omnibus,
        nemenyi=pairs,
        critical_difference=difference,
        alpha=_ALPHA,
        sentence=_sentence(names, ranks.tolist(), len(datasets), omnibus, difference),
    )


def _summary(metric: str, dataset: str, method: str, runs: dict[int, Run], reference: dict[int, Run] | None) -> Summary:
    values = np.array([run.metrics[metric] for run in runs.values()])
    change = p_value = float("nan")
    shared = sorted(set(runs) & set(reference or {}))
    if reference is not None and shared:
        ours = [runs[split].metrics[metric] for split in shared]
        theirs = [reference[split].metrics[metric] for split in shared]
        change = relative_change(ours, theirs)
        if np.isfinite([*ours, *theirs]).all():
            overlap = float(np.mean([runs[split].sizes[2] / runs[split].sizes[0] for split in shared]))
            p_value = paired_t(ours, theirs, overlap=overlap).p_value
    return Summary(
        dataset=dataset,
        method=method,
        metric=metric,
        mean=float(values.mean()),
        deviation=float(values.std(ddof=1)) if len(values) > 1 else float("nan"),
        splits=len(values),
        change=change,
        p_value=p_value,
        seconds=float(np.mean([run.seconds for run in runs.values()])),
    )


def _sentence(names: list[str], ranks: list[float], blocks: int, omnibus: Outcome, difference: float | None) -> str:
    order = sorted(range(len(names)), key=lambda place: ranks[place])
    listed = ", ".join(f"{names[place]} {ranks[place]:.2f}" for place in order)
    sentence = f"average ranks over {blocks} data sets: {listed}; {omnibus.name} p = {omnibus.p_value:.3g}"
    if difference is None:
        return sentence
    best = order[0]
    worse = [names[place] for place in order if ranks[place] - ranks[best] >= difference]
    if omnibus.p_value < _ALPHA and worse:
        verdict = f"{names[best]} is ahead of {', '.join(worse)}"
    else:
        verdict = "no difference is established"
    few = "; with so few data sets these tests find only large differences" if blocks < 10 else ""
    return f"{sentence}; critical difference {difference:.2f} at level {_ALPHA:g}: {verdict}{few}"
