"""One self-contained HTML page of a fit: nothing is loaded, no script runs, foreign text is escaped."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vicinal.core import replace_text
from vicinal.report import figures, maps
from vicinal.report.panels import panel_view
from vicinal.report.records import FitRecord
from vicinal.report.tables import (
    HIGHER_IS_BETTER,
    findings,
    fit_table,
    limits,
    main_metric,
    method_name,
)
from vicinal.report.text import clean, duration, metric_name, number, one_line
from vicinal.report.theme import sample_note, to_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Picture:
    """A figure in a page: what to see in it (``caption``), and what it shows in words (``alt``)."""

    title: str
    svg: Markup
    alt: str
    caption: str
    wide: bool = False


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The templates of this package; everything that is put into them is escaped."""
    made = Environment(
        loader=PackageLoader("vicinal.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) or not isinstance(value, str) else clean(value),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["number"] = number
    made.filters["minus"] = lambda text: str(text).replace("-", "\N{MINUS SIGN}")
    made.filters["duration"] = duration
    made.filters["shown"] = shown
    return made


def shown(value: object, limit: int = 300) -> str:
    """A setting as text of at most ``limit`` characters."""
    if value is None or value == "":
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return one_line(", ".join(map(str, value)), limit) or "none"
    return one_line(value, limit)


def picture(
    draw: "Callable[[], Figure]", key: str, title: str, alt: str, caption: str, *, wide: bool = False
) -> Picture:
    """Draw a figure for a page; ``key`` tells its ids from those of the others."""
    return Picture(clean(title), Markup(to_svg(draw(), key)), clean(alt), clean(caption), wide)  # noqa: S704


def write_page(record: FitRecord, path: str | os.PathLike[str]) -> Path:
    """Write the page of ``record`` to ``path``, aside first and then renamed, so that it is never half there.

    Returns:
        The path.
    """
    return replace_text(path, page_html(record))


def page_html(record: FitRecord) -> str:
    """The page of ``record`` as text."""
    return (
        environment()
        .get_template("fit.html")
        .render(
            title=one_line(record.name, 80),
            record=record,
            target=one_line(record.target_name, 60),
            findings=findings(record),
            tiles=_tiles(record),
            table=fit_table(record),
            bars=_bars(record),
            panels=[panel_view(panel) for panel in record.panels],
            pictures=pictures(record),
            columns=[[shown(part) if part else "" for part in _column(c)] for c in record.columns],
            dropped=[(one_line(reason, 200), int(count)) for reason, count in record.dropped.items()],
            duplicates=clean(record.duplicates),
            limits=limits(record),
            notes=[clean(note) for note in record.notes],
            settings=[(one_line(key, 60), shown(value)) for key, value in record.settings.items()],
            versions=[(one_line(key, 60), shown(value)) for key, value in record.versions.items()],
        )
    )


def _column(column: Any) -> tuple[str, str, str, str]:
    return column.name, column.kind or "left out", column.encoder, column.reason


def _tiles(record: FitRecord) -> list[tuple[str, str]]:
    """The model's own scores, as name and value."""
    return [(metric_name(metric), number(value, 3)) for metric, value in record.scores["model"].items()]


def _bars(record: FitRecord) -> dict[str, Any] | None:
    """Lengths of the bars of the main metric, from 0 to 100; None if it has no scale that starts at 0."""
    metric = main_metric(record)
    values = {method: scores[metric] for method, scores in record.scores.items() if metric in scores}
    if metric not in HIGHER_IS_BETTER or not values or min(values.values()) < 0 or max(values.values()) <= 0:
        return None
    top = max(values.values())
    ordered = sorted(values, key=lambda method: method != "model")
    rows = [(method_name(m, record), round(100 * values[m] / top, 2), number(values[m]), m == "model") for m in ordered]
    better = "longer is better" if HIGHER_IS_BETTER[metric] else "shorter is better"
    return {"name": metric_name(metric), "better": better, "rows": rows}


def pictures(record: FitRecord) -> list[Picture]:
    """All figures that the record has something to show for."""
    target = record.target_name
    drawn = []
    if any(len(values) for values in record.history.values()):
        drawn.append(
            picture(
                lambda: figures.learning_curves(record.history),
                "curves",
                "Learning curves",
                "Lines of the error over the epochs, for training and validation rows.",
                "Error after each epoch. Training stops when the validation error no longer falls, and the best epoch "
                "is kept; a validation line that rises while training falls is overfitting.",
            )
        )
    drawn += _held_out(record)
    if len(record.embedding) > 1:
        flat = record.embedding.shape[1] == 1
        drawn.append(
            picture(
                lambda: maps.embedding_map(record.embedding, record.embedding_labels, target),
                "map",
                "Map of the embedding",
                f"Rows of the bank as points on two principal components, colored by {one_line(target)}.",
                f"Each point is a row of the bank, colored by {one_line(target)}. "
                + ("The embedding has one dimension; up and down mean nothing. " if flat else "")
                + "Where colors change smoothly, near rows have near labels: what the head relies on."
                + sample_note(len(record.embedding)),
            )
        )
    if record.mask_curves is not None and len(record.mask_curves[1]):
        grid, curves = record.mask_curves
        drawn.append(
            picture(
                lambda: maps.mask_curves(grid, curves),
                "mask",
                "The mask that was learned",
                "Curves from 0 to 1 of what the mask lets through over the nearness of a neighbor.",
                "How much of a neighbor's weight passes, by how near it is among all rows of the bank. At 0 a row is "
                "rejected outright.",
            )
        )
    return drawn


def _held_out(record: FitRecord) -> list[Picture]:
    """The two figures of the test rows."""
    guess, truth, target = record.predicted, record.truth, record.target_name
    if not len(truth):
        return []
    note = sample_note(len(truth))
    if record.task == "classification":
        return [
            picture(
                lambda: figures.confusion_matrix(guess, truth, record.classes),
                "confusion",
                "Confusion matrix",
                "Counts of test rows by true class, in rows, and predicted class, in columns.",
                "Test rows by true and predicted class, shaded by the share of the true class. Off the diagonal are "
                "the mistakes.",
            ),
            picture(
                lambda: figures.reliability(guess, truth, record.classes),
                "reliability",
                "Reliability",
                "Share of right predictions over the probability of the predicted class, with the diagonal.",
                "Test rows grouped by how sure the model was. On the diagonal it is right as often as it says; below "
                "it is too sure.",
            ),
        ]
    return [
        picture(
            lambda: figures.predicted_vs_true(guess, truth, target),
            "scatter",
            "Predicted and true",
            f"Scatter of predicted over true {one_line(target)} for the test rows, with the diagonal.",
            "Each point is a test row; on the line the prediction is right. A cloud flatter than the line means that "
            f"extremes are pulled to the middle.{note}",
        ),
        picture(
            lambda: figures.residuals(guess, truth, target),
            "residuals",
            "Residuals",
            "Scatter of prediction errors over predictions, with a running median and a histogram.",
            "Error of each test row, and how the errors are spread. The blue line is their running median: where it "
            f"leaves zero, the model is off in one direction.{note}",
        ),
    ]
