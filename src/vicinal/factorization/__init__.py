"""Interactions, graphs and weights as few vectors: plain tensors, for columns, banks, indexes and smaller layers."""

from vicinal.factorization.least_squares import Factors, als, fold_in, fold_in_shares
from vicinal.factorization.low_rank import LowRank, low_rank
from vicinal.factorization.projections import common_neighbors, fastrp
from vicinal.factorization.semi_nmf import semi_nmf

__all__ = [
    "Factors",
    "LowRank",
    "als",
    "common_neighbors",
    "fastrp",
    "fold_in",
    "fold_in_shares",
    "low_rank",
    "semi_nmf",
]
