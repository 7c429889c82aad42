"""One self-contained HTML page of a fit: nothing is loaded, foreign text is escaped, one script searches its rows.

Its neighbor panels show cells as text, image or sound, weights, and contributions whose shown values add up.
"""

import base64
import hashlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from markupsafe import Markup

from vicinal.core.files import replace_text
from vicinal.encoders.images import thumbnail
from vicinal.report import figures
from vicinal.report.audit_records import AuditRecord
from vicinal.report.comparables import grid_view, reasons, rest_sentences
from vicinal.report.records import Cell, Example, FitRecord, Neighbor, NeighborPanel
from vicinal.report.tables import (
    CLASS_HEADINGS,
    class_rows,
    findings,
    fit_table,
    importance_rows,
    importance_sentence,
    limits,
    verdict_sentence,
)
from vicinal.report.text import (
    clean,
    decimals_for,
    fixed,
    label_text,
    number,
    one_line,
    percent,
    plus,
    round_to_sum,
)
from vicinal.report.theme import Picture, picture, rendered, sample_note

_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"fLaC", "audio/flac"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
)
_LARGEST = {"image": 60_000, "audio": 600_000}
_CELLS = 12
"""Cells of a row that are shown, at most."""

_TITLE = 2000
_TUNED = ("chosen by cross-validation.", "chosen on the validation rows.")
"""How notes on the settings of other methods end; these are shown last."""


def write_page(record: FitRecord, path: str | os.PathLike[str]) -> Path:
    """Write the page of ``record`` to ``path``, whole or not at all, and return the path."""
    return replace_text(path, page_html(record))


def page_html(record: FitRecord) -> str:
    """The page of ``record`` as HTML text."""
    held_out = _held_out(record)
    script = (resources.files("vicinal.report") / "templates" / "find.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return rendered(
        "fit.html",
        record,
        verdict=verdict_sentence(record),
        examples=[_example_row(example) for example in record.examples],
        intervals=any(example.interval is not None for example in record.examples),
        script=Markup(script),  # noqa: S704  this package's
        script_hash=f"sha256-{digest}",
        findings=findings(record),
        table=fit_table(record),
        class_headings=CLASS_HEADINGS,
        by_class=class_rows(record.by_class),
        panels=[panel_view(panel) for panel in record.panels],
        against=any(one.weight < 0 for panel in record.panels for one in panel.neighbors),
        importance=[_importance(record)] if record.importance else [],
        held_out=held_out,
        pictures=[*_pictures(record), *held_out[1:]],
        error="squared error" if record.task == "regression" else "Hamming loss" if record.several else "error rate",
        duplicates=clean(record.duplicates),
        limits=limits(record),
        notes=[clean(note) for note in record.notes if not note.endswith(_TUNED)],
        tuned=[clean(note) for note in record.notes if note.endswith(_TUNED)],
    )


def _example_row(example: Example) -> tuple[str, str, str, str, str, bool]:
    """A row of the search: id, cells, truth, prediction, one of F1, probability, interval, error, and if it is bad."""
    cells = one_line(" · ".join(f"{name} {text}" for name, text in example.cells.items() if text), 240)
    target, guess = label_text(example.target), label_text(example.prediction)
    said, bad = "", False
    if example.f1 is not None:
        said, bad = percent(example.f1), example.f1 < 1
    elif example.probability is not None:
        said, bad = percent(example.probability), target != guess
    elif example.interval is not None:
        low, high = example.interval
        said, bad = f"{number(low, 3)} to {number(high, 3)}", not low <= float(example.target) <= high
    elif not isinstance(example.target, str):
        said = number(float(example.prediction) - example.target, 3)
    return one_line(example.id, 40), cells, target, guess, said, bad


