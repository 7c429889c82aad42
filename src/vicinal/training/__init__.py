"""Training: a network of encoder, projector and head, and the Lightning module that fits it."""

from vicinal.training.added import AddedLosses
from vicinal.training.fit import TrainingHistory, train
from vicinal.training.module import MeanError, NeighborModule, error_of
from vicinal.training.network import NeighborNetwork
from vicinal.training.rows import RowBatches, Rows, RowSubset
from vicinal.training.settings import TrainingSettings

__all__ = [
    "AddedLosses",
    "MeanError",
    "NeighborModule",
    "NeighborNetwork",
    "RowBatches",
    "RowSubset",
    "Rows",
    "TrainingHistory",
    "TrainingSettings",
    "error_of",
    "train",
]
