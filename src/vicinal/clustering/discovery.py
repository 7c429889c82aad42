"""Groups of rows that fit no known class, with a space and number of groups that recover hidden known classes."""

import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from vicinal.clustering.known_classes import Clusters, cluster_accuracy, hidden_classes, known_class_kmeans
from vicinal.core import register
from vicinal.core.checks import check_between, check_integer, check_tensor

Space: TypeAlias = tuple[float, float | None]
"""Power of the standard deviations that principal components are divided by; shrinkage of a whitening, or None."""

SPACES: tuple[Space, ...] = ((0.5, None), (1.0, None), (0.0, 0.1), (0.5, 0.03), (0.5, 0.1), (0.5, 0.3))
"""The spaces that are tried."""

PRICES = (0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.005, 0.003, 0.002)
"""Shares of the inertia that one more group must save; the first of those with equal scores is taken."""

_DEFAULT: tuple[Space, float] = ((0.5, 0.1), 0.06)
"""Space and price if too few classes are known to hide some."""

_DIM, _KNOWN, _ROWS, _STARTS = 32, 1024, 4096, 4
"""Most principal components, known rows to choose by and rows to group by; starts of k-means."""


class Discovery(NamedTuple):
    """Groups, the largest first.

    Attributes:
        labels: ``[n]``.
        typicality: ``[n]``, the share of a row's group that is at least as far from its centroid: 1 for the nearest.
        score: mean accuracy on known classes that were hidden and grouped in the same way; NaN if none could be.
        setting: space, of :data:`SPACES`, and price of a group.
    """

    labels: Tensor
    typicality: Tensor
    score: float
    setting: tuple[Space, float]


def within_class_whitening(known: Tensor, labels: Tensor, shrinkage: float = 0.1) -> Tensor:
    r"""The map that makes known classes round, $W = ((1 - s) \Sigma + s \frac{\operatorname{tr} \Sigma}{d} I)^{-1/2}$.

    $\Sigma$ is the covariance of rows around the mean of their class. Differences within known classes (such as the
    speaker) count less in $x W$, differences between classes more; new classes gain if they vary in the same ways.

    Args:
        known: x ``[m, d]``.
        labels: whole numbers ``[m]``.
        shrinkage: s, above 0 and below 1.

    Returns:
        ``[d, d]``, symmetric; the identity if no class has two different rows.

    Paper: Hatch, Kajarekar and Stolcke 2006, with the Cholesky factor instead of the root.

    >>> rows = torch.tensor([[0.0, 0.0], [3.0, 0.0], [0.0, 1.0], [3.0, 1.0]])
    >>> within_class_whitening(rows, torch.tensor([0, 0, 1, 1]), 0.5).diag()
    tensor([0.7698, 1.3333])
    """
    check_between("shrinkage", shrinkage, 0, 1)
    if check_tensor("known", known).ndim != 2 or labels.shape != known.shape[:1] or not bool(known.isfinite().all()):
        raise ValueError(f"known: expected finite numbers [m, d], and a label each, got {tuple(known.shape)}")
    classes, where = torch.unique(labels, return_inverse=True)
    means = known.new_zeros(len(classes), known.shape[1]).index_add(0, where, known)
    apart = known - (means / torch.bincount(where)[:, None])[where]
    covariance = apart.T @ apart / len(known)
    size = covariance.diagonal().mean()
    if not bool(size > 0):
        return torch.eye(known.shape[1]).to(known)
    values, vectors = torch.linalg.eigh(
        (1 - shrinkage) * covariance + shrinkage * size * torch.eye(len(covariance)).to(known)
    )
    return vectors * values.rsqrt() @ vectors.T


@register("clustering", "discover_groups", "random", family="discovery", paper="arXiv:2311.05440")
def discover_groups(
    rows: Tensor,
    known: Tensor,
    labels: Tensor,
    *,
    groups: int | None = None,
    most: int = 30,
    repeats: int = 3,
    generator: torch.Generator | None = None,
) -> Discovery:
    r"""Groups of rows of no known class; the space and number of groups are those that best recover hidden classes.

    The number is $\arg\min_k \; J_k / J_1 + \lambda k$ with the inertia $J_k$ of :func:`known_class_kmeans`: one more
    group must save the share $\lambda$. Spaces are principal components, also with :func:`within_class_whitening`,
    scaled to length 1. Each half of the known classes is hidden in turn, ``repeats`` times, and the space and $\lambda$
    of the highest mean :func:`cluster_accuracy` are taken, as by :func:`hidden_class_score`.

    Args:
        rows: ``[n, d]``, to be grouped; of more than 4,096 a sample is grouped, and the rest joins the nearest group.
        known: ``[m, d]``, vectors of the same kind; at most 1,024 of them are used.
        labels: of the known rows, whole numbers ``[m]``; with fewer than 4 classes the space and $\lambda$ are fixed.
        groups: their number; None: chosen.
        most: largest number of groups to try.
        repeats: how often classes are hidden.
        generator: of all draws.

    Raises:
        ValueError: for more groups than different rows, shapes that do not fit, or numbers that are not finite.

    >>> draw = torch.Generator().manual_seed(0)
    >>> centers = 6 * torch.randn(9, 5, generator=draw)
    >>> labels = torch.arange(9).repeat_interleave(20)
    >>> points = centers[labels] + torch.randn(180, 5, generator=draw)
    >>> discover_groups(points[labels > 5], points[labels < 6], labels[labels < 6], generator=draw).labels.bincount()
    tensor([20, 20, 20])
    """
    check_integer("most", most)
    check_integer("repeats", repeats)
    if groups is not None:
        check_integer("groups", groups)
    known_class_kmeans(rows, known, labels, groups or 1, starts=1, steps=1)  # what is wrong is said here
    some = torch.randperm(len(known), generator=generator)[:_KNOWN]
    drawn = torch.randperm(len(rows), generator=generator)[:_ROWS]
    placed = _components(torch.cat([rows[drawn], known[some]]).double())
    (power, shrinkage), price = _DEFAULT
    score, names = math.nan, labels[some]
    if len(torch.unique(names)) >= 4:
        points = {power: placed(known[some], power) for power, _ in SPACES}
        scores = _scores(points, names, most, repeats, generator, groups)
        (power, shrinkage), price = max(scores, key=lambda setting: scores[setting])
        score = scores[(power, shrinkage), price]
    taken, others = _round(placed(rows[drawn], power), placed(known[some], power), names, shrinkage)
    runs = _runs(taken, others, names, _sizes(taken, most) if groups is None else [groups], generator)
    best = runs[_number(runs, price) if groups is None else groups]
    points_of_rows = _round(placed(rows, power), placed(known[some], power), names, shrinkage)[0]
    return Discovery(*_ordered(points_of_rows, best.centroids), score, ((power, shrinkage), price))