def _pictures(record: FitRecord) -> Iterator[Picture]:
    """The figures of the training and of the bank for which the record has data."""
    target = record.target_name
    yield from learning(
        record.history,
        "Error after each epoch. Training stops when the validation error no longer falls, and the best epoch "
        "is kept; a validation line that rises while training falls is overfitting.",
    )
    if len(record.embedding) > 1:
        flat = "The embedding has one dimension; up and down mean nothing. " if record.embedding.shape[1] == 1 else ""
        means = "Where colors change smoothly, near rows have near labels: what the head relies on."
        yield map_of(
            record.embedding, record.embedding_labels, "the embedding", "row of the bank", target, flat + means
        )
    if record.mask_curves is not None and len(record.mask_curves[1]):
        grid, curves = record.mask_curves
        yield picture(
            figures.mask_curves(grid, curves),
            "mask",
            "The mask that was learned",
            "Curves from 0 to 1 of what the mask lets through over the nearness of a neighbor.",
            "How much of a neighbor's weight passes, by how near it is among all rows of the bank. At 0 a row is "
            "rejected outright.",
        )


def learning(history: Mapping[str, Sequence[float]], caption: str) -> Iterator[Picture]:
    """Curves of the training, if there was one."""
    if any(len(values) for values in history.values()):
        alt = "Lines of the error over the epochs, for training and validation rows."
        yield picture(figures.learning_curves(history), "curves", "Learning curves", alt, caption)


def map_of(vectors: Any, labels: Any, what: str, point: str, color: str, caption: str) -> Picture:
    """The map of ``vectors`` ``[n, d]`` of which each is a ``point``, colored by their ``labels``."""
    return picture(
        figures.embedding_map(vectors, labels, color),
        "map",
        f"Map of {what}",
        f"Points on two principal components, each a {point}, colored by {one_line(color)}.",
        f"Each point is a {point}, colored by {one_line(color)}. {caption}{sample_note(len(vectors))}",
    )


def _importance(record: FitRecord) -> Picture:
    """The figure of the columns."""
    return picture(
        figures.column_shares(importance_rows(record.importance)),
        "importance",
        "Importance of the columns",
        "Bars of how much each column matters, the largest on top.",
        importance_sentence(record),
    )


def _held_out(record: FitRecord) -> list[Picture]:
    """The two figures of the test rows."""
    guess, truth, target = record.predicted, record.truth, record.target_name
    if not len(truth):
        return []
    note = sample_note(len(truth))
    if record.several:
        return [several_reliability(guess, truth)]
    if record.task == "classification":
        return [
            picture(
                figures.confusion_matrix(guess, truth, record.classes),
                "confusion",
                "Confusion matrix",
                "Counts of test rows by true class, in rows, and predicted class, in columns.",
                "Test rows by true and predicted class, shaded by the share of the true class. Off the diagonal are "
                "the mistakes.",
            ),
            sureness(record, "Test"),
        ]
    return [
        scatter(record, "test"),
        picture(
            figures.residuals(guess, truth, target),
            "residuals",
            "Residuals",
            "Scatter of prediction errors over predictions, with a running median and a histogram.",
            "Error of each test row, and how the errors are spread. The blue line is their running median: where it "
            f"leaves zero, the model is off in one direction.{note}",
        ),
    ]


def scatter(record: FitRecord | AuditRecord, use: str) -> Picture:
    """Predicted over true numbers of the rows that are measured on."""
    return picture(
        figures.predicted_vs_true(record.predicted, record.truth, record.target_name),
        "scatter",
        "Predicted and true",
        f"Scatter of predicted over true {one_line(record.target_name)} for the {use} rows, with the diagonal.",
        f"Each point is a {use} row; on the line the prediction is right. A cloud flatter than the line means that "
        f"extremes are pulled to the middle.{sample_note(len(record.truth))}",
    )


def sureness(record: FitRecord | AuditRecord, use: str) -> Picture:
    """Reliability of the probabilities of the rows that are measured on."""
    return picture(
        figures.reliability(record.predicted, record.truth, record.classes),
        "reliability",
        "Reliability",
        "Share of right predictions over the probability of the predicted class, with the diagonal.",
        f"{use} rows grouped by how sure the model was. On the diagonal it is right as often as it says; below it is "
        "too sure.",
    )


