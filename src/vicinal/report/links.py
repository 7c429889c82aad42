"""Figures and tables of links: where their losses are sensitive."""

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from vicinal.core import entries
from vicinal.links import Curve
from vicinal.losses import CompositeSoftmaxMatchingLoss, MatchingLoss
from vicinal.report.tex import plain
from vicinal.report.theme import ACCENT, CLASSES, INK, MUTED, sheet, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[Any]

_CLAUSE = re.compile(r", \$F| with \$F|:|\.\s|\.$|;|, the mirror")


def plain_formula(docstring: str) -> str:
    r"""The formula at the start of a link's docstring, without TeX.

    >>> plain_formula(r"$f(x)=\ln\frac{x}{1-x}$ on (0, 1): scores are probabilities.")
    'ln(x/(1-x)) on (0, 1)'
    """
    return plain(_CLAUSE.split(docstring.strip(), maxsplit=1)[0]).removeprefix("f(x)=").strip(", ")


def link_rows() -> list[list[str]]:
    """A row for each registered link: name, formula, region, bounded, slopes at -3, 0 and 3 ("" outside its domain)."""
    rows = []
    for entry in entries("link"):
        link = entry.factory()
        slopes = [_slope_at(link, z) for z in (-3.0, 0.0, 3.0)]
        region = link.region.replace("-", " ")
        bounded = "yes" if link.is_bounded else "no"
        rows.append([entry.name, plain_formula(entry.factory.__doc__ or ""), region, bounded, *slopes])
    return rows


def _slope_at(link: Curve, z: float) -> str:
    low, high = link.domain
    if not low <= z <= high:
        return ""
    slope = float(link.slope(torch.tensor([z], dtype=torch.float64))[0])
    return f"{slope:.3g}" if np.isfinite(slope) else "inf"


def visible_range(link: Curve, low: float = -3.0, high: float = 3.0) -> tuple[float, float]:
    """The part of [low, high] inside the domain of ``link``, or 6 units of the domain; a little away from its ends."""
    start, end = link.domain
    if end <= low or start >= high:
        low, high = (start, start + 6) if np.isfinite(start) else (end - 6, end)
    low, high = max(low, start), min(high, end)
    edge = 0.02 * (high - low)
    return (low + edge if low == start else low), (high - edge if high == end else high)


def link_figure(link: Curve, name: str) -> "Figure":
    """Four panels: the link, its slope, its losses for three observed scores, and the loss of two classes."""
    low, high = visible_range(link)
    grid = torch.linspace(low, high, 401, dtype=torch.float64)
    with style(), torch.no_grad():
        figure = sheet(9.2, 6.8)
        panels = figure.subplots(2, 2)
        figure.suptitle(f"{name}   (sensitive region: {link.region.replace('-', ' ')})", color=INK)
        _line(panels[0, 0], grid, link(grid), "link h(z)", "score z")
        _line(panels[0, 1], grid, link.slope(grid), "slope h'(z): where an error is expensive", "score z")
        _losses(panels[1, 0], link, grid)
        _contour(panels[1, 1], link, low, high)
    return figure


def _line(axes: "Axes", x: torch.Tensor, y: torch.Tensor, title: str, label: str) -> None:
    axes.plot(x.numpy(), y.numpy(), color=ACCENT, lw=2)
    axes.set_title(title)
    axes.set_xlabel(label)


def _losses(axes: "Axes", link: Curve, grid: torch.Tensor) -> None:
    loss = MatchingLoss(link, reduction="none")
    low, high = float(grid[0]), float(grid[-1])
    for share, color in zip((0.15, 0.5, 0.85), CLASSES, strict=False):
        target = low + share * (high - low)
        values = loss(grid, torch.full_like(grid, target))
        axes.plot(grid.numpy(), values.numpy(), color=color, lw=2, label=f"observed {target:.2g}")
        axes.plot([target], [0.0], "o", color=color, ms=4)
    axes.set_title("matching loss for three observed scores")
    axes.set_xlabel("predicted score")
    axes.legend(frameon=False)


def _contour(axes: "Axes", link: Curve, low: float, high: float) -> None:
    """Loss of two classes against both predicted scores, for one observed pair."""
    side = torch.linspace(low, high, 81, dtype=torch.float64)
    first, second = torch.meshgrid(side, side, indexing="xy")
    predicted = torch.stack([first, second], dim=-1).reshape(-1, 2)
    observed = torch.tensor([low + 0.75 * (high - low), low + 0.4 * (high - low)], dtype=torch.float64)
    loss = CompositeSoftmaxMatchingLoss(link, reduction="none")
    values = loss(predicted, observed.expand_as(predicted)).reshape(81, 81).numpy()
    levels = np.quantile(values, np.linspace(0, 1, 13)[1:])
    axes.contour(side.numpy(), side.numpy(), values, levels=np.unique(levels), colors=MUTED, linewidths=0.8)
    axes.plot([float(observed[0])], [float(observed[1])], "o", color=CLASSES[1], ms=5)
    axes.set_title("composite softmax loss of two classes")
    axes.set_xlabel("score of class 1")
    axes.set_ylabel("score of class 2")
