"""A model of two metrics: the mean of what trees and a kernel say."""

import copy
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from vicinal.encoders.blend_projector import BlendProjector
from vicinal.encoders.kernel_projector import KernelProjector, TrendProjector
from vicinal.encoders.stacked_projector import StackedProjector
from vicinal.estimators.bank import Bank
from vicinal.estimators.fitted import FittedModel
from vicinal.heads.blend import Blend
from vicinal.heads.kinds import adjusts, weighs_locally
from vicinal.heads.kriging import Kriging
from vicinal.training import NeighborNetwork
from vicinal.training.history import TrainingHistory

POWER = 4
"""Of errors out of fold, by which the two have their shares: of twice the squared error 1 to 16."""

LEAST = 0.1
"""Share below which the other one is taken alone."""

FEW = 30
"""Rows that make the whole prediction, unless one of the two takes more."""

MOST = 2000
"""Rows up to which both are blended."""


def blended(trees: FittedModel, kernel: FittedModel, settings: Mapping[str, Any]) -> FittedModel | None:
    r"""The weighted mean of both, with shares $a_m \propto e_m^{-4}$ by their squared errors e out of fold.

    What the two miss differs, so their mean has less error than the better of them: 3 % on the median of small tables,
    see ``docs/results/predict.md``. Few rows tell little of which one is better: where errors are alike, so are shares.

    Returns:
        None where one has nearly all the share, where trees, which few rows make, have less error than a kernel that
        signed weights of all rows make, and where a setting asks for so many rows, or an index, which knows one metric.
    """
    begin = time.perf_counter()
    errors = [max(one.error_of_all(), torch.finfo(torch.float64).tiny) for one in (trees, kernel)]
    share = float(torch.sigmoid(torch.tensor(errors[1] / errors[0], dtype=torch.float64).log() * POWER))
    heads = [one.network.head for one in (trees, kernel) if weighs_locally(one.network.head)]
    hidden = kernel.readout == "dense" and errors[0] < errors[1]
    fixed = settings["max_neighbors"] is not None or settings["index"] is not None
    if hidden or fixed or len(trees.bank) > MOST or not (any(map(adjusts, heads)) and LEAST <= share <= 1 - LEAST):
        return None
    first, second = trees.network.projector, kernel.network.projector
    if not isinstance(first, StackedProjector) or not isinstance(second, TrendProjector | KernelProjector):
        return None
    if isinstance(second, TrendProjector) and not _same_folds(trees.bank, kernel.bank):
        return None
    projector = BlendProjector(first, second, [adjusts(head) for head in heads])
    head = Blend(_of_few(heads), projector.widths, share)
    network = NeighborNetwork(trees.network.encoder, projector, head.double()).eval()
    optimism = share * trees.optimism + (1 - share) * kernel.optimism
    bank, held_out = _side_by_side(trees.bank, kernel.bank), _side_by_side(trees.held_out, kernel.held_out)
    model = replace(trees, network=network, bank=bank, held_out=held_out, metric="trees and kernel", optimism=optimism)
    unit = model.codec.unit() ** 2
    history = TrainingHistory([model.error_of_all() / unit], [model.honest_error() / unit])
    return model.with_facts(history=history, trials=(model.trial(time.perf_counter() - begin, settings["tune"]),))


def _of_few(heads: Sequence[Kriging]) -> list[Kriging]:
    """Heads that together read at most 30 rows, or as many as one of them does; of signed weights they read all."""
    if not all(head.convex for head in heads):
        return list(heads)
    least, most = sorted(head.k for head in heads)
    least = min(least, max(FEW, most) // 2)
    few = [copy.deepcopy(head) for head in heads]
    for head in few:
        head.k = min(head.k, max(FEW, most) - least if head.k == most else least)
    return few


def _same_folds(one: Bank, other: Bank) -> bool:
    """Whether each row is left out together with the same others."""
    return one.folds is not None and other.folds is not None and torch.equal(one.folds, other.folds)


def _side_by_side(one: Bank, other: Bank) -> Bank:
    """The rows of a bank, with their vectors in both."""
    return one.take(np.arange(len(one)), torch.cat([one.vectors, other.vectors], dim=1))