def several_reliability(guess: Any, truth: Any) -> Picture:
    """Reliability for rows with several classes: how often a class is present, by its predicted probability."""
    chances = guess.reshape(-1, 1)
    has, names = ["has" if one else "" for one in truth.reshape(-1)], ("share that has it", "probability", "pairs")
    return picture(
        figures.reliability(chances, has, ["has"], axes_names=names),
        "reliability",
        "Reliability",
        "Share of rows that have a class over the probability that it was given, with the diagonal.",
        "All pairs of a test row and a class, grouped by the probability that the class was given. On the diagonal a "
        "class is there as often as the model says; below it the model is too sure.",
    )


@dataclass(frozen=True)
class CellView:
    """One cell: ``kind`` is "text", "image" or "audio"; ``source`` is a data URI, ``full`` a text that was clipped."""

    column: str
    kind: str
    text: str
    full: str = ""
    source: str = ""


@dataclass(frozen=True)
class NeighborView:
    """One line of a panel.

    ``bar`` is the length of its bar from 0 to 100, ``adjusted`` the adjusted label of a comparable row, and ``by`` the
    columns that add most to that, or to the trend.
    """

    cells: list[CellView]
    label: str
    weight: str
    bar: float
    contribution: str
    id: str = ""
    adjusted: str = ""
    by: str = ""


def cell_view(column: str, cell: Cell, limit: int) -> CellView:
    """``cell`` for a page: bytes of a known format as image or sound, all else as at most ``limit`` characters."""
    name = one_line(column, 40)
    if isinstance(cell, bytes):
        kind, source = _media(cell)
        return CellView(
            name, kind, f"({len(cell):,} bytes that cannot be shown)" if kind == "text" else name, "", source
        )
    text = clean(cell).strip()
    if not text:
        return CellView(name, "text", "(empty)")
    short = text if len(text) <= limit else text[: limit - 1].rstrip() + "…"
    full = "" if short == text else text if len(text) <= _TITLE else text[: _TITLE - 1] + "…"
    return CellView(name, "text", short, full)


def media_address(content: bytes) -> str:
    """The data URI of an image or a sound of a known format; "" for anything else."""
    mime = next((mime for start, mime in _SIGNATURES if content.startswith(start)), "")
    if content[:4] == b"RIFF":
        mime = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}.get(content[8:12], "")
    return f"data:{mime};base64,{base64.b64encode(content).decode()}" if mime else ""


def _media(content: bytes) -> tuple[str, str]:
    """Kind and data URI of ``content``; ("text", "") for unknown formats, or if it is too large even when shrunk."""
    address = media_address(content)
    kind = address[5:].partition("/")[0]
    if kind == "image" and len(content) > _LARGEST["image"]:
        content = thumbnail(content, 256) or b""
        address = media_address(content)
    return (kind, address) if address and len(content) <= _LARGEST[kind] else ("text", "")


def cells(row: Mapping[str, Cell], limit: int) -> list[CellView]:
    """``row`` as it is shown, media first; of a wide table the first 12 cells, and the number of others."""
    views = [cell_view(column, cell, limit) for column, cell in row.items()]
    views = sorted(views, key=lambda view: view.kind == "text")
    rest = views[_CELLS:]
    if len(rest) < 2:
        return views
    full = one_line(", ".join(f"{view.column} {view.text}" for view in rest), _TITLE)
    return [*views[:_CELLS], CellView(f"and {len(rest)} more columns", "text", "…", full)]


_SCALES = {"none": "", "log": "log of ", "rank": "normal score of ", "link": "h of "}


