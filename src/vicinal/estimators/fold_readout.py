"""How the rows that each fold leaves out are read: by the readout that the rows of the other folds choose.

The readout of a model, and its scale and noise, have the least error out of fold. That error, told as the error on new
rows, would be too low: of noise, it is the luckiest of 36 errors. So the rows of a fold are predicted as a model
predicts them that never saw them when it chose.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vicinal.estimators.readout import MOST, Tried, tried_out_of_fold
from vicinal.heads.folds import FoldMembers
from vicinal.training.error import error_of
from vicinal.training.rows import spread

UNSEEN = 64
"""Rows up to which those of a fold do not take part in predicting the rows that choose for it, either: a label has a
part in the errors of its neighbors. Of more rows it is one of many, and each fold would cost as much as the choice."""


class FoldRows(NamedTuple):
    """The rows of a bank whose members are folds.

    Attributes:
        vectors: ``[N, M * d]``.
        labels: ``[N]``, ``[N, K]`` or ``[N, T]``.
        folds: ``[N]``.
        groups: ``[N]``, or None.
        mass: how many rows each counts as ``[N]``.
        numbers: whether labels are several numbers a row.
    """

    vectors: Tensor
    labels: Tensor
    folds: Tensor
    groups: Tensor | None
    mass: Tensor
    numbers: bool

    def tried(self, members: FoldMembers, unseen: int | None = None) -> Tried:
        """See :func:`vicinal.estimators.readout.tried_out_of_fold`."""
        known: Mapping[str, Any] = {"numbers": self.numbers, "mass": self.mass, "unseen": unseen}
        return tried_out_of_fold(members, self.vectors, self.labels, self.folds, self.groups, **known)

    def errors(self, members: FoldMembers, unseen: int | None = None) -> tuple[Tensor, Tensor]:
        """Errors ``[n]`` of rows out of fold by their own heads, and their folds, without the fold ``unseen``."""
        there = torch.ones_like(self.folds, dtype=torch.bool) if unseen is None else self.folds != unseen
        vectors, labels, folds, groups, mass = (None if one is None else one[there] for one in self[:5])
        if vectors is None or labels is None or folds is None or mass is None:
            raise TypeError("rows: expected vectors, labels, folds and mass")
        at = spread(len(vectors), 4 * MOST)
        known = {"query_groups": None if groups is None else groups[at], "bank_groups": groups}
        known |= {"bank_weight": mass} if bool((mass != 1).any()) else {}  # attention reads a plain bank in blocks
        said = members.out_of_fold(vectors[at].double(), folds[at], vectors, labels, folds, **known)
        error = error_of(said, labels[at].to(said), numbers=self.numbers).double()
        return error * mass[at].to(error), folds[at]


@torch.no_grad()
def readouts_by_fold(
    members: FoldMembers, attention: nn.Module | None, tried: Tried, rows: FoldRows
) -> list[nn.Module]:
    """The head of each fold, as the other folds choose it.

    Args:
        members: of the kriging head whose scale and noise are chosen.
        attention: what it is compared with, or None.
        tried: what was found for the choice by all folds.
        rows: of the bank.
    """
    heads = list[nn.Module]()
    apart = len(rows.folds) <= UNSEEN and members.folds > 2  # of two folds nothing would be left to predict from
    others = None if attention is None else FoldMembers(attention, members.members, members.folds)
    known = None if others is None or apart else rows.errors(others)
    for fold in range(members.folds):
        few = rows.tried(members, fold) if apart else tried.without(fold)
        head, optimism = few.choice()
        heads.append(head)
        if attention is not None and others is not None:
            error, codes = rows.errors(others, fold) if known is None else known
            place = [id(one) for one in few.heads].index(id(head))
            if float(error[codes != fold].sum()) < optimism * float(few.error[place].sum()):
                heads[-1] = attention
    return heads
