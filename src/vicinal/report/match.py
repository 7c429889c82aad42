"""The page of a match: recall of the candidates, the threshold, and links and doubtful pairs cell by cell."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vicinal.core.files import replace_text
from vicinal.report.text import number, one_line, percent
from vicinal.report.theme import ACCENT, MUTED, WARM, Picture, blank, picture, rendered, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CELL = 240
"""Characters of a cell that are shown, at most."""


@dataclass(frozen=True)
class ShownPair:
    """A pair as the page shows it.

    Attributes:
        left: id of the left row.
        right: id of the right row.
        probability: of a match; None of a guess.
        cells: column, left cell, right cell, and "agrees", "alike", "alike in part", "differs" or "empty".
        resembles: similar labelled pairs, as text.
    """

    left: str
    right: str
    probability: float | None
    cells: Sequence[tuple[str, str, str, str]]
    resembles: Sequence[str] = ()


@dataclass(frozen=True)
class MatchRecord:
    """Contents of the page of a match.

    Attributes:
        name: of the tables.
        rows: number of rows of each table; one number for a table matched with itself.
        pairs: number of labelled pairs: learned from, and held out.
        links: number of links, and their kind.
        guesses: how many of the links are guesses, as nothing was learned.
        recall: share of the labelled matches among the first k candidates, by k.
        candidates: the k that was used.
        chances: probabilities of the held-out pairs, ``[n]``.
        truth: 0 or 1, ``[n]``.
        threshold: None without labelled pairs.
        scores: precision, recall and F1 on the held-out pairs.
        promised: the requested precision, or None.
        sure: links to show.
        doubtful: pairs to show.
        notes: sentences.
        clusters: size -> number of clusters, for a table matched with itself.
        contradictions: pairs within a cluster that speak against it, as text.
        versions: package -> version.
    """

    name: str
    rows: Sequence[int]
    pairs: tuple[int, int]
    links: tuple[int, str]
    recall: Mapping[int, float]
    candidates: int
    chances: NDArray[Any]
    truth: NDArray[Any]
    threshold: float | None
    scores: Mapping[str, float]
    promised: float | None
    sure: Sequence[ShownPair]
    doubtful: Sequence[ShownPair]
    notes: Sequence[str] = ()
    clusters: Mapping[int, int] = field(default_factory=dict)
    contradictions: Sequence[Sequence[str]] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    guesses: int = 0


def write_match_page(record: MatchRecord, path: str | os.PathLike[str]) -> Path:
    """Write the page of ``record`` to ``path``, whole or not at all, and return the path."""
    return replace_text(path, match_html(record))


def match_html(record: MatchRecord) -> str:
    """The page of ``record`` as HTML text."""
    what = "links" if len(record.rows) > 1 else "pairs of copies"
    tiles = [(name, f"{count:,}") for name, count in ((what, record.links[0] - record.guesses),) if count]
    tiles += [("guesses", f"{record.guesses:,}")] * (record.threshold is None)
    tiles += [(name, number(record.scores[name], 3)) for name in ("precision", "recall", "f1") if name in record.scores]
    return rendered(
        "match.html",
        record,
        sizes=" and ".join(f"{rows:,}" for rows in record.rows),
        tiles=tiles,
        findings=match_findings(record),
        pictures=_pictures(record),
        groups=[(title, note, [_view(pair) for pair in pairs]) for title, note, pairs in _groups(record) if pairs],
        clusters=[(f"{count:,}", f"{size} rows") for size, count in sorted(record.clusters.items())],
        contradictions=[[one_line(cell, 80) for cell in row] for row in record.contradictions],
    )


def _groups(record: MatchRecord) -> list[tuple[str, str, Sequence[ShownPair]]]:
    """Title, sentence and pairs of each list."""
    evenly, label = "Drawn evenly from the surest to the least sure.", "label them in review.csv and run again."
    if record.threshold is None:
        to_label = "Pairs to label", f"From the surest to the least sure: {label}", record.doubtful
        return [("Guesses", evenly, record.sure), to_label]
    doubtful = "Doubtful pairs", f"Nearest to the threshold: {label}", record.doubtful
    return [("Links", evenly, record.sure), doubtful]


def _view(pair: ShownPair) -> dict[str, Any]:
    return {
        "left": one_line(pair.left, 60),
        "right": one_line(pair.right, 60),
        "probability": None if pair.probability is None else percent(pair.probability),
        "cells": [
            (one_line(column, 40), one_line(left, _CELL) or "(empty)", one_line(right, _CELL) or "(empty)", verdict)
            for column, left, right, verdict in pair.cells
        ],
        "resembles": [one_line(text, 120) for text in pair.resembles],
    }


def match_findings(record: MatchRecord) -> list[str]:
    """The findings as sentences, the most important first."""
    sentences = []
    if record.threshold is None:
        return ["Nothing was learned: links are guesses, rows that are each other's best candidate and clearly alike."]
    share = record.recall.get(record.candidates)
    promise = f"; at least {percent(record.promised)} was promised" if record.promised is not None else ""
    sentences.append(
        f"Of {record.pairs[1]:,} labelled pairs held out, {percent(record.scores['precision'])} of the accepted ones "
        f"are right{promise}, and {percent(record.scores['recall'])} of the matches are accepted."
    )
    if share is not None:
        sentences.append(
            f"{percent(share)} of the labelled matches are among the {record.candidates} candidates of their row; no "
            "other can be linked."
        )
    if record.contradictions:
        sentences.append(f"{len(record.contradictions)} pairs of one cluster contradict it.")
    return sentences


def _pictures(record: MatchRecord) -> list[Picture]:
    drawn = []
    if record.recall:
        drawn.append(
            picture(
                lambda: recall_curve(record.recall, record.candidates),
                "recall",
                "Recall against candidates",
                "Share of the labelled matches that are candidates, over the number of candidates of a row.",
                "How many of the labelled matches are among the first k candidates of their row. What is no candidate "
                "cannot be linked; more candidates take more time.",
            )
        )
    if record.threshold is not None and len(record.truth):
        threshold = record.threshold
        drawn.append(
            picture(
                lambda: precision_recall(record.chances, record.truth, threshold),
                "precision",
                "Precision and recall",
                "Precision over recall of the pairs held out, with the chosen threshold.",
                f"Each point of the line is a threshold on the pairs held out; {number(threshold, 3)} was chosen.",
            )
        )
    return drawn


def recall_curve(recall: Mapping[int, float], used: int) -> "Figure":
    """Recall over the number of candidates, with the number in use marked."""
    with style():
        figure, axes = blank()
        ks = sorted(recall)
        axes.plot(ks, [recall[k] for k in ks], "o-", color=ACCENT, markersize=4)
        axes.axvline(used, color=WARM, linestyle="--", linewidth=1)
        axes.set_xscale("log")
        axes.set_xticks(ks, [str(k) for k in ks])
        axes.minorticks_off()
        axes.set(xlabel="candidates of a row", ylabel="share of the matches", ylim=(min(0.5, *recall.values()), 1.01))
    return figure


def precision_recall(chances: NDArray[Any], truth: NDArray[Any], threshold: float) -> "Figure":
    """Precision over recall, with the chosen threshold marked."""
    order = np.argsort(-chances, kind="stable")
    right = np.cumsum(truth[order])
    ends = np.append(np.diff(chances[order]) < 0, True)  # equal probabilities are accepted together
    precision, recall = (right / np.arange(1, len(order) + 1))[ends], (right / max(1, truth.sum()))[ends]
    accepted = chances >= threshold
    with style():
        figure, axes = blank()
        axes.plot(recall, precision, color=ACCENT)
        if accepted.any():
            axes.plot(right[accepted.sum() - 1] / max(1, truth.sum()), truth[accepted].mean(), "o", color=WARM)
        axes.axhline(truth.mean(), color=MUTED, linewidth=0.8, linestyle=":")
        axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1.02), ylim=(0, 1.02))
    return figure
