"""The page of a learned similarity: how well it retrieves similar test rows, and example queries with their hits."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vicinal.core.files import replace_text
from vicinal.report.page import cells, learning, map_of
from vicinal.report.records import Cell
from vicinal.report.text import clean, metric_name, number, one_line, score_table
from vicinal.report.theme import Picture, rendered, shown


class ShownHit(NamedTuple):
    """A row that a query finds: its cells, label, score, whether it is alike (None for number labels), and id."""

    row: Mapping[str, Cell]
    label: str
    score: float
    right: bool | None
    id: str


class ShownQuery(NamedTuple):
    """A test row with its hits."""

    title: str
    row: Mapping[str, Cell]
    label: str
    id: str
    hits: Sequence[ShownHit]


@dataclass(eq=False)
class LearnRecord:
    """Contents of the page of a learned similarity.

    Attributes:
        same: the column that says what is alike.
        labels: "classes", "several" or "numbers".
        rows: number of rows by use: train, validation, test.
        classes: number of classes by use; empty unless whole classes were held out.
        scores: method ("model" first) -> measure -> (value, low, high); ends that are NaN are not shown.
        history: curves by epoch.
        embedding: vectors of test rows ``[n, d]``.
        embedding_labels: their labels ``[n]``.
        apart: pairs of near test rows with different labels.
        columns: name, kind, encoder, reason.
        dropped: reason -> number of rows.
    """

    name: str
    same: str
    labels: str
    rows: Mapping[str, int]
    classes: Mapping[str, int]
    scores: Mapping[str, Mapping[str, tuple[float, float, float]]]
    history: Mapping[str, Sequence[float]]
    embedding: NDArray[Any]
    embedding_labels: NDArray[Any]
    queries: Sequence[ShownQuery] = ()
    apart: Sequence[tuple[ShownHit, ShownHit]] = ()
    columns: Sequence[tuple[str, str, str, str]] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    duration_s: float = 0.0


def score_rows(record: LearnRecord) -> list[list[str]]:
    """Scores with their intervals as rows of text, the header first.

    >>> none = np.zeros(0)
    >>> record = LearnRecord("d", "y", "classes", {}, {}, {"model": {"map@r": (0.5, 0.4, 0.6)}}, {}, none, none)
    >>> score_rows(record)
    [['', 'MAP@R'], ['this model', '0.500 (0.400 to 0.600)']]
    """
    named = {"this model" if name == "model" else one_line(name, 60): each for name, each in record.scores.items()}
    return score_table(named, _estimate)


def _estimate(value: tuple[float, float, float]) -> str:
    middle, low, high = value
    return f"{middle:.3f}" + (f" ({low:.3f} to {high:.3f})" if np.isfinite(low + high) else "")


def learned_findings(record: LearnRecord) -> list[str]:
    """The result as sentences."""
    measures = record.scores.get("model", {})
    tested = record.rows.get("test", 0)
    if not measures:
        return [f"Not measured: no two of the {tested:,} test rows are alike; a larger --test has more."]
    main = next(iter(measures))
    of = " of classes not seen in training" if record.classes.get("test") else ""
    where = f"on {tested:,} test rows{of}"
    value, low, high = measures[main]
    doubt = f" (95 % CI {low:.3f}-{high:.3f})" if np.isfinite(low + high) else ""
    sentences = [f"{metric_name(main)} {value:.3f}{doubt} {where}."]
    others = {one_line(name, 60): values[main][0] for name, values in record.scores.items() if name != "model"}
    named = ", ".join(f"{name} {other:.3f}" for name, other in others.items())
    sentences += [f"Baseline{'s' if len(others) > 1 else ''}: {named}."] if others else []
    if max(others.values(), default=float("-inf")) >= value:
        sentences.append("Training did not improve on the vectors of the encoders. More rows or more classes may help.")
    return sentences


def write_learned_page(record: LearnRecord, path: str | os.PathLike[str]) -> Path:
    """Write the page of ``record`` to ``path``, whole or not at all."""
    page = rendered(
        "learn.html",
        record,
        same=one_line(record.same, 60),
        findings=[clean(sentence) for sentence in learned_findings(record)],
        tiles=[(metric_name(name), number(value[0], 3)) for name, value in record.scores.get("model", {}).items()],
        table=score_rows(record),
        queries=[
            (one_line(q.title, 60), cells(q.row, 300), one_line(q.label, 60), one_line(q.id, 40), _hits(q.hits))
            for q in record.queries
        ],
        apart=[_hits(pair) for pair in record.apart],
        pictures=list(_pictures(record)),
        columns=[[shown(part) if part else "" for part in column] for column in record.columns],
    )
    return replace_text(path, page)


def _hits(hits: Sequence[ShownHit]) -> list[tuple[Any, ...]]:
    marks = {True: "right", False: "wrong", None: ""}
    return [
        (cells(hit.row, 120), one_line(hit.label, 60), f"{hit.score:.3f}", marks[hit.right], one_line(hit.id, 40))
        for hit in hits
    ]


def _pictures(record: LearnRecord) -> Iterator[Picture]:
    yield from learning(
        record.history,
        "The loss of training rows, and what is missing to a perfect retrieval of the rows held out: training "
        "stops when that no longer falls, and the best epoch stays.",
    )
    if len(record.embedding) > 1:
        means = "Two dimensions show a part of what the vectors tell."
        yield map_of(record.embedding, record.embedding_labels, "the test rows", "test row", record.same, means)
