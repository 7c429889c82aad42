"""Figures of one fit: learning curves, predictions against the truth, embedding, mask."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vicinal.report.text import compact, decimals_for, fixed, metric_name, number, one_line, percent
from vicinal.report.theme import ACCENT, CLASSES, INK, MUTED, PAPER, SOFT, WARM, blank, color_map, sample, sheet, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINT = "#3a92b3"
_DOTS: Any = {"alpha": 0.7, "linewidth": 0, "rasterized": True}
_STAGE = re.compile(r"^(training|train|validation|valid|val)[ _/]*", re.IGNORECASE)
_HIGHER = ("r2", "accuracy", "acc", "f1", "auc")


def learning_curves(history: Mapping[str, Sequence[float]], axes: "Axes | None" = None) -> "Figure":
    """One panel per measure, with lines for training and validation, and the best validation epoch marked.

    Args:
        history: name -> one value per epoch; "train_mse" and "validation_mse" share the panel "mse". A single epoch is
            drawn as a point; lines without a finite value are left out.
        axes: where to draw the only panel; None: a new figure, as for all others here.

    Raises:
        ValueError: if no value is finite.
    """
    panels: dict[str, dict[str, NDArray[Any]]] = {}
    for name, values in history.items():
        line = np.asarray(values, dtype=float)
        if np.isfinite(line).any():
            panels.setdefault(_STAGE.sub("", name) or "error", {})[name] = line
    if not panels:
        raise ValueError("history: expected at least one finite value, got none")
    with style():
        if axes is not None:
            figure, grid = blank(axes=axes)[0], np.array([axes])
        else:
            figure = sheet(4.6, 3.3 if len(panels) == 1 else 1.9 * len(panels))
            grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        for panel, (measure, lines) in zip(grid, panels.items(), strict=True):
            _curves(panel, measure, lines)
        grid[-1].set_xlabel("epoch")
        grid[-1].xaxis.get_major_locator().set_params(integer=True)
        longest = max(len(line) for lines in panels.values() for line in lines.values())
        if longest == 1:
            grid[-1].set(xlim=(0.5, 1.5), xticks=[1])
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
    """``arrays`` ``[n]`` as floats, without the rows in which any of them is not finite."""
    columns = [np.asarray(array, dtype=float) for array in arrays]
    keep = np.logical_and.reduce([np.isfinite(column) for column in columns])
    return [column[keep] for column in columns]


def predicted_vs_true(
    predicted: ArrayLike,
    truth: ArrayLike,
    target_name: str = "target",
    intervals: ArrayLike | None = None,
    axes: "Axes | None" = None,
) -> "Figure":
    """Scatter of predictions ``[n]`` over the truth ``[n]``, with the diagonal, and any intervals ``[n, 2]``."""
    bounds = [] if intervals is None else [*np.asarray(intervals, dtype=float).T]
    guess, true, *bounds = finite_rows(predicted, truth, *bounds)
    shown = sample(len(guess))
    with style():
        figure, axes = blank(4.2, 3.9, axes)
        if bounds:
            axes.vlines(
                true[shown], *(end[shown] for end in bounds), color=SOFT, linewidth=0.7, alpha=0.5, rasterized=True
            )
        values = np.concatenate([guess, true]) if len(guess) else np.array([0.0, 1.0])
        low, high = values.min(), values.max()
        pad = 0.04 * (high - low) or 0.5
        ends = (low - pad, high + pad)
        axes.plot(ends, ends, color=WARM, linewidth=1.2)
        _points(axes, true[shown], guess[shown])
        axes.set(xlim=ends, xlabel=f"true {one_line(target_name, 30)}")
        axes.set(ylabel="predicted, with intervals") if bounds else axes.set(
            ylabel="predicted", ylim=ends, aspect="equal"
        )
        axes.locator_params(nbins=6)
        _compact_ticks(axes)
    return figure


def residuals(predicted: ArrayLike, truth: ArrayLike, target_name: str = "target") -> "Figure":
    """Scatter of errors over predictions, with their running median and a histogram of the errors."""
    guess, true = finite_rows(predicted, truth)
    error = guess - true
    shown = sample(len(guess))
    with style():
        figure = sheet(4.6, 3.9)
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


def _running_median(x: NDArray[Any], y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Medians of ``x`` and ``y`` in groups of equal size along ``x``; nothing for fewer than 40 points."""
    if len(x) < 40:
        return np.zeros(0), np.zeros(0)
    groups = np.array_split(np.argsort(x, kind="stable"), min(12, len(x) // 10))
    return np.array([np.median(x[g]) for g in groups]), np.array([np.median(y[g]) for g in groups])


def confusion_matrix(
    probabilities: NDArray[Any],
    truth: Sequence[str] | NDArray[Any],
    classes: Sequence[str],
    axes: "Axes | None" = None,
) -> "Figure":
    """Counts of true class (rows) by predicted class (columns), shaded by the share of the true class.

    ``probabilities [n, classes]`` have the order of ``classes``; ``truth [n]`` holds names.
    """
    names, counts = _count_pairs(np.asarray(probabilities), truth, classes)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    size = len(names)
    with style():
        side = min(6.0, 2.6 + 0.28 * size)
        figure, axes = blank(side + 0.6, side, axes)
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
        flat = size < 5 and max(map(len, names)) < 10
        axes.set_xticks(range(size), names, rotation=0 if flat else 45, ha="center" if flat else "right")
        axes.set_yticks(range(size), names)
        axes.set(xlim=(-0.5, size - 0.5), ylim=(size - 0.5, -0.5), xlabel="predicted", ylabel="true")
        axes.spines[:].set_visible(False)
    return figure


def _count_pairs(
    probabilities: NDArray[Any], truth: Sequence[str] | NDArray[Any], classes: Sequence[str]
) -> tuple[list[str], NDArray[np.int64]]:
    """Names of the 12 most frequent classes and of the others, and the matrix of counts over them."""
    position = {name: place for place, name in enumerate(classes)}
    true = np.array([position.get(str(name), len(classes)) for name in truth], dtype=int)
    guess = probabilities.argmax(axis=1) if len(probabilities) else np.zeros(0, dtype=int)
    frequent = np.argsort(-np.bincount(true, minlength=len(classes) + 1)[: len(classes)], kind="stable")
    rows = sorted(frequent[:_CLASSES].tolist())
    place = np.full(len(classes) + 1, len(rows))
    place[rows] = np.arange(len(rows))
    counts = np.zeros((len(rows) + 1, len(rows) + 1), dtype=np.int64)
    np.add.at(counts, (place[true], place[guess]), 1)
    names = [one_line(classes[k], 20) for k in rows]
    if counts[-1].any() or counts[:, -1].any():
        return [*names, "(other)"], counts
    return names, counts[:-1, :-1]


_BINS, _CLASSES = 10, 12
"""Bins of equal width from 0 to 1, and classes that are shown apart."""

_FEWEST = 5
"""Fewest rows whose share of right answers is drawn, unless no bin has so many."""


def reliability(
    probabilities: NDArray[Any],
    truth: Sequence[str] | NDArray[Any],
    classes: Sequence[str],
    axes_names: tuple[str, str, str] = ("share that is right", "probability of the predicted class", "rows"),
    axes: "Axes | None" = None,
) -> "Figure":
    """Accuracy over the predicted probability; the bars below count the rows.

    Args:
        probabilities: ``[n, classes]``.
        truth: names of the true classes ``[n]``.
        classes: names in the order of the columns.
        axes_names: names of the vertical axis, the horizontal axis, and the counts.
        axes: where to draw the curve alone, without the counts.
    """
    probabilities = np.asarray(probabilities, dtype=float).reshape(len(truth), len(classes))
    sure = probabilities.max(axis=1) if len(probabilities) else np.zeros(0)
    right = np.array([str(classes[k]) for k in probabilities.argmax(axis=1)] if len(sure) else []) == np.array(
        [str(name) for name in truth]
    )
    place = np.minimum((sure * _BINS).astype(int), _BINS - 1)
    counts = np.bincount(place, minlength=_BINS)
    used = counts >= (_FEWEST if counts.max() >= _FEWEST else 1)  # of one row it is 0 or 1
    mean_sure = np.bincount(place, sure, _BINS)[used] / counts[used]
    mean_right = np.bincount(place, right, _BINS)[used] / counts[used]
    with style():
        if axes is not None:
            _shares(axes, mean_sure, mean_right, axes_names[1], axes_names[0])
            return blank(axes=axes)[0]
        figure = sheet(4.2, 3.9)
        axes, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
        _shares(axes, mean_sure, mean_right, "", axes_names[0])
        below.bar((np.arange(_BINS) + 0.5) / _BINS, counts, width=0.9 / _BINS, color=SOFT)
        below.set(xlabel=axes_names[1], ylabel=axes_names[2])
        below.locator_params(axis="y", nbins=3)
    return figure


def coverage(promised: ArrayLike, covered: ArrayLike, by_part: ArrayLike = (), axes: "Axes | None" = None) -> "Figure":
    """Share of rows within their intervals ``[n]`` over the share that was promised ``[n]``, with the diagonal.

    Thin lines: the shares of parts of the rows, ``by_part`` ``[n, parts]``.
    """
    with style():
        figure, axes = blank(4.2, 3.9, axes)
        if np.size(by_part):
            axes.plot(promised, np.asarray(by_part), color=MUTED, linewidth=0.9, alpha=0.7)
        _shares(axes, np.asarray(promised), np.asarray(covered), "coverage of the intervals", "share within them")
        if np.size(by_part):
            axes.set(xlim=(np.min(promised) - 0.03, 1.01), ylim=(max(0, min(0.4, np.min(by_part)) - 0.03), 1.01))
    return figure


def _shares(axes: "Axes", x: NDArray[Any], y: NDArray[Any], x_name: str, y_name: str) -> None:
    """A curve of shares over shares, with the diagonal."""
    axes.plot((0, 1), (0, 1), color=WARM, linewidth=1.2)
    axes.plot(x, y, color=ACCENT, linewidth=1.6, marker="o", markersize=4)
    axes.set(xlim=(0, 1.01), ylim=(-0.02, 1.02), xlabel=x_name, ylabel=y_name)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: percent(value))


def principal_plane(embedding: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The two directions of the embedding in which it varies most.

    Args:
        embedding: ``[n, d]``, finite.

    Returns:
        Coordinates ``[n, 2]`` and the shares of the variance ``[2]``. The second is 0 if there is none (d = 1, or all
        rows on a line). The largest coefficient of a direction is positive.

    >>> points, shares = principal_plane(np.array([[0.0], [2.0]]))
    >>> points.tolist(), shares.tolist()
    ([[-1.0, 0.0], [1.0, 0.0]], [1.0, 0.0])
    """
    points, shares = np.zeros((len(embedding), 2)), np.zeros(2)
    centered = np.asarray(embedding, dtype=float)
    if centered.size == 0:
        return points, shares
    centered = centered - centered.mean(axis=0)
    values, vectors = np.linalg.eigh(centered.T @ centered)
    total = values.clip(min=0).sum()
    if total <= 0:
        return points, shares
    for axis, column in enumerate(np.argsort(-values)[:2]):
        direction = vectors[:, column]
        direction = direction * np.sign(direction[np.abs(direction).argmax()])
        points[:, axis] = centered @ direction
        shares[axis] = max(0.0, values[column] / total)
    return points, shares


def embedding_map(
    embedding: NDArray[Any],
    labels: NDArray[Any] | Sequence[Any],
    target_name: str = "target",
    *,
    axes: "Axes | None" = None,
) -> "Figure":
    """The embedding ``[n, d]`` on its principal plane, colored by ``labels`` ``[n]`` (numbers, or names of classes).

    A one-dimensional embedding gets random heights, so that points do not overlap.
    """
    values = np.asarray(labels)
    embedding = np.asarray(embedding, dtype=float)
    embedding = embedding[:, None] if embedding.ndim == 1 else embedding
    keep = np.isfinite(embedding).all(axis=1)
    if values.dtype.kind in "fiub":
        keep &= np.isfinite(values.astype(float))
    finite = np.flatnonzero(keep)
    shown = finite[sample(len(finite))]
    points, shares = principal_plane(embedding[shown])
    flat = embedding.shape[1] == 1
    if flat:
        points[:, 1] = np.random.default_rng(0).uniform(-1, 1, len(points))
    with style():
        figure, axes = blank(5.4, 3.9, axes)
        if values.dtype.kind in "fiub":
            _by_number(figure, axes, points, values[shown].astype(float), target_name)
        else:
            _by_class(axes, points, [str(name) for name in values[shown]])
        axes.set_xlabel(f"1st component, {percent(shares[0])} of the variance")
        axes.set_ylabel("(no meaning)" if flat else f"2nd component, {percent(shares[1])}")
        axes.set_xticklabels([])
        axes.set_yticklabels([])
        axes.margins(0.04)
    return figure


def most_frequent(classes: Sequence[str], labels: NDArray[Any]) -> NDArray[Any]:
    """The class of each bank row ``[n]``, for figures; of several, the most frequent in the bank; "" if it has none."""
    if labels.ndim == 1:
        return np.array([classes[int(place)] for place in labels])
    order = (labels * labels.sum(0)).argmax(1)
    return np.array([classes[place] if row.any() else "" for place, row in zip(order, labels, strict=True)])


def _by_number(figure: "Figure", axes: "Axes", points: NDArray[Any], values: NDArray[Any], target_name: str) -> None:
    """Points colored by ``values``, with a scale from the 2nd to the 98th percentile."""
    low, high = np.percentile(values, (2, 98)) if len(values) else (0.0, 1.0)
    many = len(values) > 1500
    scale: dict[str, Any] = {"cmap": color_map(), "vmin": low, "vmax": high if high > low else low + 1}
    drawn = axes.scatter(points[:, 0], points[:, 1], c=values, s=8 if many else 16, **scale, **_DOTS)
    bar = figure.colorbar(drawn, ax=axes, label=one_line(target_name, 30), aspect=28, pad=0.02, extend="both")
    bar.set_alpha(1)
    bar.ax.yaxis.set_major_formatter(lambda value, _: compact(value))
    bar.ax.spines[:].set_visible(False)


def _by_class(axes: "Axes", points: NDArray[Any], names: list[str]) -> None:
    """Points colored by class; of more than ten classes, the nine most frequent, and all others as one."""
    classes, counts = np.unique(names, return_counts=True)
    order = [str(name) for name in classes[np.argsort(-counts, kind="stable")]]
    named = sorted(order if len(order) <= len(CLASSES) else order[: len(CLASSES) - 1])
    groups = np.array([named.index(name) if name in named else len(named) for name in names], dtype=int)
    for place in range(len(named) + (len(named) < len(order))):
        label = one_line(named[place], 18) if place < len(named) else "(other)"
        x, y = points[groups == place].T
        axes.scatter(x, y, s=12, color=CLASSES[place], label=label, **_DOTS)
    if order:
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8, markerscale=1.8, handletextpad=0.2)


def column_shares(shares: Sequence[tuple[str, float]], axes: "Axes | None" = None) -> "Figure":
    """Bars of how much each column matters, the first on top."""
    with style():
        figure, axes = blank(4.6, max(1.6, 0.9 + 0.26 * len(shares)), axes)
        values = [100 * share for _, share in shares]
        axes.barh(range(len(shares)), values, color=ACCENT, height=0.62)
        for place, value in enumerate(values):
            _beside(axes, value, place, percent(value / 100))
        axes.set_yticks(range(len(shares)), [one_line(name, 24) for name, _ in shares])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set(xlim=(0, 1.18 * max([*values, 1e-9])), xlabel="share in %")
    return figure


def mask_curves(grid: NDArray[Any], curves: Sequence[tuple[str, NDArray[Any]]], axes: "Axes | None" = None) -> "Figure":
    """Mask values over the nearness of a neighbor.

    Args:
        grid: ``[g]``, nearness from 0 (the farthest row of the bank) to 1 (the nearest).
        curves: (label, values ``[g]`` in [0, 1]), for example the quartiles over the queries.
        axes: where to draw.
    """
    with style():
        figure, axes = blank(axes=axes)
        shades = color_map()(np.linspace(0, 1, max(2, len(curves))))
        for (label, values), color in zip(curves, shades, strict=False):
            axes.plot(grid, values, color=color, linewidth=1.8, label=one_line(label, 28))
        axes.set(xlim=(-0.01, 1.01), ylim=(-0.03, 1.03))
        axes.set(xlabel="nearness: farthest row 0, nearest row 1", ylabel="let through")
        if 0 < len(curves) <= 8:
            axes.legend(loc="best", fontsize=8)
    return figure


def waterfall(
    steps: Sequence[tuple[str, float]], total: str, name: str, *, cut: bool = False, axes: "Axes | None" = None
) -> "Figure":
    """A bar from the sum of the steps before it to the sum with it, for each step, and last one of the whole sum.

    Args:
        steps: (name, value), the first from 0.
        total: name of the last bar.
        name: of the axis.
        cut: begin the axis near the sums in place of 0, which may be far away.
        axes: where to draw.
    """
    values = np.array([value for _, value in steps])
    ends = values.cumsum()
    begins, shown = ends - values, [*ends] if cut else [0.0, *ends]
    low, high, decimals = min(shown), max(shown), decimals_for(values[1:].tolist() or values.tolist())
    pad = 0.06 * (high - low) or 0.5
    begins[0] = low - pad if cut else 0.0
    with style():
        figure, axes = blank(5.6, 0.9 + 0.27 * (len(steps) + 1), axes)
        colors = [SOFT, *(ACCENT if value >= 0 else WARM for value in values[1:])]
        axes.barh(range(len(steps)), ends - begins, left=begins, color=colors, height=0.62)
        axes.barh(len(steps), ends[-1] - begins[0], left=begins[0], color=MUTED, height=0.62)
        for place, end in enumerate(ends):
            axes.plot([end, end], [place - 0.31, place + 1.31], color=MUTED, linewidth=0.6)
            sign = "+" if place and values[place] >= 0 else ""
            _beside(axes, max(begins[place], end), place, f"{sign}{fixed(values[place], decimals)}")
        _beside(axes, max(begins[0], ends[-1]), len(steps), fixed(ends[-1], decimals))
        axes.set_yticks(range(len(steps) + 1), [one_line(text, 34) for text in (*(n for n, _ in steps), total)])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set(xlim=(begins[0] if cut else low - pad, high + 2.5 * pad), xlabel=name)
        axes.xaxis.set_major_formatter(lambda value, _: compact(value))
    return figure


def _beside(axes: "Axes", x: float, place: int, text: str) -> None:
    """A value to the right of a bar."""
    offset: dict[str, Any] = {"xytext": (4, 0), "textcoords": "offset points"}
    axes.annotate(text, (x, place), va="center", fontsize=8, color=MUTED, **offset)
