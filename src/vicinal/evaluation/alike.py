"""How well near rows are alike: each row asks all others, and what it finds is counted, with intervals."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from vicinal.core.checks import check_between
from vicinal.metrics import hubness
from vicinal.metrics.retrieval import from_ranks, named
from vicinal.ranks.hard import related_ranks

RETRIEVAL = ("map@r", "r_precision", "hit@1", "hit@10")
"""What is counted of classes: of a row with R related ones."""

NEAREST = 10
"""Rows whose mean number predicts that of a row."""

_SCORES = 1 << 22
_FEWEST_CLUSTERS = 10

_FEWEST_UNSEEN = 8
"""Classes from which two are tested on, two stop the training, and four and more are learned from."""


class Estimate(NamedTuple):
    """A mean over rows with the ends of its bootstrap interval of 95 %."""

    value: float
    low: float
    high: float


def retrieval_values(
    vectors: Tensor, labels: Tensor, groups: Tensor | None = None, metrics: Sequence[str] = RETRIEVAL
) -> dict[str, Tensor]:
    """Each row's retrieval among all other rows by cosine, ``[n]`` for each metric; NaN where nothing is related.

    Args:
        vectors: ``[n, d]``.
        labels: classes ``[n]``, or several classes ``[n, C]`` of which related rows share one.
        groups: ``[n]``; rows of one group are left out for one another.
        metrics: see :func:`vicinal.metrics.retrieval.named`.

    >>> x = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> retrieval_values(x, torch.tensor([0, 0, 1]))["map@r"]
    tensor([1., 1., nan], dtype=torch.float64)
    """
    measures, unit = named(metrics), normalize(vectors.double(), dim=1)
    values: dict[str, list[Tensor]] = {one.name: [] for one in measures}
    for part in torch.split(torch.arange(len(unit)), max(1, _SCORES // max(1, len(unit)))):
        related = _related(labels[part], labels)
        weight = torch.ones(len(part), len(unit))
        if groups is not None:
            weight = (groups[part, None] != groups).float()
        weight[torch.arange(len(part)), part] = 0
        ranks = related_ranks(unit[part] @ unit.T, related, weight)
        for one in measures:
            values[one.name].append(from_ranks(one.formula, ranks, k=one.k))
    return {name: torch.cat(parts) for name, parts in values.items()}


def _related(labels: Tensor, others: Tensor) -> Tensor:
    if labels.ndim == 1:
        return (labels[:, None] == others).float()
    return (labels.double() @ others.double().T > 0).float()


def number_values(vectors: Tensor, numbers: Tensor, groups: Tensor | None = None, k: int = NEAREST) -> Tensor:
    """The mean number of each row's ``k`` nearest others by cosine ``[n]``, none of its group."""
    unit, means = normalize(vectors.double(), dim=1), []
    for part in torch.split(torch.arange(len(unit)), max(1, _SCORES // max(1, len(unit)))):
        scores = unit[part] @ unit.T
        scores[torch.arange(len(part)), part] = -torch.inf
        if groups is not None:
            scores = scores.masked_fill(groups[part, None] == groups, -torch.inf)
        best = scores.topk(min(k, max(1, len(unit) - 1)), dim=1)
        seen = best.values.isfinite()
        near = numbers.double()[best.indices].masked_fill(~seen, 0.0)
        means.append(near.sum(dim=1) / seen.sum(dim=1))
    return torch.cat(means)


def alike_scores(
    vectors: Tensor, labels: Tensor, groups: Tensor | None = None, *, intervals: bool = True, seed: int = 0
) -> dict[str, Estimate]:
    """What near rows tell, with bootstrap intervals, and the hubness of the vectors (without one).

    Of classes the means of :data:`RETRIEVAL` over the rows that have a related one; of numbers the share of their
    variance that the mean of the ten nearest tells, "r2@10". Intervals draw whole classes where there are at least
    ten, as rows of one class do well or badly together; else rows.

    Args:
        vectors: ``[n, d]``.
        labels: classes ``[n]``, several classes ``[n, C]``, or numbers ``[n]`` (floating).
        groups: ``[n]``; rows of one group are left out for one another.
        intervals: False: the means only.
        seed: of the draws.
    """
    measures: dict[str, Estimate] = {}
    if labels.ndim == 1 and labels.is_floating_point():
        near = number_values(vectors, labels, groups)
        known = near.isfinite()
        numbers = labels.double()[known]
        errors, spread = (near[known] - numbers).square(), (numbers - numbers.mean()).square()
        ratio = _estimate(errors.numpy(), spread.numpy(), np.arange(len(errors)), intervals=intervals, seed=seed)
        measures["r2@10"] = Estimate(1 - ratio.value, 1 - ratio.high, 1 - ratio.low)
    else:
        for name, values in retrieval_values(vectors, labels, groups).items():
            known = ~values.isnan()
            clusters = np.arange(int(known.sum()))
            if labels.ndim == 1 and len(np.unique(labels[known])) >= _FEWEST_CLUSTERS:
                clusters = np.unique(labels[known], return_inverse=True)[1]
            of_rows = values[known].numpy()
            measures[name] = _estimate(of_rows, np.ones_like(of_rows), clusters, intervals=intervals, seed=seed)
    hubs = float(hubness(vectors.double(), k=NEAREST))
    return measures | {"hubness": Estimate(hubs, float("nan"), float("nan"))}


def _estimate(
    tops: NDArray[np.float64],
    bottoms: NDArray[np.float64],
    clusters: NDArray[np.int64],
    *,
    intervals: bool,
    seed: int,
) -> Estimate:
    """Sum of ``tops`` over sum of ``bottoms``, and its percentiles over draws of clusters with replacement."""
    if not len(tops):
        return Estimate(float("nan"), float("nan"), float("nan"))
    value = float(tops.sum() / max(bottoms.sum(), 1e-300))
    if not intervals:
        return Estimate(value, float("nan"), float("nan"))
    top, bottom = np.bincount(clusters, tops), np.bincount(clusters, bottoms)
    random = np.random.default_rng(seed)
    draws = (random.integers(0, len(top), len(top)) for _ in range(1000))
    drawn = [top[some].sum() / max(bottom[some].sum(), 1e-300) for some in draws]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Estimate(value, float(low), float(high))


def holds_out_classes(labels: NDArray[np.int64], unseen: bool | None) -> bool:  # noqa: FBT001  # a setting, as it is
    """Whether whole classes are held out, rather than rows of each; None: from 8 classes of two rows and more on.

    >>> holds_out_classes(np.repeat(np.arange(8), 2), None), holds_out_classes(np.repeat(np.arange(7), 2), None)
    (True, False)
    """
    return int((np.bincount(labels) >= 2).sum()) >= _FEWEST_UNSEEN if unseen is None else unseen


def hold_out_classes(labels: NDArray[np.int64], share: float, seed: int) -> NDArray[np.int64]:
    """Positions of the rows of a random ``share`` of the classes of two rows and more, at least two of them.

    Raises:
        ValueError: if fewer than two such classes would be left on either side.

    >>> len(np.unique(np.repeat(np.arange(10), 3)[hold_out_classes(np.repeat(np.arange(10), 3), 0.2, 0)]))
    2
    """
    check_between("share", share, 0, 1)
    sizes = np.bincount(labels)
    usable = np.flatnonzero(sizes >= 2)
    count = max(2, round(share * len(usable)))
    if len(usable) - count < 2:
        raise ValueError(
            f"y: expected at least {count + 2} classes of two rows and more, so that {count} are not seen in training, "
            f"got {len(usable)}; hold out rows of all classes instead (unseen=False, --seen)"
        )
    chosen = np.random.RandomState(seed).permutation(usable)[:count]
    return np.flatnonzero(np.isin(labels, chosen))
