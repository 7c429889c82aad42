"""Heads: ``head(queries, bank, labels, *, query_ids, bank_ids, query_groups, bank_groups) -> prediction``."""

from vicinal.heads.admissible import admissible
from vicinal.heads.approximate import ApproximateNONA, Approximation
from vicinal.heads.arranging import arrange
from vicinal.heads.dense import Dense
from vicinal.heads.equiangular import Basis, EquiangularHead, coherence, equiangular_basis, welch_bound
from vicinal.heads.frechet import class_distances, frechet_choice, frechet_scores
from vicinal.heads.intervals import conformal_margin, neighbor_range, weighted_quantile
from vicinal.heads.members import Members
from vicinal.heads.nona import NONA
from vicinal.heads.prepared import PreparedBank
from vicinal.heads.prototypes import NearestClassMean
from vicinal.heads.pruning import Visits
from vicinal.heads.quantiles import streamed_quantiles
from vicinal.heads.sharded import sharded_prediction, sharded_top_weights
from vicinal.heads.sharded_combining import Traffic
from vicinal.heads.streaming import streamed_prediction
from vicinal.heads.strongest import streamed_top_weights

__all__ = [
    "NONA",
    "ApproximateNONA",
    "Approximation",
    "Basis",
    "Dense",
    "EquiangularHead",
    "Members",
    "NearestClassMean",
    "PreparedBank",
    "Traffic",
    "Visits",
    "admissible",
    "arrange",
    "class_distances",
    "coherence",
    "conformal_margin",
    "equiangular_basis",
    "frechet_choice",
    "frechet_scores",
    "neighbor_range",
    "sharded_prediction",
    "sharded_top_weights",
    "streamed_prediction",
    "streamed_quantiles",
    "streamed_top_weights",
    "weighted_quantile",
    "welch_bound",
]
