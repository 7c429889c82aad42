"""The page of a comparison: table, change split by split, and which methods can be told apart."""

import os
from pathlib import Path
from typing import Any

from vicinal.core import replace_text
from vicinal.report import ranks
from vicinal.report.page import Picture, environment, picture, shown
from vicinal.report.records import CompareRecord
from vicinal.report.tables import mean_and_deviation, relative_change, splits_won, spread
from vicinal.report.text import clean, metric_name, one_line


def write_compare_page(record: CompareRecord, path: str | os.PathLike[str]) -> Path:
    """Write the page of ``record`` to ``path``, aside first and then renamed.

    Returns:
        The path.
    """
    return replace_text(path, compare_html(record))


def compare_html(record: CompareRecord) -> str:
    """The page of ``record`` as text."""
    return (
        environment()
        .get_template("compare.html")
        .render(
            title=one_line(record.name, 80),
            record=record,
            metric=metric_name(record.metric) + (f" x {record.scale:g}" if record.scale != 1 else ""),
            methods=[one_line(method, 40) for method in record.methods],
            rows=[_row(record, dataset) for dataset in record.results],
            ranks=[f"{record.ranks[m]:.2f}" if m in record.ranks else "" for m in record.methods],
            reference=one_line(record.reference, 40),
            verdict=_verdict(record),
            pictures=_pictures(record),
            notes=[clean(note) for note in record.notes],
            settings=[(one_line(key, 60), shown(value)) for key, value in record.settings.items()],
            versions=[(one_line(key, 60), shown(value)) for key, value in record.versions.items()],
        )
    )


def _row(record: CompareRecord, dataset: str) -> dict[str, Any]:
    """One data set: for each method its spread, change, splits won, and whether it is the best."""
    results = record.results[dataset]
    means = {method: mean_and_deviation(values)[0] for method, values in results.items()}
    best = (max if record.higher_is_better else min)(means.values())
    cells: list[dict[str, Any] | None] = []
    for method in record.methods:
        if method not in results:
            cells.append(None)
            continue
        change, won = relative_change(record, dataset, method), splits_won(record, dataset, method)
        better = change is not None and (change > 0) == record.higher_is_better and change != 0
        cells.append(
            {
                "spread": spread(results[method], record.scale).replace("+-", "±"),
                "change": "" if change is None else f"{100 * change:+.1f} %",
                "better": better,
                "won": "" if won is None else f"better in {won[0]} of {won[1]}",
                "best": means[method] == best,
            }
        )
    seconds = record.seconds.get(dataset)
    splits = len(next(iter(results.values())))
    return {"name": one_line(dataset, 60), "cells": cells, "splits": splits, "seconds": seconds}


def _verdict(record: CompareRecord) -> list[str]:
    """What the tests say, in sentences."""
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


def _pictures(record: CompareRecord) -> list[Picture]:
    """The figures that the record has something to show for."""
    drawn = []
    others = [method for method in record.methods if method != record.reference]
    if others and any(record.reference in results for results in record.results.values()):
        better = "Right" if record.higher_is_better else "Left"
        drawn.append(
            picture(
                lambda: ranks.relative_changes(record.results, record.methods, record.reference),
                "change",
                f"Change against {one_line(record.reference, 30)}",
                "For each data set and method, dots for the splits and a bar for their mean, in per cent.",
                f"{better} of the line a method is better than {one_line(record.reference, 30)}. A dot is a split, the "
                "bar is the mean of the splits' changes.",
                wide=True,
            )
        )
    if record.critical_difference is not None and len(record.ranks) > 1:
        difference = record.critical_difference
        said = ", ".join(f"{one_line(name, 30)} {rank:.2f}" for name, rank in sorted(record.ranks.items(), key=_rank))
        drawn.append(
            picture(
                lambda: ranks.critical_difference(record.ranks, difference),
                "cd",
                "Critical difference",
                f"Average ranks: {said}; critical difference {difference:.2f}.",
                "Methods on the axis of their average rank over the data sets, 1 is best. The test cannot tell apart "
                "those that a bar joins.",
                wide=True,
            )
        )
    return drawn


def _rank(pair: tuple[str, float]) -> float:
    return pair[1]
