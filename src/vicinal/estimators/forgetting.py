"""What a fitted model holds of single rows beside its bank, and how it lets go of that when they are forgotten.

All of it is in this list. A value goes if a forgotten row had it and no row that is left has it:

- levels of categories, also of the elements of sets, lose their names and keep their slots, so that no vector changes:
  :meth:`vicinal.encoders.ColumnEncoder.forget`;
- ends of numbers, and of vectors whose cells are there, are those of the rows that are left;
- classes likewise; one that was added after the fit goes altogether (:func:`classes_without`), as do classes of an
  :class:`EmbeddingLearner`;
- the lowest and highest label of the fit are those of the rows that are left (:func:`range_without`);
- the transform of the labels loses its knots and ends there: :meth:`TargetTransform.without`;
- an index lets go of the rows that it holds: :meth:`NearBank.remove`;
- earlier labels leave the history of the journal: :meth:`Changes.without`;
- report and card of the fit, which show rows, go from the folder: :meth:`ModelFolder.forget`.

What is left says something of many rows: weights, means, deviations, quantiles between which the kernel is piecewise
linear, buckets of hashed texts. They have seen the row, as the weights of a network have; only a fit without it undoes
that. And its id stands in the history of the journal, so that a refit leaves the row out.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from vicinal.data import TableForm
from vicinal.encoders import TableEncoder
from vicinal.heads.kinds import adjusts, is_linear, member_heads

Array = np.ndarray[Any, Any]


def forget_cells(
    encoder: TableEncoder, gone: Sequence[pd.DataFrame], left: Sequence[pd.DataFrame], form: TableForm
) -> None:
    """Let a fitted encoder go of single cells of rows that a model no longer has, which ``form`` reads if need be."""

    @functools.cache
    def cells(column: str) -> "pd.Series[Any]":
        return pd.concat([form.read(frame[[column]])[column].astype(object) for frame in left], ignore_index=True)

    for frame in gone:
        if len(frame) and set(encoder.columns) <= set(frame.columns):
            encoder.forget(form.read(frame), cells)


def classes_without(names: list[Any], gone: set[Any], used: set[int], fitted: int) -> list[Any]:
    """The names of classes, of which those that only forgotten rows had are nobody's.

    Args:
        names: of all classes.
        gone: those of forgotten rows.
        used: places of classes that other rows have.
        fitted: how many classes there were in the fit; of those behind them, the last may go altogether.

    >>> classes_without(["a", "b", "c"], {"b", "c"}, {0}, fitted=2)
    ['a', 'forgotten']
    >>> classes_without([3, 7, 9], {7, 9}, {0, 1}, fitted=3)
    [3, 7, -1]
    """
    lost = [place for place, name in enumerate(names) if name in gone and place not in used]
    left, known = list(names), set(names)
    for place in lost:
        left[place] = _nobody(names[place], known)
        known.add(left[place])
    while len(left) > fitted and len(left) - 1 in lost:
        left.pop()
    return left


def _nobody(name: Any, known: set[Any]) -> Any:
    """A name of the type of ``name`` that is not known: "forgotten", "forgotten 2", ..., or -1, -2, ..."""
    if isinstance(name, bool):  # True and False are nobody's names
        return name
    kind, words = type(name), isinstance(name, str)
    number = 1
    while (other := f"forgotten {number}".removesuffix(" 1") if words else kind(-number)) in known:
        number += 1
    return other


def range_without(low: Array, high: Array, gone: Array, left: Array) -> tuple[Array, Array]:
    """Lowest and highest labels ``[T]`` without those that only forgotten rows had: ``gone [m, T]``, ``left [n, T]``.

    >>> range_without(np.array([0.0]), np.array([9.0]), np.array([[9.0]]), np.array([[0.0], [4.0]]))
    (array([0.]), array([4.]))
    """
    low, high = low.copy(), high.copy()
    for place in range(len(low)):
        lost = np.setdiff1d(gone[:, place], left[:, place])
        if low[place] in lost:
            low[place] = left[:, place].min()
        if high[place] in lost:
            high[place] = left[:, place].max()
        if low[place] >= high[place]:  # all labels that are left are one
            high[place] = low[place] + max(1.0, abs(low[place]))
    return low, high


def rescale(head: nn.Module, factor: torch.Tensor, offset: torch.Tensor) -> None:
    """Make a head without a bank, or the trend of one, say ``factor`` times what it said, plus ``offset [T]``."""
    if adjusts(head):
        head.rescale(factor, offset)
    for one in member_heads(head):
        if is_linear(one):
            with torch.no_grad():
                one.linear.weight.mul_(factor.to(one.linear.weight)[:, None])
                one.linear.bias.mul_(factor.to(one.linear.bias)).add_(offset.to(one.linear.bias))
