"""From prepared rows to a bank, a block at a time, so that embeddings are held once."""

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vicinal.estimators.bank import Ids
from vicinal.index import NeighborBank
from vicinal.training import NeighborNetwork, RowSubset
from vicinal.training.rows import RowInputs

_BLOCK = 1 << 14
"""Rows that are embedded before they are kept; a multiple of the batch of embedding."""


def embedded(network: NeighborNetwork, inputs: RowInputs, dtype: torch.dtype = torch.float64) -> Tensor:
    """Embeddings ``[n, d]`` of all rows, on the CPU."""
    made: Tensor | None = None
    for start in range(0, len(inputs), _BLOCK):
        rows = torch.arange(start, min(start + _BLOCK, len(inputs)))
        part = network.embed_all(RowSubset(inputs, rows), torch.device("cpu"))
        if made is None:
            made = torch.empty(len(inputs), part.shape[1], dtype=dtype)
        made[start : start + len(rows)] = part
    return torch.zeros(0, 0, dtype=dtype) if made is None else made


def fill_bank(
    store: NeighborBank,
    network: NeighborNetwork,
    inputs: RowInputs,
    labels: Tensor,
    table: pd.DataFrame,
    ids: Ids,
    groups: Ids | None,
    positions: np.ndarray,
) -> None:
    """Put rows into an empty bank.

    Args:
        store: the bank.
        network: what embeds them.
        inputs: the rows, prepared.
        labels: float64, of all rows of the table.
        table: of which ``positions`` are the rows.
        ids: of all rows of the table.
        groups: of all rows of the table, or None.
        positions: ``[n]``.
    """
    store.reserve(len(positions))
    for start in range(0, len(positions), _BLOCK):
        at = positions[start : start + _BLOCK]
        vectors = embedded(network, RowSubset(inputs, torch.arange(start, start + len(at))), torch.float32)
        own = None if groups is None else groups[at]
        store.add(ids[at], vectors, labels[torch.from_numpy(at)], groups=own, rows=table.iloc[at])
