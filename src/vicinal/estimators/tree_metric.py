"""The metric of boosted trees: rows are near whose columns add alike to a prediction."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vicinal.encoders import Kind, TableEncoder
from vicinal.encoders.table import TableInputs
from vicinal.encoders.tree_columns import TreeColumns
from vicinal.encoders.tree_projector import TreeProjector
from vicinal.estimators.inputs import Ids
from vicinal.heads import Comparables, Kriging
from vicinal.training import NeighborNetwork
from vicinal.training.trees import FOLDS, boosted_folds


def may_be_trees(settings: Mapping[str, Any], kinds: Mapping[str, Kind], groups: Ids | None) -> bool:
    """Whether ``metric="auto"`` tries trees, where nothing is asked that they have not, and groups make folds.

    A table of texts or images alone is a network's, as is one whose encoders are tuned.
    """
    if settings["tune"] not in ("none", "auto") or not {"number", "category"} & set(kinds.values()):
        return False
    if groups is not None and len(set(groups.tolist())) < FOLDS:
        return False
    plain = settings["head"] == "nona" and settings["loss"] is None and settings["fair"] is None
    usual = settings["similarity"] in ("l2", "squared_l2") and settings["index"] is None
    return (
        plain
        and usual
        and settings["validation_fraction"] != 0
        and settings["readout"] in ("auto", "rows", "comparables")
    )


def boosted_network(
    encoder: TableEncoder,
    reader: TreeColumns,
    inputs: TableInputs,
    labels: Tensor,
    folds: Tensor,
    *,
    weights: Tensor | None = None,
    seed: int = 0,
) -> tuple[NeighborNetwork, float]:
    """The network of trees, read out by 30 rows for now, and their mean squared error of the rows left out.

    Args:
        encoder: of the table, fitted.
        reader: of its columns, fitted.
        inputs: all rows, prepared with it.
        labels: ``[n]`` or ``[n, T]``.
        folds: ``[n]``, whole groups.
        weights: ``[n]`` or None.
        seed: of what LightGBM draws.
    """
    columns = reader(encoder, inputs.select(torch.arange(len(inputs))))
    texts, error = boosted_folds(columns, labels, folds, categories=reader.categories, weights=weights, seed=seed)
    return NeighborNetwork(encoder, TreeProjector(texts, reader), Kriging(30)), error


def trend_head(network: NeighborNetwork) -> Comparables:
    """A head with the trend of a cross-fitted projector, its scale and noise not chosen yet."""
    projector: Any = network.projector
    head = Comparables(trend=projector.trend, targets=projector.targets)
    head.base.copy_(projector.base)
    head.unit.copy_(projector.unit)
    return head.double()
