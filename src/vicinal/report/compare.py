"""The page of a comparison: its table, the change on each split, which methods differ, and figures."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vicinal.report.records import CompareRecord
from vicinal.report.tables import against_reference, mean_and_deviation, spread
from vicinal.report.text import change_cell, clean, one_line
from vicinal.report.theme import CLASSES, MUTED, Picture, blank, picture, rendered, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
        change, won = against_reference(record, dataset, method) or (None, None)
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
