"""The miner that leaves out unrelated pairs of unusual score, by Tukey's fences."""

import math
import numbers

import numpy as np
import torch
from torch import Tensor

from vicinal.blockwise import opaque_op
from vicinal.miners.selection import ScoredPairs, pair_miner


def check_reach(reach: object) -> float:
    """Return ``reach`` if it is a number of at least 0, or infinite."""
    if isinstance(reach, bool) or not isinstance(reach, numbers.Real):
        raise TypeError(f"reach: expected a number, got {reach!r}")
    length = float(reach)
    if not length >= 0:
        raise ValueError(f"reach: expected a number of at least 0 (inf keeps all), got {reach!r}")
    return length


def within_fences(values: Tensor, among: Tensor, reach: float) -> Tensor:
    """Where ``values`` lie within the fences of those ``among``; boolean, of their shape.

    The quartiles are the sorted values at the places ``int(n / 4)`` and ``int(3 n / 4)`` of n, counted from 0, so
    values that all come twice (both triangles of a symmetric matrix) give the same fences as once.
    """
    if math.isinf(reach) or values.numel() == 0:
        return among
    first, third = _quartiles(values.detach(), among).unbind()
    spread = reach * (third - first)
    return among & (values >= first - spread) & (values <= third + spread)


@opaque_op("quartiles", lambda values, among: values.new_empty(2))
def _quartiles(values: Tensor, among: Tensor) -> Tensor:
    """The values at the two places; 0 if there are none."""
    counted = values[among]
    if not len(counted):
        return values.new_zeros(2)
    places = [part * len(counted) // 4 for part in (1, 3)]
    if counted.device.type != "cpu":
        return counted.sort().values[places]
    return torch.from_numpy(np.partition(counted.numpy(), places)[places])  # torch takes twenty times as long


@pair_miner(
    "iqr_filter",
    "permutation-invariant",
    family="single pairs",
    paper="arXiv:2203.11593",
    verified="values of the paper's code",
)
def iqr_filter(pairs: ScoredPairs, *, reach: float = 1.5) -> Tensor:
    r"""Unrelated pairs of usual score: $q_1 - r (q_3 - q_1) \le s_{an} \le q_3 + r (q_3 - q_1)$.

    The quartiles are those of the scores of all unrelated pairs of the matrix. Pairs above the fences are probably
    mislabelled, and those below teach nothing. Related pairs are always kept.

    Args:
        pairs: ``scores``, ``relation`` and ``weight``; see :func:`vicinal.miners.selection.pair_miner`.
        reach: r >= 0, from the quartiles to the fences, in interquartile ranges; 0 keeps the middle half, inf all.

    >>> iqr_filter(torch.tensor([[0.9, 0.1, 0.2, 0.2, 0.3, 0.9]]), torch.tensor([[1, 0, 0, 0, 0, 0]]))
    tensor([[1., 1., 1., 1., 1., 0.]])
    """
    return within_fences(pairs.scores, pairs.unrelated, check_reach(reach)).logical_or(pairs.related)
