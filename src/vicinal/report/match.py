"""The page of a match: a verdict, links and doubtful pairs cell by cell, match weights, and how sure all is."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vicinal.linkage.compared import ComparedPair
from vicinal.report.pairs import bars, pair_view
from vicinal.report.text import compact, number, one_line, percent
from vicinal.report.theme import ACCENT, MUTED, SOFT, WARM, Picture, blank, picture, rendered, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHOWN = 3
"""Pairs of a list that stand open; the others are behind a line."""


@dataclass(frozen=True)
class MatchRecord:
    """Contents of the page of a match.

    Attributes:
        name: of the tables.
        rows: number of rows of each table; one number for a table matched with itself.
        pairs: number of labelled pairs: learned from, and held out.
        links: number of links, and their kind.
        recall: share of the labelled matches among the first k candidates, by k.
        candidates: the k that was used.
        chances: probabilities of the held-out pairs, ``[n]``.
        truth: 0 or 1, ``[n]``.
        threshold: the probability from which on pairs are linked.
        scores: precision, recall and F1 on the held-out pairs.
        promised: the requested precision, or None.
        clusters: size -> number of clusters, for a table matched with itself.
        contradictions: pairs within a cluster that speak against it, as text.
        expected: precision, recall and F1 of the links that the probabilities themselves expect.
        weights: column, level, m and u (see the docs) and log2 of m / u, by level from the lowest.
        scored: probabilities of all candidates, ``[n]``.
        reached: estimated share of the matches among the candidates; None if it is not known.
        weakest: ids of the least probable pair of each cluster of three rows and more, how probable it is, and the rows
            of the cluster.
    """

    name: str
    rows: Sequence[int]
    pairs: tuple[int, int]
    links: tuple[int, str]
    recall: Mapping[int, float]
    candidates: int
    chances: NDArray[Any]
    truth: NDArray[Any]
    threshold: float
    scores: Mapping[str, float]
    promised: float | None
    sure: Sequence[ComparedPair]
    doubtful: Sequence[ComparedPair]
    notes: Sequence[str] = ()
    clusters: Mapping[int, int] = field(default_factory=dict)
    contradictions: Sequence[Sequence[str]] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    expected: Mapping[str, float] = field(default_factory=dict)
    weights: Sequence[tuple[str, str, float, float, float]] = ()
    scored: NDArray[Any] = field(default_factory=lambda: np.zeros(0))
    reached: float | None = None
    weakest: Sequence[tuple[str, str, float, int]] = ()

    @property
    def is_crossed(self) -> bool:
        """Whether each labelled pair was held out once, and learned from beside."""
        return self.promised is not None and self.pairs[0] == self.pairs[1]


def match_html(record: MatchRecord) -> str:
    """The page of ``record`` as HTML text."""
    what = "links" if len(record.rows) > 1 else "pairs of copies"
    tiles = [(what, f"{record.links[0]:,}")]
    tiles += [(name, number(record.scores[name], 3)) for name in ("precision", "recall", "f1") if name in record.scores]
    teach = "Labels of these teach most: give them on the page of --review, or in review.csv, and run again."
    groups: list[tuple[str, str, Sequence[ComparedPair]]] = [
        ("Links", "Drawn evenly from the surest to the least sure.", record.sure),
        ("Pairs to label", teach, sorted(record.doubtful, key=lambda pair: abs(pair.probability - record.threshold))),
    ]
    return rendered(
        "match.html",
        record,
        sizes=" and ".join(f"{rows:,}" for rows in record.rows),
        tiles=tiles,
        findings=match_findings(record),
        pictures=list(_pictures(record)),
        groups=[(title, note, [pair_view(pair) for pair in pairs]) for title, note, pairs in groups if pairs],
        shown=_SHOWN,
        weights=_weights(record.weights),
        clusters=[(f"{size} row{'s' * (size > 1)}", f"{count:,}") for size, count in sorted(record.clusters.items())],
        weakest=[
            [one_line(left), one_line(right), percent(probability), f"{size:,}"]
            for left, right, probability, size in record.weakest
        ],
        contradictions=[[one_line(cell, 80) for cell in row] for row in record.contradictions],
    )


def _weights(levels: Sequence[tuple[str, str, float, float, float]]) -> list[dict[str, Any]]:
    """The rows of the table of match weights; a column is named in its first row."""
    drawn, before = bars([(0.0, weight) for *_, weight in levels]), [None, *(column for column, *_ in levels)]
    return [
        {
            "column": one_line(column, 40) if column != last else "",
            "level": one_line(level, 60),
            "m": percent(m),
            "u": _rare(u),
            "bar": bar,
        }
        for (column, level, m, u, _), last, bar in zip(levels, before, drawn, strict=False)
    ]


def _rare(share: float) -> str:
    """A share in percent, or as one in how many, with two significant digits."""
    return percent(share) if share >= 0.001 or share <= 0 else f"1 in {number(float(f'{1 / share:.2g}'))}"


def match_findings(record: MatchRecord) -> list[str]:
    """The findings as sentences, the most important first."""
    sentences = []
    if "precision" in record.scores:
        promise = f" (promised: at least {percent(record.promised)})" if record.promised is not None else ""
        sentences.append(
            f"{record.links[0]:,} links. On {record.pairs[1]:,} held-out labelled pairs: precision "
            f"{percent(record.scores['precision'])}{promise}, recall {percent(record.scores['recall'])}."
        )
    elif record.links[0] and not record.expected:
        sentences.append(f"{record.links[0]:,} links, all of rows that are equal.")
    elif record.links[0]:
        sentences.append(
            f"{record.links[0]:,} links with a probability of {percent(record.threshold)} or more. Expected precision "
            f"{percent(record.expected['precision'])}, expected recall "
            f"{percent(record.expected['recall'])} (among the candidates)."
        )
    else:
        sentences.append("No pair is linked.")
    share = record.recall.get(record.candidates)
    if share is not None:
        sentences.append(
            f"Candidate recall on labelled matches: {percent(share)} ({record.candidates} candidates per row)."
        )
    elif record.reached is not None:
        sentences.append(f"Estimated candidate recall: at most {number(100 * record.reached, 3)} %.")
    if record.contradictions:
        sentences.append(f"{len(record.contradictions)} pairs contradict their cluster (contradictions.csv).")
    return sentences


def _pictures(record: MatchRecord) -> Iterator[Picture]:
    shown = number(record.threshold, 3)
    if len(record.truth):
        yield picture(
            precision_recall(record.chances, record.truth, record.threshold),
            "precision",
            "Precision and recall",
            "Precision over recall of the pairs held out, with the chosen threshold.",
            f"Each point of the line is a threshold on the pairs held out; {shown} was chosen.",
        )
    if len(record.scored):
        yield picture(
            chance_histogram(record.scored, record.threshold),
            "chances",
            "Probabilities of the candidates",
            "Number of candidate pairs by their probability, with the threshold.",
            f"All {len(record.scored):,} candidate pairs by their probability; counts are on a logarithmic scale. "
            f"Pairs right of the line, {shown}, may become links; many near it are hard to tell.",
        )


def chance_histogram(chances: NDArray[Any], threshold: float) -> "Figure":
    """Number of pairs in twenty bins of their probability ``[n]``, with the threshold marked."""
    with style():
        figure, axes = blank()
        counts, edges = np.histogram(chances, bins=20, range=(0, 1))
        middles = (edges[:-1] + edges[1:]) / 2
        axes.bar(middles, counts, width=0.046, color=[ACCENT if one >= threshold else SOFT for one in middles])
        axes.axvline(threshold, color=WARM, linestyle="--", linewidth=1)
        axes.set_yscale("symlog", linthresh=1)
        axes.set(xlabel="probability of a match", ylabel="pairs", xlim=(0, 1), ylim=(0, None))
        axes.yaxis.set_major_formatter(lambda value, _: compact(value))
        axes.yaxis.minorticks_off()
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
