"""Samplers, which choose the rows of a batch: iterators of lists of row numbers, seeded, with ``set_epoch``."""

from vicinal.exports import export_imported as _export_imported
from vicinal.samplers.base import BatchSampler as BatchSampler
from vicinal.samplers.classes import ClassBatches as ClassBatches
from vicinal.samplers.classes import GroupBatches as GroupBatches
from vicinal.samplers.classes import HierarchicalBatches as HierarchicalBatches
from vicinal.samplers.classes import StratumBatches as StratumBatches
from vicinal.samplers.clusters import ClusterBatches as ClusterBatches
from vicinal.samplers.clusters import balanced_clusters as balanced_clusters
from vicinal.samplers.clusters import diverse_anchors as diverse_anchors
from vicinal.samplers.pruning import SlidingLossWindow as SlidingLossWindow
from vicinal.samplers.pruning import UnbiasedPruning as UnbiasedPruning
from vicinal.samplers.pruning import loss_groups as loss_groups
from vicinal.samplers.retrieved import draw_negatives as draw_negatives
from vicinal.samplers.retrieved import draw_unlabelled as draw_unlabelled
from vicinal.samplers.retrieved import with_relevant as with_relevant
from vicinal.samplers.selection import Selection as Selection
from vicinal.samplers.selection import facility_location_order as facility_location_order
from vicinal.samplers.selection import k_center_order as k_center_order
from vicinal.samplers.selection import keep_rows as keep_rows
from vicinal.samplers.selection import label_bands as label_bands
from vicinal.samplers.selection import prototype_distances as prototype_distances

_export_imported(__name__)
