"""Samplers, which choose the rows of a batch: iterators of lists of row numbers, seeded, with ``set_epoch``."""

from vicinal.samplers.base import BatchSampler
from vicinal.samplers.classes import ClassBatches, GroupBatches, HierarchicalBatches, StratumBatches
from vicinal.samplers.clusters import ClusterBatches, balanced_clusters, diverse_anchors
from vicinal.samplers.pruning import SlidingLossWindow, UnbiasedPruning, loss_groups
from vicinal.samplers.retrieved import draw_negatives, draw_unlabelled, with_relevant
from vicinal.samplers.selection import (
    Selection,
    facility_location_order,
    k_center_order,
    keep_rows,
    label_bands,
    prototype_distances,
)

__all__ = [
    "BatchSampler",
    "ClassBatches",
    "ClusterBatches",
    "GroupBatches",
    "HierarchicalBatches",
    "Selection",
    "SlidingLossWindow",
    "StratumBatches",
    "UnbiasedPruning",
    "balanced_clusters",
    "diverse_anchors",
    "draw_negatives",
    "draw_unlabelled",
    "facility_location_order",
    "k_center_order",
    "keep_rows",
    "label_bands",
    "loss_groups",
    "prototype_distances",
    "with_relevant",
]
