"""Heads: ``head(queries, bank, labels, *, query_ids, bank_ids, query_groups, bank_groups) -> prediction``."""

from vicinal.heads.admissible import admissible
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
from vicinal.heads.forces import Forces, best_weights, forces
from vicinal.heads.intervals import conformal_margin, neighbor_range
from vicinal.heads.kriging import Kriging
from vicinal.heads.members import Ensemble
from vicinal.heads.multi_head import MultiHead
from vicinal.heads.nona import NONA
from vicinal.heads.selection import MemberSelection
from vicinal.heads.upstream import IntersampleAttention, NeuralNearest, Refined

__all__ = [
    "NONA",
    "Basis",
    "Comparables",
    "Dense",
    "Ensemble",
    "EquiangularHead",
    "Forces",
    "IntersampleAttention",
    "Kriging",
    "MemberSelection",
    "MultiHead",
    "NearestClassMean",
    "NeuralNearest",
    "Refined",
    "admissible",
    "best_weights",
    "class_distances",
    "coherence",
    "conformal_margin",
    "equiangular_basis",
    "forces",
    "frechet_choice",
    "frechet_scores",
    "neighbor_range",
    "welch_bound",
]
