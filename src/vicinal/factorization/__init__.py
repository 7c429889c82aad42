"""Interactions, graphs and weights as few vectors: plain tensors, for columns, banks, indexes and smaller layers."""

from vicinal.exports import export_imported as _export_imported
from vicinal.factorization.least_squares import Factors as Factors
from vicinal.factorization.least_squares import als as als
from vicinal.factorization.least_squares import fold_in as fold_in
from vicinal.factorization.least_squares import fold_in_shares as fold_in_shares
from vicinal.factorization.low_rank import LowRank as LowRank
from vicinal.factorization.low_rank import low_rank as low_rank
from vicinal.factorization.projections import common_neighbors as common_neighbors
from vicinal.factorization.projections import fastrp as fastrp
from vicinal.factorization.semi_nmf import semi_nmf as semi_nmf

_export_imported(__name__)
