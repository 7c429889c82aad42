"""The page of a comparison: its table, the change on each split, which methods differ, and figures."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vicinal.core.checks import check_between
from vicinal.core.files import replace_text
from vicinal.report.records import CompareRecord
from vicinal.report.tables import mean_and_deviation, relative_change, splits_won, spread
from vicinal.report.text import change_cell, clean, one_line
from vicinal.report.theme import CLASSES, INK, MUTED, WARM, Picture, blank, picture, rendered, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def write_compare_page(record: CompareRecord, path: str | os.PathLike[str]) -> Path:
    """Write the page of ``record`` to ``path``, whole or not at all.

    Returns:
        The path.
    """
    return replace_text(path, compare_html(record))


def compare_html(record: CompareRecord) -> str:
    """The page of ``record`` as HTML text."""
    return rendered(
        "compare.html",
        record,
        metric=record.measure,
        methods=[one_line(method, 40) for method in record.methods],
        rows=[_row(record, dataset) for dataset in record.results],
        ranks=[(one_line(m, 40), f"{record.ranks[m]:.2f}" if m in record.ranks else "") for m in record.methods],
        reference=one_line(record.reference, 40),
        answer=[clean(sentence) for sentence in record.answer],
        verdict=_verdict(record),
        pictures=list(_pictures(record)),
    )


def _row(record: CompareRecord, dataset: str) -> dict[str, Any]:
    """One data set: for each method its mean and deviation, change, splits won, and whether it is the best."""
    results = record.results[dataset]
    means = {method: mean_and_deviation(values)[0] for method, values in results.items()}
    best = (max if record.higher_is_better else min)(means.values())
    cells: list[tuple[str, dict[str, Any] | None]] = []
    for method in record.methods:
        if method not in results:
            cells.append((one_line(method, 40), None))
            continue
        change, won = relative_change(record, dataset, method), splits_won(record, dataset, method)
        p = record.p_values.get(dataset, {}).get(method, float("nan"))
        better = change is not None and (change > 0) == record.higher_is_better and change != 0
        shown_cell = {
            "spread": spread(results[method], record.scale).replace("+-", "±"),
            "change": "" if change is None else change_cell(change),
            "better": better,
            "p": "" if p != p else "< 0.001" if p < 0.001 else f"{p:.3f}",
            "won": "" if won is None else f"better in {won[0]} of {won[1]}",
            "best": means[method] == best,
        }
        cells.append((one_line(method, 40), shown_cell))
    seconds = record.seconds.get(dataset)
    splits = len(next(iter(results.values())))
    return {"name": one_line(dataset, 60), "cells": cells, "splits": splits, "seconds": seconds}


def _verdict(record: CompareRecord) -> list[str]:
    """The results of the tests as sentences."""
    said = []
    if record.friedman is not None:
        statistic, p = record.friedman
        differ = "the methods differ" if p < 0.05 else "no difference between the methods is shown"
        amount = "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
        said.append(f"Friedman's test: chi-square {statistic:.2f}, {amount}: {differ}.")
    if record.critical_difference is not None:
        said.append(
            "Nemenyi's test: two methods are told apart where their average ranks differ by more than "
            f"{record.critical_difference:.2f}."
        )
    if record.test_note:
        said.append(clean(record.test_note))
    return said


def _pictures(record: CompareRecord) -> Iterator[Picture]:
    """The figures that the record has something to show for."""
    others = [method for method in record.methods if method != record.reference]
    if others and any(record.reference in results for results in record.results.values()):
        better = "Right" if record.higher_is_better else "Left"
        yield picture(
            relative_changes(record.results, record.methods, record.reference),
            "change",
            f"Change against {one_line(record.reference, 30)}",
            "For each data set and method, dots for the splits and a bar for their mean, in per cent.",
            f"{better} of the line a method is better than {one_line(record.reference, 30)}. A dot is a split, the "
            "bar is the mean of the splits' changes.",
            wide=True,
        )
    if record.critical_difference is not None and len(record.ranks) > 1:
        difference = record.critical_difference
        said = ", ".join(f"{one_line(name, 30)} {rank:.2f}" for name, rank in sorted(record.ranks.items(), key=_rank))
        yield picture(
            critical_difference(record.ranks, difference),
            "cd",
            "Critical difference",
            f"Average ranks: {said}; critical difference {difference:.2f}.",
            "Methods on the axis of their average rank over the data sets, 1 is best. The test cannot tell apart "
            "those that a bar joins.",
            wide=True,
        )


def _rank(pair: tuple[str, float]) -> float:
    return pair[1]


def cliques(ranks: Mapping[str, float], difference: float) -> list[tuple[float, float]]:
    """Widest runs of methods whose average ranks lie within ``difference`` of each other: (best, worst) rank.

    >>> cliques({"a": 1.0, "b": 1.5, "c": 2.2, "d": 4.0}, 0.8)
    [(1.0, 1.5), (1.5, 2.2)]
    """
    ordered = sorted(ranks.values())
    runs: list[tuple[float, float]] = []
    for start, best in enumerate(ordered):
        worst = max(rank for rank in ordered[start:] if rank - best <= difference)
        if worst > best and (not runs or worst > runs[-1][1]):
            runs.append((best, worst))
    return runs


def critical_difference(ranks: Mapping[str, float], difference: float) -> "Figure":
    """Critical-difference diagram: methods on an axis of average rank, bars join those that do not differ.

    Args:
        ranks: method -> average rank over the data sets, 1 is best.
        difference: critical difference of average ranks by Nemenyi's test.

    Raises:
        ValueError: for fewer than two methods or a negative difference.
    """
    if len(ranks) < 2:
        raise ValueError(f"ranks: expected at least two methods, got {len(ranks)}")
    check_between("difference", difference, 0, float("inf"), closed=True)
    bars = cliques(ranks, difference)
    with style():
        depth = 0.55 + 0.3 * ((len(ranks) + 1) // 2) + 0.16 * len(bars)
        figure, axes = blank(4.8, 0.7 + 0.7 * depth)
        low, high = 1.0, max(float(len(ranks)), *ranks.values())
        span = high - low
        axes.plot((low, high), (0, 0), color=INK, linewidth=1.2)
        for tick in range(1, int(high) + 1):
            axes.plot((tick, tick), (0, 0.09), color=INK, linewidth=1.2)
            axes.text(tick, 0.14, str(tick), ha="center", va="bottom", color=MUTED)
        _ruler(axes, low, min(difference, span), difference)
        for place, (best, worst) in enumerate(bars):
            level = -0.14 - 0.16 * place
            ends = (best - 0.01 * span, worst + 0.01 * span)
            axes.plot(ends, (level, level), color=WARM, linewidth=3.5, solid_capstyle="round")
        _methods(axes, ranks, -0.14 - 0.16 * len(bars), (low, high))
        axes.set(xlim=(low - 0.5 * span, high + 0.5 * span), ylim=(-depth - 0.1, 0.9))
        axes.axis("off")
    return figure


def _ruler(axes: "Axes", low: float, shown: float, difference: float) -> None:
    """The length of the critical difference, above the axis."""
    axes.plot((low, low + shown), (0.55, 0.55), color=WARM, linewidth=1.5, marker="|")
    axes.text(low, 0.66, f"critical difference {difference:.2f}", va="bottom", color=WARM, fontsize=8)


def _methods(axes: "Axes", ranks: Mapping[str, float], top: float, ends: tuple[float, float]) -> None:
    """Names beside the axis: the better half on the left, the others on the right, joined to their ranks."""
    low, high = ends
    ordered = sorted(ranks.items(), key=lambda pair: pair[1])
    half = (len(ordered) + 1) // 2
    for place, (name, rank) in enumerate(ordered):
        left = place < half
        level = top - 0.12 - 0.3 * (place if left else len(ordered) - 1 - place)
        edge = low - 0.04 * (high - low) if left else high + 0.04 * (high - low)
        axes.plot((rank, rank, edge), (0, level, level), color=INK, linewidth=0.9)
        text = f"{one_line(name, 22)}  {rank:.2f}" if left else f"{rank:.2f}  {one_line(name, 22)}"
        axes.text(
            edge + (-0.015 if left else 0.015) * (high - low), level, text, ha="right" if left else "left", va="center"
        )


def relative_changes(
    results: Mapping[str, Mapping[str, Sequence[float]]], methods: Sequence[str], reference: str
) -> "Figure":
    """Change of each method's score against ``reference`` in percent: a dot for each split, a bar for the mean.

    Args:
        results: data set -> method -> one value per split.
        methods: in the order of their colors.
        reference: the line at 0; data sets without this method are not drawn.
    """
    drawn = [name for name, values in results.items() if reference in values]
    others = [method for method in methods if method != reference]
    with style():
        figure, axes = blank(4.8, 1.0 + 0.24 * max(2, len(drawn) * (len(others) + 1)))
        level, labels = 0, []
        for name in drawn:
            base = np.asarray(results[name][reference], dtype=float)
            labels.append((level + (len(others) - 1) / 2, one_line(name, 20)))
            for color, method in enumerate(others):
                if method in results[name]:
                    with np.errstate(divide="ignore", invalid="ignore"):
                        change = 100 * (np.asarray(results[name][method], dtype=float) / base - 1)
                    change = change[np.isfinite(change)]
                    shade = CLASSES[color % len(CLASSES)]
                    label = one_line(method, 24) if name == drawn[0] else None
                    axes.plot(change, np.full(len(change), level), "o", color=shade, alpha=0.45, markersize=4)
                    axes.plot(
                        change.mean() if len(change) else np.nan,
                        level,
                        "|",
                        color=shade,
                        markersize=13,
                        markeredgewidth=2.5,
                        label=label,
                    )
                level += 1
            level += 1
        axes.axvline(0, color=MUTED, linewidth=1.2)
        axes.set_yticks([place for place, _ in labels], [name for _, name in labels])
        axes.set(ylim=(level - 1.3, -0.8), xlabel=f"change against {one_line(reference, 24)} in %")
        axes.grid(visible=False, axis="y")
        if others and drawn:
            figure.legend(loc="outside lower center", ncols=4, fontsize=8)
    return figure