def _components(every: Tensor) -> Callable[[Tensor, float], Tensor]:
    """The map of rows to at most 32 principal components, divided by deviations to a power, then to length 1."""
    center = every.mean(dim=0)
    values, vectors = torch.linalg.eigh((every - center).T @ (every - center) / len(every))
    values, vectors = values.flip(0)[:_DIM], vectors.flip(1)[:, :_DIM]
    there = values > 1e-8 * values[:1]
    deviations, directions = values[there].sqrt(), vectors[:, there]

    def place(rows: Tensor, power: float) -> Tensor:
        return nn.functional.normalize((rows.double() - center) @ directions / deviations**power, dim=1)

    return place


def _round(rows: Tensor, known: Tensor, labels: Tensor, shrinkage: float | None) -> tuple[Tensor, Tensor]:
    """Rows in a space where known classes are round, unless ``shrinkage`` is None."""
    if shrinkage is None or not len(known):
        return rows, known
    whitening = within_class_whitening(known, labels, shrinkage)
    return nn.functional.normalize(rows @ whitening, dim=1), nn.functional.normalize(known @ whitening, dim=1)


def _scores(
    points: dict[float, Tensor],
    labels: Tensor,
    most: int,
    repeats: int,
    generator: torch.Generator | None,
    groups: int | None = None,
) -> dict[tuple[Space, float], float]:
    """The mean accuracy on hidden classes, by setting."""
    scores: dict[tuple[Space, float], float] = {(space, price): 0.0 for space in SPACES for price in PRICES}
    for away in (one for _ in range(repeats) for one in hidden_classes(labels, 2, generator)):
        truth, others = labels[away], labels[~away]
        count = len(torch.unique(truth))
        for power, shrinkage in SPACES:
            rows, known = _round(points[power][away], points[power][~away], others, shrinkage)
            sizes = _sizes(rows, min(most, 3 * count)) if groups is None else [count]
            runs = _runs(rows, known, others, sizes, generator)
            for price in PRICES:
                run = runs[count if groups is not None else _number(runs, price)]
                scores[(power, shrinkage), price] += cluster_accuracy(run.labels, truth) / (2 * repeats)
    return scores


def _sizes(rows: Tensor, most: int) -> list[int]:
    """Numbers of groups to try: all up to 12, then a quarter more each time."""
    top, sizes = min(most, len(torch.unique(rows, dim=0))), [1]
    while sizes[-1] < top:
        sizes.append(min(top, max(sizes[-1] + 1, round(1.25 * sizes[-1]) if sizes[-1] >= 12 else 0)))
    return sizes


def _runs(
    rows: Tensor, known: Tensor, labels: Tensor, sizes: list[int], generator: torch.Generator | None
) -> dict[int, Clusters]:
    return {size: known_class_kmeans(rows, known, labels, size, starts=_STARTS, generator=generator) for size in sizes}


def _number(runs: dict[int, Clusters], price: float) -> int:
    """The number of groups with the least sum of relative inertia and price."""
    whole = runs[1].inertia or 1.0
    return min(runs, key=lambda size: runs[size].inertia / whole + price * size)


def _ordered(rows: Tensor, centroids: Tensor) -> tuple[Tensor, Tensor]:
    """The group of the nearest centroid for each row, the largest group first, and how typical the row is of it."""
    nearest = torch.cdist(rows, centroids).min(dim=1)
    order = torch.bincount(nearest.indices, minlength=len(centroids)).argsort(descending=True, stable=True)
    labels = order.argsort()[nearest.indices]
    typicality = torch.empty(len(rows), dtype=torch.float64)
    for group in range(len(centroids)):
        at = (labels == group).nonzero()[:, 0]
        lengths = nearest.values[at]
        farther = len(at) - torch.searchsorted(lengths.sort().values, lengths)
        typicality[at] = farther.double() / max(1, len(at))
    return labels, typicality
