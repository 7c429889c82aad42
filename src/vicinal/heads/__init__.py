"""Heads: ``head(queries, bank, labels, *, query_ids, bank_ids, query_groups, bank_groups) -> prediction``."""

from vicinal.heads.admissible import admissible
from vicinal.heads.approximate import ApproximateNONA, Approximation
from vicinal.heads.approximate_kriging import ApproximateKriging
from vicinal.heads.class_heads import (
    Basis,
    EquiangularHead,
    NearestClassMean,
    class_distances,
    coherence,
    equiangular_basis,
    frechet_choice,
    frechet_scores,
    welch_bound,
)
from vicinal.heads.comparables import Comparables
from vicinal.heads.dense import Dense
from vicinal.heads.intervals import conformal_margin, neighbor_range
from vicinal.heads.kriging import Kriging
from vicinal.heads.members import Ensemble
from vicinal.heads.nona import NONA, streamed_prediction
from vicinal.heads.selection import MemberSelection

__all__ = [
    "NONA",
    "ApproximateKriging",
    "ApproximateNONA",
    "Approximation",
    "Basis",
    "Comparables",
    "Dense",
    "Ensemble",
    "EquiangularHead",
    "Kriging",
    "MemberSelection",
    "NearestClassMean",
    "admissible",
    "class_distances",
    "coherence",
    "conformal_margin",
    "equiangular_basis",
    "frechet_choice",
    "frechet_scores",
    "neighbor_range",
    "streamed_prediction",
    "welch_bound",
]
