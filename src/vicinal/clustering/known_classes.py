"""New classes beside known ones: k-means and spectral clustering that start away from the known classes."""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from scipy.cluster.hierarchy import linkage
from torch import Tensor

from vicinal.blockwise.blocks import policy, row_slices
from vicinal.core import register
from vicinal.core.checks import check_between, check_integer, check_tensor
from vicinal.transport import assignment


class Clusters(NamedTuple):
    """``labels [n]``, the ``centroids`` that they number, and ``inertia``, the sum of squared distances to them.

    With ``together`` the inertia includes the rows of known classes.
    """

    labels: Tensor
    centroids: Tensor
    inertia: float


class Spectrum(NamedTuple):
    """``vectors [n, dim]`` and ``values [dim]`` of a Laplacian, and the ``width`` of its kernel."""

    vectors: Tensor
    values: Tensor
    width: float


@register(
    "clustering", "known_class_kmeans", "random", family="known classes", paper="arXiv:2311.05440",
    verified="values of the paper's code",
)  # fmt: skip
def known_class_kmeans(
    rows: Tensor,
    known: Tensor,
    labels: Tensor,
    clusters: int,
    *,
    together: bool = False,
    power: float = 2.0,
    starts: int = 10,
    steps: int = 300,
    start: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Clusters:
    r"""Clusters of rows of no known class, $\min \sum_i \|x_i - \mu_{c(i)}\|^2$, started far from the known classes.

    New centroids are drawn one after another, with probability proportional to $d^{power}$, with d the distance to the
    nearest mean of a known class or earlier centroid. Lloyd's steps follow, which never raise the inertia; a cluster
    that loses all rows stays where it is. The best of several starts, by inertia, is taken. Without known rows it is
    k-means.

    Args:
        rows: x ``[n, d]`` to be grouped.
        known: ``[m, d]``, m may be 0.
        labels: of the known rows, whole numbers ``[m]``.
        clusters: number of new ones, at most the number of different rows.
        together: the rows may also join known classes, whose means move too; labels then number the known classes
            first, in the order of their labels.
        power: of the distance in the draws; 2 is usual, the paper's code uses 1.
        starts: number of draws to try.
        steps: of Lloyd, at most.
        start: new centroids ``[clusters, d]`` instead of draws.
        generator: of the draws.

    Raises:
        ValueError: for fewer different rows than clusters, shapes that do not fit, or numbers that are not finite.

    >>> rows = torch.tensor([[5.0], [5.2], [9.0]])
    >>> known, start = torch.tensor([[0.0], [0.2]]), torch.tensor([[5.0], [9.0]])
    >>> known_class_kmeans(rows, known, torch.tensor([0, 0]), 2, start=start)
    Clusters(labels=tensor([0, 0, 1]), centroids=tensor([[5.1000],
            [9.0000]]), inertia=0.019...)
    """
    rows, known = _check_rows(rows, known, labels, clusters)
    check_between("power", power, 0, math.inf, closed=True)
    check_integer("starts", starts)
    check_integer("steps", steps)
    classes, where = torch.unique(labels, return_inverse=True)
    counts = torch.bincount(where, minlength=len(classes)).to(rows)
    means = rows.new_zeros(len(classes), rows.shape[1]).index_add(0, where, known) / counts[:, None]
    firsts = (
        [_check_start(start, rows, clusters)]
        if start is not None
        else (_drawn(rows, means, clusters, power, generator) for _ in range(starts))
    )
    if together:
        ends = [_lloyd(rows, torch.cat([means, first]), known, where, steps) for first in firsts]
    else:
        ends = [_lloyd(rows, first, rows[:0], where, steps) for first in firsts]
    return min(ends, key=lambda end: end.inertia)


def _check_rows(rows: Tensor, known: Tensor, labels: Tensor, clusters: int) -> tuple[Tensor, Tensor]:
    for name, value in (("rows", rows), ("known", known)):
        if check_tensor(name, value).ndim != 2 or not value.is_floating_point() or not bool(value.isfinite().all()):
            raise ValueError(f"{name}: expected finite floating numbers [n, d], got {value.dtype} {tuple(value.shape)}")
    if known.shape[1] != rows.shape[1]:
        raise ValueError(f"known: expected rows of {rows.shape[1]} numbers, got {tuple(known.shape)}")
    if labels.shape != (len(known),) or labels.is_floating_point():
        raise ValueError(f"labels: expected whole numbers [{len(known)}], got {labels.dtype} {tuple(labels.shape)}")
    different = len(torch.unique(rows, dim=0)) if clusters > 1 else len(rows)
    if check_integer("clusters", clusters) > different:
        raise ValueError(f"clusters: expected at most {different}, the number of different rows, got {clusters}")
    dtype = torch.promote_types(rows.dtype, torch.float32)
    return rows.to(dtype), known.to(dtype)


def _check_start(start: Tensor, rows: Tensor, clusters: int) -> Tensor:
    if start.shape != (clusters, rows.shape[1]) or not bool(start.isfinite().all()):
        raise ValueError(f"start: expected finite numbers {(clusters, rows.shape[1])}, got {tuple(start.shape)}")
    return start.to(rows)


def _nearest(rows: Tensor, centroids: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest centroid of each row and the distance to it, ``[n]`` each, a block of rows at a time."""
    size = max(1, policy().memory_entries // len(centroids))
    parts = [torch.cdist(rows[each], centroids).min(dim=1) for each in row_slices(len(rows), size)]
    labels = torch.cat([part.indices for part in parts])
    return labels, (rows - centroids[labels]).norm(dim=1)


def _drawn(rows: Tensor, means: Tensor, clusters: int, power: float, generator: torch.Generator | None) -> Tensor:
    """Centroids among the rows, each far from the known means and the earlier centroids."""
    far = _nearest(rows, means)[1] if len(means) else torch.ones_like(rows[:, 0])
    chosen = []
    for count in range(clusters):
        mass = (far / far.max().clamp(min=torch.finfo(far.dtype).tiny)) ** power
        at = torch.multinomial(mass if bool(mass.sum() > 0) else torch.ones_like(mass), 1, generator=generator)
        chosen.append(rows[at])
        to_it = (rows - rows[at]).norm(dim=1)
        far = to_it if count == 0 and not len(means) else torch.minimum(far, to_it)
    return torch.cat(chosen)


def _lloyd(rows: Tensor, centroids: Tensor, fixed: Tensor, where: Tensor, steps: int) -> Clusters:
    """Lloyd's steps until no label changes; ``fixed`` rows always belong to their class ``where``."""
    labels, lengths = _nearest(rows, centroids)
    for _ in range(steps):
        sums = torch.zeros_like(centroids).index_add_(0, labels, rows)
        counts = torch.bincount(labels, minlength=len(centroids))
        if len(fixed):
            sums.index_add_(0, where, fixed)
            counts += torch.bincount(where, minlength=len(centroids))
        centroids = torch.where((counts > 0)[:, None], sums / counts.clamp(min=1)[:, None], centroids)
        last, (labels, lengths) = labels, _nearest(rows, centroids)
        if torch.equal(last, labels):
            break
    return Clusters(
        labels, centroids, float(lengths.square().sum() + (fixed - centroids[where[: len(fixed)]]).square().sum())
    )


def spectral_vectors(rows: Tensor, dim: int, *, least_affinity: float = 0.5) -> Spectrum:
    r"""Eigenvectors 2 to dim + 1 of a graph's Laplacian $I - D^{-1/2} A D^{-1/2}$, which tell its clusters apart.

    $a_{ij} = e^{-d_{ij}^2 / 2 \sigma^2}$, $a_{ii} = 0$, with $\sigma^2 = -e^2 / \log \alpha$ for $\alpha =$
    ``least_affinity`` and the longest edge e of the minimum spanning tree: its edges have affinities >= $\sqrt\alpha$.

    Args:
        rows: ``[n, d]``; memory grows as n squared.
        dim: below n.
        least_affinity: $\alpha$, between 0 and 1.

    Raises:
        ValueError: if all rows are equal, or numbers are not finite.

    >>> spectral_vectors(torch.tensor([[0.0], [1.0], [5.0], [6.0]]), 1).vectors[:, 0].sign().abs()
    tensor([1., 1., 1., 1.])
    """
    wide = _check_rows(rows, rows[:0], torch.zeros(0, dtype=torch.int64), 1)[0].double()
    check_integer("dim", dim, 1, len(rows) - 1)
    check_between("least_affinity", least_affinity, 0, 1)
    edge = float(linkage(wide.numpy(force=True), "single")[-1, 2])
    if edge == 0:
        raise ValueError(f"rows: expected at least two different rows, got {len(rows)} that are equal")
    width = math.sqrt(-(edge**2) / math.log(least_affinity))
    affinity = torch.exp(-(torch.cdist(wide, wide, compute_mode="donot_use_mm_for_euclid_dist") ** 2) / (2 * width**2))
    affinity.fill_diagonal_(0)
    scale = affinity.sum(1).rsqrt()
    values, vectors = torch.linalg.eigh(torch.eye(len(wide)).to(wide) - scale[:, None] * affinity * scale)
    part = slice(1, dim + 1)
    return Spectrum(vectors[:, part].to(rows), values[part].to(rows), width)


@register(
    "clustering", "known_class_spectral", "random", family="known classes", paper="arXiv:2311.05440",
    verified="values of the paper's code",
)  # fmt: skip
def known_class_spectral(
    rows: Tensor,
    known: Tensor,
    labels: Tensor,
    clusters: int,
    *,
    dim: int | None = None,
    least_affinity: float = 0.5,
    starts: int = 10,
    generator: torch.Generator | None = None,
) -> Clusters:
    r""":func:`known_class_kmeans` of the :func:`spectral_vectors` of known and other rows: clusters of any shape.

    Args:
        rows: ``[n, d]`` to be grouped.
        known: ``[m, d]``.
        labels: of the known rows, whole numbers ``[m]``.
        clusters: number of new ones.
        dim: of the vectors; None: one less than the number of classes, known and new.
        least_affinity: see :func:`spectral_vectors`.
        starts: see :func:`known_class_kmeans`.
        generator: of the draws.

    Returns:
        Labels of the rows, with centroids and inertia in the space of the spectral vectors.

    >>> rows, known = torch.tensor([[5.0], [5.1], [9.0], [9.1]]), torch.tensor([[0.0], [0.1]])
    >>> groups = known_class_spectral(rows, known, torch.tensor([0, 0]), 2, generator=torch.Generator().manual_seed(0))
    >>> cluster_accuracy(groups.labels, torch.tensor([0, 0, 1, 1]))
    1.0
    """
    _check_rows(rows, known, labels, clusters)
    every = torch.cat([known, rows])
    dim = min(len(every) - 1, max(1, clusters + len(torch.unique(labels)) - 1)) if dim is None else dim
    vectors = spectral_vectors(every, dim, least_affinity=least_affinity).vectors
    parts = torch.split(vectors, [len(known), len(rows)])
    return known_class_kmeans(parts[1], parts[0], labels, clusters, starts=starts, generator=generator)


def cluster_accuracy(labels: Tensor, truth: Tensor) -> float:
    r"""Share of rows whose cluster is matched to their class, $\max_\pi \frac1n |\{i : \pi(c_i) = y_i\}|$ (Hungarian).

    >>> cluster_accuracy(torch.tensor([0, 0, 1, 2]), torch.tensor([7, 7, 3, 3]))
    0.75
    """
    if labels.ndim != 1 or labels.shape != truth.shape or not len(labels):
        raise ValueError(f"labels: expected [n] as the truth, got {tuple(labels.shape)} and {tuple(truth.shape)}")
    groups, one = torch.unique(labels, return_inverse=True)
    classes, other = torch.unique(truth, return_inverse=True)
    counts = torch.zeros(len(groups), len(classes)).index_put_((one, other), torch.ones(len(one)), accumulate=True)
    counts = counts if len(groups) <= len(classes) else counts.T
    return float(counts.gather(1, assignment(counts)[:, None]).sum()) / len(labels)


def hidden_class_score(
    method: Callable[[Tensor, Tensor, Tensor, int], Tensor],
    known: Tensor,
    labels: Tensor,
    *,
    folds: int = 3,
    generator: torch.Generator | None = None,
) -> float:
    r"""How well a method groups known classes that are hidden from it; use it to choose settings.

    The known classes are split into folds; the classes of each fold in turn are hidden, their rows grouped, and the
    :func:`cluster_accuracy` of the groups is averaged. It needs no labels of the rows to be grouped in the end.

    Args:
        method: ``method(rows, known, labels, clusters)`` gives labels ``[n]`` of the rows; ``clusters`` is the number
            of hidden classes, which a method that finds the number by itself ignores.
        known: ``[m, d]``.
        labels: ``[m]``, of at least twice as many classes as folds.
        folds: at least 2.
        generator: of the split.

    Paper: arXiv:2311.05440.

    >>> rows, labels = torch.tensor([[0.0], [0.1], [4.0], [4.1], [9.0], [9.1], [15.0], [15.1]]), torch.arange(8) // 2
    >>> hidden_class_score(lambda *given: known_class_kmeans(*given).labels, rows, labels, folds=2)
    1.0
    """
    scores = []
    for away in hidden_classes(labels, folds, generator):
        groups = method(known[away], known[~away], labels[~away], len(torch.unique(labels[away])))
        scores.append(cluster_accuracy(groups, labels[away]))
    return sum(scores) / len(scores)


def hidden_classes(labels: Tensor, folds: int, generator: torch.Generator | None = None) -> Iterator[Tensor]:
    """Random folds of the classes: for each, which rows ``[m]`` are of its classes; see :func:`hidden_class_score`.

    Raises:
        ValueError: for fewer than two classes a fold.
    """
    classes = torch.unique(labels)
    check_integer("folds", folds, 2)
    if len(classes) < 2 * folds:
        raise ValueError(
            f"labels: expected at least {2 * folds} classes, two a fold, as one alone is grouped rightly by anything, "
            f"got {len(classes)}; take fewer folds"
        )
    order = classes[torch.randperm(len(classes), generator=generator)]
    for hidden in order.tensor_split(folds):
        yield torch.isin(labels, hidden)
