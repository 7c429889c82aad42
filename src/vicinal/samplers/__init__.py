"""Samplers: which rows meet in a batch. Iterators of lists of row numbers, seeded, with ``set_epoch``."""

from vicinal.samplers.base import BatchSampler
from vicinal.samplers.classes import ClassBatches, HierarchicalBatches
from vicinal.samplers.clusters import ClusterBatches, balanced_clusters
from vicinal.samplers.spread import GroupBatches, StratumBatches

__all__ = [
    "BatchSampler",
    "ClassBatches",
    "ClusterBatches",
    "GroupBatches",
    "HierarchicalBatches",
    "StratumBatches",
    "balanced_clusters",
]
