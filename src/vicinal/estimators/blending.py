"""A model of two metrics: the mean of what trees and a kernel say, where both say it by few rows."""

import time

import numpy as np
import torch

from vicinal.encoders.blend_projector import BlendProjector
from vicinal.encoders.kernel_projector import TrendProjector
from vicinal.encoders.stacked_projector import StackedProjector
from vicinal.estimators.bank import Bank
from vicinal.estimators.fitted import FittedModel
from vicinal.heads.blend import Blend
from vicinal.heads.kinds import adjusts, weighs_locally
from vicinal.training import NeighborNetwork
from vicinal.training.history import TrainingHistory

POWER = 4
"""Of errors out of fold, by which the two have their shares: of twice the squared error 1 to 16."""

LEAST = 0.1
"""Share below which the other one is taken alone."""


def blended(trees: FittedModel, kernel: FittedModel, tune: str) -> FittedModel | None:
    r"""The weighted mean of both, with shares $a_m \propto e_m^{-4}$ by their squared errors e out of fold.

    Both err, for the most part apart from each other, so that their mean has less error than the better of them (3 %
    on the median of small tables; see ``docs/results/predict.md``). Shares go by few rows and are therefore nearly
    equal where errors are.

    Returns:
        None where one has nearly all the share, or the kernel is read by signed weights of all rows: a prediction of
        few rows would become one of all.
    """
    begin = time.perf_counter()
    costs = [max(one.error_of_all(), torch.finfo(torch.float64).tiny) for one in (trees, kernel)]
    share = 1 / (1 + (costs[0] / costs[1]) ** POWER)
    heads = trees.network.head, kernel.network.head
    few = [head for head in heads if weighs_locally(head) and head.convex]
    if len(few) < 2 or not any(map(adjusts, few)) or not LEAST <= share <= 1 - LEAST:
        return None
    first, second, folds = trees.network.projector, kernel.network.projector, kernel.bank.folds
    same = folds is not None and trees.bank.folds is not None and torch.equal(folds, trees.bank.folds)
    if not (same and isinstance(first, StackedProjector) and isinstance(second, TrendProjector)):
        return None
    projector = BlendProjector(first, second, [adjusts(head) for head in few])
    network = NeighborNetwork(trees.network.encoder, projector, Blend(few, projector.widths, share).double()).eval()
    banks = [_side_by_side(one, other) for one, other in ((trees.bank, kernel.bank), (trees.held_out, kernel.held_out))]
    model = FittedModel(trees.codec, network, *banks, "both", TrainingHistory([], []), trees.members)
    model = model.with_facts(optimism=share * trees.optimism + (1 - share) * kernel.optimism)
    unit = model.codec.unit() ** 2
    history = TrainingHistory([model.error_of_all() / unit], [model.honest_error() / unit])
    return model.with_facts(history=history, trials=(model.trial(time.perf_counter() - begin, tune),))


def _side_by_side(one: Bank, other: Bank) -> Bank:
    """The rows of a bank, with their vectors in both."""
    return one.take(np.arange(len(one)), torch.cat([one.vectors, other.vectors], dim=1))
