"""Heads: ``head(queries, bank, labels, *, query_ids, bank_ids, query_groups, bank_groups) -> prediction``."""

from vicinal.exports import export_imported as _export_imported
from vicinal.heads.admissible import admissible as admissible
from vicinal.heads.class_heads import Basis as Basis
from vicinal.heads.class_heads import EquiangularHead as EquiangularHead
from vicinal.heads.class_heads import NearestClassMean as NearestClassMean
from vicinal.heads.class_heads import class_distances as class_distances
from vicinal.heads.class_heads import coherence as coherence
from vicinal.heads.class_heads import equiangular_basis as equiangular_basis
from vicinal.heads.class_heads import frechet_choice as frechet_choice
from vicinal.heads.class_heads import frechet_scores as frechet_scores
from vicinal.heads.class_heads import welch_bound as welch_bound
from vicinal.heads.comparables import Comparables as Comparables
from vicinal.heads.dense import Dense as Dense
from vicinal.heads.forces import Forces as Forces
from vicinal.heads.forces import best_weights as best_weights
from vicinal.heads.forces import forces as forces
from vicinal.heads.intervals import conformal_margin as conformal_margin
from vicinal.heads.intervals import neighbor_range as neighbor_range
from vicinal.heads.kriging import Kriging as Kriging
from vicinal.heads.members import Ensemble as Ensemble
from vicinal.heads.multi_head import MultiHead as MultiHead
from vicinal.heads.nona import NONA as NONA
from vicinal.heads.selection import MemberSelection as MemberSelection
from vicinal.heads.upstream import IntersampleAttention as IntersampleAttention
from vicinal.heads.upstream import NeuralNearest as NeuralNearest
from vicinal.heads.upstream import Refined as Refined

_export_imported(__name__)
