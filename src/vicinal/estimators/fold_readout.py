"""How a kriging readout is chosen, and how the rows that each fold leaves out are read: as the other folds choose.

The readout of a model, and its scale and noise, have the least error out of fold. That error, told as the error on new
rows, would be too low: of noise, it is the luckiest of 36 errors. So the rows of a fold are predicted as a model
predicts them that never saw them when it chose.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn

from vicinal.estimators.comparables import SHARE
from vicinal.estimators.fitted import FittedModel
from vicinal.estimators.readout import MOST, Tried, candidates, errors_of, surely_less
from vicinal.heads import Kriging
from vicinal.heads.folds import FoldMembers
from vicinal.training.rows import spread

UNSEEN = 64
"""Rows up to which those of a fold do not take part in predicting the rows that choose for it, either: a label has a
part in the errors of its neighbors. Of more rows it is one of many, and each fold would cost as much as the choice."""


@torch.no_grad()
def tried_unseen(model: FittedModel, kriging: Kriging, heads: Sequence[Kriging] | None = None) -> Tried:
    """What a readout is chosen by: rows held out, or where members are folds each row by those that leave out its fold.

    Args:
        model: fitted.
        kriging: whose other settings are kept.
        heads: those that are tried; None: of all scales and noises.
    """
    bank, labels, numbers = model.bank, model.bank_labels(), model.codec.targets is not None
    # scales are in distances of all rows, which need no label: a fold that is left out chooses among the same heads
    tried = candidates(kriging, bank.vectors) if heads is None else heads
    if model.folds is None:
        unseen, at = model.held_out, spread(len(model.held_out), MOST)
        truth, known = model.codec.as_predicted(unseen.labels[at]), bank.identity(**unseen.who(at))
        rows = unseen.vectors[at], truth, bank.vectors, labels, known, unseen.mass[at]
        return Tried(tried, errors_of(tried, *rows, numbers=numbers)[0], torch.zeros(len(at)))
    members, chosen, each, codes = model.fold_members(), spread(len(bank), 4 * MOST), [], []
    for fold in range(members.folds):
        at = chosen[bank.in_fold(fold, chosen)]
        if not len(at):
            continue
        view = model.of_fold(fold)
        parts = [FoldMembers(one, members.members, members.folds).part(fold) for one in tried]
        known = view.bank.identity(ids=None, groups=bank.who(at)["groups"]) | {"bank_weight": view.bank.mass}
        queries, others = members.columns(fold, bank.vectors[at]), (view.bank.vectors, view.bank_labels())
        each.append(errors_of(parts, queries, labels[at], *others, known, bank.mass[at], numbers=numbers)[0])
        codes += [fold] * len(at)
    return Tried(tried, torch.cat(each, dim=1), torch.tensor(codes))


@torch.no_grad()
def readouts_by_fold(model: FittedModel, tried: Tried, *, compared: bool) -> list[nn.Module]:
    """The head of each fold, as the other folds choose it.

    Args:
        model: whose members are folds, read by attention.
        tried: what was found for the choice of a kriging head by all folds.
        compared: whether attention may be chosen, too.
    """
    heads, folds = list[nn.Module](), model.fold_members().folds
    apart = len(model.bank) <= UNSEEN and folds > 2  # of two folds nothing would be left to predict from
    for fold in range(folds):
        others = model
        if apart:
            left = (~model.bank.in_fold(fold)).nonzero()[:, 0].numpy()
            others = replace(model, bank=model.bank.take(left, cells=False))
        few = tried_unseen(others, tried.heads[0], tried.heads) if apart else tried.without(fold)
        head = few.choice()
        heads.append(head)
        if compared:
            (error, mass), rows = others.honest_errors, others.fold_positions(4 * MOST)
            seen = [others.bank.in_fold(one, rows).nonzero()[:, 0] for one in range(folds) if one != fold]
            at = torch.cat(seen)  # fold by fold, as the errors of kriging were found
            place = [id(one) for one in few.heads].index(id(head))
            each = error[at], few.error[place] / mass[at], mass[at]
            heads[-1] = model.network.head if surely_less(*each, SHARE) else head
    return heads
