"""What members that are folds say of the rows that each leaves out: honest predictions, and their error."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from vicinal.estimators.fitted import FittedModel
from vicinal.estimators.inputs import Ids
from vicinal.heads.folds import FoldMembers

MOST = 4096
"""Rows that calibrate intervals, at most, spread evenly over the bank; more would hardly move their ends."""

Who = Mapping[str, Ids | None]
"""Ids and groups of rows, by these names."""


@torch.no_grad()
def fold_predictions(model: FittedModel, queries: Tensor, who: Who, head: nn.Module | None = None) -> Tensor:
    """Predictions ``[b, F]`` or ``[b, F, K]`` of ``queries [b, M * d]``, in the head's units, by each fold's members.

    All are read by ``head``, if given, in place of their own.
    """
    members, each = model.fold_members(), []
    others = members if head is None else FoldMembers(head, members.members, members.folds)
    for fold in range(members.folds):
        view = model.of_fold(fold).with_head(others.part(fold))
        each.append(view.predict_embedded(members.columns(fold, queries), view.bank.identity(**who)))
    return torch.stack(each, dim=1)


def ensemble_share(model: FittedModel) -> float:
    """The squared error of all members together as a share of that of the members that never saw a row; at most 1.

    See :meth:`vicinal.estimators.NeighborRegressor.out_of_fold_error`.
    """
    positions, bank = model.fold_positions(MOST), model.bank
    if not len(positions):
        return 1.0
    unseen = model.in_label_units(model.out_of_fold(positions)).double()
    error = (unseen - bank.labels[positions].double()).square()
    disagreement = torch.zeros_like(error)
    for fold, head in enumerate(model.fold_members().heads):
        # all members as those that leave the row out read it: what differs is what they saw, not how they are read
        at = bank.in_fold(fold, positions).nonzero()[:, 0]
        each = fold_predictions(model, bank.vectors[positions[at]].double(), bank.who(positions[at]), head)
        said = torch.stack([model.in_label_units(one).double() for one in each.unbind(dim=1)])
        disagreement[at] = said.var(dim=0, unbiased=False)
    mass = bank.mass[positions].reshape(-1, *[1] * (error.ndim - 1))
    total = float((error * mass).sum())
    return max(0.0, 1 - float((disagreement * mass).sum()) / total) if total > 0 else 1.0
