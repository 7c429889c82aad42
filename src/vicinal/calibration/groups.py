"""Rows that come in groups: how much each of them calibrates, where a new row is of a new group."""

import numpy as np
from numpy.typing import ArrayLike

from vicinal.calibration.checks import Floats, Integers


def group_mass(groups: ArrayLike, weights: Floats | None = None) -> tuple[Floats, int]:
    r"""Mass of each row $1 / n_g$ for a group of $n_g$ rows, so that every group has the mass 1, and their number G.

    Rows of a group (of a patient, a house) depend on one another, so only the groups are exchangeable: the errors of
    twelve rows of one group tell little more of a new group than one of them. The quantile of level $1 - \alpha$ is the
    lowest score up to which lies mass of $(1 - \alpha)(G + 1)$; it covers a row of a new group with probability of at
    least $1 - \alpha$ (Lee, Barber and Willett 2023, arXiv:2306.06342; with one row drawn of each group: Dunn,
    Wasserman and Ramdas 2022, arXiv:1809.07441).

    Args:
        groups: ``[n]``, anything that can be sorted.
        weights: ``[n]``, >= 0: the share of a row in its group; a group of weights that are all 0 counts for nothing.

    >>> mass, number = group_mass(["a", "a", "b"])
    >>> mass.tolist(), number
    ([0.5, 0.5, 1.0], 2)
    """
    names, codes = np.unique(np.asarray(groups), return_inverse=True)
    codes = codes.reshape(-1)
    each = np.ones(len(codes)) if weights is None else weights
    if len(codes) != len(each):
        raise ValueError(f"groups: expected {len(each)} entries, got {len(codes)}")
    sums = np.bincount(codes, each, minlength=len(names))
    return np.divide(each, sums[codes], out=np.zeros(len(each)), where=sums[codes] > 0), int((sums > 0).sum())


def drawn_rows(
    count: int, weights: Floats | None = None, groups: ArrayLike | None = None, *, seed: int = 0
) -> Integers:
    """Positions of rows that count alike: each is drawn by its weight, and of each group one.

    Where weights are likelihood ratios, what is left is a sample of the other population (rejection sampling), for
    tests that need independent rows of equal weight.

    Args:
        count: number of rows.
        weights: ``[count]``, >= 0; without groups a row stays with its share of the largest weight.
        groups: ``[count]``, anything that can be sorted; one row of each is drawn, in proportion to the weights.
        seed: of the draw.

    >>> drawn_rows(3, np.array([1.0, 0.0, 1.0])).tolist(), len(drawn_rows(3, groups=["a", "a", "b"]))
    ([0, 2], 2)
    """
    random, mass = np.random.default_rng(seed).random(count), np.ones(count) if weights is None else weights
    if groups is None:
        return np.flatnonzero(random * mass.max(initial=0.0) < mass)
    counted = np.flatnonzero(mass > 0)
    order = counted[np.argsort(np.log1p(-random[counted]) / -mass[counted], kind="stable")]  # exponential waiting times
    return np.sort(order[np.unique(np.asarray(groups)[order], return_index=True)[1]])
