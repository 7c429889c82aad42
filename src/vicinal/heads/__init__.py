"""Heads: ``head(queries, bank, labels, *, query_ids, bank_ids, query_groups, bank_groups) -> prediction``."""

from vicinal.heads.admissible import admissible
from vicinal.heads.arranging import arrange
from vicinal.heads.dense import Dense
from vicinal.heads.intervals import conformal_margin, neighbor_range, weighted_quantile
from vicinal.heads.nona import NONA
from vicinal.heads.pruning import Visits
from vicinal.heads.streaming import streamed_prediction
from vicinal.heads.strongest import streamed_top_weights

__all__ = [
    "NONA",
    "Dense",
    "Visits",
    "admissible",
    "arrange",
    "conformal_margin",
    "neighbor_range",
    "streamed_prediction",
    "streamed_top_weights",
    "weighted_quantile",
]
