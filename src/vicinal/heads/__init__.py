"""Heads: ``head(queries, bank, labels, *, query_ids, bank_ids, query_groups, bank_groups) -> prediction``."""

from vicinal.heads.admissible import admissible
from vicinal.heads.dense import Dense
from vicinal.heads.intervals import conformal_margin, neighbor_range, weighted_quantile
from vicinal.heads.nona import NONA

__all__ = ["NONA", "Dense", "admissible", "conformal_margin", "neighbor_range", "weighted_quantile"]
