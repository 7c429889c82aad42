"""The kernel for classes: lengths and noise that minimize the leave-one-out log-loss of calibrated scores."""

import itertools
import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from vicinal.blockwise.distances import squared_distances
from vicinal.core.progress import report, time_left
from vicinal.training.likelihood import LEAST_NOISE, left_out_errors, unrelated_parts
from vicinal.training.stacking import stack_scores

MOST_ROWS = 1000
"""Rows that are left out one by one, at most; a random subset of more."""

_FIRST = tuple(product((1.0, 2.0, 4.0, 8.0), (0.001, 0.01, 0.1, 1.0)))
"""Where the search may begin: lengths, in median distances, and the noise."""

_STEPS = 2.0, math.sqrt(10.0)
"""Factors by which a step multiplies or divides a length, and the noise."""

_RANGES = (0.125, 64.0), (1e-5, 30.0)
"""Their ranges."""

_MOST_STEPS = 40
_UNIT_ROWS = 500


class ClassKernel(NamedTuple):
    r"""$\kappa(r) = (1 + \sqrt 3 r) e^{-\sqrt 3 r}$ with $r^2 = \sum_g \|x_g - x'_g\|^2 / \ell_g^2$.

    The parts g are sets of columns.

    Attributes:
        log_lengths: of $\ell$ ``[G]``, one per part.
        log_noise: of the noise $\lambda$, to which 1e-6 is added.
        loss: mean leave-one-out log-loss; infinite without rows to choose by.
    """

    log_lengths: Tensor
    log_noise: Tensor
    loss: float


class Calibration(NamedTuple):
    r"""Turns scores of classes into probabilities: $p_k \propto e^{a s_k + b_k}$.

    Attributes:
        slope: a > 0.
        biases: b ``[K]``, of sum 0.
        loss: mean log-loss of the rows that it was fitted to.
    """

    slope: float
    biases: Tensor
    loss: float


def calibrate_scores(scores: Tensor, labels: Tensor, weights: Tensor | None = None) -> Calibration:
    r"""Slope a and biases b of least $-\frac1n \sum_{ik} t_{ik} \ln p_{ik}$ for $p_{ik} \propto e^{a s_{ik} + b_k}$.

    The targets $t_{ik} = (n y_{ik} + 1/K) / (n + 1)$ keep the slope finite if the scores separate all classes, as Platt
    has it with a row more of each class: one in all does, as with K more few rows that are told apart were believed too
    little. $b^\top b / 2n$ is added, so that classes without rows get a bias, too.

    Args:
        scores: ``[n, K]``, each predicted without its own row.
        labels: one-hot ``[n, K]``.
        weights: of rows ``[n]``; None: 1 each.

    References:
        Platt (1999), Probabilistic outputs for support vector machines.

    >>> labels = torch.eye(2).repeat(50, 1)
    >>> calibrate_scores(labels * 0.2, labels).slope > 10  # what is always right is believed
    True
    """
    slopes, biases, loss = stack_scores(scores[None], labels, weights, start=4.0, least=0.01)
    return Calibration(float(slopes), biases, loss)


