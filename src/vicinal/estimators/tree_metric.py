"""The metric of boosted trees: rows are near whose columns add alike to a prediction."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vicinal.encoders import Kind, TableEncoder
from vicinal.encoders.kernel_projector import BINS
from vicinal.encoders.stacked_projector import StackedProjector
from vicinal.encoders.table import TableInputs
from vicinal.encoders.tree_columns import LinearColumns
from vicinal.estimators.inputs import Ids
from vicinal.heads import Comparables, Kriging
from vicinal.training import NeighborNetwork
from vicinal.training.linear import logistic_folds, ridge_folds
from vicinal.training.rows import spread
from vicinal.training.stacking import stack_numbers, stack_scores
from vicinal.training.trees import FOLDS, boosted_folds

MOST_CLASSES = 32
"""Classes of which trees are boosted for each, whatever the number of rows."""

_MOST_SCORES, _MOST_PARTS = 2_500_000, 1 << 26
"""Scores of rows for classes up to which there may be more: minutes of a processor; and what columns add to them."""

_FEWEST = 40
"""Rows from which on trees and logistic regression of classes say more than a kernel."""

_MOST_LINES = 20_000
"""Rows that a linear model is fitted to, at most, and cells of what it reads."""

_MOST_CELLS = 1 << 25

_BLOCK = 1 << 14


def may_be_trees(settings: Mapping[str, Any], kinds: Mapping[str, Kind], groups: Ids | None = None) -> bool:
    """Whether ``metric="auto"`` tries trees, where nothing is asked that they have not, and groups make folds.

    A table of texts or images alone is a network's, as is one whose encoders are tuned.
    """
    if settings["tune"] not in ("none", "auto") or not {"number", "category"} & set(kinds.values()):
        return False
    if groups is not None and len(set(groups.tolist())) < FOLDS:
        return False
    plain = settings["head"] == "nona" and settings["loss"] is None and settings["fair"] is None
    usual = settings["similarity"] in ("l2", "squared_l2") and settings["readout"] in ("auto", "rows", "comparables")
    return plain and usual and settings["validation_fraction"] != 0


def may_be_class_trees(labels: Ids, columns: int, groups: Ids | None = None) -> bool:
    """Whether ``labels [n]`` are of few enough classes for them, two of which have rows, or groups, for each fold."""
    if len(labels) < _FEWEST:
        return False
    pairs = pd.DataFrame({"class": labels, "of": np.arange(len(labels)) if groups is None else groups})
    counts = pairs.drop_duplicates()["class"].value_counts()  # the most frequent first
    few = len(counts) <= MOST_CLASSES or len(counts) * len(labels) <= min(_MOST_SCORES, _MOST_PARTS // columns)
    return len(counts) >= 2 and few and int(counts.iloc[1]) >= FOLDS


def boosted_network(
    encoder: TableEncoder,
    reader: LinearColumns,
    inputs: TableInputs,
    labels: Tensor,
    folds: Tensor,
    *,
    classes: bool = False,
    weights: Tensor | None = None,
    seed: int = 0,
    reach: float = math.inf,
) -> tuple[NeighborNetwork, float]:
    """The network of trees and a linear model, read out by 30 rows for now, and its error of the rows left out.

    Both are weighed by what they say of rows that neither has seen.

    Args:
        encoder: of the table, fitted.
        reader: of its columns, fitted.
        inputs: all rows, prepared with it.
        labels: ``[n]`` or ``[n, T]``; of classes one-hot ``[n, K]``.
        folds: ``[n]``, whole groups.
        classes: whether the labels are classes.
        weights: ``[n]`` or None.
        seed: of what LightGBM draws.
        reach: see :func:`vicinal.training.trees.boosted_folds`.

    Raises:
        ValueError: where all rows outside a fold are of one class.
    """
    labels = labels.reshape(len(labels), -1)
    there = [int((labels[folds != fold].sum(dim=0) > 0).sum()) for fold in range(int(folds.max()) + 1)]
    if classes and min(there) < 2:
        raise ValueError(
            "y: expected two classes in the rows outside each fold for metric='trees', got one; give more rows of the "
            "rare class, or say metric='kernel'"
        )
    trees, read, some = _both_columns(encoder, reader, inputs)
    boosting: Any = {"categories": reader.categories, "weights": weights, "seed": seed, "classes": classes}
    boosting["reach"] = reach
    texts, _ = boosted_folds(trees, labels, folds, **boosting)
    projector, width = StackedProjector(texts, reader, labels.shape[1], classes=classes), len(reader.names)
    mass = None if weights is None else weights[some]
    terms = torch.cat(projector.columns.fit(read[:, width:]).terms(read[:, width:]), dim=1)
    scales = torch.ones_like(projector.columns.center)
    scales[: len(reader.further)] = terms[:, : len(reader.further)].std(dim=0, correction=0)
    scales = torch.where(scales > 0, scales, 1.0)
    lines = (logistic_folds if classes else ridge_folds)(terms / scales, labels[some], folds[some], weights=mass)
    projector.slopes.copy_(lines.slopes / scales)
    starts = torch.stack([torch.zeros_like(projector.start), lines.starts.mean(dim=0)])
    starts[0, -projector.trees.targets :] = projector.trees.base
    sources = torch.stack(projector.parts(read, folds[some])).sum(dim=3) + starts[:, None]
    shares, added, error = (stack_scores if classes else stack_numbers)(sources, labels[some], mass)
    projector.shares.copy_(shares.reshape(2, -1))
    projector.start.copy_((projector.shares * starts).sum(dim=0) + added)
    return NeighborNetwork(encoder, projector, Kriging(30)), error


def _both_columns(encoder: TableEncoder, reader: LinearColumns, inputs: TableInputs) -> tuple[Tensor, Tensor, Tensor]:
    """What trees read ``[n, f]``, all that is read ``[m, f + p]`` of the rows of a linear model, and these rows."""
    width = len(reader.names)
    some = spread(len(inputs), min(_MOST_LINES, _MOST_CELLS // (width + len(reader.further) * (1 + BINS))))
    trees, parts = torch.empty(len(inputs), width, dtype=torch.float64), []
    for at in torch.split(torch.arange(len(inputs)), _BLOCK):
        block = reader(encoder, inputs.select(at))
        trees[at] = block[:, :width]
        parts.append(block[torch.isin(at, some)])
    return trees, torch.cat(parts), some


def trend_head(network: NeighborNetwork) -> Comparables:
    """A head with the trend of a cross-fitted projector, its scale and noise not chosen yet."""
    projector: Any = network.projector
    head = Comparables(trend=projector.trend, targets=projector.targets)
    head.base.copy_(projector.base)
    head.unit.copy_(projector.unit)
    return head.double()
