"""Pictures of the space: a map of the embedding, and the mask that was learned on its scores."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vicinal.report.text import compact, one_line
from vicinal.report.theme import CLASSES, blank, color_map, sample, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def principal_plane(embedding: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The two directions of the embedding in which it varies most.

    Args:
        embedding: ``[n, d]``, finite.

    Returns:
        Coordinates ``[n, 2]`` and the shares of the variance ``[2]``. A second direction that is not there (d = 1, or
        all rows on a line) is 0. The sign is fixed by the largest coefficient.

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
    embedding: NDArray[Any], labels: NDArray[Any] | Sequence[Any], target_name: str = "target", *, seed: int = 0
) -> "Figure":
    """The embedding ``[n, d]`` on its principal plane, colored by ``labels`` ``[n]`` (numbers, or names of classes).

    An embedding of one dimension is drawn along a line, scattered up and down (with ``seed``) to be seen.
    """
    values = np.asarray(labels)
    embedding = np.asarray(embedding, dtype=float)
    embedding = embedding[:, None] if embedding.ndim == 1 else embedding
    keep = np.isfinite(embedding).all(axis=1)
    if values.dtype.kind in "fiub":
        keep &= np.isfinite(values.astype(float))
    kept = np.flatnonzero(keep)
    shown = kept[sample(len(kept), seed=seed)]
    points, shares = principal_plane(embedding[shown])
    flat = embedding.shape[1] == 1
    if flat:
        points[:, 1] = np.random.default_rng(seed).uniform(-1, 1, len(points))
    with style():
        figure, axes = blank(5.4, 3.9)
        if values.dtype.kind in "fiub":
            _by_number(figure, axes, points, values[shown].astype(float), target_name)
        else:
            _by_class(axes, points, [str(name) for name in values[shown]])
        axes.set_xlabel(f"1st component, {100 * shares[0]:.0f} % of the variance")
        axes.set_ylabel("(no meaning)" if flat else f"2nd component, {100 * shares[1]:.0f} %")
        axes.set_xticklabels([])
        axes.set_yticklabels([])
        axes.margins(0.04)
    return figure


def _by_number(figure: "Figure", axes: "Axes", points: NDArray[Any], values: NDArray[Any], target_name: str) -> None:
    """Points colored by ``values``, the ends of the scale at the 2nd and 98th per cent."""
    low, high = np.percentile(values, (2, 98)) if len(values) else (0.0, 1.0)
    many = len(values) > 1500
    drawn = axes.scatter(
        points[:, 0],
        points[:, 1],
        c=values,
        s=8 if many else 16,
        alpha=0.7,
        linewidth=0,
        cmap=color_map(),
        vmin=low,
        vmax=high if high > low else low + 1,
        rasterized=True,
    )
    bar = figure.colorbar(drawn, ax=axes, label=one_line(target_name, 30), aspect=28, pad=0.02, extend="both")
    bar.set_alpha(1)
    bar.ax.yaxis.set_major_formatter(lambda value, _: compact(value))
    bar.ax.spines[:].set_visible(False)


def _by_class(axes: "Axes", points: NDArray[Any], names: list[str]) -> None:
    """Points colored by class: the nine most frequent each, all further ones together."""
    found, counts = np.unique(names, return_counts=True)
    order = [str(name) for name in found[np.argsort(-counts, kind="stable")]]
    own = sorted(order if len(order) <= len(CLASSES) else order[: len(CLASSES) - 1])
    groups = np.array([own.index(name) if name in own else len(own) for name in names], dtype=int)
    for place in range(len(own) + (len(own) < len(order))):
        label = one_line(own[place], 18) if place < len(own) else "(other)"
        axes.scatter(
            points[groups == place, 0],
            points[groups == place, 1],
            s=12,
            alpha=0.7,
            linewidth=0,
            color=CLASSES[place],
            label=label,
            rasterized=True,
        )
    if order:
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8, markerscale=1.8, handletextpad=0.2)


def mask_curves(grid: NDArray[Any], curves: Sequence[tuple[str, NDArray[Any]]]) -> "Figure":
    """What the mask lets through, over how near a neighbor is.

    Args:
        grid: ``[g]``, nearness from 0 (the farthest row of the bank) to 1 (the nearest).
        curves: (label, values ``[g]`` in [0, 1]), for example the quartiles over the queries.
    """
    with style():
        figure, axes = blank()
        shades = color_map()(np.linspace(0, 1, max(2, len(curves))))
        for (label, values), color in zip(curves, shades, strict=False):
            axes.plot(grid, values, color=color, linewidth=1.8, label=one_line(label, 28))
        axes.set(xlim=(-0.01, 1.01), ylim=(-0.03, 1.03))
        axes.set(xlabel="nearness: farthest row 0, nearest row 1", ylabel="let through")
        if 0 < len(curves) <= 8:
            axes.legend(loc="best", fontsize=8)
    return figure
