"""How the rows that each fold leaves out are read: by the readout that the rows of the other folds choose.

The readout of a model, and its scale and noise, have the least error out of fold. That error, told as the error on new
rows, would be too low: of noise, it is the luckiest of 36 errors. So the rows of a fold are predicted as a model
predicts them that never saw them when it chose.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vicinal.estimators.readout import Tried, tried_out_of_fold
from vicinal.heads import FoldMembers, Kriging
from vicinal.training import error_of

UNSEEN = 512
"""Rows up to which those of a fold do not take part in predicting the rows that choose for it, either: a label has a
part in the errors of its neighbors. Of more rows that is one of many, and each fold would cost another choice."""


@torch.no_grad()
def readouts_by_fold(
    kriging: Kriging,
    attention: nn.Module | None,
    tried: Tried,
    rows: tuple[Tensor, Tensor, Tensor],
    members: int,
    groups: Tensor | None,
    *,
    numbers: bool,
    weights: Tensor | None,
) -> list[nn.Module]:
    """The head of each fold, as the other folds choose it.

    Args:
        kriging: whose scale and noise are chosen.
        attention: what it is compared with, or None.
        tried: what was found for the choice by all folds.
        rows: of the bank: vectors ``[N, M * d]``, labels, and folds ``[N]``.
        members: their number, M.
        groups: ``[N]``, or None.
        numbers: whether labels are several numbers a row.
        weights: ``[N]`` or None.
    """
    vectors, labels, folds = rows
    count, heads = int(folds.max()) + 1, list[nn.Module]()
    among = FoldMembers(kriging, members, count)
    known = {"numbers": numbers, "weights": weights}
    for fold in range(count):
        few = tried.without(fold)
        if len(vectors) <= UNSEEN and count > 2:  # of two folds nothing would be left to predict from
            few = tried_out_of_fold(among, vectors, labels, folds, groups, unseen=fold, **known)  # type: ignore[arg-type]
        head, optimism = few.choice()
        if attention is not None:
            place = [id(one) for one in few.heads].index(id(head))
            both = FoldMembers(attention, members, count), rows, groups, fold
            if _attention_error(*both, **known) < optimism * float(few.error[place].sum()):  # type: ignore[arg-type]
                heads.append(attention)
                continue
        heads.append(head)
    return heads


def _attention_error(
    members: FoldMembers,
    rows: Sequence[Tensor],
    groups: Tensor | None,
    unseen: int,
    *,
    numbers: bool,
    weights: Tensor | None,
) -> float:
    """The sum of the errors of attention for the rows of other folds than ``unseen``, which takes no part."""
    there = rows[2] != unseen
    vectors, labels, folds = (some[there] for some in rows)
    codes = None if groups is None else groups[there]
    known = {} if weights is None else {"bank_weight": weights[there]}
    said = members.out_of_fold(
        vectors.double(), folds, vectors, labels, folds, query_groups=codes, bank_groups=codes, **known
    )
    error = error_of(said, labels.to(said), numbers=numbers).double()
    return float((error if weights is None else error * weights[there].to(error)).sum())