def fit_class_kernel(
    parts: Sequence[Tensor],
    labels: Tensor,
    groups: Tensor | None = None,
    *,
    seed: int = 0,
    weights: Tensor | None = None,
) -> ClassKernel:
    r"""Lengths and noise with the least log-loss on at most 1,000 rows, each predicted from the others and calibrated.

    The search starts at the best of four lengths, equal for all parts, and four noises. Then one of them at a time is
    doubled or halved (the noise: by $\sqrt{10}$) as long as that lowers the loss. Scores by kriging of one-hot labels
    are not probabilities, so the loss is that of :func:`calibrate_scores`, as in predictions.

    With groups, rows are predicted from rows of other groups: see :func:`vicinal.training.likelihood.unrelated_parts`.

    Args:
        parts: columns that share a length, ``[n, p_g]`` each, float64.
        labels: one-hot ``[n, K]``.
        groups: integers ``[n]``, or None.
        seed: of the subset.
        weights: ``[n]``, > 0: a row of weight w has 1/w of the noise, and counts w times in the loss.

    >>> x = torch.linspace(0, 1, 80, dtype=torch.float64)[:, None]
    >>> kernel = fit_class_kernel([x], torch.nn.functional.one_hot((x[:, 0] > 0.5).long(), 2))
    >>> kernel.log_lengths.shape
    torch.Size([1])
    """
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))[:MOST_ROWS]
    turns = [rows for rows in unrelated_parts(order, groups) if len(rows) > 1]
    labels = labels.double()
    units = torch.stack([_median_distance(part[order]) for part in parts])
    squares = [[squared_distances(part[rows], part[rows]) for part in parts] for rows in turns]
    mass = torch.ones(len(labels), dtype=torch.float64) if weights is None else weights.double() / weights.mean()

    def loss(lengths: Sequence[float], noise: float) -> float:
        scales = [float(unit) * length for unit, length in zip(units, lengths, strict=True)]
        scores = []
        for rows, apart in zip(turns, squares, strict=True):
            radius = sum(square / scale**2 for square, scale in zip(apart, scales, strict=True))
            distance = torch.as_tensor(radius).mul(3).sqrt_()
            matrix = (1 + distance) * (-distance).exp()
            matrix.diagonal().add_((noise + LEAST_NOISE) / mass[rows])
            scores.append(labels[rows] - left_out_errors(matrix, labels[rows]))
        rows = torch.cat(turns)
        return calibrate_scores(torch.cat(scores), labels[rows], None if weights is None else mass[rows]).loss

    starts = [[length * math.sqrt(len(parts))] * len(parts) + [noise] for length, noise in _FIRST]
    least, (*lengths, noise) = _search(loss, starts) if turns else (math.inf, starts[len(starts) // 2])
    noise = noise if weights is None else noise * float(weights.double().mean())
    known = units.log() + torch.tensor(lengths, dtype=torch.float64).log()
    return ClassKernel(known, torch.tensor(math.log(noise), dtype=torch.float64), least)


def _search(
    loss: Callable[[Sequence[float], float], float], starts: Sequence[list[float]]
) -> tuple[float, list[float]]:
    """The least loss, and its point: the lengths and, last, the noise.

    A coordinate search from the best start, until no step lowers the loss, or for 20 steps.
    """
    tries = itertools.count(1)

    def value(point: list[float]) -> float:
        most = len(starts) + _MOST_STEPS
        report("kernel", min(next(tries), most), most, "steps (or fewer)")
        return loss(point[:-1], point[-1])

    least, best = min((value(start), start) for start in starts)
    places, last = itertools.cycle(range(len(best))), len(best) - 1
    unchanged = 0
    for place in itertools.islice(places, _MOST_STEPS // 2):
        (low, high), step = _RANGES[place == last], _STEPS[place == last]
        tried = [[*best[:place], best[place] * factor, *best[place + 1 :]] for factor in (step, 1 / step)]
        inside = [point for point in tried if low <= point[place] <= high]
        known = min(((value(point), point) for point in inside), default=(least, best))
        unchanged = 0 if known[0] < least else unchanged + 1
        least, best = min((least, best), known)
        if unchanged == len(best) or time_left() <= 0:
            break
    return least, best


def _median_distance(rows: Tensor) -> Tensor:
    """The median distance between the first 500 rows of ``[n, p]``; their mean if that is 0, or 1."""
    distance = torch.pdist(rows[:_UNIT_ROWS].double())
    median = distance.median() if len(distance) else torch.tensor(0.0)
    mean = distance.mean() if len(distance) else torch.tensor(0.0)  # where most rows are equal
    return torch.where(median > 0, median, torch.where(mean > 0, mean, 1.0)).double()
