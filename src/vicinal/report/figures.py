"""Pictures of one fit: how it learned, and how its test predictions compare with the truth."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vicinal.report.text import compact, metric_name, number, one_line, percent
from vicinal.report.theme import ACCENT, CLASSES, INK, MUTED, PAPER, SOFT, WARM, blank, sample, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINT = "#3a92b3"
_STAGE = re.compile(r"^(training|train|validation|valid|val)[ _/]*", re.IGNORECASE)
_HIGHER = ("r2", "accuracy", "acc", "f1", "auc")


def learning_curves(history: Mapping[str, Sequence[float]]) -> "Figure":
    """One panel a measure, with a line for training and one for validation, and the best validation epoch marked.

    Args:
        history: name -> one value an epoch; "train_mse" and "validation_mse" share the panel "mse". Lines of one
            epoch are drawn as a point; values that are not finite are left out.

    Raises:
        ValueError: if there is not one finite value.
    """
    panels: dict[str, dict[str, NDArray[Any]]] = {}
    for name, values in history.items():
        line = np.asarray(values, dtype=float)
        if np.isfinite(line).any():
            panels.setdefault(_STAGE.sub("", name) or "error", {})[name] = line
    if not panels:
        raise ValueError("history: expected at least one finite value, got none")
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(4.6, 3.3 if len(panels) == 1 else 1.9 * len(panels)), layout="constrained")
        grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False)
        for axes, (measure, lines) in zip(grid[:, 0], panels.items(), strict=True):
            _curves(axes, measure, lines)
        grid[-1, 0].set_xlabel("epoch")
        grid[-1, 0].xaxis.get_major_locator().set_params(integer=True)
        longest = max(len(line) for lines in panels.values() for line in lines.values())
        if longest == 1:
            grid[-1, 0].set(xlim=(0.5, 1.5), xticks=[1])
    return figure


def _curves(axes: "Axes", measure: str, lines: Mapping[str, NDArray[Any]]) -> None:
    """Draw ``lines`` of one measure."""
    extra = iter(CLASSES[2:] * len(lines))
    for name, line in lines.items():
        stage = _STAGE.match(name)
        held_out = stage is not None and stage.group(1).lower().startswith("val")
        color = ACCENT if held_out else MUTED if stage else next(extra)
        epochs = np.arange(1, len(line) + 1)
        label = {True: "validation", False: "training" if stage else one_line(name, 24)}[held_out]
        axes.plot(epochs, line, color=color, label=label, marker="o" if len(line) == 1 else "", linewidth=1.6)
        if held_out:
            best = int(np.nanargmax(line) if measure.lower() in _HIGHER else np.nanargmin(line))
            axes.plot(epochs[best], line[best], "o", color=WARM, markersize=5, label=f"best: epoch {best + 1}")
    finite = np.concatenate([line[np.isfinite(line)] for line in lines.values()])
    if finite.min() > 0 and finite.max() > 30 * finite.min():
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: number(value, 3))
        axes.yaxis.set_minor_formatter(lambda *_: "")
    axes.set_ylabel(metric_name(measure))
    axes.legend(loc="best", fontsize=8)


def finite_rows(*arrays: ArrayLike) -> list[NDArray[Any]]:
    """``arrays`` ``[n]`` as floats without the rows where one of them is not finite."""
    columns = [np.asarray(array, dtype=float) for array in arrays]
    keep = np.logical_and.reduce([np.isfinite(column) for column in columns])
    return [column[keep] for column in columns]


def predicted_vs_true(predicted: ArrayLike, truth: ArrayLike, target_name: str = "target") -> "Figure":
    """Test predictions ``[n]`` over the truth ``[n]``, with the diagonal on which they would agree."""
    guess, true = finite_rows(predicted, truth)
    shown = sample(len(guess))
    with style():
        figure, axes = blank(4.2, 3.9)
        values = np.concatenate([guess, true]) if len(guess) else np.array([0.0, 1.0])
        low, high = values.min(), values.max()
        pad = 0.04 * (high - low) or 0.5
        ends = (low - pad, high + pad)
        axes.plot(ends, ends, color=WARM, linewidth=1.2)
        _points(axes, true[shown], guess[shown])
        axes.set(xlim=ends, ylim=ends, xlabel=f"true {one_line(target_name, 30)}", ylabel="predicted")
        axes.set_aspect("equal")
        axes.locator_params(nbins=6)
        _compact_ticks(axes)
    return figure


def residuals(predicted: ArrayLike, truth: ArrayLike, target_name: str = "target") -> "Figure":
    """Error of each test prediction over the prediction, beside the distribution of the errors."""
    from matplotlib.figure import Figure

    guess, true = finite_rows(predicted, truth)
    error = guess - true
    shown = sample(len(guess))
    with style():
        figure = Figure(figsize=(4.6, 3.9), layout="constrained")
        axes, side = figure.subplots(1, 2, sharey=True, width_ratios=(4, 1))
        _points(axes, guess[shown], error[shown])
        axes.set(xlabel=f"predicted {one_line(target_name, 30)}", ylabel="predicted - true")
        middle = _running_median(guess, error)
        axes.plot(*middle, color=ACCENT, linewidth=2)
        if len(error):
            side.hist(error, bins=min(30, max(5, len(error) // 10)), orientation="horizontal", color=SOFT)
            side.axhline(float(np.median(error)), color=ACCENT, linewidth=2)
        for part in (axes, side):
            part.axhline(0, color=WARM, linewidth=1.2)
            part.locator_params(nbins=5)
            _compact_ticks(part)
        side.set(xlabel="rows")
        side.xaxis.set_ticks([])
        side.spines["left"].set_visible(False)
    return figure


def _compact_ticks(axes: "Axes") -> None:
    """Large numbers as 20k or 1.5M."""
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: compact(value))


def _points(axes: "Axes", x: NDArray[Any], y: NDArray[Any]) -> None:
    """A cloud of points, the fainter the more there are; as one image, so that the page stays small."""
    many = len(x) > 1500
    axes.scatter(x, y, s=7 if many else 14, alpha=0.32 if many else 0.6, color=POINT, linewidth=0, rasterized=True)


def _running_median(x: NDArray[Any], y: NDArray[Any], bins: int = 12) -> tuple[NDArray[Any], NDArray[Any]]:
    """Medians of ``x`` and ``y`` in groups of equal size along ``x``; nothing for fewer than 40 points."""
    if len(x) < 40:
        return np.zeros(0), np.zeros(0)
    groups = np.array_split(np.argsort(x, kind="stable"), min(bins, len(x) // 10))
    return np.array([np.median(x[g]) for g in groups]), np.array([np.median(y[g]) for g in groups])


def confusion_matrix(
    probabilities: NDArray[Any], truth: Sequence[str] | NDArray[Any], classes: Sequence[str], limit: int = 12
) -> "Figure":
    """Counts of true class (rows) by predicted class (columns), shaded by the share of the true class.

    Args:
        probabilities: ``[n, classes]``.
        truth: names of the true classes ``[n]``.
        classes: names in the order of the columns.
        limit: of more classes only the most frequent are shown, the rest as one.
    """
    names, counts = _count_pairs(np.asarray(probabilities), truth, classes, limit)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    size = len(names)
    with style():
        side = min(6.0, 2.6 + 0.28 * size)
        figure, axes = blank(side + 0.6, side)
        axes.grid(visible=False)
        for row in range(size):
            for column in range(size):
                share = float(shares[row, column])
                color = ACCENT if row == column else WARM
                axes.barh(row, 0.96, left=column - 0.48, height=0.96, color=color, alpha=0.04 + 0.8 * share)
                if counts[row, column]:
                    ink = PAPER if share > 0.55 else INK
                    text = f"{counts[row, column]:,}"
                    axes.text(column, row, text, ha="center", va="center", color=ink, fontsize=9 if size < 8 else 7)
        axes.set_xticks(range(size), names, rotation=0 if size < 5 else 45, ha="center" if size < 5 else "right")
        axes.set_yticks(range(size), names)
        axes.set(xlim=(-0.5, size - 0.5), ylim=(size - 0.5, -0.5), xlabel="predicted", ylabel="true")
        axes.spines[:].set_visible(False)
    return figure


def _count_pairs(
    probabilities: NDArray[Any], truth: Sequence[str] | NDArray[Any], classes: Sequence[str], limit: int
) -> tuple[list[str], NDArray[np.int64]]:
    """Shown names, and the matrix of counts over them."""
    position = {name: place for place, name in enumerate(classes)}
    true = np.array([position.get(str(name), len(classes)) for name in truth], dtype=int)
    guess = probabilities.argmax(axis=1) if len(probabilities) else np.zeros(0, dtype=int)
    frequent = np.argsort(-np.bincount(true, minlength=len(classes) + 1)[: len(classes)], kind="stable")
    kept = sorted(frequent[:limit].tolist())
    place = np.full(len(classes) + 1, len(kept))
    place[kept] = np.arange(len(kept))
    counts = np.zeros((len(kept) + 1, len(kept) + 1), dtype=np.int64)
    np.add.at(counts, (place[true], place[guess]), 1)
    names = [one_line(classes[k], 14) for k in kept]
    if counts[-1].any() or counts[:, -1].any():
        return [*names, "(other)"], counts
    return names, counts[:-1, :-1]


def reliability(
    probabilities: NDArray[Any], truth: Sequence[str] | NDArray[Any], classes: Sequence[str], bins: int = 10
) -> "Figure":
    """How often predictions of a given confidence are right, over that confidence; bars below count the rows.

    Args:
        probabilities: ``[n, classes]``.
        truth: names of the true classes ``[n]``.
        classes: names in the order of the columns.
        bins: of equal width from 0 to 1.
    """
    from matplotlib.figure import Figure

    probabilities = np.asarray(probabilities, dtype=float).reshape(len(truth), len(classes))
    sure = probabilities.max(axis=1) if len(probabilities) else np.zeros(0)
    right = np.array([str(classes[k]) for k in probabilities.argmax(axis=1)] if len(sure) else []) == np.array(
        [str(name) for name in truth]
    )
    place = np.minimum((sure * bins).astype(int), bins - 1)
    counts = np.bincount(place, minlength=bins)
    used = counts > 0
    mean_sure = np.bincount(place, sure, bins)[used] / counts[used]
    mean_right = np.bincount(place, right, bins)[used] / counts[used]
    with style():
        figure = Figure(figsize=(4.2, 3.9), layout="constrained")
        axes, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
        axes.plot((0, 1), (0, 1), color=WARM, linewidth=1.2)
        axes.plot(mean_sure, mean_right, color=ACCENT, linewidth=1.6, marker="o", markersize=4)
        axes.set(xlim=(0, 1.01), ylim=(-0.02, 1.02), ylabel="share that is right")
        below.bar((np.arange(bins) + 0.5) / bins, counts, width=0.9 / bins, color=SOFT)
        below.set(xlabel="probability of the predicted class", ylabel="rows")
        below.locator_params(axis="y", nbins=3)
        for part in (axes, below):
            part.xaxis.set_major_formatter(lambda value, _: percent(value))
        axes.yaxis.set_major_formatter(lambda value, _: percent(value))
    return figure