def panel_view(panel: NeighborPanel) -> SimpleNamespace:
    """``panel`` as the template shows it, all in text; ``right`` is None where it is not known.

    Contributions are rounded together, so that the shown column adds up to the shown sum; rounding moves none of them
    by more than one unit of the last digit.
    """
    listed, rows = panel.neighbors, [panel.query, *(one.row for one in panel.neighbors)]
    numeric = not isinstance(panel.prediction, str) and panel.probability is None
    media = any(isinstance(cell, bytes) for row in rows for cell in row.values())
    moved = any(one.adjusted is not None for one in listed)
    lines, trend, other, total = (
        _lines(panel, listed, numeric=numeric) if listed or panel.trend else ([], None, None, "")
    )
    return SimpleNamespace(
        title=one_line(panel.title, 60),
        id="" if panel.id in panel.query.values() else one_line(panel.id, 40),
        cells=cells(panel.query, 400),
        prediction=total if numeric and total and panel.scaled is None else label_text(panel.said or panel.prediction),
        target="" if panel.target is None else label_text(panel.target),
        error=_error(panel) if numeric else "",
        right=None if numeric or panel.target is None else (panel.said or str(panel.prediction)) == str(panel.target),
        neighbors=lines,
        trend=trend,
        other=other,
        grid=grid_view(panel) if moved or (listed and len(panel.query) > 2 and not media) else None,
        moved=moved,
        rest=" ".join(rest_sentences(panel)),
        total=total,
        total_name=_total_of_number(panel) if numeric else _total_of_class(panel),
        adds=f"{_SCALES[panel.scale]}{'label' if panel.trend is None else 'adjusted label'}" if numeric else "",
        other_is_sum_of=f"all {panel.other_rows:,} other rows" if panel.other_rows else "all other rows",
    )


def _total_of_number(panel: NeighborPanel) -> str:
    """What the contributions to a number sum to, which a constant may then have multiplied."""
    times = 1.0 if panel.scale != "log" or panel.scaled is None else float(panel.prediction) / math.exp(panel.scaled)
    return f"{_SCALES[panel.scale]}the prediction" + (f" / {times:.4g}" if abs(times - 1) > 1e-4 else "")


def _total_of_class(panel: NeighborPanel) -> str:
    """What the contributions to a class sum to."""
    name = label_text(panel.prediction)
    if panel.scale not in ("softmax", "power") or panel.probability is None:
        return f"probability of {name}"
    return f"score of {name}, which makes its probability {percent(panel.probability)}"


def _error(panel: NeighborPanel) -> str:
    """Prediction minus truth, with its sign."""
    if panel.target is None or isinstance(panel.target, str):
        return ""
    error = float(panel.prediction) - float(panel.target)
    return plus(fixed(error, decimals_for([float(panel.prediction), float(panel.target)])))


def _lines(
    panel: NeighborPanel, listed: Sequence[Neighbor], *, numeric: bool
) -> tuple[list[NeighborView], NeighborView | None, NeighborView | None, str]:
    """The lines of the neighbors, of the trend, of all other rows, and the sum."""
    trend, rest = panel.trend, panel.other_contribution or 0.0
    values = [neighbor.contribution for neighbor in listed]
    with_rest = panel.other_weight != 0 and panel.other_rows != 0
    summed = values + ([] if trend is None else [trend.contribution]) + ([rest] if with_rest else [])
    decimals = decimals_for([panel.total, *summed]) if numeric else 3
    shown = round_to_sum(summed, sum(summed), decimals)
    weights = [*(n.weight for n in listed), panel.other_weight, *([] if trend is None else [trend.weight])]
    heaviest = max(map(abs, weights)) or 1.0

    def bar(weight: float) -> float:
        return round(100 * abs(weight) / heaviest, 2)

    lines = [
        NeighborView(
            cells(neighbor.row, 120),
            label_text(neighbor.label),
            percent(neighbor.weight),
            bar(neighbor.weight),
            text,
            one_line(neighbor.id, 40),
            "" if neighbor.adjusted is None else label_text(neighbor.adjusted),
            reasons(neighbor.adjustments, panel.scale),
        )
        for neighbor, text in zip(listed, shown, strict=False)
    ]
    of_trend = other = None
    if trend is not None:
        known = percent(trend.weight), bar(trend.weight), shown[len(listed)]
        of_trend = NeighborView(
            [],
            number(trend.value if trend.label is None else trend.label),
            *known,
            by=reasons(trend.columns, panel.scale),
        )
    if with_rest:
        plain = numeric and panel.scaled is None and abs(panel.other_weight) > 1e-3
        mean = number(rest / panel.other_weight, 3) if plain else ""
        other = NeighborView([], mean, percent(panel.other_weight), bar(panel.other_weight), shown[-1])
    return lines, of_trend, other, fixed(sum(summed), decimals)
