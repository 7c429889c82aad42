"""A model of two metrics: the mean of what trees and a kernel say, of classes of their log-odds."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vicinal.encoders.blend_projector import BlendProjector
from vicinal.estimators.bank import Bank
from vicinal.estimators.comparables import SHARE
from vicinal.estimators.fitted import FittedModel
from vicinal.estimators.kernel_metric import kernel_parts
from vicinal.estimators.readout import SURELY
from vicinal.estimators.target_transform import DOUBT, TargetTransform
from vicinal.heads.admissible import Identity
from vicinal.heads.blend import Blend
from vicinal.heads.kinds import adjusts
from vicinal.heads.kriging import Kriging
from vicinal.training import NeighborNetwork
from vicinal.training.class_kernel import calibrate_scores
from vicinal.training.history import TrainingHistory
from vicinal.training.rows import spread
from vicinal.training.stacking import stack_scores

POWER, MANY, SURER = 4, 2000, 12
"""Of errors out of fold, by which the two have their shares: of twice the squared error 1 to 16; of more than 2,000
rows, whose errors tell more surely which one is better, 1 to 4,096."""

LEAST = 0.1
"""Share below which the other one is taken alone, and that rows have of their slope at least, of classes."""

ROWS = (30, 60, 120)
"""Rows that make the whole prediction, more where these make a better one."""

FAR, SOME = 1.1, 256
"""Times the error of all rows above which, on so many rows, no few of them are looked at further."""

NOWHERE = 1e-9, 1e30
"""Scale and noise of a kernel in which no row is near any other, so that a trend is all that is read."""


def blended(trees: FittedModel, kernel: FittedModel, settings: Mapping[str, Any]) -> FittedModel | None:
    r"""The weighted mean of both, with shares $a_m \propto e_m^{-4}$ by their squared errors e out of fold (``SURER``).

    What the two miss differs, so their mean has less error than the better of them: 3 % on the median of small tables,
    see ``docs/results/predict.md``. Few rows tell little of which one is better: where errors are alike, so are shares.
    Of readouts the first, of fewest rows, is taken unless the best is surely better, by over a hundredth.

    Returns:
        None where one has nearly all the share, or errs 2 % less than the mean; where trees, which few rows make, have
        less error than a kernel that signed weights of all rows make; and where :func:`may_blend` says no.
    """
    if not may_blend(settings):
        return None
    begin = time.perf_counter()
    means = [mean for one in (kernel.few, kernel) if one is not None for mean in _means(trees, one)]
    alone = min(one.error_of_all() for one in (trees, kernel))
    best = min(means, key=FittedModel.error_of_all, default=None)
    if best is None:
        return None
    most = (1 + SHARE) ** 2 * alone
    may = [one for one in means if one.error_of_all() <= most] if best.error_of_all() < alone else means
    few = next(one for one in may if not best.surely_below(one, SHARE, SURELY, of_all=True))
    return _tried(few, begin, settings) if few.error_of_all() <= most else None


def blended_classes(trees: FittedModel, kernel: FittedModel, settings: Mapping[str, Any]) -> FittedModel:
    r"""Log-odds of classes from both, $z_k = a_1 f_k + a_2 s_k + b_k$ with what columns add, f, and scores of rows, s.

    Slopes and biases have the least log-loss of rows that neither has seen, as those of trees and lines have. The head
    says $(a_1 f + a_2 s) / (a_1 + a_2)$, whose weights of rows sum to $a_2 / (a_1 + a_2)$. Where columns alone would do
    rows still say a little, a tenth of what they say without columns: of no row nothing could be told.

    Args:
        trees: whose columns add to log-odds, read out by their trend alone.
        kernel: with scores of classes.
        settings: the estimator's parameters.
    """
    begin = time.perf_counter()
    scores, bank, at = kernel.all_left_out()
    head: Any = trees.network.head
    sources, known = [head.trend_of(trees.bank.vectors[at]), scores.double()], (kernel.bank_labels()[at], bank.mass[at])
    least = torch.tensor([1e-3, LEAST * calibrate_scores(sources[1], *known).slope])
    slopes, biases, _ = stack_scores(torch.stack(sources), *known, least=least)
    doubt = DOUBT / len(trees.bank)
    scale = TargetTransform(name="softmax", slope=float(slopes.sum()), biases=biases.tolist(), doubt=doubt)
    trees = trees.read_out_by(scale)
    heads, share = [head, kernel_parts(kernel.network)[1]], float(slopes[0] / slopes.sum())
    model = _mean(trees, kernel, heads, share, kernel.optimism)
    model.computed.left_out = share * sources[0] + (1 - share) * sources[1], model.bank, at
    return _tried(model, begin, settings)


def may_blend(settings: Mapping[str, Any]) -> bool:
    """Whether no setting asks for so many rows, or for an index, which knows one metric."""
    return settings["max_neighbors"] is None and settings["index"] is None


def may_share(trees: FittedModel, kernel: FittedModel) -> bool:
    """Whether a kernel that errs more than trees may have a share of their mean, once few rows read it out."""
    return _share(trees, kernel) <= 1 - LEAST / 2


def _share(trees: FittedModel, kernel: FittedModel) -> float:
    """The share of the trees in the mean."""
    errors = [max(one.error_of_all(), torch.finfo(torch.float64).tiny) for one in (trees, kernel)]
    power = POWER if len(trees.bank) <= MANY else SURER
    return float(torch.sigmoid(torch.tensor(errors[1] / errors[0], dtype=torch.float64).log() * power))


def _means(trees: FittedModel, kernel: FittedModel) -> Iterator[FittedModel]:
    """The mean of both over 30 rows, then 60 and 120 if one of them takes as many; by signed weights then over all."""
    share, both = _share(trees, kernel), (trees, kernel)
    heads: Any = [one.network.head for one in both]
    hidden = kernel.readout == "dense" and trees.error_of_all() < kernel.error_of_all()
    if hidden or not (any(map(adjusts, heads)) and LEAST <= share <= 1 - LEAST):
        return
    optimism = share * trees.optimism + (1 - share) * kernel.optimism
    mean = _mean(trees, kernel, heads, share, optimism)
    head: Any = mean.network.head
    few = [head.with_rows(rows) for rows in ROWS if rows <= max(ROWS[0], *(one.k for one in heads))]
    tried = few if head.convex else [*few, head]
    if heads[-1].by_one_inverse(len(kernel.bank)) and not mean.codec.transform.by_rows:
        *fewer, whole = _over(mean, both, tried, spread(len(kernel.all_left_out()[2]), SOME))
        tried = [head] if min(one.error_of_all() for one in fewer) > FAR * whole.error_of_all() else tried
    yield from _over(mean, both, tried, slice(None))


def _over(
    mean: FittedModel, both: Sequence[FittedModel], heads: Sequence[Blend], some: Tensor | slice
) -> Iterator[FittedModel]:
    """The mean by each of these heads, with what both say of ``some`` of the rows left out."""
    at = both[1].all_left_out()[2][some]
    said = [_said(one, [head.members()[place] for head in heads], some) for place, one in enumerate(both)]
    for head, first, second in zip(heads, *said, strict=True):
        model = mean.with_head(head.eval())
        if not model.codec.transform.by_rows:
            model.computed.left_out = torch.lerp(second, first, head.share), mean.bank, at
        yield model


def _said(model: FittedModel, heads: Sequence[Kriging], some: Tensor | slice) -> list[Tensor]:
    """What a model says of ``some`` rows left out by each of these heads, which differ by how many rows they read."""
    said, bank, at = model.all_left_out()
    head: Any = model.network.head
    at, known, fewer = at[some], {head.k: said[some]}, sorted({one.k for one in heads} - {head.k})
    if head.convex:
        known |= {one.k: model.with_head(one).left_out(bank, at)[0] for one in heads if one.k in fewer}
    elif fewer:
        head = head.with_rows(fewer[-1])
        queries, identity = bank.vectors[at].double(), bank.identity(**bank.who(at))
        positions = head.nearest(queries, bank.vectors, Identity(**identity), bank.prepared(), bank.store.keys)
        rows = bank.vectors, model.bank_labels(), positions, bank.weights
        known |= zip(fewer, head.means_of_first([min(k, len(bank)) for k in fewer], queries, *rows), strict=True)
    return [known[one.k] for one in heads]


def _mean(
    trees: FittedModel, kernel: FittedModel, heads: Sequence[Kriging], share: float, optimism: float
) -> FittedModel:
    """The model with the rows, and the two metrics, of both side by side, by these heads."""
    first: Any = trees.network.projector
    second: Any = kernel.network.projector
    projector = BlendProjector(first, second, [adjusts(head) for head in heads])
    head = Blend(heads, projector.widths, share)
    network = NeighborNetwork(trees.network.encoder, projector, head.double()).eval()
    bank, held_out = _side_by_side(trees.bank, kernel.bank), _side_by_side(trees.held_out, kernel.held_out)
    both: Any = {"bank": bank, "held_out": held_out, "metric": "trees and kernel", "optimism": optimism}
    return replace(trees, network=network, **both)


def _tried(model: FittedModel, begin: float, settings: Mapping[str, Any]) -> FittedModel:
    """The model with its errors as its history, and as a line of what was tried."""
    unit = model.codec.unit() ** 2
    history = TrainingHistory([model.error_of_all() / unit], [model.honest_error() / unit])
    return model.with_facts(history=history, trials=(model.trial(time.perf_counter() - begin, settings["tune"]),))


def _side_by_side(one: Bank, other: Bank) -> Bank:
    """The rows of a bank, with their vectors in both."""
    return one.take(np.arange(len(one)), torch.cat([one.vectors, other.vectors], dim=1)).knowing_whole(other)
